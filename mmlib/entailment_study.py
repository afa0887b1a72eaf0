"""Notebook 02's experiment, first half: the entailment classifier on each tier's data, the rows of
Table 3, and what is measured on them. `mmlib.revision_study` is the second half.
"""

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn

from mmlib import training
from mmlib.core.entailment_pairs import Kind, Samples, joined
from mmlib.core.intervals import Estimate, bootstrap_interval, crossed_interval
from mmlib.core.paths import PACKAGE, data_dir, write_atomic
from mmlib.core.tables import Result, paper_values
from mmlib.entailment import (
    SPECIAL,
    Batch,
    Classifier,
    Settings,
    best_threshold,
    f_score,
    joint_loss,
    mimetic,
    predicted,
    scores_at,
    with_masked,
)
from mmlib.entailment_batches import Encoded, Reader, encode, shuffled_batches
from mmlib.revision_study import NOISE, Collection, Start, standardised
from mmlib.training import seed_everything, settings_hash

BLOCK = 128  # samples that are scored together
WORLD_TEXT = PACKAGE / "world" / "text.safetensors"  # by ci/train_world_text.py


@dataclass(frozen=True)
class Budget:
    """Sizes and schedule of every row of a tier.

    images: training images whose captions and pictures are used; 0 for all. epochs: passes over
    the full training set; rows with less data take as many steps, not as many passes.
    started: share of the learning rate for weights that were trained before.
    """

    classifier: Settings
    images: int = 0
    epochs: float = 5
    batch: int = 96
    learning_rate: float = 2e-5
    weight_decay: float = 0.02
    started: float = 1.0


_SMALL = Settings(
    width=64, heads=4, text_layers=2, image_layers=1, words_layers=1, cross_layers=1, dropout=0.0,
    max_premise=90, max_hypothesis=25,
)  # fmt: skip
_MIDDLE = replace(_SMALL, width=128, max_premise=100, max_hypothesis=30)
BUDGETS = {
    "world": Budget(_SMALL, images=800, epochs=1.0, batch=32, learning_rate=1e-3, started=0.3),
    "flickr8k": Budget(_MIDDLE, images=3000, epochs=0.7, batch=32, learning_rate=5e-4, started=0.3),
    "flickr8k quick": Budget(
        replace(_MIDDLE, width=64), images=1000, epochs=1, batch=32, learning_rate=5e-4,
        started=0.3,
    ),
    "paper": Budget(Settings()),
}  # fmt: skip


def budget(tier: str, preset: str = "", **changes: object) -> Budget:
    """The budget of a tier (and preset "quick"), with changes by name; None and 0 change nothing.

    Raises ValueError for an unknown tier or preset.
    """
    return training.choose_budget(BUDGETS, tier, preset, changes)


# --- Data ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Test:
    """Pairs on which rows are compared.

    samples: of kind "mme", so that all three branches answer, or of kind "te".
    parts: protocol -> its rows and how many pairs each stands for, where negatives are a sample.
    about: (n,) what a hypothesis is, such as the kind of edit; may be empty.
    """

    samples: Samples
    parts: Mapping[str, tuple[np.ndarray, np.ndarray]]
    about: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Data:
    """What the rows of a tier are trained and tested on.

    images: (images, R, W) the one image table, standardised. names: of its rows. merged: premise
    text -> the captions that it was merged from. open_image: row -> RGB picture.
    """

    tier: str
    train: Samples
    dev: Samples
    tests: Mapping[str, Test]
    images: np.ndarray
    names: tuple[str, ...]
    merged: Mapping[str, tuple[str, ...]]
    open_image: Callable[[int], Image.Image]
    notes: Mapping[str, Any] = field(default_factory=dict)


IMAGE_NOISE, PARTIAL = NOISE, 0.25


def load(
    tier: str,
    settings: Budget,
    seed: int = 0,
    workers: int = 0,
    noise: float = IMAGE_NOISE,
    partial: float = PARTIAL,
) -> Data:
    """The classifier's data of a tier: "world", "flickr8k" or "paper".

    noise, partial: the world's dials, see `mmlib.world.hypotheses.entailment_set`.
    """
    if tier == "world":
        return world_data(settings, seed, workers or os.cpu_count() or 1, noise, partial)
    if tier == "flickr8k":
        return flickr8k_data(settings, seed)
    if tier == "paper":
        return paper_data(settings)
    raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")


WORLD_TESTS = {"val": 150, "test": 400}


def world_data(
    settings: Budget,
    seed: int = 0,
    workers: int = 1,
    noise: float = IMAGE_NOISE,
    partial: float = PARTIAL,
) -> Data:
    """Generated scenes; the test pairs are "ve" and "mme" samples, all read with both premises."""
    from mmlib.world.hypotheses import entailment_set
    from mmlib.world.premises import merged

    sizes = {"train": settings.images, **WORLD_TESTS}
    sets = {
        split: entailment_set(split, n, seed, image_noise=noise, partial=partial, workers=workers)
        for split, n in sizes.items()
    }
    first = dict(zip(sets, np.cumsum([0, *sizes.values()]), strict=False))

    def moved(split: str) -> Samples:
        own = sets[split].samples
        return replace(own, image=np.where(own.image < 0, -1, own.image + first[split]))

    def both(split: str) -> tuple[Samples, np.ndarray]:
        own = sets[split]
        rows = np.array([i for i, kind in enumerate(own.samples.kind) if kind != "te"])
        texts = [merged(own.captions[i]) for i in own.scene_of[rows]]
        some = moved(split).take(rows)
        form: Kind = "mme"
        return replace(some, premise=tuple(texts), kind=(form,) * len(rows)), rows

    test, rows = both("test")
    text = np.array([i for i, kind in enumerate(sets["test"].samples.kind) if kind == "te"])
    edits = sets["test"].edits
    tests = {
        "world": _plain_test(test, tuple(edits[i] for i in rows)),
        "world, text": _plain_test(moved("test").take(text), tuple(edits[i] for i in text)),
    }

    def open_image(row: int) -> Image.Image:
        split = max((s for s in sets if first[s] <= row), key=lambda s: first[s])
        return sets[split].open_image(row - int(first[split]))

    captions = {
        merged(own): tuple(c.text for c in own) for one in sets.values() for own in one.captions
    }
    return Data(
        "world", moved("train"), both("val")[0], tests,
        standardised([own.images for own in sets.values() if own.images is not None]),
        tuple(f"{split} {i}" for split, n in sizes.items() for i in range(n)), captions, open_image,
        {"told share": sets["test"].text_entailed_share()},
    )  # fmt: skip


# --- Flickr8k ------------------------------------------------------------------------------------

NEGATIVES = 6000  # of the judged pairs without a yes that are scored, weighted up to all of them
HARD_OF = 50  # a hard negative is the caption of highest overlap among so many


