"""The `mmlib data` commands: list, get, check, features."""

import argparse
import sys


def register(parser: argparse.ArgumentParser) -> None:
    """Add the data sub-commands to `parser`; each sets `run`, a function of the parsed arguments.

    `run(args)` returns the exit status: 0 done or usable, 1 not.
    """
    commands = parser.add_subparsers(dest="data_command", required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the data sets, and which of them are present")
    listing.set_defaults(run=_not_yet)

    get = commands.add_parser("get", help="download and unpack a data set")
    get.add_argument("name")
    get.set_defaults(run=_not_yet)

    check = commands.add_parser("check", help="say whether a data set is complete and readable")
    check.add_argument("name")
    check.set_defaults(run=_not_yet)

    features = commands.add_parser("features", help="extract image features with a backbone")
    features.add_argument("name")
    features.add_argument("--backbone", default="densenet169")
    features.set_defaults(run=_not_yet)


def _not_yet(args: argparse.Namespace) -> int:
    print(f"mmlib data {args.data_command}: being written", file=sys.stderr)
    return 1
