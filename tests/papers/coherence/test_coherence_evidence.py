"""What made-up evidence says: effects of claims, tables beside the paper's, figures."""

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
from mmlib.papers.coherence import claims, figures, run, tables
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
    rows = evidence.table[~evidence.table.system.isin(systems)]
    return records.Evidence(pd.DataFrame(rows), evidence.header)


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


def test_no_collection_of_the_map_is_part_of_a_claim(evidence):
    for one in CLAIMS:
        parts = one.effects(evidence, evidence.seeds)
        assert isinstance(parts, str) or not any(name.startswith(MAP) for name in parts)


def test_gains_are_differences_of_mean_log2_ranks(evidence):
    for name, better, worse in (
        ("K1", ("CMCA", "rank"), ("Base", "rank")),
        ("K2", ("CMCM", "rank"), ("CMCA", "rank")),
        ("K2b", ("CMCM", "rank, refined"), ("CMCA", "rank")),
        ("K2c", ("CMCM-NoAttn", "rank"), ("Base", "rank")),
        ("K4b", ("CMCM_Irrelevant", "rank"), ("CMCM_Irrelevant", "rank, refined")),
        ("K5", ("CMCM", "rank"), ("CMCM", "rank by confidence")),
        ("K5b", ("CMCM", "rank by confidence"), ("Random", "rank")),
    ):
        wanted = level(evidence, *worse) - level(evidence, *better)
        assert effects(evidence, name)["Clue-like"].effect == pytest.approx(wanted), name
    assert set(effects(evidence, "K4b")) == {"Clue-like"}


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


def test_spreads_over_pools_and_over_trainings():
    """Three trainings, four pools: deviations and distances by hand."""
    medr = np.array([[1.0, 1, 3, 3], [5, 5, 5, 5], [8, 10, 8, 10]])
    assert claims.over_pools(medr) == pytest.approx([(4 / 3) ** 0.5, 0, (4 / 3) ** 0.5])
    assert claims.over_trainings(medr) == pytest.approx([3, 0, 4])  # means 2, 5 and 9


def test_a_smaller_spread_counts_for_the_claim(evidence):
    """CMCM's pools and trainings differ half as much as CMCA's."""
    table = evidence.table.copy()
    medr = 50 + 5 * np.random.default_rng(0).normal(size=200)
    for system, metric, values in (("CMCA", "MedR", medr), ("CMCM", "MedR, refined", medr / 2)):
        rows = (table.split == "pools") & (table.system == system) & (table.metric == metric)
        rows &= table.dataset == "Clue-like"
        table.loc[rows, "value"] = values.astype(np.float32)
    changed = records.Evidence(table, evidence.header)
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


def test_one_seed_has_tables_and_no_intervals_over_seeds():
    one = made_up_coherence.make(seeds=1)
    assert "[" not in tables.tables(one)["in_pools_CITE-like"].loc["CMCM over CMCA", "MedR"]
    assessed = {claim.id: assess(claim, one, one.seeds) for claim in CLAIMS}
    for name in ("K2d", "K8b", "K14", "K14b"):
        assert assessed[name].why == "one seed has no interval"
    assert assessed["K2"].verdict != "not tested"


def test_all_tables_and_figures_come_of_evidence_alone(evidence):
    made, drawn = tables.tables(evidence), figures.figures(evidence)
    kinds = "results main_table in_pools refinement predicted probes contrasts singles".split()
    kinds += ["by_relation", "table7"]
    names = ("Clue-like", "CITE-like")
    wanted = {f"{kind}_{name}" for kind in kinds for name in names}
    assert set(made) == wanted | {"table8_Clue-like"}  # the paper has it of Clue
    wanted = {"overview", "curves", "map", "sweep_Clue-like", "refinement_CITE-like"}
    assert wanted <= set(drawn)
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
    assert beside.loc["CMCM_Q5", ("R@5", "paper")] == 51.5
    recall = evidence.values("CITE-like", "CMCM", "R@5", split="pools")
    assert beside.loc["CMCM", ("R@5", "θ")] == pytest.approx(recall.mean(), abs=0.06)
    assert made["singles_Clue-like"].index[-1] == "correlation with the rate"
    assert "without" not in made["singles_CITE-like"]


def test_printed_rows_without_ours_stay(evidence):
    beside = tables.main_table(without(evidence, "CMCM_Irrelevant"), "Clue-like")
    row = beside.loc["CMCM_Irrelevant"]
    assert [row[m, "paper"] for m in ("MedR", "R@1", "R@5", "R@10")] == [20.3, 12.6, 31.1, 40.9]
    assert row["MedR", "paper's ±"] == 1.9
    assert set(row.drop("paper", level=1).drop(("MedR", "paper's ±"))) == {"–"}


