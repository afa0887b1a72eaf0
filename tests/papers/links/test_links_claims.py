"""The claims of paper 04 on made-up evidence: what is planted is what is found."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up_evidence import evidence_of
from scipy.stats import spearmanr
from statsmodels.api import OLS, add_constant

from mmlib.core.claims import SIGNS, assess
from mmlib.core.evidence import EPOCHS, NO_SEED, Evidence
from mmlib.papers.links import claims, show
from mmlib.papers.links.claims import CLAIMS, SPREADS, agreement_of_trainings, difficulty
from mmlib.papers.links.run import DOCUMENTS as DESCRIBED
from mmlib.papers.links.run import STEP_TIME

CLAIM = {claim.id: claim for claim in CLAIMS}
SEEDS, DOCUMENTS, EPOCH_COUNT = 6, 120, 8
LEVELS = {"coco": 95.0, "cohesive": 82.0, "story": 72.0, "stress": 92.0, "organic": 76.0}
CLOSED = ("Obj Detect", show.DETECTION, "Co-occurrence", "Supervised ridge")  # without a seed
SYSTEMS = {
    "Random": -30.0, "Obj Detect": -26.0, show.DETECTION: -25.0, "Co-occurrence": -18.0,
    "NoStruct": -15.0, "DC": 0.0, "TK": 0.0, "TK+½k": -0.1, "AP": 0.0, "AP+½k": -0.1,
    "Supervised ridge": 2.0,
}  # fmt: skip
VARIANTS = {
    "DC, hard negatives": 3.0, "AP, hard negatives": 3.0, "AP, b = 20": 0.1, "AP, b = 30": 0.1,
}  # fmt: skip
COPIES = {  # variants that are like a system
    "story": {"AP, half the width": "AP", "AP, a quarter of the width": "AP"},
    "organic": {f"{name}, b = {b}": name for name in ("AP", "DC") for b in (20, 30)},
}


def planted(
    plus=(), seeds=SEEDS, sets=tuple(LEVELS), difficulty=4.0, slopes=(4.0, 2.0), content=6.0,
    rising=1.0, faster=40.0, noise=0.5, organic_noise=5.0,
) -> Evidence:  # fmt: skip
    """Evidence in which everything holds that the paper says, but for what the arguments change.

    plus: (data set or "", system, AUC more); the spread of the AUC over documents that all systems
    share, its slopes on the spread of images and of texts and, of organic documents, on their
    content (None: none recorded), the sign of the curves' relation, by how many percent AP is
    faster (None: not timed), and the noise of each system's documents, organic ones apart.
    """
    rng, rows = np.random.default_rng(1), []

    def add(dataset, system, split, metric, values, closed=True):
        for seed, row in enumerate(np.atleast_2d(values)):
            clusters = np.arange(len(row))
            rows.append(
                (dataset, system, NO_SEED if closed else seed, split, metric, row, clusters)
            )

    for dataset in sets:
        spreads = rng.normal(size=(2, DOCUMENTS))
        hard = difficulty * rng.normal(size=DOCUMENTS) + np.array(slopes) @ spreads
        add(dataset, DESCRIBED, "test", "image spread", spreads[0])
        add(dataset, DESCRIBED, "test", "text spread", spreads[1])
        if dataset != "coco" and content is not None:
            is_organic = dataset == "organic"
            themes = (rng if is_organic else np.random.default_rng(5)).normal(size=DOCUMENTS)
            hard = hard + (content if is_organic else content / 2) * themes
            add(dataset, DESCRIBED, "test", "image content 0", themes)
        for system, level in {**SYSTEMS, **(VARIANTS if dataset == "story" else {})}.items():
            if system == "TK" and dataset != "organic":
                continue
            more = sum(d for name, s, d in plus if name in ("", dataset) and s == system)
            more += 3.0 * (system == "AP" and dataset == "organic")
            closed = system in CLOSED
            runs = 1 if closed else seeds
            spread = organic_noise if dataset == "organic" else noise
            values = LEVELS[dataset] + level + more + hard
            values = values + spread * rng.normal(size=(runs, DOCUMENTS))
            values = values + 0.2 * rng.normal(size=(runs, 1))
            values[:, 3] = np.nan  # a document to skip
            for metric in ("AUC", "p@1", "p@5"):
                add(dataset, system, "test", metric, values, closed)
            for copy, of in COPIES.get(dataset, {}).items():
                if of == system:
                    add(dataset, copy, "test", "AUC", values, closed)
            if level > -16 and not closed:
                noisy = 0.003 * rng.normal(size=(runs, EPOCH_COUNT))
                curve = np.geomspace(1, 0.001, EPOCH_COUNT) + noisy
                curve += 1e-5 * len(rows)  # a later system is worse in both
                add(dataset, system, EPOCHS, "dev_loss", np.sort(curve)[:, ::-1], closed)
                add(dataset, system, EPOCHS, "dev_AUC", 80 - rising * 30 * curve, closed)
        if faster is not None:
            dc = 10 + 0.1 * rng.normal(size=(1, 40))
            add(dataset, STEP_TIME, EPOCHS, "ms of DC", dc)
            add(dataset, STEP_TIME, EPOCHS, "ms of AP", dc * (1 - faster / 100))
    head = {"seeds": list(range(seeds)), "tier": "world", "paper": "links"}
    return evidence_of(rows, head)


@pytest.fixture(scope="module")
def usual():
    return planted()


def verdict(name, evidence):
    return assess(CLAIM[name], evidence)


@pytest.mark.parametrize("name", CLAIM)
def test_what_the_paper_says_is_supported_where_it_is_planted(usual, name):
    judged = verdict(name, usual)
    assert set(judged.part_verdicts.values()) == {"supported"}, (judged.parts, judged.why)


def every(systems, more, dataset=""):
    return [(dataset, system, more) for system in systems]


# What the claims of `claims.py` need, and the verdicts on their parts; the ledger holds the
# contrasts of `claims.yaml`.
OTHERWISE = [
    ("C1", {"plus": every(["Co-occurrence"], 22)}, "supported"),  # it is not the paper's
    ("C1a", {"plus": every(["Co-occurrence"], 22)}, "opposite"),
    ("C4", {"plus": every(["TK+½k", "AP+½k"], -4)}, "opposite"),
    ("C4", {"plus": every(["TK+½k", "AP+½k"], -4, "organic")}, "supported"),  # not organic ones
    ("C5", {"plus": [("organic", "TK", 20)]}, "supported, opposite"),  # there TK is not DC
    ("C5", {"sets": ("coco", "story")}, "this tier has no organic documents"),
    ("C6", {"plus": every(["AP"], 25, "story")}, "supported, opposite"),  # one order holds
    ("C6", {"plus": [*every(["AP"], 25, "story"), *every(["AP"], -25, "coco")]}, "opposite"),
    ("C6", {"sets": ("coco", "organic")}, "this run has nothing to compare"),
    ("C7", {"rising": -1.0}, "opposite"),
    ("C7", {"seeds": 1}, "one seed has no spread"),
    ("C7b", {"rising": -1.0}, "opposite"),
    ("C8", {"difficulty": 0.0, "slopes": (0, 0), "noise": 3.0, "content": 0.0}, "opposite"),
    ("C8b", {"noise": 5.0, "organic_noise": 0.5}, "opposite"),
    ("C8b", {"organic_noise": 0.5}, "negligible"),
    ("C8b", {"sets": ("coco",)}, "this tier has no organic documents"),
    ("C9", {"slopes": (-4, -2)}, "opposite"),
    ("C9", {"sets": ("coco", "organic")}, "this run has nothing to compare"),
    ("C9b", {"slopes": (2, 4)}, "opposite"),
    ("C12", {"faster": -40.0}, "opposite"),
    ("C12", {"faster": None}, "no step was timed"),
    ("H1", {"plus": every(["DC", "TK", "TK+½k", "AP", "AP+½k"], -6)}, "opposite"),  # 9 are not 10
    ("H4", {"content": 0.0}, "opposite"),
    ("H5", {"content": 0.0}, "supported, negligible, undecided"),
    ("H4", {"content": None}, "no content of documents was recorded"),
    ("H4", {"sets": ("coco",)}, "this tier has no organic documents"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how", "wanted"), OTHERWISE, ids=[f"{o[0]}-{o[2]}" for o in OTHERWISE]
)
def test_what_is_planted_otherwise_is_found_otherwise(name, how, wanted):
    judged = verdict(name, planted(**how))
    if wanted.split(", ")[0] in SIGNS:
        kinds = [kind for kind in SIGNS if kind in judged.part_verdicts.values()]
        assert ", ".join(kinds) == wanted, (judged.parts, judged.why)
    else:
        assert (judged.verdict, judged.why) == ("not tested", wanted)


def test_a_claim_has_a_part_for_each_that_it_names_and_steps_are_averaged(usual):
    assert len(verdict("C4", usual).parts) == 8  # four data sets, TK and AP
    assert len(verdict("C9", usual).parts) == 6  # three data sets, images and texts
    assert set(verdict("H1", usual).parts) == {"DC", "TK+½k", "AP", "AP+½k"}
    saved = []
    for name in LEVELS:
        dc, ap = (usual.curves(name, STEP_TIME, f"ms of {s}")[0] for s in ("DC", "AP"))
        saved.append((100 * (dc - ap) / np.median(dc)).mean())
    [shorter] = verdict("C12", usual).parts.values()
    assert shorter.effect == pytest.approx(np.mean(saved))


# --- Documents left out ------------------------------------------------------------------------


def test_trainings_agree_as_spearman_has_it_and_documents_and_seeds_both_count(usual):
    sevenths = usual.series.cluster.map(lambda clusters: clusters % 7)
    evidence = replace(usual, series=usual.series.assign(cluster=sevenths))
    x, y = (evidence.values("story", system, "AUC") for system in ("DC", "AP"))
    scored = ~np.isnan(x[0])
    x, y, cluster = x[:, scored], y[:, scored], evidence.clusters("story")[scored]

    def rho(items):
        return np.array(
            [spearmanr(a[items], b[items]).statistic for a, b in zip(x, y, strict=True)]
        )

    complete = rho(slice(None))
    agreement = agreement_of_trainings(evidence, "story")
    assert agreement.effect == pytest.approx(complete.mean())
    left = np.array([rho(cluster != c) for c in range(7)])
    of_documents, of_seeds = 6 * np.var(left.mean(axis=1)), complete.var(ddof=1) / SEEDS
    assert agreement.se**2 == pytest.approx(of_documents + of_seeds)
    of_seed = evidence.series[evidence.series.seed.isin([2, NO_SEED])]
    alone = agreement_of_trainings(Evidence(of_seed, {}), "story")  # says nothing about seeds
    assert alone.effect == pytest.approx(complete[2])
    assert alone.se**2 == pytest.approx(6 * np.var(left[:, 2]))


def test_explained_variance_is_that_of_least_squares_without_each_group(usual):
    names = ("image spread", "text spread", "image content 0")
    x, y, clusters = difficulty(usual, "organic", names)
    group, y = pd.factorize(clusters)[0] % claims.MOST_GROUPS, y.mean(axis=0)
    adjusted = [
        100 * OLS(y[counted], add_constant(x[counted])).fit().rsquared_adj
        for counted in (group != left_out for left_out in range(-1, group.max() + 1))
    ]
    found = claims.explained(usual, "organic", {names: 1})
    assert found.effect == pytest.approx(adjusted[0])
    assert found.se**2 == pytest.approx(group.max() * np.var(adjusted[1:]))


def test_what_content_adds_is_held_against_spread_alone(usual):
    [added] = verdict("H4", usual).parts.values()
    table = show.difficulty(usual, ["organic"])["adjusted R²"]
    spread, both = (table["organic", n] for n in ("spread", "spread + content"))
    assert added.effect == pytest.approx(both - 2 * spread, abs=0.2)  # the table is rounded
    lead = verdict("C9b", usual).parts["story"]
    x, y, _ = difficulty(usual, "story", SPREADS)
    image, text = (OLS(y.mean(axis=0), add_constant(side)).fit().rsquared_adj for side in x.T)
    assert lead.effect == pytest.approx(100 * (image - text))
