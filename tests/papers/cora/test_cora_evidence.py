"""What made-up evidence says: tables beside the paper's, effects of claims, and figures."""

import json
from dataclasses import asdict, replace

import made_up_cora
import numpy as np
import pytest

from mmlib.core.claims import assess, ledger, stability
from mmlib.core.evidence import Evidence
from mmlib.core.ranking import KS
from mmlib.core.tables import paper_tables
from mmlib.papers.cora import claims, tables
from mmlib.papers.cora.claims import CLAIMS
from mmlib.papers.cora.figures import figures
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.record import trainings
from mmlib.papers.cora.run.systems import CAPTIONS, QUERY_TIME, SYSTEMS, Settings, System
from mmlib.papers.cora.tables import recalls


@pytest.fixture(scope="module")
def evidence():
    return made_up_cora.make()


def effects(evidence, name):
    [claim] = [one for one in CLAIMS if one.id == name]
    return claim.effects(evidence, evidence.seeds)


def rsum(evidence, name):
    return evidence.means("world", name, "RSUM").mean()


def test_recalls_add_to_the_rsum_of_items(evidence):
    table = recalls(evidence, "world", "CORA").pivot(index="seed", columns="metric", values="value")
    assert table.rsum.to_numpy() == pytest.approx(
        evidence.means("world", "CORA", "RSUM").to_numpy(), abs=1e-3
    )
    ranks = evidence.values("world", "CORA", "rank")
    assert table.t2i_r5[0] == pytest.approx(100 * (ranks[0, :200] <= 5).mean())
    assert table.i2t_medr[1] == np.median(ranks[1, 200:])


def test_there_are_twenty_claims_with_a_reason_each():
    ids = "C1 C2 C2b C3 C4 C5 C5a C5b C5c C6 C6b C7 C8 C9 C10 C11 H1 H2 H3 H4".split()
    assert [one.id for one in CLAIMS] == ids
    assert all(one.why for one in CLAIMS)
    assert all(one.every for one in CLAIMS)


NOT_RUN = {"H1", "H2", "H3"}


def test_every_claim_but_berts_is_tested(evidence):
    judged = [assess(one, evidence, evidence.seeds) for one in CLAIMS]
    assert {one.claim.id for one in judged if one.verdict == "not tested"} == (
        NOT_RUN | {"C10", "H4"}
    )
    assert len(ledger(judged)) == 20
    json.dumps([one.record() for one in judged], allow_nan=False)


def test_a_berts_gains_are_compared_in_the_mean_of_its_three_ways():
    found = made_up_cora.make(dataset="world_bert")
    seeds = {name: found.means("world_bert", name, "RSUM").to_numpy()
             for name in found.systems("world_bert") if name != CAPTIONS}  # fmt: skip
    ways = ("frozen BERT", "BERT, prompts", "BERT, tuned")
    gain = {one: np.mean([seeds[f"{one}, {way}"] - seeds[one] for way in ways], axis=0)
            for one in ("Sequence", "CORA")}  # fmt: skip
    [c10] = effects(found, "C10").values()
    assert c10.effect == pytest.approx((gain["Sequence"] - gain["CORA"]).mean())
    [h4] = effects(found, "H4").values()
    assert h4.effect == pytest.approx(
        (seeds["CORA, BERT, prompts"] - seeds["CORA, BERT, tuned"]).mean()
    )
    told = tables.gains_of_bert(found, "world_bert")
    learnt = [f"{way} − {ways[0]}" for way in ways[1:]]
    assert list(told.index) == [*ways, "mean", *learnt]
    for column, one in (("added to the sequence", "Sequence"), ("added to CORA", "CORA")):
        for way in ways:
            added = (seeds[f"{one}, {way}"] - seeds[one]).mean()
            assert told.at[way, column].startswith(f"{added:+.0f} [")
    assert told.at["mean", "difference"].startswith(f"{c10.effect:+.0f} [")
    for lost, left in (("CORA, frozen BERT", [*ways[1:]]), ("Sequence", [])):
        rows = found.table[found.table.system != lost]
        part = tables.gains_of_bert(Evidence(rows, found.header), "world_bert")
        assert list(part.index) == left
    gap = (seeds["CORA, BERT, tuned"] - seeds["Sequence, BERT, tuned"]).mean()
    assert told.at["BERT, tuned", "CORA − sequence"].startswith(f"{gap:+.0f} [")
    learnt = (seeds["CORA, BERT, tuned"] - seeds["CORA, frozen BERT"]).mean()
    row = "BERT, tuned − frozen BERT"
    assert told.at[row, "added to CORA"].startswith(f"{learnt:+.0f} [")


