"""Effects that cover the truth, power that comes true, and every branch of the rule."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from mmlib.core import claims
from mmlib.core.effects import (
    Effect,
    Interval,
    between,
    crossed,
    crossed_known,
    difference,
    over_seeds,
    slope,
)
from mmlib.core.forest import COLOURS, forest
from mmlib.core.forest import summary as forest_summary

NORMAL = stats.norm.ppf(0.975)
PAIRS, UNEQUAL = np.repeat(np.arange(40), 2), np.repeat(np.arange(40), np.arange(40) % 6 + 1)


def draw(rng, member, deviations, seeds, mean=0.0):
    """Values (seeds, items): effects of seed, cluster, their pairing, and the item."""
    of_seed, of_cluster, of_pair, of_item = deviations
    clusters = member.max() + 1
    return (
        mean
        + of_seed * rng.normal(size=(seeds, 1))
        + of_cluster * rng.normal(size=clusters)[member]
        + of_pair * rng.normal(size=(seeds, clusters))[:, member]
        + of_item * rng.normal(size=(seeds, len(member)))
    )


def effect_of(low, high, seeds=5):
    """An effect with this normal interval, of so many trainings."""
    return Effect((low + high) / 2, (high - low) / 2 / NORMAL, np.inf, seeds=seeds)


def claim_of(effects, smallest=1.0, **more):
    told = {"id": "C1", "claim": "A beats B", "paper": "Table 1: 60 against 50"}
    told |= {"contrast": "A - B", "unit": "points", "why": "a tenth of the paper's difference"}
    return claims.Claim(**told | more, smallest=smallest, effects=effects)


def given(parts, **more):
    return claims.assess(claim_of(lambda evidence: parts, **more), None)


# --- Effects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2, 5, 20])
@pytest.mark.parametrize("deviations", [(1, 1, 1, 1), (0, 1, 0, 0.1), (0, 0, 1, 1), (1, 0, 0, 0)])
def test_crossed_has_the_interval_of_a_table_of_variances(seeds, deviations):
    values = draw(np.random.default_rng(seeds), UNEQUAL, deviations, seeds, mean=0.7)
    found = crossed(values, [f"d{c}" for c in UNEQUAL])
    wanted = by_analysis_of_variance(values, UNEQUAL)
    assert (found.effect, found.low, found.high) == pytest.approx(wanted)
    assert found.at(seeds).se == pytest.approx(found.se)
    assert (found.per_seed == 0) == (seeds == 1)


NAMELESS = [  # and at which item
    (["a", None, "b"], 1), (["a", "b", np.nan], 2), ([pd.NaT, "a"], 0), ([1, pd.NA, 2], 1),
    (np.array([1, np.nan]), 1), (pd.array([1, None]), 1), (pd.Categorical(["a", None]), 1),
]  # fmt: skip


@pytest.mark.parametrize(("clusters", "message"), [
    *((names, f"item {i} names no cluster") for names, i in NAMELESS),
    (["a", "a"], "at least two clusters"), ([], "2 items, but 0 clusters"),
])  # fmt: skip
def test_clusters_without_a_name_are_refused(clusters, message):
    values = np.arange(2.0 * len(clusters) or 4).reshape(2, -1)
    for estimate in (crossed, crossed_known, lambda v, names: slope(v.T, v, 0, names)):
        with pytest.raises(ValueError, match=message):
            estimate(values, clusters)


@pytest.mark.parametrize("names", [
    np.array(list("aabc")), pd.Series(list("aabc"), index=[7, 7, 8, 9]), [np.int64(1), 1, 2, 3],
    np.array([3, 3, 1, 2], np.uint8), [2**70, 2**70, 2**70 + 1, 1], pd.Categorical(list("aabc")),
])  # fmt: skip
def test_clusters_may_have_names_of_any_one_kind(names):
    values = np.array([[1.0, 2, 4, 3], [2, 2, 5, 9]])
    assert crossed(values, names) == crossed(values, np.array([0, 0, 1, 2]))
    assert crossed_known(values, names) == crossed(values, names)


def by_analysis_of_variance(values, member):
    """Effect, low and high by statsmodels' two-way table, or for one seed by scipy's t interval."""
    mean, sums = values.mean(), []
    for seed, row in enumerate(values):
        for cluster in range(member.max() + 1):
            total = sum(x - mean for x, m in zip(row, member, strict=True) if m == cluster)
            sums.append((seed, cluster, total * (member.max() + 1) / len(member)))
    table = pd.DataFrame(sums, columns=["seed", "cluster", "y"])
    if len(values) == 1:
        return mean, *stats.t.interval(0.95, member.max(), mean, stats.sem(table.y))
    anova = anova_lm(ols("y ~ C(seed) + C(cluster)", table).fit())
    square, df = anova.mean_sq, anova.df
    of_seeds, of_items, rest = square["C(seed)"], square["C(cluster)"], square["Residual"]
    both = max(of_seeds + of_items - rest, of_seeds, of_items)
    freedom = max(both**2 / (square**2 / df).sum(), 1.0)
    over_both = stats.t.interval(0.95, freedom, mean, (both / len(table)) ** 0.5)
    over_seeds_alone = stats.t.interval(0.95, len(values) - 1, mean, stats.sem(values.mean(1)))
    return mean, *max(over_both, over_seeds_alone, key=np.ptp)  # the wider one


@pytest.mark.parametrize("of_seeds", [0.5, 0.9])  # the share of the variance that seeds bring
@pytest.mark.parametrize("seeds", [2, 3])
def test_crossed_covers_the_truth_with_few_seeds_that_differ(seeds, of_seeds):
    """With Satterthwaite's degrees of freedom alone, two seeds cover it in 88 to 94 of 100 runs."""
    rng, clusters = np.random.default_rng(11), np.arange(30)
    deviations = (of_seeds * seeds) ** 0.5, ((1 - of_seeds) * 30) ** 0.5, seeds**0.5, 0.0
    found = [crossed(draw(rng, clusters, deviations, seeds), clusters) for _ in range(1500)]
    margin = 2.5 * (0.95 * 0.05 / 1500) ** 0.5
    assert np.mean([e.low <= 0 <= e.high for e in found]) > 0.95 - margin


