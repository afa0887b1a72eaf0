"""Images, captions and labelled pairs of each tier, to look at and as arrays to train on."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmlib import world
from mmlib.core.entailment_pairs import Kind, Samples, joined
from mmlib.core.errors import DataError
from mmlib.core.experiment import job_folder
from mmlib.core.fit import seed_everything
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE, data_dir, write_atomic
from mmlib.core.records import CaptionedImages
from mmlib.core.source import source_hash
from mmlib.data import flickr8k, judgments, precomputed, sick, snli_ve
from mmlib.data.caption_pairs import caption_pairs
from mmlib.data.overlap import Weights
from mmlib.features.bert import BertEncoder
from mmlib.features.encoders import Shape
from mmlib.features.words import TokenStates, Words, padded
from mmlib.papers.entailment.arrays import SPLITS, Arrays, Labelled, People, Split
from mmlib.papers.entailment.experiment import Budget, budget
from mmlib.papers.entailment.inputs import Frozen, Scale
from mmlib.papers.entailment.retraining import TOP, WORDS, build, train
from mmlib.papers.entailment.retraining import Plan as Retraining
from mmlib.papers.entailment.revision import candidates
from mmlib.world.hypotheses import entailment_set, false_negatives, noisy
from mmlib.world.premises import merged as merged_captions

WORLD_IMAGES = {"train": 1200, "val": 200, "test": 1000}  # of the retrievers
JUDGES = {"train": 440, "dev": 60, "calibration": 120}  # images whose candidates are labelled
EDITED = {"train": 500, "val": 80, "test": 300}  # scenes about which hypotheses are made
ASKED, OF_EACH = 400, 20  # test images, and candidates of each, that judges are compared on
NOISE, PARTIAL = 1.0, 0.25  # the world's dials, see `mmlib.world.hypotheses.entailment_set`
# Photographs: a third for the retriever that judges start from, a fourth for judges, the rest to be
# mined and retrained on.
SHARES = {"frozen": 2000, "judges": 1500}
NEGATIVES = 6000  # of the judged pairs without a yes that are scored, weighted up to all of them
RETRIEVERS, TEXT = (PACKAGE / "world" / f"{name}.safetensors" for name in ("retrievers", "text"))
DATASETS = {"world": ("world",), "flickr8k": ("flickr8k",), "paper": ("f30k",)}

NOTES = {
    "world": """*What this world was built to contain.* Scenes whose content is known, drawn as
pictures; captions that are true and say a part. What holds in a scene is decided by logic, so every
pair of a picture and a caption has a true label. False hypotheses are made by changing one fact, or
are captions of other scenes. The image features are made noisy, and captions leave things out, so
that neither source tells all. The judge's text branch starts from a small BERT that was trained to
tell whether two captions are of one scene, on other scenes; its image branch from a retriever
trained on other scenes. No label of entailment was in either. What holds here shows how a method
behaves where the truth is known, not how well it would do on photographs.""",
    "flickr8k": """*Real photographs, captions and judgments.* Text pairs are SICK's, in both
