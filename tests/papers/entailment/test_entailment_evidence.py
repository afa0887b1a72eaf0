"""The grid of paper 02, and effects of claims on made-up evidence; recorded ones have digests."""

import json
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from made_up_evidence import cut, effects_of, without

from mmlib.core.claims import assess, ledger
from mmlib.core.evidence import Evidence
from mmlib.core.tables import paper_tables, paper_values
from mmlib.papers.entailment.claims import CLAIMS
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.jobs import stages
from mmlib.papers.entailment.run.systems import FAMILIES, MINING, ORIGINS, PAIRS, name_of

effects = partial(effects_of, CLAIMS)
WORLD, PHOTOGRAPHS = (cut("02", tier) for tier in ("world", "flickr8k"))


def test_a_budget_survives_a_file():
    for budget in systems.BUDGETS.values():
        assert systems.Budget.of(json.loads(json.dumps(asdict(budget)))) == budget


@pytest.mark.parametrize("tier", ["world", "flickr8k"])
def test_stages_hold_every_system_once_a_seed(tier):
    jobs = [(job.system["system"], job.seed)
            for stage in stages(tier, {tier: None}, range(2)) for job in stage.jobs]  # fmt: skip
    assert len(jobs) == len(set(jobs))
    unknown = set() if tier == "world" else {"Oracle"}
    assert {name for name, _ in jobs} == set(systems.systems(tier, tier)) - unknown
    order = [name for name, _ in jobs]
    assert order.index("Full") < order.index(MINING) < order.index("CLIP-like, both (miner)")
    assert order.index("ALBEF-like, start") < order.index(MINING)


# --- Claims --------------------------------------------------------------------------------------


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
        "C8": np.mean(recalls), "C8c": max(recalls),
        "C9": changes[:, :2].mean(), "C9c": changes[:, 2].mean(),
        "C13": t3.accuracy["Ours"] - max(entailed, 100 - entailed),
    }  # fmt: skip
    assert printed == {name: pytest.approx(value, abs=0.0051) for name, value in wanted.items()}


def test_images_of_calibration_do_not_count_as_images_without_true_captions():
    """On photographs a fifth of the images has no judgments: 0 in the record."""
    [one] = effects(PHOTOGRAPHS, "C10").values()
    counts = PHOTOGRAPHS.values("flickr8k", PAIRS, "foreign true", [0])[0]
    assert one.effect == pytest.approx(counts.sum() / (0.8 * len(counts)) - 5)


def test_flattery_is_the_difference_of_relative_gains():
    def share(family, metric):
        changes = [name_of(family, *change) for change in (("both", "miner"), ("extra golden",))]
        revised, plain = (WORLD.values("world", name, metric).mean() for name in changes)
        return 100 * (revised - plain) / plain

    [one] = effects(WORLD, "P1").values()
    shares = [share(f, "E@10, judge") - share(f, "E@10") for f in FAMILIES]
    assert one.effect == pytest.approx(np.mean(shares))


def test_errors_of_a_kind_are_held_to_other_kinds():
    called = 100 * (WORLD.values("world", "Full", "alone", split="edits") >= 0)
    label, kind = (WORLD.values("world", PAIRS, n, [0], "edits")[0] for n in ("label", "kind"))
    number, *rest = ("number", "colour", "relation", "swap", "setting", "action")
    of_number = (label == 0) & (kind == ORIGINS.index(number))
    others = (label == 0) & np.isin(kind, list(map(ORIGINS.index, rest)))
    wanted = called[:, of_number].mean() - called[:, others].mean()
    assert effects(WORLD, "C12")["number − other edits"].effect == pytest.approx(wanted)


def test_each_retriever_that_may_be_the_weakest_is_tested():
    series = WORLD.series.copy()
    clip = (series.metric == "RSUM") & series.system.str.startswith("CLIP")
    series.loc[clip, "value"] -= 100
    weaker = Evidence(series, WORLD.header)
    assert set(effects(weaker, "C8b")) == {"CLIP-like − others"} < set(effects(WORLD, "C8b"))


@pytest.mark.parametrize("gone", ["w/o TE data", "CLIP-like, extra golden", "Full"])
def test_missing_systems_are_no_crash(gone):
    less = without(WORLD, gone)
    assert len(ledger([assess(c, less) for c in CLAIMS])) == len(CLAIMS)
