"""Claims of papers and verdicts that know their power, over the effects of `mmlib.core.effects`."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import comb, isfinite, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, special

from mmlib.core.effects import LEVEL, Effect, Interval, sd_between
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
    "equivalent" for "A hardly differs from B"; paper_effect: the paper's own effect as the contrast
    has it, in `unit`, where it prints one; tiers: the data that it is about; effects: (evidence,
    seeds) -> the effect of each part, or the reason why it is not tested.
    """

    id: str
    claim: str
    paper: str
    contrast: str
    unit: str
    smallest: float
    why: str
    kind: Kind = "greater"
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
    """The verdict of `RULE` on a claim, which counts every part, from the parts' verdicts."""
    distinct = set(parts)
    decided = distinct - {"undecided"}
    if len(decided) > 1:
        return "mixed"
    if decided == {"opposite"} or (decided and len(distinct) == 1):
        return decided.pop()
    return "undecided"


@dataclass(frozen=True)
class Assessment:
    """A claim and how it fared; `parts` is empty where it is not tested.

    part_verdicts: each part by itself; why: the reason in words; detectable: the smallest effect
    (for "equivalent": the smallest margin around a true zero) that such a run decides in four of
    five; seeds_needed: with how many seeds a run decides so at `claim.smallest`, None if with none.
    While the claim is undecided, both are about the open parts.
    """

    claim: Claim
    verdict: Verdict
    parts: Mapping[str, Effect]
    part_verdicts: Mapping[str, Verdict]
    why: str
    detectable: float | None = None
    seeds_needed: int | None = None

    @property
    def size(self) -> Size:
        """How large a supported or opposite effect is by `RULE`, that of the part that counts."""
        d, kind = self.claim.smallest, self.claim.kind
        if self.verdict != "opposite" and (self.verdict, kind) != ("supported", "greater"):
            return ""
        sizes: list[Size] = [
            "clearly" if min(abs(part.low), abs(part.high)) > d
            else "direction only" if abs(part.effect) < d else ""
            for name, part in self.parts.items() if self.part_verdicts[name] == self.verdict
        ]  # fmt: skip
        order = ("direction only", "", "clearly")
        return (max if self.verdict == "opposite" else min)(sizes, key=order.index)

    @property
    def fragile(self) -> bool:
        """Whether a decided verdict would be another with the bounds of the standard errors."""
        bounded = {name: part.bounded() for name, part in self.parts.items()}
        return self.verdict in DECIDED and _judge(self.claim, bounded)[0] != self.verdict

    def record(self) -> dict[str, Any]:
        """What tables, pages and figures show, as a JSON-able dict with numbers of six digits.

        `holding_paper` of `intervals` intervals hold the paper's own effect; None where it prints
        none. effect, low and high are those of the part that is shown, which of several parts is
        `deciding`: the lowest one that has the claim's verdict, of all where none has it.
        """
        parts, paper = self.parts, self.claim.paper_effect
        alike = [name for name in parts if self.part_verdicts[name] == self.verdict]
        shown = min(alike or parts, key=lambda name: parts[name].low, default="")
        named = ("id", "claim", "paper", "contrast", "unit", "smallest", "kind")
        return {
            **{name: getattr(self.claim, name) for name in named}, "paper_effect": paper,
            "verdict": self.verdict, "size": self.size, "fragile": self.fragile, "why": self.why,
            "intervals": len(parts), "smallest_why": self.claim.why,
            "holding_paper": None if paper is None or not parts else sum(
                part.low <= paper <= part.high for part in parts.values()
            ),
            "deciding": shown if len(parts) > 1 else "",
            **_numbers(parts.get(shown), "effect", "low", "high"),
            "tau": float(f"{sd_between(parts.values()):.6g}") if parts else None,
            **_numbers(self, "detectable", "seeds_needed"),
            "parts": {
                name: _numbers(part, "effect", "low", "high", "se", "df", "per_seed", "seeds")
                | {"verdict": self.part_verdicts[name]}
                for name, part in parts.items()
            },
        }  # fmt: skip


def _numbers(source: object, *names: str) -> dict[str, float | int | None]:
    """Numbers for JSON, which has no NaN and no infinity."""
    values = ((name, getattr(source, name, None)) for name in names)
    return {
        name: value if value is None or isinstance(value, int)
        else float(f"{value:.6g}") if isfinite(value) else None
        for name, value in values
    }  # fmt: skip


