"""Images, captions and labelled pairs of each tier, to look at and as arrays to train on."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from mmlib.features.encoders import Shape, region_scale, standardised
from mmlib.features.words import TokenStates, Words, padded
from mmlib.papers.entailment.arrays import SPLITS, Arrays, Labelled, People, Split
from mmlib.papers.entailment.experiment import Budget, budget
from mmlib.papers.entailment.inputs import Frozen, Scale
from mmlib.papers.entailment.retraining import TOP, WORDS, build, train
from mmlib.papers.entailment.retraining import Plan as Retraining
from mmlib.papers.entailment.revision import candidates
from mmlib.world.hypotheses import WorldEntailment, entailment_set, false_negatives, noisy
from mmlib.world.premises import merged as merged_captions

WORLD_IMAGES = {"train": 1200, "val": 200, "test": 1000}  # of the retrievers
JUDGES = {"train": 440, "dev": 60, "calibration": 120}  # images whose candidates are labelled
EDITED = {"train": 500, "val": 80, "test": 300}  # scenes about which hypotheses are made
ASKED, OF_EACH = 400, 20  # test images, and candidates of each, that judges are compared on
NOISE, PARTIAL = 1.0, 0.25  # the world's dials, see `mmlib.world.hypotheses`
# Photographs: a third for the retriever that judges start from, a fourth for judges, the rest to be
# mined and retrained on.
SHARES = {"frozen": 2000, "judges": 1500}
NEGATIVES = 6000  # of the judged pairs without a yes that are scored, weighted up to all of them
RETRIEVERS = PACKAGE / "world" / "retrievers.safetensors"
DATASETS = {"world": "world", "flickr8k": "flickr8k", "paper": "f30k"}

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
as positives, and other images' as negatives, of which some are true. The test is what at least
three people said of test images and captions ("describes the image, possibly with minor mistakes",
which is more generous than entailment); a fifth of the judged images, for calibration, is not in
it. A BERT, where one lies in the data folder, stays frozen and reads each sentence by itself;
*Single stream* and *w/o BERT* do without, so they are held to a pretrained encoder. If it is
all-MiniLM-L6-v2, know that its own training saw captions of Flickr30K, which holds Flickr8k, and
labels of entailment about them (SNLI): floors that read it are not without learning.""",
    "paper": """SNLI-VE on Flickr30K's images, as far as its files are in the data folder. The
paper's own test set was not published; tests are SNLI-VE's.""",
}


@dataclass(frozen=True, eq=False)
class Study:
    """A tier's images and captions as people see them, and all of it as arrays.

    captions: of each image of the image table. rows: split -> rows of the table; beside those of
    `arrays.splits` the images of judges. open_image: row -> RGB picture.
    """

    arrays: Arrays
    captions: tuple[tuple[str, ...], ...]
    rows: Mapping[str, np.ndarray]
    open_image: Callable[[int], Image.Image]


