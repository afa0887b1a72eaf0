"""Is a data set complete and readable? One line a problem, each with its mend.

Defects that are part of a published data set are notes, not problems.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmlib.core.errors import DataError, Problem
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
from mmlib.data.tables import Row
from mmlib.features.store import open_features
from mmlib.papers.links.data.paper import read_corpus


@dataclass
class Report:
    """What a check found.

    problems: empty when the data set is usable.
    notes: known defects and optional parts.
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

    def add(self, path: Path, row: int | None, what: str, mend: str = "") -> None:
        """Add a problem; without a mend of its own, get the data set again."""
        self.problems.append(Problem(path, row, what, mend or self._again(path)))

    def _again(self, path: Path) -> str:
        """How to replace what is damaged: `get` keeps all that is in place."""
        get = f"`mmlib data get {self.name}`"
        parts = [self.folder / one["path"] for one in registry.find(self.name).remotes]
        inside = [part for part in parts if part.exists() and path.is_relative_to(part)]
        return f"move {inside[0]} away, then {get}" if inside else f"get it again: {get}"

    def add_error(self, error: Exception, path: Path) -> None:
        """Add what a reader refused."""
        known = error.problem if isinstance(error, DataError) else None
        text = str(error).removeprefix(f"{path}: ")
        self.problems.append(known or Problem(path, None, text, ""))


def check(name: str, folder: Path | None = None) -> Report:
    """Check one data set, by default in its place in the data folder.

    Every image is decoded, every line read. Raises DataError for a name that is not known.
    """
    item = registry.find(name)
    report = Report(name, item.folder if folder is None else folder)
    if not report.folder.is_dir():
        mend = f"`mmlib data get {name}`" if item.remotes else item.how
        report.add(report.folder, None, "no such folder", f"{mend}; or set MMLIB_DATA")
    else:
        CHECKS.get(name, _layout)(report)
    return report


def _layout(report: Report) -> None:
    """For data sets without a check of their own: are the files there?"""
    item = registry.find(report.name)
    for patterns in item.missing(report.folder):
        mend = f"`mmlib data get {report.name}`" if item.remotes else item.how
        report.add(report.folder, None, f"nothing named {patterns}", mend)
    report.counts.append("files present; their contents are not checked")


# Flickr8k ----------------------------------------------------------------------------------------


def _flickr8k(report: Report) -> None:
    images = _flickr8k_images(report)
    captioned = _flickr8k_captions(report, images)
    _flickr8k_splits(report, captioned)
    _features(report, report.folder / "features", images)
    _judgments(report)


def _flickr8k_images(report: Report) -> set[str]:
    try:
        folder = flickr8k.image_folder(report.folder)
    except DataError as error:
        report.add_error(error, report.folder)
        return set()
    paths = sorted(folder.glob("*.jpg"))
    if len(paths) != flickr8k.IMAGES:
        report.add(folder, None, f"{len(paths)} images instead of {flickr8k.IMAGES}")
    _decode_all(report, paths)
    report.counts.append(f"{len(paths)} images")
    return {path.name for path in paths}


def _decode_all(report: Report, paths: Iterable[Path]) -> None:
    """Read every byte of every picture."""
    named = {path.name: path for path in paths}
    for name, what in unreadable(named).items():
        report.add(named[name], None, f"cannot be decoded: {what}", "get this image again")


def _flickr8k_captions(report: Report, images: set[str]) -> set[str]:
    try:
        path = flickr8k.caption_file(report.folder)
    except DataError as error:
        report.add_error(error, report.folder)
        return set()
    counts: Counter[str] = Counter()
    damaged = 0
    for row, item in flickr8k.caption_lines(path):
        if isinstance(item, Problem):
            report.problems.append(item)
            damaged += 1
            continue
        if images and item[0] not in images and item[0] not in counts:
            report.add(path, row, f"caption of {item[0]}, an image that is not there")
        counts[item[0]] += 1
    if not damaged:  # a damaged line would only be reported a second time
        for name, count in counts.items():
            if count != flickr8k.CAPTIONS_EACH:
                report.add(path, None, f"{count} captions of {name} instead of 5")
        for name in sorted(images - counts.keys()):
            report.add(path, None, f"no caption of {name}")
    report.counts.append(f"{counts.total()} captions")
    return set(counts)


