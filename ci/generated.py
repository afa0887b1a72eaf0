"""Write or check all pages that are made from evidence, the ledger and the studies, at one reading.

python ci/generated.py write
python ci/generated.py check    exit status 1 where a page or a picture says something else

Reading and judging the evidence takes most of the time, and both need it.
"""

import argparse
import sys
from collections.abc import Sequence

import ledger
import studies

from mmlib.core.errors import DataError
from mmlib.suite.papers import PAPERS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("write", "check"))
    command = parser.parse_args(arguments).command
    try:
        found = studies.collect(studies.ROOT, list(PAPERS), draw=command == "write")
    except DataError as error:
        raise SystemExit(str(error)) from None
    claims = {
        notebook: [one for part in tiers.values() for one in part.standings]
        for notebook, tiers in found.items()
    }
    wrong = studies.settle(command, found)  # first, as the ledger links to the studies
    return max(wrong, ledger.settle(command, claims))


if __name__ == "__main__":
    sys.exit(main())