def _judge(claim: Claim, parts: Mapping[str, Effect]) -> tuple[Verdict, dict[str, Verdict]]:
    """The verdict on finite effects, and the verdict on each of them."""
    verdicts = {name: verdict(part, claim.smallest, claim.kind) for name, part in parts.items()}
    return verdict_on_every(verdicts.values()), verdicts


def power(effects: Iterable[Interval], smallest: float, kind: Kind = "greater") -> float:
    """How often such independent estimates would all be decided.

    For "greater" when their true effects are `smallest`, for "equivalent" when they are 0; by the
    noncentral t distribution (for "equivalent" a lower bound, from both one-sided tests).
    """
    sides = 1 if kind == "greater" else 2
    missed = (
        special.nctdtr(e.df, smallest / e.se, special.stdtrit(e.df, LEVEL)) if e.se else 0
        for e in effects
    )  # SciPy has no number for what is below 1e-150
    return prod(max(1 - sides * float(np.nan_to_num(share)), 0.0) for share in missed)


def _prospects(claim: Claim, parts: Sequence[Effect]) -> tuple[float, int | None]:
    """The effect that such parts detect, and the seeds needed for the smallest of interest."""

    def lacking(smallest: float, seeds: int | None = None) -> float:
        then = parts if seeds is None else [part.at(seeds) for part in parts]
        return POWER - power(then, smallest, claim.kind)

    high = unit = max(part.se for part in parts)
    while unit and lacking(high) > 0:
        high *= 2
    detectable = float(optimize.brentq(lacking, 0, high, rtol=1e-6)) if unit else 0.0
    if all(part.per_seed == 0 for part in parts):  # seeds change nothing
        now = max(part.seeds for part in parts)
        return detectable, now if detectable <= claim.smallest else None
    counts = range(2, MOST_SEEDS + 1)
    result = bisect_left(counts, True, key=lambda seeds: lacking(claim.smallest, seeds) <= 0)
    return detectable, counts[result] if result < len(counts) else None


def _judged(claim: Claim, evidence: Any, seeds: Sequence[int]) -> Assessment:
    """The verdict of `RULE` on a claim, without its power."""
    effects = claim.effects(evidence, seeds)
    if isinstance(effects, str) or not effects:
        why = str(effects or "this run has nothing to compare")
        return Assessment(claim, "not tested", {}, {}, why)
    if lost := [name for name, effect in effects.items() if not effect.finite]:
        why = f"there is no number for {', '.join(lost)}"
        return Assessment(claim, "not tested", {}, {}, why)
    decided, verdicts = _judge(claim, effects)
    return Assessment(claim, decided, effects, verdicts, "")


def assess(claim: Claim, evidence: Any, seeds: Sequence[int]) -> Assessment:
    """The verdict of `RULE` on a claim, from the evidence of these seeds, and its power."""
    result = _judged(claim, evidence, seeds)
    if not result.parts:
        return result
    verdicts, open_ = result.part_verdicts, result.verdict == "undecided"
    parts = [p for n, p in result.parts.items() if not open_ or verdicts[n] == "undecided"]
    detectable, needed = _prospects(claim, parts)
    if len(seeds) == 1:
        needed = None  # one seed does not tell how much seeds differ
    sentences = []
    if len(verdicts) > 1:
        tally = counted(verdicts.values())
        sentences.append(f"judged part by part; of {len(verdicts)} parts {tally}")
        if open_ and "negligible" in verdicts.values():
            sentences.append("so it does not hold of every part, whatever the open ones are")
    if open_:
        aim = f"an effect of {claim.smallest:g} {claim.unit}"
        aim = "a true zero effect" if claim.kind == "equivalent" else aim
        aim += " in the open parts" if len(set(verdicts.values())) > 1 else ""
        # A part's data set may have fewer seeds than others.
        fewest = min((part.seeds for part in parts if part.per_seed), default=len(seeds))
        if fewest == 1:
            reason = "one seed does not tell how much seeds differ"
        elif needed is None:
            reason = f"more seeds alone would not decide {aim}: the items or the parts are too few"
        elif needed <= fewest:
            reason = f"these seeds would mostly decide {aim}, so the effect is a borderline one"
        else:
            reason = f"{needed} seeds would decide {aim} in four runs of five"
        sentences.append(reason)
    why = "; ".join(sentences)
    return replace(result, why=why, detectable=detectable, seeds_needed=needed)


