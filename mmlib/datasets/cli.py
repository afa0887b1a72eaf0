"""The `mmlib data` commands: list, get, check, features."""

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path

from mmlib.datasets import registry
from mmlib.datasets.problem import DataError
from mmlib.paths import data_dir

SHOWN = 50
BACKBONES = ("densenet169", "resnet50")  # as in mmlib.vision, whose import takes seconds
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
Command = Callable[[argparse.Namespace], int]


def register(parser: argparse.ArgumentParser) -> None:
    """Add the data sub-commands to `parser`; each sets `run`, a function of the parsed arguments.

    `run(args)` returns the exit status: 0 done or usable, 1 not.
    """
    parser.description = "Data sets are read from the folder named by MMLIB_DATA, else from data/."
    commands = parser.add_subparsers(dest="data_command", required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the data sets, and which of them are present")
    listing.set_defaults(run=run_list)

    get = commands.add_parser("get", help="download and unpack a data set")
    get.add_argument("name", choices=registry.DATA_SETS, metavar="NAME")
    get.set_defaults(run=run_get)

    checking = commands.add_parser("check", help="say whether a data set is complete and readable")
    checking.add_argument("name", choices=registry.DATA_SETS, metavar="NAME")
    checking.add_argument("--folder", type=Path, help="where it lies, if not in the data folder")
    checking.add_argument("--all", action="store_true", help=f"show more than {SHOWN} problems")
    checking.set_defaults(run=run_check)

    features = commands.add_parser("features", help="extract image features with a backbone")
    features.add_argument("name", help="flickr8k, or a folder of images")
    features.add_argument("--backbone", choices=BACKBONES, default="densenet169")
    features.add_argument("--regions", choices=("grid", "global"), default="grid")
    features.add_argument("--weights", help="a state dict, or `random`; default: torchvision's own")
    features.add_argument("--labels", action="store_true", help="write class probabilities too")
    features.add_argument(
        "--out", type=Path, help="the .npy file; default: features/ beside Images"
    )
    features.add_argument("--batch", type=int, default=32)
    features.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    features.add_argument("--seed", type=int, default=0, help="of random weights")
    features.add_argument("--skip-bad", action="store_true", help="leave out undecodable images")
    features.set_defaults(run=run_features)


def _plainly(command: Command) -> Command:
    """Turn what users can mend into one line on stderr and exit status 1."""

    @functools.wraps(command)
    def run(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except KeyboardInterrupt:
            print("\ninterrupted; the same command goes on from here", file=sys.stderr)
            return 130
        except (ValueError, OSError) as error:
            print(f"mmlib data {args.data_command}: {error}", file=sys.stderr)
            return 1

    return run


def run_list(args: argparse.Namespace) -> int:
    """One line a data set: present or not, how to get it, size, papers, terms."""
    print(f"data folder: {data_dir()}\n")
    row = "{:<16} {:<8} {:<8} {:<34} {}"
    print(row.format("name", "present", "get", "papers", "size"))
    for item in registry.DATA_SETS.values():
        present = "yes" if item.present() else "-"
        how = "program" if item.remotes else "by hand"
        print(row.format(item.name, present, how, " ".join(item.papers), item.size))
    print("\nsources, terms and layouts: data/README.md; the picture world needs no data")
    return 0


@_plainly
def run_get(args: argparse.Namespace) -> int:
    """Download one data set, after saying whose it is and on what terms."""
    item = registry.find(args.name)
    if item.present():
        print(f"{item.name}: already in {item.folder}; next: mmlib data check {item.name}")
        return 0
    print(f"{item.name}: {item.feeds}\nsource: {item.source}\nterms: {item.licence}")
    print(f"size: {item.size}" + (f"\n{item.how}" if item.how else ""))
    if not item.remotes:
        print(f"By hand, into {item.folder}; then: mmlib data check {item.name}")
        return 1
    if not all(remote.sha256 for remote in item.remotes):
        print("no published checksum: lengths are verified, and `check` reads the contents")
    for path in registry.get(item):
        print(f"in place: {path}")
    print(f"next: mmlib data check {item.name}")
    return 0


@_plainly
def run_check(args: argparse.Namespace) -> int:
    """Print one line a problem; exit status 0 means usable."""
    from mmlib.datasets.check import check

    report = check(args.name, args.folder)
    shown = report.problems if args.all else report.problems[:SHOWN]
    for problem in shown:
        print(problem)
    if more := len(report.problems) - len(shown):
        print(f"... and {more} more (--all shows them)")
    for note in report.notes:
        print(f"note: {note}")
    counts = ", ".join(report.counts) or "nothing counted"
    verdict = "usable" if report.usable else f"NOT usable, {len(report.problems)} problems"
    print(f"{report.name}: {verdict}, {counts}")
    return 0 if report.usable else 1


@_plainly
def run_features(args: argparse.Namespace) -> int:
    """Extract features of all images of a data set or folder."""
    from mmlib import vision

    folder = _image_folder(args.name)
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    if not paths:
        raise DataError(f"{folder}: no images ({', '.join(IMAGE_SUFFIXES)})")
    name = vision.feature_name(args.backbone, args.regions, args.weights)
    out = args.out or folder.parent / "features" / f"{name}.npy"
    mark = "_random" if args.weights == "random" else ""
    labels = out.parent / f"labels_{args.backbone}{mark}.npy" if args.labels else None
    store = vision.extract(
        [(path.name, path) for path in paths],
        out,
        backbone=args.backbone,
        regions=args.regions,
        weights=args.weights,
        seed=args.seed,
        batch=args.batch,
        device=_device(args.device),
        labels=labels,
        skip_bad=args.skip_bad,
    )
    print(f"{out}: {' x '.join(map(str, store.array.shape))}, weights: {store.meta['weights']}")
    for skipped in store.meta["skipped"]:
        print(f"left out: {skipped}")
    return 0


def _image_folder(name: str) -> Path:
    from mmlib.datasets import flickr8k

    if name == flickr8k.NAME:
        return flickr8k.image_folder(registry.find(name).folder)
    if Path(name).is_dir():
        return Path(name)
    raise DataError(f"{name}: neither flickr8k nor a folder of images")


def _device(name: str) -> str:
    import torch

    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"