def _flickr8k_splits(report: Report, captioned: set[str]) -> None:
    split_of: dict[str, str] = {}
    sizes = []
    for split, expected in flickr8k.SPLITS.items():
        try:
            path = flickr8k.split_file(split, report.folder)
            names = flickr8k.read_split(split, report.folder)
        except (DataError, UnicodeDecodeError) as error:
            report.add_error(error, report.folder)
            continue
        sizes.append(str(len(names)))
        if len(names) != expected:
            report.add(path, None, f"{len(names)} images instead of {expected}")
        for row, name in enumerate(names, start=1):
            if captioned and name not in captioned:
                report.add(path, row, f"{name} is an image without captions")
            if name in split_of:
                report.add(path, row, f"{name} is in the split {split_of[name]} too")
            split_of.setdefault(name, split)
    report.counts.append(f"splits {'/'.join(sizes)}")
    if outside := len(captioned - split_of.keys()):
        report.notes.append(f"{outside} images are in no split (91 in the published set)")


def _features(report: Report, folder: Path, images: set[str]) -> None:
    """Every feature file: rows for all images, all of them finite."""
    paths = sorted(folder.glob("*.npy"))
    if not paths:
        report.notes.append(f"no features yet: `mmlib data features {report.name}`")
    mend = "extract the features again"
    for path in paths:
        try:
            store = open_features(path)
        except DataError as error:
            report.add_error(error, path)
            continue
        except (ValueError, OSError) as error:
            what = f"its .json or its ids cannot be read: {error}"
            report.add(path, None, what, mend)
            continue
        lacking = sorted(images - store.row_of.keys() - set(store.meta.get("skipped", ())))
        if lacking and "packed" not in store.meta:  # rows of one split, in its order
            report.add(path, None, f"no row for {len(lacking)} images, first {lacking[0]}", mend)
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
    try:
        judged = judgments.load(report.folder)
    except DataError as error:
        report.add_error(error, report.folder)
        return
    pairs, yes = int(judged.cross.sum()), int(judged.label[judged.cross].sum())
    report.notes.append(
        f"{pairs} judgments are of another image's caption, {yes} of them yes "
        f"(prevalence {yes / max(pairs, 1):.4f}); for tests only"
    )


# Tables ------------------------------------------------------------------------------------------


def _expect_rows(report: Report, path: Path, found: int, expected: int) -> None:
    if path.is_file() and found != expected:
        report.add(path, None, f"{found} sound rows instead of {expected}")


CLUE_ROWS = clue.SPLITS
CITE_ROWS = cite.ROWS


def _clue(report: Report) -> None:
    for split, expected in CLUE_ROWS.items():
        path = clue.split_file(split, report.folder)
        report.counts.append(f"{_count(report, path, clue.rows(path), expected)} {split} captions")
    if report.usable:
        _clue_figures(report)
    numbers = report.folder / "img2idxmap.json"
    if numbers.is_file():
        try:
            clue.image_numbers(report.folder)
        except DataError as error:
            report.add_error(error, numbers)
    else:
        report.notes.append(f"no {numbers.name}, which only the images need")
    report.notes.append("the images are not part of this data set")


def _clue_figures(report: Report) -> None:
    """The rates of Table 2 of paper 01, its vocabulary, and what its two files share."""
    tables = clue.report(report.folder)
    leaks, words, rates = tables["leaks"], tables["words"], tables["rates"]
    for split in CLUE_ROWS:
        shown = ", ".join(f"{name} {rate:.2f}" for name, rate in rates.loc[split].items())
        report.notes.append(f"positive in percent, {split}: {shown}")
    report.notes += [
        f"vocabulary of the training captions: {words['vocabulary']}, which is {words['types']} "
        "types, with the empty token, and the entry for unknown words",
        f"{leaks['image in train']} of {leaks['test rows']} test rows show an image of the "
        f"training file: {leaks['human rows, image in train']} of {leaks['human rows']} with human "
        f"captions, {leaks['machine rows, image in train']} of {leaks['machine rows']} others "
        "(published so)",
        f"{leaks['caption in train']} test rows repeat a training caption, "
        f"{leaks['image and caption in train']} image and caption, "
        f"{leaks['image or caption in train']} either; {leaks['clean rows, caption not in train']} "
        "rows with human captions share nothing (published so)",
    ]


