"""Figures of Clue and CITE that may be shown without their files: counted once, kept, checked.

`tables.json` holds what `count` gave, marked as recorded; a test counts again where the files are.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

from mmlib.data import cite, clue
from mmlib.papers.coherence import silver
from mmlib.papers.coherence.data import recipes
from mmlib.papers.coherence.probes import average_precision


def count(clue_folder: Path, cite_folder: Path) -> dict[str, pd.DataFrame]:
    """Every recorded table, anew from the files. Raises DataError for missing or damaged ones."""
    train, test = clue.load("train", clue_folder), clue.load("test", clue_folder)
    report = clue.report(clue_folder)
    human = train.labels[train.human].mean(axis=0)
    rates = pd.DataFrame(report["rates"])
    rates.loc["train, people's captions"] = 100 * human
    counts = pd.concat([report["leaks"], report["words"]]).astype(float)
    pairs = cite.load(cite_folder)
    own = cite.report(cite_folder)
    return {
        "recorded_clue_rates": rates.T.round(2),
        "recorded_clue_leaks": counts.to_frame("count").round(2),
        "recorded_clue_text": clue_text(train, test),
        "recorded_cite": pd.DataFrame({
            "percent_positive": (100 * pairs.labels.mean(axis=0)).round(2), "AP": cite_text(pairs),
        }, index=list(pairs.relations)),
        "recorded_cite_repeats": own["repeats"].astype(float).to_frame("count"),
    }  # fmt: skip


def clue_text(train: clue.CluePairs, test: clue.CluePairs) -> pd.DataFrame:
    """AP with its interval over images, and chance, on all test rows and on the clean ones."""
    learnt = silver.RelationClassifier(train.relations, silver._fit(train), np.zeros(6))
    clean, _ = clue.clean_rows(test, train)
    tables = {"all": test, "clean": test.take(clean)}
    found = {name: silver.average_precisions(learnt, some) for name, some in tables.items()}
    columns = ["AP", "low", "high", "chance"]
    return pd.concat(
        [own[columns].add_suffix(f", {name} rows") for name, own in found.items()], axis=1
    ).round(3)


def cite_text(pairs: Any) -> np.ndarray:
    """(C,) AP of relations read off CITE's texts, five folds that share no recipe."""
    groups = np.unique(recipes(pairs), return_inverse=True)[1]
    scores = np.empty(pairs.labels.shape)
    for seen, held in GroupKFold(5).split(groups, groups=groups):
        learnt = silver._fit(pairs.take(seen))
        scores[held] = silver._predict(learnt, [pairs.texts[i] for i in held])
    own = zip(pairs.labels.T, scores.T, strict=True)
    return np.array([average_precision(truth, score) for truth, score in own]).round(3)
