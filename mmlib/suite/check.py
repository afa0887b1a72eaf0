"""Is a data set complete and readable? One line a problem, each with its mend.

Every row is checked by the data set's own reader in `mmlib.data`; here the rows are counted and the
files compared with one another. Defects of a published data set are notes, not problems.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import listed
from mmlib.core.paths import data_dir, table_beside
from mmlib.data import (
    cite,
    clue,
    flickr8k,
    judgments,
    karpathy,
    precomputed,
    registry,
    sick,
    snli_ve,
)
from mmlib.data.pair_pictures import unreadable
from mmlib.data.tables import Fields, Row
from mmlib.features import sets
from mmlib.features.store import open_features
from mmlib.papers.links.data.paper import read_corpus

NOTES: dict[str, list[str]] = table_beside(__file__)


@dataclass
class Report:
    """The result of a check.

    problems: empty when the data set is usable.
    notes: known defects and optional files.
    counts: what was counted, in one line.
    """

    name: str
    folder: Path
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def add(self, path: Path, row: int | None, problem: str, mend: str = "") -> None:
        """Add a problem; without a mend, the mend is to get the data set again."""
        get = f"`mmlib data get {self.name}`"
        for remote in registry.find(self.name).remotes:  # `get` keeps what is in place
            target = self.folder / remote["path"]
            if not mend and target.exists() and path.is_relative_to(target):
                mend = f"move {target} away, then {get}"
        self.problems.append(Problem(path, row, problem, mend or f"get it again: {get}"))

    def note(self, **figures: object) -> None:
        """Add the notes of `check.yaml` on this data set, filled with what its reader reports."""
        self.notes += [template.format_map(figures) for template in NOTES[self.name]]

    @contextmanager
    def refusals(self, path: Path) -> Iterator[None]:
        """Turn the error of a reader into a problem; one that names no file gets `path`."""
        try:
            yield
        except (ValueError, OSError) as error:
            known = error.problem if isinstance(error, DataError) else None
            text = str(error).removeprefix(f"{path}: ")
            self.problems.append(known or Problem(path, None, text, ""))

    def expect(self, path: Path, count: int, expected: int, counted: str) -> None:
        """Add a problem where another number of something was counted than expected."""
        if count != expected:
            self.add(path, None, f"{count} {counted} instead of {expected}")

    def expect_rows(self, path: Path, rows: Iterable[Row], expected: int) -> list[Fields]:
        """The readable rows of a file; whatever is wrong with rows or their number is added.

        Where none can be read and the reader has said why, there is nothing to count.
        """
        records, said = [], len(self.problems)
        for _, fields, problems in rows:
            self.problems += problems
            records += [fields] if fields is not None else []
        if records or len(self.problems) == said:
            self.expect(path, len(records), expected, "sound rows")
        return records


def check(name: str, folder: Path | None = None) -> Report:
    """Check one data set, by default in its place in the data folder.

    Every image is decoded, every line read. Raises DataError for an unknown name.
    """
    item = registry.find(name)
    report = Report(name, item.folder if folder is None else folder)
    beside = name == "region_features" and folder is None and _beside_region_features()
    if report.folder.is_dir() or beside:
        CHECKS.get(name, _layout)(report)
    else:
        report.add(report.folder, None, "no such folder", f"{_how_to_get(item)}; or set MMLIB_DATA")
    return report


def _how_to_get(item: registry.DataSet) -> str:
    return f"`mmlib data get {item.name}`" if item.remotes else item.how


def _layout(report: Report) -> None:
    """For data sets without a check of their own: are the files there?"""
    item = registry.find(report.name)
    for patterns in item.missing(report.folder):
        report.add(report.folder, None, f"nothing named {patterns}", _how_to_get(item))
    report.counts.append("files present; their contents are not checked")


# Flickr8k ----------------------------------------------------------------------------------------


def _flickr8k(report: Report) -> None:
    images: set[str] = set()
    captioned: set[str] = set()
    with report.refusals(report.folder):
        images = _decode_folder(report, flickr8k.image_folder(report.folder), flickr8k.IMAGES)
        report.counts.append(f"{len(images)} images")
    with report.refusals(report.folder):
        captioned = _flickr8k_captions(report, flickr8k.caption_file(report.folder), images)
    in_splits = _flickr8k_splits(report, captioned)
    _features(report, in_splits & images or images)
    _judgments(report)


def _decode_folder(report: Report, folder: Path, expected: int) -> set[str]:
    """The names of the photographs in a folder; every byte of every one is read."""
    paths = {path.name: path for path in listed(folder, "*.jpg")}
    report.expect(folder, len(paths), expected, "images")
    for name, reason in unreadable(paths).items():
        report.add(paths[name], None, f"cannot be decoded: {reason}", "get this image again")
    return set(paths)


def _flickr8k_captions(report: Report, path: Path, images: set[str]) -> set[str]:
    """The names of the images that have captions."""
    counts: Counter[str] = Counter()
    damaged = False
    for row, item in flickr8k.caption_lines(path):
        if isinstance(item, Problem):
            report.problems.append(item)
            damaged = True
            continue
        if images and item[0] not in images and item[0] not in counts:
            report.add(path, row, f"caption of {item[0]}, an image that is not there")
        counts[item[0]] += 1
    if not damaged:  # a damaged line would only be reported a second time
        for name, count in counts.items():
            report.expect(path, count, flickr8k.CAPTIONS_EACH, f"captions of {name}")
        for name in sorted(images - counts.keys()):
            report.add(path, None, f"no caption of {name}")
    report.counts.append(f"{counts.total()} captions")
    return set(counts)


def _flickr8k_splits(report: Report, captioned: set[str]) -> set[str]:
    """The names of the images that are in a split."""
    split_of: dict[str, str] = {}
    sizes = []
    for split, expected in flickr8k.SPLITS.items():
        with report.refusals(report.folder):
            path = flickr8k.split_file(split, report.folder)
            names = flickr8k.read_split(split, report.folder)
            sizes.append(str(len(names)))
            report.expect(path, len(names), expected, "images")
            for row, name in enumerate(names, start=1):
                if captioned and name not in captioned:
                    report.add(path, row, f"{name} is an image without captions")
                if split_of.setdefault(name, split) != split:
                    report.add(path, row, f"{name} is in the split {split_of[name]} too")
    report.counts.append(f"splits {'/'.join(sizes)}")
    if outside := len(captioned - split_of.keys()):
        report.notes.append(f"{outside} images are in no split (91 in the published set)")
    return set(split_of)


def _features(report: Report, images: set[str]) -> None:
    """Every feature file: rows for all images that notebooks read, all of them finite.

    Which set they read is noted, by the rule by which they choose it.
    """
    folder = report.folder / "features"
    paths = listed(folder, "*.npy")
    if not paths:
        report.notes.append(f"no features yet: `mmlib data features {report.name}`")
    with report.refusals(folder):
        if sets.names(folder):
            used = sets.choose(folder, default=flickr8k.SHARED_FEATURES)
            report.notes.append(f"the notebooks read the feature set {used.stem}")
    mend = "extract the features again"
    for path in paths:
        with report.refusals(path):
            store = open_features(path)
            lacking = sorted(images - store.row_of.keys())
            if lacking and "packed" not in store.meta:  # rows of one split, in its order
                problem = f"no row for {len(lacking)} images, first {lacking[0]}"
                report.add(path, None, problem, mend)
            if path.stem.startswith(sets.LABELS):
                flickr8k.label_names(store)
            for name, row in store.row_of.items():
                if not np.isfinite(store.array[row]).all():
                    report.add(path, None, f"row {row}, image {name}, is not finite", mend)
            if skipped := store.meta.get("skipped"):
                report.notes.append(f"{path.name} leaves out {len(skipped)} undecodable images")
            report.counts.append(f"{path.stem} {' x '.join(map(str, store.array.shape))}")


def _judgments(report: Report) -> None:
    try:
        frame, skipped = flickr8k.read_judgments(report.folder)
    except DataError:
        report.notes.append("no crowd judgments (CrowdFlowerAnnotations.txt); few notebooks ask")
        return
    report.notes.append(f"{len(frame)} crowd judgments, {skipped} damaged lines skipped")
    with report.refusals(report.folder):
        judged = judgments.load(report.folder)
        pairs, yes = int(judged.cross.sum()), int(judged.label[judged.cross].sum())
        report.notes.append(
            f"{pairs} judgments are of another image's caption, {yes} of them yes "
            f"(prevalence {yes / max(pairs, 1):.4f}); for tests only"
        )


# Tables ------------------------------------------------------------------------------------------


def _clue(report: Report) -> None:
    for split, expected in clue.SPLITS.items():
        path = clue.split_file(split, report.folder)
        if records := report.expect_rows(path, clue.rows(path), expected):
            report.counts.append(f"{len(records)} {split} captions")
    if report.usable:
        _clue_figures(report)
    numbers = report.folder / "img2idxmap.json"
    if numbers.is_file():
        with report.refusals(numbers):
            clue.image_numbers(report.folder)
    else:
        report.notes.append(f"no {numbers.name}, which only the images need")
    report.notes.append("the images are not part of this data set")


def _clue_figures(report: Report) -> None:
    """The rates of Table 2 of paper 01, its vocabulary, and what its two files share."""
    tables = clue.report(report.folder)
    for split in clue.SPLITS:
        rates = tables["rates"].loc[split].items()
        shown = ", ".join(f"{name} {rate:.2f}" for name, rate in rates)
        report.notes.append(f"positive in percent, {split}: {shown}")
    report.note(words=tables["words"], leaks=tables["leaks"])


def _cite(report: Report) -> None:
    path = report.folder / "data.csv"
    if records := report.expect_rows(path, cite.rows(path), cite.ROWS):
        report.counts.append(f"{len(records)} recipe steps")
    if report.usable:
        tables = cite.report(report.folder)
        rates = ", ".join(f"{name} {rate:.3f}" for name, rate in tables["rates"].items())
        report.note(rates=rates, words=tables["words"], repeats=tables["repeats"])
    report.notes.append("the images are not part of this data set")


def _sick(report: Report) -> None:
    path = report.folder / "SICK.txt"
    records = report.expect_rows(path, sick.rows(path), sum(sick.SETS.values()))
    sizes = Counter(fields["SemEval_set"] for fields in records)
    for name, expected in sick.SETS.items() if records else ():
        report.expect(path, sizes[name], expected, f"pairs of {name}")
    if records:
        split = "/".join(str(sizes[name]) for name in sick.SETS)
        report.counts.append(f"{len(records)} sentence pairs, {split}")
    if report.usable:
        _sick_origins(report)


def _sick_origins(report: Report) -> None:
    """Which pairs come from Flickr8k's captions, and which of them a training must leave out."""
    flickr = registry.find("flickr8k").folder
    try:
        counts = sick.report(report.folder, sick.Origins(flickr))
    except DataError:
        report.notes.append(f"not compared with Flickr8k's captions, which are not in {flickr}")
        return
    sizes = "/".join(str(counts[f"triples in {split}"]) for split in flickr8k.SPLITS)
    report.note(counts=counts, sizes=sizes)


