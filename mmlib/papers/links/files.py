"""The documents' files: the `docs.json`, `id2row.json` and `features.npy` of the authors' code.

The code is that released with Hessel, Lee and Mimno, "Unsupervised Discovery of Multimodal Links in
Multi-image, Multi-sentence Documents" (EMNLP 2019). docs.json maps train, val and test to lists of
`[[[image, label], ...], [[sentence, label], ...], identifier]`.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.papers.links.documents import SPLITS, Corpus, Document


def read_corpus(folder: Path) -> Corpus:
    """Read `docs.json`, `id2row.json` and `features.npy` as the authors' loader understands them.

    Identifiers that are numbers become strings, as in that loader. Documents without an image or
    without a sentence are left out, with a warning that counts them; empty sentences stay.
    Raises FileNotFoundError or ValueError, naming the file, the document and the mend.
    """
    folder = Path(folder)
    features = _read_features(folder / "features.npy")
    row_of = _read_rows(folder / "id2row.json", len(features))
    path = folder / "docs.json"
    raw = _read_json(path)
    if not isinstance(raw, dict) or any(not isinstance(raw.get(s), list) for s in SPLITS):
        raise ValueError(f"{path}: must be an object with the lists 'train', 'val' and 'test'")
    splits = {split: _parse_split(path, split, raw[split], row_of) for split in SPLITS}
    kept = {s: tuple(d for d in docs if d.images and d.sentences) for s, docs in splits.items()}
    corpus = Corpus(
        name=folder.resolve().name,
        train=kept["train"],
        val=kept["val"],
        test=kept["test"],
        features=features,
        row_of=row_of,
    )
    _check_one_labelling(corpus, path)
    if empty := [split for split in SPLITS if not kept[split]]:
        raise ValueError(f"{path}: {empty[0]!r} has no document with an image and a sentence")
    dropped = {split: len(splits[split]) - len(kept[split]) for split in SPLITS}
    if any(dropped.values()):
        counts = ", ".join(f"{split} {count}" for split, count in dropped.items())
        warnings.warn(
            f"{path}: left out documents without images or sentences: {counts}", stacklevel=2
        )
    return corpus


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: missing; a corpus needs docs.json, id2row.json, features.npy"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error}); write it again") from None


def _read_features(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: missing; a corpus needs docs.json, id2row.json, features.npy"
        )
    try:
        features = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        features = None
    if not isinstance(features, np.ndarray):  # np.load opens a zip file, too
        raise ValueError(f"{path}: not a plain .npy array; save it again with numpy.save")
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating):
        raise ValueError(
            f"{path}: shape {features.shape}, {features.dtype}; needs 2-D floats (images, width)"
        )
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: row {bad[0]} holds NaN or infinity; extract that image again")
    return features.astype(np.float32, copy=False)


def _read_rows(path: Path, count: int) -> dict[str, int]:
    rows = _read_json(path)
    if not isinstance(rows, dict):
        raise ValueError(f"{path}: must be an object that maps image ids to rows")
    for image, row in rows.items():
        if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < count:
            raise ValueError(
                f"{path}: image {image!r} has row {row!r}; features.npy has rows 0 to {count - 1}"
            )
    return rows


def _parse_split(path: Path, split: str, items: list, row_of: Mapping) -> list[Document]:
    documents = []
    for index, item in enumerate(items):
        if not isinstance(item, list) or len(item) != 3:
            raise ValueError(
                f"{path}: {split} document {index}: must be [images, sentences, identifier]"
            )
        try:
            documents.append(_parse_document(item, row_of))
        except ValueError as error:
            raise ValueError(f"{path}: {split} document {index} ({item[2]!r}): {error}") from None
    return documents


def _parse_document(item: list, row_of: Mapping) -> Document:
    images, sentences, meta = item
    for side, nodes in (("images", images), ("sentences", sentences)):
        if not isinstance(nodes, list) or any(
            not isinstance(node, list) or len(node) != 2 for node in nodes
        ):
            raise ValueError(f"{side} must be a list of [value, label] pairs")
    for number, (image, _) in enumerate(images):
        if isinstance(image, bool) or not isinstance(image, str | int):
            raise ValueError(f"image {number} has id {image!r}; use a string or an integer")
        if str(image) not in row_of:
            raise ValueError(
                f"image {str(image)!r} has no row in id2row.json; "
                "add its feature vector or drop the image"
            )
    for number, (text, _) in enumerate(sentences):
        if not isinstance(text, str):
            raise ValueError(f"sentence {number} is {text!r}; use a string")
    return Document(
        id=str(meta),
        sentences=tuple(text for text, _ in sentences),
        images=tuple(str(image) for image, _ in images),
        sentence_labels=tuple(label for _, label in sentences),
        image_labels=tuple(label for _, label in images),
    )


def _check_one_labelling(corpus: Corpus, path: Path) -> None:
    """One label decides for the authors' code whether a file is labelled: refuse a mixture."""
    seen: dict[bool, str] = {}
    for split in SPLITS:
        for index, document in enumerate(corpus.split(split)):
            seen.setdefault(document.labelled, f"{split} document {index} ({document.id!r})")
    if len(seen) == 2:
        raise ValueError(
            f"{path}: {seen[False]} has null labels but {seen[True]} has integers; "
            "label all documents (-1 for 'no link') or none"
        )
