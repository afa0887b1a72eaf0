"""How firm each recorded verdict is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from scipy import special, stats

from mmlib.core import claims
from mmlib.core.evidence import Evidence
from mmlib.suite import record

# With how many seeds verdicts were read, where more than once; the same number again where
# something was recorded anew. The history of the evidence's folders has the records.
LOOKS = {
    ("01", "world"): (6, 10, 20),
    ("01", "flickr8k"): (3, 10),
    ("02", "world"): (3, 5, 10, 14, 17, 20),
    ("02", "flickr8k"): (3, 6, 10),
    ("03", "world"): (3, 6, 10, 16, 20, 20, 20, 20),
    ("03", "flickr8k"): (3, 4, 7, 9, 10, 10, 10),
    ("04", "world"): (20, 20, 20, 20, 20),
    ("04", "flickr8k"): (10, 10),
    ("01", "controlled"): (2, 10),
    ("03", "controlled"): (1, 2, 3, 3, 3, 6, 10, 10),
}
# Looks -> the level of each that makes one of .05 of all (Pocock, Biometrika, 1977, table 1).
POCOCK = {
    1: 0.05, 2: 0.0294, 3: 0.0221, 4: 0.0182, 5: 0.0158, 6: 0.0142, 7: 0.013, 8: 0.012,
}  # fmt: skip
MARKS = {
    "†": "a correction for the number of tested claims (Benjamini and Hochberg), and of a mixed "
    "or opposite one for its parts (Bonferroni)",
    "‡": "one for how often it was read while seeds were added or recorded anew (Pocock)",
    "§": "a wider interval than needed, the variances over seeds and items in full",
    "½": "half of the seeds, in more than half of all halves",
    "↕": "half or twice the d",
}
HALVES = 300  # of the seeds that are drawn: all there are of ten seeds


@dataclass(frozen=True)
class Standing:
    """A claim's record on one tier's data, and what its verdict would survive.

    record: see `claims.Assessment.record`. seeds: how many it rests on, 0 if it was measured once.
    halves: see `claims.stability`; None where it is not decided or has fewer than four seeds.
    level, corrected: see `lost_at`. allowed: the level that its readings leave it. others: the
    verdicts at half and at twice the smallest effect of interest, none where it is not tested.
    """

    tier: str
    record: Mapping[str, Any]
    seeds: int
    halves: claims.Stability | None
    level: float
    corrected: float
    allowed: float
    others: tuple[str, ...]

    def marks(self, limit: float) -> str:
        """Those of `MARKS` that a decided verdict has; `limit` is of `limit_of` all standings."""
        if self.record["verdict"] not in claims.DECIDED:
            return ""
        losses = (
            self.corrected > limit,
            self.level > self.allowed,
            self.record["fragile"],
            self.halves is not None and self.halves.another > 0.5,
            any(verdict != self.record["verdict"] for verdict in self.others),
        )
        return "".join(mark for mark, lost in zip(MARKS, losses, strict=True) if lost)


def standings(number: str, tier: str, evidence: Evidence) -> list[Standing]:
    """Every claim of a paper on a tier's evidence, in the paper's order."""
    result = []
    for entry in record.assessments(number, evidence):
        seeds, halves = seeds_of(entry, evidence), None
        if entry.verdict in claims.DECIDED and seeds:
            halves = claims.stability(entry.claim, evidence, seeds, HALVES)
        if halves and isnan(halves.another):  # below four seeds
            halves = None
        # Where other seeds change the effect, reading it again is another look.
        by_seed = any(interval.per_seed for interval in entry.parts.values())
        allowed = POCOCK[len(LOOKS.get((number, tier), (0,))) if by_seed else 1]
        sizes = claims.at_other_sizes(entry)
        standing = Standing(
            tier, entry.record(), len(seeds), halves, *lost_at(entry), allowed, sizes
        )
        result.append(standing)
    return result


def lost_at(entry: claims.Assessment) -> tuple[float, float]:
    """The level of significance at which a decided claim would just lose its verdict; else 1.

    Two-sided, as the interval is: .05 is that of a 95 % interval that just decides. Of several
    parts with one verdict the weakest counts. An opposite verdict needs one part and is lost with
    its strongest; a mixed one needs parts of two kinds and is lost with the strongest of the second
    kind. Any of the parts could have been that one, so the level is given twice: of the interval,
    and times the number of parts (Bonferroni).
    """
    if entry.verdict not in claims.DECIDED:
        return 1.0, 1.0
    smallest, equivalent = entry.claim.smallest, entry.claim.kind == "equivalent"
    levels: dict[str, list[float]] = {}  # by verdict
    for name, effect in entry.parts.items():
        verdict, distance = entry.part_verdicts[name], abs(effect.effect)
        if verdict in claims.DECIDED:
            within = verdict == ("supported" if equivalent else "negligible")
            # From the effect to the edge that gives the interval its verdict.
            far = smallest - distance if within else distance - smallest * equivalent
            level = 2 * float(special.stdtr(effect.df, -far / effect.se)) if effect.se else 0.0
            levels.setdefault(verdict, []).append(level)
    if entry.verdict in ("supported", "negligible"):
        return (max(levels[entry.verdict]),) * 2
    level = sorted(map(min, levels.values()))[entry.verdict == "mixed"]
    return level, min(1.0, level * len(entry.parts))


def limit_of(every: Iterable[Standing]) -> float:
    """The highest level that stands when all tested claims are corrected for their number."""
    levels = [entry.corrected for entry in every if entry.record["verdict"] != "not tested"]
    adjusted = stats.false_discovery_control(levels) if levels else ()
    return max((p for p, q in zip(levels, adjusted, strict=True) if q <= 0.05), default=0.0)


def seeds_of(entry: claims.Assessment, evidence: Evidence) -> list[int]:
    """The seeds a claim rests on: of its parts' data sets, which their names begin with.

    None where half of them give its effect to the last bit: it was measured once.
    """
    names = {
        max((d for d in evidence.datasets if name.startswith(d)), key=len, default="")
        for name in entry.parts
    }
    seeds = evidence.seeds
    if of_parts := [set(evidence.seeds_of(d)) for d in names if d and evidence.seeds_of(d)]:
        seeds = sorted(set.intersection(*of_parts))
    if entry.parts and len(seeds) > 1:
        half = claims.assess(entry.claim, evidence, seeds[: len(seeds) // 2])
        effects = [[(p.effect, p.se) for p in judged.parts.values()] for judged in (half, entry)]
        if effects[0] == effects[1]:
            return []
    return seeds
