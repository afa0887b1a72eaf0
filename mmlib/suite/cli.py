"""Run notebooks that replicate papers, report on the run, make a course of them, get their data."""

import argparse
import ast
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmlib import __version__
from mmlib.core.paths import notebooks_dir, write_atomic

TIERS = ("world", "flickr8k", "paper")


class UsageError(ValueError):
    """What was asked for cannot be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 1 something failed, 2 wrong usage."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = _parser(with_data=arguments[:1] == ["data"]).parse_args(arguments)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that kernels shut down
    try:
        return args.run(args)
    except KeyboardInterrupt:
        goes_on = args.command in ("data", "record")
        again = "; the same command goes on from here" if goes_on else ""
        print(f"\ninterrupted{again}", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:  # what users can mend, in one line
        of_data = args.command == "data"
        print(f"mmlib {' '.join(arguments[: 1 + of_data])}: {error}", file=sys.stderr)
        return 1 if of_data else 2
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser(with_data: bool) -> argparse.ArgumentParser:
    """The parser; the data commands load their libraries only when they are asked for."""
    parser = argparse.ArgumentParser(prog="mmlib", description=__doc__)
    parser.add_argument("--version", action="version", version=f"mmlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="execute notebooks and judge their figures")
    run.add_argument("numbers", nargs="*", metavar="NUMBER", help="01 04 ...; default: all")
    run.add_argument("--tier", choices=TIERS, default="world", help="the data (default: world)")
    run.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="training seeds: of 00's own models; of 01 to 04 only with --set evidence=compute",
    )
    run.add_argument("--device", help="where to compute: auto, cpu, cuda, cuda:1")
    run.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of the results (default: runs/TIER; runs/latest then links to it)",
    )
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter; VALUE is a Python literal, else text",
    )
    run.add_argument("--timeout", type=float, metavar="S", help="limit a notebook, in seconds")
    run.add_argument("--notebooks", type=Path, metavar="DIR", help="folder of the notebooks")
    run.add_argument("--cluster", default="", metavar="ADDRESS", help="of a Dask scheduler")
    run.set_defaults(run=_run)

    record = commands.add_parser("record", help="make a paper's evidence, for hours if it must")
    _add_paper(record)
    record.add_argument("--seeds", type=int, default=20, metavar="N", help="0 to N-1 (default: 20)")
    record.add_argument("--datasets", nargs="+", default=(), metavar="NAME", help="only these")
    record.add_argument("--device", default="cpu", help="auto, cpu, cuda, cuda:1 (default: cpu)")
    record.add_argument("--workers", type=int, default=0, help="processes; 0: one a core or GPU")
    record.add_argument("--cluster", default="", metavar="ADDRESS", help="of a Dask scheduler")
    record.add_argument(
        "--replace", action="store_true", help="what is of other code, data or settings"
    )
    record.set_defaults(run=_record)

    judge = commands.add_parser("judge", help="tables, figures and verdicts, from evidence alone")
    _add_paper(judge)
    judge.add_argument(
        "--out", type=Path, metavar="DIR", help="default: runs/judge/TIER/NUMBER, from here"
    )
    judge.set_defaults(run=_judge)

    score = commands.add_parser("score", help="score your own pairs of pictures and captions")
    score.add_argument("model", help="a file of kept weights; small: the picture world's judge")
    score.add_argument("pairs", type=Path, metavar="PAIRS.csv", help="image,caption[,caption...]")
    score.add_argument(
        "--prior",
        type=float,
        default=0.0,
        help="share of pairs that fit (default: as in calibration)",
    )
    score.add_argument("--out", type=Path, metavar="FILE", help="CSV; default: printed")
    score.set_defaults(run=_score)

    report = commands.add_parser("report", help="write a finished run as a web site")
    report.add_argument("folder", type=Path, metavar="RUN", help="such as runs/latest")
    report.add_argument("--out", type=Path, metavar="DIR", help="default: the folder report in RUN")
    report.set_defaults(run=_report)

    course = commands.add_parser(
        "course",
        help="write the notebooks for students or for teachers",
        description="DIR gets the notebooks. Their results go to runs/lab/ beside DIR, or where "
        "the parameter out says.",
    )
    course.add_argument(
        "version", choices=("student", "answers"), help="without answers, or without blanks"
    )
    course.add_argument("out", type=Path, metavar="DIR", help="a new folder, or an earlier call's")
    course.add_argument("numbers", nargs="*", metavar="NUMBER", help="01 04 ...; default: all")
    course.add_argument("--notebooks", type=Path, metavar="DIR", help="folder of the notebooks")
    course.set_defaults(run=_course)

    data = commands.add_parser("data", help="list, get, check data sets; extract features")
    if with_data:
        from mmlib.suite import data_cli

        data_cli.register(data)
    return parser


def _run(args: argparse.Namespace) -> int:
    """`mmlib run`."""
    from mmlib.suite import outcomes, runner

    if args.device and not args.cluster:
        from mmlib.core.device import pick_device  # late: PyTorch takes seconds to import

        pick_device(args.device)
    folder = _notebook_folder(args.notebooks)
    notebooks = _select(folder, args.numbers)
    parameters = _parameters(args)
    out = args.out or folder.parent / "runs" / args.tier
    timeout = runner.TIME_LIMITS[args.tier] if args.timeout is None else args.timeout
    if not 0 < timeout < math.inf:
        raise UsageError("--timeout must be above 0, and finite")
    reports = runner.run_notebooks(notebooks, out, parameters, timeout, args.cluster)
    if args.out is None:
        runner.link_latest(out)
    print(outcomes.summary_text(reports))
    return int(not all(report.ok for report in reports))


def _add_paper(command: argparse.ArgumentParser) -> None:
    """What `record` and `judge` have in common."""
    command.add_argument(
        "number", metavar="NUMBER", help="of the paper's notebook, such as 04",
        type=lambda number: number.zfill(2),
    )  # fmt: skip
    command.add_argument("--tier", choices=TIERS, default="world", help="the data (default: world)")
    command.add_argument("--evidence", type=Path, metavar="DIR", help="default: evidence/")


def _record(args: argparse.Namespace) -> int:
    """`mmlib record`."""
    from mmlib.core.device import pick_device
    from mmlib.core.engine import Resources
    from mmlib.suite import record

    if args.seeds < 1:
        raise UsageError("--seeds must be at least 1")
    if args.workers < 0 or (args.workers and args.cluster):
        raise UsageError("--workers is 0 or more, and a cluster has workers of its own")
    found = record.record(
        args.number, args.tier, range(args.seeds),
        datasets=args.datasets, replace=args.replace, folder=args.evidence,
        resources=Resources(
            args.device if args.cluster else pick_device(args.device), args.workers, args.cluster
        ),
    )  # fmt: skip
    print(f"{len(found.seeds)} seeds, {found.header['cpu_seconds'] / 3600:.1f} CPU hours")
    return 0


def _judge(args: argparse.Namespace) -> int:
    """`mmlib judge`."""
    from mmlib.suite import record

    out = args.out or Path("runs") / "judge" / args.tier / args.number
    print(record.write_judgement(args.number, args.tier, out, args.evidence))
    return 0


def _score(args: argparse.Namespace) -> int:
    """`mmlib score`."""
    from mmlib.suite import score

    model = score.SMALL if args.model == "small" else Path(args.model)
    rows = score.read_csv(args.pairs)
    read = (args.pairs, model, *(row.image for row in rows))
    if args.out and args.out.resolve() in {path.resolve() for path in read}:
        raise UsageError(f"--out would write over {args.out}, which is read: name another file")
    table = score.read(model).score(rows, args.prior)
    if args.out is None:
        print(table.to_csv(index=False), end="")
    else:
        write_atomic(args.out, lambda file: table.to_csv(file, index=False))
        print(f"written to {args.out}")
    return 0


def _report(args: argparse.Namespace) -> int:
    """`mmlib report`."""
    from mmlib.suite import report

    print(report.write(args.folder, args.out))
    return 0


def _course(args: argparse.Namespace) -> int:
    """`mmlib course`."""
    from mmlib.suite import course

    notebooks = _select(_notebook_folder(args.notebooks), args.numbers)
    for path in course.write(args.version, args.out, notebooks):
        print(path)
    return 0


def _notebook_folder(named: Path | None) -> Path:
    """The folder of the notebooks: `named`, else the package's own."""
    folder = named or notebooks_dir()
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}: run this in a clone of the repository")
    return folder.resolve()


def _select(folder: Path, numbers: Sequence[str]) -> list[Path]:
    """The notebooks whose names begin with `numbers`, in the order of their names."""
    known = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    listing = ", ".join(path.stem for path in known) or "none"
    chosen: set[Path] = set()
    for number in numbers:
        found = [path for path in known if path.stem.startswith(number.zfill(2))]
        if not found or not number:
            raise UsageError(f"no notebook {number!r}; there are {listing}")
        chosen.update(found)
    if not known:
        raise UsageError(f"no notebook in {folder}")
    return sorted(chosen) if numbers else known


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the options ask for; what is not asked for keeps its default."""
    if args.seeds is not None and args.seeds < 1:
        raise UsageError("--seeds must be at least 1")
    given = {"tier": args.tier, "seeds": args.seeds, "device": args.device}
    parameters = {name: value for name, value in given.items() if value is not None}
    for setting in args.set:
        name, equals, text = setting.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--set {setting}: write NAME=VALUE")
        if name in parameters or name == "out":
            raise UsageError(f"--set {name}: use --{name}, once")
        try:
            parameters[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            parameters[name] = text
    return parameters


if __name__ == "__main__":
    sys.exit(main())
