"""Run notebooks that replicate papers, report on the run, make a course of them, get their data."""

import argparse
import ast
import io
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mmlib import __version__
from mmlib.core.paths import CHOSEN, notebooks_dir, table_beside, write_atomic

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Command: TypeAlias = Callable[[argparse.Namespace], int]
SPECIFICATIONS: dict[str, dict[str, Any]] = table_beside(__file__)
PHOTOGRAPHS = ("flickr8k", "paper")  # tiers of which one may have features of one's own
TIERS: list[str] = SPECIFICATIONS["record"]["arguments"]["--tier"]["choices"]


class UsageError(ValueError):
    """What was asked for cannot be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 1 something failed, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale such as C has no ± and no umlauts
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = _parser(arguments[:1]).parse_args(arguments)
    chosen = {name: os.environ.get(name) for name in CHOSEN}
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that kernels shut down
    try:
        return args.run(args)
    except KeyboardInterrupt:
        goes_on = args.command in ("data", "record", "course", "search")
        again = "; the same command goes on from here" if goes_on else ""
        print(f"\ninterrupted{again}", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:  # what users can mend, in one line
        of_data = args.command == "data"
        print(f"mmlib {' '.join(arguments[: 1 + of_data])}: {error}", file=sys.stderr)
        return 1 if of_data else 2
    finally:
        signal.signal(signal.SIGTERM, before)
        for name, value in chosen.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _parser(group: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; the commands of a group load their libraries only when they are asked for."""
    parser = argparse.ArgumentParser(prog="mmlib", description=__doc__)
    parser.add_argument("--version", action="version", version=f"mmlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for run in (_run, _record, _judge, _compare, _search, _score, _train, _report):
        add_command(commands, run.__name__[1:], run)
    data = commands.add_parser("data", help="list, get, check data sets; extract features")
    course = commands.add_parser("course", help="a course: its versions, its marks")
    if group == ["data"]:
        from mmlib.suite import data_cli

        data_cli.register(data)
    if group == ["course"]:
        from mmlib.suite import course_cli

        course_cli.register(course)
    return parser


def add_command(commands: Commands, name: str, run: Command, choices: Any = None) -> None:
    """Add a command of `cli.yaml`, which `run` does; choices: for what it calls "name"."""
    command = SPECIFICATIONS[name]
    texts = {key: text for key, text in command.items() if key != "arguments"}
    parser = commands.add_parser(name.split()[-1], **texts)
    for argument, options in command.get("arguments", {}).items():
        options = {**options, "type": TYPES.get(options.get("type"))}
        if argument == "name" and choices:
            options["choices"] = choices
        parser.add_argument(argument, **{k: v for k, v in options.items() if v is not None})
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


TYPES = {
    "int": int, "float": float, "path": Path, "positive": _positive,
    "number": lambda number: number.zfill(2),
}  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    from mmlib.suite import outcomes, runner
    from mmlib.suite.parameters import evidence_folder

    folder = notebook_folder(args.notebooks)
    notebooks = select(folder, args.numbers)
    parameters = _parameters(args)
    if args.evidence:
        evidence_folder(str(args.evidence))
    _choose(args)
    if isinstance(device := parameters.get("device"), str) and not args.cluster:
        from mmlib.core.device import pick_device  # late: PyTorch takes seconds to import

        pick_device(device)
    out = args.out or folder.parent / "runs" / args.tier
    timeout = runner.TIME_LIMITS[args.tier] if args.timeout is None else args.timeout
    if not 0 < timeout < math.inf:
        raise UsageError("--timeout must be above 0, and finite")
    if args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    reports = runner.run_notebooks(notebooks, out, parameters, timeout, args.cluster, args.jobs)
    if args.out is None:
        runner.link_latest(out)
    print(outcomes.summary_text(reports))
    return int(not all(report.ok for report in reports))


def _choose(args: argparse.Namespace) -> None:
    """Let the command use the features and the evidence that it names."""
    from mmlib.core.paths import choose
    from mmlib.data import flickr8k, registry
    from mmlib.features import sets

    if args.features and args.tier not in PHOTOGRAPHS:
        raise UsageError(f"--features: the tier {args.tier} has features of its own")
    dataset, evidence = getattr(args, "dataset", None), getattr(args, "evidence", None)
    if dataset and args.tier != "paper":
        raise UsageError("--dataset: a data set of your own is of the tier paper")
    if dataset and not dataset.is_dir():
        raise UsageError(f"--dataset {dataset}: no such folder")
    choose(args.features, evidence or "", dataset or "")
    if args.features and args.tier == flickr8k.NAME:
        sets.opened(registry.find(flickr8k.NAME).folder / "features", args.features)


def _record(args: argparse.Namespace) -> int:
    from mmlib.core.device import pick_device
    from mmlib.core.engine import Resources
    from mmlib.suite import record

    if args.seeds < 1:
        raise UsageError("--seeds must be at least 1")
    _choose(args)
    if args.workers < 0 or (args.workers and args.cluster):
        raise UsageError("--workers is 0 or more, and a cluster has workers of its own")
    evidence = record.record(
        args.number, args.tier, range(args.seeds),
        datasets=args.datasets, replace=args.replace, folder=args.evidence,
        resources=Resources(
            args.device if args.cluster else pick_device(args.device), args.workers, args.cluster
        ),
    )  # fmt: skip
    print(f"{len(evidence.seeds)} seeds, {evidence.header['cpu_seconds'] / 3600:.1f} CPU hours")
    return 0


def _judge(args: argparse.Namespace) -> int:
    from mmlib.suite import record

    _choose(args)
    out = args.out or Path("runs") / "judge" / args.tier / args.number
    print(record.write_judgement(args.number, args.tier, out, args.evidence))
    return 0


def _compare(args: argparse.Namespace) -> int:
    from mmlib.suite import compare

    if args.items:
        lines = compare.write_items(args.number, args.tier, args.dataset, args.items)
        print(f"{lines} captions, in the order of rows and columns: {args.items}")
        return 0
    if args.similarity is None:
        raise UsageError("name a .npy file, or a .py file with encode_images and encode_texts")
    scores = compare.scores_of(args.number, args.similarity, args.tier, args.dataset)
    found = compare.compare(
        args.number, scores, args.tier, args.dataset, name=args.name, folder=args.evidence
    )
    print(found)
    if args.out:
        compare.write(found, args.out)
        print(f"\nwritten to {args.out}")
    return 0


def _search(args: argparse.Namespace) -> int:
    from mmlib.core.device import pick_device
    from mmlib.suite import score, search, sheet

    if args.out and args.out.resolve().is_relative_to(args.folder.resolve()):
        raise UsageError(f"--out {args.out}: lies in the folder that is searched; name another")
    if args.out:
        sheet.must_be_sheet(args.out)
    search.must_be_findable(args.text, args.k)
    model = score.read(args.model, pick_device(args.device), args.weights)
    print(model.card, file=sys.stderr)  # what it has seen
    if unknown := model.unknown(args.text):
        print(f"words that it does not know: {', '.join(unknown)}", file=sys.stderr)
    index = search.folder(args.folder, model, args.index)
    print(f"{len(index.files)} pictures, {index.encoded} of them encoded now", file=sys.stderr)
    found = index.find(args.text, args.k)
    print(found)
    if args.out:
        found.save(args.out)
        print(f"written to {args.out}")
    return 0


def _score(args: argparse.Namespace) -> int:
    from mmlib.core.device import pick_device
    from mmlib.core.tables import without_formulas
    from mmlib.suite import score

    rows = score.read_csv(args.pairs)
    scorer = score.read(args.model, pick_device(args.device), args.weights)
    read = (args.pairs, scorer.path, *(row.image for row in rows))
    if args.out and args.out.resolve() in {path.resolve() for path in read}:
        raise UsageError(f"--out would write over {args.out}, which is read: name another file")
    print(scorer.card, file=sys.stderr)  # of which pictures its odds are
    table = without_formulas(scorer.score(rows, args.prior))
    if args.out is None:
        print(table.to_csv(index=False), end="")
    else:
        write_atomic(args.out, lambda file: table.to_csv(file, index=False))
        print(f"written to {args.out}")
    return 0


def _train(args: argparse.Namespace) -> int:
    from mmlib.core.device import pick_device
    from mmlib.suite import train

    _choose(args)
    device = pick_device(args.device)
    print(train.train(args.kind, args.tier, args.out, args.seed, device))
    print(f"written to {args.out}")
    return 0


def _report(args: argparse.Namespace) -> int:
    from mmlib.suite import report

    print(report.write(args.folder, args.out))
    return 0


def notebook_folder(named: Path | None) -> Path:
    """The folder of the notebooks: `named`, else the package's own."""
    folder = named or notebooks_dir()
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}: run this in a clone of the repository")
    return folder.resolve()