def _snli_ve(report: Report) -> None:
    images: dict[str, set[str]] = {}
    for split, expected in snli_ve.SPLITS.items():
        path = snli_ve.split_file(split, report.folder)
        records = report.expect_rows(path, snli_ve.rows(path), expected)
        images[split] = {fields["image"] for fields in records}
        if records:
            report.counts.append(f"{split} {len(records)} pairs of {len(images[split])} images")
    references = [(f"its own {split} images", images[split]) for split in ("dev", "test")]
    for title, names in [*references, *_karpathy_names().items(), *_flickr8k_test().items()]:
        for split, ours in images.items():
            shared = len(snli_ve.shared_photos(ours, names))
            if shared and ours is not names:
                report.notes.append(f"{split} shows {shared} of the {len(names)} {title}")


def _karpathy_names() -> dict[str, set[str]]:
    """Image names of Karpathy's validation and test split of Flickr30K; empty where absent."""
    path = registry.find("karpathy").folder / "dataset_flickr30k.json"
    names: dict[str, set[str]] = {}
    for item in karpathy.read_images(path) if path.is_file() else ():
        if not isinstance(item, Problem) and item.split in ("val", "test"):
            title = f"{item.split} images of Karpathy's flickr30k"
            names.setdefault(title, set()).add(item.name)
    return names


