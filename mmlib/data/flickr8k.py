"""Flickr8k: 8,091 photographs with five captions each (Hodosh, Young, Hockenmaier, JAIR 2013).

Read in the layout found on Kaggle (`Images/`, `captions.txt`) and in that of the original archives
(`Flicker8k_Dataset/`, `Flickr8k.token.txt`). The official split lists and the crowd's judgments lie
in `Flickr8k_text/` or in the folder itself.
"""

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import text_lines
from mmlib.core.records import CaptionedImages
from mmlib.data.tables import check_choice, dataset_folder, error_at
from mmlib.features import sets
from mmlib.features.store import FeatureStore, open_features, open_rgb

NAME = "flickr8k"
IMAGES, CAPTIONS_EACH = 8091, 5
SPLITS = {"train": 6000, "val": 1000, "test": 1000}
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
SHARED_FEATURES, LABELS = "grid4x4_mobilenetv1_pca192", "labels_densenet169"

GET = "run `mmlib data get flickr8k`, or set MMLIB_DATA to the folder that holds flickr8k/"
AGAIN = "restore the line, or get the file again"
GET_TEXT = "it comes with Flickr8k_text.zip: run `mmlib data get flickr8k`"
JUDGMENT = re.compile(
    r"(\d+_[0-9a-f]+\.jpg)\t(\d+_[0-9a-f]+\.jpg)#([0-4])\t([0-9.]+)\t(\d+)\t(\d+)", re.ASCII
)


def load(split: str, folder: Path | None = None, features: str | None = "") -> CaptionedImages:
    """One official split, images in the order of its list.

    split: "train" (6,000 images), "val" (1,000) or "test" (1,000).
    folder: the data set's folder; by default `flickr8k` in the data folder.
    features: name of the feature set; empty: as `mmlib.features.sets.choose` says, where that of
    the recorded figures comes first. Class scores come with it (`mmlib.features.sets.labels_of`).
    None: no features are read, and there are (images, 0, 0) of them.

    Raises DataError naming the file, the line and the mend: missing file, damaged caption line,
    image without five captions, of two splits, without picture or features.
    """
    folder = dataset_folder(NAME, folder)
    check_choice("split", split, LISTS)
    ids, captions, images = read_splits(folder)[split], read_captions(folder), image_folder(folder)
    for row, name in enumerate(ids, start=1):
        if name not in captions:
            raise error_at(split_file(split, folder), row, f"{name} has no captions", GET)
    values, scores = np.zeros((len(ids), 0, 0), np.float32), None
    names: tuple[str, ...] = ()
    if features is not None:
        store = sets.opened(folder / "features", features, SHARED_FEATURES)
        values, labels = store.rows(ids), sets.labels_of(store, LABELS)
        if labels.is_file():
            labelled = open_features(labels)
            scores, names = labelled.rows(ids)[:, 0], label_names(labelled)
    return CaptionedImages(
        name=NAME,
        split=split,
        ids=ids,
        captions=tuple(tuple(captions[name]) for name in ids),
        features=values,
        open_image=lambda row: open_rgb(images / ids[row]),
        label_scores=scores,
        label_names=names,
    )


def label_names(store: FeatureStore) -> tuple[str, ...]:
    """The names of the columns of class scores, (images, labels); DataError for other numbers."""
    names = tuple(store.meta.get("label_names", ()))
    if len(names) != store.width:
        problem = f"{len(names)} label_names in its notes for {store.width} columns"
        raise error_at(store.path, None, problem, "extract the features again")
    return names


def image_folder(folder: Path) -> Path:
    """The folder of photographs, under its name on Kaggle or in the original archive."""
    return _first(folder, ("Images", "Flicker8k_Dataset", "Flickr8k_Dataset"), GET)


def caption_file(folder: Path) -> Path:
    """The file of captions, `captions.txt` or `Flickr8k.token.txt`."""
    token = "Flickr8k.token.txt"
    return _first(folder, ("captions.txt", f"Flickr8k_text/{token}", token), GET)


def split_file(split: str, folder: Path) -> Path:
    """The official list of "train", "val" or "test"."""
    check_choice("split", split, LISTS)
    return _first(folder, (f"Flickr8k_text/{LISTS[split]}", LISTS[split]), GET_TEXT)


def _first(folder: Path, names: tuple[str, ...], mend: str) -> Path:
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise error_at(folder / names[0], None, "is missing", mend)


