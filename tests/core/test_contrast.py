"""Contrasts of `claims.yaml` against loops over terms, seeds and items."""

from collections.abc import Mapping

import numpy as np
import pytest
from made_up_evidence import evidence_of

from mmlib.core.contrast import Contrast, Recorded, Vocabulary, claims_of
from mmlib.core.effects import crossed, over_seeds
from mmlib.core.evidence import NO_SEED, Evidence

ITEMS, SKIPPED = 12, 5
SEEDS = {"own": [0, 1, 2, 3], "other": [1, 2, 3, 4]}  # three in common; C has one less
LEVELS = {"A": 5, "B": 3, "A + B": 4, "C": 3.5}


def made() -> Evidence:
    """Two collections of the same items, of which one has no value and two are of each cluster."""
    rng, rows = np.random.default_rng(0), []
    for number, (dataset, seeds) in enumerate(SEEDS.items()):
        for system, level in [*LEVELS.items(), ("closed", 1.0)]:
            for metric, more in (("x", 0), ("y, late", 2 * (system == "B"))):
                for seed in [NO_SEED] if system == "closed" else seeds[: 3 if system == "C" else 4]:
                    values = level + more + number + rng.random(ITEMS)
                    values[SKIPPED] = np.nan
                    if (system, dataset) != ("C", "other"):
                        key = dataset, system, seed, "test", metric
                        rows.append((*key, values, np.arange(ITEMS) // 2))
    return evidence_of(rows, {})


EVIDENCE = made()


def of_seeds(seeds) -> Evidence:
    return Evidence(EVIDENCE.series[EVIDENCE.series.seed.isin([*seeds, NO_SEED])], {})


VALUE = EVIDENCE.series.set_index(["dataset", "system", "metric", "seed"]).value.to_dict()
VOCABULARY = Vocabulary(
    metrics={
        "1": lambda evidence, collection, system: Recorded(system, "x", change=np.ones_like),
        "log2 x": lambda evidence, collection, system: Recorded(system, "x", change=np.log2),
        "mean x": lambda evidence, collection, system: Recorded(system, "x", change=np.nanmean),
    },
    collections={"second": lambda evidence: [name for name in evidence.datasets if name != "own"]},
)
ALL = range(5)


def by_loop(terms, less=0.0, change=float, seeds=ALL):
    """The effect of terms (collection, system, metric) -> weight."""
    table = []
    for seed in seeds:
        if not all((*term, seed) in VALUE or term[1] == "closed" for term in terms):
            continue
        row = []
        for item in range(ITEMS):
            total = -less
            for (collection, system, metric), weight in terms.items():
                key = NO_SEED if system == "closed" else seed
                total += weight * change(VALUE[collection, system, metric, key][item].astype(float))
            if item != SKIPPED:
                row.append(total)
        table.append(row)
    return crossed(np.array(table), [item // 2 for item in range(ITEMS) if item != SKIPPED])


def pair(a, b, metric="x", collection="own"):
    return {(collection, a, metric): 1, (collection, b, metric): -1}


OWN = {"collections": ["own"]}
CASES = {
    "a difference on each collection": (
        {"parts": "A − B"}, {"own": pair("A", "B"), "other": pair("A", "B", collection="other")},
    ),
    "a level": ({"parts": "A", **OWN}, {"own": {("own", "A", "x"): 1}}),
    "a selection": (
        {"parts": "A + B − A", "collections": "second"},
        {"other": pair("A + B", "A", collection="other")},
    ),
    "another metric": (
        {"parts": "A − B [y, late]", **OWN},
        {"own": {("own", "A", "x"): 1, ("own", "B", "y, late"): -1}},
    ),
    "weights, and another collection": (
        {"parts": {"{collection}!": {"A @ other": 0.5, "B [y, late] @ other": -2, "closed": 3}},
         **OWN},
        {"own!": {("other", "A", "x"): 0.5, ("other", "B", "y, late"): -2,
                  ("own", "closed", "x"): 3}},
    ),
    "the mean of what is on record": (
        {"parts": {"{collection}": ["A − B", "A − nothing", ["A − A + B"]]}, **OWN},
        {"own": {("own", "A", "x"): 1, ("own", "B", "x"): -0.5, ("own", "A + B", "x"): -0.5}},
    ),
    "each in turn": (
        {"parts": {"{collection}: {a}, {b}": "{a} − {b}"}, "each": {"a": ["A", "none"],
         "b": ["B", "C"]}},
        {"own: A, B": pair("A", "B"), "own: A, C": pair("A", "C"),
         "other: A, B": pair("A", "B", collection="other")},
    ),
    "rows, of one label": (
        {"parts": "{a} − {b}", "each": [{"a": "A", "b": "B"}, {"a": "B", "b": "C"}], **OWN},
        {"own": {("own", "A", "x"): 0.5, ("own", "B", "x"): 0, ("own", "C", "x"): -0.5}},
    ),
    "metrics in turn": (
        {"parts": {"{metric}": "A − B"}, "metric": ["x", "y, late"], **OWN},
        {"x": pair("A", "B"), "y, late": pair("A", "B", "y, late")},
    ),
    "the strongest rival of each collection": (
        {"parts": {"{collection} over {rival}": "A − {rival}"}, "rivals": ["B", "C", "none"]},
        {"own over C": pair("A", "C"), "other over B": pair("A", "B", collection="other")},
    ),
    "the strongest by another metric": (
        {"parts": {"{rival}": "A − {rival}"}, "rivals": ["C", "B"], "by": "y, late", **OWN},
        {"B": pair("A", "B")},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "wanted"), CASES.values(), ids=CASES)
def test_contrasts_are_weighted_sums(fields, wanted):
    found = Contrast(VOCABULARY, **{"metric": "x", **fields})(EVIDENCE)
    assert isinstance(found, Mapping), found
    assert sorted(found) == sorted(wanted)
    for label, terms in wanted.items():
        assert vars(found[label]) == pytest.approx(vars(by_loop(terms)))


def test_what_is_taken_off_and_what_is_made_of_values():
    less = Contrast(VOCABULARY, "A", "x", ["own"], less=2.5)(of_seeds([3, 1]))
    assert vars(less["own"]) == pytest.approx(
        vars(by_loop({("own", "A", "x"): 1}, 2.5, seeds=[3, 1]))
    )
    logs = Contrast(VOCABULARY, "A − closed", "log2 x", ["own"])(EVIDENCE)["own"]
    assert vars(logs) == pytest.approx(vars(by_loop(pair("A", "closed"), change=np.log2)))
    seeds = Contrast(VOCABULARY, "A − B", "mean x", ["own"])(EVIDENCE)["own"]
    a, b = ([np.nanmean(VALUE["own", s, "x", i], dtype=float) for i in range(4)] for s in "AB")
    assert vars(seeds) == pytest.approx(vars(over_seeds(np.subtract(a, b))))


@pytest.mark.parametrize(
    ("parts", "seeds", "rests_on"),
    [("A − B", ALL, 4), ("A − C", ALL, 3), ("A − B", [3], 1), ("A − closed", [3], 1),
     ("A [1]", ALL, 4), ("closed", ALL, 0), ("closed", [3], 0), ("closed [y, late]", [3], 0)],
)  # fmt: skip
def test_a_part_rests_on_the_seeds_that_its_systems_have(parts, seeds, rests_on):
    assert Contrast(VOCABULARY, parts, "x", ["own"])(of_seeds(seeds))["own"].seeds == rests_on


@pytest.mark.parametrize(
    ("fields", "seeds", "why"),
    [
        ({"parts": "A − none"}, ALL, "these systems were not trained"),
        ({"parts": "A − none", "missing": "no D"}, ALL, "no D"),
        ({"parts": "A − {rival}", "rivals": ["none"]}, ALL, "these systems were not trained"),
        ({"parts": "A", "collections": ["third"]}, ALL, "these systems were not trained"),
        ({"parts": "A", "metric": "mean x"}, [2], "one seed has no interval"),
        ({"parts": "A @ own − A @ other"}, [0, 4], "what is compared has no seed in common"),
    ],
)
def test_without_a_part_there_is_a_reason(fields, seeds, why):
    assert Contrast(VOCABULARY, **{"metric": "x", **fields})(of_seeds(seeds)) == why


TABLE = """
defaults: {paper: P, contrast: C, unit: points, smallest: 1.0, why: W, metric: x}
C1: {claim: one, parts: A − B, collections: [own]}
C2:
  claim: two
  parts: {"{collection}, B": A − B}
  collections: [own]
  also: {parts: A − none, collections: [other]}
C3: {claim: three, smallest: 2.0, parts: A − none, also: {parts: "{rival}", rivals: [B]}}
C4: {claim: four, untested: nobody was asked}
C5: {claim: five}
"""


def written(folder, text):
    (folder / "claims.yaml").write_text(text, encoding="utf-8")
    functions = {"C5": lambda evidence: "a function"}
    return claims_of(str(folder / "claims.py"), VOCABULARY, functions)


def test_claims_are_read_with_defaults_and_what_tests_them(tmp_path):
    claims = written(tmp_path, TABLE)
    assert [one.id for one in claims] == ["C1", "C2", "C3", "C4", "C5"]
    assert [one.smallest for one in claims] == [1, 1, 2, 1, 1]
    assert all(one.unit == "points" for one in claims)
    found = [one.effects(EVIDENCE) for one in claims]
    assert [one if isinstance(one, str) else list(one) for one in found] == [
        ["own"], ["own, B"], ["other", "own"], "nobody was asked", "a function",
    ]  # fmt: skip
    assert found[1]["own, B"] == found[0]["own"]
    assert found[2]["own"].effect == pytest.approx(by_loop({("own", "B", "x"): 1}).effect)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{claim: five}", "{claim: five, parts: A}", "C5 needs one of"),
        ("untested: nobody was asked", "paper_effect: 1", "C4 needs one of"),
        ("C5:", "C6:", "functions or summaries of no claim: C5"),
        ("parts: A − B, ", "parts: A − B, metrics: [x], ", "C1: .*'metrics'"),
        ("claim: four, ", "", "C4: .*'claim'"),
        ("parts: A − B, ", "parts: A - B, ", "claims.yaml: C1: .*−"),
        ("parts: A − B, collections: [own]", "parts: A − B, collections: own", "C1: own, "),
        ("{claim: five}", "{claim: five, tiers: [wrld]}", "C5: .*'wrld'"),
    ],
)
def test_mistakes_in_claims_name_the_claim(tmp_path, old, new, message):
    with pytest.raises(ValueError, match=message):
        written(tmp_path, TABLE.replace(old, new))
