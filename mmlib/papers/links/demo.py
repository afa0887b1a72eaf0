"""One training of paper 04 as its notebook shows it: what it finds in test documents."""

from dataclasses import asdict, dataclass
from functools import cache, cached_property

import numpy as np
import torch

from mmlib.core.fit import seed_everything
from mmlib.core.jobs import History, Job, Run
from mmlib.papers.links import data
from mmlib.papers.links.batches import Arrays
from mmlib.papers.links.data.documents import Corpus
from mmlib.papers.links.method import LinkModel, cosine_matrices
from mmlib.papers.links.metrics import evaluate
from mmlib.papers.links.systems import PAPER, Settings, System, budget, trained_systems
from mmlib.papers.links.train import dev_evaluation, train

READABLE = range(4, 7)  # sentences of a document that is shown


@dataclass(frozen=True, eq=False)
class Demo:
    """A training, its documents, and the cosines (n, m) of its test documents.

    history: the figures of each epoch; the first are those of the untrained model.
    """

    corpus: Corpus
    arrays: Arrays
    settings: Settings
    system: System
    untrained: LinkModel
    model: LinkModel
    history: History
    before: list[np.ndarray]
    after: list[np.ndarray]

    @cached_property
    def auc(self) -> np.ndarray:
        """The AUC of each test document after training, (documents,), in percent."""
        return evaluate(self.after, self.arrays.splits["test"])["AUC"]

    def nearest(self, target: float) -> int:
        """The first test document whose AUC is nearest to `target`, of those short enough to show.

        Where none has four to six sentences, all documents are candidates.
        """
        short = np.array([len(d.sentences) in READABLE for d in self.corpus.test])
        return int(np.nanargmin(np.where(short | ~short.any(), np.abs(self.auc - target), np.nan)))


@cache
def documents(tier: str, dataset: str) -> tuple[Corpus, Settings, Arrays]:
    """The documents of a data set, with its budget and as arrays; each is drawn or read once.

    Raises what `data.load_study` raises.
    """
    corpus, settings = data.load_study(tier, [dataset]).corpora[dataset], budget(tier, dataset)
    arrays = data.prepare(corpus, settings, data.word_vectors(corpus, settings))
    return corpus, settings, arrays


@cache
def train_one(tier: str, dataset: str, system: str, seed: int = 0, device: str = "cpu") -> Demo:
    """Train a system on a data set, once; the figures are those of the recorded job of that seed.

    Raises StopIteration for a system that is not trained there, and what `documents` raises.
    """
    corpus, settings, arrays = documents(tier, dataset)
    chosen = next(s for s in trained_systems(tier, dataset) if s.system == system)
    seed_everything(seed)  # as `train` does, so that this is where it starts
    words, width = torch.tensor(arrays.words), arrays.features.shape[1]
    untrained = LinkModel(words, width, settings).eval()
    with torch.no_grad():
        start = dev_evaluation(untrained, arrays, chosen, settings, "cpu")()
    job = Job(PAPER, tier, dataset, asdict(chosen), seed, asdict(settings))
    model, history = train(job, arrays, Run(device))
    before = cosine_matrices(untrained, arrays, "test", "cpu")
    after = cosine_matrices(model, arrays, "test", device)
    return Demo(
        corpus, arrays, settings, chosen, untrained, model, [start, *history], before, after
    )
