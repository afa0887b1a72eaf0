"""Diagnostics of paper 04: what makes a document hard (Section 4.1), and what a step costs."""

import time

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import PCA

from mmlib.core.jobs import Answer, Job, Run
from mmlib.papers.links.baselines import means, spread, word_shares
from mmlib.papers.links.batches import Arrays, Batches
from mmlib.papers.links.method import LinkModel, batch_loss
from mmlib.papers.links.systems import SYSTEMS, Settings

REPEATS, WARM_UP = 40, 3  # steps that are timed, and steps before them


def describe_documents(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """The predictors of `difficulty_predictors`, a value a test document."""
    columns = difficulty_predictors(arrays)
    return Answer({"test": {name: columns[name].to_numpy() for name in columns}})


def difficulty_predictors(arrays: Arrays, components: int = 20) -> pd.DataFrame:
    """Spread and content of every test document, from vectors that no system has trained.

    A row a document: "image spread", "text spread", and "image content 0" and so on: mean vectors
    reduced by a PCA fitted on training documents. Texts are mean word vectors.
    """
    train, test = arrays.splits["train"], arrays.splits["test"]
    columns = {}
    for side, vectors, training, documents in (
        ("image", arrays.features, train.images, test.images),
        ("text", word_shares(arrays) @ arrays.words, train.sentences, test.sentences),
    ):
        columns[f"{side} spread"] = np.array([spread(vectors[rows]) for rows in documents])
        centres = means(vectors, training)
        reduce = PCA(min(components, *centres.shape), random_state=0).fit(centres)
        for i, column in enumerate(reduce.transform(means(vectors, documents)).T):
            columns[f"{side} content {i}"] = column
    return pd.DataFrame(columns)


def time_steps(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Milliseconds of training steps of DC and AP on one batch, the two taking turns."""
    settings, device = Settings(**job.settings), run.device
    model = LinkModel(torch.tensor(arrays.words), arrays.features.shape[1], settings).to(device)
    rows = []
    for _ in range(WARM_UP + REPEATS):
        row = {}
        for name in ("DC", "AP"):
            batch = Batches(arrays, "train", device).batch(range(SYSTEMS[name].b + 1))
            started = time.perf_counter()
            batch_loss(model, batch, SYSTEMS[name], settings, "mean").backward()
            model.zero_grad()
            if torch.device(device).type == "cuda":
                torch.cuda.synchronize()
            row[f"ms of {name}"] = 1000 * (time.perf_counter() - started)
        rows.append(row)
    return Answer({}, rows[WARM_UP:])