def load_documents(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> dict[str, Study]:
    """A tier's data. Raises ValueError for an unknown tier or data set, DataError for its files."""
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    if unknown := [name for name in datasets if name != DATASETS[tier]]:
        raise ValueError(f"no data {unknown[0]!r} here; there is {DATASETS[tier]}")
    make = {"world": _world, "flickr8k": _flickr8k, "paper": _flickr30k}[tier]
    return {DATASETS[tier]: make(budget(tier, DATASETS[tier]), seed)}


def load_arrays(studies: Mapping[str, Study], tier: str) -> dict[str, Arrays]:
    """The same as arrays."""
    return {name: own.arrays for name, own in studies.items()}


def flat(captions: Sequence[Sequence[str]], rows: Iterable[int]) -> tuple[list[str], np.ndarray]:
    """All captions of some images, and the image of each, counted from 0."""
    own = [captions[row] for row in rows]
    return [text for one in own for text in one], np.repeat(
        np.arange(len(own)), list(map(len, own))
    )


def split_of(
    words: Words, captions: Sequence[Sequence[str]], rows: np.ndarray,
    fits: np.ndarray | None = None,
) -> Split:  # fmt: skip
    """Images and their captions as ids."""
    texts, image_of = flat(captions, rows)
    ids, lengths = padded([words.ids(text)[:WORDS] for text in texts])
    return Split(rows, ids, lengths, tuple(texts), image_of, fits)


def frozen(
    weights: Mapping[str, Tensor], shape: Shape, space: int, words: Words, images: np.ndarray,
    texts: Sequence[str], known: Weights, merged: Mapping[str, tuple[str, ...]],
    states: TokenStates | None = None,
) -> Frozen:  # fmt: skip
    """What a trained ALBEF-like retriever's encoders, and a BERT, if any, make of it all."""
    model = build("align", Retraining(shape, {}, {}, space), images, len(words))
    model.load_state_dict(weights)
    model.eval()
    both = padded([words.ids(text)[:WORDS] for text in texts])
    with torch.no_grad():
        seen = [model.image_states(part)[1] for part in torch.from_numpy(images).split(256)]
        parts = zip(*(torch.from_numpy(one).split(256) for one in both), strict=True)
        told = [(n, *model.text_states(i[:, : n.max()], n)) for i, n in parts]
    spoken, sentences = torch.cat([vectors for *_, vectors in told]).numpy(), None
    if states is None:
        inner = [own[1 : n + 1] for some, all_states, *_ in told
                 for n, own in zip(some.tolist(), all_states.numpy(), strict=True)]  # fmt: skip
        states = TokenStates(texts, np.concatenate(inner), both[1], merged)
        sentences = spoken
    else:
        vectors = states.sentences()
        sentences = np.stack([vectors[text] for text in texts])
    row = {text: i for i, text in enumerate(texts)}
    return Frozen(row, sentences, spoken, torch.cat(seen).numpy(), known, merged, states)


def starts_of(weights: Mapping[str, Tensor], text: Path | None = None) -> dict[str, Tensor]:
    """Weights that judges start from, by their names there.

    VE's are the retriever's (ALBEF's place); so are a single stream's word embeddings and its map
    of regions. TE's own are a small BERT's, in the folder `text`, where there is one.
    """
    found = {n: v for n, v in weights.items() if n.startswith(("image.", "words.", "cross."))}
    moved = {"words.embeddings.word": "layers.embeddings.word", "image.project.": "project."}
    for old, new in moved.items():
        some = {n: v for n, v in weights.items() if n.startswith(old)}
        found |= {f"stream.{new}{n.removeprefix(old)}": v for n, v in some.items()}
    if text:
        own, words = load_file(text / "model.safetensors"), "embeddings.word_embeddings.weight"
        own[words] = own[words][: len(weights[f"words.{words}"])]  # all but its [MASK]
        found |= {f"text.{n}": v.float() for n, v in own.items()}
    return found


def sentences_of(samples: Iterable[Samples], merged: Mapping[str, tuple[str, ...]]) -> set[str]:
    """All sentences of samples; of a merged premise those that it was merged from."""
    texts = [t for own in samples for t in (*own.hypothesis, *own.premise) if t]
    return {one for text in texts for one in merged.get(text, (text,))}


def labelled(
    samples: Mapping[str, Samples], known: Frozen, counts: Mapping[str, np.ndarray],
    about: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, Labelled], Scale]:  # fmt: skip
    """Samples with INPUTS, which training and dev do without, and the scale of these."""
    raw = {name: known.inputs(own) for name, own in samples.items() if name not in UNREAD}
    scale, pairs = Scale.of(raw["calibration"]), {}
    for name, own in samples.items():
        given = scale(raw[name]) if name in raw else np.zeros((len(own), 0), np.float32)
        counted = counts.get(name, np.ones(len(own)))
        pairs[name] = Labelled(own, given, counted, about.get(name, ()))
    return pairs, scale


UNREAD = ("train", "dev")


def _opener(parts: Sequence[Any], ends: np.ndarray) -> Callable[[int], Image.Image]:
    def open_image(row: int) -> Image.Image:
        at = int(np.searchsorted(ends, row, side="right")) - 1
        return parts[at].open_image(row - int(ends[at]))

    return open_image


# --- The world -----------------------------------------------------------------------------------


