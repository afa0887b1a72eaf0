"""Clue: web captions with six coherence relations, in the split of paper 01.

Alikhani, Han, Ravi, Kapadia, Pavlovic, Stone, "Cross-Modal Coherence for Text-to-Image Retrieval",
AAAI 2022; relations of Alikhani, Sharma, Li, Soricut, Stone, ACL 2020. The authors' files are
`conceptual_{train,test}_dis.csv`; the images are their owners' and must be fetched by URL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from mmlib.core.errors import Problem
from mmlib.core.records import RelatedPairs
from mmlib.data.pairs import image_names, picture_files, with_pictures
from mmlib.data.tables import SOMETHING, check_choice, dataset_folder, error_at, sound, table_rows
from mmlib.features.store import read_object

NAME = "clue"
SPLITS = {"train": 6047, "test": 1512}
RELATIONS = ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
COLUMNS = ("", "index", "caption", "url", *RELATIONS, "Other", "When", "How", "Where", "Comment")
LAST_HUMAN = 4580  # rows 0 to here of the Clue TSV have human captions, the others a machine's

GET = "run `mmlib data get clue`, or set MMLIB_DATA to the folder that holds clue/"
GET_IMAGES = "fetch the column url into images/<number>.jpg, numbered by img2idxmap.json"
PATTERNS = {
    **dict.fromkeys(RELATIONS, "0|1"),
    "index": r"\d+",
    "caption": SOMETHING,
    "url": "https?://.+",
}


@dataclass(frozen=True, eq=False)
class CluePairs(RelatedPairs):
    """Clue's pairs, whose image_ids are URLs.

    index: (pairs,) row of the Clue TSV, from 0; people wrote the captions of the first rows.
    """

    index: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def human(self) -> np.ndarray:
        """(pairs,) bool: captions by people; the others are by captioning models."""
        return self.index <= LAST_HUMAN

    def take(self, rows: Sequence[int] | np.ndarray, split: str | None = None) -> "CluePairs":
        """The pairs of some rows, in their order; images stay as they are."""
        index = self.index[np.asarray(rows, dtype=np.int64)]
        return replace(super().take(rows, split), index=index)  # type: ignore[return-value, call-arg]


def split_file(split: str, folder: Path) -> Path:
    """The authors' file of "train" or "test"."""
    check_choice("split", split, SPLITS)
    return folder / f"conceptual_{split}_dis.csv"


def rows(path: Path) -> Iterator[dict[str, str] | Problem]:
    """Rows of one of the authors' files, and problems (`tables.table_rows`)."""
    return table_rows(path, COLUMNS, GET, PATTERNS)


def load(split: str, folder: Path | None = None) -> CluePairs:
    """The authors' "train" (6,047 pairs) or "test" (1,512), in file order, without images.

    folder: the data set's folder; by default `clue` in the data folder.
    Raises DataError naming the file, the line and the mend at the first bad row.
    """
    path = split_file(split, dataset_folder(NAME, folder))
    table = pd.DataFrame(sound(rows(path), Problem(path, None, "has no rows", GET)))
    image_of, urls = pd.factorize(table["url"])
    labels, texts = (table[list(RELATIONS)] == "1").to_numpy(bool), tuple(table["caption"])
    index = table["index"].to_numpy(np.int64)
    return CluePairs(NAME, split, texts, labels, RELATIONS, image_of, tuple(urls), index=index)


def load_with_images(split: str, folder: Path | None = None) -> tuple[CluePairs, str]:
    """The pairs whose image is here and can be decoded, with `open_image`; and what is missing.

    The authors' code shows a white picture for a missing one; here its pairs are left out and
    counted. Images: `images/<number>.jpg` (or .jpeg, .png, .webp), numbers by `img2idxmap.json`.
    Raises DataError for a missing or damaged map, and where there is no image at all.
    """
    folder = dataset_folder(NAME, folder)
    pairs, number_of = load(split, folder), image_numbers(folder)
    pictures = picture_files(folder / name for name in ("images", "Images", "imgs"))
    stems = {path.stem: path for path in pictures.values()}
    numbers = {url: str(number_of.get(url)) for url in pairs.image_ids}
    files = {url: stems[number] for url, number in numbers.items() if number in stems}
    return with_pictures(pairs, files, folder / "images", GET_IMAGES)


def image_numbers(folder: Path) -> dict[str, int]:
    """URL -> number of its image, from `img2idxmap.json`."""
    path = folder / "img2idxmap.json"
    numbers = read_object(path, GET)
    if not all(type(number) is int for number in numbers.values()):
        raise error_at(path, None, "is not a map of URLs to whole numbers", GET)
    return numbers


def clean_rows(test: CluePairs, train: CluePairs) -> tuple[np.ndarray, np.ndarray]:
    """Test rows with a human caption and an unseen image, and those of them with a new caption.

    In the authors' split 881 rows and 863 of them; no two of either show the same image.
    """
    clean = test.human & ~np.isin(image_names(test), image_names(train))
    return np.flatnonzero(clean), np.flatnonzero(clean & ~np.isin(test.texts, train.texts))
