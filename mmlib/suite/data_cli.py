"""The `mmlib data` commands: list, get, check, features."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir

SHOWN = 50
FOLDERS = {"flickr30k": "Images", "mscoco": "."}  # of photographs; of flickr8k its reader says

app = typer.Typer(
    help="List, get, check data sets; extract features. They lie in MMLIB_DATA, else in data/.",
    rich_markup_mode=None,
)


def _known(name: str) -> str:
    from mmlib.data.registry import DATA_SETS

    if name not in DATA_SETS:
        raise typer.BadParameter(f"no data set {name!r} (choose from {', '.join(DATA_SETS)})")
    return name


Name = Annotated[str, Argument(callback=_known, help="of `mmlib data list`")]


@app.command("list")
def print_list() -> None:
    """Print one line a data set: present or not, how to get it, size, papers."""
    from mmlib.data.registry import DATA_SETS

    print(f"data folder: {data_dir()}\n")
    row = "{:<16} {:<8} {:<8} {:<34} {}"
    print(row.format("name", "present", "get", "papers", "size"))
    for item in DATA_SETS.values():
        present = "-" if item.missing() else "yes"
        how = "program" if item.remotes else "by hand"
        print(row.format(item.name, present, how, " ".join(item.papers), item.size))
    print("\nsources, terms and layouts: data/README.md; the picture world needs no data")


@app.command()
def get(name: Name) -> int:
    """Download and unpack a data set, after saying whose it is and on what terms."""
    from mmlib.data import registry

    item = registry.find(name)
    files = [remote["path"] for remote in item.remotes if not remote.get("archive")]
    if not item.missing() and all(any(item.folder.glob(f"{path}*")) for path in files):
        print(f"{name}: already in {item.folder}; next: mmlib data check {name}")
        return 0
    print(f"{name}: {item.feeds}\nsource: {item.source}\nterms: {item.licence}")
    print(f"cite: {item.citation}\nsize: {item.size}" + (f"\n{item.how}" if item.how else ""))
    if not item.remotes:
        print(f"By hand, into {item.folder}; then: mmlib data check {name}")
        return 1
    if not all("sha256" in remote for remote in item.remotes):
        print("no published checksum: lengths are verified, and `check` reads the contents")
    for path in registry.get(item):
        print(f"in place: {path}")
    print(f"next: mmlib data check {name}")
    return 0


@app.command()
def check(
    name: Name,
    folder: Annotated[Path | None, Option(help="where it lies, if not in the data folder")] = None,
    every: Annotated[bool, Option("--all", help=f"show more than {SHOWN} problems")] = False,
) -> int:
    """Say whether a data set is complete and readable, a line a problem."""
    from mmlib.suite.check import check

    report = check(name, folder)
    many = len(report.problems)
    for problem in report.problems[: many if every else SHOWN]:
        print(problem)
    if many > SHOWN and not every:
        print(f"... and {many - SHOWN} more (--all shows them)")
    for note in report.notes:
        print(f"note: {note}")
    verdict = f"NOT usable, {many} problem{'s' * (many != 1)}" if many else "usable"
    print(f"{name}: {verdict}, {', '.join(report.counts) or 'nothing counted'}")
    return int(many > 0)


@app.command()
def features(
    name: Annotated[str, Argument(help="flickr8k, flickr30k, mscoco, or a folder of images")],
    backbone: str = "densenet169",
    regions: Literal["grid", "global"] | None = None,
    weights: Annotated[str | None, Option(help="a state dict (hf: a folder), or `random`")] = None,
    labels: Annotated[bool, Option("--labels", help="write class probabilities too")] = False,
    pca: Annotated[int | None, Option(min=1, help="as many principal components too")] = None,
    out: Annotated[Path | None, Option(help=".npy, of SCAN's layout NAME_ims.npy")] = None,
    dtype: Literal["float16", "float32"] | None = None,
    batch: Annotated[int | None, Option(min=1, help="default: 32 (fasterrcnn: 4)")] = None,
    side: Annotated[int, Option(min=1, help="shorter side of what fasterrcnn sees")] = 800,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1 or mps")] = "auto",
    seed: Annotated[int, Option(help="of random weights")] = 0,
    skip_bad: Annotated[bool, Option("--skip-bad", help="leave out undecodable images")] = False,
) -> None:
    """Extract features of all images of a data set or folder with a backbone.

    --backbone: densenet169, resnet50, mobilenetv1, fasterrcnn, or LIBRARY:MODEL of
    timm or hf (Hugging Face), such as timm:mobilenetv1_100. --regions: a 4 x 4 grid (default) or
    one vector; fasterrcnn finds 36 regions of its own. --dtype: by default float16 of a grid,
    float32 of fasterrcnn.

    Principal components are fitted on flickr8k's training images, else on all.
    """
    home, images = pictures_of(name)
    from mmlib.core.device import pick_device
    from mmlib.data import flickr8k
    from mmlib.features import backbones
    from mmlib.features import regions as detector
    from mmlib.features.extraction import Extraction, extract
    from mmlib.features.reduction import reduce_features, refuse_existing

    detect = backbone == detector.NAME
    if detect and (regions or labels or pca):
        raise DataError(f"{backbone} takes neither --regions nor --labels nor --pca")
    kind = regions or "grid"
    if detect:
        stem = detector.feature_name(weights)
    else:
        stem = backbones.feature_name(backbone, kind, weights)
    extraction = Extraction(
        images=[(path.name, path) for path in images],
        out=out or home / "features" / f"{stem}.npy",
        weights=weights,
        seed=seed,
        batch=batch or (4 if detect else 32),
        device=pick_device(device),
        skip_bad=skip_bad,
        dtype=dtype or ("float32" if detect else "float16"),
    )
    scan = "_ims" if extraction.out.stem.endswith("_ims") else ""
    reduced = f"{extraction.out.stem.removesuffix(scan)}_pca{pca}{scan}.npy"
    if pca:  # said before hours of extraction
        refuse_existing(extraction.out.with_name(reduced))
    if detect:
        store = detector.extract(extraction, side)
    else:
        scores = extraction.out.with_name(f"labels_{backbones.short_name(backbone, weights)}.npy")
        store = extract(extraction, backbone, kind, scores if labels else None)
    if pca:
        ids = list(store.row_of)
        if name == flickr8k.NAME:
            train = set(flickr8k.read_splits(home)["train"])
            ids = [image for image in ids if image in train]
        store = reduce_features(store, ids, pca, store.path.with_name(reduced))
    shape = " x ".join(map(str, store.array.shape))
    print(f"{store.path}: {shape}, weights: {store.meta['weights']}")
    if name == flickr8k.NAME and out is None:
        print(f"next: mmlib run --tier flickr8k --features {store.path.stem}")
    for skipped in store.meta["skipped"]:
        print(f"left out: {skipped}")


def pictures_of(name: str) -> tuple[Path, list[Path]]:
    """The folder that gets `features/`, and the pictures of a data set or of a folder."""
    from mmlib.core.files import PICTURES, listed

    if name == "flickr8k":
        from mmlib.data import flickr8k

        folder = flickr8k.find("images", data_dir() / name)
    elif name in FOLDERS:
        folder = data_dir() / name / FOLDERS[name]
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        known = ", ".join(("flickr8k", *FOLDERS))
        raise DataError(f"{name}: neither {known} nor a folder of images")
    for pattern, home in (("*", folder.parent), ("*/*", folder)):  # MS-COCO has them one deeper
        if paths := [p for p in listed(folder, pattern) if p.suffix.lower() in PICTURES]:
            return home, paths
    raise DataError(f"{folder}: no images ({', '.join(PICTURES)})")
