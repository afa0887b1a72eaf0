"""Claims of papers and verdicts that know their power, over the effects of `mmlib.core.effects`."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import optimize, special

from mmlib.core.effects import FIRM_LEVEL, LEVEL, Effect, Interval
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence

# Of one part, or of a claim with one; "holds", "fails" and "open" are of claims with several.
Verdict = Literal[
    "supported", "holds", "opposite", "negligible", "fails", "undecided", "open", "not tested"
]
Kind = Literal["greater", "equivalent"]
SIGNS = {"supported": "+", "negligible": "≈", "opposite": "−", "undecided": "?"}
REFUTING: tuple[Verdict, ...] = ("opposite", "negligible")  # of a claim about all parts, each alone
OUTCOMES: Mapping[str, Sequence[Verdict]] = {  # in which claims are counted
    "hold": ("supported", "holds"), "fail": (*REFUTING, "fails"), "open": ("undecided", "open"),
    "not tested": ("not tested",),
}  # fmt: skip
DECIDED = (*OUTCOMES["hold"], *OUTCOMES["fail"])
FEWEST = 5  # seeds of each trained part that a firm verdict needs
POWER = 0.8  # the share of runs that should decide
MOST_SEEDS = 10_000  # what even this many seeds do not decide, seeds do not decide

KINDS = {"world": "picture world", "flickr8k": "photographs", "paper": "the paper's data",
         "controlled": "made up"}  # fmt: skip
RULE = Path(__file__).with_name("rule.txt").read_text(encoding="utf-8").rstrip()


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and what tests it. Raises ValueError unless `smallest` is above 0.

    claim: the paper's words in short; paper: its figures; contrast: the effect that tests it, in
    `unit`; smallest: the smallest effect of interest, and why; kind: "greater" for "A > B",
    "equivalent" for "A hardly differs from B"; paper_effect: the paper's own effect as the contrast
    has it, in `unit`, where it prints one; tiers: the data that it is about; summary: a sentence
    for readers, of the few claims that its notebook shows; effects: evidence -> the effect of each
    part, or the reason why it is not tested.
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
    summary: str = ""
    effects: Callable[[Evidence], Mapping[str, Effect] | str] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.smallest > 0:
            raise ValueError(f"{self.id}: the smallest effect of interest must be above 0")


def verdict(
    effect_like: Interval, smallest: float, kind: Kind = "greater", level: float = LEVEL
) -> Verdict:
    """The verdict of `RULE` on one interval, whose tails keep 1 − level each."""
    low, high = effect_like.ends(level)
    if not isfinite(high - low):
        return "not tested"
    if isinstance(effect_like, Effect) and effect_like.seeds == 1:
        return "undecided"
    if -smallest < low and high < smallest:
        return "negligible" if kind == "greater" else "supported"
    if kind == "equivalent":
        return "opposite" if low > smallest or high < -smallest else "undecided"
    return "supported" if low > 0 else "opposite" if high < 0 else "undecided"


@dataclass(frozen=True)
class Assessment:
    """A claim and how it fared; `parts` is empty where it is not tested.

    part_verdicts: each part by itself; why: the reason in words. Of the open parts of an undecided
    claim, detectable: the smallest effect (for "equivalent": the smallest margin around a true
    zero) that such a run decides in four of five; seeds_needed: with how many seeds a run decides
    so at `claim.smallest`, and seeds_as_seen at the effects as they are; None if with none.
    """

    claim: Claim
    verdict: Verdict
    parts: Mapping[str, Effect]
    part_verdicts: Mapping[str, Verdict]
    why: str
    detectable: float | None = None
    seeds_needed: int | None = None
    seeds_as_seen: int | None = None

    @property
    def firmness(self) -> Literal["firm", "fragile", ""]:
        """Whether a decided verdict is the same with 99 % intervals, and no part lacks seeds."""
        if self.verdict not in DECIDED:
            return ""
        lacking = any(0 < part.seeds < FEWEST for part in self.parts.values())
        same = _judge(self.claim, self.parts, FIRM_LEVEL)[0] == self.verdict
        return "firm" if same and not lacking else "fragile"

    def record(self) -> dict[str, Any]:
        """What tables, pages and figures show, as a JSON-able dict with numbers of six digits.

        words: the verdict as it is shown; word: the same as holds, fails or open; counts: of the
        verdicts on several parts, by `SIGNS`. `holding_paper` of `intervals` intervals hold the
        paper's own effect; None where it prints none. effect, low and high are those of the part
        that is shown, of several parts `deciding`: of those that give the verdict, the one whose
        interval reaches lowest.
        """
        parts, paper, d = self.parts, self.claim.paper_effect, self.claim.smallest
        verdicts, counts = self.part_verdicts, Counter(map(str, self.part_verdicts.values()))
        giving = {"holds": ("supported",), "fails": REFUTING, "open": ("undecided",)}
        decisive = giving.get(self.verdict, (self.verdict,))
        alike = [name for name in parts if verdicts[name] in decisive]
        shown = min(alike, key=lambda name: parts[name].low, default="")
        words = {
            name: f"{verdicts[name]}, small"
            if SIGNS[verdicts[name]] in "+−" and abs(part.effect) < d
            and self.claim.kind == "greater" else verdicts[name]
            for name, part in parts.items()
        }  # fmt: skip
        in_words = words[shown] if len(parts) == 1 else str(self.verdict)
        if self.verdict == "fails":
            in_words += f" in {len(alike)} of {len(parts)}"
        word = {"supported": "holds", "undecided": "open", **dict.fromkeys(REFUTING, "fails")}
        named = ("id", "claim", "summary", "paper", "contrast", "unit", "smallest", "kind")
        return {
            **{name: getattr(self.claim, name) for name in named}, "paper_effect": paper,
            "verdict": self.verdict, "words": in_words, "firmness": self.firmness,
            "word": word.get(self.verdict, in_words),
            "counts": "" if len(parts) < 2 else " · ".join(
                f"{counts[verdict]} {sign}" for verdict, sign in SIGNS.items() if counts[verdict]
            ),
            "why": self.why, "intervals": len(parts), "smallest_why": self.claim.why,
            "holding_paper": None if paper is None or not parts else sum(
                part.low <= paper <= part.high for part in parts.values()
            ),
            "deciding": shown if len(parts) > 1 else "",
            **_numbers(parts.get(shown), "effect", "low", "high"),
            **_numbers(self, "detectable", "seeds_needed", "seeds_as_seen"),
            "parts": {
                name: _numbers(part, "effect", "low", "high", "se", "df", "per_seed", "seeds")
                | {"verdict": verdicts[name], "words": words[name]}
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


def _judge(
    claim: Claim, parts: Mapping[str, Effect], level: float = LEVEL
) -> tuple[Verdict, dict[str, Verdict]]:
    """The verdict of `RULE` on effects, each of which counts, and that on each of them."""
    each = {n: verdict(part, claim.smallest, claim.kind, level) for n, part in parts.items()}
    if len(each) == 1:
        return next(iter(each.values())), each
    if any(part in REFUTING for part in each.values()):
        return "fails", each
    return "holds" if {*each.values()} == {"supported"} else "open", each


def power(
    effects: Iterable[Interval], truths: Iterable[float], smallest: float, kind: Kind = "greater"
) -> float:
    """How often such independent estimates would all be decided if these were the true effects.

    By the noncentral t distribution; a lower bound, which takes the more frequent way to a decision
    alone, and of an interval within ±d both one-sided tests.
    """
    decided = []
    for estimate, truth in zip(effects, map(abs, truths), strict=True):

        def beyond(far: float, estimate: Interval = estimate) -> float:
            """How often the whole interval lies beyond an edge that is so far below the truth."""
            if far <= 0 or not estimate.se:
                return float(far > 0)
            df, distance = estimate.df, far / estimate.se
            missed = special.nctdtr(df, distance, special.stdtrit(df, LEVEL))
            return 1 - float(np.nan_to_num(missed))  # SciPy has no number for what is below 1e-150

        within = beyond(smallest - truth) + beyond(smallest + truth) - 1
        outside = beyond(truth if kind == "greater" else truth - smallest)
        decided.append(max(within, outside, 0.0))
    return prod(decided)


def _prospects(claim: Claim, parts: Sequence[Effect]) -> tuple[float, int | None, int | None]:
    """The effect that such parts detect; the seeds for the smallest of interest, and as seen."""

    def lacking(truths: Sequence[float], smallest: float, seeds: int | None = None) -> float:
        then = parts if seeds is None else [part.at(seeds) for part in parts]
        return POWER - power(then, truths, smallest, claim.kind)

    def at(smallest: float) -> Sequence[float]:
        return [smallest if claim.kind == "greater" else 0.0] * len(parts)

    def needed(truths: Sequence[float]) -> int | None:
        counts = range(2, MOST_SEEDS + 1)
        result = bisect_left(
            counts, True, key=lambda seeds: lacking(truths, claim.smallest, seeds) <= 0
        )
        return counts[result] if result < len(counts) else None

    high = unit = max(part.se for part in parts)
    while unit and lacking(at(high), high) > 0:
        high *= 2
    detectable = 0.0
    if unit:
        detectable = float(optimize.brentq(lambda d: lacking(at(d), d), 0, high, rtol=1e-6))
    return detectable, needed(at(claim.smallest)), needed([part.effect for part in parts])


def assess(claim: Claim, evidence: Any) -> Assessment:
    """The verdict of `RULE` on a claim from the evidence; its power, where open."""
    try:
        effects = claim.effects(evidence) or "this run has nothing to compare"
    except DataError as error:  # of a function: a contrast says so itself
        effects = str(error)
    if isinstance(effects, str):
        return Assessment(claim, "not tested", {}, {}, effects)
    decided, verdicts = _judge(claim, effects)
    if lost := [name for name, one in verdicts.items() if one == "not tested"]:
        return Assessment(claim, "not tested", {}, {}, f"there is no number for {', '.join(lost)}")
    result = Assessment(claim, decided, effects, verdicts, "")
    if decided in DECIDED:
        return result
    parts = [part for name, part in effects.items() if verdicts[name] == "undecided"]
    detectable, needed, as_seen = _prospects(claim, parts)
    aim = f"an effect of {claim.smallest:g} {claim.unit}"
    aim = "a true zero effect" if claim.kind == "equivalent" else aim
    aim += " in the open parts" if len(parts) < len(effects) else ""
    # A part may have fewer seeds than others.
    fewest = min((part.seeds for part in parts if part.per_seed), default=0)
    if any(part.seeds == 1 for part in parts):
        needed = as_seen = None
        why = "one seed decides nothing, as it does not tell how much seeds differ"
    elif needed is None:
        why = f"more seeds alone would not decide {aim}: the items or the parts are too few"
    elif needed <= max(fewest, 2):
        why = f"these seeds would mostly decide {aim}, so the effect is a borderline one"
    else:
        why = f"{needed} seeds would decide {aim} in four runs of five"
    if as_seen and as_seen > fewest:
        why += f"; {as_seen} would decide effects like these"
    return replace(
        result, why=why, detectable=detectable, seeds_needed=needed, seeds_as_seen=as_seen
    )


def effect_text(claim: Mapping[str, Any]) -> str:
    """A claim's effect with its interval and unit, from its record; "–" where it has none."""
    if any(claim.get(key) is None for key in ("effect", "low", "high")):
        return "–"
    return "{effect:+.3g} [{low:+.3g}, {high:+.3g}] {unit}".format(**{"unit": "", **claim}).rstrip()


