"""SNLI-VE: does a sentence follow from a photograph of Flickr30K?

Xie, Lai, Doran, Kadav, arXiv:1811.10582 and 1901.06706. One JSON record a line; the sentences are
SNLI's hypotheses, written from one caption of the photograph. Its splits are not Karpathy's, and
share photographs with Flickr8k's: Flickr's number begins the names of both.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from mmlib.core.errors import Problem
from mmlib.core.records import Samples, joined
from mmlib.data.samples import image_samples, merged
from mmlib.data.tables import check_choice, dataset_folder, sound

NAME = "snli_ve"
SPLITS = {"train": 529527, "dev": 17858, "test": 17901}
LABELS = ("entailment", "neutral", "contradiction")
IMAGE_KEYS = ("Flickr30K_ID", "Flikr30kID", "Flickr30kID")  # it was renamed over time
GET = "get the three files that the page of necla-ml/SNLI-VE links, into snli_ve/"


def split_file(split: str, folder: Path) -> Path:
    """The file of "train", "dev" or "test"; raises DataError for another name."""
    check_choice("split", split, SPLITS)
    return folder / f"snli_ve_{split}.jsonl"


def rows(path: Path) -> Iterator[dict[str, str] | Problem]:
    """Fields of each line that can be used, and what is wrong with the others.

    image: the photograph's file name in Flickr30K. label. hypothesis. caption: the one that the
    hypothesis was written from.
    """
    if not path.is_file():
        yield Problem(path, None, "is missing", GET)
        return
    with path.open("rb") as file:
        for row, line in enumerate(file, start=1):
            try:
                if line.strip():
                    yield _fields(line)
            except ValueError as error:
                yield Problem(path, row, f"cannot be used: {error}", GET)


def _fields(line: bytes) -> dict[str, str]:
    if not isinstance(record := json.loads(line), dict):
        raise ValueError("it holds no fields")
    photo = str(next((record[key] for key in IMAGE_KEYS if key in record), "")).removesuffix(".jpg")
    if not re.fullmatch(r"\d+", photo):
        raise ValueError(f"{IMAGE_KEYS[0]} is {photo!r}, not a number")
    if record.get("gold_label") not in LABELS:
        raise ValueError(f"gold_label is {record.get('gold_label')!r}, not one of {LABELS}")
    texts = {"hypothesis": record.get("sentence2"), "caption": record.get("sentence1")}
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the {name} is {text!r}")
    return {"image": f"{photo}.jpg", "label": record["gold_label"], **texts}


def read(split: str, folder: Path | None = None) -> pd.DataFrame:
    """One split in file order: image, label, hypothesis, caption (see `rows`).

    folder: by default `snli_ve` in the data folder. Raises DataError at the first bad line.
    """
    path = split_file(split, dataset_folder(NAME, folder))
    return pd.DataFrame(sound(rows(path), Problem(path, None, "has no lines", GET)))


def samples(
    table: pd.DataFrame, row_of: Mapping[str, int], captions: Mapping[str, Sequence[str]]
) -> Samples:
    """Rows of `read` as "ve" samples and after them as "mme" samples.

    row_of: image name -> row of the image table. captions: image name -> its captions, merged to
    the premise. Neutral and contradiction are both 0. Raises ValueError for an image without a row.
    """
    names, sources = tuple(table["image"]), ("SNLI-VE",) * len(table)
    premises, entailed = (merged(captions[n]) for n in names), table["label"] == "entailment"
    return joined(image_samples(premises, table["hypothesis"], names, row_of, entailed, sources))
