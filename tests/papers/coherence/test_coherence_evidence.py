"""What made-up evidence says: effects of claims, tables beside the paper's, figures."""

import json
from dataclasses import asdict

import made_up_coherence
import numpy as np
import pandas as pd
import pytest

from mmlib.core import evidence as records
from mmlib.core.claims import assess, ledger
from mmlib.papers.coherence import claims, figures, systems, tables
from mmlib.papers.coherence.claims import CLAIMS
from mmlib.papers.coherence.systems import MAP, PAIRS


@pytest.fixture(scope="module")
def evidence():
    return made_up_coherence.make()


def effects(evidence, name):
    [claim] = [one for one in CLAIMS if one.id == name]
    return claim.effects(evidence, evidence.seeds)


def level(evidence, system, metric="rank", dataset="Clue-like"):
    return np.log2(evidence.values(dataset, system, metric)).mean()


def without(evidence, *systems):
    rows = evidence.table[~evidence.table.system.isin(systems)]
    return records.Evidence(pd.DataFrame(rows), evidence.header)


def test_there_are_twelve_claims_with_a_reason_each():
    ids = "K1 K2 K2b K2c K3 K4 K4b K5 K6 K6b K7 K8".split()
    assert [one.id for one in CLAIMS] == ids
    assert all(one.why for one in CLAIMS)


def test_every_claim_is_tested_and_the_ledger_can_be_written(evidence):
    assessed = [assess(one, evidence, evidence.seeds) for one in CLAIMS]
    untested = {one.claim.id: one.why for one in assessed if one.verdict == "not tested"}
    assert set(untested) <= {"K6b"}
    assert len(ledger(assessed)) == 12
    json.dumps([one.record() for one in assessed], allow_nan=False)


def test_no_collection_of_the_map_is_part_of_a_claim(evidence):
    for one in CLAIMS:
        parts = one.effects(evidence, evidence.seeds)
        assert isinstance(parts, str) or not set(parts) & set(MAP)


def test_gains_are_differences_of_mean_log2_ranks(evidence):
    for name, better, worse in (
        ("K1", ("CMCA", "rank"), ("Base", "rank")),
        ("K2", ("CMCM", "rank"), ("CMCA", "rank")),
        ("K2b", ("CMCM", "rank, refined"), ("CMCA", "rank")),
        ("K2c", ("CMCM-NoAttn", "rank"), ("Base", "rank")),
        ("K4b", ("CMCM_Irrelevant", "rank"), ("CMCM_Irrelevant", "rank, refined")),
        ("K5", ("CMCM", "rank"), ("CMCM", "rank by confidence")),
    ):
        wanted = level(evidence, *worse) - level(evidence, *better)
        assert effects(evidence, name)["Clue-like"].effect == pytest.approx(wanted), name
    assert set(effects(evidence, "K4b")) == {"Clue-like"}


def test_single_relations_refinement_and_weights_are_means(evidence):
    names = [f"CMCM_{c}" for c in systems.CITE]
    wanted = level(evidence, "CMCA", dataset="CITE-like") - np.mean(
        [level(evidence, name, "rank, refined", "CITE-like") for name in names]
    )
    assert effects(evidence, "K3")["CITE-like"].effect == pytest.approx(wanted)
    some = claims.with_refinement(evidence, "Clue-like")
    assert len(some) == 2 + 6 + 1
    wanted = np.mean([level(evidence, n) - level(evidence, n, "rank, refined") for n in some])
    assert effects(evidence, "K4")["Clue-like"].effect == pytest.approx(wanted)
    others = np.mean([level(evidence, f"CMCM, λ_cls {v:g}") for v in systems.SWEEP])
    assert set(effects(evidence, "K7")) == {"Clue-like"}
    wanted = others - level(evidence, "CMCM")
    assert effects(evidence, "K7")["Clue-like"].effect == pytest.approx(wanted)


def test_gaps_are_set_against_right_answers(evidence):
    gap, rank = (evidence.values("Clue-like", "CMCM", m) for m in ("gap", "rank"))
    right = 100.0 * (rank == 1)
    wide = gap > np.median(gap, axis=1, keepdims=True)
    each = [row[w].mean() - row[~w].mean() for row, w in zip(right, wide, strict=True)]
    assert effects(evidence, "K6")["Clue-like"].effect == pytest.approx(np.mean(each))
    assert isinstance(effects(evidence, "K6b"), str)
    many = made_up_coherence.make(datasets=("Clue-like",), texts=900)
    gap, rank = (many.values("Clue-like", "CMCM", m) for m in ("gap", "rank"))
    wrong = 100 * (rank[gap >= 0.2] > 1).mean()
    assert effects(many, "K6b")["Clue-like"].effect == pytest.approx(wrong)


def test_prediction_is_set_against_chance(evidence):
    ap = evidence.values("CITE-like", "CMCM", "AP", split="relations").mean()
    chance = evidence.values("CITE-like", PAIRS, "rate", split="relations").mean()
    assert effects(evidence, "K8")["CITE-like"].effect == pytest.approx(ap - chance)


