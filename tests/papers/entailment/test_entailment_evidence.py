"""What made-up evidence says: effects of claims."""

import json
from dataclasses import asdict

import made_up_entailment
import matplotlib.pyplot as plt
import numpy as np
import pytest

from mmlib.core.claims import assess, ledger
from mmlib.core.evidence import Evidence
from mmlib.core.tables import paper_tables, paper_values
from mmlib.papers.entailment.claims import CLAIMS, pair_shares
from mmlib.papers.entailment.run import jobs as grid
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import (
    FAMILIES,
    MINING,
    ORIGINS,
    PAIRS,
    judges,
    name_of,
    variants,
)

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
        "", "miner", "candidates", "all", "near misses", "random"
    }  # fmt: skip


# --- Claims --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "how"), [("J1", "margin"), ("J1b", "alone")])
def test_the_judge_is_held_to_the_strongest_baseline(claim, how):
    levels = {name: pair_shares(WORLD, "world", name, "average precision").mean()
              for name in systems.RIVALS}  # fmt: skip
    rival = max(levels, key=levels.get)
    found = effects(WORLD, claim)
    assert set(found) == {f"{m}, over {rival}" for m in ("ROC area", "average precision")}
    for metric in ("ROC area", "average precision"):
        ours = pair_shares(WORLD, "world", "Full", metric, how).mean(axis=1)
        wanted = ours - pair_shares(WORLD, "world", rival, metric).mean(axis=1)
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
    series = WORLD.series.copy()
    named = series.system + series.metric  # no two systems alike
    series["value"] += named.map(lambda name: np.float32(sum(name.encode()) % 17))
    evidence, places = Evidence(series, WORLD.header), {"CLIP": "CLIP", "VSE": "UNITER"}
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

    each = [share(f, "E@10, judge") - share(f, "E@10") for f in FAMILIES]
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
    series = WORLD.series.copy()
    alike = (series.metric == "RSUM") & series.system.str.startswith("CLIP")
    series.loc[alike, "value"] += 50
    level = Evidence(series, WORLD.header)
    assert effects(level, "C8b") == "which retriever is the weakest is not clear"
    assert set(effects(WORLD, "C8b")) == {"CLIP-like − others"}


@pytest.mark.parametrize("gone", ["w/o TE data", "CLIP-like, extra golden", "Full"])
def test_missing_systems_are_no_crash(gone):
    less = made_up_entailment.without(WORLD, gone)
    assert len(ledger([assess(c, less, less.seeds) for c in CLAIMS])) == len(CLAIMS)