def test_table_7_is_about_the_texts_of_which_a_relation_holds(evidence):
    among = evidence.table.copy()
    among.loc[among.metric == "rank", "value"] = among.value.clip(upper=60)  # of 60 texts
    evidence = records.Evidence(among, evidence.header)
    table = tables.table7(evidence, "CITE-like")
    assert len(table) == 2 * len(collections.CITE)
    assert table.loc[("Q4", "CMCM"), ("R@10", "paper")] == 52.0
    holds = evidence.values("CITE-like", PAIRS, "Q4")[0] > 0
    assert table.loc[("Q4", "CMCM"), ("texts", "ours")] == str(holds.sum())
    # 60 texts make one pool, so a recall is a share of the texts.
    ranks = evidence.values("CITE-like", "CMCM", "rank")[:, holds]
    shown = table.loc[("Q4", "CMCM"), ("R@10", "ours")]
    assert shown == pytest.approx(100 * (ranks <= 10).mean(), abs=0.06)
    clue = tables.table7(without(evidence, PAIRS), "Clue-like")
    assert list(clue["MedR", "paper"])[:4] == [12.0, 11.0, 28.0, 22.0]
    assert set(clue["MedR", "ours"]) == {"–"}


def test_table_8_has_the_papers_three_systems_and_ours_where_scored(evidence):
    table = tables.table8(evidence, "Clue-like")
    assert list(table["CMCM_c", "paper"]) == [0.83, 0.18, 0.52, 0.55, 0.72, 0.41]
    assert table.loc["Subjective", ("CMCM-NoAttn", "paper")] == 0.24
    assert set(table["CMCM_c", "ours"]) == set(table["CMCM-NoAttn", "ours"]) == {"–"}
    ours = evidence.values("Clue-like", "CMCM", "AP", split="relations").mean(axis=0)
    assert list(table["CMCM", "ours"]) == pytest.approx(list(ours), abs=0.0051)


@pytest.mark.parametrize("dataset", ["Clue-like", "CITE-like"])
def test_figure_5_draws_every_system_before_and_after(evidence, dataset):
    ours, authors = figures.refinement_figure(evidence, dataset).axes
    names = [tick.get_text() for tick in ours.get_yticklabels()]
    refined = [name for name in names if name not in ("Base", "CMCA")]
    assert len(names) == 4 + len(collections.relations_of(dataset))
    for name in names:
        for metric, shift in (("MedR", 0.12), ("MedR, refined", -0.12)):
            at = names.index(name) + shift
            wanted = []
            if metric == "MedR" or name in refined:
                wanted = [evidence.means(dataset, name, metric, "pools").mean()]
            found = [line.get_xdata()[0] for line in ours.lines
                     if len(line.get_xdata()) == 1 and line.get_marker() in ("o", "D")
                     and line.get_ydata()[0] == pytest.approx(at)]  # fmt: skip
            assert found == pytest.approx(wanted)
    printed = 10.0 if dataset == "CITE-like" else 19.85
    dots = [(line.get_ydata()[0], line.get_xdata()[0]) for line in authors.lines
            if line.get_marker() == "o" and len(line.get_xdata()) == 1]  # fmt: skip
    assert dict(dots)[names.index("Base") + 0.12] == printed


def test_the_map_has_the_gain_at_each_dial_on_record(evidence):
    cells = tables.dials(evidence)["CMCM"]
    assert set(cells) == {collections.DEFAULTS, collections.DIALS[MAP[-1]]}
    wanted = level(evidence, "CMCA", dataset=MAP[-1]) - level(evidence, "CMCM", dataset=MAP[-1])
    assert cells[collections.DIALS[MAP[-1]]].effect == pytest.approx(wanted)


def test_trainings_that_still_improve_are_flagged(evidence):
    assert not evidence.unfinished("Clue-like", "CMCM")
    table = evidence.table.copy()
    rising = (table.metric == "dev_loss") & (table.system == "CMCM")
    table.loc[rising, "value"] = -table.loc[rising, "item"].astype(float)
    changed = records.Evidence(table, evidence.header)
    assert changed.unfinished("Clue-like", "CMCM")
    assert "CMCM ↓" in tables.results(changed, "Clue-like").index


def test_the_grid_has_each_system_where_it_belongs():
    assert len(collections.MAP) == 11
    assert len(run.trained_systems("Clue-like")) == 21
    assert len(run.trained_systems("CITE-like")) == 13
    assert len(run.trained_systems("flickr8k")) == 11
    assert [one.system for one in run.trained_systems(MAP[0])] == ["CMCA", "CMCM"]
    for tier, dataset in (("world", "Clue-like"), ("world", MAP[0]), ("paper", "cite")):
        own = run.systems(tier, dataset)
        assert {"Random", "Ridge", PAIRS} < set(own)
        assert own["CMCM"]["relations"] == "all"
    assert run.budget("paper", "clue") == run.Settings()
    assert asdict(run.budget("paper", "cite"))["max_words"] == 200