def select(folder: Path, numbers: Sequence[str]) -> list[Path]:
    """The notebooks whose names begin with `numbers`, in their order; all where there is none."""
    notebooks = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not notebooks:
        raise UsageError(f"no notebook in {folder}")
    chosen: list[Path] = []
    for number in numbers:
        matching = [path for path in notebooks if path.stem.startswith(number.zfill(2))]
        if not matching or not number:
            listing = ", ".join(path.stem for path in notebooks)
            raise UsageError(f"no notebook {number!r}; there are {listing}")
        chosen += matching
    return list(dict.fromkeys(chosen)) or notebooks


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the options ask for; what is not asked for keeps its default.

    `--set evidence=DIR` is `--evidence DIR`, which is none of them.
    """
    from mmlib.suite.parameters import EVIDENCE, evidence_folder

    if args.seeds is not None and args.seeds < 1:
        raise UsageError("--seeds must be at least 1")
    options = {"tier": args.tier, "seeds": args.seeds, "device": args.device}
    parameters = {name: value for name, value in options.items() if value is not None}
    for setting in args.set:
        name, equals, text = setting.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--set {setting}: write NAME=VALUE")
        if name in parameters or name in ("out", "features"):
            raise UsageError(f"--set {name}: use --{name}, once")
        try:
            parameters[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            parameters[name] = text
    evidence = parameters.get("evidence", EVIDENCE[0])
    if evidence not in EVIDENCE:
        args.evidence = evidence_folder(parameters.pop("evidence"))
    return parameters


if __name__ == "__main__":
    sys.exit(main())
