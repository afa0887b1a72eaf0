"""Claims of papers and verdicts that know their power, over the effects of `mmlib.core.effects`."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import comb, isfinite, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, special

from mmlib.core.effects import LEVEL, Effect, Interval, Pooled, pool
from mmlib.core.evidence import Evidence

Verdict = Literal["supported", "opposite", "negligible", "mixed", "undecided", "not tested"]
Kind = Literal["greater", "equivalent"]
Size = Literal["clearly", "", "direction only"]
DECIDED = ("supported", "opposite", "negligible", "mixed")
POWER = 0.8  # the share of runs that should decide
MOST_SEEDS = 10_000  # what even this many seeds do not decide, seeds do not decide

RULE = Path(__file__).with_name("rule.txt").read_text(encoding="utf-8").rstrip()


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and what tests it. Raises ValueError unless `smallest` is above 0.

    claim: the paper's words in short; paper: its figures; contrast: the effect that tests it, in
    `unit`; smallest: the smallest effect of interest, and why; kind: "greater" for "A > B",
    "equivalent" for "A hardly differs from B"; every: it is about every part, so each counts;
    paper_effect: the paper's own effect as the contrast has it, in `unit`, where it prints one;
    tiers: the data that it is about;
    effects: (evidence, seeds) -> the effect of each part, or the reason why it is not tested.
    """

    id: str
    claim: str
    paper: str
    contrast: str
    unit: str
    smallest: float
    why: str
    kind: Kind = "greater"
    every: bool = False
    paper_effect: float | None = None
    tiers: Sequence[str] = ("world", "flickr8k", "paper")
    effects: Callable[[Evidence, Sequence[int]], Mapping[str, Effect] | str] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.smallest > 0:
            raise ValueError(f"{self.id}: the smallest effect of interest must be above 0")


def verdict(effect_like: Interval, smallest: float, kind: Kind = "greater") -> Verdict:
    """The verdict of `RULE` on one interval."""
    low, high = effect_like.low, effect_like.high
    if not effect_like.finite:
        return "not tested"
    if -smallest < low and high < smallest:
        return "negligible" if kind == "greater" else "supported"
    if kind == "equivalent":
        return "opposite" if low > smallest or high < -smallest else "undecided"
    return "supported" if low > 0 else "opposite" if high < 0 else "undecided"


def verdict_on_every(parts: Iterable[Verdict]) -> Verdict:
    """The verdict of `RULE` on a claim that counts every part, from the verdicts of its parts."""
    distinct = set(parts)
    decided = distinct - {"undecided"}
    if len(decided) > 1:
        return "mixed"
    if decided == {"opposite"} or (decided and len(distinct) == 1):
        return decided.pop()
    return "undecided"


def size(effect_like: Interval, smallest: float, kind: Kind = "greater") -> Size:
    """Whether a supported or opposite effect lies beyond `smallest`, by `RULE`; else ""."""
    found, ends = verdict(effect_like, smallest, kind), (effect_like.low, effect_like.high)
    if found not in ("supported", "opposite") or (kind == "equivalent" and found == "supported"):
        return ""
    if min(map(abs, ends)) > smallest:
        return "clearly"
    return "direction only" if abs(effect_like.effect) < smallest else ""


