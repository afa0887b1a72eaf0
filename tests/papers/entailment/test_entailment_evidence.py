"""What made-up evidence says: effects of claims, tables, figures."""

import json
from dataclasses import asdict

import made_up_entailment
import matplotlib.pyplot as plt
import numpy as np
import pytest

from mmlib.core.claims import assess, ledger
from mmlib.core.evidence import Evidence
from mmlib.papers.entailment import figures, grid, systems, tables
from mmlib.papers.entailment.claims import CLAIMS, judge_figure, pair_shares, strongest
from mmlib.papers.entailment.metrics import METRICS
from mmlib.papers.entailment.systems import MINING, ORIGINS, PAIRS, judges, name_of, variants

WORLD, PHOTOGRAPHS = (made_up_entailment.make(tier) for tier in ("world", "flickr8k"))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def effects(evidence, name):
    [claim] = [one for one in CLAIMS if one.id == name]
    return claim.effects(evidence, evidence.seeds)


# --- The grid ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["world", "flickr8k"])
def test_every_system_has_a_name_of_its_own(tier):
    rows = [*judges(tier), *variants(tier)]
    assert len({row.system for row in rows}) == len(rows)
    assert {row.system for row in rows} < set(systems.systems(tier, "any"))


def test_a_budget_survives_a_file():

    for name in systems.BUDGETS:
        own = asdict(systems.budget("any", name))
        assert json.loads(json.dumps(own)) == own


def test_stages_hold_every_system_once_a_seed():
    stages = grid.stages("world", {"world": None}, range(2))
    jobs = [(job.system["system"], job.seed) for stage in stages for job in stage.jobs]
    assert len(jobs) == len(set(jobs))
    assert {name for name, _ in jobs} == set(systems.systems("world", "world"))
    order = [job.system["system"] for stage in stages for job in stage.jobs]
    assert order.index("Full") < order.index(MINING) < order.index("CLIP-like, both (miner)")
    assert order.index("ALBEF-like, start") < order.index(MINING)


def test_variants_differ_from_the_reference_in_what_they_are_called():
    every = {row.system: row for row in variants("world")}
    base = every["CLIP-like, extra golden"]
    assert (base.use, base.golden) == ("none", True)
    assert every["CLIP-like, exclusion (all)"].golden  # as many steps
    assert not every["CLIP-like, plain"].golden
    assert {row.pairs for row in every.values()} == {
        "", "miner", "candidates", "all", "rare", "near misses", "random"
    }  # fmt: skip


# --- Claims --------------------------------------------------------------------------------------


def test_the_judge_is_held_to_the_strongest_floor():
    rival = strongest(WORLD, "world")
    found = effects(WORLD, "J1")
    assert set(found) == {f"{m}, over {rival}" for m in ("ROC area", "average precision")}
    for metric in ("ROC area", "average precision"):
        wanted = judge_figure(WORLD, "world", "Full", metric) - judge_figure(
            WORLD, "world", rival, metric
        )
        assert found[f"{metric}, over {rival}"].effect == pytest.approx(wanted.mean(), abs=1e-6)


def test_figures_of_judges_are_means_of_their_shares():
    for metric in METRICS:
        shares = pair_shares(WORLD, "world", "Full", metric)
        np.testing.assert_allclose(
            shares.mean(axis=1), judge_figure(WORLD, "world", "Full", metric)
        )


@pytest.mark.parametrize(
    ("claim", "low", "high"),
    [("O1", 5.5, 6.5), ("O2", 0.5, 1.5), ("C9b", 1.2, 1.8), ("C8", -0.4, -0.1), ("C9", 2.5, 3.5),
     ("O3", -0.5, 0.5), ("C10", 37, 39)],
)  # fmt: skip
def test_effects_are_what_was_made_up(claim, low, high):
    for one in effects(WORLD, claim).values():
        assert low < one.effect < high


def test_images_of_calibration_do_not_count_as_images_without_true_captions():
    """On photographs a fifth of the images has no judgments: 0 in the record."""
    [one] = effects(PHOTOGRAPHS, "C10").values()
    found = PHOTOGRAPHS.values("flickr8k", PAIRS, "foreign true", [0])[0]
    assert one.effect == pytest.approx(found.sum() / (0.8 * len(found)) - 5)


def test_flattery_is_the_difference_of_relative_gains():
    """+3 of 30 by the judge is 10 %, +1.5 of 20 by logic 7.5 %, each of the same 30 images."""
    [one] = effects(WORLD, "P1").values()
    assert one.effect == pytest.approx(2.5, abs=0.7)

    def share(family, metric):
        revised, plain = (
            WORLD.values("world", name_of(family, *change), metric)[:, :30].mean()
            for change in (("both", "miner"), ("extra golden",))
        )
        return 100 * (revised - plain) / plain

    each = [share(f, "E@10, judge") - share(f, "E@10") for f in figures.FAMILIES]
    assert one.effect == pytest.approx(np.mean(each))


def test_errors_of_a_kind_are_held_to_other_kinds():
    found = effects(WORLD, "C12")
    assert set(found) == {
        f"{n} − other edits" for n in ("number", "person or animal", "other thing")
    }
    called = 100 * (WORLD.values("world", "Full", "alone", split="edits") >= 0)
    label, kind = (WORLD.values("world", PAIRS, n, [0], "edits")[0] for n in ("label", "kind"))

    number = (label == 0) & (kind == ORIGINS.index("number"))
    rest = [ORIGINS.index(k) for k in ("colour", "relation", "swap", "setting", "action")]
    others = (label == 0) & np.isin(kind, rest)
    wanted = called[:, number].mean() - called[:, others].mean()
    assert found["number − other edits"].effect == pytest.approx(wanted)


