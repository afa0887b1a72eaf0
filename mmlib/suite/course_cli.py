"""The `mmlib course` commands: student, answers, export, grade, mistakes."""

import argparse

from mmlib.suite.cli import add_command, notebook_folder, select
from mmlib.suite.course import grading, versions


def register(parser: argparse.ArgumentParser) -> None:
    """Add the course sub-commands to `parser`; each sets `run`, a function of the arguments.

    `run(args)` returns the exit status 0; what cannot be done raises CourseError.
    """
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in ("student", "answers", "export"):
        add_command(commands, f"course {name}", run_write)
        commands.choices[name].set_defaults(
            version="nbgrader" if name == "export" else name, pack=False
        )
    commands.choices["student"].set_defaults(pack=False)
    add_command(commands, "course grade", run_grade)
    add_command(commands, "course mistakes", run_mistakes)


def run_write(args: argparse.Namespace) -> int:
    """The notebooks written, a line each, and those kept because someone works in them."""
    notebooks = select(notebook_folder(args.notebooks), args.numbers)
    written, kept = versions.write(args.version, args.out, notebooks, args.pack)
    for path in written:
        print(path)
    for path in kept:
        print(f"{path} is kept: it was changed since it was written")
    return 0


def run_grade(args: argparse.Namespace) -> int:
    """The table of marks, and how many exercises have each result."""
    limits = grading.Limits(args.timeout, int(args.memory * 2**30))
    notebooks = select(notebook_folder(args.notebooks), ())
    results = grading.grade(args.handins, notebooks, args.out, args.jobs, limits)
    counts = ", ".join(f"{results[name]} {name}" for name in ("right", "wrong", "blank", "error"))
    print(f"{args.out}: {counts}")
    return 0


def run_mistakes(args: argparse.Namespace) -> int:
    """Markdown: each exercise with its difficulty and minutes, and its mistakes below."""
    for path in select(notebook_folder(args.notebooks), args.numbers):
        print(grading.mistakes(path))
    return 0
