"""Intervals that cover what they say, verdicts by the rule, tables, and the check of figures."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mmlib import claims
from mmlib.claims import (
    Claim,
    check_figures,
    claims_table,
    judge,
    make_expected,
    print_check,
    tolerance,
)
from mmlib.core.intervals import Estimate, bootstrap_interval, crossed_interval, mean_interval
from mmlib.core.paths import PACKAGE
from mmlib.core.tables import Result, beside, paper_values, save_results, write_json

# --- Intervals -------------------------------------------------------------------------------

EQUAL, UNEQUAL = np.repeat(np.arange(40), 2), np.repeat(np.arange(40), np.arange(40) % 6 + 1)


def draw(rng, member, deviations, seeds=3):
    """Values (seeds, items) around 0: effects of seed, cluster, their pairing, and the item."""
    of_seed, of_cluster, of_pair, of_item = deviations
    clusters = member.max() + 1
    return (
        of_seed * rng.normal(size=(seeds, 1))
        + of_cluster * rng.normal(size=clusters)[member]
        + of_pair * rng.normal(size=(seeds, clusters))[:, member]
        + of_item * rng.normal(size=(seeds, len(member)))
    )


@pytest.mark.parametrize("member", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "deviations",
    [(0.2, 1, 0.2, 1), (1, 1, 1, 1), (1, 0.2, 0.2, 1), (0.15, 0.5, 0.5, 1), (0.0, 1, 0.1, 0.5)],
)
def test_crossed_interval_covers_the_truth(member, deviations):
    """Satterthwaite's freedom is approximate at three seeds: between 92 and 99 in a hundred."""
    rng = np.random.default_rng(11)
    found = [crossed_interval(draw(rng, member, deviations), member) for _ in range(800)]
    coverage = np.mean([e.low <= 0 <= e.high for e in found])
    assert 0.91 <= coverage <= 0.99
    # And it is no wider than three seeds demand.
    spread = np.std([e.effect for e in found])
    half = np.median([(e.high - e.low) / 2 for e in found])
    assert half < stats.t.ppf(0.975, 2) * spread * 1.1


def test_an_interval_over_items_alone_would_not_cover():
    """Why seeds are crossed in: they differ more than the items can tell."""
    rng = np.random.default_rng(11)
    drawn = [draw(rng, EQUAL, (1, 1, 1, 1)) for _ in range(200)]
    alone = [crossed_interval(values.mean(0), EQUAL) for values in drawn]
    assert np.mean([e.low <= 0 <= e.high for e in alone]) < 0.6


def test_with_one_seed_the_interval_is_students_over_clusters():
    values = np.random.default_rng(0).normal(size=30)
    found = crossed_interval(values, np.arange(30))
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
    )
    pairs = crossed_interval(values, np.arange(30) // 2)  # equal clusters: over their means
    means = values.reshape(15, 2).mean(1)
    assert (pairs.low, pairs.high) == pytest.approx(
        stats.t.interval(0.95, 14, means.mean(), stats.sem(means))
    )


def test_names_and_order_of_clusters_do_not_matter():
    rng = np.random.default_rng(0)
    values = draw(rng, UNEQUAL, (0.2, 1, 0.2, 1))
    order = rng.permutation(len(UNEQUAL))
    named = [f"cluster {40 - c}" for c in UNEQUAL[order]]
    one, other = crossed_interval(values, UNEQUAL), crossed_interval(values[:, order], named)
    assert [one.effect, one.low, one.high] == pytest.approx([other.effect, other.low, other.high])
    assert one.effect == pytest.approx(values.mean())


def test_a_higher_level_is_wider_and_shifts_carry_over():
    values = draw(np.random.default_rng(0), EQUAL, (0.2, 1, 0.2, 1))
    narrow, wide = (crossed_interval(values, EQUAL, level) for level in (0.9, 0.99))
    assert wide.low < narrow.low < narrow.effect < narrow.high < wide.high
    shifted = crossed_interval(values + 5, EQUAL, 0.9)
    assert shifted.low == pytest.approx(narrow.low + 5)


@pytest.mark.parametrize("seeds", [1, 3])
def test_values_without_variance_have_an_interval_of_no_width(seeds):
    found = crossed_interval(np.full((seeds, 4), 2.5), [1, 2, 3, 4])
    assert found == Estimate(2.5, 2.5, 2.5)


def test_seeds_without_items_that_differ_still_count():
    """Every item moves with the seed: the freedom is that of the seeds."""
    values = np.array([[1.0], [2.0], [3.0]]) + np.zeros((3, 20))
    found = crossed_interval(values, np.arange(20))
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 2, 2, stats.sem([1, 2, 3]))
    )


