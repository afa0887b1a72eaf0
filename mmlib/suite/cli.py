"""Run notebooks that replicate papers, report on the run, make a course of them, get their data."""

import argparse
import ast
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mmlib import __version__
from mmlib.core.paths import notebooks_dir, write_atomic

TIERS = ("world", "flickr8k", "paper")
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


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
    for register, function in (
        (_register_run, _run),
        (_register_record, _record),
        (_register_judge, _judge),
        (_register_score, _score),
        (_register_report, _report),
        (_register_course, _course),
    ):
        register(commands).set_defaults(run=function)
    data = commands.add_parser("data", help="list, get, check data sets; extract features")
    if with_data:
        from mmlib.suite import data_cli

        data_cli.register(data)
    return parser


def _register_run(commands: Commands) -> argparse.ArgumentParser:
    run = commands.add_parser("run", help="execute notebooks and check their figures")
    add = run.add_argument
    add("numbers", nargs="*", metavar="NUMBER", help="01 04 ...; default: all")
    add("--tier", choices=TIERS, default="world", help="the data (default: world)")
    seeds = "training seeds: of 00's own models; of 01 to 04 only with --set evidence=compute"
    add("--seeds", type=int, metavar="N", help=seeds)
    add("--device", help="where to compute: auto, cpu, cuda, cuda:1")
    folder = "folder of the results (default: runs/TIER; runs/latest then links to it)"
    add("--out", type=Path, metavar="DIR", help=folder)
    setting = "any other parameter; VALUE is a Python literal, else text"
    add("--set", action="append", default=[], metavar="NAME=VALUE", help=setting)
    jobs = "notebooks that run at a time (default: 1)"
    add("--jobs", type=int, default=1, metavar="N", help=jobs)
    add("--timeout", type=float, metavar="S", help="limit a notebook, in seconds")
    add("--notebooks", type=Path, metavar="DIR", help="folder of the notebooks")
    add("--cluster", default="", metavar="ADDRESS", help="of a Dask scheduler")
    return run


def _register_record(commands: Commands) -> argparse.ArgumentParser:
    record = commands.add_parser("record", help="make a paper's evidence, for hours if it must")
    _add_paper(record)
    add = record.add_argument
    add("--seeds", type=int, default=20, metavar="N", help="0 to N-1 (default: 20)")
    add("--datasets", nargs="+", default=(), metavar="NAME", help="only these")
    add("--device", default="cpu", help="auto, cpu, cuda, cuda:1 (default: cpu)")
    add("--workers", type=int, default=0, help="processes; 0: one a core or GPU")
    add("--cluster", default="", metavar="ADDRESS", help="of a Dask scheduler")
    add("--replace", action="store_true", help="what is of other code, data or settings")
    return record


def _register_judge(commands: Commands) -> argparse.ArgumentParser:
    judge = commands.add_parser("judge", help="tables, figures and verdicts, from evidence alone")
    _add_paper(judge)
    folder = "default: runs/judge/TIER/NUMBER, from here"
    judge.add_argument("--out", type=Path, metavar="DIR", help=folder)
    return judge


def _register_score(commands: Commands) -> argparse.ArgumentParser:
    score = commands.add_parser("score", help="score your own pairs of pictures and captions")
    add = score.add_argument
    add("model", help="a file of kept weights; small: the picture world's judge")
    add("pairs", type=Path, metavar="PAIRS.csv", help="image,caption[,caption...]")
    prior = "share of pairs that fit (default: as in calibration)"
    add("--prior", type=float, default=0.0, help=prior)
    add("--out", type=Path, metavar="FILE", help="CSV; default: printed")
    return score


def _register_report(commands: Commands) -> argparse.ArgumentParser:
    report = commands.add_parser("report", help="write a finished run as a web site")
    report.add_argument("folder", type=Path, metavar="RUN", help="such as runs/latest")
    report.add_argument("--out", type=Path, metavar="DIR", help="default: the folder report in RUN")
    return report


def _register_course(commands: Commands) -> argparse.ArgumentParser:
    course = commands.add_parser(
        "course",
        help="write the notebooks for students or for teachers",
        description="DIR gets the notebooks. Their results go to runs/lab/ beside DIR, or where "
        "the parameter out says.",
    )
    add = course.add_argument
    add("version", choices=("student", "answers"), help="without answers, or without blanks")
    add("out", type=Path, metavar="DIR", help="a new folder, or an earlier call's")
    add("numbers", nargs="*", metavar="NUMBER", help="01 04 ...; default: all")
    add("--notebooks", type=Path, metavar="DIR", help="folder of the notebooks")
    return course


def _add_paper(command: argparse.ArgumentParser) -> None:
    """What `record` and `judge` have in common."""
    add = command.add_argument
    number = "of the paper's notebook, such as 04"
    add("number", metavar="NUMBER", help=number, type=lambda number: number.zfill(2))
    add("--tier", choices=TIERS, default="world", help="the data (default: world)")
    add("--evidence", type=Path, metavar="DIR", help="default: evidence/")


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
    if args.jobs < 1:
        raise UsageError("--jobs must be at least 1")
    reports = runner.run_notebooks(notebooks, out, parameters, timeout, args.cluster, args.jobs)
    if args.out is None:
        runner.link_latest(out)
    print(outcomes.summary_text(reports))
    return int(not all(report.ok for report in reports))


def _record(args: argparse.Namespace) -> int:
    """`mmlib record`."""
    from mmlib.core.device import pick_device
    from mmlib.core.engine import Resources
    from mmlib.suite import record

    if args.seeds < 1:
        raise UsageError("--seeds must be at least 1")
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
    notebooks = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not notebooks:
        raise UsageError(f"no notebook in {folder}")
    chosen: set[Path] = set()
    for number in numbers:
        matching = {path for path in notebooks if path.stem.startswith(number.zfill(2))}
        if not matching or not number:
            listing = ", ".join(path.stem for path in notebooks)
            raise UsageError(f"no notebook {number!r}; there are {listing}")
        chosen |= matching
    return sorted(chosen) if numbers else notebooks


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the options ask for; what is not asked for keeps its default."""
    if args.seeds is not None and args.seeds < 1:
        raise UsageError("--seeds must be at least 1")
    options = {"tier": args.tier, "seeds": args.seeds, "device": args.device}
    parameters = {name: value for name, value in options.items() if value is not None}
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
