"""Run notebooks that replicate papers, report on the run, make a course of them, get their data."""

import ast
import io
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from typer import Argument, Option
from typer.exceptions import TyperException

from mmlib import __version__
from mmlib.core.errors import DataError
from mmlib.core.paths import choose, data_dir, writable, write_atomic

# Commands import what they need when they run: PyTorch alone takes seconds.
app = typer.Typer(help=__doc__, add_completion=False, rich_markup_mode=None)
data = typer.Typer(
    help="List, get, check data sets; extract features. They lie in MMLIB_DATA, else in data/.",
    rich_markup_mode=None,
)
course = typer.Typer(help="Make a course: its versions, its marks.", rich_markup_mode=None)
app.add_typer(data, name="data")
app.add_typer(course, name="course")


def out_option(text: str, folder: bool = False) -> Any:
    """The option of a file or folder that is written, which must be possible before the work."""
    return Option(help=text, callback=lambda path: path and writable(path, folder))


Numbers = Annotated[list[str] | None, Argument(metavar="NUMBER", help="01 04 ...; default: all")]
Number = Annotated[str, Argument(callback=lambda text: text.zfill(2), help="of a notebook: 04")]
Tier = Literal["world", "flickr8k", "paper"]
RecordTier = Literal["world", "flickr8k", "paper", "controlled"]
Count = Annotated[int, Option(min=1)]
Out = Annotated[Path | None, out_option("where the results go", folder=True)]
Seed = Annotated[int, Option(min=0, max=2**31 - 1)]  # evidence keeps them in 32 bits
Features = Annotated[str, Option(help="feature set of photographs; default: the recorded one")]
Evidence = Annotated[Path | None, Option(file_okay=False, help="default: evidence/")]
OwnData = Annotated[Path | None, Option(exists=True, file_okay=False, help="03, tier paper: yours")]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1")]
Cluster = Annotated[str, Option(metavar="ADDRESS", help="of a Dask scheduler")]
OwnNumbers = Annotated[int | None, Option("--seed", min=0, help="draws one exercise a notebook")]
Notebooks = Annotated[Path | None, Option(file_okay=False, help="folder of the notebooks")]
DataSet = Annotated[str, Argument(help="of `mmlib data list`")]
TIERS: Sequence[str] = get_args(RecordTier)
SHOWN = 50  # problems of a data set
FOLDERS = {"flickr30k": "Images", "mscoco": "."}  # of photographs; of flickr8k its reader says


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 1 something failed, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale such as C has no ± and no umlauts
            stream.reconfigure(errors="backslashreplace")
    words = each_named(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if words == ["--version"]:
        print(f"mmlib {__version__}")
        return 0
    name = " ".join(["mmlib", *words[: 1 + (words[0] == "data")]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that kernels shut down
    try:
        status = typer.main.get_command(app).main(words, "mmlib", standalone_mode=False) or 0
    except TyperException as error:
        print(f"{name}: {error.format_message()}", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:  # what users can mend, in one line
        print(f"{name}: {error}", file=sys.stderr)
        return 1 if words[0] == "data" else 2
    if status == 130:  # typer's after Ctrl-C
        goes_on = words[0] in ("data", "record", "course", "search")
        again = "; the same command goes on from here" if goes_on else ""
        print(f"\ninterrupted{again}", file=sys.stderr)
    return status


def each_named(arguments: Sequence[str]) -> list[str]:
    """The words of a command; of several names after --datasets, --systems each gets the option."""
    words, option = list[str](), ""
    for word in arguments:
        option = word if word.startswith("-") else option
        if option in ("--datasets", "--systems") and option not in (word, *words[-1:]):
            words.append(option)
        words.append(word)
    return words


@app.command()
def run(
    numbers: Numbers = None,
    tier: Tier = "world",
    seeds: Annotated[int | None, Option(min=1, max=10_000, help="of 00's or computed ones")] = None,
    device: Annotated[str | None, Option(help="auto, cpu, cuda, cuda:1")] = None,
    out: Annotated[Path | None, out_option("default: runs/TIER, with a link to it", True)] = None,
    features: Features = "",
    evidence: Evidence = None,
    dataset: OwnData = None,
    settings: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE")] = None,
    jobs: Count = 1,
    timeout: Annotated[int | None, Option(min=1, help="seconds of a notebook")] = None,
    notebooks: Notebooks = None,
    cluster: Cluster = "",
) -> int:
    """Execute notebooks and check their figures.

    --set: any other parameter, a Python literal, else text. --jobs: how many run at a time.
    """
    from mmlib.suite.parameters import EVIDENCE, evidence_folder

    parameters = parameters_of(settings or (), tier=tier, seeds=seeds, device=device)
    if (named := parameters.get("evidence", evidence or EVIDENCE[0])) not in EVIDENCE:
        evidence = evidence_folder(str(named))  # which is no parameter
        parameters.pop("evidence", None)
    _choose(tier, features, evidence, dataset)
    from mmlib.suite import outcomes, runner

    paths = runner.select(notebooks, numbers)
    if isinstance(wanted := parameters.get("device"), str) and not cluster:
        from mmlib.core.device import pick_device

        pick_device(wanted)
    results = out or paths[0].parents[1] / "runs" / tier
    limit = timeout or runner.TIME_LIMITS[tier]
    reports = runner.run_notebooks(paths, results, parameters, limit, cluster, jobs)
    if out is None:
        runner.link_latest(results)
    print(outcomes.summary_text(reports))
    return int(not all(report.ok for report in reports))


def parameters_of(settings: Sequence[str], **options: Any) -> dict[str, Any]:
    """The parameters that options and --set ask for; what is not asked for keeps its default."""
    parameters = {name: value for name, value in options.items() if value is not None}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--set {setting}: write NAME=VALUE")
        if name in parameters or name in ("out", "features"):
            raise ValueError(f"--set {name}: use --{name}, once")
        try:
            parameters[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            parameters[name] = text
    return parameters


def _choose(
    tier: str, features: str, evidence: Path | None = None, dataset: Path | None = None
) -> None:
    """Let the command use the features, the evidence and the data set that it names."""
    if features and tier not in ("flickr8k", "paper"):
        raise ValueError(f"--features: the tier {tier} has features of its own")
    if dataset and tier != "paper":
        raise ValueError("--dataset: a data set of your own is of the tier paper")
    choose(features, evidence or "", dataset or "")
    if features and tier == "flickr8k":
        from mmlib.features import sets

        sets.opened(data_dir() / "flickr8k" / "features", features)


@app.command()
def report(folder: Annotated[Path, Argument(metavar="RUN")], out: Out = None) -> None:
    """Write a finished run, as runs/latest, as a web site into its folder report, or --out."""
    from mmlib.suite import report

    print(report.write(folder, out))


@app.command()
def record(
    number: Number,
    tier: RecordTier = "world",
    evidence: Evidence = None,
    features: Features = "",
    dataset: OwnData = None,
    seeds: Annotated[int, Option(min=1, max=10_000, help="0 to N-1")] = 20,
    datasets: Annotated[list[str] | None, Option(metavar="NAME ...", help="only these")] = None,
    systems: Annotated[list[str] | None, Option(metavar="NAME,NAME", help="only these")] = None,
    device: Device = "cpu",
    workers: Annotated[int, Option(min=0, max=1024, help="processes; 0: one a core or GPU")] = 0,
    cluster: Cluster = "",
    replace: Annotated[bool, Option("--replace", help="what is of other code or data")] = False,
    precision: Annotated[Literal["float32", "bf16"], Option(help="bf16: mixed")] = "float32",
    keep_weights: Annotated[Path | None, out_option("folder of all weights", True)] = None,
    log: Annotated[Path | None, out_option("folder of TensorBoard's curves", True)] = None,
) -> None:
    """Make a paper's evidence, for hours if it must."""
    _choose(tier, features, evidence, dataset)
    if workers and cluster:
        raise ValueError("--workers: a cluster has workers of its own")
    if log and not find_spec("tensorboard"):
        raise ValueError("--log: TensorBoard is not installed (pip install tensorboard)")
    from mmlib.core.device import pick_device
    from mmlib.core.engine import Resources
    from mmlib.suite import record
    from mmlib.suite.training import How

    resources = Resources(device if cluster else pick_device(device), workers, cluster)
    recorded = record.record(
        number, tier, range(seeds), resources=resources, replace=replace, folder=evidence,
        datasets=datasets or (), systems=systems or (),
        how=How(precision, keep_weights and keep_weights.absolute(), log and log.absolute()),
    )  # fmt: skip
    print(f"{len(recorded.seeds)} seeds, {recorded.header['cpu_seconds'] / 3600:.1f} CPU hours")


@app.command()
def judge(
    number: Number,
    tier: RecordTier = "world",
    evidence: Evidence = None,
    features: Features = "",
    out: Out = None,
) -> None:
    """Write tables, figures and verdicts of evidence into runs/judge/TIER/NUMBER, or --out."""
    _choose(tier, features, evidence)
    from mmlib.suite import record

    folder = out or Path("runs") / "judge" / tier / number
    print(record.write_judgement(number, tier, folder, evidence))


@app.command()
def compare(
    number: Number,
    similarity: Annotated[Path | None, Argument(metavar="FILE")] = None,
    tier: RecordTier = "world",
    dataset: Annotated[str, Option(help="the collection; default: the tier's own")] = "",
    name: Annotated[str, Option(help="what it is called in tables")] = "yours",
    items: Annotated[Path | None, out_option("only write which rows and columns there are")] = None,
    swaps: Annotated[bool, Option("--swaps", help="photographs: who has what instead")] = False,
    evidence: Evidence = None,
    out: Out = None,
) -> None:
    """Put your own retriever beside the recorded systems.

    FILE: .npy (test images × captions), or a model as of search.
    """
    from mmlib.suite import compare

    if items:
        lines = compare.write_items(number, tier, dataset, items)
        print(f"{lines} captions, in the order of rows and columns: {items}")
        return
    if similarity is None:
        raise ValueError("name a .npy file, or a model as of search")
    if swaps:
        tables = {"swaps": compare.swaps(number, similarity, tier, name=name, folder=evidence)}
        print(tables["swaps"].to_string())
    else:
        scores = compare.scores_of(number, similarity, tier, dataset)
        found = compare.compare(number, scores, tier, dataset, name=name, folder=evidence)
        tables = found.tables
        print(found)
    if out:
        for table in tables:
            write_atomic(out / f"{table}.csv", tables[table].to_csv)
        print(f"\nwritten to {out}")


@app.command()
def search(
    folder: Path,
    text: str,
    model: str = "small",
    k: Annotated[int, Option("-k", min=1, help="how many pictures")] = 9,
    out: Annotated[Path | None, out_option("a contact sheet, .html")] = None,
    index: Annotated[Path | None, out_option("folder of the index (default: FOLDER)", True)] = None,
    device: Device = "cpu",
) -> None:
    """Find the pictures of a folder that fit a text.

    --model: the folder of a CLIP as transformers writes it, a .py file with encode_images and
    encode_texts, or weights of 02's ALBEF-like systems of the tier world, as record --keep-weights
    leaves them; small has seen the picture world alone.

    Pictures, also in folders below, are encoded once and kept in an index, a hidden file of the
    folder; later only new and changed ones are. Interrupted, the same command goes on.
    """
    from mmlib.core.device import pick_device
    from mmlib.suite import encoders, search

    if out and (out.suffix != ".html" or out.resolve().is_relative_to(folder.resolve())):
        raise ValueError(f"--out {out}: name an .html file outside of the folder that is searched")
    if not text.strip():
        raise ValueError("there is no text to search for")
    encoder = encoders.read(model, pick_device(device))
    print(encoder.card, file=sys.stderr)  # what it has seen
    images = search.folder(folder, encoder, index)
    print(f"{len(images.files)} pictures, {images.encoded} of them encoded now", file=sys.stderr)
    matches = images.find(text, k)
    print(matches)
    if out:
        matches.save(out)
        print(f"written to {out}")


@course.command("student", help="Copy the notebooks for students.")
@course.command("answers", help="Copy the notebooks with the worked answers in the blanks.")
@course.command("export", help="Copy the notebooks as assignments of nbgrader.")
def copy_notebooks(
    context: typer.Context,
    out: Annotated[Path, Argument(help="a new folder, or an earlier call's")],
    numbers: Numbers = None,
    pack: Annotated[bool, Option("--pack", help="student: with the package, to run alone")] = False,
    seed: OwnNumbers = None,
    notebooks: Notebooks = None,
) -> None:
    """Copy notebooks for a course; the command's name says how."""
    from mmlib.suite.course import versions
    from mmlib.suite.runner import select

    name = context.info_name
    if pack and name != "student":
        raise ValueError("--pack is for course student")
    version: Any = "nbgrader" if name == "export" else name
    written, others = versions.write(version, out, select(notebooks, numbers), pack, seed)
    for path in written:
        print(path)
    for path in others:
        print(f"{path} stays as it is, another version: delete it to get this one")


@course.command()
def grade(
    handins: Annotated[Path, Argument(help="a notebook, or a folder of them")],
    out: Annotated[Path, out_option("CSV, a row an exercise; totals beside it")],
    jobs: Count = 1,
    timeout: Annotated[float, Option(help="seconds of an answer")] = 60.0,
    memory: Annotated[float, Option(max=1e6, help="GiB of an answer")] = 2.0,
    seed: OwnNumbers = None,
    notebooks: Notebooks = None,
) -> None:
    """Grade what students handed in.

    Runs only the cells of exercises, after the rest of the notebook here, and compares what they
    give with the checks of the notebooks here. The same command goes on where it was interrupted.
    """
    from mmlib.suite.course import grading
    from mmlib.suite.runner import select

    totals = grading.grade(handins, select(notebooks), out, jobs, timeout, memory * 2**30, seed)
    print(f"{out}: {', '.join(f'{totals[name].sum()} {name}' for name in grading.RESULTS)}")
    for student, note in totals[["student", "note"]].to_numpy():
        if note:
            print(f"{student}: {note}", file=sys.stderr)


@course.command()
def mistakes(numbers: Numbers = None, notebooks: Notebooks = None) -> None:
    """List exercises, and the mistakes that their checks know."""
    from mmlib.suite.course import grading
    from mmlib.suite.runner import select

    for path in select(notebooks, numbers):
        print(grading.mistakes(path))


@data.command("list")
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


@data.command()
def get(name: DataSet) -> int:
    """Download and unpack a data set, after saying whose it is and on what terms."""
    from mmlib.data import registry

    item = registry.find(name)
    files = [remote["path"] for remote in item.remotes if not remote.get("archive")]
    if not item.missing() and all(any(item.folder.glob(f"{path}*")) for path in files):
        print(f"{name}: already in {item.folder} (if damaged, move it away first)")
        print(f"next: mmlib data check {name}")
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


@data.command()
def check(
    name: DataSet,
    folder: Annotated[Path | None, Option(help="where it lies, if not in the data folder")] = None,
    every: Annotated[bool, Option("--all", help="show more than 50 problems")] = False,
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


@data.command()
def features(
    name: Annotated[str, Argument(help="flickr8k, flickr30k, mscoco, or a folder of images")],
    backbone: str = "densenet169",
    regions: Literal["grid", "global"] | None = None,
    weights: Annotated[str | None, Option(help="a state dict (hf: a folder), or `random`")] = None,
    labels: Annotated[bool, Option("--labels", help="write class probabilities too")] = False,
    pca: Annotated[int | None, Option(min=1, help="as many principal components too")] = None,
    out: Annotated[Path | None, out_option(".npy, of SCAN's layout NAME_ims.npy")] = None,
    dtype: Literal["float16", "float32"] | None = None,
    batch: Annotated[int | None, Option(min=1, help="default: 32 (fasterrcnn: 4)")] = None,
    side: Annotated[int, Option(min=1, help="shorter side of what fasterrcnn sees")] = 800,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1 or mps")] = "auto",
    seed: Seed = 0,
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
    from mmlib.features.extraction import extract
    from mmlib.features.reduction import reduce_features, refuse_existing

    detect = backbone == backbones.DETECTOR
    if detect and (regions or labels or pca):
        raise DataError(f"{backbone} takes neither --regions nor --labels nor --pca")
    kind = regions or "grid"
    stem = backbones.feature_name(backbone, kind, weights)
    path = out or home / "features" / f"{stem}.npy"
    scan = "_ims" if path.stem.endswith("_ims") else ""
    reduced = path.with_name(f"{path.stem.removesuffix(scan)}_pca{pca}{scan}.npy")
    if pca:  # said before hours of extraction
        refuse_existing(reduced)
    scores = path.with_name(f"labels_{backbones.short_name(backbone, weights)}.npy")
    store = extract(
        [(picture.name, picture) for picture in images], path, backbone,
        regions=kind, labels=scores if labels else None, weights=weights, seed=seed,
        batch=batch or (4 if detect else 32), device=pick_device(device), skip_bad=skip_bad,
        dtype=dtype or ("float32" if detect else "float16"), side=side,
    )  # fmt: skip
    if pca:
        ids = list(store.row_of)
        if name == flickr8k.NAME:
            train = set(flickr8k.read_splits(home)["train"])
            ids = [image for image in ids if image in train]
        store = reduce_features(store, ids, pca, reduced)
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
        names = ", ".join(("flickr8k", *FOLDERS))
        raise DataError(f"{name}: neither {names} nor a folder of images")
    for pattern, home in (("*", folder.parent), ("*/*", folder)):  # MS-COCO has them one deeper
        if paths := [p for p in listed(folder, pattern) if p.suffix.lower() in PICTURES]:
            return home, paths
    raise DataError(f"{folder}: no images ({', '.join(PICTURES)})")


if __name__ == "__main__":
    sys.exit(main())
