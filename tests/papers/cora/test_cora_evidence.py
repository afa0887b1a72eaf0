"""What a part of the record says: claims that no contrast states, printed rows, tables, figures."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from made_up_evidence import cut, effects_of, without

from mmlib.core.evidence import Evidence
from mmlib.core.ranking import KS
from mmlib.core.tables import mean_and_deviation
from mmlib.papers.cora import method, show
from mmlib.papers.cora.claims import CLAIMS
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.systems import BAG, CAPTIONS, QUERY_TIME

effects = partial(effects_of, CLAIMS)


@pytest.fixture(scope="module")
def evidence():
    return cut("03", datasets=["world"], clusters=10)


@pytest.fixture(scope="module")
def controlled():
    """Controlled collections, made up and drawn."""
    return cut("03", "controlled", ["40 × 12, 100 families", "drawn"], clusters=10)


# --- Claims --------------------------------------------------------------------------------------


def test_the_lead_on_the_richest_captions_is_that_of_the_loop(evidence):
    said = [evidence.values("world", CAPTIONS, m)[0][:200] for m in ("attributes", "relations")]
    rich = sorted(range(200), key=lambda i: (-said[0][i] - said[1][i], i))[:100]
    [(label, effect)] = effects(evidence, "C6").items()
    hits = [
        100 * np.sum([evidence.values("world", name, "rank")[:, :200] <= k for k in KS], axis=0)
        for name in ("CORA", label.removeprefix("world, over "))
    ]
    gap = hits[0] - hits[1]
    assert effect.effect == pytest.approx(gap[:, rich].mean(), abs=1e-3)
    [more] = effects(evidence, "C6b").values()
    wanted = gap[:, rich].mean() - np.delete(gap, rich, axis=1).mean()
    assert more.effect == pytest.approx(wanted, abs=1e-3)


def test_stability_is_of_the_first_third_of_the_epochs(evidence):
    plain, contrastive = (
        evidence.curves("world", f"{losses}, hardest throughout", "dev_RSUM")
        for losses in ("HARD", "HARD + CON")
    )
    wanted = [np.mean((b - a)[: len(a) // 3]) for a, b in zip(plain, contrastive, strict=True)]
    assert effects(evidence, "H2")["world"].effect == pytest.approx(np.mean(wanted))


def test_the_time_of_a_query_grows_with_the_images_where_each_is_read(evidence):
    series = evidence.series.copy()
    for row in series.index[series["metric"].str.startswith("attend ")]:
        images = float(series["metric"][row].removeprefix("attend "))
        series.at[row, "value"] = images * np.ones_like(series["value"][row])
    timed = replace(evidence, series=series)
    assert effects(timed, "C11")["world"].effect == pytest.approx(1, abs=0.1)


def test_what_was_not_run_is_not_tested(evidence):
    left = without(evidence, "CORA", "Two-step, caption losses", QUERY_TIME)
    parts = {claim.id: claim.effects(left) for claim in CLAIMS}
    assert {name for name, of in parts.items() if not isinstance(of, str)} == {
        "C1", "C12", "C3", "C5c", "C7", "H2",
    }  # fmt: skip
    assert list(parts["C3"]) == ["world: Joint − (Joint + FC)"]
    assert len(parts["C1"]) == 2  # of the three losses those that can be told


# --- Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [{"like": "CORRA"}, {"width": 3}])
def test_a_bad_row_is_named(monkeypatch, row):
    monkeypatch.setitem(systems._ROWS, "new", row)
    with pytest.raises(ValueError, match=r"systems.yaml: (new|CORRA) has no row, or a wrong field"):
        systems.system("new")


def test_figures_on_ms_coco_stand_beside_the_papers_on_ms_coco(monkeypatch):
    """Of other captions, whose ranks are halved as if among fewer images."""
    drawn, bert = cut("03", datasets=["world", "world_bert"], clusters=10), "CORA, BERT, prompts"
    ranks = drawn.series[drawn.series["metric"].eq("rank")]
    fewer = ranks.assign(metric="rank, 1K", value=ranks["value"].map(lambda r: np.ceil(r / 2)))
    series = pd.concat([drawn.series, fewer])
    series["dataset"] = series["dataset"].str.replace("world", "coco")
    tables = show.tables(evidence := Evidence(series, {"tier": "paper"}))
    assert not {"table1_coco", "table3_coco", "table5_coco"} & tables.keys()
    shown = tables["table2_coco"]()
    for row, *term in (("CORA", "coco", "CORA"), ("CORA (BERT)", "coco_bert", bert)):
        for test, metric in (("coco5k", "rank"), ("coco1k", "rank, 1K")):
            hits = 100 * (evidence.values(*term, metric)[:, :200] <= 5).mean(axis=1)
            assert shown.loc[row, (f"{test}_t2i_r5", "ours")] == mean_and_deviation(hits)
    small = tables["table7_coco_bert"]().loc[bert, ("rsum", "ours")]
    assert small == shown.loc["CORA (BERT)", ("coco1k_rsum", "ours")]
    scores = np.array([[3, 1, 9, 0], [2, 4, 0, 9], [9, 0, 1, 2], [0, 9, 3, 1.0]])
    monkeypatch.setattr(method, "FOLD", 2)
    folds = method.in_folds(scores, np.arange(4))["rank, 1K"]  # each alone, not behind the rest
    assert folds.tolist() == [1, 1, 2, 2, 1, 1, 2, 2]


def test_the_main_table_has_the_papers_figures_beside_ours(evidence):
    shown = show.main([evidence])
    assert list(shown.columns) == ["the paper, Flickr30K", "drawn, sentences"]
    assert shown.loc["Joint", "the paper, Flickr30K"] == "504.8"
    assert shown.loc["Bag of phrases", "the paper, Flickr30K"] == "–"
    of_seeds = evidence.means("world", "HARD", "RSUM")
    assert shown.loc["HARD", "drawn, sentences"] == f"{of_seeds.mean():.0f} ± {of_seeds.std():.0f}"


# --- Figures -------------------------------------------------------------------------------------


def test_figures_have_the_systems_and_collections_on_record(evidence):
    fewer = without(cut("03", "controlled", ["unseen pairs"], seeds=1), "CORA")
    assert [len(draw().axes[0].texts) for draw in show.figures(fewer).values()] == [3]  # the map
    assert show.figures(cut("03", datasets=["world_bert"], seeds=1)) == {}
    bare = without(evidence, *show.COLOURS, show.VSE, show.AUTHORS)
    show.figures(bare)["curves"]()  # of no system a curve


def test_a_training_has_stalled_where_it_ends_far_below_the_best_of_its_system(controlled):
    series = controlled.series
    rows = series["system"].eq("CORA") & series["metric"].eq("in family")
    for level, stalled in ((81, "0 of 4"), (79, "1 of 4")):
        values = [np.full(240, level if seed == 2 else 90) if row else v for row, seed, v in
                  zip(rows, series["seed"], series["value"], strict=True)]  # fmt: skip
        table = show.tables(replace(controlled, series=series.assign(value=values)))["stalled"]()
        assert table.loc["drawn", "CORA"] == stalled


def test_the_summary_has_the_means_of_both_measures(evidence):
    axes = show.summary([evidence]).axes
    names = show.CORA, show.TWO_STEP, show.JOINT, show.VSE, show.SEQUENCE, BAG.system
    for axis, metric in zip(axes, ("in family", "RSUM"), strict=True):
        means = [np.nanmean(evidence.values("world", name, metric)) for name in names]
        assert list(axis.containers[0][0].get_xdata()) == pytest.approx(means)
