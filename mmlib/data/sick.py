"""SICK: sentence pairs with entailment in both directions, half of them from Flickr8k captions.

Marelli et al., LREC 2014; the file of twelve columns, which names the sentence that each was made
from. Two uses: sentence pairs as text-text samples; and triples of an image, its captions and a
sentence, where the other sentence of the pair is still close to a caption of the image (a small
SNLI-VE on Flickr8k).
"""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mmlib.core.errors import Problem
from mmlib.core.records import Kind, Samples, joined, normalised
from mmlib.data import flickr8k
from mmlib.data.samples import image_samples, merged
from mmlib.data.tables import SOMETHING, check_choice, dataset_folder, sound, table_rows

NAME = "sick"
SETS = {"TRAIN": 4439, "TRIAL": 495, "TEST": 4906}
COLUMNS = (
    "pair_ID", "sentence_A", "sentence_B", "entailment_label", "relatedness_score",
    "entailment_AB", "entailment_BA", "sentence_A_original", "sentence_B_original",
    "sentence_A_dataset", "sentence_B_dataset", "SemEval_set",
)  # fmt: skip
PATTERNS = {
    "entailment_label": "NEUTRAL|ENTAILMENT|CONTRADICTION",
    "entailment_AB": "A_(neutral|entails|contradicts)_B",
    "entailment_BA": "B_(neutral|entails|contradicts)_A",
    "relatedness_score": r"[1-4](\.\d+)?|5(\.0+)?",
    "SemEval_set": "|".join(SETS),
    **dict.fromkeys(("sentence_A", "sentence_B"), SOMETHING),
}
NEGATIONS = frozenset({"no", "not", "nobody", "none", "nothing", "never", "without", "t"})  # n't
CLOSE = 0.6
GET = "run `mmlib data get sick`, or set MMLIB_DATA to the folder that holds sick/"


def rows(path: Path) -> Iterator[dict[str, str] | Problem]:
    """Rows of `SICK.txt`, and problems (`tables.table_rows`); no two pairs have one number."""
    return table_rows(
        path, COLUMNS, GET, PATTERNS, delimiter="\t", quoting=csv.QUOTE_NONE, key="pair_ID"
    )


def read(folder: Path | None = None) -> pd.DataFrame:
    """All pairs in file order, the twelve columns as text.

    folder: by default `sick` in the data folder. Raises DataError naming the file, the line and
    the mend at the first bad row.
    """
    path = dataset_folder(NAME, folder) / "SICK.txt"
    return pd.DataFrame(sound(rows(path), Problem(path, None, "has no rows", GET)))


def directed(pairs: pd.DataFrame) -> pd.DataFrame:
    """Each pair read from A to B and then from B to A: two rows a pair, in file order.

    Columns: pair_ID, SemEval_set, premise, hypothesis, answer ("entails", "neutral",
    "contradicts"), premise_original and hypothesis_original ("" where not made from a caption of
    Flickr8k or of its sister set).
    """
    sides = []
    for first, second in ("AB", "BA"):
        table = pairs[["pair_ID", "SemEval_set"]].copy()
        for role, side in (("premise", first), ("hypothesis", second)):
            table[role] = pairs[f"sentence_{side}"]
            flickr = pairs[f"sentence_{side}_dataset"] == "FLICKR"
            table[f"{role}_original"] = pairs[f"sentence_{side}_original"].where(flickr, "")
        answer = pairs[f"entailment_{first}{second}"].str.split("_").str[1]
        sides.append(table.assign(answer=answer))
    return pd.concat(sides).sort_index(kind="stable").reset_index(drop=True)


class Origins:
    """Which Flickr8k images a SICK sentence comes from, by the sentence that it was made from."""

    def __init__(self, folder: Path | None = None):
        """folder: Flickr8k's; by default `flickr8k` in the data folder. Raises DataError."""
        folder = dataset_folder(flickr8k.NAME, folder)
        self.captions = flickr8k.read_captions(folder)
        lists = flickr8k.read_splits(folder).items()
        self.split = {name: split for split, names in lists for name in names}
        self._images: dict[str, dict[str, None]] = {}
        for name, texts in self.captions.items():
            for text in texts:
                self._images.setdefault(normalised(text), {})[name] = None

    def images(self, original: str) -> tuple[str, ...]:
        """Images with this caption, in the order of the caption file; case, punctuation apart."""
        return tuple(self._images.get(normalised(original), ())) if original else ()

    def splits(self, *originals: str) -> set[str]:
        """Splits ("train", "val", "test", "" for none) of all images with one of these captions."""
        return {self.split.get(name, "") for text in originals for name in self.images(text)}


