"""Effects that cover the truth, power that comes true, and every branch of the rule."""

import json
from functools import partial
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from mmlib.core.claims import (
    DECIDED,
    RULE,
    Claim,
    assess,
    at_other_sizes,
    power,
    stability,
    verdict,
    verdict_on_every,
)
from mmlib.core.effects import (
    Effect,
    Interval,
    crossed,
    difference,
    over_seeds,
    sd_between,
    slope,
)
from mmlib.core.forest import COLOURS, forest

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


def effect_of(low, high):
    """An effect with this normal interval."""
    return Effect((low + high) / 2, (high - low) / 2 / NORMAL, np.inf)


def claim_of(effects, smallest=1.0, **more):
    told = {"id": "C1", "claim": "A beats B", "paper": "Table 1: 60 against 50"}
    told |= {"contrast": "A - B", "unit": "points", "why": "a tenth of the paper's difference"}
    return Claim(**told, smallest=smallest, effects=effects, **more)


def given(parts, **more):
    return assess(claim_of(lambda evidence, seeds: parts, **more), None, range(4))


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


def test_the_bound_of_an_error_counts_the_interplay_twice():
    """Where there is nothing else, its square is twice the truth; without interplay, the same."""
    rng, clusters = np.random.default_rng(12), np.arange(40)
    for deviations, times in (((0, 0, 1, 0), 2.0), ((0.3, 1, 0, 0), 1.0)):
        found = [crossed(draw(rng, clusters, deviations, 10), clusters) for _ in range(300)]
        true = np.var([e.effect for e in found])
        assert np.mean([e.bounded().se ** 2 for e in found]) == pytest.approx(times * true, rel=0.2)
        assert all(e.bounded().se >= e.se for e in found)


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
    found = slope(predictors, y, 1, member)
    table = np.column_stack([np.ones(540), z, x / x.std(ddof=1)])
    inverse, weights = np.linalg.inv(table.T @ table), np.linalg.lstsq(table, y)[0]
    scores = [table[member == c].T @ (y - table @ weights)[member == c] for c in range(60)]
    sandwich = inverse @ sum(np.outer(one, one) for one in scores) @ inverse
    assert (found.effect, found.df) == (pytest.approx(weights[2]), 59)
    assert found.se == pytest.approx(sandwich[2, 2] ** 0.5, rel=0.02)  # but for few clusters
    assert not slope(np.column_stack([z, 0 * x]), y, 1, member).finite


def test_difference_is_welchs():
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=5), rng.normal(1, 3, size=9)
    found, welch = difference(over_seeds(a), over_seeds(b)), stats.ttest_ind(a, b, equal_var=False)
    assert (found.low, found.high) == pytest.approx(tuple(welch.confidence_interval()))
    assert found.per_seed / found.seeds == pytest.approx(found.se**2)
    fixed = difference(over_seeds(a), Effect(1.0, 0.1, np.inf))
    assert (fixed.seeds, fixed.per_seed) == (5, pytest.approx(a.var(ddof=1)))


@pytest.mark.parametrize(("parts", "tau"), [(2, 3.0), (3, 4.0), (7, 1.0), (7, 0.0)])
def test_the_deviation_between_parts_is_paule_and_mandels(parts, tau):
    """Their estimating equation holds at it: weighted squares come to their degrees of freedom."""
    rng = np.random.default_rng(parts)
    errors = rng.uniform(0.3, 1.5, size=parts)
    values = 5 + tau * rng.normal(size=parts) + errors * rng.normal(size=parts) * (tau > 0)
    found = sd_between([Effect(v, e, 50) for v, e in zip(values, errors, strict=True)])
    weights = 1 / (errors**2 + found**2)
    squares = (weights * (values - weights @ values / weights.sum()) ** 2).sum()
    if tau:
        assert squares == pytest.approx(parts - 1, rel=1e-3)
    else:
        assert found == 0
        assert squares < parts - 1
    assert sd_between([Effect(2, 0, 5), Effect(2, 0, 5)]) == sd_between([Effect(1, 1, 5)]) == 0


# --- The rule --------------------------------------------------------------------------------

