"""What made-up evidence says: effects of claims, and what is trained where."""

import json
from dataclasses import asdict

import made_up_coherence
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mmlib.core import evidence as records
from mmlib.core.claims import assess, ledger
from mmlib.core.tables import paper_values
from mmlib.papers.coherence import claims, run
from mmlib.papers.coherence.claims import CLAIMS
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.pairs import MAP
from mmlib.papers.coherence.run import PAIRS


@pytest.fixture(scope="module")
def evidence():
    return made_up_coherence.make()


def effects(evidence, name):
    [claim] = [one for one in CLAIMS if one.id == name]
    return claim.effects(evidence, evidence.seeds)


def level(evidence, system, metric="rank", dataset="Clue-like"):
    return np.log2(evidence.values(dataset, system, metric)).mean()


def without(evidence, *systems):
    series = evidence.series[~evidence.series.system.isin(systems)]
    return records.Evidence(series, evidence.header)


# What no evidence of this notebook can test.
NEVER = {"K7b", "K8", "K16", "K17", "K18"}


def test_there_are_claims_with_a_reason_each():
    ids = "K1 K2 K2b K2c K2d K3 K4 K4b K5 K5b K6 K6b K7 K7b K8 K8b".split()
    ids += "K14 K14b K15 K16 K17 K18".split()
    assert [one.id for one in CLAIMS] == ids
    assert all(one.why for one in CLAIMS)


def test_every_claim_is_tested_and_the_ledger_can_be_written(evidence):
    assessed = [assess(one, evidence, evidence.seeds) for one in CLAIMS]
    untested = {one.claim.id: one.why for one in assessed if one.verdict == "not tested"}
    assert NEVER <= set(untested) <= NEVER | {"K6b"}
    assert all(len(why) > 10 for why in untested.values())
    assert len(ledger(assessed)) == len(CLAIMS)
    json.dumps([one.record() for one in assessed], allow_nan=False)


def test_each_relation_and_each_weight_is_a_part(evidence):
    found = effects(evidence, "K3")
    assert len(found) == len(collections.CLUE) + len(collections.CITE)
    for c in collections.CITE:
        refined = level(evidence, f"CMCM_{c}", "rank, refined", "CITE-like")
        wanted = level(evidence, "CMCA", dataset="CITE-like") - refined
        assert found[f"CITE-like, {c}"].effect == pytest.approx(wanted)
    found = effects(evidence, "K7")
    assert set(found) == {f"Clue-like, λ {value}" for value in ("0.01", "0.4", "2")}
    for value in ("0.01", "0.4", "2"):
        wanted = level(evidence, f"CMCM, λ_cls {value}") - level(evidence, "CMCM")
        assert found[f"Clue-like, λ {value}"].effect == pytest.approx(wanted)


def test_refinement_is_the_mean_of_the_papers_systems(evidence):
    some = ["CMCM", "CMCM-NoAttn", *(f"CMCM_{c}" for c in collections.CLUE)]
    assert set(claims.with_refinement(evidence, "Clue-like")) == set(some)
    wanted = np.mean([level(evidence, n) - level(evidence, n, "rank, refined") for n in some])
    assert effects(evidence, "K4")["Clue-like"].effect == pytest.approx(wanted)


def test_recalls_in_pools_are_held_to_the_unrefined_baseline(evidence):
    found = effects(evidence, "K2d")
    assert set(found) == {f"{d}, R@{k}" for d in ("Clue-like", "CITE-like") for k in (1, 5, 10)}
    for k in (1, 5, 10):
        ours = evidence.values("CITE-like", "CMCM", f"R@{k}, refined", split="pools")
        theirs = evidence.values("CITE-like", "CMCA", f"R@{k}", split="pools")
        one = found[f"CITE-like, R@{k}"]
        assert one.effect == pytest.approx((ours - theirs).mean())
        wanted = stats.ttest_rel(ours.mean(axis=1), theirs.mean(axis=1)).confidence_interval()
        assert (one.low, one.high) == pytest.approx(wanted)


def test_trainings_differ_by_their_distance_from_the_median():
    medr = np.array([[1.0, 1, 3, 3], [5, 5, 5, 5], [8, 10, 8, 10]])
    assert claims.over_trainings(medr) == pytest.approx([3, 0, 4])  # means 2, 5 and 9


