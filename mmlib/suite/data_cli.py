"""The `mmlib data` commands: list, get, check, features."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mmlib.core.errors import DataError
from mmlib.core.files import PICTURES, listed
from mmlib.core.paths import data_dir
from mmlib.data import registry
from mmlib.suite.cli import add_command

if TYPE_CHECKING:
    from mmlib.features.store import FeatureStore

SHOWN = 50
DETECTOR = "fasterrcnn"  # as in features.regions, which brings PyTorch: seconds for a mere `list`
PHOTOGRAPHS = {"flickr30k": "Images", "mscoco": "."}


def register(parser: argparse.ArgumentParser) -> None:
    """Add the data sub-commands to `parser`; each sets `run`, a function of the parsed arguments.

    `run(args)` returns the exit status: 0 done or usable, 1 not.
    """
    parser.description = "Data sets are read from the folder named by MMLIB_DATA, else from data/."
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_command(commands, "data list", run_list)
    add_command(commands, "data get", run_get, registry.DATA_SETS)
    add_command(commands, "data check", run_check, registry.DATA_SETS)
    add_command(commands, "data features", run_features)


def run_list(args: argparse.Namespace) -> int:
    """One line a data set: present or not, how to get it, size, papers, terms."""
    print(f"data folder: {data_dir()}\n")
    row = "{:<16} {:<8} {:<8} {:<34} {}"
    print(row.format("name", "present", "get", "papers", "size"))
    for item in registry.DATA_SETS.values():
        present = "-" if item.missing() else "yes"
        how = "program" if item.remotes else "by hand"
        print(row.format(item.name, present, how, " ".join(item.papers), item.size))
    print("\nsources, terms and layouts: data/README.md; the picture world needs no data")
    return 0


def run_get(args: argparse.Namespace) -> int:
    """Download one data set, after saying whose it is and on what terms."""
    item = registry.find(args.name)
    files = [remote["path"] for remote in item.remotes if not remote.get("archive")]
    if not item.missing() and all(any(item.folder.glob(f"{name}*")) for name in files):
        print(f"{item.name}: already in {item.folder}; next: mmlib data check {item.name}")
        return 0
    print(f"{item.name}: {item.feeds}\nsource: {item.source}\nterms: {item.licence}")
    print(f"cite: {item.citation}\nsize: {item.size}" + (f"\n{item.how}" if item.how else ""))
    if not item.remotes:
        print(f"By hand, into {item.folder}; then: mmlib data check {item.name}")
        return 1
    if not all("sha256" in remote for remote in item.remotes):
        print("no published checksum: lengths are verified, and `check` reads the contents")
    for path in registry.get(item):
        print(f"in place: {path}")
    print(f"next: mmlib data check {item.name}")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Print one line a problem; exit status 0 means usable."""
    from mmlib.suite.check import check

    report = check(args.name, args.folder)
    shown = report.problems if args.all else report.problems[:SHOWN]
    for problem in shown:
        print(problem)
    if hidden := len(report.problems) - len(shown):
        print(f"... and {hidden} more (--all shows them)")
    for note in report.notes:
        print(f"note: {note}")
    counts = ", ".join(report.counts) or "nothing counted"
    many = len(report.problems)
    verdict = "usable" if report.usable else f"NOT usable, {many} problem{'s' * (many != 1)}"
    print(f"{report.name}: {verdict}, {counts}")
    return 0 if report.usable else 1


def run_features(args: argparse.Namespace) -> int:
    """Extract features of all images of a data set or folder."""
    folder, paths = _images(args.name)
    from mmlib.core.device import pick_device
    from mmlib.features import backbones, regions
    from mmlib.features.extraction import Extraction, extract
    from mmlib.features.reduction import refuse_existing

    detect = args.backbone == DETECTOR
    kind: backbones.Regions = args.regions or "grid"
    if detect and (args.regions or args.labels or args.pca):
        raise DataError(f"{DETECTOR} takes neither --regions nor --labels nor --pca")
    if detect:
        name = regions.feature_name(args.weights)
    else:
        name = backbones.feature_name(args.backbone, kind, args.weights)
    extraction = Extraction(
        images=[(path.name, path) for path in paths],
        out=args.out or folder / "features" / f"{name}.npy",
        weights=args.weights,
        seed=args.seed,
        batch=args.batch or (4 if detect else 32),
        device=pick_device(args.device),
        skip_bad=args.skip_bad,
        dtype=args.dtype or ("float32" if detect else "float16"),
    )
    if detect:
        store = regions.extract(extraction, args.side)
    else:
        name = backbones.short_name(args.backbone, args.weights)
        labels = extraction.out.with_name(f"labels_{name}.npy")
        if args.pca:  # said before hours of extraction
            refuse_existing(_reduced_file(extraction.out, args.pca))
        store = extract(extraction, args.backbone, kind, labels if args.labels else None)
    if args.pca:
        store = _reduced(args.name, store, args.pca)
    shape = " x ".join(map(str, store.array.shape))
    print(f"{store.path}: {shape}, weights: {store.meta['weights']}")
    if args.name == "flickr8k" and args.out is None:
        print(f"next: mmlib run --tier flickr8k --features {store.path.stem}")
    for skipped in store.meta["skipped"]:
        print(f"left out: {skipped}")
    return 0


def _reduced(name: str, store: "FeatureStore", count: int) -> "FeatureStore":
    """Principal components of a set that lies beside them, as NAME_pcaN."""
    from mmlib.data import flickr8k
    from mmlib.features.reduction import reduce_features

    ids = list(store.row_of)
    if name == flickr8k.NAME:
        train = set(flickr8k.read_splits(registry.find(name).folder)["train"])
        ids = [one for one in ids if one in train]
    return reduce_features(store, ids, count, _reduced_file(store.path, count))


def _reduced_file(path: Path, count: int) -> Path:
    """Where the principal components of the set `path` lie: NAME_pcaN, or NAME_pcaN_ims."""
    scan = "_ims" if path.stem.endswith("_ims") else ""
    return path.with_name(f"{path.stem.removesuffix(scan)}_pca{count}{scan}.npy")


def _images(name: str) -> tuple[Path, list[Path]]:
    """The folder beside the images that `features/` goes into, and the images."""
    folder = _image_folder(name)
    for pattern, home in (("*", folder.parent), ("*/*", folder)):  # MS-COCO has them one deeper
        paths = [p for p in listed(folder, pattern) if p.suffix.lower() in PICTURES]
        if paths:
            return home, paths
    raise DataError(f"{folder}: no images ({', '.join(PICTURES)})")


def _image_folder(name: str) -> Path:
    from mmlib.data import flickr8k

    if name == flickr8k.NAME:
        return flickr8k.image_folder(registry.find(name).folder)
    if name in PHOTOGRAPHS:
        return registry.find(name).folder / PHOTOGRAPHS[name]
    if Path(name).is_dir():
        return Path(name)
    names = ", ".join((flickr8k.NAME, *PHOTOGRAPHS))
    raise DataError(f"{name}: neither {names} nor a folder of images")