@dataclass(frozen=True)
class Assessment:
    """A claim and how it fared; `pooled` is None where it is not tested.

    part_verdicts: each part by itself; why: the reason in words; detectable: the smallest effect
    (for "equivalent": the smallest margin around a true zero) that such a run decides in four of
    five; seeds_needed: with how many seeds a run decides so at `claim.smallest`, None if with none.
    Of a claim that counts every part, both are about the open parts while it is undecided.
    """

    claim: Claim
    verdict: Verdict
    pooled: Pooled | None
    part_verdicts: Mapping[str, Verdict]
    why: str
    detectable: float | None = None
    seeds_needed: int | None = None

    @property
    def intervals(self) -> Sequence[Interval]:
        """What the verdict rests on: every part, or the pooled effect; none if not tested."""
        if self.pooled is None:
            return ()
        return list(self.pooled.parts.values()) if self.claim.every else [self.pooled]

    @property
    def size(self) -> Size:
        """How large a supported or opposite effect is by `RULE`.

        Of several parts the weakest counts, or, of a claim that one suffices to refute, the
        strongest.
        """
        if self.verdict not in ("supported", "opposite"):
            return ""
        order: tuple[Size, ...] = ("direction only", "", "clearly")
        sizes = {
            size(one, self.claim.smallest, self.claim.kind)
            for one in self.intervals
            if verdict(one, self.claim.smallest, self.claim.kind) == self.verdict
        }
        return (max if self.verdict == "opposite" else min)(sizes, key=order.index)

    @property
    def fragile(self) -> bool:
        """Whether a decided verdict would be another with the bounds of the standard errors."""
        if self.pooled is None or self.verdict not in DECIDED:
            return False
        bounded = pool({name: part.bounded() for name, part in self.pooled.parts.items()})
        return _judge(self.claim, bounded)[0] != self.verdict

    @property
    def holding_paper(self) -> int | None:
        """How many of the intervals hold the paper's own effect; None where it prints none."""
        if self.claim.paper_effect is None or not self.intervals:
            return None
        return sum(one.low <= self.claim.paper_effect <= one.high for one in self.intervals)

    def record(self) -> dict[str, Any]:
        """All of it as a JSON-able dict: numbers to six digits, None for what is no number.

        `holding_paper` of `intervals` intervals hold the paper's own effect.
        """
        left = ("effects", "why", "tiers")
        declared = {k: v for k, v in vars(self.claim).items() if k not in left}
        shown, deciding = self._deciding()
        numbers = {key: getattr(shown, key, None) for key in SHOWN}
        numbers["tau"] = getattr(self.pooled, "tau", None)
        by_part = {
            name: {k: _plain(v) for k, v in {**asdict(p), "low": p.low, "high": p.high}.items()}
            | {"verdict": self.part_verdicts[name]}
            for name, p in (self.pooled.parts.items() if self.pooled else ())
        }
        return {
            **declared, "smallest_why": self.claim.why, "verdict": self.verdict, "size": self.size,
            "fragile": self.fragile, "why": self.why,
            "intervals": len(self.intervals), "holding_paper": self.holding_paper,
            **{key: _plain(value) for key, value in numbers.items()},
            "detectable": _plain(self.detectable), "seeds_needed": self.seeds_needed,
            "deciding": deciding, "parts": by_part,
        }  # fmt: skip

    def _deciding(self) -> tuple[Interval | None, str]:
        """The effect that a record shows: the pooled one, or, of "every", the lowest part of those
        that have the claim's verdict, of all where none has.
        """
        if self.pooled is None or not self.claim.every or len(self.pooled.parts) < 2:
            return self.pooled, ""
        parts = self.pooled.parts
        alike = [name for name in parts if self.part_verdicts[name] == self.verdict]
        name = min(alike or parts, key=lambda name: parts[name].low)
        return parts[name], name


SHOWN = ("effect", "low", "high", "se", "df")


def _plain(value: float | None) -> float | int | None:
    """A number for JSON, which has no NaN and no infinity."""
    if value is None or not isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _decide(
    claim: Claim, evidence: Any, seeds: Sequence[int]
) -> tuple[Verdict, Pooled | None, dict[str, Verdict], str]:
    """The verdict of `RULE`, the pooled effect, the parts' verdicts, and why it is not tested."""
    effects = claim.effects(evidence, seeds)
    if isinstance(effects, str) or not effects:
        why = effects if isinstance(effects, str) and effects else "this run has nothing to compare"
        return "not tested", None, {}, why
    lost = [name for name, effect in effects.items() if not effect.finite]
    if lost:
        return "not tested", None, {}, f"there is no number for {', '.join(lost)}"
    pooled = pool(effects)
    return *_judge(claim, pooled), ""


def _judge(claim: Claim, pooled: Pooled) -> tuple[Verdict, Pooled, dict[str, Verdict]]:
    """The verdict on finite effects, these effects, and the verdict on each part."""
    parts = {
        name: verdict(effect, claim.smallest, claim.kind) for name, effect in pooled.parts.items()
    }
    if claim.every:
        return verdict_on_every(parts.values()), pooled, parts
    return verdict(pooled, claim.smallest, claim.kind), pooled, parts


def power(effects: Iterable[Interval], smallest: float, kind: Kind = "greater") -> float:
    """How often such independent estimates would all be decided.

    For "greater" when their true effects are `smallest`, for "equivalent" when they are 0; by the
    noncentral t distribution (for "equivalent" a lower bound, from both one-sided tests).
    """

    def missed(estimate: Interval) -> float:
        if estimate.se == 0:
            return 0.0
        share = special.nctdtr(
            estimate.df, smallest / estimate.se, special.stdtrit(estimate.df, LEVEL)
        )
        return float(np.nan_to_num(share))  # SciPy has no number for what is below 1e-150

    sides = 1 if kind == "greater" else 2
    return prod(max(1 - sides * missed(estimate), 0.0) for estimate in effects)