def test_what_only_the_world_knows_is_not_tested_elsewhere():
    verdicts = {c.id: assess(c, PHOTOGRAPHS, PHOTOGRAPHS.seeds).verdict for c in CLAIMS}
    assert {name for name, v in verdicts.items() if v == "not tested"} == {
        "C12", "P1", "O1", "O2", "O3"
    }  # fmt: skip
    verdicts = {c.id: assess(c, WORLD, WORLD.seeds).verdict for c in CLAIMS}
    assert {name for name, v in verdicts.items() if v == "not tested"} == {"C11"}
    assert effects(PHOTOGRAPHS, "C11")[""].effect == pytest.approx(5.0)


def test_without_a_clear_weakest_retriever_none_is_picked():
    table = WORLD.table.copy()
    alike = (table.metric == "RSUM") & table.system.astype(str).str.startswith("CLIP")
    table.loc[alike, "value"] += 50
    level = Evidence(table, WORLD.header)
    assert effects(level, "C8b") == "which retriever is the weakest is not clear"
    assert set(effects(WORLD, "C8b")) == {"CLIP-like − others"}


@pytest.mark.parametrize("gone", ["w/o TE data", "CLIP-like, extra golden", "Full"])
def test_missing_systems_are_no_crash(gone):
    less = made_up_entailment.without(WORLD, gone)
    assert len(ledger([assess(c, less, less.seeds) for c in CLAIMS])) == len(CLAIMS)


def test_ids_and_smallest_effects():
    assert len({c.id for c in CLAIMS}) == len(CLAIMS) == 21
    assert all(c.why and c.contrast for c in CLAIMS)


# --- Tables and figures --------------------------------------------------------------------------


@pytest.mark.parametrize("evidence", [WORLD, PHOTOGRAPHS], ids=["world", "flickr8k"])
def test_everything_is_made_from_evidence_alone(evidence):
    assert all(len(table) for table in tables.tables(evidence).values())
    assert all(len(figure.axes) for figure in figures.figures(evidence).values())


def test_the_table_of_judges_has_the_papers_figures_beside_ours():
    table = tables.judges_table(WORLD, "world")
    assert {name for name in table.index if name.endswith("↗")} == {
        f"{name} ↗" for name in WORLD.systems("world")
        if name in {one.system for one in judges("world")} and WORLD.unfinished("world", name)
    }  # fmt: skip
    table.index = table.index.str.removesuffix(" ↗")
    assert table.loc["Full", ("paper", "F0.5")] == 78.9
    assert table.loc["Only TE", ("paper", "F0.5")] == 68.9
    own = judge_figure(WORLD, "world", "Full", "average precision").mean()
    assert table.loc["Full", ("with inputs", "average precision")] == pytest.approx(own, abs=0.05)
    assert np.isnan(table.loc["Word overlap", ("network alone", "ROC area")])


def test_tables_4_and_5_stand_beside_the_papers():
    printed = tables.beside_paper(WORLD, "world")
    row = printed["table4_flickr30k"].loc["CLIP + entailment-enhanced training"]
    assert row["IR@10", "paper"] == "97.6"
    assert row["IR@10", "ours"].startswith("100.0")
    assert row["IR@1", "ours"].startswith("40.0")
    by_logic = printed["table5"].loc["CLIP", ("E@M", "ours")]
    assert float(by_logic.split(" ")[0]) == pytest.approx(20, abs=0.5)


def test_a_late_dev_curve_is_flagged():
    table = tables.retrieval_table(WORLD, "world")
    assert "CLIP-like, both (all) ↗" in table.index  # its made-up curve rises to the end
    assert "Oracle" in table.index


def test_the_ladder_shows_every_variant_of_every_family():
    figure = figures.ladder(WORLD, "world", {name_of("dual", "both", "all"): {"mAP": 5.0}})
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels[-1] == "both (all)"
    diamonds = [line for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert len(diamonds) == 1
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    names = [name_of(f, *change) for f in figures.FAMILIES for change in figures.LADDER]
    there = sum(WORLD.has("world", name, "mAP") for name in names)
    assert len(dots) == there


def test_the_miner_stands_beside_the_truth_with_the_gains_of_the_ladder():
    figure = figures.between(WORLD, "world")
    assert [axis.get_xlabel() for axis in figure.axes] == [
        "gain in mAP, points", "gain in E@10, points"
    ]  # fmt: skip
    dots = [float(line.get_xdata()[0]) for line in figure.axes[0].lines
            if line.get_marker() == "o" and len(line.get_xdata()) == 1]  # fmt: skip
    changes = (figures.REVISED, ("both", "candidates"), figures.ALL_TRUE)
    gains = [figures.gain(WORLD, WORLD.seeds, family, change, "mAP")
             for change in changes for family in figures.FAMILIES]  # fmt: skip
    assert dots == pytest.approx([values.mean() for values in gains if values is not None])


def test_mining_counts():
    table = tables.mining_table(WORLD, "world")
    assert table.loc["the judge", "precision, %"] == 50
    assert table.loc["the judge", "of all true pairs, %"] == 2.5
    assert table.loc["overlap", "precision, %"] == 25
    assert table.loc["all candidates", "precision, %"] == 10
