"""Where labelled pairs lie among the controlled ones: what decides whether relations can help."""

from dataclasses import asdict, replace

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from mmlib.core.jobs import Job
from mmlib.papers.coherence.batches import Arrays, Split
from mmlib.papers.coherence.metrics import mean_log_rank
from mmlib.papers.coherence.probes import WORDS, occurring, probe
from mmlib.papers.coherence.systems import CMCA, Settings
from mmlib.papers.coherence.train import encode, train


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


def relations_decide(arrays: Arrays, settings: Settings, seed: int = 0) -> float:
    """How many log2 ranks CMCA gains, on test pairs, where texts name the relations that hold.

    It is what knowing the relations is worth to a system that need not learn them: near 0 where
    they do not decide what is shown of a text, or where its words tell enough. Two trainings of
    one seed. Pictures have to be there.
    """
    job = Job("coherence", "placement", "", asdict(CMCA), seed, asdict(settings))
    plain, told = (
        mean_log_rank(encode(train(job, data)[0], data.splits["test"]).theta)
        for data in (arrays, naming_relations(arrays))
    )
    return plain - told


def naming_relations(arrays: Arrays) -> Arrays:
    """The same pairs; each text begins with a word of its own for each relation that holds."""
    first = len(arrays.words)
    fresh = np.random.default_rng(0).normal(size=(len(arrays.relations), arrays.words.shape[1]))
    scale = arrays.words[2:].std()  # of the words that there are

    def split(pairs: Split) -> Split:
        texts = [
            torch.from_numpy(np.append(first + np.flatnonzero(holds), row[:length]))
            for holds, row, length in zip(pairs.labels, pairs.ids, pairs.lengths, strict=True)
        ]
        lengths = np.array([len(text) for text in texts])
        return replace(pairs, ids=pad_sequence(texts, batch_first=True).numpy(), lengths=lengths)

    words = np.concatenate([arrays.words, scale * fresh]).astype(np.float32)
    splits = {name: split(pairs) for name, pairs in arrays.splits.items()}
    return replace(arrays, splits=splits, words=words)