def parts_table(assessed: Iterable[Assessment]) -> pd.DataFrame:
    """A row a part of each claim that was tested: its effect and its own verdict."""
    rows = [
        (record["id"], name, effect_text({**part, "unit": record["unit"]}), part["words"])
        for record in (assessment.record() for assessment in assessed)
        for name, part in record["parts"].items()
    ]
    table = pd.DataFrame(rows, columns=["id", "part", "effect, 95 % interval", "verdict"])
    return table.set_index(["id", "part"])


def ledger(assessed: Iterable[Assessment]) -> pd.DataFrame:
    """A row a claim; "–" where there is nothing."""
    rows = []
    for r in (assessment.record() for assessment in assessed):
        rows.append({
            "id": r["id"], "claim": r["claim"], "paper": r["paper"], "tested by": r["contrast"],
            "effect, 95 % interval": f"{r['deciding']}: " * bool(r["deciding"]) + effect_text(r),
            "smallest of interest": f"{r['smallest']:g} {r['unit']}",
            "verdict": r["words"], "parts": r["counts"] or "–", "firm": r["firmness"] or "–",
            "detectable": f"{r['detectable']:.2g} {r['unit']}" if r["detectable"] else "–",
            "seeds needed, smallest": str(r["seeds_needed"] or "–"),
            "seeds needed, as seen": str(r["seeds_as_seen"] or "–"),
            "why": r["why"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def summarised(judged: Mapping[str, Iterable[Assessment]]) -> list[tuple[str, dict[str, Any]]]:
    """Kind of data and record of each claim with a summary, claim by claim; of tier -> claims."""
    tiers = [tier for tier in KINDS if tier in judged]
    rows = [(KINDS[t], one.record()) for t in tiers for one in judged[t] if one.claim.summary]
    order = [record["id"] for _, record in rows]
    return sorted(rows, key=lambda row: order.index(row[1]["id"]))


def summary(judged: Mapping[str, Iterable[Assessment]]) -> pd.DataFrame:
    """The claims with a summary, of tier -> assessments: a row a claim and kind of data."""
    rows = {
        (r["summary"], r["paper"], kind): (effect_text(r), r["word"], r["firmness"] or "–")
        for kind, r in summarised(judged)
    }
    table = pd.DataFrame([*rows.values()], columns=["ours, 95 % interval", "verdict", "firm?"])
    return table.set_index(pd.MultiIndex.from_tuples(rows, names=["claim", "the paper", "data"]))