def test_what_is_kept_of_parse_errors_is_held_against_the_line_of_c8(evidence):
    told = tables.parse_effects(evidence, "world")
    own = evidence.means("world", "CORA", "RSUM").to_numpy()
    for kind, rate in told.index:
        hurt = evidence.means("world", "CORA", f"RSUM, {kind} {rate} %").to_numpy()
        kept = told.at[(kind, rate), "kept beyond 97%"]
        assert kept.startswith(f"{(hurt - 0.97 * own).mean():+.1f} [")


def test_leads_say_in_what_two_systems_differ(evidence):
    told = tables.leads(evidence, "world")["differ in"].to_dict()
    assert told["Two-step, residual path and short cut", "Two-step, caption losses"] == "text"
    assert told["Two-step, authors' form", "Two-step, caption losses"] == "text, image"
    assert told["CORA", "Two-step, caption losses"] == "losses"
    assert told["CORA", "VSE∞"] == "text, image, losses"
    assert told["CORA", "Bag of phrases"] == "text, losses"
    ours = {
        ("Oracle of entities", "Oracle of words"),
        ("Oracle of the graph", "Oracle of entities"),
    }
    assert {pair for pair, what in told.items() if not what} == ours & told.keys()


def test_the_share_within_a_family_is_held_against_the_bags(evidence):
    told = tables.in_family(evidence, "world")
    own = {name: np.nanmean(evidence.values("world", name, "in family"), axis=1)
           for name in ("CORA", "Bag of phrases")}  # fmt: skip
    more = (own["CORA"] - own["Bag of phrases"]).mean()
    assert told.loc["CORA", "minus the bag"] == pytest.approx(more, abs=0.051)
    assert told.loc["CORA", "from"] < more < told.loc["CORA", "to"]
    assert np.isnan(told.loc["Bag of phrases", "minus the bag"])


def test_differences_of_trainings_made_again_are_those_that_differ():
    once, again = made_up_cora.make(), made_up_cora.make(dataset="world_bert")
    again = made_up_cora.both(once, again)
    first, second = (
        again.means(dataset, name, "RSUM").to_numpy()
        for dataset, name in (("world", "Sequence, CORA's rest"), ("world_bert", "Sequence"))
    )  # CORA's are the same in both
    assert tables.trained_again(again, "world") == pytest.approx(list(second - first))
    assert tables.trained_again(once, "world") == []
    shorter = made_up_cora.both(
        made_up_cora.make("flickr8k", "flickr8k"), made_up_cora.make("flickr8k", "flickr8k_bert")
    )
    assert tables.trained_again(shorter, "flickr8k") == []


def test_rich_captions_are_those_that_say_most(evidence):
    said = [evidence.values("world", CAPTIONS, m)[0][:200] for m in ("attributes", "relations")]
    total = np.sum(said, axis=0)
    rich = claims.richest(evidence, "world", 30)
    assert total[rich].min() >= np.delete(total, rich).max()
    rich, rival = claims.richest(evidence, "world"), effects(evidence, "C6")
    [(name, effect)] = rival.items()
    hits = [
        100 * np.sum([evidence.values("world", one, "rank")[:, :200] <= k for k in KS], axis=0)
        for one in ("CORA", name.removeprefix("world, over "))
    ]
    gap = hits[0] - hits[1]
    assert effect.effect == pytest.approx(gap[:, rich].mean(), abs=1e-3)
    [more] = effects(evidence, "C6b").values()
    wanted = gap[:, rich].mean() - np.delete(gap, rich, axis=1).mean()
    assert more.effect == pytest.approx(wanted, abs=1e-3)


def test_reranking_ensembles_and_errors_are_read_of_their_metrics(evidence):
    gains = [part.effect for part in effects(evidence, "C7").values()]
    assert gains == pytest.approx([1, 4], abs=1e-3)
    assert effects(evidence, "C8")["world"].effect == pytest.approx(0.02 * rsum(evidence, "CORA"))
    assert effects(evidence, "C9")["world"].effect == pytest.approx(0, abs=1e-3)
    assert effects(evidence, "C11")["world"].effect == pytest.approx(1, abs=0.1)


