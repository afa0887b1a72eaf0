"""The jobs of paper 02: train a judge or a retriever, and measure it; mine; score baselines."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mmlib.core.engine import handed_over
from mmlib.core.jobs import NO_SEED, Answer, Job, Run, Stage
from mmlib.core.ranking import chance_among_first
from mmlib.papers.entailment.data.arrays import Arrays, Labelled
from mmlib.papers.entailment.method.calibration import baseline_margin, rounded
from mmlib.papers.entailment.method.metrics import measured, rarity
from mmlib.papers.entailment.run import judge, retriever, systems
from mmlib.papers.entailment.run.systems import BUDGETS, ORIGINS, Judge, Variant

GRADED = 100  # test images whose best texts the judge looks at


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train a judge and score every test pair.

    Values by pair of each test: the margins of `judge.calibrations`. A pair is called entailed
    where its margin is 0 or more. The weights are handed over to `judge.trained`.
    """
    began = time.process_time()
    model, history = judge.train(job, arrays, run)
    handed_over(judge.train, job, arrays, run, model.state_dict)
    images = judge.images_of(Judge(**job.system), arrays)

    def by_branch(pairs: Labelled) -> dict[str, np.ndarray]:
        return judge.scores(model, arrays.encoded(pairs, model.settings), images, run.device)

    maps = judge.calibrations(model, arrays, by_branch(arrays.calibration))
    values = {}
    for name, pairs in arrays.tests.items():
        odds = by_branch(pairs)
        values[name] = {
            margin: rounded(calibration.margin(odds[branch], pairs.given))
            for margin, (branch, calibration) in maps.items()
        }
    return Answer(values, history, time.process_time() - began)