BRANCHES = {
    "greater": {
        (-0.9, 0.9): "negligible", (0.1, 0.9): "negligible", (-0.9, -0.1): "negligible",
        (0.1, 1.1): "supported", (2, 3): "supported", (-1.1, -0.1): "opposite",
        (-3, -2): "opposite", (-0.1, 1.1): "undecided", (-1.1, 0.1): "undecided",
        (-2, 2): "undecided",
    },
    "equivalent": {
        (-0.9, 0.9): "supported", (0.1, 0.9): "supported", (1.1, 3): "opposite",
        (-3, -1.1): "opposite", (0.5, 1.1): "undecided", (-1.1, 0.5): "undecided",
        (-2, 2): "undecided",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", BRANCHES)
def test_every_branch_of_the_rule(kind):
    for interval, expected in BRANCHES[kind].items():
        assert verdict(effect_of(*interval), 1.0, kind) == expected
        found = given({"a": effect_of(*interval)}, kind=kind)
        assert (found.verdict, found.part_verdicts) == (expected, {"a": expected})


@pytest.mark.parametrize("kind", ["greater", "equivalent"])
@pytest.mark.parametrize("lost", [(np.nan, 1, 5), (1, np.nan, 5), (1, np.inf, 5)])
def test_what_is_not_finite_is_not_tested(kind, lost):
    assert verdict(Effect(*lost), 1.0, kind) == "not tested"
    found = given({"a": effect_of(2, 3), "b": Effect(*lost)}, kind=kind)
    assert (found.verdict, found.parts) == ("not tested", {})
    assert "b" in found.why


# By hand: the verdicts of the parts, and the verdict on a claim that counts them all.
FOR, AGAINST, SMALL, OPEN = "supported", "opposite", "negligible", "undecided"
LETTERS = {"s": FOR, "o": AGAINST, "n": SMALL, "u": OPEN, "m": "mixed"}
EVERY = {
    "s": "s", "o": "o", "n": "n", "u": "u", "sss": "s", "oo": "o", "nnn": "n", "uuu": "u",
    "so": "m", "sn": "m", "no": "m", "sno": "m", "sssso": "m", "sou": "m", "unus": "m",
    "su": "u", "ou": "o", "nu": "u", "sssu": "u", "nnu": "u", "ouu": "o",
}  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), EVERY.items())
def test_a_claim_that_counts_every_part(parts, expected):
    intervals = {FOR: (2, 3), AGAINST: (-3, -2), SMALL: (-0.5, 0.5), OPEN: (-2, 2)}
    verdicts = [LETTERS[letter] for letter in parts]
    for order in (verdicts, verdicts[::-1]):
        assert verdict_on_every(order) == LETTERS[expected]
        found = given({str(i): effect_of(*intervals[v]) for i, v in enumerate(order)})
        assert found.verdict == LETTERS[expected]
        assert list(found.part_verdicts.values()) == order
        counts = [f"{order.count(v)} {v}" for v in set(order)]
        assert len(order) == 1 or all(count in found.why for count in counts)
        assert ("whatever the open ones are" in found.why) == (set(order) == {SMALL, OPEN})