def test_what_was_not_run_is_not_tested(evidence):
    left = made_up_cora.without(evidence, "CORA", "Two-step, caption losses", QUERY_TIME)
    found = {one.id: one.effects(left, left.seeds) for one in CLAIMS}
    untested = {name for name, parts in found.items() if isinstance(parts, str)}
    assert untested == {
        "C2", "C2b", "C4", "C5", "C5a", "C5b", "C6", "C6b", "C8", "C9", "C10", "C11", "H4",
        *NOT_RUN,
    }  # fmt: skip
    assert all(len(found[name].split()) > 7 for name in NOT_RUN)  # a reason of its own
    assert list(found["C3"]) == ["world: Joint − (Joint + FC)"]
    assert len(found["C1"]) == 2  # of the three losses those that can be told


@pytest.mark.parametrize(
    ("number", "rows", "ours"),
    [("table1", 25, "Bag of phrases"), ("table3", 12, "Two-step, caption losses")],
)
def test_no_printed_row_is_lost_and_ours_stand_beside_theirs(evidence, number, rows, ours):
    assert (len(tables.printed(number)), len(tables.printed("table4"))) == (rows, 4)
    shown = tables.table(evidence, "world", number)
    assert list(shown.index[:rows]) == list(tables.printed(number).index)
    assert ours in shown.index[rows:]
    assert shown.index.is_unique
    assert shown.loc["CORA", ("rsum", "paper")] == "515.8"
    mean = recalls(evidence, "world", ours).groupby("metric").value.mean()
    assert shown.loc[ours, ("rsum", "ours")].startswith(f"{mean['rsum']:.1f} ± ")


def test_all_tables_and_figures_come_of_evidence_alone(evidence):
    shown = tables.tables(evidence)
    assert set(figures(evidence)) == {"overview", "curves", "parse_errors_world", "times_world"}
    kinds = (
        "results trained_out table1 table3 table4 leads attributes entities families times "
        "parse_errors"
    ).split()
    alone = {"table2", "table5", "table6", "table8", "table9", "not_recorded"}
    assert set(shown) == {f"{kind}_world" for kind in kinds} | alone
    assert len(shown["results_world"]) == len(systems.systems("world", "world")) - 2
    assert shown["table4_world"].loc["CORA, ensemble of two, reranked", "paper"] == 445.1
    assert shown["table4_world"].loc["CORA + reranking (BERT)"].tolist() == [450.6, "–", "–"]
    attributes = shown["attributes_world"]
    assert attributes.loc["captions"].astype(int).sum() == 200
    bag, base = (float(attributes.loc[n, "2"]) for n in ("Bag of phrases", systems.TWO_STEP.system))
    lead = attributes.loc[f"Bag of phrases − {systems.TWO_STEP.system}", "2"]
    assert float(lead.split()[0]) == pytest.approx(bag - base, abs=1.01)
    curve = evidence.curves("world", "CORA", "dev_RSUM").mean(axis=0)
    rise = shown["trained_out_world"].loc["CORA", "rise over the last two epochs"]
    assert float(rise) == pytest.approx(curve[-1] - curve[-3], abs=0.06)
    right = np.nanmean(evidence.values("world", "CORA", "in family"))
    assert shown["families_world"].loc["CORA", "right in %"] == pytest.approx(right, abs=0.06)
    gain = rsum(evidence, "CORA") - rsum(evidence, "Sequence, CORA's rest")
    told = shown["leads_world"].loc[("CORA", "Sequence, CORA's rest")]
    assert told.RSUM == pytest.approx(gain, abs=0.06)
    hurt = evidence.means("world", "CORA", "RSUM, edge 30 %") - rsum(evidence, "CORA")
    told = shown["parse_errors_world"].loc[("edge", 30)]
    assert told.RSUM == pytest.approx(hurt.mean(), abs=0.06)
    assert told["95 % low"] <= told.RSUM <= told.high
    assert list(shown["entities_world"].index) == [
        ("image → entity", "most frequent first"), ("image → entity", "CORA"),
        ("entity → image", "random order"), ("entity → image", "CORA"),
    ]  # fmt: skip
    hits = np.nanmean(evidence.values("world", "CORA", "entity to image, R@5"))
    told = shown["entities_world"].loc[("entity → image", "CORA"), "R@5 in %"]
    assert told == pytest.approx(hits, abs=0.06)