def test_a_ratio_is_that_of_means_and_its_interval_holds_it():
    rng = np.random.default_rng(0)
    below = 2 + rng.normal(size=(6, 400))
    above = 0.5 * below + 0.1 * rng.normal(size=below.shape)
    found = claims.ratio(above, below, range(400))
    assert found.effect == pytest.approx(above.mean() / below.mean())
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.02


def test_what_was_not_run_is_not_tested(evidence):
    left = without(evidence, "CMCA", "CMCM")
    found = {one.id for one in CLAIMS if isinstance(one.effects(left, left.seeds), str)}
    assert found == {"K1", "K2", "K2b", "K3", "K5", "K6", "K6b", "K7", "K8"}


def test_one_seed_has_tables_and_no_intervals_over_seeds():
    one = made_up_coherence.make(seeds=1)
    assert "[" not in tables.tables(one)["in_pools_CITE-like"].loc["CMCM over CMCA", "MedR"]
    assessed = {claim.id: assess(claim, one, one.seeds) for claim in CLAIMS}
    assert assessed["K8"].why == "one seed has no interval"
    assert assessed["K2"].verdict != "not tested"


def test_all_tables_and_figures_come_of_evidence_alone(evidence):
    made, drawn = tables.tables(evidence), figures.figures(evidence)
    kinds = "results main_table in_pools refinement predicted probes contrasts singles".split()
    kinds.append("by_relation")
    names = ("Clue-like", "CITE-like")
    assert set(made) == {f"{kind}_{name}" for kind in kinds for name in names}
    assert {"overview", "curves", "map", "sweep_Clue-like"} <= set(drawn)
    assert "sweep_CITE-like" not in drawn
    shown = made["results_Clue-like"]
    assert shown.loc["CMCA + true relations", "in % of the oracle's gain"] == "+100 [+100, +100]"
    gain = level(evidence, "CMCA") - level(evidence, "CMCM")
    assert shown.loc["CMCM", "gain over CMCA"].startswith(f"{gain:+.2f} [")
    assert shown.loc["CMCA", "gain over CMCA"] == "–"
    for metric, sign in (("MedR", -1), ("R@5", 1)):
        a, b = (evidence.means("CITE-like", n, metric, "pools") for n in ("CMCM", "CMCA"))
        told = made["in_pools_CITE-like"].loc["CMCM over CMCA", metric]
        assert float(told.split()[0]) == pytest.approx(sign * (a - b).mean(), abs=0.006)
    beside = made["main_table_CITE-like"]
    assert beside.loc["CMCM", ("MedR", "paper")] == 4.2
    medr = evidence.values("CITE-like", "CMCM", "MedR", split="pools")
    assert beside.loc["CMCM", ("MedR", "θ")] == pytest.approx(medr.mean(), abs=0.06)
    assert beside.loc["Base", ("MedR", "θ̄")] == "–"
    assert made["singles_Clue-like"].index[-1] == "correlation with the rate"
    assert "without" not in made["singles_CITE-like"]


def test_the_map_has_the_gain_at_each_dial_on_record(evidence):
    cells = tables.dials(evidence)["CMCM"]
    assert set(cells) == {systems.DEFAULTS, systems.DIALS[MAP[-1]]}
    wanted = level(evidence, "CMCA", dataset=MAP[-1]) - level(evidence, "CMCM", dataset=MAP[-1])
    assert cells[systems.DIALS[MAP[-1]]].effect == pytest.approx(wanted)


def test_trainings_that_still_improve_are_flagged(evidence):
    assert not evidence.unfinished("Clue-like", "CMCM")
    table = evidence.table.copy()
    rising = (table.metric == "dev_loss") & (table.system == "CMCM")
    table.loc[rising, "value"] = -table.loc[rising, "item"].astype(float)
    changed = records.Evidence(table, evidence.header)
    assert changed.unfinished("Clue-like", "CMCM")
    assert "CMCM ↓" in tables.results(changed, "Clue-like").index


def test_the_grid_has_each_system_where_it_belongs():
    assert len(systems.MAP) == 11
    assert len(systems.trained_systems("Clue-like")) == 21
    assert len(systems.trained_systems("CITE-like")) == 13
    assert len(systems.trained_systems("flickr8k")) == 11
    assert [one.system for one in systems.trained_systems(MAP[0])] == ["CMCA", "CMCM"]
    for tier, dataset in (("world", "Clue-like"), ("world", MAP[0]), ("paper", "cite")):
        own = systems.systems(tier, dataset)
        assert {"Random", "Ridge", PAIRS} < set(own)
        assert own["CMCM"]["relations"] == "all"
    assert systems.budget("paper", "clue") == systems.Settings()
    assert asdict(systems.budget("paper", "cite"))["max_words"] == 200
