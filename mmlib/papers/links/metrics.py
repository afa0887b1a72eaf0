"""The metrics of paper 04 (Section 4): AUC, p@1 and p@5 of the links of each document."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from mmlib.core.ranking import chance_among_first
from mmlib.papers.links.batches import Split

METRICS = ("AUC", "p@1", "p@5")


def link_metrics(scores: np.ndarray, links: np.ndarray) -> dict[str, float] | None:
    """AUC, p@1 and p@5 of one document in percent; None where every cell or no cell is a link.

    scores, links (n, m). AUC counts a tie as half. p@C is the share of links among the C highest
    cells, the expected one where equal scores leave open which these are, or among all cells where
    there are fewer; it is not corrected for documents with fewer than C links.
    Raises ValueError where the shapes differ.
    """
    if scores.shape != links.shape:
        raise ValueError(f"scores are {scores.shape} but links are {links.shape}")
    flat, true = scores.ravel(), links.ravel().astype(bool)
    positives, negatives = int(true.sum()), int((~true).sum())
    if not positives or not negatives:
        return None
    # By rank sums: scikit-learn's roc_auc_score is far slower on so small a matrix.
    above = rankdata(flat)[true].sum() - positives * (positives + 1) / 2
    figures = {"AUC": 100 * float(above) / (positives * negatives)}
    for c in (1, 5):
        figures[f"p@{c}"] = 100 * float(chance_among_first(flat, c)[true].sum()) / min(c, len(flat))
    return figures


def evaluate(matrices: Sequence[np.ndarray], split: Split) -> dict[str, np.ndarray]:
    """Metric -> (documents,), NaN for a document that has to be skipped.

    The score of a data set is the mean over its documents (macro), nothing is pooled.
    Raises ValueError on a corpus without labels.
    """
    if split.links is None:
        raise ValueError("this corpus has no link labels: there is nothing to evaluate against")
    scored = [link_metrics(m, y) for m, y in zip(matrices, split.links, strict=True)]
    return {name: np.array([s[name] if s else np.nan for s in scored]) for name in METRICS}