def test_what_no_seed_changes_was_measured_once():
    values = np.random.default_rng(0).normal(size=(1, 6))
    repeated = crossed(np.repeat(values, 4, axis=0), range(6))
    assert (repeated.seeds, repeated.per_seed) == (0, 0)
    assert repeated.at(9) == repeated
    assert over_seeds([2.0, 2.0, 2.0]).seeds == 0
    assert [
        crossed(values, range(6)).seeds,
        crossed(np.vstack([values, -values]), range(6)).seeds,
    ] == [1, 2]


@pytest.mark.parametrize("then", [2, 12, 48])
def test_crossed_foresees_the_error_with_another_number_of_seeds(then):
    """The parts of the variance, against simulated estimates with that number of seeds."""
    rng, deviations = np.random.default_rng(5), (0.4, 0.6, 1, 1)
    foreseen = [crossed(draw(rng, PAIRS, deviations, 6), PAIRS).at(then) for _ in range(400)]
    means = [draw(rng, PAIRS, deviations, then).mean() for _ in range(1500)]
    assert np.mean([e.se**2 for e in foreseen]) ** 0.5 == pytest.approx(np.std(means), rel=0.08)


def test_no_number_of_seeds_makes_up_for_few_clusters():
    """What then is left is the clusters' variance, and it has their degrees of freedom."""
    rng, six = np.random.default_rng(7), np.arange(6)
    foreseen = [crossed(draw(rng, six, (3, 1, 0.5, 0.1), 6), six).at(10_000) for _ in range(200)]
    freedoms = [e.df for e in foreseen if e.se > 1e-9]
    assert np.median(freedoms) < 12