def test_one_cluster_is_refused():
    with pytest.raises(ValueError, match="at least two clusters"):
        crossed_interval(np.zeros((3, 4)), [1, 1, 1, 1])


def test_mean_interval_is_students():
    values = np.array([3.0, 4.0, 8.0])
    found = mean_interval(values)
    assert found.effect == 5
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 2, 5, values.std(ddof=1) / np.sqrt(3))
    )
    with pytest.raises(ValueError, match="at least two values"):
        mean_interval(values[:1])


def test_a_difference_of_independent_estimates():
    assert Estimate(5, 4, 7).minus(2) == Estimate(3, 2, 5)
    found = Estimate(5.0, 2.0, 8.0).minus(Estimate(1.0, -3.0, 5.0))  # 3 and 4 make 5
    assert (found.effect, found.low, found.high) == pytest.approx((4, -1, 9))
    skewed = Estimate(5.0, 2.0, 9.0).minus(Estimate(1.0, -2.0, 5.0))
    assert (skewed.low, skewed.high) == pytest.approx((4 - 5, 4 + 5))
    rng = np.random.default_rng(2)
    pairs = [
        mean_interval(rng.normal(3, 2, 20)).minus(mean_interval(rng.normal(1, 1, 20)))
        for _ in range(800)
    ]
    assert 0.93 <= np.mean([d.low <= 2 <= d.high for d in pairs]) <= 0.98


# --- Bootstrap -------------------------------------------------------------------------------


def test_bootstrap_resamples_whole_clusters():
    """Ten copies of every item, each set a cluster, know no more than the items themselves."""
    values = np.random.default_rng(0).normal(size=30)
    copies = np.repeat(values, 10)
    one = bootstrap_interval(lambda i: values[i].mean(), np.arange(30))
    ten = bootstrap_interval(lambda i: copies[i].mean(), np.repeat(np.arange(30), 10))
    assert (one.low, one.high) == pytest.approx((ten.low, ten.high))
    naive = bootstrap_interval(lambda i: copies[i].mean(), np.arange(300))
    assert naive.high - naive.low < 0.5 * (one.high - one.low)


def test_bootstrap_is_seeded_and_near_the_textbook_interval():
    values = np.random.default_rng(0).normal(size=100)
    found = bootstrap_interval(lambda i: values[i].mean(), np.arange(100))
    assert found == bootstrap_interval(lambda i: values[i].mean(), np.arange(100))
    assert found != bootstrap_interval(lambda i: values[i].mean(), np.arange(100), seed=1)
    assert found.effect == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * stats.sem(values), rel=0.12)


def test_bootstrap_covers_the_truth():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        values = draw(rng, UNEQUAL, (0, 1, 0, 0.5), seeds=1)[0]
        found = bootstrap_interval(lambda i, v=values: v[i].mean(), UNEQUAL, draws=200)
        hits += found.low <= 0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_draws_without_a_number_are_left_out():
    values = np.array([1.0, 2.0, 3.0])

    def broken_for_constants(items):
        return np.nan if len(set(items)) == 1 else values[items].mean()

    found = bootstrap_interval(broken_for_constants, [0, 1, 2])
    assert 1 < found.low < found.effect == 2 < found.high < 3


def test_trainings_are_resampled_beside_the_clusters():
    """One item, so that all spread is that of two trainings: both the worse in a quarter of draws,
    both the better in another; and of three, which are all the lowest in 1 of 27."""
    for values in (np.array([1.0, 4.0]), np.array([2.0, 3.0, 7.0])):
        drawn = []

        def mean_of(items, trainings, values=values, drawn=drawn):
            drawn.append(trainings)
            assert items.tolist() == [0]
            return values[trainings].mean()

        n = len(values)
        found = bootstrap_interval(mean_of, ["only"], draws=2000, trainings=n)
        exact = np.repeat([np.mean(some) for some in product(values, repeat=n)], 100)
        assert found.effect == values.mean()
        assert (found.low, found.high) == tuple(np.quantile(exact, [0.025, 0.975]))
        counts = np.bincount(np.concatenate(drawn), minlength=n)
        assert set(map(len, drawn)) == {n}
        assert counts / counts.sum() == pytest.approx(np.full(n, 1 / n), abs=0.03)
        assert min(len(set(one)) for one in map(tuple, drawn)) == 1  # with replacement
        assert drawn[-1].tolist() == list(range(n))  # the effect is that of all