def _flickr8k_test() -> dict[str, set[str]]:
    try:
        names = flickr8k.read_split("test", registry.find("flickr8k").folder)
    except DataError:
        return {}
    return {"test images of Flickr8k": set(names)}


# Other formats -----------------------------------------------------------------------------------


KARPATHY_SPLITS = {
    "coco": {"train": 82783, "restval": 30504, "val": 5000, "test": 5000},
    "flickr30k": {"train": 29000, "val": 1014, "test": 1000},
}


def _karpathy(report: Report) -> None:
    for name, expected in KARPATHY_SPLITS.items():
        path = report.folder / f"dataset_{name}.json"
        items = list(karpathy.read_images(path))
        problems = [item for item in items if isinstance(item, Problem)]
        sizes = Counter(item.split for item in items if not isinstance(item, Problem))
        report.problems += problems
        if sizes != expected and not problems:
            report.add(path, None, f"the splits are {dict(sizes)}, not {expected}")
        if sizes:
            counted = "/".join(str(sizes[split]) for split in expected)
            report.counts.append(f"{name} {counted} images")


def _beside_region_features() -> list[Path]:
    """Folders of the data folder itself that notebooks 02 and 03 read as region features."""
    return [folder for name in ("f30k", "coco") if (folder := data_dir() / name).is_dir()]


