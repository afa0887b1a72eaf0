"""Write or check all pages that are made from evidence, the ledger and the studies, at one reading.

python ci/generated.py write [NUMBER …]    of some notebooks the studies alone
python ci/generated.py check [NUMBER …]    exit status 1 where a page or a picture is another

They come from evidence/, and from study.md and study.yaml of the papers.
"""

import argparse
import sys
from collections.abc import Sequence

import ledger
import studies

from mmlib.core.errors import DataError
from mmlib.suite.papers import PAPERS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="01, 02, …; all if none")
    options = parser.parse_args(arguments)
    try:
        tiers = studies.collect(options.numbers or list(PAPERS), draw=options.command == "write")
    except DataError as error:
        raise SystemExit(str(error)) from None
    wrong = studies.settle(options.command, tiers)  # first, as the ledger links to the studies
    if options.numbers:
        return wrong
    claims = {
        notebook: {tier: part.claims for tier, part in parts.items()}
        for notebook, parts in tiers.items()
    }
    return max(wrong, ledger.settle(options.command, claims))


if __name__ == "__main__":
    sys.exit(main())
