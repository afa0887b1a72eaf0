"""What made-up evidence says: effects of claims, and printed rows beside our systems."""

import json
from dataclasses import asdict, replace

import made_up_cora
import numpy as np
import pytest

from mmlib.core.claims import assess, ledger, stability
from mmlib.core.ranking import KS
from mmlib.papers.cora import claims, show
from mmlib.papers.cora.claims import CLAIMS
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.record import trainings
from mmlib.papers.cora.run.systems import CAPTIONS, QUERY_TIME, SYSTEMS, Settings, System


@pytest.fixture(scope="module")
def evidence():
    return made_up_cora.make()


def effects(evidence, name):
    [claim] = [one for one in CLAIMS if one.id == name]
    return claim.effects(evidence, evidence.seeds)


def rsum(evidence, name):
    return evidence.means("world", name, "RSUM").mean()


def test_there_are_twenty_claims_with_a_reason_each():
    ids = "C1 C2 C2b C3 C4 C5 C5a C5b C5c C6 C6b C7 C8 C9 C10 C11 H1 H2 H3 H4".split()
    assert [one.id for one in CLAIMS] == ids
    assert all(one.why for one in CLAIMS)


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


def test_differences_of_trainings_made_again_are_those_that_differ():
    once, again = made_up_cora.make(), made_up_cora.make(dataset="world_bert")
    again = made_up_cora.both(once, again)
    first, second = (
        again.means(dataset, name, "RSUM").to_numpy()
        for dataset, name in (("world", "Sequence, CORA's rest"), ("world_bert", "Sequence"))
    )  # CORA's are the same in both
    assert show.trained_again(again, "world") == pytest.approx(list(second - first))
    assert show.trained_again(once, "world") == []
    shorter = made_up_cora.both(
        made_up_cora.make("flickr8k", "flickr8k"), made_up_cora.make("flickr8k", "flickr8k_bert")
    )
    assert show.trained_again(shorter, "flickr8k") == []


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
        assert {part.seeds for part in judged[name].parts.values()} == seeds
        unstable = stability(judged[name].claim, found, found.seeds).another
        assert np.isnan(unstable) == (min(seeds) < 4)
    alone = assess(judged["C3"].claim, own, own.seeds)
    assert alone.record() == judged["C3"].record()


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
    name = show.OUR_NAMES.get(row, row)
    assert ("reranking" in row) == name.endswith(", reranked")
    system = replace(SYSTEMS[name.removesuffix(", reranked")], system="", record_diagnostics=False)
    assert system == System("", **changes)
    assert show.printed(table).loc[name, "rsum"] == rsum


def test_all_our_names_are_pinned_to_a_system():
    pinned = {row for rows in PRINTED.values() for row in rows}
    assert set(show.OUR_NAMES) <= pinned