def score_baseline(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Score every test pair without a network; values as of `train_and_score`."""
    began, name, seed = time.process_time(), job.system["baseline"], max(job.seed, 0)
    values = {
        test: {"margin": rounded(100 * baseline_margin(arrays, name, pairs.given, seed)) / 100}
        for test, pairs in arrays.tests.items()
    }
    return Answer(values, seconds=time.process_time() - began)


def describe_pairs(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Of every test pair: "label", "weight", and "kind", the number of its origin in `ORIGINS`.

    Of every test image "foreign true": captions of other images that are true of it, by logic, or
    by people, who saw one caption of each image, as many times as it has; by people also "own
    rejected", whether they rejected its own caption, in percent.
    """
    values = {}
    for name, pairs in arrays.tests.items():
        origin = [float(ORIGINS.index(about)) for about in pairs.about] or [-1.0] * len(pairs)
        label = pairs.samples.label.astype(float)
        values[name] = {"label": label, "weight": pairs.weights, "kind": np.array(origin)}
    test, people = arrays.splits["test"], arrays.people
    if test.fits is not None:
        captions = np.bincount(test.image_of, minlength=len(test))
        values["test"] = {"foreign true": (test.fits.sum(axis=1) - captions).astype(float)}
    elif people is not None:
        yes = np.bincount(people.pairs[people.labels == 1, 0], minlength=len(test)).astype(float)
        values["test"] = {"foreign true": people.each * yes, "own rejected": people.rejected}
    return Answer(values)


def train_and_measure(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Stage A or B of one retriever, and what it finds on test: see `metrics.measured`.

    Where the judge is asked, also E@10 and E@30 by it, of the first `GRADED` images, NaN for
    others; an image's own captions count without asking.
    """
    began, variant = time.process_time(), Variant(**job.system)
    if variant.use == "start":
        model, history = retriever.stage_a(job, arrays, run)
        handed_over(retriever.stage_a, job, arrays, run, model.state_dict)
    else:
        model, history = retriever.stage_b(job, arrays, run)
    test, top = arrays.splits["test"], retriever.TOP
    by_image, by_text = model.to(run.device).rank(*test.tensors(arrays.images, run.device))
    values = measured(by_image, by_text, test, arrays.people)
    if variant.scored_by_judge:
        few = min(GRADED, len(test))
        best = np.argsort(-by_image, axis=1, kind="stable")[:few, :top]
        right = test.image_of[best] == np.arange(few)[:, None]
        image, position = np.nonzero(~right)
        pairs = np.column_stack([image, best[image, position]])
        miner = retriever.miner_of(job, arrays, run)
        right[image, position] = miner("test", pairs) >= 0
        for k in (10, top):
            values[f"E@{k}, judge"] = np.full(len(test), np.nan)
            values[f"E@{k}, judge"][:few] = np.round(100 * right[:, :k].mean(axis=1), 2)
    return Answer({"test": values}, history, time.process_time() - began)


def mine(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Mine the training images with the seed's judge.

    Values by training image: "candidates", "mined" (called entailed); where the truth is known,
    "true" foreign captions at all, "candidates, true", "mined, true", and, of as many candidates as
    were mined but the best ones by a baseline, "overlap, true" and so on.
    """
    began, split = time.process_time(), arrays.splits["train"]
    pairs, margin = retriever.mined(job, arrays, run)
    given = arrays.pairs("train", pairs).given
    chosen = {"candidates": np.ones(len(pairs)), "mined": (margin >= 0).astype(float)}
    baselines = {"overlap": "overlap", "cosine": "cosine, best", "inputs": "regression"}
    for name, baseline in baselines.items():
        rivals = baseline_margin(arrays, baseline, given)
        chosen[name] = chance_among_first(rivals, int((margin >= 0).sum()))
    n, image = len(split), pairs[:, 0]
    values = {k: np.bincount(image, chosen[k], n) for k in ("candidates", "mined")}
    if split.fits is not None:
        truth = split.fits[pairs[:, 0], pairs[:, 1]]
        for name, share in chosen.items():
            values[f"{name}, true"] = np.bincount(image, share * truth, n)
        values["true"] = split.fits.sum(axis=1) - np.bincount(split.image_of, minlength=n)
    counts = {name: column.astype(float) for name, column in values.items()}
    return Answer({"mined": counts}, seconds=time.process_time() - began)


def rank_baseline(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Rank the test set without training; values as of `metrics.measured`.

    baseline: "random"; "shortest", the shortest captions for every image; "frozen", the retriever
    that judges start from; "truth", an oracle that puts true texts first, rare ones ahead. Raises
    ValueError for another one.
    """
    began, name, split = time.process_time(), job.system["baseline"], arrays.splits["test"]
    rng, size = np.random.default_rng([7, max(job.seed, 0)]), (len(split), len(split.texts))
    noise = rng.random(size, dtype=np.float32)
    if name == "random":
        scores = noise
    elif name == "shortest":
        scores = np.tile(-split.lengths.astype(np.float32), (len(split), 1))
    elif name == "frozen":
        scores = arrays.frozen.similarities(split.rows, split.texts)
    elif name == "truth" and split.fits is not None:
        scores = split.fits * (1 + rarity(split.fits)) + 1e-3 * noise
    else:
        raise ValueError(f"no baseline {name!r} here")
    values = measured(scores, scores, split, arrays.people)
    return Answer({"test": values}, seconds=time.process_time() - began)


def job(tier: str, dataset: str, system: Any, seed: int) -> Job:
    """A job; system: a dataclass or a row of columns."""
    columns = dict(system) if isinstance(system, Mapping) else asdict(system)
    return Job(systems.PAPER, tier, dataset, columns, seed, asdict(BUDGETS[dataset]))


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs, in an order in which later jobs find what earlier ones left."""

    def jobs(rows: Sequence[Any], job_seeds: Sequence[int] = seeds) -> list[Job]:
        return [job(tier, name, row, seed) for seed in job_seeds for name in data for row in rows]

    def baselines(rows: Sequence[Mapping[str, str]]) -> list[Job]:
        # All but the random one once, and that one for every seed.
        random = [row for row in rows if row["baseline"] == "random"]
        return jobs([row for row in rows if row not in random], [NO_SEED]) + jobs(random)

    rankings = [row for row in systems.RANKINGS if row["baseline"] != "truth" or tier == "world"]
    variants = systems.variants(tier)
    return [
        Stage(describe_pairs, jobs([{"system": systems.PAIRS}], [NO_SEED])),
        Stage(score_baseline, baselines(systems.BASELINES)),
        Stage(rank_baseline, baselines(rankings)),
        Stage(train_and_score, jobs(systems.judges(tier))),
        Stage(train_and_measure, jobs([row for row in variants if row.use == "start"])),
        Stage(mine, jobs([{"system": systems.MINING}])),
        Stage(train_and_measure, jobs([row for row in variants if row.use != "start"])),
    ]
