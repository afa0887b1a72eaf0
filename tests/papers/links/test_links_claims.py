"""The claims of paper 04 on made-up evidence: what is planted is what is found."""

import numpy as np
import pytest
from made_up_evidence import evidence_of
from scipy.stats import spearmanr
from statsmodels.api import OLS, add_constant

from mmlib.core.claims import DECIDED, assess
from mmlib.core.evidence import EPOCHS, NO_SEED, Evidence
from mmlib.papers.links import show
from mmlib.papers.links.claims import (
    CLAIMS,
    agreement_of_trainings,
    auc,
    explained,
    same_as,
)
from mmlib.papers.links.method import METRICS
from mmlib.papers.links.run import DOCUMENTS as DESCRIBED
from mmlib.papers.links.run import STEP_TIME

CLAIM = {claim.id: claim for claim in CLAIMS}
SEEDS, DOCUMENTS, EPOCH_COUNT = 6, 120, 8
LEVELS = {"coco": 95.0, "cohesive": 82.0, "story": 72.0, "stress": 92.0, "organic": 76.0}
DETECTION = "Obj Detect (best K on test)"
SYSTEMS = {
    "Random": -30.0, "Obj Detect": -26.0, DETECTION: -25.0, "Co-occurrence": -18.0,
    "NoStruct": -15.0, "DC": 0.0,
    "TK": 0.0, "TK+½k": -0.1, "AP": 0.0, "AP+½k": -0.1, "Supervised ridge": 2.0,
}  # fmt: skip
VARIANTS = {
    "DC, hard negatives": 3.0, "AP, hard negatives": 3.0, "AP, b = 20": 0.1, "AP, b = 30": 0.1,
}  # fmt: skip
ALL_STRUCTURED = ("DC", "TK", "TK+½k", "AP", "AP+½k")


def planted(
    plus=(), without=(), seeds=SEEDS, sets=tuple(LEVELS), difficulty=4.0, slopes=(4.0, 2.0),
    content=6.0, rising=1.0, faster=40.0, variants=True, timed=True, noise=0.5, organic_noise=5.0,
    metrics=("AUC", "p@1"),
) -> Evidence:  # fmt: skip
    """Evidence in which everything holds that the paper says, but for what the arguments change.

    plus: (data set or "", system, AUC more); without: systems left out; the spread of the AUC over
    documents that all systems share, its slopes on the spread of images and of texts and, of
    organic documents, on their content (None: none recorded), the sign of the curves' relation, by
    how many percent AP is faster, and the noise of each system's documents, organic ones apart.
    """
    rng, rows = np.random.default_rng(1), []

    def add(dataset, system, split, metric, values, closed=True):
        for number, row in enumerate(np.atleast_2d(values)):
            key = dataset, system, NO_SEED if closed else number, split, metric
            rows.append((*key, row, np.arange(len(row))))

    for dataset in sets:
        spreads = rng.normal(size=(2, DOCUMENTS))
        hard = difficulty * rng.normal(size=DOCUMENTS) + np.array(slopes) @ spreads
        add(dataset, DESCRIBED, "test", "image spread", spreads[0])
        add(dataset, DESCRIBED, "test", "text spread", spreads[1])
        own_noise = noise
        if dataset == "organic":
            own_noise, themes = organic_noise, rng.normal(size=DOCUMENTS)
            hard = hard + (content or 0) * themes
            if content is not None:
                add(dataset, DESCRIBED, "test", "image content 0", themes)
        own = {**SYSTEMS, **(VARIANTS if variants and dataset == "story" else {})}
        for system, level in own.items():
            if system in without or (system == "TK" and dataset != "organic"):
                continue
            more = sum(d for name, s, d in plus if name in ("", dataset) and s == system)
            more += 3.0 * (system == "AP" and dataset == "organic")
            closed = system in ("Obj Detect", DETECTION, "Co-occurrence", "Supervised ridge")
            runs = 1 if closed else seeds
            values = LEVELS[dataset] + level + more + hard
            values = values + own_noise * rng.normal(size=(runs, DOCUMENTS))
            values = values + 0.2 * rng.normal(size=(runs, 1))
            values[:, 3] = np.nan  # a document to skip
            for metric in metrics:
                add(dataset, system, "test", metric, values, closed)
            if level > -16 and not closed:
                curve = np.geomspace(1, 0.001, EPOCH_COUNT) + 0.003 * rng.normal(
                    size=(runs, EPOCH_COUNT)
                )
                add(dataset, system, EPOCHS, "dev_loss", np.sort(curve)[:, ::-1], closed)
                add(dataset, system, EPOCHS, "dev_AUC", 80 - rising * 30 * curve, closed)
        if timed:
            dc = 10 + 0.1 * rng.normal(size=(1, 40))
            add(dataset, STEP_TIME, EPOCHS, "ms of DC", dc)
            add(dataset, STEP_TIME, EPOCHS, "ms of AP", dc * (1 - faster / 100))
    head = {"seeds": list(range(seeds)), "tier": "world", "paper": "links"}
    return evidence_of(rows, head)