def test_gaps_to_controls_are_those_of_the_longest_trainings():
    own = {name: made_up_cora.make("flickr8k", name) for name in ("flickr8k", "flickr8k_long")}
    found = made_up_cora.both(*own.values())
    assert found.datasets == ["flickr8k", "flickr8k_long"]
    [(name, effect)] = effects(found, "C5b").items()
    assert name.startswith("flickr8k_long, over ")
    means = {
        one: found.means("flickr8k_long", one, "RSUM").mean()
        for one in ("Two-step, caption losses", "Bag of phrases", "Sequence, CORA's rest")
    }
    gap = means.pop("Two-step, caption losses") - max(means.values())
    assert effect.effect == pytest.approx(gap)
    assert set(effects(found, "C2b")) == {"flickr8k", "flickr8k_long"}
    shown = tables.tables(found)
    assert len(shown["results_flickr8k_long"]) == len(systems.trained_systems("flickr8k_long"))
    assert ("CORA, authors' form", "VSE∞") in shown["leads_flickr8k_long"].index


@pytest.mark.parametrize(
    ("claim", "rivals"),
    [
        ("C2", ["Joint", "Joint, authors' form"]),
        ("C5", ["VSE∞"]),
        ("C5a", ["Sequence, CORA's rest"]),
    ],
)
def test_the_best_form_counts_where_its_budget_was_searched(claim, rivals):
    own = made_up_cora.make("flickr8k", "flickr8k")
    found = made_up_cora.both(own, made_up_cora.make("flickr8k", "flickr8k_tuned"))
    of_own, parts = effects(own, claim), effects(found, claim)
    best, *others = (
        found.means("flickr8k_tuned", name, "RSUM").mean()
        for name in ("CORA, authors' form", *rivals)
    )
    [added] = parts.keys() - of_own.keys()
    assert added == f"flickr8k_tuned, over {rivals[int(np.argmax(others))]}"
    assert parts[added].effect == pytest.approx(best - max(others))
    assert all(parts[name].effect == of_own[name].effect for name in of_own)


def test_collections_may_have_seeds_of_their_own():
    own = made_up_cora.make("flickr8k", "flickr8k", seeds=6)
    found = made_up_cora.both(own, made_up_cora.make("flickr8k", "flickr8k_long", seeds=3))
    assert found.seeds == [0, 1, 2, 3, 4, 5]
    judged = {one.claim.id: one for one in (assess(c, found, found.seeds) for c in CLAIMS)}
    for name, seeds in {"C5": {3, 6}, "C5a": {3}, "C5b": {3}, "C1": {6}, "C3": {6}}.items():
        pooled = judged[name].pooled
        assert {part.seeds for part in pooled.parts.values()} == seeds
        unstable = stability(judged[name].claim, found, found.seeds).another
        assert np.isnan(unstable) == (min(seeds) < 4)
    alone = assess(judged["C3"].claim, own, own.seeds)
    assert alone.record() == judged["C3"].record()
    assert recalls(found, "flickr8k_long", "CORA").seed.max() == 2


def test_the_grid_holds_every_system_of_a_collection():
    for tier, dataset in (("world", "world"), ("flickr8k", "flickr8k"), ("paper", "coco")):
        jobs = trainings(tier, [dataset], range(2))
        names = {job.system["system"] for job in jobs}
        assert names == set(SYSTEMS) - ({"CORA, gold graphs"} if dataset != "world" else set())
        assert len(jobs) == 2 * len(names)
        assert all(dict(job.settings) == asdict(systems.budget(tier, dataset)) for job in jobs)
        authors = {job.system.get("contrast") for job in jobs}
        assert authors == ({"authors"} if tier == "paper" else {"exact"})
    assert systems.budget("paper", "f30k") == Settings()
    assert systems.budget("paper", "coco") == Settings(batch=256)