def counted(verdicts: Iterable[str]) -> str:
    """How often each verdict is given, the most frequent first: "3 supported, 1 mixed"."""
    return ", ".join(f"{n} {word}" for word, n in Counter(verdicts).most_common())


class Stability(NamedTuple):
    """Shares of the halves of the seeds whose verdict differs from that of all seeds.

    another: with any other verdict; contrary: with another one that is decided, too.
    """

    another: float
    contrary: float


def stability(claim: Claim, evidence: Any, seeds: Sequence[int], draws: int = 1000) -> Stability:
    """How often half of the seeds, drawn without replacement, give another verdict than all.

    Where there are no more distinct halves than draws (up to 12 seeds for 1,000), each counts once
    and nothing is random. A half has less power, so some change is to be expected. NaN below four
    seeds, also of one part, as halves then have one seed.
    """
    full = _judged(claim, evidence, seeds) if len(seeds) >= 4 else None
    if full is None or any(part.per_seed and part.seeds < 4 for part in full.parts.values()):
        return Stability(float("nan"), float("nan"))
    half = len(seeds) // 2
    if comb(len(seeds), half) > draws:
        drawn = np.random.default_rng(0).random((draws, len(seeds))).argsort(axis=1)[:, :half]
        halves = [tuple(rows) for rows in np.sort(drawn, axis=1).tolist()]
    else:
        halves = list(combinations(range(len(seeds)), half))
    verdict_of = {
        rows: _judged(claim, evidence, [seeds[row] for row in rows]).verdict
        for rows in dict.fromkeys(halves)
    }
    another = [v for rows in halves if (v := verdict_of[rows]) != full.verdict]
    contrary = [result for result in another if result in DECIDED]
    return Stability(len(another) / len(halves), len(contrary) / len(halves))


def at_other_sizes(assessment: Assessment) -> tuple[Verdict, ...]:
    """The verdicts at half and twice the smallest effect of interest; () if not tested."""
    claim, parts = assessment.claim, assessment.parts
    claims = [replace(claim, smallest=factor * claim.smallest) for factor in (0.5, 2.0)]
    return tuple(_judge(other, parts)[0] for other in claims) if parts else ()


def effect_text(claim: Mapping[str, Any]) -> str:
    """A claim's effect with its interval and unit, from its record; "–" where it has none."""
    if any(claim.get(key) is None for key in ("effect", "low", "high")):
        return "–"
    return "{effect:+.3g} [{low:+.3g}, {high:+.3g}] {unit}".format(**{"unit": "", **claim}).rstrip()


def parts_table(assessed: Iterable[Assessment]) -> pd.DataFrame:
    """A row a part of each claim that was tested: its effect and its own verdict."""
    rows = [
        (record["id"], name, effect_text({**part, "unit": record["unit"]}), part["verdict"])
        for record in (assessment.record() for assessment in assessed)
        for name, part in record["parts"].items()
    ]
    table = pd.DataFrame(rows, columns=["id", "part", "effect, 95 % interval", "verdict"])
    return table.set_index(["id", "part"])


def ledger(assessed: Iterable[Assessment]) -> pd.DataFrame:
    """A row a claim; "–" where there is nothing."""
    rows = []
    for r in (assessment.record() for assessment in assessed):
        unit, open_ = r["unit"], r["verdict"] == "undecided"
        shown = effect_text(r) if r["parts"] else "–"
        rows.append({
            "id": r["id"], "claim": r["claim"], "paper": r["paper"], "tested by": r["contrast"],
            "effect, 95 % interval": f"{r['deciding']}: {shown}" if r["deciding"] else shown,
            "sd between parts": f"{r['tau']:.2g}" if len(r["parts"]) > 1 else "–",
            "smallest of interest": f"{r['smallest']:g} {unit}",
            "verdict": r["verdict"], "size": r["size"] or "–",
            "detectable": f"{r['detectable']:.2g} {unit}" if open_ else "–",
            "seeds needed": str(r["seeds_needed"] or "none would do") if open_ else "–",
            "why": r["why"],
        })  # fmt: skip
    return pd.DataFrame(rows)
