"""What made-up evidence says: effects of claims, tables, figures."""

import json
from dataclasses import asdict

import made_up_entailment
import matplotlib.pyplot as plt
import numpy as np
import pytest

from mmlib.core.claims import assess, ledger
from mmlib.core.evidence import Evidence
from mmlib.core.tables import paper_tables, paper_values
from mmlib.papers.entailment import figures, tables
from mmlib.papers.entailment.claims import CLAIMS, judge_figure, pair_shares
from mmlib.papers.entailment.method.metrics import METRICS
from mmlib.papers.entailment.run import jobs as grid
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import MINING, ORIGINS, PAIRS, judges, name_of, variants

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
        own = asdict(systems.BUDGETS[name])
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


@pytest.mark.parametrize(("claim", "how"), [("J1", "margin"), ("J1b", "alone")])
def test_the_judge_is_held_to_the_strongest_baseline(claim, how):
    levels = {name: judge_figure(WORLD, "world", name, "average precision").mean()
              for name in systems.RIVALS}  # fmt: skip
    rival = max(levels, key=levels.get)
    found = effects(WORLD, claim)
    assert set(found) == {f"{m}, over {rival}" for m in ("ROC area", "average precision")}
    for metric in ("ROC area", "average precision"):
        ours = judge_figure(WORLD, "world", "Full", metric, how)
        wanted = ours - judge_figure(WORLD, "world", rival, metric)
        assert found[f"{metric}, over {rival}"].effect == pytest.approx(wanted.mean(), abs=1e-6)


def test_accuracy_counts_pairs_as_the_papers_test_does():
    """By a loop: of 2,000 pairs 1,006 are entailed, where saying so always is right 50.3 %."""
    label = WORLD.values("world", PAIRS, "label", [0], "candidates")[0]
    called = WORLD.values("world", "Full", "alone", split="candidates") >= 0
    right = []
    for row in called:
        of_true = np.mean([said for said, truth in zip(row, label, strict=True) if truth])
        of_false = np.mean([not said for said, truth in zip(row, label, strict=True) if not truth])
        right.append(100 * (1006 * of_true + 994 * of_false) / 2000)
    [one] = effects(WORLD, "C13").values()
    assert one.effect == pytest.approx(np.mean(right) - 50.3)


def test_the_papers_effects_follow_from_its_printed_tables():
    printed = {one.id: one.paper_effect for one in CLAIMS if one.paper_effect is not None}
    t1, t3, t5 = (paper_values("entailment", f"table{n}") for n in (1, 3, 5))
    f05, rest = t3["F0.5"], ["w/o TE Data", "w/o Image Masking"]
    branches = ["Only TE", "Only VE"]
    plain, enhanced = (t5[t5.index.str.contains(r"\+") == new] for new in (False, True))
    changes = enhanced.to_numpy(float) - plain.to_numpy(float)  # E@10, E@30, E@M
    recalls = [change for name in ("table4_flickr30k", "table4_mscoco")
               for row in paper_tables("entailment")[name]["rows"]
               for change in row.get("delta", {}).values()]  # fmt: skip
    entailed = 100 * t1.loc["Entailment"].sum() / t1.loc["Total pairs"].sum()
    wanted = {
        "C1": f05["Ours"] - f05[[*branches, "OFA"]].mean(),
        "C2": t3.precision["Ours"] - t3.precision[branches].mean(),
        "C3": f05["Ours"] - f05[[*rest, "w/o VE Data"]].mean(),
        "C3b": f05[rest].mean() - f05["w/o VE Data"], "C4": f05["Ours"] - f05["w/o BERT"],
        "C8": np.mean(recalls), "C9": changes[:, :2].mean(), "C9c": changes[:, 2].mean(),
        "C13": t3.accuracy["Ours"] - max(entailed, 100 - entailed),
    }  # fmt: skip
    assert printed == {name: pytest.approx(value, abs=0.0051) for name, value in wanted.items()}


def test_figures_of_judges_are_means_of_their_shares():
    for metric in METRICS:
        shares = pair_shares(WORLD, "world", "Full", metric)
        np.testing.assert_allclose(
            shares.mean(axis=1), judge_figure(WORLD, "world", "Full", metric)
        )


@pytest.mark.parametrize(
    ("claim", "low", "high"),
    [("O1", 5.5, 6.5), ("O3", -0.5, 0.5), ("C10", 37, 39)],
)
def test_effects_are_what_was_made_up(claim, low, high):
    for one in effects(WORLD, claim).values():
        assert low < one.effect < high