def read_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    """Image names of the three official lists, in their order.

    Raises DataError for an empty list, and for an image that stands in two places.
    """
    lists: dict[str, tuple[str, ...]] = {}
    split_of: dict[str, str] = {}
    for split in LISTS:
        path, row_of = split_file(split, folder), dict[str, int]()
        for row, line in text_lines(path, GET_TEXT):
            if isinstance(line, Problem):
                raise DataError(line)
            name = line.strip()
            if name and row_of.setdefault(name, row) != row:
                problem = f"{name} stands here and in line {row_of[name]}"
                raise error_at(path, row, problem, GET_TEXT)
            if name and (first := split_of.setdefault(name, split)) != split:
                problem = f"{name} is in the split {first} too"
                raise error_at(path, row, problem, GET_TEXT)
        if not row_of:
            raise error_at(path, None, "names no image", GET_TEXT)
        lists[split] = tuple(row_of)
    return lists


def read_captions(folder: Path) -> dict[str, list[str]]:
    """The five captions of every image, by number.

    The judgments name a caption by the number that `Flickr8k.token.txt` writes, from 0 to 4, each
    once; `captions.txt` has an image's captions in that order. Read line by line, so that an
    unclosed quotation mark cannot swallow the lines after it. `Flickr8k.token.txt` has five
    captions of a name ending in `.jpg.1`, which is no photograph of the set; they are passed over.

    Raises DataError for the first damaged line, and for an image with fewer or more captions.
    """
    path = caption_file(folder)
    numbered = path.name.endswith("token.txt")
    captions: dict[str, dict[int, str]] = {}
    row_of: dict[tuple[str, int], int] = {}
    for row, line in text_lines(path, AGAIN):
        if isinstance(line, Problem):
            raise DataError(line)
        if row == 1 and line.strip() == "image,caption":
            continue
        try:
            image, caption, written = _token_line(line) if numbered else (*_csv_line(line), "")
            number = int(written or len(captions.get(image, ())))
            if not re.fullmatch(r"[^/\\]+\.jpg(\.1)?", image):
                raise ValueError(f"no image name in {line[:60]!r}")
            if not caption.strip():
                raise ValueError(f"empty caption of {image}")
            if (first := row_of.setdefault((image, number), row)) != row:
                raise ValueError(f"{image}#{number} stands in line {first} too")
        except (ValueError, csv.Error) as error:
            raise error_at(path, row, f"not an image and its caption: {error}", AGAIN) from None
        captions.setdefault(image, {})[number] = caption.strip()
    captions = {name: texts for name, texts in captions.items() if not name.endswith(".jpg.1")}
    for image, texts in captions.items():
        if len(texts) != CAPTIONS_EACH:
            problem = f"{len(texts)} captions of {image} instead of {CAPTIONS_EACH}"
            raise error_at(path, None, problem, AGAIN)
    return {image: [texts[k] for k in sorted(texts)] for image, texts in captions.items()}


def _csv_line(line: str) -> list[str]:
    fields = next(csv.reader([line], strict=True), [])
    if len(fields) != 2:
        raise ValueError(f"{len(fields)} fields instead of 2 in {line[:60]!r}")
    return fields


def _token_line(line: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([^\t#]+)#([0-4])\t(.*)", line)
    if match is None:
        raise ValueError(f"no `image#0<tab>caption` in {line[:60]!r}")
    return match[1], match[3], match[2]


def judgment_file(folder: Path) -> Path:
    """The crowd's judgments, where Kaggle's copy or the original archive has them."""
    name = "CrowdFlowerAnnotations.txt"
    return _first(folder, (f"Flickr8k_text/{name}", name), GET_TEXT)


def read_judgments(folder: Path) -> tuple[pd.DataFrame, int]:
    """The crowd's yes/no judgments of image-caption pairs, and how many damaged lines were skipped.

    Columns: image, caption_image and caption (the caption `#caption` of `caption_image`, often
    another image), fraction of yes, yes, no (votes). Public copies of the file differ; a line that
    is not well-formed, or whose fraction is not that of its votes, is skipped and counted.

    Source: `CrowdFlowerAnnotations.txt`. Raises DataError when the file is missing, or no line of
    it is well-formed.
    """
    path = judgment_file(folder)
    rows, skipped = [], 0
    for _, line in text_lines(path, GET_TEXT):
        match = None if isinstance(line, Problem) else JUDGMENT.fullmatch(line)
        if match is None:
            skipped += isinstance(line, Problem) or bool(line.strip())
            continue
        image, origin, caption, fraction, yes, no = match.groups()
        votes = int(yes) + int(no)
        if votes and abs(float(fraction) - int(yes) / votes) < 1e-3:
            rows.append((image, origin, int(caption), float(fraction), int(yes), int(no)))
        else:
            skipped += 1
    if not rows:
        raise error_at(path, None, f"{skipped} lines, none well-formed", GET_TEXT)
    columns = ["image", "caption_image", "caption", "fraction", "yes", "no"]
    return pd.DataFrame(rows, columns=columns), skipped