def _world(own: Budget, seed: int) -> Study:
    """Generated scenes. Pictures of retrievers, then of judges' candidates, then of hypotheses."""
    cores, plan = os.cpu_count() or 1, own.retrieval
    drawn = {s: world.captioned_images(s, n, seed, workers=cores) for s, n in WORLD_IMAGES.items()}
    drawn["judges"] = world.captioned_images("train", sum(JUDGES.values()), seed + 1, workers=cores)
    sets = [
        entailment_set(s, n, seed + 2, partial=PARTIAL, workers=cores) for s, n in EDITED.items()
    ]
    # Goes on in other processes until it is read.
    told = in_processes(false_negatives, [(one,) for one in drawn.values()], cores)
    parts: list[Any] = [*drawn.values(), *sets]
    clean: list[Any] = [*(one.features for one in drawn.values()), *(one.images for one in sets)]
    blurred = [
        noisy(features, [scene.seed for scene in one.scenes], NOISE)
        for features, one in zip(clean, parts, strict=True)
    ]
    scale = region_scale(blurred[0])
    images, ends = standardised(blurred, scale), np.cumsum([0, *map(len, blurred)])
    captions = tuple(some for one in drawn.values() for some in one.captions)
    premises = tuple(merged_captions(some) for one in drawn.values() for some in one.gold)
    rows = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(drawn)}
    edited, about = _edited(sets, ends[len(drawn) :])
    merged = dict(zip(premises, captions, strict=True))
    merged |= {merged_captions(c): tuple(t.text for t in c) for one in sets for c in one.captions}
    words = Words(json.loads(metadata_of(RETRIEVERS)["words"]))
    weights = {n.removeprefix("align."): v.float() for n, v in load_file(RETRIEVERS).items()}
    texts = sorted({t for c in captions for t in c} | sentences_of(edited.values(), merged))
    known = frozen(
        weights, plan.transformers, plan.space, words, images, texts,
        Weights(drawn["train"].captions), merged,
    )  # fmt: skip
    fits = dict(zip(drawn, told, strict=True))
    samples = _world_samples(captions, premises, rows, fits, known, edited, seed)
    words.read({*texts, *premises, *(t for one in samples.values() for t in one.premise)})
    pairs, inputs_scale = labelled(samples, known, {}, about)
    train, dev, calibration = (pairs.pop(name) for name in (*UNREAD, "calibration"))
    arrays = Arrays(
        images, {name: split_of(words, captions, rows[name], fits[name]) for name in SPLITS},
        premises, train, dev, calibration, pairs, known, inputs_scale, words,
        clean=standardised(clean, scale), noise=(NOISE / scale[1]).astype(np.float32),
        region_scale=scale, starts=starts_of(weights, world.BERT), retriever=weights,
    )  # fmt: skip
    return Study(arrays, captions, rows, _opener(parts, ends))


def _edited(
    sets: Sequence[WorldEntailment], firsts: np.ndarray
) -> tuple[dict[str, Samples], dict[str, tuple[str, ...]]]:
    """Hypotheses of "train", "val" and "test" in the image table, and how each was made.

    Those of val and test are pairs of image and text with both premises.
    """
    samples: dict[str, Samples] = {}
    about = {}
    for name, one, first in zip(EDITED, sets, firsts, strict=False):
        own = one.samples
        samples[name] = replace(own, image=np.where(own.image < 0, -1, own.image + first))
        if name != "train":
            rows = np.array([i for i, kind in enumerate(own.kind) if kind != "te"])
            texts = tuple(merged_captions(one.captions[i]) for i in one.scene_of[rows])
            kinds: tuple[Kind, ...] = ("mme",) * len(rows)  # type: ignore[assignment]
            samples[name] = replace(
                own.take(rows), premise=texts, kind=kinds, image=one.scene_of[rows] + first
            )
            about["edits" if name == "test" else name] = tuple(one.hypotheses[i].edit for i in rows)
    return samples, about