def text_text(
    sets: Collection[str] = ("TRAIN",),
    folder: Path | None = None,
    leave_out: Collection[str] = (),
    origins: Origins | None = None,
) -> Samples:
    """Pairs of some official sets in both directions, as "te" samples; label 1 for entailment.

    leave_out: drop pairs with a sentence made from a caption of Flickr8k's "train", "val" or "test"
    images, which `origins` knows. A training that is tested on those images leaves out val and
    test; a test on SICK's own TEST after a training on the triples leaves out train. group: the
    image or, without one, the sentence that the premise was made from. Raises DataError as `read`.
    """
    for name in sets:
        check_choice("set", name, SETS)
    table = directed(read(folder))
    table = table[table["SemEval_set"].isin(list(sets))]
    group = [normalised(original or text) for text, original in
             zip(table["premise"], table["premise_original"], strict=True)]  # fmt: skip
    if origins:
        originals = zip(table["premise_original"], table["hypothesis_original"], strict=True)
        clean = np.array([origins.splits(*o).isdisjoint(leave_out) for o in originals], dtype=bool)
        images = [origins.images(original) for original in table["premise_original"]]
        group = [some[0] if some else text for some, text in zip(images, group, strict=True)]
        table, group = table[clean], [g for g, good in zip(group, clean, strict=True) if good]
    kind: Kind = "te"
    return Samples(
        premise=tuple(table["premise"]),
        hypothesis=tuple(table["hypothesis"]),
        image=np.full(len(table), -1),
        label=(table["answer"] == "entails").to_numpy(np.int64),
        kind=(kind,) * len(table),
        source=tuple("SICK " + table["SemEval_set"]),
        group=tuple(group),
    )


def triples(folder: Path | None = None, origins: Origins | None = None) -> pd.DataFrame:
    """Image, its captions, and a sentence: every direction whose first sentence is still a caption.

    The first sentence's original must be a caption (of the first such image in the caption file),
    and the sentence must be close to it: token Jaccard 0.6 or more, no negation added. Columns as
    `directed`, and image, split ("train", "val", "test", "" for none), clean (bool: no image of
    either sentence's original is in another split). Raises DataError as `read`.
    """
    origins = origins or Origins()
    table = directed(read(folder))
    pairs = zip(table["premise"], table["premise_original"], strict=True)
    chosen = [is_close(*pair) and bool(origins.images(pair[1])) for pair in pairs]
    table = table[np.array(chosen, dtype=bool)].reset_index(drop=True)
    image = [origins.images(original)[0] for original in table["premise_original"]]
    split = [origins.split.get(name, "") for name in image]
    triple = zip(table["premise_original"], table["hypothesis_original"], split, strict=True)
    clean = [origins.splits(*originals) <= {its_split} for *originals, its_split in triple]
    return table.assign(image=image, split=split, clean=clean)


def is_close(sentence: str, original: str) -> bool:
    """Whether a sentence says nearly what its original said (see `triples`)."""
    words, before = set(normalised(sentence).split()), set(normalised(original).split())
    jaccard_enough = len(words & before) >= CLOSE * len(words | before)
    return jaccard_enough and not (words - before) & NEGATIONS


def triple_samples(
    table: pd.DataFrame, captions: Mapping[str, Sequence[str]], row_of: Mapping[str, int]
) -> Samples:
    """Triples as "ve" samples (image), then as "mme" samples (image and its merged captions).

    table: rows of `triples`; for training those with split "train" and `clean`. captions: of each
    image (`Origins.captions`). row_of: image name -> row of the image table. Raises ValueError for
    an image without a row.
    """
    names, sources = tuple(table["image"]), tuple("SICK " + table["SemEval_set"])
    premises, entailed = (merged(captions[name]) for name in names), table["answer"] == "entails"
    return joined(image_samples(premises, table["hypothesis"], names, row_of, entailed, sources))
