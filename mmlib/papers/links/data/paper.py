"""The authors' documents: the `docs.json`, `id2row.json` and `features.npy` of their code.

The code is that released with Hessel, Lee and Mimno, "Unsupervised Discovery of Multimodal Links in
Multi-image, Multi-sentence Documents" (EMNLP 2019). docs.json maps train, val and test to lists of
`[[[image, label], ...], [[sentence, label], ...], identifier]`.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.files import listed
from mmlib.core.paths import data_dir
from mmlib.features.store import fault, open_array
from mmlib.papers.links.data.documents import SPLITS, UNLABELLED, Corpus, Document

# The names of the authors' data sets here; other folders keep theirs.
NAMES = {
    "mscoco": "coco", "dii": "cohesive", "story-dii": "cohesive", "sis": "story",
    "story-sis": "story", "dii-stress": "stress", "dii-r": "stress", "rqa": "organic",
    "wiki": UNLABELLED,
}  # fmt: skip


def load(kinds: Sequence[str]) -> dict[str, Corpus]:
    """The documents of `<MMLIB_DATA>/links/<name>/` by kind: these, or where none is named all.

    Raises FileNotFoundError where there are none, ValueError for a kind that is not there (but for
    unlabelled documents, which a study may lack), DataError for two folders of one kind.
    """
    root = data_dir() / "links"
    folders: dict[str, Path] = {}
    for folder in (path.parent for path in listed(root, "*/docs.json")):
        kind = NAMES.get(folder.name, folder.name)
        if (first := folders.setdefault(kind, folder)) != folder:
            problem = f"{first.name} and {folder.name} are both the documents {kind!r}"
            raise DataError(f"{root}: {problem} (rename or move one)")
    if not folders:
        raise FileNotFoundError(
            f"{root} has no folder with docs.json, id2row.json and features.npy: see data/README.md"
        )
    kinds = [kind for kind in kinds or folders if kind != UNLABELLED or kind in folders]
    if unknown := [kind for kind in kinds if kind not in folders]:
        raise ValueError(f"no documents {unknown[0]!r} in {root}; there are {', '.join(folders)}")
    corpora = {kind: replace(read_corpus(folders[kind]), name=kind) for kind in kinds}
    unlabelled = [kind for kind, corpus in corpora.items() if not corpus.test[0].labelled]
    if len(unlabelled) > 1:
        names = " and ".join(folders[kind].name for kind in unlabelled)
        problem = f"{names} have no labels, and one such set is read"
        raise DataError(f"{root}: {problem} (move the others away, or name the sets to read)")
    for kind in unlabelled:
        corpora[UNLABELLED] = replace(corpora.pop(kind), name=UNLABELLED)
    return corpora


# --- The files of a folder -------------------------------------------------------------------


def read_corpus(folder: Path) -> Corpus:
    """Read `docs.json`, `id2row.json` and `features.npy` as the authors' loader understands them.

    Identifiers that are numbers become strings, as in that loader. Documents without an image or
    without a sentence are left out, with a warning that counts them; empty sentences stay.
    Raises FileNotFoundError or ValueError, naming the file, the document and the mend.
    """
    with _file(folder, "features.npy") as path:
        features = open_array(path)
        _need(features.ndim == 2, f"shape {features.shape}; needs 2-D floats (images, width)")
        row, problem = fault(features) or (-1, "")
        _need(row < 0, f"row {row} is {problem}; extract that image again")
    with _file(folder, "id2row.json") as path:
        row_of = _read_json(path)
        _need(isinstance(row_of, dict), "must be an object that maps image ids to rows")
        for image, row in row_of.items():
            fits = type(row) is int and 0 <= row < len(features)
            rows = f"features.npy has rows 0 to {len(features) - 1}"
            _need(fits, f"image {image!r} has row {row!r}; {rows}")
    with _file(folder, "docs.json") as path:
        raw = _read_json(path)
        lists = isinstance(raw, dict) and all(isinstance(raw.get(s), list) for s in SPLITS)
        _need(lists, "must be an object with the lists 'train', 'val' and 'test'")
        documents: dict[str, list[Document]] = {split: [] for split in SPLITS}
        first: dict[bool, str] = {}  # one label decides for the authors' code on the whole file
        for split in SPLITS:
            for index, item in enumerate(raw[split]):
                name = f"{split} document {index}"
                triple = isinstance(item, list) and len(item) == 3
                _need(triple, f"{name}: must be [images, sentences, identifier]")
                try:
                    document = _read_document(item, row_of)
                except ValueError as error:
                    raise ValueError(f"{name} ({item[2]!r}): {error}") from None
                if document.images and document.sentences:
                    first.setdefault(document.labelled, f"{name} ({document.id!r})")
                    documents[split].append(document)
        if len(first) == 2:
            problem = f"{first[False]} has null labels but {first[True]} has integers"
            raise ValueError(f"{problem}; label all documents (-1 for 'no link') or none")
        for split in SPLITS:
            _need(documents[split], f"{split!r} has no document with an image and a sentence")
    dropped = {split: len(raw[split]) - len(documents[split]) for split in SPLITS}
    if any(dropped.values()):
        counts = ", ".join(f"{split} {count}" for split, count in dropped.items())
        problem = f"{path}: left out documents without images or sentences: {counts}"
        warnings.warn(problem, stacklevel=2)
    train, val, test = (tuple(documents[split]) for split in SPLITS)
    vectors = np.array(features, np.float32)
    return Corpus(Path(folder).resolve().name, train, val, test, vectors, row_of)


@contextmanager
def _file(folder: Path, name: str) -> Iterator[Path]:
    path = Path(folder) / name
    if not path.is_file():
        needed = "a corpus needs docs.json, id2row.json, features.npy"
        raise FileNotFoundError(f"{path}: missing; {needed}")
    try:
        yield path
    except DataError:  # which names the file
        raise
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _need(holds: object, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"not valid JSON ({error}); write it again") from None


def _read_document(item: list, row_of: Mapping) -> Document:
    images, sentences, name = item
    for side, nodes in (("images", images), ("sentences", sentences)):
        pairs = isinstance(nodes, list) and all(isinstance(n, list) and len(n) == 2 for n in nodes)
        _need(pairs, f"{side} must be a list of [value, label] pairs")
    for number, (image, _) in enumerate(images):
        usable = type(image) in (str, int)
        _need(usable, f"image {number} has id {image!r}; use a string or an integer")
        mend = "add its feature vector or drop the image"
        _need(str(image) in row_of, f"image {str(image)!r} has no row in id2row.json; {mend}")
    for number, (text, _) in enumerate(sentences):
        _need(isinstance(text, str), f"sentence {number} is {text!r}; use a string")
    return Document(
        id=str(name),
        sentences=tuple(text for text, _ in sentences),
        images=tuple(str(image) for image, _ in images),
        links=links_of_labels([label for _, label in sentences], [label for _, label in images]),
    )


def links_of_labels(
    sentence_labels: Sequence[int | None], image_labels: Sequence[int | None]
) -> tuple[tuple[int, int], ...] | None:
    """The links (sentence, image) that either side names, by the rule of the authors' code.

    sentence_labels: the image that each sentence names; image_labels: the sentence that each image
    names. -1 names none; None in all of them says that nobody knows.
    Raises ValueError for a label that names nothing, and for a mixture of the two.
    """
    for side, own, others, count in (
        ("sentence", sentence_labels, "images", len(image_labels)),
        ("image", image_labels, "sentences", len(sentence_labels)),
    ):
        for node, label in enumerate(own):
            if label is not None:
                problem = f"{side} {node} has label {label!r}"
                _need(type(label) is int, f"{problem}; use an integer, -1 or null")
                problem += f", but there are {count} {others}"
                _need(-1 <= label < count, f"{problem}; use 0 to {count - 1}, or -1 for 'no link'")
    labels = [*sentence_labels, *image_labels]
    if all(label is None for label in labels):
        return None
    _need(None not in labels, "null and integer labels are mixed; use -1 for 'no link'")
    links = {(i, j) for i, j in enumerate(sentence_labels) if j is not None and j >= 0}
    links |= {(i, j) for j, i in enumerate(image_labels) if i is not None and i >= 0}
    return tuple(sorted(links))