def test_between_is_a_regression_on_the_side():
    rng, clusters = np.random.default_rng(5), np.arange(60) // 3
    values, chosen = rng.normal(50, 3, (1, 60)), rng.random(60) < 0.3
    found = between(values, chosen, ~chosen, clusters)
    table = pd.DataFrame({"value": values[0], "chosen": chosen.astype(float)})
    fit = ols("value ~ chosen", table).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    assert found.effect == pytest.approx(fit.params["chosen"])
    assert found.se * (59 / 58) ** 0.5 == pytest.approx(fit.bse["chosen"])
    of_seeds = chosen ^ (rng.random((4, 60)) < 0.1)  # sides that differ with the seed
    found = between(np.repeat(values, 4, axis=0), of_seeds, ~of_seeds, clusters)
    every = np.repeat(values, 4, axis=0)
    assert found.effect == pytest.approx(every[of_seeds].mean() - every[~of_seeds].mean())


def test_over_seeds_is_students_interval():
    values = np.random.default_rng(1).normal(2, 3, size=7)
    found = over_seeds(values)
    expected = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.at(28).se == pytest.approx(found.se / 2)
    assert found.at(28).df == pytest.approx(27)
    with pytest.raises(ValueError, match="two seeds"):
        over_seeds([1.0])


def test_an_interval_is_told_with_its_signs():
    one = Interval(effect=-0.1, se=0.25, df=np.inf)
    assert one.told() == "-0.10 [-0.59, +0.39]"
    assert one.told(0, times=100) == "-10 [-59, +39]"


def test_slope_is_of_scaled_predictors_with_an_error_over_clusters():
    rng = np.random.default_rng(3)
    member = np.repeat(np.arange(60), 9)
    x, z = rng.normal(size=(2, 60))[:, member] + 0.5 * rng.normal(size=(2, 540))
    y = 3 * x + 1.5 * z + 2 * (rng.normal(size=60)[member] + rng.normal(size=540))
    predictors = np.column_stack([z, 10 * x])
    found = slope(predictors, np.stack([y - 1, y + 1]), 1, member)  # of two seeds
    table = np.column_stack([np.ones(540), z, x / x.std(ddof=1)])
    inverse, weights = np.linalg.inv(table.T @ table), np.linalg.lstsq(table, y)[0]
    scores = [table[member == c].T @ (y - table @ weights)[member == c] for c in range(60)]
    sandwich = inverse @ sum(np.outer(one, one) for one in scores) @ inverse
    assert (found.effect, found.df, found.seeds) == (pytest.approx(weights[2]), 59, 2)
    assert found.se == pytest.approx(sandwich[2, 2] ** 0.5, rel=0.02)  # but for few clusters
    assert np.isnan(slope(np.column_stack([z, 0 * x]), y[None], 1, member).se)


def test_difference_is_welchs():
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=5), rng.normal(1, 3, size=9)
    found, welch = difference(over_seeds(a), over_seeds(b)), stats.ttest_ind(a, b, equal_var=False)
    assert (found.low, found.high) == pytest.approx(tuple(welch.confidence_interval()))
    assert found.per_seed / found.seeds == pytest.approx(found.se**2)
    fixed = difference(over_seeds(a), Effect(1.0, 0.1, np.inf, seeds=0))
    assert (fixed.seeds, fixed.per_seed) == (5, pytest.approx(a.var(ddof=1)))
    # One seed of either side is one seed of their difference.
    assert difference(over_seeds(a), Effect(1.0, 0.1, np.inf, seeds=1)).seeds == 1


# --- The rule --------------------------------------------------------------------------------

