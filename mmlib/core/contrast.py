"""Claims as contrasts: weighted sums of recorded values, which a paper's `claims.yaml` writes out.

The `parts` of a claim map labels to contrasts. A contrast is "A − B"; "A" alone, its level; terms
with their weights; or a list of such contrasts. A term is "system [metric] @ collection": without
brackets it has the metric of its claim, without @ the collection that its part is about.
{collection}, {metric}, {rival} and the names that `each` gives may stand in labels and terms.
Contrasts of one label are one part: the mean of those whose terms are all on record.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np

from mmlib.core.claims import KINDS, Claim
from mmlib.core.effects import Effect, crossed_known, over_seeds
from mmlib.core.evidence import Evidence
from mmlib.core.jobs import NO_SEED
from mmlib.core.paths import table_beside

Effects = Mapping[str, Effect] | str  # by part, or the reason why a claim is not tested
Term = tuple[str, str, str]  # collection, system, metric
TERM = re.compile(r"(?P<system>.+?)(?: \[(?P<metric>.+)\])?(?: @ (?P<collection>.+))?")
NOT_TRAINED = "these systems were not trained"
ONE_SEED = "one seed has no interval"


class Recorded(NamedTuple):
    """Where the values of a metric are recorded, and what is made of those of each seed.

    change: (items,) -> (items,), in which NaN leaves an item out; or -> a number, for an interval
    over seeds alone.
    """

    system: str
    metric: str
    split: str = "test"
    change: Callable[[np.ndarray], Any] | None = None


@dataclass(frozen=True)
class Vocabulary:
    """What words in a paper's `claims.yaml` stand for.

    metrics: those that are not recorded as such -> (evidence, collection, system) -> where they
    are. collections: a selection's name -> evidence -> its collections, in the order of parts; ""
    is that of claims that name none.
    """

    metrics: Mapping[str, Callable[[Evidence, str, str], Recorded]] = field(default_factory=dict)
    collections: Mapping[str, Callable[[Evidence], Sequence[str]]] = field(default_factory=dict)

    def recorded(self, evidence: Evidence, term: Term) -> Recorded | None:
        """Where the values of a term are; None if there are none."""
        collection, system, metric = term
        if collection not in evidence.datasets:
            return None
        look_up = self.metrics.get(metric)
        result = look_up(evidence, collection, system) if look_up else Recorded(system, metric)
        return result if evidence.has(collection, *result[:3]) else None

    def strongest(
        self, evidence: Evidence, collection: str, systems: Iterable[str], metric: str
    ) -> str | None:
        """Of the recorded systems the one with the highest mean over seeds and items, if any."""
        levels = {
            name: float(np.nanmean(self.values(evidence, (collection, name, metric))))
            for name in systems
            if self.recorded(evidence, (collection, name, metric))
        }
        return max(levels, key=lambda name: levels[name], default=None)

    def effect(
        self, evidence: Evidence, terms: Mapping[Term, float], less: float = 0
    ) -> Effect | str:
        """Σ weight · value − less of recorded terms, or the reason why there is no interval.

        It is paired by item, and by those seeds that all of its systems with seeds have. Clusters
        are those of the first term. Items without a value of each term in each seed are left out.
        """
        places = {term: place for term in terms if (place := self.recorded(evidence, term))}
        assert places.keys() == terms.keys(), f"{terms.keys() - places.keys()} is not on record"
        of_systems = [evidence.seeds_of(term[0], place.system) for term, place in places.items()]
        trained = [own for own in of_systems if own]
        shared = sorted(set.intersection(*map(set, trained))) if trained else [NO_SEED]
        if not shared:
            return "what is compared has no seed in common"
        values = [weight * self.values(evidence, t, shared) for t, weight in terms.items()]
        total = np.sum(values, axis=0) - less
        if total.ndim == 1:
            return over_seeds(total) if len(total) > 1 else ONE_SEED
        (collection, *_), first = next(iter(places.items()))
        result = crossed_known(total, evidence.clusters(collection, first.split))
        return replace(result, seeds=len(shared) if trained else 0)  # also where they end alike

    def values(
        self, evidence: Evidence, term: Term, seeds: Sequence[int] | None = None
    ) -> np.ndarray:
        """Values (seeds, items) of a term, or (seeds,) of one over seeds alone; or DataError."""
        system, metric, split, change = self.recorded(evidence, term) or Recorded(*term[1:])
        named = (term[2], change) if change else None
        return evidence.values(term[0], system, metric, seeds, split, named)


@dataclass(frozen=True)
class Contrast:
    """What tests a linear claim: called with evidence, it gives the effect of each part.

    parts: label -> contrast, or one contrast, then labelled by its collection.
    metric: of terms that name none; from a list, each in turn is the {metric} of parts of its own.
    collections: a selection that the vocabulary knows, or a list of names; else its "", or all.
    each: name -> values, in all combinations; or a list of such names with one value each.
    rivals: the strongest of them by the metric `by` (default: `metric`) is the {rival}.
    less: taken from each effect. missing: the reason where no part is on record.
    untested: the reason why nothing here tests the claim.
    also: the fields in which a second contrast differs, which adds its parts to these.
    """

    vocabulary: Vocabulary
    parts: Any = ()
    metric: str | Sequence[str] = ""
    collections: str | Sequence[str] = ""
    each: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    rivals: Sequence[str] = ()
    by: str = ""
    less: float = 0.0
    missing: str = NOT_TRAINED
    untested: str = ""
    also: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, evidence: Evidence) -> Effects:
        """The effect of each part that is on record, or the reason why there is none."""
        if self.untested:
            return self.untested
        words, why, effects = self.vocabulary, self.missing, dict[str, Effect]()
        selected = self.collections
        if isinstance(selected, str):
            select = words.collections.get(selected)
            selected = select(evidence) if select else evidence.datasets
        for collection in selected:
            rival = words.strongest(evidence, collection, self.rivals, self.by or str(self.metric))
            if self.rivals and not rival:
                continue
            for label, contrasts in self._contrasts(collection, rival).items():
                usable = [c for c in contrasts if all(words.recorded(evidence, term) for term in c)]
                terms: defaultdict[Term, float] = defaultdict(float)
                for term, weight in chain.from_iterable(contrast.items() for contrast in usable):
                    terms[term] += weight / len(usable)
                result = words.effect(evidence, terms, self.less) if usable else why
                if isinstance(result, Effect):
                    effects[label] = result
                else:
                    why = result
        more = replace(self, **{"also": {}, **self.also})(evidence) if self.also else {}
        return {**effects, **({} if isinstance(more, str) else more)} or why

    def _contrasts(self, collection: str, rival: str | None) -> dict[str, list[dict[Term, float]]]:
        rows = self.each
        if isinstance(rows, Mapping):
            rows = [dict(zip(rows, values, strict=True)) for values in product(*rows.values())]
        metrics = [self.metric] if isinstance(self.metric, str) else self.metric
        parts = self.parts if isinstance(self.parts, Mapping) else {"{collection}": self.parts}
        named: dict[str, list[dict[Term, float]]] = {}  # label -> the weights of each contrast
        for row, metric, (label, contrast) in product(rows, metrics, parts.items()):
            names = {"collection": collection, "rival": rival, "metric": metric, **row}
            for weights in _weights(contrast):
                terms = dict[Term, float]()
                for text, weight in weights.items():
                    term = TERM.fullmatch(text.format(**names))
                    assert term is not None
                    key = term["collection"] or collection, term["system"], term["metric"] or metric
                    terms[key] = terms.get(key, 0.0) + weight
                named.setdefault(label.format(**names), []).append(terms)
        return named


def _weights(contrast: Any) -> Iterator[Mapping[str, float]]:
    if isinstance(contrast, str):
        plus, _, minus = contrast.partition(" − ")
        yield {plus: 1.0, minus: -1.0} if minus else {plus: 1.0}
    elif isinstance(contrast, Mapping):
        yield contrast
    else:
        yield from chain.from_iterable(map(_weights, contrast))


def claims_of(
    module: str, vocabulary: Vocabulary, functions: Mapping[str, Callable[..., Effects]]
) -> tuple[Claim, ...]:
    """The claims in the YAML file of a module's name; `module` is the module's `__file__`.

    A claim there has the fields of `Claim`, those in `defaults` unless it has its own, its sentence
    in `summary`, and what tests it: the fields of `Contrast`, or else a function of its id. Raises
    ValueError where it has neither or both, or a wrong field.
    """
    table, module = table_beside(module), module.removesuffix(".py") + ".yaml"
    defaults, summary, claims = table.pop("defaults", {}), table.pop("summary", {}), []
    if unknown := {*functions, *summary} - table.keys():
        raise ValueError(
            f"{module}: functions or summaries of no claim: {', '.join(sorted(unknown))}"
        )
    for name, row in table.items():
        row = {"summary": summary.get(name, ""), **defaults, **row}
        if ("parts" in row) + ("untested" in row) + (name in functions) != 1:
            raise ValueError(f"{module}: {name} needs one of parts, untested and a function")
        selected, tiers = row.get("collections", []), row.get("tiers", KINDS)
        known = isinstance(selected, list) or selected in vocabulary.collections
        if not known or not {*tiers} <= KINDS.keys() or " - " in str(row.get("parts")):
            raise ValueError(f"{module}: {name}: {selected}, {tiers} or - for − is wrong")
        words = {field.name: row.pop(field.name) for field in fields(Claim) if field.name in row}
        try:
            effects = functions.get(name) or Contrast(vocabulary, **row)
            claims.append(Claim(id=name, effects=effects, **words))
        except TypeError as error:  # a field that is unknown or lacks
            raise ValueError(f"{module}: {name}: {error}") from None
    return tuple(claims)
