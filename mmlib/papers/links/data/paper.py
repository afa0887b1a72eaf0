"""The authors' documents: the `docs.json`, `id2row.json` and `features.npy` of their code.

The code is that released with Hessel, Lee and Mimno, "Unsupervised Discovery of Multimodal Links in
Multi-image, Multi-sentence Documents" (EMNLP 2019). docs.json maps train, val and test to lists of
`[[[image, label], ...], [[sentence, label], ...], identifier]`.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.papers.links.data.documents import SPLITS, Corpus, Document, Study
from mmlib.papers.links.systems import UNLABELLED

# The names of the authors' data sets here; other folders keep theirs.
NAMES = {
    "mscoco": "coco", "dii": "cohesive", "story-dii": "cohesive", "sis": "story",
    "story-sis": "story", "dii-stress": "stress", "dii-r": "stress", "rqa": "organic",
    "wiki": UNLABELLED,
}  # fmt: skip


def load(kinds: Sequence[str]) -> Study:
    """The documents of `<MMLIB_DATA>/links/<name>/`: these kinds, or where none is named all.

    Raises FileNotFoundError where there are none, ValueError for a kind that is not there (but for
    unlabelled documents, which a study may lack), DataError for two folders of one kind.
    """
    root = data_dir() / "links"
    folders = _folders(root)
    kinds = [kind for kind in kinds or folders if kind != UNLABELLED or kind in folders]
    if unknown := [kind for kind in kinds if kind not in folders]:
        raise ValueError(f"no documents {unknown[0]!r} in {root}; there are {', '.join(folders)}")
    corpora = {kind: replace(read_corpus(folders[kind]), name=kind) for kind in kinds}
    labelled = {kind: corpus for kind, corpus in corpora.items() if corpus.test[0].labelled}
    unlabelled = [kind for kind in corpora if kind not in labelled]
    if len(unlabelled) > 1:
        names = " and ".join(folders[kind].name for kind in unlabelled)
        problem = f"{names} have no labels, and one such set is read"
        raise DataError(f"{root}: {problem} (move the others away, or name the sets to read)")
    lone = replace(corpora[unlabelled[0]], name=UNLABELLED) if unlabelled else None
    return Study(labelled, lone, {})


def _folders(root: Path) -> dict[str, Path]:
    """The folder of each kind of documents."""
    folders: dict[str, Path] = {}
    for path in sorted(root.glob("*/docs.json")):
        folder = path.parent
        kind = NAMES.get(folder.name, folder.name)
        if (first := folders.setdefault(kind, folder)) != folder:
            problem = f"{first.name} and {folder.name} are both the documents {kind!r}"
            raise DataError(f"{root}: {problem} (rename or move one)")
    if not folders:
        raise FileNotFoundError(
            f"{root} has no folder with docs.json, id2row.json and features.npy: see data/README.md"
        )
    return folders


# --- The files of a folder -------------------------------------------------------------------


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
    parsed = {split: _parse_split(path, split, raw[split], row_of) for split in SPLITS}
    splits = {s: tuple(d for d in docs if d.images and d.sentences) for s, docs in parsed.items()}
    corpus = Corpus(
        folder.resolve().name, splits["train"], splits["val"], splits["test"], features, row_of
    )
    _check_one_labelling(corpus, path)
    if empty := [split for split in SPLITS if not splits[split]]:
        raise ValueError(f"{path}: {empty[0]!r} has no document with an image and a sentence")
    dropped = {split: len(parsed[split]) - len(splits[split]) for split in SPLITS}
    if any(dropped.values()):
        counts = ", ".join(f"{split} {count}" for split, count in dropped.items())
        warnings.warn(
            f"{path}: left out documents without images or sentences: {counts}", stacklevel=2
        )
    return corpus


def _must_exist(path: Path) -> None:
    if not path.is_file():
        needed = "a corpus needs docs.json, id2row.json, features.npy"
        raise FileNotFoundError(f"{path}: missing; {needed}")


def _read_json(path: Path) -> Any:
    _must_exist(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error}); write it again") from None


def _read_features(path: Path) -> np.ndarray:
    _must_exist(path)
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
    sentence_labels, image_labels = ([label for _, label in side] for side in (sentences, images))
    return Document(
        id=str(meta),
        sentences=tuple(text for text, _ in sentences),
        images=tuple(str(image) for image, _ in images),
        links=links_of_labels(sentence_labels, image_labels),
    )


def links_of_labels(
    sentence_labels: Sequence[int | None], image_labels: Sequence[int | None]
) -> tuple[tuple[int, int], ...] | None:
    """The links (sentence, image) that either side names, by the rule of the authors' code.

    sentence_labels: the image that each sentence names; image_labels: the sentence that each image
    names. -1 names none; None in all of them says that nobody knows.
    Raises ValueError for a label that names nothing, and for a mixture of the two.
    """
    _check_labels("sentence", sentence_labels, "images", len(image_labels))
    _check_labels("image", image_labels, "sentences", len(sentence_labels))
    labels = [*sentence_labels, *image_labels]
    if all(label is None for label in labels):
        return None
    if None in labels:
        raise ValueError("null and integer labels are mixed; use -1 for 'no link'")
    links = {(i, j) for i, j in enumerate(sentence_labels) if j is not None and j >= 0}
    links |= {(i, j) for j, i in enumerate(image_labels) if i is not None and i >= 0}
    return tuple(sorted(links))


def _check_labels(side: str, labels: Sequence[int | None], others: str, count: int) -> None:
    for node, label in enumerate(labels):
        if label is None:
            continue
        if isinstance(label, bool) or not isinstance(label, int):
            raise ValueError(f"{side} {node} has label {label!r}; use an integer, -1 or null")
        if not -1 <= label < count:
            raise ValueError(
                f"{side} {node} has label {label}, but there are {count} {others}; "
                f"use 0 to {count - 1}, or -1 for 'no link'"
            )


def _check_one_labelling(corpus: Corpus, path: Path) -> None:
    """One label decides for the authors' code whether a file is labelled: refuse a mixture."""
    first: dict[bool, str] = {}
    for split in SPLITS:
        for index, document in enumerate(corpus.split(split)):
            first.setdefault(document.labelled, f"{split} document {index} ({document.id!r})")
    if len(first) == 2:
        raise ValueError(
            f"{path}: {first[False]} has null labels but {first[True]} has integers; "
            "label all documents (-1 for 'no link') or none"
        )