BRANCHES = {
    "greater": {
        (-0.9, 0.9): "negligible", (0.1, 0.9): "negligible", (-0.9, -0.1): "negligible",
        (0.1, 1.5): "supported, small", (0.9, 3): "supported", (2, 3): "supported",
        (-1.5, -0.1): "opposite, small", (-3, -0.9): "opposite", (-3, -2): "opposite",
        (-0.1, 1.1): "undecided", (-1.1, 0.1): "undecided", (-2, 2): "undecided",
    },
    "equivalent": {
        (-0.9, 0.9): "supported", (0.1, 0.9): "supported", (1.1, 3): "opposite",
        (-3, -1.1): "opposite", (0.5, 1.1): "undecided", (-1.1, 0.5): "undecided",
        (-2, 2): "undecided",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", BRANCHES)
def test_every_branch_of_the_rule(kind):
    """An effect below the smallest of interest is small."""
    for interval, words in BRANCHES[kind].items():
        expected = claims.verdict(effect_of(*interval), 1.0, kind)
        found = given({"a": effect_of(*interval)}, kind=kind)
        assert (found.verdict, found.part_verdicts) == (expected, {"a": expected})
        record = found.record()
        assert record["words"] == record["parts"]["a"]["words"] == words
        assert words.removesuffix(", small") == expected


@pytest.mark.parametrize("kind", ["greater", "equivalent"])
@pytest.mark.parametrize("lost", [(np.nan, 1, 5), (1, np.nan, 5), (1, np.inf, 5)])
def test_what_is_not_finite_is_not_tested(kind, lost):
    assert claims.verdict(Effect(*lost), 1.0, kind) == "not tested"
    found = given({"a": effect_of(2, 3), "b": Effect(*lost)}, kind=kind)
    assert (found.verdict, found.parts, found.record()["effect"]) == ("not tested", {}, None)
    assert "b" in found.why
    assert found.why in forest([found]).texts[0].get_text()


# By hand: the verdicts of the parts, and the verdict on a claim that counts them all.
FOR, AGAINST, SMALL, OPEN = "supported", "opposite", "negligible", "undecided"
LETTERS = {"s": FOR, "o": AGAINST, "n": SMALL, "u": OPEN}
INTERVALS = {FOR: (2, 3), AGAINST: (-3, -2), SMALL: (-0.5, 0.5), OPEN: (-2, 2)}
EVERY = {
    "s": ("supported", ""), "o": ("opposite", ""), "n": ("negligible", ""), "u": ("undecided", ""),
    "sss": ("holds", "3 +"), "su": ("open", "1 + · 1 ?"), "uuu": ("open", "3 ?"),
    "sssu": ("open", "3 + · 1 ?"), "oo": ("fails in 2 of 2", "2 −"),
    "nnn": ("fails in 3 of 3", "3 ≈"), "so": ("fails in 1 of 2", "1 + · 1 −"),
    "ou": ("fails in 1 of 2", "1 − · 1 ?"), "nu": ("fails in 1 of 2", "1 ≈ · 1 ?"),
    "sssso": ("fails in 1 of 5", "4 + · 1 −"), "unus": ("fails in 1 of 4", "1 + · 1 ≈ · 2 ?"),
    "sssnouu": ("fails in 2 of 7", "3 + · 1 ≈ · 1 − · 2 ?"),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), EVERY.items())
def test_a_claim_that_counts_every_part(parts, expected):
    verdicts = [LETTERS[letter] for letter in parts]
    for order in (verdicts, verdicts[::-1]):
        found = given({str(i): effect_of(*INTERVALS[v]) for i, v in enumerate(order)})
        record = json.loads(json.dumps(found.record(), allow_nan=False))
        assert (record["words"], record["counts"]) == expected
        assert found.verdict == record["verdict"]
        assert record["words"].startswith(record["verdict"])
        assert list(found.part_verdicts.values()) == order
        assert list(record["parts"]) == list(found.part_verdicts)


@pytest.mark.parametrize(
    ("parts", "firmness"),
    [
        ({"a": effect_of(2, 3)}, "firm"),
        ({"a": effect_of(0.1, 3)}, "fragile"),  # 99 % reach to -.36
        ({"a": effect_of(2, 3, seeds=4)}, "fragile"),
        ({"a": effect_of(2, 3, seeds=0)}, "firm"),  # measured once
        ({"a": effect_of(-0.9, 0.9)}, "fragile"),  # negligible, with 99 % to 1.18
        ({"a": effect_of(2, 3), "b": effect_of(0.1, 3)}, "fragile"),
        # Refuted by a alone, whatever b is; but an open part lacks seeds.
        ({"a": effect_of(-3, -2), "b": effect_of(-0.9, 0.9)}, "firm"),
        ({"a": effect_of(-3, -2), "b": effect_of(-2, 2, seeds=3)}, "fragile"),
        ({"a": effect_of(-2, 2)}, ""),
        ({"a": effect_of(2, 3), "b": effect_of(-2, 2)}, ""),
        ("nothing was trained", ""),
    ],
)
def test_a_verdict_is_firm_by_wider_intervals_and_enough_seeds(parts, firmness):
    found = given(parts)
    assert found.firmness == found.record()["firmness"] == firmness


@pytest.mark.parametrize("kind", ["greater", "equivalent"])
def test_one_seed_decides_nothing(kind):
    one = {"a": effect_of(2, 3, seeds=1), "b": effect_of(-0.5, 0.5, seeds=1)}
    assert set(given(one, kind=kind).part_verdicts.values()) == {OPEN}
    found = given({**one, "b": effect_of(2, 3)})
    assert found.record()["counts"] == "1 + · 1 ?"
    assert (found.seeds_needed, found.seeds_as_seen) == (None, None)
    assert found.why == "one seed decides nothing, as it does not tell how much seeds differ"


def test_a_record_says_whether_our_intervals_hold_the_papers_effect():
    parts = {"a": effect_of(2, 3), "b": effect_of(4, 5)}
    for paper, holding in ((2.5, 1), (3.5, 0), (None, None)):
        record = given(parts, paper_effect=paper).record()
        assert record["paper_effect"] == paper
        assert (record["holding_paper"], record["intervals"]) == (holding, 2)


def test_a_claim_names_a_smallest_effect():
    for wrong in (0, -1, np.nan):
        with pytest.raises(ValueError, match="smallest effect"):
            claim_of(lambda e, s: {}, smallest=wrong)


# --- Power -----------------------------------------------------------------------------------


def test_the_detectable_effect_is_detected_four_times_in_five():
    rng, n = np.random.default_rng(0), 5
    found = given({"a": Effect(0, 1 / n**0.5, n - 1, 1.0, n)})
    means = rng.normal(found.detectable, 1, size=(20000, n))
    low = means.mean(1) - stats.t.ppf(0.975, n - 1) * means.std(1, ddof=1) / n**0.5
    assert np.mean(low > 0) == pytest.approx(0.8, abs=0.01)
    large = given({"a": Effect(0, 1.0, np.inf)})
    assert large.detectable == pytest.approx(NORMAL + stats.norm.ppf(0.8), rel=1e-4)


@pytest.mark.parametrize(("kind", "truth"), [("greater", 0.5), ("equivalent", 0.0)])
def test_the_seeds_needed_decide_four_times_in_five(kind, truth):
    """Seeds and clusters random; the pilot knows the true parts of the variance."""
    rng, deviations, smallest = np.random.default_rng(1), (1.0, 0.4, 0.5, 0.5), 0.5
    per_seed = 1 + 0.5**2 / 40 + 0.5**2 / 80
    rest = 0.4**2 / 40
    pilot = Effect(0, (per_seed / 4 + rest) ** 0.5, 3.2, per_seed, 4)
    found = given({"a": pilot}, smallest=smallest, kind=kind)
    assert found.verdict == "undecided"
    n = found.seeds_needed

    def decided(seeds):
        drawn = (draw(rng, PAIRS, deviations, seeds, truth) for _ in range(800))
        return np.mean(
            [claims.verdict(crossed(v, PAIRS), smallest, kind) in claims.DECIDED for v in drawn]
        )

    assert decided(n) == pytest.approx(0.8, abs=0.05)
    assert decided(n // 2) < 0.65


def test_no_number_of_seeds_makes_up_for_few_documents():
    documents = Effect(1.0, 1.0, 30, per_seed=0.4, seeds=2)  # 0.8 of the variance is theirs
    assert given({"a": documents}, smallest=2.0).seeds_needed is None
    assert given({"a": documents}, smallest=2.7).seeds_needed > 2
    assert "more seeds alone" in given({"a": documents}, smallest=2.0).why


def test_seeds_needed_are_held_against_those_that_the_claim_has():
    """A part may have fewer seeds than others."""
    found = given({"a": Effect(0.2, 1 / 3**0.5, 2, 1.0, 3)}, smallest=2.5)
    assert (found.verdict, found.seeds_needed) == ("undecided", 4)  # `given` has four
    assert found.why.startswith("4 seeds would decide an effect of 2.5 points in four runs of five")


@pytest.mark.parametrize(
    ("kind", "seen"), [("greater", 1.4), ("equivalent", 0.4), ("equivalent", 1.6)]
)
def test_the_seeds_for_an_effect_as_seen_decide_four_times_in_five(kind, seen):
    pilot = Effect(-seen, 1 / 4**0.5, 3, 1.0, 4)
    found = given({"a": pilot}, smallest=1.0, kind=kind)
    rng, n = np.random.default_rng(0), found.seeds_as_seen
    assert found.verdict == OPEN
    assert f"{n} would decide effects like these" in found.why

    def decided(seeds):
        runs = map(over_seeds, rng.normal(seen, 1, size=(2000, seeds)))
        return np.mean([claims.verdict(run, 1.0, kind) in claims.DECIDED for run in runs])

    assert decided(n - 1) < 0.83
    assert decided(n) > 0.77


def test_of_every_part_the_open_ones_alone_need_more_seeds():
    """The same seeds as if the open parts were all there is."""
    opened = {"a": Effect(0.2, 1 / 3**0.5, 2, 1.0, 3), "b": Effect(0.4, 1 / 3**0.5, 2, 1.0, 3)}
    hopeless = Effect(9.0, 0.9, 30, per_seed=0.01, seeds=4)  # decided, but never at so small an d
    both = given(opened, smallest=0.5)
    found = given({**opened, "c": hopeless}, smallest=0.5)
    assert (found.verdict, found.part_verdicts["c"]) == ("open", FOR)
    assert (found.detectable, found.seeds_needed) == (both.detectable, both.seeds_needed)
    assert both.seeds_needed > 4
    assert f"{both.seeds_needed} seeds would decide" in found.why
    assert "in the open parts" in found.why


def test_a_part_without_doubt_leaves_power_to_the_others():
    """SciPy's noncentral t has no number at 40 standard errors and 9 degrees of freedom."""
    sure, open_ = Effect(0, 1 / 40, 9), Effect(0, 0.5, 9)
    assert claims.power([sure], [1.0], 1.0) == 1
    assert claims.power([sure, open_], [1.0, 1.0], 1.0) == claims.power([open_], [1.0], 1.0)


# --- Record, ledger, figure ------------------------------------------------------------------


def test_of_parts_one_that_decides_is_shown():
    parts = {"open": effect_of(-110, 160), "refuted": effect_of(-19, -10)}
    parts |= {"less": effect_of(-9, -8)}
    record = given(parts, smallest=1.0).record()
    assert (record["verdict"], record["deciding"]) == ("fails", "refuted")
    assert record["effect"] == pytest.approx(-14.5)
    lines = [line for line in forest([record]).axes[0].lines if line.get_linewidth() == 1.2]
    assert [line.get_color() for line in lines] == [COLOURS[v] for v in (OPEN, AGAINST, AGAINST)]


def test_a_summary_has_the_claims_with_a_sentence_and_each_kind_of_data():
    first = {"summary": "First", "paper_effect": 2.0}
    parts = {"a": effect_of(1, 3), "b": effect_of(-3, -2), "c": effect_of(-4, -1)}
    judged = {"flickr8k": [given(parts, id="A", **first), given(parts, id="B")],
              "world": [given({"": effect_of(2, 4)}, id="A", **first)],
              "controlled": [given({"": effect_of(-0.2, 0.3)}, id="K", summary="K")]}  # fmt: skip
    assert claims.summary(judged).reset_index().to_numpy()[:, [0, 2, 3, 4, 5]].tolist() == [
        ["First", "picture world", "+3 [+2, +4] points", "holds", "firm"],
        ["First", "photographs", "-2.5 [-4, -1] points", "fails in 2 of 3", "firm"],
        ["K", "made up", "+0.05 [-0.2, +0.3] points", "fails", "firm"],
    ]
    axes = forest_summary(judged).axes
    assert [axis.get_title(loc="left") for axis in axes] == ["First", "K"]
    rows = ["the paper", "picture world: holds, firm", "photographs: fails in 2 of 3, firm"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == rows
    ticks = [line.get_xdata()[0] for line in axes[0].lines if line.get_marker() == "|"]
    assert ticks == pytest.approx([3, 2, -2.5, -2.5])
