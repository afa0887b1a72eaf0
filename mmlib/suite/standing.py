"""How firm each recorded verdict is, and how it was recorded."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special, stats

from mmlib.core import claims
from mmlib.core.contract import ranges
from mmlib.core.effects import Interval
from mmlib.core.evidence import NO_SEED, Evidence
from mmlib.suite import record
from mmlib.suite.papers import experiment as experiment_of

# With how many seeds verdicts were read, where more than once; the same number again where
# something was recorded anew. The history of the evidence's folders has the records.
LOOKS = {
    ("01", "world"): (6, 10, 20),
    ("01", "flickr8k"): (3, 10),
    ("02", "world"): (3, 5, 10, 14, 17, 20),
    ("02", "flickr8k"): (3, 6, 10),
    ("03", "world"): (3, 6, 10, 16, 20),
    ("03", "flickr8k"): (3, 4, 7, 9, 10),
    ("04", "world"): (20, 20, 20, 20, 20),
    ("04", "flickr8k"): (10, 10),
    ("01", "controlled"): (2, 10),
    ("03", "controlled"): (1, 2, 3, 3),
}
# Looks -> the level of each that makes one of .05 of all (Pocock, Biometrika, 1977, table 1).
POCOCK = {1: 0.05, 2: 0.0294, 3: 0.0221, 4: 0.0182, 5: 0.0158, 6: 0.0142}
MARKS = {
    "†": "a correction for the number of tested claims (Benjamini and Hochberg), and of a mixed "
    "or opposite one for its parts (Bonferroni)",
    "‡": "one for how often it was read while seeds were added or recorded anew (Pocock)",
    "§": "a wider interval than needed, the variances over seeds and items in full",
    "½": "half of the seeds, in more than half of all halves",
    "↕": "half or twice the d",
}
HALVES = 300  # of the seeds that are drawn: all there are of ten seeds
MOST_GAPS = 4  # of a record that are named


@dataclass(frozen=True)
class Standing:
    """A claim's record on one tier's data, and what its verdict would survive.

    record: see `claims.Assessment.record`. seeds: how many it rests on, 0 if it was measured once.
    halves: see `claims.stability`; None where it is not decided or has fewer than four seeds.
    level: the level at which its interval would just lose the verdict; corrected: the same for the
    number of its parts; allowed: the level that its readings leave it. others: the verdicts at half
    and at twice the smallest effect of interest, none where it is not tested.
    """

    number: str
    tier: str
    record: Mapping[str, Any]
    seeds: int
    halves: claims.Stability | None
    level: float
    corrected: float
    allowed: float
    others: tuple[str, ...]

    @property
    def decided(self) -> bool:
        """Whether there is a verdict to lose."""
        return self.record["verdict"] in claims.DECIDED

    def marks(self, limit: float) -> str:
        """Those of `MARKS` that the verdict has; `limit` is of `limit_of` all standings."""
        if not self.decided:
            return ""
        losses = (
            self.corrected > limit,
            self.level > self.allowed,
            self.record["fragile"],
            self.halves is not None and self.halves.another > 0.5,
            any(other != self.record["verdict"] for other in self.others),
        )
        return "".join(mark for mark, lost in zip(MARKS, losses, strict=True) if lost)


def standings(number: str, tier: str, found: Evidence) -> list[Standing]:
    """Every claim of a paper on a tier's evidence, in the paper's order."""
    return [_standing(number, tier, one, found) for one in record.assessments(number, found)]


def _standing(number: str, tier: str, one: claims.Assessment, found: Evidence) -> Standing:
    seeds = [] if measured_once(one, found) else seeds_of(one, found)
    halves = None
    if one.verdict in claims.DECIDED and seeds:
        halves = claims.stability(one.claim, found, seeds, HALVES)
        halves = None if halves.another != halves.another else halves  # NaN below four seeds
    level, corrected = lost_at(one)
    looks = len(LOOKS.get((number, tier), (0,))) if _hangs_on_seeds(one) else 1
    others = claims.at_other_sizes([one], (0.5, 2.0)).to_numpy().ravel().tolist()
    return Standing(
        number, tier, one.record(), len(seeds), halves, level, corrected, POCOCK[looks],
        tuple(others),
    )  # fmt: skip


def lost_at(one: claims.Assessment) -> tuple[float, float]:
    """The level of significance at which a decided claim would just lose its verdict; else 1.

    Two-sided, as the interval is: .05 is that of a 95 % interval that just decides. Of several
    parts with one verdict the weakest counts. An opposite verdict needs one part and is lost with
    its strongest; a mixed one needs parts of two kinds and is lost with the strongest of the second
    kind. Any of the parts could have been that one, so the level is given twice: of the interval,
    and times the number of parts (Bonferroni).
    """
    if one.verdict not in claims.DECIDED or one.pooled is None:
        return 1.0, 1.0
    claim = one.claim
    if not claim.every:
        level = _level(one.pooled, claim, one.verdict)
        return level, level
    of_kind: dict[str, list[float]] = {}
    for name, part in one.pooled.parts.items():
        kind = one.part_verdicts[name]
        if kind in claims.DECIDED:
            of_kind.setdefault(kind, []).append(_level(part, claim, kind))
    if one.verdict in ("supported", "negligible"):
        level = max(of_kind[one.verdict])
        return level, level
    level = sorted(map(min, of_kind.values()))[one.verdict == "mixed"]
    return level, min(1.0, level * len(one.pooled.parts))


def _level(found: Interval, claim: claims.Claim, verdict: str) -> float:
    """The level at which one interval reaches the edge that gives it its verdict."""
    equivalent = claim.kind == "equivalent"
    within = verdict == ("supported" if equivalent else "negligible")
    distance = abs(found.effect)
    far = claim.smallest - distance if within else distance - claim.smallest * equivalent
    return 2 * float(special.stdtr(found.df, -far / found.se)) if found.se else 0.0


def limit_of(every: Iterable[Standing]) -> float:
    """The highest level that stands when all tested claims are corrected for their number."""
    levels = [one.corrected for one in every if one.record["verdict"] != "not tested"]
    adjusted = stats.false_discovery_control(levels) if levels else ()
    return max((p for p, q in zip(levels, adjusted, strict=True) if q <= 0.05), default=0.0)


def _hangs_on_seeds(one: claims.Assessment) -> bool:
    """Whether other seeds change a claim's effect, so that reading it again is another look."""
    return one.pooled is not None and any(part.per_seed for part in one.pooled.parts.values())


