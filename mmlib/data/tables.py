"""Rows of a delimited text file, each checked: what every reader of tables shares."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmlib.core.errors import DataError, Problem

SOMETHING = r"(?s).*\S.*"
Fields = dict[str, str]
Row = tuple[int, Fields | None, list[Problem]]


def table_rows(
    path: Path,
    columns: Sequence[str],
    mend: str,
    patterns: Mapping[str, str] | None = None,
    *,
    delimiter: str = ",",
    quoted: bool = True,
    more: bool = False,
) -> Iterator[Row]:
    """Line, fields and problems of each row; fields are None where the row cannot be read.

    columns: the header; with `more` others may stand among them and are passed over.
    patterns: column -> regular expression that the whole value must match.
    A missing file or another header is one item with a problem, and the end.
    """
    if not path.is_file():
        yield 1, None, [Problem(path, None, "is missing", mend)]
        return
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.reader(
            file, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        )
        row = 1
        try:
            header = next(reader, [])
            sound = set(columns) <= set(header) if more else header == list(columns)
            if not sound:
                what = f"the columns are {header}, not {list(columns)}"
                yield 1, None, [Problem(path, 1, what, mend)]
                return
            row = reader.line_num + 1
            for values in reader:
                if defect := _defect(values, header):
                    yield row, None, [Problem(path, row, defect, mend)]
                else:
                    fields = dict(zip(header, values, strict=True))
                    problems = _mismatches(path, row, fields, patterns or {}, mend)
                    yield row, {name: fields[name] for name in columns}, problems
                row = reader.line_num + 1  # a quoted field may span lines
        except csv.Error as error:  # an unclosed quotation mark that swallows the file
            yield row, None, [Problem(path, row, f"cannot be read: {error}", mend)]


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


def _defect(values: list[str], header: list[str]) -> str | None:
    if len(values) != len(header):
        return f"{len(values)} fields instead of {len(header)}"
    if any("\ufffd" in value for value in values):
        return "bytes that are not UTF-8"
    return None


def _mismatches(
    path: Path, row: int, fields: Fields, patterns: Mapping[str, str], mend: str
) -> list[Problem]:
    return [
        Problem(path, row, f"{name} is {fields[name]!r}, not {pattern}", mend)
        for name, pattern in patterns.items()
        if not re.fullmatch(pattern, fields[name])
    ]