def _prospects(
    claim: Claim, pooled: Pooled, parts: Mapping[str, Effect]
) -> tuple[float, int | None]:
    """The detectable effect, and the seeds needed for the smallest effect of interest.

    parts: those that are to be decided, of a claim that counts every part.
    """

    def deciding(seeds: int | None = None) -> list[Interval]:
        if not claim.every:
            return [pooled if seeds is None else pooled.at(seeds)]
        return [part if seeds is None else part.at(seeds) for part in parts.values()]

    def enough(seeds: int) -> bool:
        return power(deciding(seeds), claim.smallest, claim.kind) >= POWER

    high = unit = max(estimate.se for estimate in deciding())
    while unit and power(deciding(), high, claim.kind) < POWER:
        high *= 2

    def lacking(size: float) -> float:
        return power(deciding(), size, claim.kind) - POWER

    detectable = float(optimize.brentq(lacking, 0, high, rtol=1e-6)) if unit else 0.0
    if all(effect.per_seed == 0 for effect in parts.values()):  # seeds change nothing
        now = max(effect.seeds for effect in parts.values())
        return detectable, now if detectable <= claim.smallest else None
    if not enough(MOST_SEEDS):
        return detectable, None
    counts = range(2, MOST_SEEDS + 1)
    return detectable, counts[bisect_left(counts, True, key=enough)]


def assess(claim: Claim, evidence: Any, seeds: Sequence[int]) -> Assessment:
    """The verdict of `RULE` on a claim, from the evidence of these seeds, and its power."""
    decided, pooled, verdicts, why = _decide(claim, evidence, seeds)
    if pooled is None:
        return Assessment(claim, decided, None, verdicts, why)
    parts = pooled.parts
    if claim.every and decided == "undecided":
        parts = {name: part for name, part in parts.items() if verdicts[name] == "undecided"}
    detectable, needed = _prospects(claim, pooled, parts)
    if len(seeds) == 1:
        needed = None  # one seed does not tell how much seeds differ
    # A part's data set may have fewer seeds than others.
    fewest = min((p.seeds for p in parts.values() if p.per_seed), default=len(seeds))
    reason = _reason(claim, decided, verdicts, needed, fewest)
    return Assessment(claim, decided, pooled, verdicts, reason, detectable, needed)


def _reason(
    claim: Claim, decided: Verdict, verdicts: Mapping[str, Verdict], needed: int | None, seeds: int
) -> str:
    """Why the verdict is what it is, in a sentence or two."""
    sentences = []
    if len(verdicts) > 1:
        by = "judged part by part" if claim.every else "judged on the pooled effect"
        sentences.append(f"{by}; of {len(verdicts)} parts {counted(verdicts.values())}")
        if decided == "undecided" and claim.every and "negligible" in verdicts.values():
            sentences.append("so it does not hold of every part, whatever the open ones are")
    if decided == "undecided":
        what = f"an effect of {claim.smallest:g} {claim.unit}"
        what = "a true zero effect" if claim.kind == "equivalent" else what
        if claim.every and len(set(verdicts.values())) > 1:
            what += " in the open parts"
        if seeds == 1:
            sentences.append("one seed does not tell how much seeds differ")
        elif needed is None:
            sentences.append(
                f"more seeds alone would not decide {what}: the items or the parts are too few"
            )
        elif needed <= seeds:
            sentences.append(
                f"these seeds would mostly decide {what}, so the effect is a borderline one"
            )
        else:
            sentences.append(f"{needed} seeds would decide {what} in four runs of five")
    return "; ".join(sentences)


def counted(verdicts: Iterable[str]) -> str:
    """How often each verdict is given, the most frequent first: "3 supported, 1 mixed"."""
    return ", ".join(f"{n} {word}" for word, n in Counter(verdicts).most_common())


class Stability(NamedTuple):
    """Shares of the halves of the seeds whose verdict differs from that of all seeds.

    another: with any other verdict; contrary: with another one that is decided, too.
    """

    another: float
    contrary: float