def test_trainings_and_clusters_are_drawn_apart():
    """Values a_t + b_i: the variances of the two means add up."""
    rng = np.random.default_rng(0)
    seeds, items = rng.normal(size=8), rng.normal(size=60)

    def mean_of(rows, trainings):
        return items[rows].mean() + seeds[trainings].mean()

    found = bootstrap_interval(mean_of, np.arange(60), draws=2000, trainings=8)
    wanted = 2 * 1.96 * np.sqrt(items.var() / 60 + seeds.var() / 8)
    assert found.high - found.low == pytest.approx(wanted, rel=0.07)
    assert found.effect == pytest.approx(items.mean() + seeds.mean())
    alone = bootstrap_interval(lambda rows: items[rows].mean(), np.arange(60), draws=2000)
    assert alone.high - alone.low == pytest.approx(2 * 1.96 * np.sqrt(items.var() / 60), rel=0.07)


# --- Verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "margin", "verdict"),
    [
        (0.1, 2, None, "supported"),
        (-2, -0.1, None, "opposite"),
        (-1, 1, None, "not supported"),
        (0, 1, None, "not supported"),
        (-1, 0, None, "not supported"),
        (np.nan, 1, None, "not tested"),
        (-np.inf, np.inf, None, "not tested"),
        (-0.5, 0.9, 1, "supported"),
        (0.2, 0.9, 1, "supported"),  # a difference, but a small one
        (-0.5, 1.2, 1, "not supported"),
        (-1.2, 0.5, 1, "not supported"),
        (-2, 2, 1, "not supported"),
        (1.1, 2, 1, "opposite"),
        (-2, -1.1, 1, "opposite"),
        (np.nan, np.nan, 1, "not tested"),
    ],
)
def test_the_rule(low, high, margin, verdict):
    assert judge(Estimate(0.0, low, high), margin) == verdict


UP, DOWN, UNSURE = Estimate(2, 1, 3), Estimate(-2, -3, -1), Estimate(0.5, -0.5, 1.5)
NARROW, FAR, UNKNOWN = Estimate(0.1, -0.2, 0.4), Estimate(3, 2, 4), Estimate(1, np.nan, np.nan)


def claim(*parts, margin=None, why=""):
    named = {f"part {i}": part for i, part in enumerate(parts)}
    return Claim("c", "A beats B", "1.0 points", "A - B", named, "points", margin, why)


@pytest.mark.parametrize(
    ("parts", "margin", "verdict", "weakest"),
    [
        ([], None, "not tested", None),
        ([UP], None, "supported", 0),
        ([UP, Estimate(2, 0.5, 9)], None, "supported", 1),
        ([UP, UNSURE], None, "not supported", 1),
        ([UNSURE, DOWN, UP], None, "not supported", 1),
        ([DOWN, DOWN], None, "opposite", 0),
        ([UP, DOWN], None, "not supported", 1),
        ([NARROW], 1, "supported", 0),
        ([NARROW, UNSURE], 1, "not supported", 1),
        ([NARROW, FAR], 1, "not supported", 1),
        ([FAR, Estimate(-3, -4, -2)], 1, "opposite", 0),
        ([UNKNOWN], None, "not tested", 0),
        ([UP, UNKNOWN], None, "not supported", 1),
        ([UNKNOWN, UP], None, "not supported", 0),
        ([NARROW, UNKNOWN], 1, "not supported", 1),
    ],
)
def test_a_claim_takes_the_verdict_of_its_weakest_part(parts, margin, verdict, weakest):
    found = claim(*parts, margin=margin)
    assert found.verdict == verdict
    assert found.weakest == (None if weakest is None else f"part {weakest}")


def test_the_rule_is_printed_with_all_its_verdicts():
    for words in ("supported when", "opposite when", "not supported otherwise", "95 %"):
        assert words in claims.RULE