def _world_samples(
    captions: Sequence, premises: Sequence[str], rows: Mapping[str, np.ndarray],
    fits: Mapping[str, np.ndarray], known: Frozen, edited: Mapping[str, Samples], seed: int,
) -> dict[str, Samples]:  # fmt: skip
    """Training, dev, calibration and test pairs; candidates are labelled by logic."""
    rng, cut = np.random.default_rng([seed, 25]), np.cumsum(list(JUDGES.values()))

    def proposed(split: str) -> np.ndarray:
        texts, image_of = flat(captions, rows[split])
        spoken = known.spoken[[known.row[text] for text in texts]]
        return candidates(known.seen[rows[split]] @ spoken.T, image_of, TOP)

    def judged(split: str, pairs: np.ndarray, kind: Kind = "mme") -> Samples:
        truth = fits[split][pairs[:, 0], pairs[:, 1]]
        texts, _ = flat(captions, rows[split])
        image = rows[split][pairs[:, 0]]
        premise = tuple("" if kind == "ve" else premises[i] for i in image)
        return Samples(
            premise, tuple(texts[c] for c in pairs[:, 1]), image, truth.astype(np.int64),
            (kind,) * len(pairs), ("candidate",) * len(pairs), tuple(map(str, image)),
        )  # fmt: skip

    def few(pairs: np.ndarray, part: np.ndarray) -> np.ndarray:
        true = fits["judges"][pairs[:, 0], pairs[:, 1]]
        return pairs[np.concatenate([_each(pairs, part & t, 3, rng) for t in (true, ~true)])]

    pairs, test = proposed("judges"), proposed("test")
    part = np.searchsorted(cut, pairs[:, 0], side="right")
    learnt = few(pairs, part == 0)
    own, _ = caption_pairs(captions, rows["judges"][: cut[0]], seed)
    return {
        "train": joined([edited["train"], judged("judges", learnt), judged("judges", learnt, "ve"),
                         own]),
        "dev": joined([edited["val"], judged("judges", few(pairs, part == 1))]),
        "calibration": judged("judges", pairs[part == 2]),
        "candidates": judged("test", test[_each(test, test[:, 0] < ASKED, OF_EACH, rng)]),
        "edits": edited["test"],
    }  # fmt: skip


