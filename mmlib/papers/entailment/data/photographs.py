"""Photographs: Flickr8k with SICK's pairs and people's judgments, and Flickr30K with SNLI-VE."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mmlib.core.engine import job_folder
from mmlib.core.errors import DataError
from mmlib.core.files import cached
from mmlib.core.fit import seed_everything
from mmlib.core.paths import data_dir
from mmlib.core.records import CaptionedImages, Samples, joined
from mmlib.core.source import source_hash
from mmlib.data import flickr8k, judgments, precomputed, sick, snli_ve
from mmlib.data.overlap import Weights
from mmlib.data.samples import caption_pairs
from mmlib.features.encoders import region_scale, standardised
from mmlib.features.words import TokenStates, Words
from mmlib.papers.entailment.data import arrays as tables
from mmlib.papers.entailment.data.arrays import SPLITS, People, Split, Study, flat
from mmlib.papers.entailment.method.calibration import frozen
from mmlib.papers.entailment.method.classifier import classifier, load_pretrained
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.method.revision import train
from mmlib.papers.entailment.run.systems import Budget

NEGATIVES = 6000  # of the judged pairs without a yes that are scored, weighted up to all of them
# Of the training images: those of the retriever that judges start from, and those of judges, at
# most so many and so large a share; the rest is mined and retrained on.
SHARES = {"frozen": (2000, 1 / 3), "judges": (1500, 1 / 4)}


def load_flickr8k(budget: Budget, seed: int) -> Study:
    """SICK's pairs and triples, caption pairs of training images; the crowd's judgments as test.

    No judged pair and no judged image is in the training set (`judgments.assert_untouched`).
    """
    collections = {name: flickr8k.load(name) for name in SPLITS}
    names = tuple(name for some in collections.values() for name in some.ids)
    row_of = {name: row for row, name in enumerate(names)}
    judged, origins = judgments.load(), sick.Origins()
    triples = sick.triples(origins=origins)
    of_images = {
        split: sick.triple_samples(some, origins.captions, row_of)
        for split, some in triples[triples["clean"]].groupby("split")
        if split in SPLITS
    }
    text = sick.text_text(("TRAIN",), leave_out=("val", "test"), origins=origins)
    samples = {"train": joined([text, of_images["train"]]), "dev": _only_mme(of_images["val"])}
    counts = {}
    sides = {"calibration": judged[judged["calibration"]], "crowd": judged[~judged["calibration"]]}
    for name, side in sides.items():
        few = NEGATIVES if name == "crowd" else NEGATIVES // 4
        chosen, counts[name] = judgments.sampled(side, few, seed)
        samples[name] = judgments.samples(chosen, row_of)
    samples["SICK triples"] = _only_mme(of_images["test"])
    premises = {judgments.merged(premise): premise for premise in judged["premise"]}
    study = study_of(collections, budget, seed, samples, counts, premises)
    judgments.assert_untouched(study.arrays.train.samples, judged, names)

    test = collections["test"]
    image = {name: i for i, name in enumerate(test.ids)}
    texts, image_of = flat(test.captions, np.arange(len(test.ids)))
    number = {(int(i), text): c for c, (i, text) in enumerate(zip(image_of, texts, strict=True))}
    rejected = np.full(len(image), np.nan)
    for pair in judged[~judged["cross"]].itertuples():
        rejected[image[pair.image]] = 100.0 * (pair.no > pair.yes)
    decided = judgments.decided(sides["crowd"])  # the judge's threshold has seen the others
    pairs = [
        (image[pair.image], number[image[pair.caption_image], pair.hypothesis])
        for pair in decided.itertuples()
    ]
    people = People(np.array(pairs), decided["label"].to_numpy(), rejected)
    return replace(study, arrays=replace(study.arrays, people=people))


def load_paper(budget: Budget, seed: int) -> Study:
    """SNLI-VE on Flickr30K's images (`f30k` in the data folder); SICK's pairs if they are there."""
    folder = precomputed.find("f30k")
    files = {"train": "train", "val": "dev", "test": "test"}
    collections = {name: precomputed.load(folder, split).images for name, split in files.items()}
    captions = {n: c for i in collections.values() for n, c in zip(i.ids, i.captions, strict=True)}
    row_of = {name: row for row, name in enumerate(captions)}

    def pairs(split: str, *collected: str) -> Samples:
        # Of SNLI-VE's split, whose images lie in all parts, the pairs of these parts' images.
        table = snli_ve.read(split)
        ids = [name for images in collected for name in collections[images].ids]
        table = table[table["image"].isin(ids)]
        if table.empty:
            raise DataError(
                f"{snli_ve.split_file(split, data_dir() / snli_ve.NAME)}: no image is one of "
                f"{folder}, such as {next(iter(row_of))!r} (does id_mapping.json lie there?)"
            )
        return snli_ve.samples(table, row_of, captions)

    text = [sick.text_text()] if (data_dir() / sick.NAME).is_dir() else []
    dev, test = _only_mme(pairs("dev", "train", "val")), _only_mme(pairs("test", *SPLITS))
    train_pairs = joined([*text, pairs("train", "train")])
    samples = {"train": train_pairs, "dev": dev, "calibration": dev, "SNLI-VE": test}
    return study_of(collections, budget, seed, samples, {}, {})


def _only_mme(samples: Samples) -> Samples:
    return samples.take(np.flatnonzero(np.array(samples.kind) == "mme"))


def study_of(
    collections: Mapping[str, CaptionedImages], budget: Budget, seed: int,
    samples: dict[str, Samples], counts: Mapping[str, np.ndarray],
    merged: dict[str, tuple[str, ...]],
) -> Study:  # fmt: skip
    """A study of photographs; pairs of captions are added to the labelled ones.

    collections: split -> its images. samples: labelled pairs by name. counts: of some, how many
    pairs each stands for. merged: premise -> its captions. DataError for too few training images.
    """
    plan = budget.retrieval
    captions = tuple(tuple(c) for some in collections.values() for c in some.captions)
    ends = np.cumsum([0, *(len(some.ids) for some in collections.values())])
    order = np.random.default_rng([seed, 20]).permutation(int(ends[1]))
    cuts = np.cumsum([min(most, round(share * len(order))) for most, share in SHARES.values()])
    if 0 in np.diff(cuts, prepend=0, append=len(order)):
        raise DataError(f"{len(order)} training images: too few for {', '.join(SHARES)} and train")
    rows = dict(zip((*SHARES, "train"), map(np.sort, np.split(order, cuts)), strict=True))
    rows |= {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(SPLITS) if i}
    scale = region_scale(collections["train"].features)
    images = standardised([some.features for some in collections.values()], scale)
    words = Words.of([text for some in captions[: ends[1]] for text in some], budget.min_count)
    premises = tuple(judgments.merged(some) for some in captions)
    of_train, origins = caption_pairs(captions, rows["judges"], seed)
    of_dev, more = caption_pairs(captions, rows["val"][::4], seed + 1)
    samples["train"] = joined([samples["train"], of_train])
    samples["dev"] = joined([samples["dev"], _only_mme(of_dev)])
    merged |= {**dict(zip(premises, captions, strict=True)), **origins, **more}
    texts = sorted({t for c in captions for t in c} | tables.sentences_of(samples.values(), merged))
    start = _frozen_retriever(budget, words, images, Split.of(words, captions, rows["frozen"]))
    bert = data_dir() / "bert"
    states = TokenStates.by(bert, texts, merged, job_folder()) if bert.is_dir() else None
    starts, settings = tables.starts_of(start), budget.judge.classifier
    if settings.width != plan.transformers.width:  # as of the tier `paper`
        folder, starts = data_dir() / "judge_start", {}
        said = "at random, where the paper's start as BERT and ALBEF"
        if folder.is_dir():
            starts = tables.starts_in(folder, words, settings.words_layers)
            judge = classifier(settings, len(words), images)
            copied = Counter(n.partition(".")[0] for n in sorted(load_pretrained(judge, starts)))
            said = f"from {folder}; copied of {len(judge.state_dict())} tensors: {dict(copied)}"
        print(f"judges start {said}", file=sys.stderr)
    retriever = build("align", plan, images, len(words))
    retriever.load_state_dict(start)
    stems = Weights(collections["train"].captions)
    encoders = frozen(retriever, words, images, texts, stems, merged, states)
    words.read({*texts, *premises, *(t for some in samples.values() for t in some.premise)})
    arrays = tables.arrays_of(
        samples, encoders, counts, images=images, premises=premises, words=words, states=states,
        splits={name: Split.of(words, captions, rows[name]) for name in SPLITS},
        region_scale=scale, starts=starts, retriever=start,
    )  # fmt: skip
    return Study(
        arrays, captions, rows, partial(tables.open_image, list(collections.values()), ends)
    )


def _frozen_retriever(
    budget: Budget, words: Words, images: np.ndarray, split: Split
) -> dict[str, Tensor]:
    # The retriever that judges start from: trained on its own images, from one seed, and kept under
    # a hash of all that decides it.
    def start() -> dict[str, np.ndarray]:
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
        return {name: tensor.numpy() for name, tensor in weights.items()}

    code = [source_hash("mmlib.papers.entailment.method.revision"), torch.__version__.split("+")[0]]
    plan = [str(budget.retrieval), str(budget.frozen)]
    read = np.ascontiguousarray(images[split.rows])
    text = json.dumps([code, plan, words.words, split.texts, split.image_of.tolist(), read.shape])
    key = hashlib.sha256(text.encode() + read.tobytes()).hexdigest()[:24]
    weights = cached(job_folder() / f"frozen-{key}.safetensors", start)
    return {name: torch.from_numpy(array) for name, array in weights.items()}