@pytest.mark.parametrize(
    ("claim", "change", "reference", "metrics"),
    [("C8", "both (miner)", "plain", ["RSUM"]), ("C8a", "both (miner)", "extra golden", ["RSUM"]),
     ("C9a", "both (miner)", "extra golden", ["E@10, judge", "E@30, judge"]),
     ("C9b", "both (miner)", "extra golden", ["mAP"]),
     ("C9c", "both (miner)", "plain", ["E@10"]), ("O2", "extra golden", "both (all)", ["RSUM"])],
)  # fmt: skip
def test_each_retriever_and_each_metric_is_a_part(claim, change, reference, metrics):
    table = WORLD.table.copy()
    named = table.system.astype(str) + table.metric.astype(str)  # no two systems alike
    table["value"] += named.map(lambda name: sum(name.encode()) % 17).astype(np.float32)
    evidence, places = Evidence(table, WORLD.header), {"CLIP": "CLIP", "VSE": "UNITER"}
    places["ALBEF"] = "ALBEF"
    found = effects(evidence, claim)
    assert len(found) == 3 * len(metrics)
    for ours, theirs in places.items():
        for metric in metrics:
            a, b = (evidence.values("world", f"{ours}-like, {name}", metric)
                    for name in (change, reference))  # fmt: skip
            gain = a - b
            wanted = np.nanmean(gain) / (6 if metric == "RSUM" else 1)
            ending = f", {metric}" if len(metrics) > 1 else ""
            assert found[f"{theirs}'s place{ending}"].effect == pytest.approx(wanted, abs=1e-4)


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
        "C9", "C9c", "C12", "P1", "O1", "O2", "O3"
    }  # fmt: skip
    verdicts = {c.id: assess(c, WORLD, WORLD.seeds).verdict for c in CLAIMS}
    assert {name for name, v in verdicts.items() if v == "not tested"} == {"C9", "C11"}
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
    assert len({c.id for c in CLAIMS}) == len(CLAIMS) == 26
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


def test_table_1_counts_pairs_and_table_2_has_the_papers_counts():
    table = tables.table1(WORLD, "world")
    assert list(table["paper", "Flickr30K"]) == [1000, 699]
    assert list(table["paper", "MSCOCO"]) == [1000, 307]
    label = WORLD.values("world", PAIRS, "label", [0], "candidates")[0]
    assert list(table["ours", "candidates"]) == [len(label), label.sum()]
    assert set(table["ours"].columns) == {"candidates", "edits"}
    counts = tables.table2(WORLD, "world").set_index(["task", "dataset"])
    assert counts.loc[("TE", "XNLI"), "paper"] == "400.2k"
    assert list(counts.ours) == 13 * ["–"] + [str(len(label))]


def test_pairs_that_stand_for_others_count_as_many():
    table = PHOTOGRAPHS.table.copy()
    label = PHOTOGRAPHS.values("flickr8k", PAIRS, "label", [0], "crowd")[0]
    rows = (table.split == "crowd") & (table.metric == "weight")
    table.loc[rows, "value"] = np.where(label == 1, 1.0, 6.25).astype(np.float32)
    counted = tables.table1(Evidence(table, PHOTOGRAPHS.header), "flickr8k")
    wanted = [round(label.sum() + 6.25 * (label == 0).sum()), label.sum()]
    assert list(counted["ours", "crowd"]) == wanted


def test_table_3_has_all_printed_columns_and_ours_at_both_shares():
    table = tables.table3(WORLD, "world")
    metrics = ["accuracy", "precision", "recall", "F0.5"]
    shown = [table.loc["Ours", (m, "paper")] for m in metrics]
    assert shown == ["78.1", "80.2", "74.3", "78.9"]
    label = WORLD.values("world", PAIRS, "label", [0], "candidates")[0] == 1
    called = WORLD.values("world", "Only TE", "alone", split="candidates") >= 0

    def mean(figures):
        return f"{np.mean(figures):.1f} ± {np.std(figures, ddof=1):.1f}"

    hit, wrong = called[:, label].mean(1), called[:, ~label].mean(1)
    wanted = {
        ("accuracy", "ours"): 100 * (called == label).mean(1),
        ("precision", "ours"): 100 * (called & label).sum(1) / called.sum(1),
        ("recall", "ours"): 100 * hit, ("recall", "half entailed"): 100 * hit,
        ("accuracy", "half entailed"): 100 * (1006 * hit + 994 * (1 - wrong)) / 2000,
        ("precision", "half entailed"): 100 * 1006 * hit / (1006 * hit + 994 * wrong),
    }  # fmt: skip
    for column, values in wanted.items():
        assert table.loc["Only TE", column] == mean(values), column
    less = tables.table3(made_up_entailment.without(WORLD, "w/o BERT"), "world").loc["w/o BERT"]
    assert less["F0.5", "paper"] == "74.6"
    assert set(less.drop("paper", level=1)) == {"–"}


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


def test_the_miner_may_be_shown_by_other_measures():
    labels = [axis.get_xlabel() for axis in figures.between(WORLD, "world", ("mAP", "RSUM")).axes]
    assert labels == ["gain in mAP, points", "gain in RSUM, points"]


def test_the_dials_are_those_of_the_table():
    table, dots = tables.dials_table(WORLD, "world"), {}
    for axis in figures.dials(WORLD, "world").axes:
        names = [tick.get_text() for tick in axis.get_yticklabels()]
        for line in axis.lines:
            if line.get_marker() == "o":
                (x,), (y,) = line.get_data()
                dots[names[round(y)]] = x
    assert list(dots) == list(table.index)
    assert [f"{x:+.2f}" for x in dots.values()] == [text.split()[0] for text in table.mAP]


def test_mining_counts():
    table = tables.mining_table(WORLD, "world")
    assert table.loc["the judge", "precision, %"] == 50
    assert table.loc["the judge", "of all true pairs, %"] == 2.5
    assert table.loc["overlap", "precision, %"] == 25
    assert table.loc["all candidates", "precision, %"] == 10
