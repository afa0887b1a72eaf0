"""A collection of photographs with labelled pairs: what Flickr8k and Flickr30K share."""

import hashlib
import sys
from collections.abc import Mapping

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmlib.core.engine import job_folder
from mmlib.core.entailment_pairs import Samples, joined
from mmlib.core.fit import seed_everything
from mmlib.core.paths import data_dir, write_atomic
from mmlib.core.records import CaptionedImages
from mmlib.core.source import source_hash
from mmlib.data import judgments
from mmlib.data.caption_pairs import caption_pairs
from mmlib.data.overlap import Weights
from mmlib.features.encoders import region_scale, standardised
from mmlib.features.words import TokenStates, Words
from mmlib.papers.entailment.batches import SPLITS, Arrays, Split
from mmlib.papers.entailment.data.study import (
    UNREAD,
    Study,
    labelled,
    opener,
    read_retriever,
    sentences_of,
    split_of,
    starts_of,
)
from mmlib.papers.entailment.inputs import frozen
from mmlib.papers.entailment.retrieval import train
from mmlib.papers.entailment.retrievers import build
from mmlib.papers.entailment.systems import Budget

# Of the training images: those of the retriever that judges start from, and those of judges; the
# rest is mined and retrained on.
SHARES = {"frozen": 2000, "judges": 1500}


def only_mme(samples: Samples) -> Samples:
    """Those of an image and a text."""
    return samples.take(np.flatnonzero(np.array(samples.kind) == "mme"))


def study_of(
    collections: Mapping[str, CaptionedImages], budget: Budget, seed: int,
    samples: dict[str, Samples], counts: Mapping[str, np.ndarray],
    merged: dict[str, tuple[str, ...]],
) -> Study:  # fmt: skip
    """A study of photographs; pairs of captions are added to the labelled ones.

    collections: split -> its images. samples: labelled pairs by name. counts: of some, how many
    pairs each stands for. merged: premise -> the captions that it was merged from.
    """
    captions = tuple(tuple(c) for some in collections.values() for c in some.captions)
    ends = np.cumsum([0, *(len(some.ids) for some in collections.values())])
    order = np.random.default_rng([seed, 20]).permutation(int(ends[1]))
    cuts = np.cumsum(list(SHARES.values()))
    rows = dict(zip((*SHARES, "train"), map(np.sort, np.split(order, cuts)), strict=True))
    rows |= {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(SPLITS) if i}
    scale = region_scale(collections["train"].features)
    images = standardised([some.features for some in collections.values()], scale)
    words = Words.of([text for some in captions[: ends[1]] for text in some], budget.min_count)
    premises = tuple(judgments.merged(some) for some in captions)
    merged |= dict(zip(premises, captions, strict=True))
    for name, some in (("train", rows["judges"]), ("dev", rows["val"][::4])):
        of_captions, origins = caption_pairs(captions, some, seed + (name == "dev"))
        if name == "dev":
            of_captions = only_mme(of_captions)
        samples[name] = joined([samples[name], of_captions])
        merged |= origins
    texts = sorted({t for c in captions for t in c} | sentences_of(samples.values(), merged))
    start = _frozen_retriever(budget, words, images, split_of(words, captions, rows["frozen"]))
    states, plan = _bert_states(texts, merged), budget.retrieval
    retriever = read_retriever(start, plan.transformers, plan.space, images, len(words))
    stems = Weights(collections["train"].captions)
    encoders = frozen(retriever, words, images, texts, stems, merged, states)
    words.read({*texts, *premises, *(t for some in samples.values() for t in some.premise)})
    tests, inputs_scale = labelled(samples, encoders, counts, {})
    train_pairs, dev, calibration = (tests.pop(name) for name in (*UNREAD, "calibration"))
    arrays = Arrays(
        images, {name: split_of(words, captions, rows[name]) for name in SPLITS}, premises,
        train_pairs, dev, calibration, tests, encoders, inputs_scale, words, states,
        region_scale=scale, starts=starts_of(start), retriever=start,
    )  # fmt: skip
    return Study(arrays, captions, rows, opener(list(collections.values()), ends))


def _bert_states(
    texts: list[str], merged: Mapping[str, tuple[str, ...]]
) -> TokenStates | None:  # fmt: skip
    """Token states by the BERT of the data folder, if there is one."""
    bert = data_dir() / "bert"
    if not bert.is_dir():
        print(f"no BERT in {bert}: the text branch starts from nothing", file=sys.stderr)
        return None
    return TokenStates.by(bert, texts, merged, job_folder())


def _frozen_retriever(
    budget: Budget, words: Words, images: np.ndarray, split: Split
) -> dict[str, Tensor]:
    """The retriever that judges start from: trained on its own images, from one seed, and kept."""
    code = source_hash("mmlib.papers.entailment.retrieval")
    identity = "\n".join([*split.texts, str(budget.retrieval), str(budget.frozen), code])
    digest = hashlib.sha256(identity.encode() + np.ascontiguousarray(images[split.rows]).tobytes())
    path = job_folder() / f"frozen-{digest.hexdigest()[:24]}.safetensors"
    if not path.exists():
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more of them add in another order
        seed_everything(0)
        weights: dict[str, Tensor] = {}
        for family in ("dual", "align"):  # which grows out of it
            model = build(family, budget.retrieval, images, len(words))
            model.load_state_dict(weights, strict=False)
            train(model, split, budget.frozen[family], 0, lambda epoch: images)
            weights = {n: v.detach().contiguous() for n, v in model.state_dict().items()}
        torch.set_num_threads(threads)
        write_atomic(path, lambda p: save_file(weights, p))
    return load_file(path)
