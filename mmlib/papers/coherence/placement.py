"""Where labelled pairs lie among the controlled ones: what decides whether relations can help."""

from mmlib.papers.coherence.batches import Arrays
from mmlib.papers.coherence.probes import WORDS, occurring, probe


def words_tell(arrays: Arrays) -> float:
    """How well a text's words tell its relations: area under the ROC curve, mean over relations.

    Of linear probes of which words occur, on test pairs. Relations that always or never hold in
    the test pairs do not count. No picture is needed.
    """
    from sklearn.metrics import roc_auc_score

    known, test = arrays.splits["train"], arrays.splits["test"]
    bags = [occurring(split, len(arrays.words)) for split in (known, test)]
    scores = probe(bags[0], known.labels, WORDS / len(known), bags[1])
    both = [0 < truth.sum() < len(truth) for truth in test.labels.T]
    return float(roc_auc_score(test.labels[:, both], scores[:, both]))