def _cite(report: Report) -> None:
    path = report.folder / "data.csv"
    report.counts.append(f"{_count(report, path, cite.rows(path), CITE_ROWS)} recipe steps")
    if report.usable:
        tables = cite.report(report.folder)
        words, repeats = tables["words"], tables["repeats"]
        rates = ", ".join(f"{name} {rate:.3f}" for name, rate in tables["rates"].items())
        report.notes += [
            f"share of Yes: {rates}",
            f"vocabulary: {words['types']} types with the empty token",
            f"{repeats['distinct pairs']} distinct pairs of image and text; "
            f"{repeats['rows of pairs that repeat']} rows belong to pairs that repeat, of "
            f"{repeats['recipes']} recipes (published so)",
        ]
    report.notes.append("the images are not part of this data set")


def _count(report: Report, path: Path, found: Iterable[Row], expected: int) -> int:
    """Number of readable rows; what is wrong with rows, and with their number, becomes problems."""
    count = 0
    for _, fields, problems in found:
        report.problems += problems
        count += fields is not None
    _expect_rows(report, path, count, expected)
    return count


SICK_SETS = sick.SETS


def _sick(report: Report) -> None:
    path = report.folder / "SICK.txt"
    sets: Counter[str] = Counter()
    for _, fields, problems in sick.rows(path):
        report.problems += problems
        if fields is not None:
            sets[fields["SemEval_set"]] += 1
    _expect_rows(report, path, sets.total(), sum(SICK_SETS.values()))
    for name, expected in SICK_SETS.items():
        if path.is_file() and sets[name] != expected:
            report.add(path, None, f"{sets[name]} pairs of {name} instead of {expected}")
    report.counts.append(
        f"{sets.total()} sentence pairs, {'/'.join(str(sets[n]) for n in SICK_SETS)}"
    )
    if report.usable:
        _sick_origins(report)


def _sick_origins(report: Report) -> None:
    """Which pairs come from Flickr8k's captions, and what of them a training must leave out."""
    flickr = registry.find("flickr8k").folder
    try:
        found = sick.report(report.folder, sick.Origins(flickr))
    except DataError:
        report.notes.append(f"not compared with Flickr8k's captions, which are not in {flickr}")
        return
    sizes = "/".join(str(found[f"triples in {split}"]) for split in flickr8k.SPLITS)
    report.notes += [
        f"{found['originals equal to a caption']} of {found['originals from Flickr']} original "
        f"sentences are captions of Flickr8k, of {found['images of originals in test']} test "
        "images among others",
        f"{found['triples']} triples of image, captions and sentence, {sizes}; "
        f"{found['clean triples in train']} of the training ones name no image of another split, "
        f"{found['train triples from TEST']} come from SICK's own TEST",
    ]


# Other formats -----------------------------------------------------------------------------------


KARPATHY_SPLITS = {
    "coco": {"train": 82783, "restval": 30504, "val": 5000, "test": 5000},
    "flickr30k": {"train": 29000, "val": 1014, "test": 1000},
}


def _karpathy(report: Report) -> None:
    for name, expected in KARPATHY_SPLITS.items():
        path = report.folder / f"dataset_{name}.json"
        found: Counter[str] = Counter()
        damaged = False
        for item in karpathy.read_images(path):
            if isinstance(item, Problem):
                report.problems.append(item)
                damaged = True
            else:
                found[item.part] += 1
        if found != expected and not damaged:
            report.add(path, None, f"the splits are {dict(found)}, not {expected}")
        report.counts.append(f"{name} {'/'.join(str(found[split]) for split in expected)} images")