def _region_features(report: Report) -> None:
    """Every folder in a layout of `precomputed`, here or one below; all values are read."""
    roots = [report.folder]
    if report.folder == registry.find("region_features").folder:
        roots += _beside_region_features()
    found = [
        sorted(p for root in roots for depth in ("", "*/") for p in listed(root, depth + pattern))
        for pattern in ("*_caps.txt", "dataset_*.json")
    ]
    files, listings = found
    if not files and not listings:
        how = registry.find("region_features").how
        problem = "no {train,dev,test}_caps.txt and no dataset_*.json here or one below"
        report.add(report.folder, None, problem, how)
    for folder in sorted({path.parent for path in listings} - {path.parent for path in files}):
        for split in ("train", "val", "test"):
            with report.refusals(folder):
                report.counts.append(precomputed.inspect(folder, split))
    present: dict[Path, set[str]] = {}
    for path in files:
        split = path.name.removesuffix("_caps.txt")
        present.setdefault(path.parent, set()).add("test" if split == "testall" else split)
        if split not in precomputed.FILE_SPLITS:
            report.notes.append(f"{path} is of no split that is known, and was not read")
            continue
        with report.refusals(path):
            report.counts.append(precomputed.inspect(path.parent, split))
    for folder, splits in present.items():
        for split in sorted({"train", "dev", "test"} - splits):
            report.add(folder / f"{split}_caps.txt", None, "is missing", "get this split, too")


PHOTOGRAPHS = {
    "flickr30k": ({"Images": 31783}, "dataset_flickr30k.json"),
    "mscoco": ({"train2014": 82783, "val2014": 40504}, "dataset_coco.json"),
}


def _photographs(report: Report) -> None:
    """Flickr30K's or MS-COCO's: every one decoded, none of Karpathy's missing."""
    folders, listing = PHOTOGRAPHS[report.name]
    names: set[str] = set()
    for name, expected in folders.items():
        images = _decode_folder(report, report.folder / name, expected)
        report.counts.append(f"{len(images)} images in {name}")
        names |= images
    split_file = registry.find("karpathy").folder / listing
    if not split_file.is_file():
        report.notes.append("not compared with Karpathy's split file, which is not here")
        return
    for item in karpathy.read_images(split_file):
        if not isinstance(item, Problem) and item.name not in names:
            report.add(report.folder, None, f"no image {item.name}, which {listing} names")


def _links(report: Report) -> None:
    """The authors' document sets, each in a folder of its own."""
    folders = [path.parent for path in listed(report.folder, "*/docs.json")]
    if not folders:
        report.add(report.folder, None, "no */docs.json", registry.find("links").how)
    for folder in folders:
        with report.refusals(folder):
            corpus = read_corpus(folder)
            sizes = "/".join(str(len(corpus.split(split))) for split in ("train", "val", "test"))
            report.counts.append(f"{folder.name} {sizes} documents")


CHECKS: dict[str, Callable[[Report], None]] = {
    "flickr8k": _flickr8k,
    "clue": _clue,
    "cite": _cite,
    "sick": _sick,
    "snli_ve": _snli_ve,
    "karpathy": _karpathy,
    "flickr30k": _photographs,
    "mscoco": _photographs,
    "region_features": _region_features,
    "links": _links,
}