def _each(pairs: np.ndarray, some: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of at most `most` random pairs of each image, of those that are meant, in order."""
    order = rng.permutation(np.flatnonzero(some))
    order = order[np.argsort(pairs[order, 0], kind="stable")]
    _, first = np.unique(pairs[order, 0], return_index=True)
    place = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    return np.sort(order[place < most])


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
    samples = {"train": joined([text, of("train")]), "dev": _mme(of("val"))}
    counts = {}
    for name, side in zip(("calibration", "crowd"), judgments.parts(judged), strict=True):
        few = NEGATIVES if name == "crowd" else NEGATIVES // 4
        some, counts[name] = judgments.sampled(side, few, seed)
        samples[name] = side.take(some).samples(row_of)
    samples["SICK triples"] = _mme(of("test"))
    premises = {judgments.merged(premise): premise for premise in judged.premise}
    study = _photographs(parts, own, seed, samples, counts, premises)
    judgments.assert_untouched(study.arrays.train.samples, judged, names)
    return replace(study, arrays=replace(study.arrays, people=_people(judged, parts["test"])))


def _people(judged: judgments.Judged, test: CaptionedImages) -> People:
    """Judgments of test images but those of calibration, and what is said of own captions."""
    image = {name: i for i, name in enumerate(test.ids)}
    texts, image_of = flat(test.captions, range(len(test.ids)))
    number = {(int(i), text): c for c, (i, text) in enumerate(zip(image_of, texts, strict=True))}
    rejected = np.full(len(image), np.nan)
    for i in np.flatnonzero(~judged.cross):
        rejected[image[judged.image[i]]] = 100.0 * (judged.no[i] > judged.yes[i])
    kept = judgments.decided(judged)
    kept = kept[~judged.calibration[kept]]  # the judge's threshold has seen the others
    pairs = [
        (image[judged.image[i]], number[image[judged.origin[i]], judged.hypothesis[i]])
        for i in kept
    ]
    return People(np.array(pairs), judged.label[kept], rejected)


def _mme(samples: Samples) -> Samples:
    return samples.take(np.flatnonzero(np.array(samples.kind) == "mme"))


def _flickr30k(own: Budget, seed: int) -> Study:
    """SNLI-VE on Flickr30K's images (`f30k` in the data folder); SICK's pairs if they are there."""
    folder = precomputed.find("f30k")
    of = {"train": "train", "val": "dev", "test": "test"}
    parts = {name: precomputed.load(folder, split).images for name, split in of.items()}
    row_of = {name: i for i, name in enumerate(n for one in parts.values() for n in one.ids)}
    both = [zip(one.ids, one.captions, strict=True) for one in parts.values()]
    captions = {name: some for one in both for name, some in one}

    def pairs(split: str, *of_parts: str) -> Samples:
        """Of SNLI-VE's split, whose images lie in all parts, the pairs of these parts' images."""
        table = snli_ve.read(split)
        table = table[table["image"].isin([n for part in of_parts for n in parts[part].ids])]
        if table.empty:
            raise DataError(
                f"{snli_ve.split_file(split, data_dir() / snli_ve.NAME)}: no image is one of "
                f"{folder}, such as {parts['train'].ids[0]!r} (does id_mapping.json lie there?)"
            )
        return snli_ve.samples(table, row_of, captions)

    text = [sick.text_text()] if (data_dir() / sick.NAME).is_dir() else []
    dev, test = _mme(pairs("dev", "train", "val")), _mme(pairs("test", *SPLITS))
    samples = {"train": joined([*text, pairs("train", "train")]), "dev": dev, "calibration": dev,
               "SNLI-VE": test}  # fmt: skip
    return _photographs(parts, own, seed, samples, {}, {})


def _photographs(
    parts: Mapping[str, CaptionedImages], own: Budget, seed: int,
    samples: dict[str, Samples], counts: Mapping[str, np.ndarray],
    merged: dict[str, tuple[str, ...]],
) -> Study:  # fmt: skip
    """A collection of photographs with labelled pairs; pairs of captions are added to these."""
    captions = tuple(tuple(c) for one in parts.values() for c in one.captions)
    ends = np.cumsum([0, *(len(one.ids) for one in parts.values())])
    order = np.random.default_rng([seed, 20]).permutation(int(ends[1]))
    cut = np.cumsum(list(SHARES.values()))
    rows = dict(zip((*SHARES, "train"), map(np.sort, np.split(order, cut)), strict=True))
    rows |= {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(SPLITS) if i}
    scale = region_scale(parts["train"].features)
    images = standardised([one.features for one in parts.values()], scale)
    words = Words.of([text for some in captions[: ends[1]] for text in some], own.min_count)
    premises = tuple(judgments.merged(some) for some in captions)
    merged |= dict(zip(premises, captions, strict=True))
    for name, some in (("train", rows["judges"]), ("dev", rows["val"][::4])):
        made, known = caption_pairs(captions, some, seed + (name == "dev"))
        samples[name] = joined([samples[name], made if name == "train" else _mme(made)])
        merged |= known
    texts = sorted({t for c in captions for t in c} | sentences_of(samples.values(), merged))
    start = _trained_once(own, words, images, split_of(words, captions, rows["frozen"]))
    bert = data_dir() / "bert"
    if not bert.is_dir():
        print(f"no BERT in {bert}: the text branch starts from nothing", file=sys.stderr)
    states = TokenStates.by(bert, texts, merged, job_folder()) if bert.is_dir() else None
    plan, of_stems = own.retrieval, Weights(parts["train"].captions)
    encoders = frozen(
        start, plan.transformers, plan.space, words, images, texts, of_stems, merged, states
    )
    words.read({*texts, *premises, *(t for one in samples.values() for t in one.premise)})
    pairs, inputs_scale = labelled(samples, encoders, counts, {})
    train_pairs, dev, calibration = (pairs.pop(name) for name in (*UNREAD, "calibration"))
    arrays = Arrays(
        images, {name: split_of(words, captions, rows[name]) for name in SPLITS}, premises,
        train_pairs, dev, calibration, pairs, encoders, inputs_scale, words, states,
        region_scale=scale, starts=starts_of(start), retriever=start,
    )  # fmt: skip
    return Study(arrays, captions, rows, _opener(list(parts.values()), ends))


def _trained_once(own: Budget, words: Words, images: np.ndarray, split: Split) -> dict[str, Tensor]:
    """The retriever that judges start from: trained on its own images, from one seed, and kept."""
    code = source_hash("mmlib.papers.entailment.retraining")
    told = "\n".join([*split.texts, str(own.retrieval), str(own.frozen), code])
    digest = hashlib.sha256(told.encode() + np.ascontiguousarray(images[split.rows]).tobytes())
    path = job_folder() / f"frozen-{digest.hexdigest()[:24]}.safetensors"
    if not path.exists():
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more of them add in another order
        seed_everything(0)
        weights: dict[str, Tensor] = {}
        for family in ("dual", "align"):  # which grows out of it
            model = build(family, own.retrieval, images, len(words))
            model.load_state_dict(weights, strict=False)
            train(model, images, split, own.frozen[family], 0)
            weights = {n: v.detach().contiguous() for n, v in model.state_dict().items()}
        torch.set_num_threads(threads)
        write_atomic(path, lambda p: save_file(weights, p))
    return load_file(path)