PRINTED = {
    "table1": {
        "VSE": ({"text": "sequence", "regions": "pooling", "losses": "HARD", "entities": False,
                 "margin": 0.2}, 498.1),
        "Ours (CORA, single model)": ({}, 515.8),
        "Ours (CORA, ensemble of two seeds)": ({"members": 2}, 519.6),
    },
    "table3": {
        "n_obj_att=1, n_obj_obj=1": ({"object_layers": 1}, 509.1),
        "n_obj_att=1, n_obj_obj=2": ({}, 515.8),
        "n_obj_att=1, n_obj_obj=3": ({"object_layers": 3}, 514.4),
        "n_obj_att=2, n_obj_obj=1": ({"attribute_layers": 2, "object_layers": 1}, 510.1),
        "n_obj_att=2, n_obj_obj=2": ({"attribute_layers": 2}, 514.5),
        "n_obj_att=2, n_obj_obj=3": ({"attribute_layers": 2, "object_layers": 3}, 510.6),
        "Joint, parsed graph": ({"steps": "one", "losses": "HARD + CON", "entities": False}, 504.8),
        "Joint + FC": ({"steps": "one", "connected": True, "losses": "HARD + CON",
                        "entities": False}, 501.6),
        "Obj-Att & Obj-Obj (2-step), parsed graph": ({}, 515.8),
        "Obj-Att & Obj-Obj (2-step) + FC": ({"connected": True}, 513.2),
        "L_HARD only": ({"losses": "HARD", "entities": False}, 486.9),
        "L_CON only": ({"losses": "CON"}, 497.8),
        "L_HARD + L_CON": ({"losses": "HARD + CON"}, 507.3),
        "L_HARD + L_CON + L_SPEC": ({}, 515.8),
    },
    "table4": {
        "CORA (Bi-GRU)": ({"members": 2}, 444.6),
        "CORA + reranking (Bi-GRU)": ({"members": 2}, 445.1),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("table", "row"), [(table, row) for table, rows in PRINTED.items() for row in rows]
)
def test_a_printed_row_stands_beside_the_system_that_it_names(table, row):
    changes, rsum = PRINTED[table][row]
    name = tables.OUR_NAMES.get(row, row)
    assert ("reranking" in row) == name.endswith(", reranked")
    system = replace(SYSTEMS[name.removesuffix(", reranked")], system="", record_diagnostics=False)
    assert system == System("", **changes)
    assert tables.printed(table).loc[name, "rsum"] == rsum


def test_every_printed_table_is_shown_or_has_a_reason(evidence):
    """Printed figures without ours stand as they are, with "–" and why."""
    alone = tables.not_recorded()
    whole = {number for number in alone.index if "," not in number}
    printed = {number for number in paper_tables("cora") if number.startswith("table")}
    assert printed - whole == {"table1", "table3", "table4", "table7"}
    assert alone.why.all()
    shown = tables.tables(evidence)
    rows = {"table2": 22, "table5": 11, "table6": 9, "table8": 4, "table9": 6}
    assert {number: len(shown[number]) for number in whole} == rows
    assert all((shown[number].ours == "–").all() for number in whole)
    assert shown["table2"].loc["CORA, ensemble of two (BERT)", "coco5k_rsum"] == 450.1
    assert shown["table2"].loc["SGARF", "coco5k_rsum"] == "–"
    assert shown["table5"].loc["Ours (CORA, single model)", "rsum"] == 510.5  # not our CORA


def test_table_7_is_about_how_a_bert_learns():
    found = made_up_cora.make(dataset="world_bert")
    table = tables.tables(found)["table7_world_bert"].rsum
    assert table.paper.to_dict() == {
        "CORA, BERT, tuned": "529.1", "BERT P-Tuning, N = 8": "528.9",
        "BERT P-Tuning, N = 16": "529.6", "CORA, BERT, prompts": "530.0",
        "BERT P-Tuning, N = 32": "529.9",
    }  # fmt: skip
    for way in ("tuned", "prompts"):
        mean = found.means("world_bert", f"CORA, BERT, {way}", "RSUM").mean()
        assert table.ours[f"CORA, BERT, {way}"].startswith(f"{mean:.1f} ± ")
    assert table.ours["BERT P-Tuning, N = 8"] == "–"


def test_all_our_names_are_pinned_to_a_system():
    pinned = {row for rows in PRINTED.values() for row in rows}
    assert set(tables.OUR_NAMES) <= pinned