def _region_features(report: Report) -> None:
    """Every folder in SCAN's or CORA's layout, here or one below; all values are read."""
    files = {*report.folder.glob("*_caps.txt"), *report.folder.glob("*/*_caps.txt")}
    if not files:
        how = registry.find("region_features").how
        report.add(report.folder, None, "no {train,dev,test}_caps.txt here or one below", how)
    for path in sorted(files):
        split = path.name.removesuffix("_caps.txt")
        if split not in precomputed.FILE_SPLITS:
            report.notes.append(f"{path} is of no split that is known, and was not read")
            continue
        try:
            report.counts.append(precomputed.inspect(path.parent, split))
        except (DataError, OSError) as error:
            report.add_error(error, path)
    for folder in sorted({path.parent for path in files}):
        there = {path.name.removesuffix("_caps.txt") for path in files if path.parent == folder}
        there |= {"test"} if "testall" in there else set()
        for split in sorted({"train", "dev", "test"} - there):
            report.add(folder / f"{split}_caps.txt", None, "is missing", "get this split, too")


PHOTOGRAPHS = {
    "flickr30k": ({"Images": 31783}, "dataset_flickr30k.json"),
    "mscoco": ({"train2014": 82783, "val2014": 40504}, "dataset_coco.json"),
}


def _photographs(report: Report) -> None:
    """Flickr30K's or MS-COCO's: every one decoded, none of Karpathy's missing."""
    folders, listing = PHOTOGRAPHS[report.name]
    names = set()
    for name, expected in folders.items():
        paths = sorted((report.folder / name).glob("*.jpg"))
        if len(paths) != expected:
            report.add(report.folder / name, None, f"{len(paths)} images instead of {expected}")
        _decode_all(report, paths)
        names |= {path.name for path in paths}
        report.counts.append(f"{len(paths)} images in {name}")
    split_file = registry.find("karpathy").folder / listing
    if not split_file.is_file():
        report.notes.append("not compared with Karpathy's split file, which is not here")
        return
    for item in karpathy.read_images(split_file):
        if not isinstance(item, Problem) and item.name not in names:
            report.add(report.folder, None, f"no image {item.name}, which {listing} names")


def _links(report: Report) -> None:
    """The authors' document sets, each in a folder of its own."""
    folders = sorted(path.parent for path in report.folder.glob("*/docs.json"))
    if not folders:
        report.add(report.folder, None, "no */docs.json", registry.find("links").how)
    for folder in folders:
        try:
            corpus = read_corpus(folder)
        except (ValueError, OSError) as error:
            report.add_error(error, folder)
            continue
        sizes = "/".join(str(len(corpus.split(split))) for split in ("train", "val", "test"))
        report.counts.append(f"{folder.name} {sizes} documents")


# Visual entailment and corrected test sets --------------------------------------------------------

SNLI_VE_ROWS = snli_ve.SPLITS


def _snli_ve(report: Report) -> None:
    images: dict[str, set[str]] = {}
    for split, expected in SNLI_VE_ROWS.items():
        path = snli_ve.split_file(split, report.folder)
        found = 0
        images[split] = set()
        for _, fields, problems in snli_ve.rows(path):
            report.problems += problems
            if fields is not None:
                found += 1
                images[split].add(fields["image"])
        _expect_rows(report, path, found, expected)
        report.counts.append(f"{split} {found} pairs of {len(images[split])} images")
    tests = {**_karpathy_names(), **_flickr8k_test()}
    _overlaps(report, images, {"its own dev images": images["dev"]})
    _overlaps(report, images, {"its own test images": images["test"]})
    _overlaps(report, images, tests)


def _overlaps(report: Report, ours: dict[str, set[str]], tests: dict[str, set[str]]) -> None:
    """One note for each split and each other list of images that share photographs."""
    for what, names in tests.items():
        for split, own in ours.items():
            shared = len(snli_ve.shared_photos(own, names))
            if shared and own is not names:
                report.notes.append(f"{split} shows {shared} of the {len(names)} {what}")


def _karpathy_names() -> dict[str, set[str]]:
    """Image names of Karpathy's validation and test split of Flickr30K; empty where absent."""
    path = registry.find("karpathy").folder / "dataset_flickr30k.json"
    found: dict[str, set[str]] = {}
    if path.is_file():
        for item in karpathy.read_images(path):
            if not isinstance(item, Problem) and item.part in ("val", "test"):
                title = f"{item.part} images of Karpathy's flickr30k"
                found.setdefault(title, set()).add(item.name)
    return found


def _flickr8k_test() -> dict[str, set[str]]:
    try:
        names = flickr8k.read_split("test", registry.find("flickr8k").folder)
    except DataError:
        return {}
    return {"test images of Flickr8k": set(names)}


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