SIZES = {
    "clearly": [((1.1, 3), "greater"), ((-3, -1.1), "greater"), ((1.1, 3), "equivalent")],
    "": [((0.9, 3), "greater"), ((-3, -0.9), "greater"), ((-0.5, 0.5), "greater"),
         ((-2, 2), "greater"), ((-0.5, 0.5), "equivalent")],
    "direction only": [((0.1, 1.5), "greater"), ((-1.5, -0.1), "greater")],
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_the_size_of_an_effect_stands_beside_its_sign(size):
    for interval, kind in SIZES[size]:
        found = given({"a": effect_of(*interval)}, kind=kind)
        assert found.size == found.record()["size"] == size


def test_of_several_parts_the_weakest_gives_the_size():
    clear, plain, weak = effect_of(2, 3), effect_of(0.5, 3), effect_of(0.1, 1.5)
    for parts, expected in (
        ([clear, clear], "clearly"), ([clear, plain], ""), ([clear, plain, weak], "direction only")
    ):  # fmt: skip
        assert given(dict(enumerate(parts))).size == expected
    assert given({"a": clear, "b": effect_of(-3, -2)}).size == ""
    against = {"a": effect_of(-3, -2), "b": effect_of(-1.5, -0.1), "c": effect_of(-2, 2)}
    assert given(against).size == "clearly"
    assert given({**against, "a": effect_of(-2, 2)}).size == "direction only"


def test_a_verdict_that_a_larger_error_would_lose_is_fragile():
    firm = Effect(4.0, 1.0, np.inf, se_bound=1.5)  # 4 > 1.96 * 1.5
    frail = Effect(2.5, 1.0, np.inf, se_bound=1.5)
    assert given({"a": firm}).fragile is given({"a": firm}).record()["fragile"] is False
    assert given({"a": frail}).fragile is given({"a": frail}).record()["fragile"] is True
    assert given({"a": firm, "b": frail}).fragile
    assert not given({"a": Effect(0.5, 1.0, np.inf, se_bound=1.5)}).fragile  # undecided anyway


def test_a_record_says_whether_our_intervals_hold_the_papers_effect():
    parts = {"a": effect_of(2, 3), "b": effect_of(4, 5)}
    for paper, holding in ((2.5, 1), (3.5, 0), (None, None)):
        record = given(parts, paper_effect=paper).record()
        assert record["paper_effect"] == paper
        assert (record["holding_paper"], record["intervals"]) == (holding, 2)


def test_verdicts_at_other_smallest_effects():
    claims = [
        given({"a": effect_of(0.6, 1.4)}),  # beyond 0, whatever d, unless it lies within d
        given({"a": effect_of(-0.6, 0.8)}),
        given({"a": effect_of(-0.6, 0.8)}, kind="equivalent"),
        given({"a": effect_of(2, 3), "b": effect_of(-0.4, 0.4)}),
        given("nothing was trained"),
    ]
    assert [at_other_sizes(claim) for claim in claims] == [
        (FOR, SMALL), (OPEN, SMALL), (OPEN, FOR), ("mixed", "mixed"), ()
    ]  # fmt: skip


def test_a_claim_names_a_smallest_effect():
    for wrong in (0, -1, np.nan):
        with pytest.raises(ValueError, match="smallest effect"):
            claim_of(lambda e, s: {}, smallest=wrong)


def test_the_rule_tells_every_verdict():
    assert all(word in RULE for word in (*DECIDED, "undecided", "not tested"))


# --- Power -----------------------------------------------------------------------------------


def test_the_detectable_effect_is_detected_four_times_in_five():
    rng, n = np.random.default_rng(0), 5
    found = given({"a": Effect(0, 1 / n**0.5, n - 1, 1.0, n)}, smallest=9.0)
    means = rng.normal(found.detectable, 1, size=(20000, n))
    low = means.mean(1) - stats.t.ppf(0.975, n - 1) * means.std(1, ddof=1) / n**0.5
    assert np.mean(low > 0) == pytest.approx(0.8, abs=0.01)
    large = given({"a": Effect(0, 1.0, np.inf)}, smallest=9.0)
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
        return np.mean([verdict(crossed(v, PAIRS), smallest, kind) in DECIDED for v in drawn])

    assert decided(n) == pytest.approx(0.8, abs=0.05)
    assert decided(n // 2) < 0.65


def test_no_number_of_seeds_makes_up_for_few_documents():
    documents = Effect(0, 1.0, 30, per_seed=0.4, seeds=2)  # 0.8 of the variance is theirs
    assert given({"a": documents}, smallest=2.0).seeds_needed is None
    assert given({"a": documents}, smallest=2.7).seeds_needed > 2
    assert "more seeds alone" in given({"a": documents}, smallest=2.0).why


def test_seeds_needed_are_held_against_those_that_the_claim_has():
    """A claim may rest on a data set with fewer seeds than others."""
    found = given({"a": Effect(0.2, 1 / 3**0.5, 2, 1.0, 3)}, smallest=2.5)
    assert (found.verdict, found.seeds_needed) == ("undecided", 4)  # `given` has four
    assert found.why == "4 seeds would decide an effect of 2.5 points in four runs of five"


def test_of_every_part_the_open_ones_alone_need_more_seeds():
    """The same seeds as if the open parts were all there is."""
    opened = {"a": Effect(0.2, 1 / 3**0.5, 2, 1.0, 3), "b": Effect(0.4, 1 / 3**0.5, 2, 1.0, 3)}
    hopeless = Effect(9.0, 0.9, 30, per_seed=0.01, seeds=4)  # decided, but never at so small an d
    both = given(opened, smallest=0.5)
    found = given({**opened, "c": hopeless}, smallest=0.5)
    assert (found.verdict, found.part_verdicts["c"]) == (OPEN, FOR)
    assert (found.detectable, found.seeds_needed) == (both.detectable, both.seeds_needed)
    assert both.seeds_needed > 4
    assert f"{both.seeds_needed} seeds would decide" in found.why
    assert "in the open parts" in found.why


def test_a_part_without_doubt_leaves_power_to_the_others():
    """SciPy's noncentral t has no number at 40 standard errors and 9 degrees of freedom."""
    sure, open_ = Effect(0, 1 / 40, 9), Effect(0, 0.5, 9)
    assert power([sure], 1.0) == 1
    assert power([sure, open_], 1.0) == power([open_], 1.0)


def test_one_seed_does_not_tell_how_many_are_needed():
    one = assess(claim_of(lambda evidence, seeds: {"a": Effect(0, 1.0, 30)}), None, [0])
    assert (one.verdict, one.seeds_needed) == ("undecided", None)
    assert one.why == "one seed does not tell how much seeds differ"


# --- Stability -------------------------------------------------------------------------------


def by_seed(values):
    """A claim about the mean of one value a seed, which counts how often it is worked out."""
    calls = []

    def effects(evidence, seeds):
        calls.append(tuple(seeds))
        return {"a": over_seeds([values[s] for s in seeds])}

    return claim_of(effects), calls


def test_a_clear_claim_is_stable_and_a_borderline_one_is_not():
    noise = np.random.default_rng(0).normal(size=20)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * 20**0.5  # the mean's error is 1
    clear, _ = by_seed(50 + noise)
    assert stability(clear, None, range(20), draws=200) == (0, 0)
    border, _ = by_seed(stats.t.ppf(0.975, 19) + 0.01 + noise)
    assert assess(border, None, range(20)).verdict == "supported"
    shares = stability(border, None, range(20), draws=200)
    assert 0.3 < shares.another < 1
    assert shares == stability(border, None, range(20), draws=200)


def test_few_seeds_are_halved_in_every_way_once():
    values = dict(zip([3, 5, 8, 9, 11, 12], np.random.default_rng(3).normal(2, 2, 6), strict=True))
    claim, calls = by_seed(values)
    shares = stability(claim, None, list(values))
    halves = list(combinations(values, 3))
    assert calls == [tuple(values), *halves]
    whole = assess(claim, None, list(values)).verdict
    expected = np.mean([assess(claim, None, half).verdict != whole for half in halves])
    assert 0 < shares.another == pytest.approx(expected)
    assert np.isnan(stability(claim, None, [3, 5, 8])).all()


def test_a_half_with_the_contrary_verdict_is_decided_otherwise():
    """Three seeds of +9 and three of -9: a half has three of a kind, or is undecided."""
    claim, _ = by_seed([9.0, 9.1, 9.2, -9.0, -9.1, -9.2])
    assert assess(claim, None, range(6)).verdict == OPEN
    assert stability(claim, None, range(6)) == (2 / 20, 2 / 20)
    claim, _ = by_seed([9.0, 9.1, 9.2, 9.3, 9.4, 3.0])  # a half with the last one is undecided
    assert assess(claim, None, range(6)).verdict == FOR
    assert stability(claim, None, range(6)) == (10 / 20, 0)


# --- Record, ledger, figure ------------------------------------------------------------------


@pytest.fixture
def several():
    """Judged claims of all verdicts, with one part, several and many."""
    of = partial(given, smallest=1.0)
    yield [
        of({"AUC": effect_of(1, 3)}),
        of({"a": effect_of(-0.2, 4), "b": effect_of(-0.1, 2), "c": effect_of(-9, 1)}),
        of({"a": effect_of(-3, -2), "b": effect_of(-4, -1)}),
        of({"a": effect_of(-3, -2), "b": effect_of(4, 5)}),
        of({f"system {i}": effect_of(i / 9 - 0.5, i / 9 + 2) for i in range(24)}),
        of({"a": over_seeds([-0.1, 0.1, 0.0]), "b": Effect(0, 0.1, np.inf)}),
        of("the baseline learnt nothing"),
    ]
    plt.close("all")


def test_a_record_is_json_and_holds_all(several):
    for one in several:
        record = json.loads(json.dumps(one.record(), allow_nan=False))
        assert record == one.record()
        assert {"id", "claim", "verdict", "effect", "low", "high", "unit", "why"} <= set(record)
        assert record["verdict"] == one.verdict
        assert {n: p["verdict"] for n, p in record["parts"].items()} == one.part_verdicts
        assert list(record["parts"]) == list(one.parts)
    assert (record["effect"], record["parts"]) == (None, {})


def test_of_parts_one_that_decides_is_shown():
    parts = {
        "open": effect_of(-110, 160),
        "refuted": effect_of(-19, -10),
        "less": effect_of(-9, -8),
    }
    record = given(parts, smallest=1.0).record()
    assert (record["verdict"], record["deciding"]) == ("opposite", "refuted")
    assert record["effect"] == pytest.approx(-14.5)


def test_the_forest_shows_every_part_in_its_colour(several):
    figure = forest(several)
    assert len(figure.axes) == 6
    for axis, one in zip(figure.axes, several, strict=False):
        lines = [line for line in axis.lines if line.get_linewidth() == 1.2]
        parts = one.part_verdicts if len(one.part_verdicts) > 1 else {}
        assert [line.get_color() for line in lines] == [COLOURS[v] for v in parts.values()]
        assert "points" in axis.get_xlabel()
        assert one.verdict in axis.get_title(loc="left")
    assert "learnt nothing" in figure.texts[0].get_text()
    assert forest([several[-1]]).texts  # none of them tested
