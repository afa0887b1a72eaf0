"""CITE and CITE++: recipe steps with one image and seven coherence relations, Q2 to Q8.

CITE (Alikhani, Nag Chowdhury, de Melo, Stone, NAACL 2019) is public, `data.csv`; CITE++ of paper 01
(AAAI 2022) holds as many pairs again, in files that its authors share: `q2-8_{train,test}_...csv`.
The images are RecipeQA's `images-qa`. The name of an image, such as `vanilla-panna_2_0.jpg`, begins
with its recipe; `stim_id` differs for each annotation and numbers one recipe several times.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from mmlib.core.errors import Problem
from mmlib.core.records import RelatedPairs
from mmlib.data.pairs import image_names, picture_files, with_pictures
from mmlib.data.tables import SOMETHING, check_choice, dataset_folder, sound, table_rows

NAME = "cite"
ROWS, PLUS = 2047, {"train": 3439, "test": 860}  # of CITE, and of CITE++ by split
RELATIONS = ("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")
ANSWERS = tuple(f"{relation.lower()}_resp" for relation in RELATIONS)
COLUMNS = ("", "Index", "q10_resp", "q1_resp", *ANSWERS, "q9_resp")
COLUMNS += ("qimg", "stim_id", "stim_txt", "complement")
PLUS_COLUMNS = ("qimg", "stim_txt", *ANSWERS)

GET = "run `mmlib data get cite`, or set MMLIB_DATA to the folder that holds cite/"
GET_PLUS = "get CITE++ from the shared folder that the authors' README links, into cite/"
GET_IMAGES = "put RecipeQA's images into recipeqa/images/ or cite/images-qa/"
PATTERNS = {**dict.fromkeys(ANSWERS, "True|False"), "qimg": SOMETHING, "stim_txt": SOMETHING}


def rows(path: Path) -> Iterator[dict[str, str] | Problem]:
    """Rows of CITE's `data.csv`, and problems (`tables.table_rows`)."""
    return table_rows(path, COLUMNS, GET, PATTERNS, delimiter="|")


def load(folder: Path | None = None, duplicates: bool = False) -> RelatedPairs:
    """CITE, without images, split "all".

    folder: the data set's folder; by default `cite` in the data folder.
    duplicates: keep all 2,047 rows; else the first annotation of each of the 1,553 pairs of image
    and text (spaces around a text do not count).
    Raises DataError naming the file, the line and the mend at the first bad row.
    """
    path = dataset_folder(NAME, folder) / "data.csv"
    pairs = _pairs(sound(rows(path), Problem(path, None, "has no rows", GET)), "all")
    return pairs if duplicates else pairs.take(np.flatnonzero(~keys_of(pairs).duplicated()))


def load_plus(split: str, folder: Path | None = None) -> RelatedPairs:
    """CITE++ as its authors split it, "train" (3,439 pairs) or "test" (860), without images.

    Read by the columns that the authors' code names; we have not seen the files. Errors as `load`.
    """
    check_choice("split", split, PLUS)
    path = dataset_folder(NAME, folder) / f"q2-8_{split}_dis_11-08.csv"
    in_shared_folder = path.parent / "RecipeQA" / path.name
    path = in_shared_folder if in_shared_folder.is_file() and not path.is_file() else path
    records = table_rows(path, PLUS_COLUMNS, GET_PLUS, PATTERNS, allow_more_columns=True)
    return _pairs(sound(records, Problem(path, None, "has no rows", GET_PLUS)), split)


def load_with_images(split: str, folder: Path | None = None) -> tuple[RelatedPairs, str]:
    """The pairs whose image is here and can be decoded, with `open_image`; and what is missing.

    split: "train" or "test" of CITE++, or "all" for CITE without its duplicates. Images are looked
    for by name below `images-qa` and `images` of this folder and of RecipeQA's beside it. Raises
    DataError where there is none.
    """
    folder = dataset_folder(NAME, folder)
    pairs = load(folder) if split == "all" else load_plus(split, folder)
    homes = (folder, folder / "RecipeQA", folder.parent / "recipeqa")
    files = picture_files(home / name for home in homes for name in ("images-qa", "images"))
    return with_pictures(pairs, files, folder / "images-qa", GET_IMAGES)


def _pairs(records: list[dict[str, str]], split: str) -> RelatedPairs:
    table = pd.DataFrame(records)
    labels = (table[list(ANSWERS)] == "True").to_numpy(bool)
    image_of, images = pd.factorize(table["qimg"])
    texts = tuple(table["stim_txt"])
    return RelatedPairs(NAME, split, texts, labels, RELATIONS, image_of, tuple(images))


def keys_of(pairs: RelatedPairs) -> pd.Series:
    """Image and text of each pair, by which pairs repeat; spaces around a text do not count."""
    texts = (text.strip() for text in pairs.texts)
    return pd.Series(list(zip(image_names(pairs), texts, strict=True)), dtype=object)


def recipe_of(image: str) -> str:
    """The recipe in the name of an image; "" for the five that are only numbered."""
    match = re.fullmatch(r"(.+)_\d+_\d+\.\w+", image)
    return match[1] if match else ""