def caption_pairs(
    captions: Sequence[Sequence[str]], rows: np.ndarray, seed: int = 0
) -> tuple[Samples, dict[str, tuple[str, ...]]]:
    """Positives and negatives made of captions, and what each premise was merged from.

    captions: of each image of the table; rows: the training images to use. Each gives one of its
    captions with the other four as premise (label 1), a random caption of another image and a hard
    one (label 0): that of highest overlap among 50 others, captions that some image of `rows` has
    word for word left out where they are the image's own. Each pair comes as "mme" and as "ve".
    Raises ValueError for an image of which no other has a caption that it lacks.
    """
    from mmlib.core.records import normalised
    from mmlib.data.judgments import merged
    from mmlib.data.overlap import Weights, overlap_score

    rng = np.random.default_rng([seed, 21])
    weights = Weights(captions[i] for i in rows)
    premise, hypothesis, image, label, source, known = [], [], [], [], [], {}
    all_said = {normalised(text) for i in rows for text in captions[i]}
    for i in rows:
        own = list(captions[i])
        left = int(rng.integers(len(own)))
        rest = tuple(text for k, text in enumerate(own) if k != left)
        said = {normalised(text) for text in own}
        if said == all_said:
            raise ValueError(f"image {i}: no other image has a caption that it lacks")
        others: list[str] = []
        while len(others) < HARD_OF + 1:
            j = int(rng.choice(rows))
            text = captions[j][int(rng.integers(len(captions[j])))]
            if j != i and normalised(text) not in said:
                others.append(text)
        hard = max(others[1:], key=lambda text: overlap_score(own, text, weights))
        for texts, sentence, truth, what in (
            (rest, own[left], 1, "own caption"),
            (tuple(own), others[0], 0, "random caption"),
            (tuple(own), hard, 0, "hard caption"),
        ):
            known[merged(texts)] = texts
            premise.append(merged(texts))
            hypothesis.append(sentence)
            image.append(i)
            label.append(truth)
            source.append(what)
    n = len(premise)

    def of(kind: Kind, texts: Sequence[str]) -> Samples:
        return Samples(
            tuple(texts), tuple(hypothesis), np.array(image), np.array(label), (kind,) * n,
            tuple(source), tuple(str(i) for i in image),
        )  # fmt: skip

    return joined([of("mme", premise), of("ve", ("",) * n)]), known


