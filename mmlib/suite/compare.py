"""`mmlib compare`: a retriever of one's own beside the recorded systems."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.paths import write_atomic
from mmlib.core.tables import without_formulas
from mmlib.papers.cora import compare as cora
from mmlib.papers.cora.compare import Comparison
from mmlib.suite import record
from mmlib.suite.encoders import functions_of


def compare(
    number: str,
    scores: np.ndarray,
    tier: str = "world",
    dataset: str = "",
    *,
    name: str = "yours",
    folder: Path | None = None,
) -> Comparison:
    """A similarity matrix beside what is recorded of a paper: tables, paired differences.

    number: of a notebook whose paper ranks images by captions: "03". scores (test images, test
    captions), higher is better; see `mmlib.papers.cora.compare`. dataset: as in `mmlib judge`;
    empty: the tier's own name. name: of the retriever in tables. folder: of evidence.
    Raises DataError for another paper or collection, another shape, and missing evidence.
    """
    _must_rank(number)
    return cora.compare(record.read(number, tier, folder), dataset or tier, scores, name)


def similarity(
    number: str,
    encode_images: Callable[[list[Any]], Any],
    encode_texts: Callable[[list[str]], Any],
    tier: str = "world",
    dataset: str = "",
) -> np.ndarray:
    """Cosines (test images, test captions) that two encoders give; see `cora.compare.encoded`."""
    _must_rank(number)
    return cora.encoded(cora.ranked_items(tier, dataset or tier), encode_images, encode_texts)


def write_items(number: str, tier: str, dataset: str, path: Path) -> int:
    """Write the test items as CSV: row, column, image and caption; returns how many there are."""
    _must_rank(number)
    images = cora.ranked_items(tier, dataset or tier)
    pairs = [(row, text) for row, group in enumerate(images.captions) for text in group]
    lines = [(row, k, images.ids[row], text) for k, (row, text) in enumerate(pairs)]

    def write(file: Path) -> None:
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([("row", "column", "image", "caption"), *lines])

    write_atomic(path, write)
    return len(lines)


def scores_of(number: str, source: Path, tier: str, dataset: str) -> np.ndarray:
    """The similarity matrix of a .npy file, or of the two functions of a Python file."""
    if source.suffix == ".py":
        images, texts = functions_of(source)
        return similarity(number, images, texts, tier, dataset)
    try:
        scores = np.load(source, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{source}: no such file") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{source}: not a readable .npy array: {str(error)[:80]}") from None
    if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "fiu":
        raise DataError(f"{source}: holds no numbers")
    return scores


def write(comparison: Comparison, out: Path) -> None:
    """Write the tables of a comparison as CSV into a folder."""
    tables = {"results": comparison.results, "differences": comparison.differences}
    if len(comparison.in_family):
        tables["in_family"] = comparison.in_family.to_frame("in family, %")
    for name, table in tables.items():
        write_atomic(out / f"{name}.csv", without_formulas(table).to_csv)


def _must_rank(number: str) -> None:
    if number != "03":
        raise DataError(f"paper {number} ranks no similarity matrix of images and captions; use 03")