def test_a_smaller_spread_counts_for_the_claim(evidence):
    """CMCM's pools and trainings differ half as much as CMCA's."""
    series = evidence.series.copy()
    medr = 50 + 5 * np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    for system, metric, values in (("CMCA", "MedR", medr), ("CMCM", "MedR, refined", medr / 2)):
        rows = (series.split == "pools") & (series.system == system) & (series.metric == metric)
        rows &= series.dataset == "Clue-like"
        series.loc[rows, "value"] = pd.Series(list(values), series.index[rows])
    changed = records.Evidence(series, evidence.header)
    theirs = changed.values("Clue-like", "CMCA", "MedR", split="pools")
    over_pools = np.mean([np.std(pools, ddof=1) for pools in theirs])
    of_seeds = theirs.mean(axis=1)
    over_seeds = np.mean([abs(one - np.median(of_seeds)) for one in of_seeds])
    for claim, spread in (("K14", over_pools), ("K14b", over_seeds)):
        found = effects(changed, claim)["Clue-like"].effect
        assert found == pytest.approx(spread / 2, rel=1e-4), claim


def test_by_relation_only_its_own_texts_count(evidence):
    found = effects(evidence, "K15")
    assert len(found) == len(collections.CLUE) + len(collections.CITE)
    holds = evidence.values("CITE-like", PAIRS, "Q5")[0] > 0
    a, b = (np.log2(evidence.values("CITE-like", n, "rank"))[:, holds] for n in ("CMCA", "CMCM"))
    assert found["CITE-like, Q5"].effect == pytest.approx((a - b).mean())


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
    assert effects(evidence, "K8b")["CITE-like"].effect == pytest.approx(ap - chance)


def test_the_papers_effects_follow_from_its_printed_tables():
    printed = {one.id: one.paper_effect for one in CLAIMS if one.paper_effect is not None}
    t4, t5, t6, t8 = (paper_values("coherence", f"table{n}") for n in (4, 5, 6, 8))
    recalls = ["R@1", "R@5", "R@10"]
    gains = [t.loc["CMCM", recalls] - t.loc["CMCA", recalls] for t in (t4, t5)]
    spreads = [t.loc["CMCA", "MedR_std"] - t.loc["CMCM", "MedR_std"] for t in (t4, t5)]
    chance = paper_values("coherence", "table2").percent_positive.mean() / 100
    singles = [t8.loc[f"CMCM_{c}", c] for c in t8.columns]
    prefer = t6.Better.astype(float) - t6.Worse
    by_people = prefer[["CMCM_Story", "CMCM_Subjective"]].mean() - prefer["CMCM_Visible"]
    wanted = {"K2d": np.mean(gains), "K6b": 0, "K8": np.mean(singles) - chance,
              "K8b": t8.loc["CMCM"].astype(float).mean() - chance, "K14": np.mean(spreads),
              "K16": prefer.mean(), "K17": by_people}  # fmt: skip
    assert printed == {name: pytest.approx(value, abs=0.0051) for name, value in wanted.items()}


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
    gone = "K1 K2 K2b K2d K3 K5 K5b K6 K6b K7 K8b K14 K14b K15".split()
    assert found == {*gone, *NEVER}


def test_one_seed_has_no_intervals_over_seeds():
    one = made_up_coherence.make(seeds=1)
    assessed = {claim.id: assess(claim, one, one.seeds) for claim in CLAIMS}
    for name in ("K2d", "K8b", "K14", "K14b"):
        assert assessed[name].why == "one seed has no interval"
    assert assessed["K2"].verdict != "not tested"


def test_the_grid_has_each_system_where_it_belongs():
    assert len(collections.MAP) == 11
    assert len(run.trained_systems("Clue-like")) == 13
    assert len(run.trained_systems("CITE-like")) == 11
    assert len(run.trained_systems("flickr8k")) == 9
    assert [one.system for one in run.trained_systems(MAP[0])] == ["CMCA", "CMCM"]
    for tier, dataset in (("world", "Clue-like"), ("world", MAP[0]), ("paper", "cite")):
        own = run.systems(tier, dataset)
        assert {"Random", "Ridge", PAIRS} < set(own)
        assert own["CMCM"]["relations"] == "all"
    assert run.budget("paper", "clue") == run.Settings()
    assert asdict(run.budget("paper", "cite"))["max_words"] == 200