def flickr8k_data(settings: Budget, seed: int = 0) -> Data:
    """SICK's pairs and triples, caption pairs of training images; the crowd's judgments as test.

    No judged pair and no judged image is in the training set (`judgments.assert_untouched`).
    """
    from mmlib.data import flickr8k, judgments, sick

    splits = {name: flickr8k.load(name) for name in ("train", "val", "test")}
    names = tuple(name for own in splits.values() for name in own.ids)
    row_of = {name: row for row, name in enumerate(names)}
    captions = [texts for own in splits.values() for texts in own.captions]
    starts = np.cumsum([0, *(len(own.ids) for own in splits.values())])

    pairs, known = caption_pairs(captions, _some(int(starts[1]), settings.images, seed), seed)
    origins = sick.Origins()
    triples = sick.triples(origins=origins)
    own = triples[(triples["split"] == "train") & triples["clean"]]
    apart = ("val", "test")
    train = joined(
        [
            sick.text_text(("TRAIN",), leave_out=apart, origins=origins),
            sick.triple_samples(own, origins.captions, row_of),
            pairs,
        ]
    )
    judged = judgments.load()
    judgments.assert_untouched(train, judged, names)

    def mme(split: str) -> Samples:
        samples = sick.triple_samples(
            triples[(triples["split"] == split) & triples["clean"]], origins.captions, row_of
        )
        return samples.take(np.flatnonzero(np.array(samples.kind) == "mme"))

    dev_pairs, dev_known = caption_pairs(captions, np.arange(starts[1], starts[2])[::4], seed + 1)
    dev = joined([mme("val"), dev_pairs.take(np.arange(len(dev_pairs) // 2))])
    text = sick.text_text(("TEST",), leave_out=("train",), origins=origins)
    triple_test = mme("test")
    known |= dev_known | {judgments.merged(p): p for p in judged.premise}
    known |= {judgments.merged(texts): tuple(texts) for texts in captions}
    tests = {
        "crowd": crowd_test(judged, row_of, [captions[i] for i in range(starts[1])], seed),
        "SICK triples": _plain_test(triple_test),
        "SICK, text": _plain_test(text),
    }

    def open_image(row: int) -> Image.Image:
        at = int(np.searchsorted(starts, row, side="right")) - 1
        return list(splits.values())[at].open_image(row - int(starts[at]))

    features = standardised([own.features for own in splits.values()])
    return Data("flickr8k", train, dev, tests, features, names, known, open_image)


def _some(count: int, wanted: int, seed: int) -> np.ndarray:
    """`wanted` of the first `count` rows, all where it is 0, in ascending order."""
    if not 0 < wanted < count:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, 20]).choice(count, wanted, replace=False))


def _plain_test(samples: Samples, about: tuple[str, ...] = ()) -> Test:
    return Test(samples, {"all": (np.arange(len(samples)), np.ones(len(samples)))}, about)


def crowd_test(judged: Any, row_of: Mapping[str, int], training: Sequence, seed: int = 0) -> Test:
    """The judged cross pairs in the four protocols, and "calibration".

    All pairs with a yes are kept and, of the many without, `NEGATIVES` in the evaluation part and
    a quarter as many for calibration; weights say how many each stands for. CF-hard's negatives
    are those of the highest word overlap with the image's captions, a model that is not under test.
    `about` keeps the overlap of each pair, an anchor that learns nothing.
    """
    from mmlib.data import judgments
    from mmlib.data.overlap import Weights, overlap_score

    weights = Weights(training)
    sides: list[Samples] = []
    overlaps: list[str] = []
    parts, at = {}, 0
    for side, most in zip(judgments.parts(judged), (NEGATIVES // 4, NEGATIVES), strict=True):
        every = judgments.protocol("CF-all", side)
        overlap = np.zeros(len(side))
        overlap[every] = [
            overlap_score(side.premise[i], side.hypothesis[i], weights) for i in every
        ]
        yes, no = (every[side.label[every] == value] for value in (1, 0))
        drawn = np.random.default_rng([seed, 22]).choice(no, min(most, len(no)), replace=False)
        own = {"CF-all" if sides else "calibration": np.concatenate([yes, drawn])}
        if sides:
            hard = {
                p: judgments.protocol(p, side, seed, overlap) for p in ("CF-balanced", "CF-hard")
            }
            sure = (side.yes == 0) | (side.no == 0)
            own |= hard | {"CF-unanimous": own["CF-all"][sure[own["CF-all"]]]}
        rows = np.unique(np.concatenate(list(own.values())))
        for name, some in own.items():
            sampled = name not in ("CF-balanced", "CF-hard")
            many = np.where(side.label[some] == 0, len(no) / len(drawn), 1.0)
            parts[name] = (
                at + np.searchsorted(rows, some), many if sampled else np.ones(len(some))
            )  # fmt: skip
        sides.append(side.take(rows).samples(row_of))
        overlaps += [f"{x:.4f}" for x in overlap[rows]]
        at += len(rows)
    return Test(joined(sides), parts, tuple(overlaps))


# --- The papers' own data ------------------------------------------------------------------------


def paper_data(settings: Budget) -> Data:
    """SNLI-VE on Flickr30K's images (`f30k` in the data folder); SICK as text pairs if it is there.

    Trained on SNLI-VE's train and tested on its test split: the paper's own test set was not
    published. Training images must not be of Flickr8k's test split where its judgments are used.
    """
    from mmlib.data import judgments, precomputed, sick, snli_ve

    folder = precomputed.find("f30k")
    splits = {s: precomputed.load(folder, s).images for s in ("train", "dev", "test")}
    names = tuple(name for own in splits.values() for name in own.ids)
    row_of = {name: row for row, name in enumerate(names)}
    captions = {
        name: texts for own in splits.values()
        for name, texts in zip(own.ids, own.captions, strict=True)
    }  # fmt: skip
    starts = np.cumsum([0, *(len(own.ids) for own in splits.values())])

    def of(split: str) -> Samples:
        table = snli_ve.read(split)
        return snli_ve.samples(table[table["image"].isin(row_of)], row_of, captions)

    def mme(split: str) -> Samples:
        own = of(split)
        return own.take(np.flatnonzero(np.array(own.kind) == "mme"))

    train = [of("train")]
    if (data_dir() / sick.NAME).is_dir():
        train.insert(0, sick.text_text())

    def open_image(row: int) -> Image.Image:
        at = int(np.searchsorted(starts, row, side="right")) - 1
        return list(splits.values())[at].open_image(row - int(starts[at]))

    return Data(
        "paper", joined(train), mme("dev"), {"SNLI-VE": _plain_test(mme("test"))},
        standardised([own.features for own in splits.values()]), names,
        {judgments.merged(texts): tuple(texts) for texts in captions.values()}, open_image,
    )  # fmt: skip


NOTES = {
    "world": """*What this world was built to contain.* Scenes whose content is known, drawn as
pictures; captions that are true and say a part. What follows from a caption or holds in a scene is
decided by logic. False hypotheses are made by changing one fact, or taken from other scenes, half
of all pairs each; so how common entailment is among them was set by us. The classifier's text
branch starts from a small BERT that was trained to tell whether two captions are of one scene, on
other scenes: no label of entailment, but half of the task, which the image branch and the single
stream do not get. The retrievers start from weights trained on other scenes, as the paper's start
from pretrained ones. What holds here shows how a method behaves where the truth is known, not how
well it would do on photographs.""",
    "flickr8k": """*Real photographs, captions and judgments.* Text pairs are SICK's, in both
directions. Image-text pairs are SICK's that go back to Flickr8k captions, an image's own captions
as positives, and other images' captions as negatives, of which some are true. The test is what at
least three people said of test images and captions ("describes the image, possibly with minor
mistakes", which is more generous than entailment). A BERT, where one is given, stays frozen and
reads each sentence by itself; layers on top of it read the pair. If it is all-MiniLM-L6-v2, know
that its own training saw captions of Flickr30K, which contains Flickr8k.""",
    "paper": """SNLI-VE on Flickr30K's images, as far as its files are in the data folder. The
paper's own test set was not published; tests are SNLI-VE's.""",
}


def known_fits(collection: Collection) -> np.ndarray | None:
    """(test images, test captions) bool: true pairs known by logic, or by the crowd's majority.

    Own captions count as true. None where nobody knows. Most of Flickr8k's pairs were not judged.
    """
    if "test" in collection.fits:
        return collection.fits["test"]
    if collection.judged is None:
        return None
    image_of = collection.image_of("test")
    fits = image_of == np.arange(len(collection.rows["test"]))[:, None]
    yes = collection.judged_pairs()[collection.judged.label == 1]
    fits[yes[:, 0], yes[:, 1]] = True
    return fits


def crowd_report() -> pd.Series | None:
    """Figures of Flickr8k's crowd judgments; None where they are not in the data folder."""
    from mmlib.data import flickr8k, judgments

    if not (data_dir() / flickr8k.NAME).is_dir():
        return None
    return pd.Series(judgments.figures(judgments.load())).map(lambda x: f"{x:,.3f}".rstrip("0"))


def golden_errors() -> Estimate | None:
    """Percent of own captions that the crowd rejects, with the Clopper-Pearson interval (C11)."""
    from scipy.stats import binomtest

    from mmlib.data import flickr8k, judgments

    if not (data_dir() / flickr8k.NAME).is_dir():
        return None
    found = judgments.figures(judgments.load())
    rejected, own = int(found["own pairs, no"]), int(found["own pairs"])
    low, high = binomtest(rejected, own).proportion_ci()
    return Estimate(100 * rejected / own, 100 * float(low), 100 * float(high))


DISAGREE = 0.2
PAPERS_EFFECTS = {
    "full − Only TE": ("Ours", "Only TE"), "full − Only VE": ("Ours", "Only VE"),
    "full − w/o VE data": ("Ours", "w/o VE Data"), "full − w/o TE data": ("Ours", "w/o TE Data"),
    "full − w/o masking": ("Ours", "w/o Image Masking"), "full − w/o BERT": ("Ours", "w/o BERT"),
}  # fmt: skip


def power_table(data: Data) -> pd.DataFrame:
    """Smallest difference found with 80 % power, in points, beside the paper's differences of F0.5.

    For a paired test at 5 % of two rows that answer differently on `DISAGREE` of the pairs; pairs
    of one image are taken for independent and seeds for equal, so the truth is larger.
    """
    paper = paper_values("entailment", "table3")["F0.5"].astype(float)
    rows = {}
    for test, own in data.tests.items():
        for part, (at, weights) in own.parts.items():
            effective = float(weights.sum() ** 2 / (weights**2).sum())
            found = 100 * (1.96 + 0.84) * np.sqrt(DISAGREE / effective)
            rows[f"{test}, {part}"] = {"pairs": len(at), "smallest difference": round(found, 1)} | {
                name: round(float(paper[a] - paper[b]), 1)
                for name, (a, b) in PAPERS_EFFECTS.items()
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def anchor_table(data: Data) -> pd.DataFrame:
    """ROC area and average precision of `anchors` on every test and part, in percent."""
    rows = {}
    for test, own in data.tests.items():
        scores = anchors(data, test)
        for part, (at, weights) in own.parts.items():
            ranked = Ranked(own.samples.label[at], scores[at])
            rows[f"{test}, {part}"] = {
                "ROC area": round(ranked.auc(weights), 1),
                "average precision": round(ranked.ap(weights), 1),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


# --- A frozen BERT -------------------------------------------------------------------------------


class TokenStates:
    """Token states of a frozen BERT, each text read alone: a `Reader` of texts by their tokens.

    As in PreTTR (MacAvaney et al., SIGIR 2020): the pretrained layers read premise sentences and
    hypothesis apart, once for all rows and seeds, and only the layers above them, which learn,
    read the pair together.
    """

    def __init__(self, texts: Sequence[str], states: np.ndarray, lengths: np.ndarray,
                 merged: Mapping[str, tuple[str, ...]]):  # fmt: skip
        """states: (tokens, W) of all texts after one another; lengths: (texts,) tokens of each.

        merged: text -> the texts that it was merged from, whose tokens are its own.
        """
        ends = np.cumsum(lengths) + len(SPECIAL)
        self._span = {
            text: range(int(end - n), int(end))
            for text, end, n in zip(texts, ends, lengths, strict=True)
        }
        self.merged, self.states = dict(merged), states

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, or of the captions that it was merged from."""
        parts = (text,) if text in self._span else self.merged.get(text, ())
        if text and not parts:
            raise ValueError(f"no token states of {text!r}")
        return [i for part in parts for i in self._span[part]]

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.states)


def token_states(
    data: Data, bert: str | Path, cache: Path, more: Iterable[str] = (), most: int = 40,
    device: str = "cpu",
) -> TokenStates:  # fmt: skip
    """States of all texts of the data by a BERT (folder or hub name), kept in the folder `cache`.

    more: other texts, such as captions that are to be mined. [CLS] and [SEP] are left out; `most`
    tokens of a text are read. device: where the BERT computes.
    """
    from safetensors.numpy import load_file, save_file

    from mmlib.features.bert import BertEncoder

    parts = [data.train, data.dev, *(test.samples for test in data.tests.values())]
    texts = {text for part in parts for text in part.hypothesis} | {
        one for part in parts for text in part.premise if text
        for one in data.merged.get(text, (text,))
    }  # fmt: skip
    ordered = sorted(texts | set(more))
    digest = hashlib.sha256("\n".join([str(bert), str(most), *ordered]).encode()).hexdigest()[:16]
    path = cache / f"token_states_{digest}.safetensors"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        encoder = BertEncoder.from_pretrained(bert, "frozen")
        states, lengths = encoder.token_states_all(
            ordered, most + 2, device=device, progress="token states"
        )
        inner = [row[1 : n - 1] for row, n in zip(states, lengths, strict=True)]
        kept = {"states": np.concatenate(inner), "lengths": lengths - 2}
        write_atomic(path, lambda p: save_file(kept, p))
    found = load_file(path)
    return TokenStates(ordered, found["states"], found["lengths"], data.merged)


# --- Rows of Table 3 -----------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """A row: what it changes in the classifier, and what it trains on.

    changes: of `Settings`. kinds: of the samples. share: of the "mme" samples that are kept.
    sources: of samples that are left out. apart: one kind after the other, not mixed. scratch: TE's
    own layers learn words themselves where others read a frozen BERT's states.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("te", "ve", "mme")
    share: float = 1.0
    sources: tuple[str, ...] = ()
    apart: bool = False
    scratch: bool = False


# Without SNLI-VE the paper's MME data would be CxC's and ECCV's: 65.9k of 595.4k (Table 2).
WITHOUT_VE = 65.9 / 595.4
CAPTION_SOURCES = ("own caption", "random caption", "hard caption")
FULL = "Full"
SYSTEMS = {
    "Only TE": System({"model": "te"}, ("te", "mme")),
    "Only VE": System({"model": "ve"}, ("ve", "mme")),
    "Single stream": System({"model": "single"}),
    FULL: System(),
    "w/o image masking": System({"masked": 0}),
    "w/o VE data": System({}, ("te", "mme"), share=WITHOUT_VE),
    "w/o VE data, MME kept": System({}, ("te", "mme")),
    "w/o TE data": System({}, ("ve", "mme")),
    "w/o BERT": System({"text": "shared"}),
    "BERT from scratch": System(scratch=True),
    "Sigmoid": System({"output": "sigmoid"}),
    "Scalar gate": System({"gate": "scalar"}),
    "Separate": System(apart=True),
    "w/o caption pairs": System(sources=CAPTION_SOURCES),
}
# Our row -> the paper's.
PRINTED = {
    "Only TE": "Only TE", "Only VE": "Only VE", "Single stream": "OFA", FULL: "Ours",
    "w/o image masking": "w/o Image Masking", "w/o VE data": "w/o VE Data",
    "w/o TE data": "w/o TE Data", "w/o BERT": "w/o BERT",
}  # fmt: skip


def systems_of(tier: str, preset: str = "", bert: str = "") -> tuple[str, ...]:
    """The rows that a run trains; bert: the frozen BERT of the text branch, "" for none."""
    if preset == "quick":
        return ("Only TE", "Only VE", "Single stream", FULL)
    out = set() if bert else {"BERT from scratch"}
    if tier == "paper":
        out |= {"w/o caption pairs"}  # it makes none
    if tier == "world":  # six minutes hold no more
        out |= {"w/o caption pairs", "w/o VE data, MME kept", "Scalar gate"}
    return tuple(name for name in SYSTEMS if name not in out)


def training_rows(samples: Samples, system: System, seed: int = 0) -> np.ndarray:
    """The rows of the training set that a system learns from."""
    rng = np.random.default_rng([seed, 23])
    kind, source = np.array(samples.kind), np.array(samples.source)
    kept = np.isin(kind, system.kinds) & ~np.isin(source, system.sources)
    if system.share < 1:
        kept &= (kind != "mme") | (rng.random(len(samples)) < system.share)
    return np.flatnonzero(kept)


PARTS = 6  # times that the dev loss is looked at


def epoch_batches(
    lengths: np.ndarray,
    groups: Sequence[np.ndarray],
    steps: int,
    size: int,
    seed: int,
    epoch: int,
) -> list[np.ndarray]:
    """The batches of one of `PARTS` parts of a training: rows of `groups[epoch's]`, shuffled anew.

    groups: one set of rows, or one a stage of a training that takes kinds one after another.
    """
    rows = groups[epoch * len(groups) // PARTS]
    found: list[np.ndarray] = []
    turn = 0
    while len(found) < steps:
        rng = np.random.default_rng([seed, epoch, turn])
        found += [rows[part] for part in shuffled_batches(lengths[rows], size, rng)]
        turn += 1
    return found[:steps]


@dataclass(frozen=True, eq=False)
class Arrays:
    """What trainings read.

    kinds, sources: of the training samples. encoded: "own" (the pair as TE's own layers read it) or
    "words" -> "train", "dev" and each test. images: the image table. sizes: ids of either reader.
    states: of a frozen BERT (`TokenStates`), or None. starts: pretrained weights by the name that
    they have in the classifier, such as "image.first".
    """

    samples: Samples
    encoded: Mapping[str, Mapping[str, Encoded]]
    images: np.ndarray
    sizes: Mapping[str, int]
    states: np.ndarray | None = None
    starts: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def reads(self, settings: Settings, name: str, scratch: bool = False) -> Encoded:
        """A split or test as a classifier with these settings reads it."""
        own = settings.text == "own" and settings.model in ("both", "te") and not scratch
        return self.encoded["own" if own else "words"][name]

    def model(self, settings: Settings, scratch: bool = False) -> tuple[Classifier, frozenset[str]]:
        """A classifier, and the names of its weights that were there in `starts`."""
        _, regions, width = self.images.shape
        states = None
        if self.states is not None and not scratch:
            with warnings.catch_warnings():  # joblib shares it read-only, and nobody writes
                warnings.filterwarnings("ignore", "The given NumPy array is not writable")
                states = torch.from_numpy(self.states)
        model = Classifier(self.sizes["words"], width, regions, settings, states=states)
        if hasattr(model, "text"):
            mimetic(model.text)
        return model, start(model, self.starts, regions)

    def fingerprint(self) -> str:
        """A hash of everything that trainings read."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images).tobytes())
        for parts in self.encoded.values():
            for own in parts.values():
                for column in vars(own).values():
                    digest.update(np.ascontiguousarray(column).tobytes())
        for name in sorted(self.starts):
            digest.update(self.starts[name].float().numpy().tobytes())
        digest.update("|".join(self.samples.source).encode())
        if self.states is not None:
            digest.update(np.ascontiguousarray(self.states[::97]).tobytes())
        return digest.hexdigest()[:16]


def start(model: nn.Module, weights: Mapping[str, torch.Tensor], regions: int) -> frozenset[str]:
    """Copy pretrained weights into the parts of a model that they name; the names of these.

    Embeddings of words and positions may be of another number: the first ones are copied, and of
    positions of a stream over words and regions also the last ones, which are the regions'.
    """
    own, copied = model.state_dict(), set()
    with torch.no_grad():
        for name, value in weights.items():
            if name not in own or own[name].shape[1:] != value.shape[1:]:
                continue
            target = own[name]
            n = min(len(target), len(value))
            if len(target) != len(value) and "_embeddings" not in name:
                continue
            if name.startswith("stream") and "position" in name:
                n -= regions
                target[-regions:] = value[-regions:]
            target[:n] = value[:n]
            copied.add(name)
    return frozenset(copied)


def starts_of(begin: Start) -> dict[str, torch.Tensor]:
    """Pretrained weights for the parts of a classifier, by their names there.

    VE's are the plainly trained align-then-fuse retriever's (ALBEF's place), a single stream's are
    the single-stream retriever's; TE's own, in the world, are a small BERT's (`WORLD_TEXT`).
    """
    from safetensors.torch import load_file

    found = {
        name: value
        for name, value in begin.weights.get("align", {}).items()
        if name.startswith(("image.", "words.", "cross."))
    }
    found |= {f"stream.{name}": value for name, value in begin.weights.get("single", {}).items()}
    if begin.collection.tier == "world":
        found |= {name: value.float() for name, value in load_file(WORLD_TEXT).items()}
    return found


def prepare(
    data: Data, settings: Budget, begin: Start, bert: str = "", cache: Path | None = None
) -> tuple[Arrays, tuple[Reader, Reader]]:
    """The data as arrays, and the readers of TE's own layers and of VE's words.

    bert: a BERT (folder or hub name) whose frozen token states TE's own layers read; "" for none.
    cache: folder for these states.
    """
    words: Reader = begin.words
    own: Reader = words
    if bert:
        more = [text for captions in begin.collection.captions for text in captions]
        own = token_states(data, bert, cache or data_dir(), more, device=begin.device)
        own.merged |= {
            premise: captions
            for premise, captions in zip(
                begin.collection.premises, begin.collection.captions, strict=True
            )
        }
    parts = {"train": data.train, "dev": data.dev}
    parts |= {name: test.samples for name, test in data.tests.items()}
    most = settings.classifier.max_premise, settings.classifier.max_hypothesis
    arrays = Arrays(
        data.train,
        {
            name: {part: encode(samples, pair, words, *most) for part, samples in parts.items()}
            for name, pair in (("own", own), ("words", words))
        },
        data.images,
        {"own": len(own), "words": len(words)},
        own.states if isinstance(own, TokenStates) else None,
        starts_of(begin),
    )
    return arrays, (own, words)


def train_system(
    system: str,
    settings: Mapping[str, Any],
    seed: int,
    tier: str,
    data: str,
    arrays: "Arrays",
    device: str,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Train one row and score the test pairs: the work of one job.

    The answer holds "scores": test -> branch -> probabilities of entailment; "gates": test -> mean
    of the TE and the VE gate; "history", "parameters", "seconds". The weights of the full model are
    kept beside the answer (`weights_path`), for mining.
    """
    started = time.perf_counter()
    chosen = Budget(**{**settings, "classifier": Settings(**settings["classifier"])})
    row = SYSTEMS[system]
    wanted = replace(chosen.classifier, **row.changes)
    seed_everything(seed)
    model, begun = arrays.model(wanted, row.scratch)
    model.to(device)
    own = training_rows(arrays.samples, row, seed)
    kinds = np.array(arrays.samples.kind)
    stages = [own[kinds[own] == k] for k in ("te", "ve", "mme")] if row.apart else [own]
    groups = [stage for stage in stages if len(stage)]  # a tier may lack a kind
    full = chosen.epochs * len(arrays.samples) / chosen.batch
    steps = max(1, round(full / PARTS))

    def reads(name: str) -> Encoded:
        return arrays.reads(wanted, name, row.scratch)

    train, dev = reads("train"), reads("dev")

    def batches(epoch: int) -> list[np.ndarray]:
        return epoch_batches(train.pair_length, groups, steps, chosen.batch, seed, epoch)

    def loss(rows: np.ndarray) -> torch.Tensor:
        batch = train.batch(rows, arrays.images, device)
        return step_loss(model, batch, wanted)

    rate = chosen.learning_rate
    groups_of_rate = [
        {"params": [p for n, p in model.named_parameters() if (n in begun) == old], "lr": own_rate}
        for old, own_rate in ((True, rate * chosen.started), (False, rate))
    ]
    optimiser = torch.optim.AdamW(
        groups_of_rate, rate, weight_decay=chosen.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda epoch: 1 - epoch / PARTS)
    history = training.fit(
        model, batches, loss, lambda: {"dev_loss": dev_loss(model, dev, arrays.images, device)},
        epochs=PARTS, learning_rate=chosen.learning_rate, patience=PARTS, seed=seed,
        checkpoint=checkpoint, optimiser=optimiser, schedule=schedule,
    )  # fmt: skip
    found = {
        name: score(model, reads(name), arrays.images, device)
        for name in arrays.encoded["own"]
        if name != "train"
    }
    if system == FULL and checkpoint is not None:
        write_atomic(weights_path(checkpoint), partial(_save_weights, model))
    return {
        "scores": {
            n: {b: p.round(4).tolist() for b, p in s.items()} for n, (s, _) in found.items()
        },
        "gates": {name: gates for name, (_, gates) in found.items()},
        "history": history,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": time.perf_counter() - started,
    }


def weights_path(checkpoint: Path) -> Path:
    """Where a training of the full model leaves its weights."""
    return checkpoint.with_suffix(".safetensors")


def _save_weights(model: nn.Module, path: Path) -> None:
    from safetensors.torch import save_model

    save_model(model, str(path))


def step_loss(model: Classifier, batch: Batch, settings: Settings) -> torch.Tensor:
    """The joint loss of a batch, with masked copies of some of its positives where asked for."""
    if settings.masked and settings.model in ("both", "ve"):
        with torch.no_grad():
            _, attention = model.image(batch.images)
        batch = with_masked(batch, attention, settings.masking, settings.masked)
    return joint_loss(model(batch), batch.labels, batch.counted)


def _outputs(model: Classifier, samples: Encoded, images: np.ndarray, device: str):
    """Rows and outputs, in blocks of like length."""
    order = np.argsort(samples.pair_length, kind="stable")
    model.eval()
    for start in range(0, len(order), BLOCK):
        rows = order[start : start + BLOCK]
        batch = samples.batch(rows, images, device)
        with torch.no_grad():
            yield rows, batch, model(batch)


def dev_loss(model: Classifier, samples: Encoded, images: np.ndarray, device: str) -> float:
    """Mean joint loss over some samples."""
    total = 0.0
    for rows, batch, output in _outputs(model, samples, images, device):
        total += float(joint_loss(output, batch.labels, batch.counted)) * len(rows)
    return total / len(samples)


def score(
    model: Classifier, samples: Encoded, images: np.ndarray, device: str
) -> tuple[dict[str, np.ndarray], list[float]]:
    """Probabilities (n,) of entailment by branch, and the mean gates of TE and VE ([] without)."""
    found: dict[str, np.ndarray] = {}
    gates = []
    for rows, _, output in _outputs(model, samples, images, device):
        for branch, values in predicted(output).items():
            found.setdefault(branch, np.zeros(len(samples)))[rows] = values
        if output.gates is not None:
            gates.append(output.gates.cpu().numpy())
    mean = np.concatenate(gates).mean(axis=0).round(4).tolist() if gates else []
    return found, mean


# --- Jobs ----------------------------------------------------------------------------------------


def training_jobs(
    arrays: Arrays,
    settings: Budget,
    tier: str,
    seeds: Sequence[int],
    device: str,
    systems: Sequence[str] = (),
) -> list[tuple[dict, dict]]:
    """Jobs for `training.run_jobs` and `train_system`, one a row and seed; all rows where empty."""
    data = arrays.fingerprint()
    return [
        (
            {
                "system": name,
                "settings": asdict(settings),
                "seed": seed,
                "tier": tier,
                "data": data,
            },
            {"arrays": arrays, "device": device},
        )
        for name in systems or systems_of(tier)
        for seed in seeds
    ]


def read_answers(path: Path, settings: Budget) -> tuple[list[tuple[dict, dict]], list[dict]]:
    """Stored jobs and answers whose full model had these settings; see `training.read_answers`."""
    return training.read_answers(path, FULL, asdict(settings))


# --- The classifier as a judge -------------------------------------------------------------------


def judged_samples(collection: Collection, split: str, pairs: np.ndarray) -> Samples:
    """Pairs (n, 2) of an image of a split and a flat caption, the image's captions as premise."""
    image = collection.rows[split][pairs[:, 0]]
    texts, n = collection.texts(split), len(pairs)
    form: Kind = "mme"
    return Samples(
        tuple(collection.premises[i] for i in image), tuple(texts[c] for c in pairs[:, 1]), image,
        np.zeros(n, dtype=np.int64), (form,) * n, (split,) * n, tuple(map(str, image)),
    )  # fmt: skip


def judge_jobs(
    job: Mapping[str, Any],
    folder: Path,
    arrays: Arrays,
    samples: Samples,
    readers: tuple[Reader, Reader],
    features: np.ndarray,
    device: str,
    pieces: int = 8,
) -> list[tuple[dict, dict]]:
    """Jobs that score samples by a trained full model, a piece each.

    job: of the training, finished, whose answer lies in `folder`. readers: TE's own and VE's.
    """
    settings = Settings(**job["settings"]["classifier"])
    encoded = encode(samples, *readers, settings.max_premise, settings.max_hypothesis)
    order = np.argsort(encoded.pair_length, kind="stable")
    text = "|".join(samples.hypothesis) + samples.image.tobytes().hex()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    jobs = []
    for piece in range(pieces):
        record = {"judge": training.settings_hash(job), "samples": digest, "piece": piece}
        jobs.append(
            (
                {**record, "pieces": pieces},
                {
                    "weights": weights_path(training.job_path(folder, dict(job))),
                    "arrays": arrays, "settings": settings, "encoded": encoded,
                    "rows": order[piece::pieces], "features": features, "device": device,
                },
            )
        )  # fmt: skip
    return jobs


def judge(
    judge: str,
    samples: str,
    piece: int,
    pieces: int,
    weights: Path,
    arrays: Arrays,
    settings: Settings,
    encoded: Encoded,
    rows: np.ndarray,
    features: np.ndarray,
    device: str,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Probabilities of entailment by the merged branch: the work of one job of `judge_jobs`."""
    from safetensors.torch import load_model

    model, _ = arrays.model(settings)
    load_model(model, str(weights))
    model.to(device).eval()
    found = np.zeros(len(rows))
    for start in range(0, len(rows), BLOCK):
        with torch.no_grad():
            output = model(encoded.batch(rows[start : start + BLOCK], features, device))
        found[start : start + BLOCK] = predicted(output)["mm"]
    return {"rows": rows.tolist(), "p": found.round(4).tolist()}


def judge_by(
    job: Mapping[str, Any],
    folder: Path,
    arrays: Arrays,
    readers: tuple[Reader, Reader],
    collection: Collection,
    split: str,
    device: str = "cpu",
    **run: Any,
) -> Callable[[np.ndarray], np.ndarray]:
    """A trained full model: pairs (n, 2) of an image and a flat caption of a split -> p_mm (n,).

    job: of the finished training, whose answer lies in `folder`. run: for `training.run_jobs`.
    """

    def entailed(pairs: np.ndarray) -> np.ndarray:
        samples = judged_samples(collection, split, pairs)
        jobs = judge_jobs(job, folder, arrays, samples, readers, collection.features, device)
        found = np.zeros(len(pairs))
        for answer in training.run_jobs(judge, jobs, folder, label="judging", **run):
            found[answer["rows"]] = answer["p"]
        return found

    return entailed


# --- Scores --------------------------------------------------------------------------------------

Scores = dict[str, dict[str, np.ndarray]]
METRICS = ("auc", "ap", "f0.5", "accuracy", "precision", "recall")
WITH_BRANCHES = (FULL, "w/o BERT")  # rows of which each branch is shown
LEARNED = 55.0  # a row whose ROC area is not above this has not learned to tell pairs apart


def collect(jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict]) -> Scores:
    """row of Table 3 -> test -> (seeds, n) probabilities of entailment.

    A row's answer is that of its merged branch, or of its only one. The other two of the rows in
    WITH_BRANCHES are called "Full, TE branch" and so on: the first reading of Only TE and Only VE.
    """
    found: dict[str, dict[str, list]] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        for test, branches in answer["scores"].items():
            for branch, values in branches.items():
                name = job["system"]
                if branch != ("mm" if "mm" in branches else next(iter(branches))):
                    if name not in WITH_BRANCHES:
                        continue
                    name = f"{name}, {branch.upper()} branch"
                found.setdefault(name, {}).setdefault(test, []).append(values)
    return {
        name: {test: np.array(values) for test, values in tests.items()}
        for name, tests in found.items()
    }


class Ranked:
    """Labels sorted by falling score, for figures of weighted or resampled pairs in little time."""

    def __init__(self, labels: np.ndarray, scores: np.ndarray):
        self.order = np.argsort(-scores, kind="stable")
        self.labels = labels[self.order].astype(float)
        ordered = scores[self.order]
        self.starts = np.r_[0, np.flatnonzero(np.diff(ordered)) + 1]  # of equal scores

    def _sums(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        each = weights[self.order]
        yes = np.add.reduceat(each * self.labels, self.starts)
        return yes, np.add.reduceat(each, self.starts) - yes

    def auc(self, weights: np.ndarray) -> float:
        """Area under the ROC curve, in percent; equal scores count half."""
        yes, no = self._sums(weights)
        above = np.cumsum(yes) - yes / 2
        return 100 * float((no * above).sum() / (yes.sum() * no.sum()))

    def ap(self, weights: np.ndarray) -> float:
        """Average precision, in percent; equal scores share their precision."""
        yes, no = self._sums(weights)
        hits = np.cumsum(yes)
        precision = hits / np.maximum(hits + np.cumsum(no), 1e-12)
        return 100 * float((yes * precision).sum() / yes.sum())


CALIBRATION = {"crowd": ("crowd", "calibration")}


def threshold_of(
    data: Data, row: Mapping[str, np.ndarray], test: str, part: str, seed: int
) -> float:
    """The threshold of best F0.5 on calibration pairs, weighted to the part's share of yes.

    The crowd's has pairs of calibration images; of other tests it is the dev set.
    """
    place, name = CALIBRATION.get(test, ("dev", "all"))
    if place == "dev":
        labels, scores, base = data.dev.label, row["dev"][seed], np.ones(len(data.dev))
    else:
        rows, base = data.tests[place].parts[name]
        labels, scores = data.tests[place].samples.label[rows], row[place][seed][rows]
    rows, weights = data.tests[test].parts[part]
    truth = data.tests[test].samples.label[rows] == 1
    odds = weights[truth].sum() / weights[~truth].sum()
    own = base[labels == 1].sum() / base[labels == 0].sum()
    return best_threshold(labels, scores, np.where(labels == 1, base * odds / own, base))


def figures(
    labels: np.ndarray, scores: np.ndarray, weights: np.ndarray, threshold: float = 0.5
) -> dict[str, float]:
    """Every metric of METRICS, in percent."""
    ranked = Ranked(labels, scores)
    at = scores_at(labels, scores, threshold, weights)
    return {"auc": ranked.auc(weights), "ap": ranked.ap(weights), **at}


def row_figures(
    data: Data, row: Mapping[str, np.ndarray], test: str, part: str, tuned: bool = True
) -> list[dict[str, float]]:
    """The figures of each training of a row, at its tuned threshold or at 0.5."""
    rows, weights = data.tests[test].parts[part]
    labels = data.tests[test].samples.label[rows]
    found = []
    for seed, scores in enumerate(row[test]):
        limit = threshold_of(data, row, test, part, seed) if tuned else 0.5
        found.append(figures(labels, scores[rows], weights, limit) | {"threshold": limit})
    return found


def learned(data: Data, scores: Scores, system: str, test: str, part: str) -> bool:
    """Whether a row's mean ROC area is above `LEARNED`; False where it is absent."""
    if test not in scores.get(system, {}):
        return False
    rows, weights = data.tests[test].parts[part]
    labels = data.tests[test].samples.label[rows]
    areas = [Ranked(labels, own[rows]).auc(weights) for own in scores[system][test]]
    return float(np.mean(areas)) > LEARNED


def contrast(
    data: Data,
    scores: Scores,
    better: str,
    worse: str,
    test: str,
    part: str,
    metric: str = "f0.5",
    tuned: bool = True,
    draws: int = 1000,
) -> Estimate | None:
    """A metric of one row minus that of another, paired by pair and seed.

    Interval by bootstrap over images and trainings; thresholds are tuned once, before. None where
    a row is absent or has not `learned`: to differ from chance says nothing of what was changed.
    """
    if not all(learned(data, scores, name, test, part) for name in (better, worse)):
        return None
    rows, weights = data.tests[test].parts[part]
    samples = data.tests[test].samples
    labels = samples.label[rows]
    count = min(len(scores[name][test]) for name in (better, worse))

    def measures(name: str) -> list[Callable[[np.ndarray], float]]:
        made: list[Callable[[np.ndarray], float]] = []
        for seed in range(count):
            own = scores[name][test][seed][rows]
            if metric in ("auc", "ap"):
                made.append(getattr(Ranked(labels, own), metric))
                continue
            limit = threshold_of(data, scores[name], test, part, seed) if tuned else 0.5
            made.append(
                lambda w, own=own, limit=limit: scores_at(labels, own, limit, w)[metric]  # type: ignore[misc]
            )
        return made

    left, right = measures(better), measures(worse)

    def difference(drawn: np.ndarray, trainings: np.ndarray) -> float:
        each = weights * np.bincount(drawn, minlength=len(rows))
        return float(np.mean([left[i](each) - right[i](each) for i in trainings]))

    clusters = np.array(samples.group)[rows]
    return bootstrap_interval(difference, clusters, draws, trainings=count)


# --- Tables --------------------------------------------------------------------------------------


def table3(data: Data, scores: Scores, test: str, part: str) -> pd.DataFrame:
    """Table 3 beside ours on one protocol: mean over trainings, "±" their deviation of ROC area.

    Columns of the paper, of ours at threshold 0.5, at the tuned one, and threshold-free ones.
    """
    paper = paper_values("entailment", "table3")
    found = {}
    for name, row in scores.items():
        if test not in row:
            continue
        tuned, plain = (row_figures(data, row, test, part, how) for how in (True, False))
        printed = paper.loc[PRINTED[name]] if name in PRINTED else None
        line: dict[tuple[str, str], float] = {}
        for column in ("accuracy", "precision", "recall", "F0.5"):
            line["paper", column] = np.nan if printed is None else float(printed[column])
        for title, own in (("at 0.5", plain), ("tuned", tuned)):
            for metric in ("precision", "recall", "f0.5"):
                line[title, metric] = float(np.mean([one[metric] for one in own]))
        for metric, title in (("auc", "ROC area"), ("ap", "average precision")):
            line["no threshold", title] = float(np.mean([one[metric] for one in plain]))
        areas = [one["auc"] for one in plain]
        line["no threshold", "±"] = float(np.std(areas, ddof=1)) if len(areas) > 1 else np.nan
        found[name] = line
    table = pd.DataFrame.from_dict(found, orient="index").round(1)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table


def text_table(data: Data, scores: Scores, test: str) -> pd.DataFrame:
    """ROC area and average precision of the rows that read text alone, on text pairs."""
    rows = {}
    for name in ("Only TE", f"{FULL}, TE branch"):
        if name in scores:
            found = row_figures(data, scores[name], test, "all", tuned=False)
            rows[name] = {
                "ROC area": round(float(np.mean([one["auc"] for one in found])), 1),
                "average precision": round(float(np.mean([one["ap"] for one in found])), 1),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def prevalence_table(data: Data) -> pd.DataFrame:
    """Pairs, entailed pairs and their share of every test, and what always saying yes would get."""
    rows = {}
    for test, own in data.tests.items():
        for part, (at, weights) in own.parts.items():
            truth = own.samples.label[at] == 1
            share = float(weights[truth].sum() / weights.sum())
            rows[test, part] = {
                "pairs scored": len(at), "stand for": round(float(weights.sum())),
                "entailed": int(truth.sum()), "entailed, %": round(100 * share, 1),
                "F0.5 of always yes": round(100 * f_score(share, 1.0), 1),
            }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def anchors(data: Data, test: str) -> np.ndarray:
    """(n,) share of the hypothesis' words that the captions say: nothing is learnt."""
    from mmlib.data.overlap import Weights, overlap_score

    weights = Weights(list(data.merged.values()))
    samples = data.tests[test].samples
    return np.array(
        [
            overlap_score(data.merged.get(p, (p,)), h, weights)
            for p, h in zip(samples.premise, samples.hypothesis, strict=True)
        ]
    )


def _called(data: Data, row: Mapping[str, np.ndarray], test: str) -> np.ndarray:
    """(seeds, n) whether each training of a row calls a pair entailed, at its tuned threshold."""
    limits = [threshold_of(data, row, test, "all", seed) for seed in range(len(row[test]))]
    return row[test] >= np.array(limits)[:, None]


def errors_by_kind(data: Data, row: Mapping[str, np.ndarray], test: str) -> pd.DataFrame:
    """How often pairs of each kind are called wrongly (tuned threshold), by what they are.

    In the world the kind is where the hypothesis came from: an edit, another scene, ... The ROC
    area is that of all entailed pairs against the not entailed ones of the kind.
    """
    samples = data.tests[test].samples
    wrong = _called(data, row, test) != (samples.label == 1)
    about = np.array(data.tests[test].about)
    rows: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(about):
        for truth, title in ((1, "entailed"), (0, "not entailed")):
            at = (about == kind) & (samples.label == truth)
            if at.any():
                rows.setdefault(kind, {})[f"{title}, pairs"] = int(at.sum())
                rows[kind][f"{title}, wrong %"] = round(100 * float(wrong[:, at].mean()), 1)
        if (about[samples.label == 0] == kind).any():
            against = (samples.label == 1) | (about == kind)
            areas = [
                Ranked(samples.label[against], own[against]).auc(np.ones(against.sum()))
                for own in row[test]
            ]
            rows[kind]["ROC area"] = round(float(np.mean(areas)), 1)
    return pd.DataFrame.from_dict(rows, orient="index")


ERRORS = {"number": "number", "actor": "person or animal", "object": "other thing"}


def error_contrasts(data: Data, scores: Scores, test: str = "world") -> dict[str, Estimate]:
    """C12: how much oftener the full model says yes to some false edits than to all other edits.

    In points, at the tuned threshold, over trainings and scenes; the two are taken as independent.
    """
    from mmlib.world.edits import EDITS

    row, samples = scores[FULL], data.tests[test].samples
    about, group = np.array(data.tests[test].about), np.array(samples.group)
    called = _called(data, row, test)
    edited = (samples.label == 0) & np.isin(about, list(EDITS))

    def rate(at: np.ndarray) -> Estimate:
        return crossed_interval(100.0 * called[:, at], group[at])

    others = rate(edited & ~np.isin(about, list(ERRORS)))
    return {title: rate(edited & (about == kind)).minus(others) for kind, title in ERRORS.items()}


def many_to_many(collection: Collection) -> dict[str, Estimate]:
    """C10: foreign captions that fit a test image, minus its own captions, mean over images.

    The crowd judged one caption of each image (its third), so its count is taken as many times as
    images have captions; {} where nobody knows.
    """
    fits = known_fits(collection)
    if fits is None:
        return {}
    image_of = collection.image_of("test")
    own = np.bincount(image_of, minlength=len(fits))
    foreign = (fits.sum(axis=1) - own).astype(float)
    if collection.judged is not None:
        foreign *= own
    effect = crossed_interval((foreign - own)[None], np.arange(len(own)))
    return {collection.tier: effect}


def results(data: Data, scores: Scores, settings: Budget, seeds: Sequence[int]) -> list[Result]:
    """One `Result` a test, row, metric and seed, thresholds tuned; the anchor without seeds."""
    used = settings_hash(asdict(settings))
    rows = []
    for name, own in scores.items():
        for test in own:
            told = METRICS[:2] if "text" in test else METRICS  # its thresholds have no calibration
            for part in data.tests[test].parts if test in data.tests else ():
                for seed, found in zip(seeds, row_figures(data, own, test, part), strict=False):
                    rows += [
                        Result(name, f"{test}, {part}", "test", metric, found[metric], seed, used)
                        for metric in told
                    ]
    return rows