def measured_once(one: claims.Assessment, found: Evidence) -> bool:
    """Whether half of the seeds give a claim's effect to the last bit: it needs no training."""
    seeds = seeds_of(one, found)
    if one.pooled is None or len(seeds) < 2:
        return False
    first = claims.assess(one.claim, found, seeds[: len(seeds) // 2]).pooled
    return first is not None and (first.effect, first.se) == (one.pooled.effect, one.pooled.se)


def seeds_of(one: claims.Assessment, found: Evidence) -> list[int]:
    """The seeds a claim rests on: of its parts' data sets, which their names begin with."""
    parts = one.pooled.parts if one.pooled else ()
    sets = {
        max((d for d in found.datasets if part.startswith(d)), key=len, default="")
        for part in parts
    }
    own = [set(found.seeds_of(name)) for name in sets if name and found.seeds_of(name)]
    return sorted(set.intersection(*own)) if own else found.seeds


# --- Where the figures come from -----------------------------------------------------------------


def provenance(number: str, tier: str, found: Evidence) -> dict[str, str]:
    """How a paper's record on a tier was made, by name, in Markdown.

    The commands, their cost, the commit, machine and seeds of each recording, what a complete
    record would have and this one lacks, and with how many seeds its verdicts were read.
    """
    groups: dict[int, list[str]] = {}
    for name in found.datasets:
        groups.setdefault(max(found.seeds_of(name), default=0) + 1, []).append(name)
    # Of other tiers than the world a data set may have no record.
    named = len(groups) > 1 or (len(found.datasets) == 1 and tier != "world")
    command = "`, `".join(
        f"mmlib record {number} --tier {tier} --seeds {seeds}"
        + f" --datasets {shlex.join(names)}" * named
        for seeds, names in groups.items()
    )
    minutes = found.header["cpu_seconds"] / 60
    gaps = record.incomplete(found, experiment_of(number))
    lacking = "; ".join(gaps) or "nothing"
    if len(gaps) > MOST_GAPS:
        lacking = f"{len(gaps)} gaps, which `mmlib judge {number} --tier {tier}` names"
    return {
        "command": f"`{command}`",
        "cost": f"{minutes / 60:.1f} CPU hours" if minutes >= 6 else f"{minutes:.1f} CPU minutes",
        "recordings": recorded_by(found),
        "missing": lacking,
        "read with": ", ".join(map(str, LOOKS.get((number, tier), (len(found.seeds),)))),
    }


def recorded_by(found: Evidence) -> str:
    """Which recording has which seeds of which data sets, and at which commit it was made."""
    return "; ".join(f"{_commit(header)}: {_seeds_in(header)}" for header in found.recordings)


def _commit(header: Mapping[str, Any]) -> str:
    """The commit that a header names, and the GPU where one trained.

    What ran outside of a checkout has no commit, and neither have seeds of several machines.
    """
    gpu = header["machine"]["gpu"] if header["device"] != "cpu" else None
    return f"`{(header['commit'] or 'unknown')[:12]}`" + (f", GPU: {gpu}" if gpu else "")


def _seeds_in(header: Mapping[str, Any]) -> str:
    """The seeds of a recording by data set, those with the same seeds together."""
    names: dict[str, list[str]] = {}
    for dataset, systems in header["jobs"].items():
        seeds: Sequence[int] = sorted(set().union(*systems.values()) - {NO_SEED})
        names.setdefault(ranges(seeds) or "no seed", []).append(dataset)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{seeds} ({'; '.join(sets)})" for seeds, sets in names.items())