def test_a_record_is_plain_json_whatever_the_claim(tmp_path):
    every = [claim(), claim(UP), claim(UP, UNKNOWN), claim(Estimate(1, -np.inf, np.inf)),
             claim(NARROW, margin=1), claim(why="the data is not here")]  # fmt: skip
    write_json(tmp_path / "claims.json", [c.record() for c in every])
    text = (tmp_path / "claims.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    read = json.loads(text)
    assert [r["verdict"] for r in read] == [c.verdict for c in every]
    assert [r["effect"] for r in read] == [None, 2, 1, 1, 0.1, None]
    assert read[2]["low"] is None
    assert read[2]["parts"]["part 0"] == {"effect": 2, "low": 1, "high": 3, "verdict": "supported"}
    nothing = "this run has nothing to compare"
    assert [r["why"] for r in read] == [
        nothing, "", "1 of 2 parts supported; weakest: part 1", "", "", "the data is not here"
    ]  # fmt: skip


def test_the_ledger_shows_effect_interval_and_verdict():
    table = claims_table([claim(UP), claim(), claim(UNKNOWN)])
    assert table["effect, 95 % interval"].tolist() == ["+2.00 [+1.00, +3.00] points", "–", "–"]
    assert table.verdict.tolist() == ["supported", "not tested", "not tested"]
    assert table.index.tolist() == ["c", "c", "c"]


def test_a_recorded_runs_verdicts_stand_beside(tmp_path):
    path = tmp_path / "07_claims.json"
    assert "recorded run" not in claims_table([claim(UP)], path)
    other = {"how": {}, "claims": [{"id": "c", "verdict": "opposite"}]}
    path.write_text(json.dumps(other))
    table = claims_table([claim(UP), replace(claim(), id="d")], path)
    assert table["recorded run"].tolist() == ["opposite", "–"]
    assert table.verdict.tolist() == ["supported", "not tested"]


def test_an_estimate_in_another_unit():
    assert Estimate(6, -3, 12).times(1 / 3) == Estimate(2, -1, 4)
    with pytest.raises(ValueError, match="positive factor"):
        Estimate(6, -3, 12).times(-1)


# --- Results and tables ----------------------------------------------------------------------


def result(value=90.0, seed=0, system="DC", metric="AUC", dataset="coco", split="test"):
    return Result(system, dataset, split, metric, value, seed, "0123abcd")


def test_results_are_the_same_as_json_and_as_csv(tmp_path):
    drawn = np.random.default_rng(0).normal(size=4)
    results = [
        result(value, seed, system)
        for value, (system, seed) in zip(drawn, product(("DC", "AP+½k"), (0, 1)), strict=True)
    ]
    table = save_results(results, tmp_path / "runs" / "04")
    text = (tmp_path / "runs" / "04" / "results.json").read_text(encoding="utf-8")
    from_json = pd.DataFrame(json.loads(text))
    from_csv = pd.read_csv(tmp_path / "runs" / "04" / "results.csv", dtype={"settings": str})
    pd.testing.assert_frame_equal(from_json, from_csv, check_exact=True)
    pd.testing.assert_frame_equal(from_json, table, check_exact=True)
    assert from_json.value.tolist() == drawn.tolist()
    assert "½" in text


def test_a_result_that_json_cannot_say_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save_results([result(float("nan"))], tmp_path)
    assert not list(tmp_path.iterdir())


def test_numpy_numbers_become_plain(tmp_path):
    write_json(tmp_path / "x.json", {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 0.5, "b": 3, "c": True}


LINKS = json.loads((PACKAGE / "papers" / "links" / "tables.json").read_text(encoding="utf-8"))
PRINTED = {table["id"]: table for table in LINKS["tables"]}


@pytest.mark.parametrize("name", [name for name in PRINTED if name.startswith("table")])
def test_the_papers_numbers_stand_as_they_were_printed(name):
    ours = pd.DataFrame([{"system": "DC", "metric": "AUC", "seed": 0, "value": 12.34}])
    table = beside(ours, paper_values("links", name))
    for row in PRINTED[name]["rows"]:
        for column, printed in row["values"].items():
            wanted = "–" if printed is None else str(printed)
            assert table.loc[row["name"], (column, "paper")] == wanted


def test_two_cells_of_the_papers_table_2():
    table = beside(pd.DataFrame(columns=["system", "metric", "seed", "value"]),
                   paper_values("links", "table2_mscoco"))  # fmt: skip
    assert table.loc["AP", ("p@1", "paper")] == "91.0"
    assert table.loc["TK+½k", ("AUC", "paper")] == "99.0"
    assert set(table.xs("ours", axis=1, level=1).to_numpy().ravel()) == {"–"}


def test_our_numbers_stand_beside_with_their_deviation():
    ours = pd.DataFrame(
        [
            {"system": s, "metric": m, "seed": i, "value": v}
            for s, m, values in [
                ("DC", "AUC", [90.0, 91.0, 92.0]), ("DC", "p@1", [50.04]), ("Mine", "AUC", [1.26])
            ]
            for i, v in enumerate(values)
        ]
    )  # fmt: skip
    table = beside(ours, paper_values("links", "table2_mscoco"))
    assert table.loc["DC", ("AUC", "ours")] == "91.0 ± 1.0"
    assert table.loc["DC", ("p@1", "ours")] == "50.0"
    assert table.loc["DC", ("p@5", "ours")] == "–"
    assert table.loc["Mine"].tolist() == ["–", "1.3", "–", "–", "–", "–"]
    assert table.index.tolist() == [r["name"] for r in PRINTED["table2_mscoco"]["rows"]] + ["Mine"]


# --- Expected figures ------------------------------------------------------------------------


def test_a_tolerance_is_a_prediction_interval():
    wanted = stats.t.ppf(0.9995, 4) * 2 * np.sqrt(1 / 5 + 1 / 3)
    assert tolerance(2.0, measured=5, run=3) == pytest.approx(wanted)
    assert tolerance(2.0, measured=5, run=1) > tolerance(2.0, measured=5, run=3)
    assert tolerance(2.0, measured=5, run=3) > tolerance(2.0, measured=20, run=3)
    assert tolerance(0.0, measured=5, run=3) == 0.1
    assert tolerance(0.0, measured=5, run=3, floor=0.3) == 0.3
    with pytest.raises(ValueError, match="at least five seeds, not 4"):
        tolerance(2.0, measured=4, run=3)


def test_a_tolerance_holds_new_runs_and_catches_moved_ones():
    rng = np.random.default_rng(0)
    inside, caught = 0, 0
    for _ in range(2000):
        measured = rng.normal(90, 1, 10)
        allowed = tolerance(measured.std(ddof=1), 10, 3, floor=0)
        inside += abs(rng.normal(90, 1, 3).mean() - measured.mean()) <= allowed
        caught += abs(rng.normal(80, 1, 3).mean() - measured.mean()) > allowed
    assert inside / 2000 >= 0.995
    assert caught / 2000 >= 0.98


def table_of(*results):
    return pd.DataFrame([vars(r) for r in results])


FIVE = [result(v, i) for i, v in enumerate([90.0, 91, 92, 90, 91])] + [
    result(v, i, metric="p@1") for i, v in enumerate([60.0, 61, 59, 60, 60])
]
CHANCE = {"coco/DC/AUC": 50.0, "coco/DC/p@1": 5.0}
PARAMETERS = {"tier": "world", "seeds": 3, "systems": ("DC", "AP")}


@pytest.fixture
def expected(tmp_path):
    path = tmp_path / "04.json"
    how = {"machine": "a laptop"}
    write_json(path, make_expected(table_of(*FIVE), CHANCE, how, PARAMETERS, seeds=3))
    return path


def test_expected_figures_say_where_they_come_from(expected):
    content = json.loads(expected.read_text())
    assert content["how"] == {"machine": "a laptop"}
    deviation = np.std([90, 91, 92, 90, 91], ddof=1)
    assert content["figures"]["coco/DC/AUC"] == {
        "value": 90.8, "chance": 50.0, "seeds": 5, "deviation": pytest.approx(deviation, abs=1e-3),
        "tolerance": pytest.approx(tolerance(deviation, 5, 3), abs=1e-3),
    }  # fmt: skip


def verdicts(table, expected, parameters=PARAMETERS):
    check = check_figures(table, expected, parameters)
    assert check["comparable"]
    return {f["figure"]: f["within"] for f in check["figures"]}


def test_a_run_like_the_measured_ones_passes(expected):
    assert verdicts(table_of(*FIVE), expected) == {"coco/DC/AUC": True, "coco/DC/p@1": True}
    assert json.loads(json.dumps(check_figures(table_of(*FIVE), expected, PARAMETERS)))


@pytest.mark.parametrize("moved_to", [0.0, 50.0, 100.0])
def test_a_moved_figure_fails_alone(expected, moved_to):
    moved = [result(moved_to, r.seed) if r.metric == "AUC" else r for r in FIVE]
    assert verdicts(table_of(*moved), expected) == {"coco/DC/AUC": False, "coco/DC/p@1": True}


def test_the_edge_of_the_tolerance(expected):
    content = json.loads(expected.read_text())["figures"]["coco/DC/AUC"]
    for factor, within in ((0.999, True), (1.001, False)):
        for sign in (1, -1):
            value = content["value"] + sign * factor * content["tolerance"]
            table = table_of(result(value), *FIVE[5:])
            assert verdicts(table, expected)["coco/DC/AUC"] == within


def test_a_moved_expectation_fails(expected):
    content = json.loads(expected.read_text())
    content["figures"]["coco/DC/p@1"]["value"] += 30
    expected.write_text(json.dumps(content))
    assert verdicts(table_of(*FIVE), expected) == {"coco/DC/AUC": True, "coco/DC/p@1": False}


def test_a_missing_figure_fails(expected):
    assert verdicts(table_of(*FIVE[5:]), expected) == {"coco/DC/AUC": False, "coco/DC/p@1": True}


def test_a_broken_seed_is_not_averaged_away(expected, tmp_path):
    broken = [result(float("nan")), *FIVE[1:]]
    assert verdicts(table_of(*broken), expected) == {"coco/DC/AUC": False, "coco/DC/p@1": True}
    check = check_figures(table_of(*broken), expected, PARAMETERS)
    write_json(tmp_path / "checks.json", check)  # it can be told


def test_other_parameters_are_not_compared(expected):
    check = check_figures(table_of(*FIVE), expected, {**PARAMETERS, "seeds": 1})
    assert not check["comparable"]
    assert check["figures"] == []
    assert "seeds is 1, not 3" in check["why"]


def test_each_set_of_parameters_has_figures_of_its_own(expected):
    content = json.loads(expected.read_text())
    quick = {**content, "parameters": {**PARAMETERS, "seeds": 1}}
    quick["figures"] = {
        name: {**figure, "value": figure["value"] - 20}
        for name, figure in content["figures"].items()
    }
    expected.write_text(json.dumps({**content, "variants": [quick]}))
    assert all(verdicts(table_of(*FIVE), expected).values())
    other = verdicts(table_of(*FIVE), expected, {**PARAMETERS, "seeds": 1})
    assert other == {"coco/DC/AUC": False, "coco/DC/p@1": False}
    assert not check_figures(table_of(*FIVE), expected, {**PARAMETERS, "seeds": 2})["comparable"]


def test_further_parameters_and_lists_for_tuples_are_compared(expected):
    same = {**PARAMETERS, "device": "cpu", "systems": ["DC", "AP"]}
    assert all(verdicts(table_of(*FIVE), expected, same).values())


def test_no_expected_file_is_told(tmp_path):
    check = check_figures(table_of(*FIVE), tmp_path / "05.json", PARAMETERS)
    assert not check["comparable"]
    assert check["expected_file"] is None
    assert "05.json" in check["why"]


def test_too_few_seeds_make_no_expectation():
    with pytest.raises(ValueError, match="at least five seeds"):
        make_expected(table_of(*FIVE[:4]), {"coco/DC/AUC": 50.0}, {}, {}, seeds=3)


def test_figures_without_a_chance_level_are_left_out():
    figures = make_expected(table_of(*FIVE), {"coco/DC/AUC": 50.0}, {}, {}, seeds=3)["figures"]
    assert list(figures) == ["coco/DC/AUC"]


def test_chance_of_an_unknown_figure_is_refused():
    with pytest.raises(ValueError, match="coco/PC/AUC"):
        make_expected(table_of(*FIVE), {**CHANCE, "coco/PC/AUC": 50.0}, {}, {}, seeds=3)


def test_splits_are_never_averaged_together():
    both = table_of(*FIVE[:5], *(result(10.0, r.seed, split="val") for r in FIVE[:5]))
    try:
        means = claims.figures_of(both)["mean"].tolist()
    except ValueError:
        return
    assert means == pytest.approx([90.8, 10.0])


def test_the_printed_check_changes_its_words_only_when_a_figure_leaves(expected, capsys):
    lines = []
    for shift in (0.0, 0.2, 40.0):
        moved = [result(r.value + shift, r.seed, metric=r.metric) for r in FIVE]
        print_check(check_figures(table_of(*moved), expected, PARAMETERS))
        lines.append(capsys.readouterr().out)
    assert lines[0] == lines[1] == "coco/DC/AUC: within tolerance\ncoco/DC/p@1: within tolerance\n"
    assert lines[2].count("OUTSIDE") == 2
    print_check(check_figures(table_of(*FIVE), expected, {"tier": "paper"}))
    assert "not compared" in capsys.readouterr().out
