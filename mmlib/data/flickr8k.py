"""Flickr8k: 8,091 photographs with five captions each (Hodosh, Young, Hockenmaier, JAIR 2013).

Read in the layout found on Kaggle (`Images/`, `captions.txt`) and in that of the original archives
(`Flicker8k_Dataset/`, `Flickr8k.token.txt`). The official split lists and the crowd's judgments lie
in `Flickr8k_text/` or in the folder itself.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from mmlib.core.errors import DataError, Problem
from mmlib.core.records import CaptionedImages
from mmlib.data.tables import check_choice, dataset_folder, error_at
from mmlib.features.store import open_features, open_rgb

NAME = "flickr8k"
IMAGES, CAPTIONS_EACH = 8091, 5
SPLITS = {"train": 6000, "val": 1000, "test": 1000}
LISTS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
SHARED_FEATURES = "grid4x4_mobilenetv1_pca192"

GET = "run `mmlib data get flickr8k`, or set MMLIB_DATA to the folder that holds flickr8k/"
GET_TEXT = "it comes with Flickr8k_text.zip: run `mmlib data get flickr8k`"
JUDGMENT = re.compile(
    rb"(\d+_[0-9a-f]+\.jpg)\t(\d+_[0-9a-f]+\.jpg)#([0-4])\t([0-9.]+)\t(\d+)\t(\d+)"
)


def load(
    split: str,
    folder: Path | None = None,
    features: str = SHARED_FEATURES,
    labels: str = "labels_densenet169",
) -> CaptionedImages:
    """One official split, images in the order of its list.

    split: "train" (6,000 images), "val" (1,000) or "test" (1,000).
    folder: the data set's folder; by default `flickr8k` in the data folder.
    features, labels: names of files in `features/`; labels may be absent.

    Raises DataError naming the file, the line and the mend: missing file, damaged caption line,
    image without captions, picture or features.
    """
    folder = dataset_folder(NAME, folder)
    ids = read_split(split, folder)
    captions = read_captions(folder)
    images = image_folder(folder)
    for row, name in enumerate(ids, start=1):
        if name not in captions:
            path = split_file(split, folder)
            raise error_at(path, row, f"{name} has no captions", GET)
    scores, names = _labels(folder / "features" / f"{labels}.npy", ids)

    def open_image(row: int) -> Image.Image:
        return open_rgb(images / ids[row])

    return CaptionedImages(
        name=NAME,
        split=split,
        ids=ids,
        captions=tuple(tuple(captions[name]) for name in ids),
        features=open_features(folder / "features" / f"{features}.npy").rows(ids),
        open_image=open_image,
        label_scores=scores,
        label_names=names,
    )


def _labels(path: Path, ids: tuple[str, ...]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    if not path.is_file():
        return None, ()
    store = open_features(path)
    scores, names = store.rows(ids)[:, 0], tuple(store.meta.get("label_names", ()))
    if len(names) != scores.shape[-1]:
        problem = f"{len(names)} label_names in its notes for {scores.shape[-1]} columns"
        raise error_at(path, None, problem, "extract the features again")
    return scores, names


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


def read_split(split: str, folder: Path) -> tuple[str, ...]:
    """Image names of one official list, in its order; raises DataError for a doubled name."""
    path = split_file(split, folder)
    row_of: dict[str, int] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise error_at(path, None, f"not UTF-8: {error}", GET_TEXT) from None
    for row, line in enumerate(text.splitlines(), start=1):
        name = line.strip()
        if name and row_of.setdefault(name, row) != row:
            problem = f"{name} stands here and in line {row_of[name]}"
            raise error_at(path, row, problem, GET_TEXT)
    return tuple(row_of)


def read_captions(folder: Path) -> dict[str, list[str]]:
    """Captions of every image, in file order; raises DataError for the first damaged line."""
    captions: dict[str, list[str]] = {}
    for _, item in caption_lines(caption_file(folder)):
        if isinstance(item, Problem):
            raise DataError(item)
        captions.setdefault(item[0], []).append(item[1])
    return captions


def caption_lines(path: Path) -> Iterator[tuple[int, tuple[str, str] | Problem]]:
    """Line number and (image, caption), or what is wrong with that line.

    Read line by line, so that an unclosed quotation mark cannot swallow the lines after it.
    `Flickr8k.token.txt` has five captions of a name ending in `.jpg.1`, which is no photograph of
    the set; they are passed over.
    """
    parse = _token_line if path.name.endswith("token.txt") else _csv_line
    with path.open("rb") as file:
        for row, raw in enumerate(file, start=1):
            if row == 1 and raw.strip() == b"image,caption":
                continue
            try:
                line = raw.decode("utf-8").rstrip("\r\n")
                image, caption = parse(line)
                if not re.fullmatch(r"[^/\\]+\.jpg(\.1)?", image):
                    raise ValueError(f"no image name in {line[:60]!r}")
                if not caption.strip():
                    raise ValueError(f"empty caption of {image}")
            except (UnicodeDecodeError, ValueError, csv.Error) as error:
                problem = f"not an image and its caption: {error}"
                yield row, Problem(path, row, problem, "restore the line, or get the file again")
                continue
            if not image.endswith(".jpg.1"):
                yield row, (image, caption.strip())


def _csv_line(line: str) -> list[str]:
    fields = next(csv.reader([line], strict=True), [])
    if len(fields) != 2:
        raise ValueError(f"{len(fields)} fields instead of 2 in {line[:60]!r}")
    return fields


def _token_line(line: str) -> tuple[str, ...]:
    match = re.fullmatch(r"([^\t#]+)#[0-4]\t(.*)", line)
    if match is None:
        raise ValueError(f"no `image#0<tab>caption` in {line[:60]!r}")
    return match.groups()


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
    for line in path.read_bytes().splitlines():
        match = JUDGMENT.fullmatch(line)
        if match is None:
            skipped += bool(line.strip())
            continue
        image, origin, caption, fraction, yes, no = (text.decode() for text in match.groups())
        votes = int(yes) + int(no)
        if votes and abs(float(fraction) - int(yes) / votes) < 1e-3:
            rows.append((image, origin, int(caption), float(fraction), int(yes), int(no)))
        else:
            skipped += 1
    if not rows:
        raise error_at(path, None, f"{skipped} lines, none well-formed", GET_TEXT)
    columns = ["image", "caption_image", "caption", "fraction", "yes", "no"]
    return pd.DataFrame(rows, columns=columns), skipped
