"""ECCV Caption and Crisscrossed Captions: more true pairs among MS-COCO's test images and captions.

ECCV Caption: Chun, Kim, Park, Chang, Oh, ECCV 2022; yes or no, by people and machines. CxC: Parekh,
Baldridge, Cer, Waters, Yang, EACL 2021; scores 0 to 5. Both give numbers only: of MS-COCO's images
and captions (Karpathy's `cocoid` and `sentid`). They lie on the very images that retrieval is
tested on, so a training with them (as in paper 02) is no clean one.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import data_dir
from mmlib.data.tables import Fields, Row, sound_rows, table_rows

ECCV, CXC = "eccv_caption", "cxc"
ECCV_PAIRS = {"image_to_caption": (1261, 22550), "caption_to_image": (1332, 11279)}
CXC_CROSS = {"val": 19722, "test": 19833}
METHODS = ("c2i_intrasim", "c2i_original")  # caption of another image, of this image
COLUMNS = ("caption", "image", "agg_score", "sampling_method")
PATTERNS = {
    "caption": r"COCO_val2014:sentid:\d+",
    "image": r"COCO_(train|val)2014_\d{12}\.jpg",
    "agg_score": r"[0-4](\.\d+)?|5(\.0+)?",
    "sampling_method": "|".join(METHODS),
}
POSITIVE = 3.0  # paper 02 cuts the scores at three

GET_ECCV = "get it again: `mmlib data get eccv_caption`"
GET_CXC = "get it again: `mmlib data get cxc`"


def coco_number(name: str) -> int:
    """MS-COCO's number of an image, the last digits of its file name; ValueError without."""
    match = re.search(r"(\d+)\.jpg$", name)
    if match is None:
        raise ValueError(f"{name} does not end in the number of an MS-COCO image")
    return int(match[1])


def cxc_file(split: str, folder: Path) -> Path:
    """The aggregated caption-image scores of "val" or "test" (Karpathy's)."""
    if split not in CXC_CROSS:
        raise DataError(f"no split {split!r} (choose from {', '.join(CXC_CROSS)})")
    return folder / f"sits_{split}.csv"


def cxc_rows(path: Path) -> Iterator[Row]:
    """Line, fields and problems of each row of CxC's `sits_{val,test}.csv`."""
    return table_rows(path, COLUMNS, GET_CXC, PATTERNS)


def read_cxc(split: str, folder: Path | None = None) -> pd.DataFrame:
    """CxC's caption-image pairs: caption, image (numbers), score, cross, label (bool: score >= 3).

    cross: the caption was written for another image. folder: by default `cxc` in the data folder.
    Raises DataError naming the file, the line and the mend at the first bad row.
    """
    path = cxc_file(split, data_dir() / CXC if folder is None else folder)
    none = Problem(path, None, "has no rows", GET_CXC)
    return pd.DataFrame([_cxc_pair(values) for values in sound_rows(cxc_rows(path), none)])


def _cxc_pair(values: Fields) -> dict[str, Any]:
    score = float(values["agg_score"])
    return {
        "caption": int(values["caption"].rsplit(":", 1)[1]),
        "image": coco_number(values["image"]),
        "score": score,
        "cross": values["sampling_method"] == METHODS[0],
        "label": score >= POSITIVE,
    }


def read_eccv(direction: str, folder: Path | None = None) -> dict[int, tuple[int, ...]]:
    """ECCV Caption's positives: query -> what is true of it, numbers of images and captions.

    direction: "image_to_caption" (1,261 images, 22,550 captions) or "caption_to_image" (1,332
    captions, 11,279 images). The two are no mirror images of each other: queries differ.
    folder: by default `eccv_caption` in the data folder. Raises DataError for a missing file, and
    for a query that is no map of a number to distinct numbers.
    """
    if direction not in ECCV_PAIRS:
        raise DataError(f"no direction {direction!r} (choose from {', '.join(ECCV_PAIRS)})")
    path = (data_dir() / ECCV if folder is None else folder) / f"eccv_{direction}.json"
    if not path.is_file():
        raise DataError(Problem(path, None, "is missing", GET_ECCV))
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(Problem(path, None, f"is not JSON: {error}", GET_ECCV)) from error
    if not isinstance(found, dict) or not found:
        raise DataError(Problem(path, None, "is not a map of queries to positives", GET_ECCV))
    for query, items in found.items():
        if not query.isdigit() or not _numbers(items):
            what = f"query {query!r} has {str(items)[:60]}, not a list of distinct numbers"
            raise DataError(Problem(path, None, what, GET_ECCV))
    return {int(query): tuple(items) for query, items in found.items()}


def _numbers(items: object) -> bool:
    if not isinstance(items, list) or not items:
        return False
    return all(type(item) is int for item in items) and len(set(items)) == len(items)


def eccv_images(folder: Path | None = None) -> set[int]:
    """Numbers of all images that ECCV Caption's positives name."""
    images = set(read_eccv("image_to_caption", folder))
    return images.union(*read_eccv("caption_to_image", folder).values())
