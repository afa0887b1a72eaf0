"""Run notebooks that replicate papers, report on the run, make a course of them, get their data."""

import ast
import io
import signal
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from typer import Argument, Option
from typer.exceptions import TyperException

from mmlib import __version__
from mmlib.core.paths import choose, write_atomic
from mmlib.suite import data_cli

# Commands import what they need when they run: PyTorch alone takes seconds.
app = typer.Typer(help=__doc__, add_completion=False, rich_markup_mode=None)
course = typer.Typer(help="Make a course: its versions, its marks.", rich_markup_mode=None)
app.add_typer(data_cli.app, name="data")
app.add_typer(course, name="course")

Numbers = Annotated[list[str] | None, Argument(metavar="NUMBER", help="01 04 ...; default: all")]
Number = Annotated[str, Argument(callback=lambda text: text.zfill(2), help="of a notebook: 04")]
Tier = Literal["world", "flickr8k", "paper"]
RecordTier = Literal["world", "flickr8k", "paper", "controlled"]
Count = Annotated[int, Option(min=1)]
Out = Annotated[Path | None, Option(help="where the results go")]
Features = Annotated[str, Option(help="feature set of photographs; default: the recorded one")]
Evidence = Annotated[Path | None, Option(help="default: evidence/")]
OwnData = Annotated[Path | None, Option(help="03, tier paper: a folder of your own")]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1")]
Cluster = Annotated[str, Option(metavar="ADDRESS", help="of a Dask scheduler")]
Weights = Annotated[str | None, Option(help="of a kept model's network, if not torchvision's")]
Notebooks = Annotated[Path | None, Option(help="folder of the notebooks")]
TIERS: Sequence[str] = get_args(RecordTier)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 1 something failed, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale such as C has no ± and no umlauts
            stream.reconfigure(errors="backslashreplace")
    words = each_named(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    name = " ".join(["mmlib", *words[: 1 + (words[0] == "data")]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that kernels shut down
    try:
        command = typer.main.get_command(app)
        with command.make_context("mmlib", words) as context:
            return command.invoke(context) or 0
    except typer.Exit as end:
        return end.exit_code
    except KeyboardInterrupt:
        goes_on = words[0] in ("data", "record", "course", "search")
        again = "; the same command goes on from here" if goes_on else ""
        print(f"\ninterrupted{again}", file=sys.stderr)
        return 130
    except TyperException as error:
        print(f"{name}: {error.format_message()}", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:  # what users can mend, in one line
        print(f"{name}: {error}", file=sys.stderr)
        return 1 if words[0] == "data" else 2


def each_named(arguments: Sequence[str]) -> list[str]:
    """The words of a command; of several names after --datasets, each gets the option."""
    words: list[str] = []
    option = ""
    for word in arguments:
        if word.startswith("-"):
            option = word
        elif option == "--datasets" and words[-1] != option:
            words.append(option)
        words.append(word)
    return words


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mmlib {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, Option("--version", is_eager=True, callback=_print_version)] = False,
) -> None:
    pass


@app.command()
def run(
    numbers: Numbers = None,
    tier: Tier = "world",
    seeds: Annotated[int | None, Option(min=1, help="of 00's own models, or computed ones")] = None,
    device: Annotated[str | None, Option(help="auto, cpu, cuda, cuda:1")] = None,
    out: Annotated[Path | None, Option(help="default: runs/TIER, and a link runs/latest")] = None,
    features: Features = "",
    evidence: Evidence = None,
    dataset: OwnData = None,
    settings: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE")] = None,
    jobs: Count = 1,
    timeout: Annotated[float | None, Option(help="seconds of a notebook")] = None,
    notebooks: Notebooks = None,
    cluster: Cluster = "",
) -> int:
    """Execute notebooks and check their figures.

    --set: any other parameter of a notebook; VALUE is a Python literal, else text. --jobs: how many
    run at a time.
    """
    from mmlib.core.device import pick_device
    from mmlib.suite import outcomes, runner
    from mmlib.suite.parameters import EVIDENCE, evidence_folder

    paths = runner.select(notebooks, numbers)
    parameters = parameters_of(settings or (), tier=tier, seeds=seeds, device=device)
    if (named := parameters.get("evidence", evidence or EVIDENCE[0])) not in EVIDENCE:
        evidence = evidence_folder(str(named))  # which is no parameter
        parameters.pop("evidence", None)
    _choose(tier, features, evidence, dataset)
    if isinstance(wanted := parameters.get("device"), str) and not cluster:
        pick_device(wanted)
    timeout = runner.TIME_LIMITS[tier] if timeout is None else timeout
    if not 0 < timeout < inf:
        raise ValueError("--timeout must be above 0, and finite")
    results = out or paths[0].parents[1] / "runs" / tier
    reports = runner.run_notebooks(paths, results, parameters, timeout, cluster, jobs)
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
    if dataset and not dataset.is_dir():
        raise ValueError(f"--dataset {dataset}: no such folder")
    choose(features, evidence or "", dataset or "")
    if features and tier == "flickr8k":
        from mmlib.core.paths import data_dir
        from mmlib.features import sets

        sets.opened(data_dir() / "flickr8k" / "features", features)


@app.command()
def report(folder: Annotated[Path, Argument(metavar="RUN")], out: Out = None) -> None:
    """Write a finished run as a web site.

    RUN: such as runs/latest; the site goes into its folder report, or --out.
    """
    from mmlib.suite import report

    print(report.write(folder, out))


@app.command()
def record(
    number: Number,
    tier: RecordTier = "world",
    evidence: Evidence = None,
    features: Features = "",
    dataset: OwnData = None,
    seeds: Annotated[int, Option(min=1, help="0 to N-1")] = 20,
    datasets: Annotated[list[str] | None, Option(metavar="NAME ...", help="only these")] = None,
    device: Device = "cpu",
    workers: Annotated[int, Option(min=0, help="processes; 0: one a core or GPU")] = 0,
    cluster: Cluster = "",
    replace: Annotated[bool, Option("--replace", help="what is of other code or data")] = False,
) -> None:
    """Make a paper's evidence, for hours if it must."""
    from mmlib.core.device import pick_device
    from mmlib.core.engine import Resources
    from mmlib.suite import record

    _choose(tier, features, evidence, dataset)
    if workers and cluster:
        raise ValueError("--workers: a cluster has workers of its own")
    resources = Resources(device if cluster else pick_device(device), workers, cluster)
    found = record.record(
        number, tier, range(seeds),
        datasets=datasets or (), replace=replace, folder=evidence, resources=resources,
    )  # fmt: skip
    print(f"{len(found.seeds)} seeds, {found.header['cpu_seconds'] / 3600:.1f} CPU hours")


@app.command()
def judge(
    number: Number,
    tier: RecordTier = "world",
    evidence: Evidence = None,
    features: Features = "",
    out: Out = None,
) -> None:
    """Write tables, figures and verdicts.

    They come from evidence alone, and go into runs/judge/TIER/NUMBER, or --out.
    """
    from mmlib.suite import record

    _choose(tier, features, evidence)
    folder = out or Path("runs") / "judge" / tier / number
    print(record.write_judgement(number, tier, folder, evidence))


@app.command()
def compare(
    number: Number,
    similarity: Annotated[Path | None, Argument(metavar="FILE")] = None,
    tier: RecordTier = "world",
    dataset: Annotated[str, Option(help="the collection; default: the tier's own")] = "",
    name: Annotated[str, Option(help="what it is called in tables")] = "yours",
    items: Annotated[
        Path | None, Option(help="only write which rows and columns there are")
    ] = None,
    evidence: Evidence = None,
    out: Out = None,
) -> None:
    """Put your own retriever beside the recorded systems.

    FILE: .npy (test images × captions), or .py with encode_images and encode_texts.
    """
    from mmlib.suite import compare

    if items:
        lines = compare.write_items(number, tier, dataset, items)
        print(f"{lines} captions, in the order of rows and columns: {items}")
        return
    if similarity is None:
        raise ValueError("name a .npy file, or a .py file with encode_images and encode_texts")
    scores = compare.scores_of(number, similarity, tier, dataset)
    found = compare.compare(number, scores, tier, dataset, name=name, folder=evidence)
    print(found)
    if out:
        compare.write(found, out)
        print(f"\nwritten to {out}")


@app.command()
def search(
    folder: Path,
    text: str,
    model: str = "small",
    weights: Weights = None,
    k: Annotated[int, Option("-k", min=1, help="how many pictures")] = 9,
    out: Annotated[Path | None, Option(help="a contact sheet: .png or .html")] = None,
    index: Annotated[Path | None, Option(help="folder of the index (default: FOLDER)")] = None,
    device: Device = "cpu",
) -> None:
    """Find the pictures of a folder that fit a text.

    --model: a file of `mmlib train`, the folder of a CLIP as transformers writes it, or a .py file
    with encode_images and encode_texts; small has seen the picture world alone.

    Pictures, also in folders below, are encoded once and kept in an index, a hidden file of the
    folder; later only new and changed ones are. Interrupted, the same command goes on.
    """
    from mmlib.core.device import pick_device
    from mmlib.suite import score, search

    if out and out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"--out {out}: lies in the folder that is searched; name another")
    if out:
        search.must_be_sheet(out)
    search.must_be_findable(text, k)
    read = score.read(model, pick_device(device), weights)
    print(read.card, file=sys.stderr)  # what it has seen
    if unknown := read.unknown(text):
        print(f"words that it does not know: {', '.join(unknown)}", file=sys.stderr)
    pictures = search.folder(folder, read, index)
    print(
        f"{len(pictures.files)} pictures, {pictures.encoded} of them encoded now", file=sys.stderr
    )
    found = pictures.find(text, k)
    print(found)
    if out:
        found.save(out)
        print(f"written to {out}")


@app.command()
def score(
    model: str,
    pairs: Annotated[Path, Argument(metavar="PAIRS.csv", help="image,caption[,caption...]")],
    prior: Annotated[float, Option(help="share of pairs that fit; 0: as in calibration")] = 0.0,
    weights: Weights = None,
    out: Annotated[Path | None, Option(help="CSV; default: printed")] = None,
    device: Device = "cpu",
) -> None:
    """Score your own pairs of pictures and captions.

    MODEL: as of search; small: the picture world's judge.
    """
    from mmlib.core.device import pick_device
    from mmlib.core.tables import without_formulas
    from mmlib.suite import score

    table = score.read_csv(pairs)
    scorer = score.read(model, pick_device(device), weights)
    inputs = (pairs, scorer.path, *map(Path, table.image))
    if out and out.resolve() in {path.resolve() for path in inputs}:
        raise ValueError(f"--out would write over {out}, which is read: name another file")
    print(scorer.card, file=sys.stderr)  # of which pictures its odds are
    table = without_formulas(scorer.score(table, prior))
    if out is None:
        print(table.to_csv(index=False), end="")
    else:
        write_atomic(out, lambda file: table.to_csv(file, index=False))
        print(f"written to {out}")


@app.command()
def train(
    kind: Literal["judge", "retriever"],
    out: Annotated[Path, Option(help=".safetensors, with a model card")],
    tier: Literal["world", "flickr8k"] = "world",
    features: Features = "",
    seed: int = 0,
    device: Device = "cpu",
) -> None:
    """Train a judge or a retriever.

    --out gets it in one file; a judge is kept with the retriever that it reads.
    """
    from mmlib.core.device import pick_device
    from mmlib.suite import train

    _choose(tier, features)
    print(train.train(kind, tier, out, seed, pick_device(device)))
    print(f"written to {out}")


@course.command("student", help="Write the notebooks without answers, and keys that hold none.")
@course.command("answers", help="Write the notebooks without blanks, for teachers.")
@course.command("export", help="Write the notebooks as assignments of nbgrader.")
def write_course(
    context: typer.Context,
    out: Annotated[Path, Argument(help="a new folder, or an earlier call's")],
    numbers: Numbers = None,
    pack: Annotated[bool, Option("--pack", help="student: with the package, to run alone")] = False,
    nbgrader: Annotated[bool, Option("--nbgrader", help="export: the only form there is")] = False,
    notebooks: Notebooks = None,
) -> None:
    """Write a version of the notebooks for a course; the command's name says which."""
    from mmlib.suite.course import versions
    from mmlib.suite.runner import select

    name = context.info_name
    if (pack and name != "student") or nbgrader != (name == "export"):
        raise ValueError("--pack is for course student, and course export needs --nbgrader")
    version: Any = "nbgrader" if name == "export" else name
    written, kept = versions.write(version, out, select(notebooks, numbers), pack)
    for path in written:
        print(path)
    for path in kept:
        print(f"{path} is kept: it was changed since it was written")


@course.command()
def grade(
    handins: Annotated[Path, Argument(help="a notebook, or a folder of them")],
    out: Annotated[Path, Option(help="CSV, a row an exercise")],
    jobs: Count = 1,
    timeout: Annotated[float, Option(help="seconds of an answer")] = 60.0,
    memory: Annotated[float, Option(help="GiB of an answer")] = 2.0,
    notebooks: Notebooks = None,
) -> None:
    """Grade what students handed in.

    Runs only the cells of exercises, after the rest of the notebook here, and compares what they
    give with the checks of the notebooks here. The same command goes on where it was interrupted.
    """
    from mmlib.suite.course import grading
    from mmlib.suite.runner import select

    results = grading.grade(handins, select(notebooks), out, jobs, timeout, int(memory * 2**30))
    counts = ", ".join(f"{results[name]} {name}" for name in ("right", "wrong", "blank", "error"))
    print(f"{out}: {counts}")


@course.command()
def mistakes(numbers: Numbers = None, notebooks: Notebooks = None) -> None:
    """List exercises, and the mistakes that their checks know."""
    from mmlib.suite.course import grading
    from mmlib.suite.runner import select

    for path in select(notebooks, numbers):
        print(grading.mistakes(path))


if __name__ == "__main__":
    sys.exit(main())