directions. Image-text pairs are SICK's that go back to Flickr8k captions, an image's own captions
as positives, and other images' captions as negatives, of which some are true. The test is what at
least three people said of test images and captions ("describes the image, possibly with minor
mistakes", which is more generous than entailment); a fifth of the judged images, for calibration,
is not in it. A BERT, where one lies in the data folder, stays frozen and reads each sentence by
itself; layers on top of it read the pair. If it is all-MiniLM-L6-v2, know that its own training saw
captions of Flickr30K, which contains Flickr8k.""",
    "paper": """SNLI-VE on Flickr30K's images, as far as its files are in the data folder. The
paper's own test set was not published; tests are SNLI-VE's.""",
}


@dataclass(frozen=True, eq=False)
class Study:
    """A tier's data as people read them.

    images (N, R, W): the image table, clean: without the world's noise. captions, premises: of each
    image, and as one text. rows: split -> rows of the table. fits: split -> (images, captions)
    bool, which captions are true of which images. samples: "train", "dev", "calibration" and each
    test; weights, about: see `arrays.Labelled`. merged: premise -> the captions it was merged from.
    """

    tier: str
    images: np.ndarray
    captions: tuple[tuple[str, ...], ...]
    premises: tuple[str, ...]
    rows: Mapping[str, np.ndarray]
    open_image: Callable[[int], Image.Image]
    samples: Mapping[str, Samples]
    words: Words
    frozen: Frozen
    starts: Mapping[str, Tensor]
    retriever: Mapping[str, Tensor]
    fits: Mapping[str, np.ndarray] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    about: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clean: np.ndarray | None = None
    noise: np.ndarray | None = None
    region_scale: np.ndarray = field(default_factory=lambda: np.zeros((2, 0)))
    states: TokenStates | None = None
    people: People | None = None

    @property
    def merged(self) -> Mapping[str, tuple[str, ...]]:
        """Premise text -> the captions that it was merged from."""
        return self.frozen.merged

    def texts(self, split: str) -> list[str]:
        """All captions of a split, by flat number."""
        return [text for row in self.rows[split] for text in self.captions[row]]

    def image_of(self, split: str) -> np.ndarray:
        """(captions,) each caption's image, counted within the split."""
        counts = [len(self.captions[row]) for row in self.rows[split]]
        return np.repeat(np.arange(len(counts)), counts)


def load_documents(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> dict[str, Study]:
    """A tier's data, to look at. Raises ValueError for an unknown tier or data set, DataError."""
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    if unknown := [name for name in datasets if name not in DATASETS[tier]]:
        raise ValueError(f"no data {unknown[0]!r} here; there are {', '.join(DATASETS[tier])}")
    make = {"world": _world, "flickr8k": _flickr8k, "paper": _flickr30k}[tier]
    return {DATASETS[tier][0]: make(budget(tier, DATASETS[tier][0]), seed)}


def load_arrays(studies: Mapping[str, Study], tier: str) -> dict[str, Arrays]:
    """The same as arrays."""
    return {name: _arrays(own) for name, own in studies.items()}


def _arrays(study: Study) -> Arrays:
    raw = {
        name: study.frozen.inputs(own)
        for name, own in study.samples.items()
        if name not in ("train", "dev")
    }
    scale = Scale.of(raw["calibration"])
    said = (own.premise for own in study.samples.values())
    study.words.read({*study.frozen.row, *study.premises, *(t for some in said for t in some)})
    pairs = {
        name: Labelled(
            own, scale(raw[name]) if name in raw else np.zeros((len(own), 0)),
            study.weights.get(name, np.ones(len(own))), study.about.get(name, ()),
        )
        for name, own in study.samples.items()
    }  # fmt: skip
    train, dev, calibration = (pairs.pop(name) for name in ("train", "dev", "calibration"))
    return Arrays(
        study.images, {name: _split(study, name) for name in SPLITS}, study.premises, train, dev,
        calibration, pairs, study.frozen, scale, study.words, study.states, study.clean,
        study.noise, study.region_scale, study.starts, study.retriever, study.people,
    )  # fmt: skip


def _split(study: Study, name: str) -> Split:
    texts = study.texts(name)
    return split_of(
        study.words, study.rows[name], texts, study.image_of(name), study.fits.get(name)
    )


def split_of(
    words: Words, rows: np.ndarray, texts: Sequence[str], image_of: np.ndarray,
    fits: np.ndarray | None = None,
) -> Split:  # fmt: skip
    """Captions as ids."""
    ids, lengths = padded([words.ids(text)[:WORDS] for text in texts])
    return Split(rows, ids, lengths, tuple(texts), image_of, fits)


# --- Frozen encoders -----------------------------------------------------------------------------


def frozen(
    weights: Mapping[str, Tensor], shape: Shape, space: int, words: Words, images: np.ndarray,
    texts: Sequence[str], known: Weights, merged: Mapping[str, tuple[str, ...]],
    states: TokenStates | None = None,
) -> Frozen:  # fmt: skip
    """What a trained ALBEF-like retriever's encoders, and a BERT, if any, make of it all."""
    model = build("align", Retraining(shape, {}, {}, space), images, len(words))
    model.load_state_dict(weights)
    model.eval()
    ids, lengths = padded([words.ids(text)[:WORDS] for text in texts])
    with torch.no_grad():
        seen = [model.image_states(part)[1] for part in torch.from_numpy(images).split(256)]
        parts = zip(
            torch.from_numpy(ids).split(256), torch.from_numpy(lengths).split(256), strict=True
        )
        spoken = torch.cat([model.text_states(i[:, : n.max()], n)[2] for i, n in parts]).numpy()
    sentences = spoken
    if states is not None:
        vectors = states.sentences()
        sentences = np.stack([vectors[text] for text in texts])
    row = {text: i for i, text in enumerate(texts)}
    return Frozen(row, sentences, spoken, torch.cat(seen).numpy(), known, merged)


def starts_of(weights: Mapping[str, Tensor], text: Path | None = None) -> dict[str, Tensor]:
    """Weights that judges start from, by their names there.

    VE's are the retriever's (ALBEF's place); so are a single stream's word embeddings and its map
    of regions. TE's own are a small BERT's, in the file `text`, where there is one.
    """
    found = {n: v for n, v in weights.items() if n.startswith(("image.", "words.", "cross."))}
    found |= {
        f"stream.layers.{n.removeprefix('words.')}": v
        for n, v in weights.items()
        if n.startswith("words.embeddings.word")
    }
    found |= {
        f"stream.{n.removeprefix('image.')}": v
        for n, v in weights.items()
        if n.startswith("image.project.")
    }
    if text is not None:
        found |= {name: value.float() for name, value in load_file(text).items()}
    return found


def region_scale(features: np.ndarray) -> np.ndarray:
    """(2, W): mean and deviation of each of the W over images and regions."""
    sample = np.asarray(features[:: max(1, len(features) // 3000)], dtype=np.float32)
    return np.stack([sample.mean(axis=(0, 1)), sample.std(axis=(0, 1)) + 1e-3])


def standardised(parts: Sequence[np.ndarray], scale: np.ndarray) -> np.ndarray:
    """Features (images, R, W) after one another, less the mean and by the deviation in `scale`."""
    return np.concatenate([(np.asarray(p, dtype=np.float32) - scale[0]) / scale[1] for p in parts])


# --- The world -----------------------------------------------------------------------------------


def _world(own: Budget, seed: int) -> Study:
    """Generated scenes. Pictures of retrievers, then of judges' candidates, then of hypotheses."""
    cores = os.cpu_count() or 1
    drawn = {s: world.captioned_images(s, n, seed, workers=cores) for s, n in WORLD_IMAGES.items()}
    drawn["judges"] = world.captioned_images("train", sum(JUDGES.values()), seed + 1, workers=cores)
    sets = {
        s: entailment_set(s, n, seed + 2, partial=PARTIAL, workers=cores) for s, n in EDITED.items()
    }
    truth = dict(
        zip(
            drawn, in_processes(false_negatives, [(d,) for d in drawn.values()], cores), strict=True
        )
    )
    clean = [d.features for d in drawn.values()] + [s.images for s in sets.values()]
    scenes = [*(d.scenes for d in drawn.values()), *(s.scenes for s in sets.values())]
    blurred = [
        noisy(features, [scene.seed for scene in own_scenes], NOISE)
        for features, own_scenes in zip(clean, scenes, strict=True)
    ]
    scale = region_scale(blurred[0])
    images = standardised(blurred, scale)
    captions = [own for d in drawn.values() for own in d.captions]
    premises = [merged_captions(own) for d in drawn.values() for own in d.gold]
    ends = np.cumsum([0, *map(len, blurred)])
    rows = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(drawn)}
    merged = dict(zip(premises, captions, strict=True))
    samples, about = {}, {}
    for i, (name, one) in enumerate(sets.items(), len(drawn)):
        first = int(ends[i])
        rows_of = np.where(one.samples.image < 0, -1, one.samples.image + first)
        samples[name] = replace(one.samples, image=rows_of)
        if name != "train":
            samples[name], about[name] = _with_both(samples[name], one, first)
        merged |= {merged_captions(c): tuple(t.text for t in c) for c in one.captions}
    words = Words(json.loads(metadata_of(RETRIEVERS)["words"]))
    weights = {
        name.removeprefix("align."): value.float()
        for name, value in load_file(RETRIEVERS).items()
        if name.startswith("align.")
    }
    texts = sorted({t for c in captions for t in c} | _texts_of(samples.values(), merged))
    known = frozen(
        weights, own.retrieval.transformers, own.retrieval.space, words, images, texts,
        Weights(drawn["train"].captions), merged,
    )  # fmt: skip
    study = Study(
        "world", images, tuple(captions), tuple(premises), rows,
        _opener([d.open_image for d in (*drawn.values(), *sets.values())], ends),
        samples, words, known, starts_of(weights, TEXT), weights, truth,
        about={"edits": about["test"]},
        clean=standardised(clean, scale), noise=(NOISE / scale[1]).astype(np.float32),
        region_scale=scale,
    )  # fmt: skip
    return replace(study, samples=_world_samples(study, seed))


def _opener(
    openers: Sequence[Callable[[int], Image.Image]], ends: np.ndarray
) -> Callable[[int], Image.Image]:
    def open_image(row: int) -> Image.Image:
        at = int(np.searchsorted(ends, row, side="right")) - 1
        return openers[at](row - int(ends[at]))

    return open_image


def _with_both(samples: Samples, one: Any, first: int) -> tuple[Samples, tuple[str, ...]]:
    """Image-text samples with both premises, and how each hypothesis was made."""
    rows = np.array([i for i, kind in enumerate(samples.kind) if kind != "te"])
    texts = tuple(merged_captions(one.captions[i]) for i in one.scene_of[rows])
    kinds: tuple[Kind, ...] = ("mme",) * len(rows)
    image = one.scene_of[rows] + first
    found = replace(samples.take(rows), premise=texts, kind=kinds, image=image)
    return found, tuple(one.edits[i] for i in rows)


def _texts_of(parts: Any, merged: Mapping[str, tuple[str, ...]]) -> set[str]:
    """All sentences of samples."""
    said = {text for own in parts for text in own.hypothesis}
    return said | {
        one for own in parts for text in own.premise if text for one in merged.get(text, (text,))
    }


def _world_samples(study: Study, seed: int) -> dict[str, Samples]:
    """Training, dev, calibration and test pairs; candidates are labelled by logic."""
    rng, cut = np.random.default_rng([seed, 25]), np.cumsum(list(JUDGES.values()))
    pairs = foreign_candidates(study, "judges")
    true = study.fits["judges"][pairs[:, 0], pairs[:, 1]]
    part = np.searchsorted(cut, pairs[:, 0], side="right")
    few = [
        np.concatenate([_each(pairs, (part == k) & t, 3, rng) for t in (true, ~true)])
        for k in range(2)
    ]

    def labelled(split: str, some: np.ndarray, kind: Kind = "mme") -> Samples:
        truth = study.fits[split][some[:, 0], some[:, 1]]
        return pair_samples(study, split, some, truth, kind, "candidate")

    own, _ = caption_pairs(study.captions, study.rows["judges"][: cut[0]], seed)
    kinds: tuple[Kind, ...] = ("mme", "ve")
    learnt = [labelled("judges", pairs[few[0]], kind) for kind in kinds]
    test = foreign_candidates(study, "test")
    return {
        "train": joined([study.samples["train"], *learnt, own]),
        "dev": joined([study.samples["val"], labelled("judges", pairs[few[1]])]),
        "calibration": labelled("judges", pairs[part == 2]),
        "candidates": labelled("test", test[_each(test, test[:, 0] < ASKED, OF_EACH, rng)]),
        "edits": study.samples["test"],
    }


def foreign_candidates(study: Study, split: str) -> np.ndarray:
    """(n, 2) the `TOP` foreign captions of each image of a split by the frozen retriever."""
    known = [study.frozen.row[text] for text in study.texts(split)]
    scores = study.frozen.seen[study.rows[split]] @ study.frozen.spoken[known].T
    return candidates(scores, study.image_of(split), TOP)


def _each(pairs: np.ndarray, some: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of at most `most` random pairs of each image, of those that are meant, in order."""
    order = rng.permutation(np.flatnonzero(some))
    order = order[np.argsort(pairs[order, 0], kind="stable")]
    _, first = np.unique(pairs[order, 0], return_index=True)
    place = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    return np.sort(order[place < most])


def pair_samples(
    study: Study, split: str, pairs: np.ndarray, labels: np.ndarray, kind: Kind, source: str
) -> Samples:
    """Pairs (n, 2) of an image of a split and a flat caption as samples."""
    texts, n = study.texts(split), len(pairs)
    image = study.rows[split][pairs[:, 0]]
    premise = tuple("" if kind == "ve" else study.premises[i] for i in image)
    kinds: tuple[Kind, ...] = (kind,) * n
    return Samples(
        premise, tuple(texts[c] for c in pairs[:, 1]), image, np.asarray(labels).astype(np.int64),
        kinds, (source,) * n, tuple(f"{split} {i}" for i in pairs[:, 0]),
    )  # fmt: skip


def metadata_of(path: Path) -> dict[str, str]:
    """What stands in a file of weights beside them."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


# --- Photographs ---------------------------------------------------------------------------------


def _flickr8k(own: Budget, seed: int) -> Study:
    """SICK's pairs and triples, caption pairs of training images; the crowd's judgments as test.

    No judged pair and no judged image is in the training set (`judgments.assert_untouched`).
    """
    parts = {name: flickr8k.load(name) for name in SPLITS}
    names = tuple(name for one in parts.values() for name in one.ids)
    row_of = {name: row for row, name in enumerate(names)}
    judged, origins = judgments.load(), sick.Origins()
    triples = sick.triples(origins=origins)

    def of(split: str) -> Samples:
        some = triples[(triples["split"] == split) & triples["clean"]]
        return sick.triple_samples(some, origins.captions, row_of)

    text = sick.text_text(("TRAIN",), leave_out=("val", "test"), origins=origins)
    crowd = {}
    for name, side in zip(("calibration", "crowd"), judgments.parts(judged), strict=True):
        few = NEGATIVES if name == "crowd" else NEGATIVES // 4
        some, weights = judgments.sampled(side, few, seed)
        crowd[name] = side.take(some).samples(row_of), weights
    study = _photographs(
        "flickr8k", parts, own, seed, [text, of("train")], [_mme(of("val"))],
        {"crowd": crowd["crowd"][0], "SICK triples": _mme(of("test"))}, crowd["calibration"][0],
        {name: weights for name, (_, weights) in crowd.items()},
        {judgments.merged(premise): premise for premise in judged.premise},
    )  # fmt: skip
    judgments.assert_untouched(study.samples["train"], judged, names)
    image = {name: i for i, name in enumerate(parts["test"].ids)}
    texts = {
        (image[name], caption): k for k, (name, caption) in enumerate(
            (name, caption)
            for name, own_texts in zip(parts["test"].ids, parts["test"].captions, strict=True)
            for caption in own_texts
        )
    }  # fmt: skip
    rejected = np.full(len(image), np.nan)
    for i in np.flatnonzero(~judged.cross):
        rejected[image[judged.image[i]]] = 100.0 * (judged.no[i] > judged.yes[i])
    kept = judgments.protocol("CF-all", judged)
    pairs = [
        (image[judged.image[i]], texts[image[judged.origin[i]], judged.hypothesis[i]]) for i in kept
    ]
    return replace(study, people=People(np.array(pairs), judged.label[kept], rejected))


def _mme(samples: Samples) -> Samples:
    return samples.take(np.flatnonzero(np.array(samples.kind) == "mme"))


def _flickr30k(own: Budget, seed: int) -> Study:
    """SNLI-VE on Flickr30K's images (`f30k` in the data folder); SICK's pairs if they are there."""
    folder = precomputed.find("f30k")
    of = {"train": "train", "val": "dev", "test": "test"}
    parts = {name: precomputed.load(folder, split).images for name, split in of.items()}
    names = [name for one in parts.values() for name in one.ids]
    row_of = {name: row for row, name in enumerate(names)}
    captions = {
        name: c for one in parts.values() for name, c in zip(one.ids, one.captions, strict=True)
    }

    def pairs(split: str) -> Samples:
        table = snli_ve.read(split)
        return snli_ve.samples(table[table["image"].isin(row_of)], row_of, captions)

    text = [sick.text_text()] if (data_dir() / sick.NAME).is_dir() else []
    dev, test = _mme(pairs("dev")), _mme(pairs("test"))
    return _photographs(
        "paper", parts, own, seed, [*text, pairs("train")], [dev], {"SNLI-VE": test}, dev, {}, {}
    )


def _photographs(
    tier: str, parts: Mapping[str, CaptionedImages], own: Budget, seed: int, learnt: list[Samples],
    dev: list[Samples], tests: Mapping[str, Samples], calibration: Samples,
    weights: Mapping[str, np.ndarray], merged: dict[str, tuple[str, ...]],
) -> Study:  # fmt: skip
    """A collection of photographs with labelled pairs of its images."""
    captions = tuple(tuple(c) for one in parts.values() for c in one.captions)
    ends = np.cumsum([0, *(len(one.ids) for one in parts.values())])
    order = np.random.default_rng([seed, 20]).permutation(int(ends[1]))
    cut = np.cumsum(list(SHARES.values()))
    rows = dict(zip((*SHARES, "train"), map(np.sort, np.split(order, cut)), strict=True))
    rows |= {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(SPLITS) if i}
    scale = region_scale(parts["train"].features)
    images = standardised([one.features for one in parts.values()], scale)
    words = Words.of([text for i in np.arange(ends[1]) for text in captions[i]], own.min_count)
    made, known = caption_pairs(captions, rows["judges"], seed)
    more, known_dev = caption_pairs(captions, rows["val"][::4], seed + 1)
    premises = tuple(judgments.merged(c) for c in captions)
    merged |= known | known_dev | dict(zip(premises, captions, strict=True))
    samples = {
        "train": joined([*learnt, made]), "dev": joined([*dev, _mme(more)]),
        "calibration": calibration, **tests,
    }  # fmt: skip
    texts = sorted({t for c in captions for t in c} | _texts_of(samples.values(), merged))
    start = _trained_once(own, words, images, captions, rows["frozen"])
    states = token_states(texts, merged) if (data_dir() / "bert").is_dir() else None
    of_stems = Weights(parts["train"].captions)
    encoders = frozen(
        start, own.retrieval.transformers, own.retrieval.space, words, images, texts, of_stems,
        merged, states,
    )  # fmt: skip
    openers = _opener([one.open_image for one in parts.values()], ends)
    return Study(
        tier, images, captions, premises, rows, openers, samples, words, encoders,
        starts_of(start), start, weights=weights, states=states, region_scale=scale,
    )  # fmt: skip


def _trained_once(
    own: Budget, words: Words, images: np.ndarray, captions: Sequence, some: np.ndarray,
) -> dict[str, Tensor]:  # fmt: skip
    """The retriever that judges start from: trained on `some` images, from one seed, and kept."""
    counts = [len(captions[i]) for i in some]
    texts = [text for i in some for text in captions[i]]
    split = split_of(words, some, texts, np.repeat(np.arange(len(some)), counts))
    digest = hashlib.sha256("\n".join([*texts, str(own.retrieval), str(own.frozen)]).encode())
    digest.update(source_hash("mmlib.papers.entailment.retraining").encode())
    digest.update(np.ascontiguousarray(images[some]).tobytes())
    path = job_folder() / f"frozen-{digest.hexdigest()[:24]}.safetensors"
    if not path.exists():
        seed_everything(0)
        weights: Mapping[str, Tensor] = {}
        for family in ("dual", "align"):
            model = build(family, own.retrieval, images, len(words))
            model.load_state_dict(weights, strict=False)
            train(model, images, split, own.frozen[family], 0)
            weights = {n: v.detach().contiguous() for n, v in model.state_dict().items()}
        write_atomic(path, lambda p: save_file(dict(weights), p))
    return load_file(path)


def token_states(texts: Sequence[str], merged: Mapping[str, tuple[str, ...]]) -> TokenStates:
    """States of texts by the BERT in `<MMLIB_DATA>/bert`, kept in the cache; 40 tokens of each."""
    folder, most = data_dir() / "bert", 40
    path = folder / "model.safetensors"
    if not path.is_file():
        raise DataError(f"{path} is missing: put a BERT's folder there, or none")
    stat = path.stat()
    digest = hashlib.sha256("\n".join([str(stat.st_size), str(most), *texts]).encode())
    kept = job_folder() / f"states-{digest.hexdigest()[:24]}.safetensors"
    if not kept.exists():
        encoder = BertEncoder.from_pretrained(folder, "frozen")
        states, lengths = encoder.token_states_all(texts, most + 2, progress="token states")
        inner = [row[1 : n - 1] for row, n in zip(states, lengths, strict=True)]
        made = {"states": np.concatenate(inner), "lengths": np.asarray(lengths) - 2}
        write_atomic(kept, partial(save_file, {k: torch.from_numpy(v) for k, v in made.items()}))
    found = load_file(kept)
    return TokenStates(texts, found["states"].numpy(), found["lengths"].numpy(), merged)
