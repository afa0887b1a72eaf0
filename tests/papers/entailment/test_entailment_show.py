"""Tables and figures of paper 02: what they show is what is there."""

import pandas as pd
import pytest
from made_up_evidence import cut, without
from scipy import stats

from mmlib.papers.entailment import show
from mmlib.papers.entailment.data import controlled
from mmlib.papers.entailment.run.systems import PAIRS, name_of

WORLD, PHOTOGRAPHS = (cut("02", tier) for tier in ("world", "flickr8k"))


def dots(axis):
    """The middles that `plots.spans` draws, by label: (value, place)."""
    return {
        bars.get_label(): [tuple(xy) for xy in bars[0].get_xydata().tolist()]
        for bars in axis.containers
    }


def test_the_density_is_of_images_that_were_asked_about_and_what_was_not_run_is_missing():
    for evidence in (WORLD, PHOTOGRAPHS):
        fitting = evidence.values(*evidence.datasets, PAIRS, "foreign true", [0])
        asked = 1 if evidence is WORLD else 0.8  # people judged none of every fifth image
        share = fitting.mean() / asked / (5 * (fitting.shape[1] - 1))
        assert show.density(evidence) == pytest.approx(share)
    less = show.table3(without(WORLD, "w/o BERT"), "world").loc["w/o BERT"]
    assert less["F0.5", "paper"] == "74.6"
    assert set(less.drop("paper", level=1)) == {"–"}


def rows(axis, label):
    """The middles of one label by the names of their rows."""
    names = [tick.get_text() for tick in axis.get_yticklabels()]
    return {names[round(y)]: x for x, y in dots(axis)[label]}


def test_gains_of_the_ladder_of_the_miner_and_of_the_dials():
    best, golden = name_of("dual", "both", "all"), name_of("dual", "extra golden")
    gain = WORLD.values("world", best, "mAP") - WORLD.values("world", golden, "mAP")
    axis = show.ladder(WORLD, "world", {best: {"mAP": 5.0}}).axes[0]
    found = rows(axis, "CLIP-like")
    assert found["all true pairs, both uses"] == pytest.approx(gain.mean())
    assert len(found) == len(show.LADDER)  # each has a row of its own
    live = [line for line in axis.lines if line.get_label() == "this run"]
    assert live[0].get_xydata().tolist() == [[5.0, [*found].index("all true pairs, both uses")]]
    found = rows(show.dials(WORLD, "world").axes[0], "both uses")
    every, rare = (found[f"all true pairs, {some} captions"] for some in ("all", "rare"))
    assert every == found["all true pairs, λ = 0.1, one Adam"] == pytest.approx(gain.mean())
    of = [WORLD.values("world", f"{one}, rare captions", "mAP") for one in (best, golden)]
    assert rare == pytest.approx((of[0] - of[1]).mean())


# --- The controlled collection -------------------------------------------------------------------


def test_the_batch_shows_own_captions_false_negatives_and_negatives():
    made = {"one": controlled.load(1), "three": controlled.load(3)}
    figure = show.controlled_batch(made, count=5)
    for axis, (title, one) in zip(figure.axes, made.items(), strict=True):
        said = [set(text.split()) for text in one.splits["train"].texts[:5]]
        marks = [[0 if i == c else 1 if said[c] <= set(one.shown[i]) else 2 for c in range(5)]
                 for i in range(5)]  # fmt: skip
        assert axis.collections[0].get_array().reshape(5, 5).tolist() == marks
        assert axis.get_title() == title


def test_gains_are_over_golden_pairs_of_the_same_seed():
    rows = [(d, family, use, seed, 10 * seed + gain * (1 + seed))
            for d in (0.1, 0.5) for family in ("dual", "triplet") for seed in (0, 1)
            for use, gain in (("golden only", 0), ("both", 2), ("random", -1))]  # fmt: skip
    table = pd.DataFrame(rows, columns=["density", "family", "use", "seed", "mAP"])
    level, gains = show.controlled_gains(table, {"Flickr8k": 0.002}).axes
    assert [text.get_text() for text in gains.texts] == ["Flickr8k: 1 in 500"]
    by_label = {line.get_label(): list(line.get_ydata()) for line in level.lines}
    assert by_label["CLIP-like, truth known"] == [8, 8]  # of 2 and 14
    assert by_label["CLIP-like, golden pairs only"] == [5, 5]
    assert by_label["chance"] == [3.5, 3.5]
    for bars in gains.containers:
        line, _, (stems,) = bars
        assert list(line.get_ydata()) == [3, 3]  # of 2 and 4
        (_, low), (_, high) = stems.get_segments()[0]
        assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 1))


def test_the_axis_shows_gains_over_golden_pairs_of_the_same_family_and_seed():
    trainings = [(family, label, seed, 10 * seed + k + seed)
                 for k, label in enumerate(show.SOURCES)
                 for family in ("dual", "triplet") for seed in (0, 1)]  # fmt: skip
    index = pd.MultiIndex.from_product([("dual", "triplet"), (0, 1)])
    (axis,) = show.on_one_axis(trainings, pd.Series([0, 10, 1, 11], index)).axes
    found = [x for label in show.SOURCES for x, _ in dots(axis)[label]]
    assert found == [0.5, -0.5, 1.5, 0.5, 2.5, 1.5]
