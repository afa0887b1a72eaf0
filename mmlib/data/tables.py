"""Rows of a delimited text file, each checked, and what else all readers of data sets share."""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import data_dir

SOMETHING = r"(?s).*\S.*"
Fields = dict[str, str]
Row = tuple[int, Fields | None, list[Problem]]


def dataset_folder(name: str, folder: Path | None = None) -> Path:
    """The given folder, or else the data set's folder of that name in the data folder."""
    return data_dir() / name if folder is None else folder


def check_choice(kind: str, name: str, choices: Collection[str]) -> None:
    """Raise a DataError that lists the choices where `name` is none of them."""
    if name not in choices:
        raise DataError(f"no {kind} {name!r} (choose from {', '.join(choices)})")


def error_at(path: Path, row: int | None, problem: str, mend: str) -> DataError:
    """The error that says what is wrong with a file, in which row, and how to mend it."""
    return DataError(Problem(path, row, problem, mend))


def table_rows(
    path: Path,
    columns: Sequence[str],
    mend: str,
    patterns: Mapping[str, str],
    *,
    delimiter: str = ",",
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
    allow_more_columns: bool = False,
) -> Iterator[Row]:
    """The line number, the fields and the problems of each row of a table.

    Fields are None where the row cannot be read. A missing file or a wrong header gives a single
    item with that problem.

    columns: the header; `allow_more_columns` ignores any others among them.
    patterns: column -> regular expression that the whole value must match.
    """
    if not path.is_file():
        yield 1, None, [Problem(path, None, "is missing", mend)]
        return
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader, row = csv.reader(file, delimiter=delimiter, quoting=quoting), 1
        try:
            header = next(reader, [])
            if header != list(columns) and not (allow_more_columns and set(columns) <= set(header)):
                wrong = f"the columns are {header}, not {list(columns)}"
                problem = _defect(header, header) or wrong
                yield 1, None, [Problem(path, 1, problem, mend)]
                return
            row = reader.line_num + 1
            for values in reader:
                if defect := _defect(values, header):
                    yield row, None, [Problem(path, row, defect, mend)]
                else:
                    fields = dict(zip(header, values, strict=True))
                    problems = [
                        Problem(path, row, f"{name} is {fields[name]!r}, not {pattern}", mend)
                        for name, pattern in patterns.items()
                        if not re.fullmatch(pattern, fields[name])
                    ]
                    yield row, {name: fields[name] for name in columns}, problems
                row = reader.line_num + 1  # a quoted field may span lines
        except csv.Error as error:  # an unclosed quotation mark that swallows the file
            yield row, None, [Problem(path, row, f"cannot be read: {error}", mend)]


def _defect(values: Sequence[str], header: Sequence[str]) -> str | None:
    """Why a row cannot be read, or None."""
    if len(values) != len(header):
        return f"{len(values)} fields instead of {len(header)}"
    return "bytes that are not UTF-8" if any("\ufffd" in value for value in values) else None


def sound_rows(rows: Iterable[tuple[int, Any, list[Problem]]], none: Problem) -> list[Any]:
    """The values of all rows; raises DataError for the first problem, and `none` without rows."""
    records = []
    for _, values, problems in rows:
        if problems:
            raise DataError(problems[0])
        records.append(values)
    if not records:
        raise DataError(none)
    return records
