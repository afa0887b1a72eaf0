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

from mmlib.core.files import regular_file
from mmlib.core.records import CaptionedImages
from mmlib.data.tables import check_choice, dataset_folder, error_at, text_lines
from mmlib.features import sets
from mmlib.features.store import open_features, open_rgb

NAME = "flickr8k"
IMAGES, CAPTIONS_EACH = 8091, 5
LONGEST = 100_000  # characters of a caption: csv reads 131,072
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
TOKEN = "Flickr8k.token.txt"
TEXTS = {**LISTS, "judgments": "CrowdFlowerAnnotations.txt"}
# Where each file lies: on Kaggle, in the original archives.
FILES = {
    "images": ("Images", "Flicker8k_Dataset", "Flickr8k_Dataset"),
    "captions": ("captions.txt", f"Flickr8k_text/{TOKEN}", TOKEN),
    **{kind: (f"Flickr8k_text/{name}", name) for kind, name in TEXTS.items()},
}
JUDGMENT = (
    r"\A(?P<image>\d+_[0-9a-f]+\.jpg)\t(?P<caption_image>\d+_[0-9a-f]+\.jpg)#(?P<caption>[0-4])\t"
    r"(?P<fraction>[0-9.]+)\t(?P<yes>[0-9]+)\t(?P<no>[0-9]+)\Z"
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
    ids, captions = read_splits(folder)[split], read_captions(folder)
    images = find("images", folder)
    for row, name in enumerate(ids, start=1):
        if name not in captions:
            raise error_at(find(split, folder), row, f"{name} has no captions", GET)
    values, scores = np.zeros((len(ids), 0, 0), np.float32), None
    names: tuple[str, ...] = ()
    if features is not None:
        store = sets.opened(folder / "features", features, SHARED_FEATURES)
        values, labels = store.rows(ids), sets.labels_of(store, LABELS)
        if labels.is_file():
            labelled = open_features(labels)
            scores, names = labelled.rows(ids)[:, 0], tuple(labelled.meta.get("label_names", ()))
            if len(names) != labelled.width:
                problem = f"{len(names)} label_names in its notes for {labelled.width} columns"
                raise error_at(labels, None, problem, "extract the features again")
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


def find(kind: str, folder: Path) -> Path:
    """The folder of "images", the file of "captions" or "judgments", or the list of a split.

    Raises DataError where none of its names in `FILES` is there.
    """
    for name in FILES[kind]:
        if (folder / name).exists():
            return folder / name
    mend = GET_TEXT if kind in TEXTS else GET
    raise error_at(folder / FILES[kind][0], None, "is missing", mend)


def read_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    """Image names of the three official lists, in their order.

    Raises DataError for an empty list, and for an image that stands in two places.
    """
    first: dict[str, tuple[str, int]] = {}  # split and line of each image
    for split in LISTS:
        path = find(split, folder)
        for row, line in text_lines(path, GET_TEXT):
            name = line.strip()
            if name and (earlier := first.setdefault(name, (split, row))) != (split, row):
                also = f"is in the split {earlier[0]} too"
                problem = also if earlier[0] != split else f"stands here and in line {earlier[1]}"
                raise error_at(path, row, f"{name} {problem}", GET_TEXT)
        if split not in {its_split for its_split, _ in first.values()}:
            raise error_at(path, None, "names no image", GET_TEXT)
    return {
        split: tuple(name for name, (its_split, _) in first.items() if its_split == split)
        for split in LISTS
    }


def read_captions(folder: Path) -> dict[str, list[str]]:
    """The five captions of every image, by number.

    The judgments name a caption by the number that `Flickr8k.token.txt` writes, from 0 to 4, each
    once; `captions.txt` has an image's captions in that order. Read line by line, so that an
    unclosed quotation mark cannot swallow the lines after it. `Flickr8k.token.txt` has five
    captions of a name ending in `.jpg.1`, which is no photograph of the set; they are passed over.

    Raises DataError for the first damaged line, and for an image with fewer or more captions.
    """
    path = find("captions", folder)
    numbered = path.name == TOKEN
    captions: dict[str, dict[int, str]] = {}
    row_of: dict[tuple[str, int], int] = {}
    for row, line in text_lines(path, AGAIN):
        if row == 1 and line.strip() == "image,caption":
            continue
        try:
            if len(line) > LONGEST:
                raise ValueError(f"{len(line):,} characters, more than {LONGEST:,}: shorten it")
            if numbered:
                if not (match := re.fullmatch(r"([^\t#]+)#([0-4])\t(.*)", line)):
                    raise ValueError(f"no `image#0<tab>caption` in {line[:60]!r}")
                image, caption, number = match[1], match[3], int(match[2])
            else:
                fields = next(csv.reader([line], strict=True), [])
                if len(fields) != 2:
                    raise ValueError(f"{len(fields)} fields instead of 2 in {line[:60]!r}")
                (image, caption), number = fields, len(captions.get(fields[0], ()))
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


def read_judgments(folder: Path) -> tuple[pd.DataFrame, int]:
    """The crowd's yes/no judgments of image-caption pairs, and how many damaged lines were skipped.

    Columns: image, caption_image and caption (the caption `#caption` of `caption_image`, often
    another image), fraction of yes, yes, no (votes). Public copies of the file differ; a line that
    is not well-formed, or whose fraction is not that of its votes, is skipped and counted.

    Source: `CrowdFlowerAnnotations.txt`. Raises DataError when the file is missing, or no line of
    it is well-formed.
    """
    path = find("judgments", folder)
    text = regular_file(path).read_text(encoding="utf-8-sig", errors="replace")
    lines = [line for line in text.split("\n") if line.strip()]
    table = pd.Series(lines, dtype=object).str.extract(JUDGMENT).dropna()
    table = table.astype({"caption": int, "fraction": float, "yes": int, "no": int})
    share = table["yes"] / (table["yes"] + table["no"])
    table = table[(table["fraction"] - share).abs() < 1e-3].reset_index(drop=True)
    if table.empty:
        raise error_at(path, None, f"{len(lines)} lines, none well-formed", GET_TEXT)
    return table, len(lines) - len(table)
