"""Is a data set complete and readable? One line a problem, each with its mend.

Every row is read by the data set's own reader in `mmlib.data`, whose errors these lines are; here
the rows are counted and the files compared with one another. Defects of a published data set are
notes, not problems.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import listed
from mmlib.core.paths import data_dir, table_beside
from mmlib.data import cite, clue, flickr8k, karpathy, precomputed, registry, sick, snli_ve
from mmlib.data.pairs import unreadable
from mmlib.features import sets
from mmlib.features.store import open_features
from mmlib.papers.cora.data import read_splits
from mmlib.papers.links.data.paper import read_corpus

KARPATHY_SPLITS, PHOTOGRAPHS = table_beside(__file__).values()
TABLES = {"clue": clue, "cite": cite, "sick": sick, "snli_ve": snli_ve}


@dataclass
class Report:
    """The result of a check.

    problems: empty when the data set is usable. notes: optional files, and what was left out.
    counts: what was counted, in one line.
    """

    name: str
    folder: Path
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)

    def add(self, path: Path, problem: str, mend: str = "") -> None:
        """Add a problem; without a mend, the mend is to get the data set again."""
        get = f"`mmlib data get {self.name}`"
        for remote in registry.find(self.name).remotes:  # `get` keeps what is in place
            target = self.folder / remote["path"]
            if not mend and target.exists() and path.is_relative_to(target):
                mend = f"move {target} away, then {get}"
        self.problems.append(Problem(path, None, problem, mend or f"get it again: {get}"))

    @contextmanager
    def refusals(self, path: Path) -> Iterator[None]:
        """Turn the error of a reader into a problem; one that names no file gets `path`."""
        try:
            yield
        except (ValueError, OSError) as error:
            problem = error.problem if isinstance(error, DataError) else None
            text = str(error).removeprefix(f"{path}: ").removeprefix(f"{path}, ")
            problem = problem or Problem(path, None, text, "")
            if problem not in self.problems:
                self.problems.append(problem)

    def expect(self, path: Path, count: int, expected: int, counted: str) -> None:
        """Add a problem where another number of something was counted than expected."""
        if count != expected:
            self.add(path, f"{count} {counted} instead of {expected}")

    def decode(self, folder: Path, expected: int) -> set[str]:
        """The names of the photographs in a folder; every byte of every one is read."""
        paths = {path.name: path for path in listed(folder, "*.jpg")}
        self.expect(folder, len(paths), expected, "images")
        for name, reason in unreadable(paths).items():
            self.add(paths[name], f"cannot be decoded: {reason}", "get this image again")
        return set(paths)


def check(name: str, folder: Path | None = None) -> Report:
    """Check one data set, by default in its place in the data folder.

    Every image is decoded, every line read. Raises DataError for an unknown name.
    """
    item = registry.find(name)
    report = Report(name, item.folder if folder is None else folder)
    how = f"`mmlib data get {name}`" if item.remotes else item.how
    roots = [report.folder]
    if name == "region_features" and folder is None:  # 02 and 03 read them beside it, too
        roots += [data_dir() / "f30k", data_dir() / "coco"]
    checks = {"flickr8k": _flickr8k, "karpathy": _karpathy, **dict.fromkeys(TABLES, _tables)}
    checks |= dict.fromkeys(PHOTOGRAPHS, _photographs)
    if not any(root.is_dir() for root in roots):
        report.add(report.folder, "no such folder", f"{how}; or set MMLIB_DATA")
    elif name in checks:
        checks[name](report)
    elif name == "region_features":
        _region_features(report, roots)
    elif name == "links":
        for corpus_folder in [path.parent for path in listed(report.folder, "*/docs.json")]:
            with report.refusals(corpus_folder):
                corpus = read_corpus(corpus_folder)
                sizes = "/".join(str(len(corpus.split(one))) for one in ("train", "val", "test"))
                report.counts.append(f"{corpus_folder.name} {sizes} documents")
        if not report.counts and not report.problems:
            report.add(report.folder, "no */docs.json", how)
    else:
        for patterns in item.missing(report.folder):
            report.add(report.folder, f"nothing named {patterns}", how)
        report.counts.append("files present; their contents are not checked")
    return report


def _flickr8k(report: Report) -> None:
    folder, features = report.folder, report.folder / "features"
    images: set[str] = set()
    with report.refusals(folder):
        images = report.decode(flickr8k.find("images", folder), flickr8k.IMAGES)
        report.counts.append(f"{len(images)} images")
    with report.refusals(folder):
        captions, path = flickr8k.read_captions(folder), flickr8k.find("captions", folder)
        report.counts.append(f"{sum(map(len, captions.values()))} captions")
        for name in sorted(captions.keys() - images if images else ()):
            report.add(path, f"captions of {name}, an image that is not there")
        for name in sorted(images - captions.keys()):
            report.add(path, f"no caption of {name}")
    with report.refusals(folder):
        splits = flickr8k.read_splits(folder)
        report.counts.append("splits " + "/".join(str(len(names)) for names in splits.values()))
        for split, names in splits.items():
            path = flickr8k.find(split, folder)
            report.expect(path, len(names), flickr8k.SPLITS[split], "images")
    if not (stems := sets.names(features)):
        report.notes.append(f"no features yet: `mmlib data features {report.name}`")
    for stem in stems or (None,):  # None: images and captions alone
        for split in flickr8k.SPLITS:
            with report.refusals(features / f"{stem}.npy"):
                flickr8k.load(split, folder, stem)
        if stem:
            with report.refusals(features):
                shape = open_features(features / f"{stem}.npy").array.shape
                report.counts.append(f"{stem} {' x '.join(map(str, shape))}")
    with report.refusals(features):
        if stems:
            used = sets.choose(features, default=flickr8k.SHARED_FEATURES)
            report.notes.append(f"the notebooks read the feature set {used.stem}")
    with suppress(DataError):
        frame, damaged = flickr8k.read_judgments(folder)
        report.notes.append(f"{len(frame)} crowd judgments, {damaged} damaged lines skipped")


def _tables(report: Report) -> None:
    """Every row of each file of a data set whose reader has `rows`."""
    folder = report.folder
    files = {
        "clue": [(clue.split_file(s, folder), n, f"{s} captions") for s, n in clue.SPLITS.items()],
        "cite": [(folder / "data.csv", cite.ROWS, "recipe steps")],
        "sick": [(folder / "SICK.txt", sum(sick.SETS.values()), "sentence pairs")],
        "snli_ve": [
            (snli_ve.split_file(s, folder), n, f"{s} pairs") for s, n in snli_ve.SPLITS.items()
        ],
    }[report.name]
    for path, expected, counted in files:
        items = list(TABLES[report.name].rows(path))
        problems = [item for item in items if isinstance(item, Problem)]
        report.problems += problems
        sound = len(items) - len(problems)
        if sound or not problems:  # else the reader has said why there are none
            report.expect(path, sound, expected, "sound rows")
        if sound:
            report.counts.append(f"{sound} {counted}")
    if report.name == "cite" and listed(folder, "**/q2-8_*.csv"):  # CITE++, beside it
        for split, expected in cite.PLUS.items():
            with report.refusals(folder):
                count, counted = len(cite.load_plus(split, folder)), f"{split} pairs of CITE++"
                report.expect(folder, count, expected, counted)
                report.counts.append(f"{count} {counted}")
    if report.name == "clue" and (folder / "img2idxmap.json").is_file():
        with report.refusals(folder / "img2idxmap.json"):
            clue.image_numbers(folder)
    elif report.name in ("clue", "cite"):
        report.notes.append("the images are not part of this data set")


def _karpathy(report: Report) -> None:
    for name, expected in KARPATHY_SPLITS.items():
        path = report.folder / f"dataset_{name}.json"
        items = list(karpathy.read_images(path))
        problems = [item for item in items if isinstance(item, Problem)]
        sizes = Counter(item.split for item in items if not isinstance(item, Problem))
        report.problems += problems
        if sizes != expected and not problems:
            report.add(path, f"the splits are {dict(sizes)}, not {expected}")
        if sizes:
            counted = "/".join(str(sizes[split]) for split in expected)
            report.counts.append(f"{name} {counted} images")


def _photographs(report: Report) -> None:
    """Flickr30K's or MS-COCO's: every one decoded, none of Karpathy's missing."""
    folders, listing = PHOTOGRAPHS[report.name]
    names: set[str] = set()
    for name, expected in folders.items():
        images = report.decode(report.folder / name, expected)
        report.counts.append(f"{len(images)} images in {name}")
        names |= images
    split_file = registry.find("karpathy").folder / listing
    if not split_file.is_file():
        report.notes.append("not compared with Karpathy's split file, which is not here")
        return
    for item in karpathy.read_images(split_file):
        if not isinstance(item, Problem) and item.name not in names:
            report.add(report.folder, f"no image {item.name}, which {listing} names")


def _region_features(report: Report, roots: list[Path]) -> None:
    """Every folder in a layout of `precomputed`, here or one below; all values are read."""
    splits_of: dict[Path, list[str]] = {}
    for pattern in ("*_caps.txt", "dataset_*.json"):
        paths = [p for root in roots for depth in ("", "*/") for p in listed(root, depth + pattern)]
        for path in sorted(paths):
            split = path.name.removesuffix("_caps.txt")
            if split in precomputed.FILE_SPLITS:
                splits_of.setdefault(path.parent, []).append(split)
            elif path.suffix == ".json":
                splits_of.setdefault(path.parent, ["train", "val", "test"])
    if not splits_of:
        problem = "no {train,dev,test}_caps.txt and no dataset_*.json here or one below"
        report.add(report.folder, problem, registry.find(report.name).how)
    for folder, splits in splits_of.items():
        for split in splits:
            with report.refusals(folder):
                report.counts.append(precomputed.inspect(folder, split))
        written = {precomputed.FILE_SPLITS[split].removesuffix("all") for split in splits}
        for split in sorted({"train", "dev", "test"} - written):
            report.add(folder / f"{split}_caps.txt", "is missing", "get this split, too")
        if not report.problems:
            with report.refusals(folder):
                read_splits(folder)