@pytest.fixture(scope="module")
def usual():
    return planted(metrics=METRICS)


def verdict(name, evidence):
    return assess(CLAIM[name], evidence, evidence.seeds)


@pytest.mark.parametrize("name", CLAIM)
def test_what_the_paper_says_is_supported_where_it_is_planted(usual, name):
    found = verdict(name, usual)
    assert found.verdict == "supported", (found.parts, found.why)
    assert found.parts


def every(systems, more, dataset=""):
    return [(dataset, system, more) for system in systems]


# The data sets that these claims need; the others are tested on all five.
SETS = {
    "C3": ("coco", "stress"), "C5": ("organic",), "C6": ("coco", "cohesive", "story"),
    "H1": ("coco", "cohesive"), "H2": ("organic",), "H3": ("stress",), "H4": ("organic",),
}  # fmt: skip
OTHERWISE = [
    ("C1", {"plus": every(["Co-occurrence"], 22)}, "supported"),  # it is not the paper's
    ("C1a", {"plus": every(["Co-occurrence"], 22)}, "opposite"),
    ("C2", {"plus": [(d, "NoStruct", 55.0 - LEVELS[d]) for d in LEVELS]}, "opposite"),
    ("C3", {"plus": [("stress", "DC", -20)]}, "opposite"),
    ("C3", {"sets": ("coco", "story")}, "this tier has no stress documents"),
    ("C4", {"plus": every(["TK+½k", "AP+½k"], -4)}, "opposite"),
    ("C4", {"plus": every(["TK+½k", "AP+½k"], -4, "organic")}, "supported"),  # not organic ones
    ("C5", {"plus": [("organic", "AP", -8)]}, "opposite"),
    ("C5", {"sets": ("coco", "story")}, "this tier has no organic documents"),
    ("C6", {"plus": every(["AP"], 25, "story")}, "mixed"),  # one order holds, the other does not
    ("C6", {"plus": [*every(["AP"], 25, "story"), *every(["AP"], -25, "coco")]}, "opposite"),
    ("C6", {"sets": ("coco", "organic")}, "this run has nothing to compare"),
    ("C7", {"rising": -1.0}, "opposite"),
    ("C7", {"seeds": 1}, "one seed has no spread"),
    ("C8", {"difficulty": 0.0, "slopes": (0, 0), "noise": 3.0}, "opposite"),
    ("C8b", {"noise": 5.0, "organic_noise": 0.5}, "opposite"),
    ("C8b", {"organic_noise": 0.5}, "negligible"),
    ("C9", {"slopes": (-4, -2)}, "opposite"),
    ("C9", {"sets": ("coco", "organic")}, "this run has nothing to compare"),
    ("C9b", {"slopes": (2, 4)}, "opposite"),
    ("C10", {"plus": every(["DC, hard negatives", "AP, hard negatives"], -6)}, "opposite"),
    ("C10", {"variants": False}, "no variant was trained"),
    ("C11", {"plus": every(["AP, b = 20", "AP, b = 30"], 5)}, "opposite"),
    ("C12", {"faster": -40.0}, "opposite"),
    ("C12", {"timed": False}, "no step was timed"),
    ("H1", {"plus": every(ALL_STRUCTURED, -6)}, "opposite"),  # nine points are not ten
    ("H1", {"sets": ("coco",)}, "this tier has no captions of one album"),
    ("H2", {"plus": every([DETECTION], 15)}, "opposite"),
    ("H2", {"without": [DETECTION]}, "no objects were detected in pictures of organic documents"),
    ("H3", {"plus": every(["AP"], -10)}, "opposite"),
    ("H4", {"content": 0.0}, "opposite"),
    ("H4", {"content": None}, "no content of documents was recorded"),
    ("H4", {"sets": ("coco",)}, "this tier has no organic documents"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how", "wanted"), OTHERWISE, ids=[f"{o[0]}-{o[2]}" for o in OTHERWISE]
)
def test_what_is_planted_otherwise_is_found_otherwise(name, how, wanted):
    found = verdict(name, planted(**{"sets": SETS.get(name, tuple(LEVELS)), **how}))
    if wanted in (*DECIDED, "undecided"):
        assert found.verdict == wanted, (found.parts, found.why)
    else:
        assert (found.verdict, found.why) == ("not tested", wanted)


def test_hard_negatives_are_compared_whichever_of_the_two_is_the_variant(usual):
    """Where the main systems have hard negatives, the variants have averaged ones."""
    turned = {f"{one}, hard negatives": f"{one}, averaged negatives" for one in ("DC", "AP")}
    series = usual.series.replace({"system": turned})
    found = verdict("C10", Evidence(series, usual.header))
    assert found.verdict == "opposite"
    (turned_gap, gap) = (
        [p.effect for p in v.parts.values()] for v in (found, verdict("C10", usual))
    )
    assert turned_gap == pytest.approx([-effect for effect in gap])


def test_a_claim_over_every_part_has_a_part_for_each_that_it_names(usual):
    assert len(verdict("C4", usual).parts) == 8  # four data sets, TK and AP
    assert len(verdict("C9", usual).parts) == 6  # three data sets, images and texts
    assert set(verdict("C11", usual).parts) == {"story, b = 20", "story, b = 30"}
    assert set(verdict("H1", usual).parts) == {"DC", "TK+½k", "AP", "AP+½k"}


def test_steps_are_averaged_over_data_sets(usual):
    [found] = verdict("C12", usual).parts.values()
    saved = []
    for name in LEVELS:
        dc, ap = (usual.curves(name, STEP_TIME, f"ms of {s}")[0] for s in ("DC", "AP"))
        saved.append((100 * (dc - ap) / np.median(dc)).mean())
    assert found.effect == pytest.approx(np.mean(saved))


# --- Documents left out ------------------------------------------------------------------------


def clustered(evidence, dataset, clusters):
    """The same evidence, its documents in fewer clusters."""
    series = evidence.series[evidence.series.dataset == dataset].copy()
    series["cluster"] %= clusters
    return Evidence(series, evidence.header)


def test_trainings_agree_as_spearman_has_it_and_documents_and_seeds_both_count(usual):
    evidence = clustered(usual, "story", 7)
    x, y = (evidence.values("story", system, "AUC") for system in ("DC", "AP"))
    scored = ~np.isnan(x[0])
    x, y, cluster = x[:, scored], y[:, scored], evidence.clusters("story")[scored]

    def rho(kept):
        return np.array([spearmanr(a[kept], b[kept]).statistic for a, b in zip(x, y, strict=True)])

    every_document = rho(np.full(len(cluster), True))
    found = agreement_of_trainings(evidence, "story", evidence.seeds)
    assert found.effect == pytest.approx(every_document.mean())
    left = [rho(cluster != c).mean() for c in range(7)]
    of_documents, of_seeds = 6 * np.var(left), every_document.var(ddof=1) / SEEDS
    assert found.se**2 == pytest.approx(of_documents + of_seeds)
    alone = agreement_of_trainings(evidence, "story", [2])  # a seed says nothing about seeds
    assert alone.effect == pytest.approx(every_document[2])
    left = [rho(cluster != c)[2] for c in range(7)]
    assert alone.se**2 == pytest.approx(6 * np.var(left))


def test_a_pair_of_trainings_agrees_less_than_means_over_seeds():
    evidence = planted(noise=4.0, sets=("story",))
    table = show.agreement(evidence).loc["story"]
    found = agreement_of_trainings(evidence, "story", evidence.seeds).effect
    assert found == pytest.approx(table["DC–AP, one seed"], abs=0.005)
    assert found < table["DC–AP"] - 0.1


def test_explained_variance_is_that_of_least_squares_without_each_group():
    rng = np.random.default_rng(4)
    x, group = rng.normal(size=(90, 5)), rng.integers(6, size=90)
    y = 70 + x @ [3.0, 0, 0, -1, 0] + rng.normal(size=90)
    found = explained(x, y, group)
    for estimate, left_out in zip(found, range(-1, 6), strict=True):
        kept = group != left_out
        fitted = OLS(y[kept], add_constant(x[kept])).fit()
        assert estimate == pytest.approx(100 * fitted.rsquared_adj)


def test_what_content_adds_is_held_against_spread_alone(usual):
    [found] = verdict("H4", usual).parts.values()
    table = show.difficulty(usual, ["organic"])["adjusted R²"]
    spread, both = (table["organic", n] for n in ("spread", "spread + content"))
    assert found.effect == pytest.approx(both - 2 * spread, abs=0.2)  # the table is rounded
    story = usual.series[usual.series.dataset == "story"]
    [lead] = verdict("C9b", Evidence(story, usual.header)).parts.values()
    x, y = show.predictors(usual, "story"), usual.values("story", "AP", "AUC").mean(axis=0)
    image, text = (
        OLS(y, add_constant(x[name].to_numpy()), missing="drop").fit().rsquared_adj
        for name in ("image spread", "text spread")
    )
    assert lead.effect == pytest.approx(100 * (image - text))


def test_tk_stands_for_dc_where_the_two_are_the_same(usual):
    assert same_as(usual, "coco", "TK") == "DC"
    assert same_as(usual, "organic", "TK") == "TK"
    found = auc(usual, "coco", ["TK", "DC"])
    assert np.array_equal(found, usual.values("coco", "DC", "AUC"), equal_nan=True)
