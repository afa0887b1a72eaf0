"""What readers of data sets share: where a file is, and its rows, each checked."""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import regular_file
from mmlib.core.paths import data_dir

SOMETHING = r"(?s).*\S.*"


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


def text_lines(path: Path, mend: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line of a file; DataError for one that is not UTF-8, or has a NUL.

    Line ends are left out, and so is the byte order mark that some editors begin a file with.
    """
    with regular_file(path).open("rb") as file:
        for row, raw in enumerate(file, start=1):
            try:
                text = raw.decode("utf-8-sig" if row == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise error_at(path, row, f"not UTF-8: {error}", mend) from None
            if "\0" in text:
                raise error_at(path, row, "bytes that are 0", mend)
            yield row, text


def table_rows(
    path: Path,
    columns: Sequence[str],
    mend: str,
    patterns: Mapping[str, str],
    *,
    delimiter: str = ",",
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
    allow_more_columns: bool = False,
    key: str = "",
) -> Iterator[dict[str, str] | Problem]:
    """The fields of each row of a delimited text file, and after them what is wrong with the row.

    A row that cannot be read is a problem alone; so is a missing file or a wrong header.
    columns: the header; `allow_more_columns` ignores any others among them.
    patterns: column -> regular expression that the whole value must match.
    key: a column in which no value may repeat.
    """
    if not path.is_file():
        yield Problem(path, None, "is missing", mend)
        return
    row, row_of = 1, dict[str, int]()
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, quoting=quoting)
        try:
            header = next(reader, [])
            if header != list(columns) and not (allow_more_columns and set(columns) <= set(header)):
                wrong = f"the columns are {header}, not {list(columns)}"
                damaged = "\ufffd" in "".join(header)
                yield Problem(path, 1, "bytes that are not UTF-8" if damaged else wrong, mend)
                return
            row = reader.line_num + 1
            for values in reader:
                if len(values) != len(header):
                    problems = [f"{len(values)} fields instead of {len(header)}"]
                elif re.search("[\0\ufffd]", "".join(values)):
                    problems = ["bytes that are not UTF-8, or 0"]
                else:
                    fields = dict(zip(header, values, strict=True))
                    yield {name: fields[name] for name in columns}
                    problems = [
                        f"{name} is {fields[name]!r}, not {pattern}"
                        for name, pattern in patterns.items()
                        if not re.fullmatch(pattern, fields[name])
                    ]
                    if key and (first := row_of.setdefault(fields[key], row)) != row:
                        problems.append(f"{key} {fields[key]} stands in line {first} too")
                for problem in problems:
                    yield Problem(path, row, problem, mend)
                row = reader.line_num + 1  # a quoted field may span lines
        except csv.Error as error:  # an unclosed quotation mark that swallows the file
            yield Problem(path, row, f"cannot be read: {error}", mend)


def sound(items: Iterable[Any], none: Problem) -> list[Any]:
    """All items; raises DataError for the first one that is a Problem, and `none` without any."""
    records = []
    for item in items:
        if isinstance(item, Problem):
            raise DataError(item)
        records.append(item)
    if not records:
        raise DataError(none)
    return records
