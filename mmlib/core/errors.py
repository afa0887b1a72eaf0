"""One defect of a data set, in the words that every reader and check uses."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """What is wrong, where, and how to mend it.

    row: line of the file as an editor counts it, from 1; None where the whole file is meant.
    """

    path: Path
    row: int | None
    what: str
    mend: str

    def __str__(self) -> str:
        """One line: `file, line N: what (mend)`."""
        where = f"{self.path}" if self.row is None else f"{self.path}, line {self.row}"
        return f"{where}: {self.what}" + (f" ({self.mend})" if self.mend else "")


class DataError(ValueError):
    """Data that cannot be used; the message names the file, the row and the mend."""

    def __init__(self, what: str | Problem) -> None:
        super().__init__(str(what))
        self.problem = what if isinstance(what, Problem) else None