def stability(
    claim: Claim, evidence: Any, seeds: Sequence[int], draws: int = 1000, rng_seed: int = 0
) -> Stability:
    """How often half of the seeds, drawn without replacement, give another verdict than all.

    Where there are no more distinct halves than draws (up to 12 seeds for 1,000), each counts once
    and nothing is random; otherwise a half drawn again is not computed again. A half has less
    power, so some change is to be expected. NaN below four seeds, also of one part, as halves then
    have one seed.
    """
    unknown = Stability(float("nan"), float("nan"))
    if len(seeds) < 4:
        return unknown
    full, pooled, *_ = _decide(claim, evidence, seeds)
    if pooled and any(effect.per_seed and effect.seeds < 4 for effect in pooled.parts.values()):
        return unknown
    half = len(seeds) // 2
    places: Iterable[tuple[int, ...]] = combinations(range(len(seeds)), half)
    if comb(len(seeds), half) > draws:
        rng = np.random.default_rng(rng_seed)
        drawn = np.argsort(rng.random((draws, len(seeds))), axis=1)[:, :half]
        places = map(tuple, np.sort(drawn, axis=1).tolist())
    verdicts: dict[tuple[int, ...], Verdict] = {}
    drawn_verdicts = []
    for chosen in places:
        if chosen not in verdicts:
            verdicts[chosen] = _decide(claim, evidence, [seeds[i] for i in chosen])[0]
        drawn_verdicts.append(verdicts[chosen])
    another = [found for found in drawn_verdicts if found != full]
    contrary = [found for found in another if found in DECIDED]
    return Stability(len(another) / len(drawn_verdicts), len(contrary) / len(drawn_verdicts))


def at_other_sizes(
    assessed: Iterable[Assessment], factors: Sequence[float] = (0.5, 1.0, 2.0)
) -> pd.DataFrame:
    """The verdict on each tested claim if the smallest effect of interest were another one.

    A row a claim, a column a factor of its own smallest effect.
    """
    tested = [(one.claim, one.pooled) for one in assessed if one.pooled is not None]
    verdicts = [
        [_judge(replace(claim, smallest=f * claim.smallest), pooled)[0] for f in factors]
        for claim, pooled in tested
    ]
    columns = ["d" if factor == 1 else f"{factor:g} d" for factor in factors]
    ids = pd.Index([claim.id for claim, _ in tested], name="id")
    return pd.DataFrame(verdicts, ids, columns)


def effect_text(claim: Mapping[str, Any]) -> str:
    """A claim's effect with its interval and unit, from its record; "–" where it has none."""
    if any(claim.get(key) is None for key in ("effect", "low", "high")):
        return "–"
    numbers = "{effect:+.3g} [{low:+.3g}, {high:+.3g}]".format(**claim)
    return f"{numbers} {claim.get('unit') or ''}".rstrip()


def parts_table(assessed: Iterable[Assessment]) -> pd.DataFrame:
    """A row a part of each claim that was tested: its effect and its own verdict."""
    rows = [
        (
            assessment.claim.id,
            name,
            effect_text({**record, "unit": assessment.claim.unit}),
            record["verdict"],
        )
        for assessment in assessed
        for name, record in assessment.record()["parts"].items()
    ]
    table = pd.DataFrame(rows, columns=["id", "part", "effect, 95 % interval", "verdict"])
    return table.set_index(["id", "part"])


def ledger(assessed: Iterable[Assessment | Mapping[str, Any]]) -> pd.DataFrame:
    """A row a claim, from assessments or their records; "–" where there is nothing."""
    rows = []
    for assessment in assessed:
        r = assessment.record() if isinstance(assessment, Assessment) else assessment
        unit, open_ = r["unit"], r["verdict"] == "undecided"
        shown = effect_text(r) if r["parts"] else "–"
        rows.append({
            "id": r["id"], "claim": r["claim"], "paper": r["paper"], "tested by": r["contrast"],
            "effect, 95 % interval": f"{r['deciding']}: {shown}" if r.get("deciding") else shown,
            "sd between parts": f"{r['tau']:.2g}" if len(r["parts"]) > 1 else "–",
            "smallest of interest": f"{r['smallest']:g} {unit}",
            "verdict": r["verdict"], "size": r["size"] or "–",
            "detectable": f"{r['detectable']:.2g} {unit}" if open_ else "–",
            "seeds needed": str(r["seeds_needed"] or "none would do") if open_ else "–",
            "why": r["why"],
        })  # fmt: skip
    return pd.DataFrame(rows)
