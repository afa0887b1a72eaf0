"""Recordings: the files of evidence, which are written once and never changed.

`evidence/<tier>/<paper>/NNN-HASH.parquet` is one recording: a tidy table, with its header as JSON
in the Parquet metadata under "mmlib". HASH is the beginning of the SHA-256 of the file's bytes, so
that a flipped bit, a lost end or another name is found at reading. More seeds, or those of another
machine, are another file; all files of a folder are read together.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mmlib.core.contract import Contract, Damage, Run, jobs_of
from mmlib.core.engine import SECONDS
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence, features_of
from mmlib.core.jobs import COMMON
from mmlib.core.paths import write_atomic

NAME = re.compile(r"(\d{3,})-([0-9a-f]{16})\.parquet")
ASIDE = "replaced"  # the folder of what was recorded anew
# What a header must have; `write` itself adds the last three.
NEEDED = {
    "paper", "tier", "method_version", "commit", "versions", "python", "machine", "device",
    "settings", "data", "inputs", "inapplicable", "jobs", "cpu_seconds", "digest",
}  # fmt: skip
# Of which form; a dict is by name, be it of a data set, a system or a file.
FORM: dict[str, Any] = {
    "paper": str, "tier": str, "method_version": int, "versions": dict, "machine": dict,
    "settings": {"": dict}, "data": {"": str}, "inputs": {"": str}, "inapplicable": {"": [str]},
    "jobs": {"": {"": [int]}}, "cpu_seconds": int, "digest": str,
    "replaces": {"": [str]}, "same_data": {"": [str]}, "features": dict,
}  # fmt: skip
MEND = "get it again, or move it away and record anew"


@dataclass(frozen=True, eq=False)
class Recording:
    """One file: its table, the table's runs, and its header."""

    path: Path
    table: pd.DataFrame
    runs: Sequence[Run]
    header: Mapping[str, Any]


def folder_of(evidence: Path, tier: str, paper: str) -> Path:
    """Where the recordings of a paper on a tier are."""
    return evidence / tier / paper


def paths_of(folder: Path) -> list[Path]:
    """The recordings of a folder, by number."""
    return sorted(folder.glob("[!.]*.parquet"))


# --- Writing -----------------------------------------------------------------------------------


def write(folder: Path, table: pd.DataFrame, header: Mapping[str, Any]) -> Path:
    """Write a recording; returns its file.

    table: as `engine.canonical` returns it. header: all of `NEEDED` but jobs, cpu_seconds and
    digest, which are computed. Raises DataError for a table that breaks the contract.
    """
    try:
        runs = Contract(header["paper"], header["tier"]).check(table)
    except Damage as damage:
        raise DataError(f"{folder}: not written, {damage}") from None
    header = {**header, "jobs": jobs_of(runs), "cpu_seconds": seconds_of(table)}
    header["digest"] = digest_of(table)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    text = json.dumps(header, ensure_ascii=False)
    arrow = arrow.replace_schema_metadata({**arrow.schema.metadata, "mmlib": text})
    counts = [field.name for field in arrow.schema if pa.types.is_integer(field.type)]
    buffer = pa.BufferOutputStream()
    pq.write_table(  # items and clusters count up, row after row: their differences are tiny
        arrow, buffer, compression="zstd", compression_level=19,
        use_dictionary=[name for name in arrow.column_names if name not in counts],
        column_encoding=dict.fromkeys(counts, "DELTA_BINARY_PACKED"),
    )  # fmt: skip
    content = buffer.getvalue().to_pybytes()
    path = folder / f"{_next_number(folder):03d}-{_hash(content)}.parquet"
    write_atomic(path, lambda file: file.write_bytes(content))
    return path


def seconds_of(table: pd.DataFrame) -> int:
    """The CPU seconds of all jobs of a table."""
    return round(table.value[table.metric == SECONDS].astype(float).sum())


def digest_of(table: pd.DataFrame) -> str:
    """A hash of a table's values, in their order, whatever the file that holds them."""
    return _hash(np.ascontiguousarray(table["value"].to_numpy()))


def _hash(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _next_number(folder: Path) -> int:
    """One more than the highest number of a recording, also of those that were set aside."""
    names = [NAME.fullmatch(path.name) for path in folder.rglob("*.parquet")]
    return max((int(name[1]) for name in names if name), default=0) + 1


def set_aside(folder: Path) -> None:
    """Move recordings of which every data set was recorded anew out of the way."""
    live = {header["file"] for header in headers(folder)}
    for path in paths_of(folder):
        if path.name not in live:
            aside = folder / ASIDE / date.today().isoformat()
            aside.mkdir(parents=True, exist_ok=True)
            path.rename(aside / path.name)


# --- Reading -----------------------------------------------------------------------------------


def read(folder: Path) -> Evidence:
    """The evidence of a folder, of all its recordings. Raises DataError, with the file and the row.

    The table is in the order of `engine.canonical`, as if all had been recorded at once.
    """
    tier, paper = folder.parent.name, folder.name
    paths = paths_of(folder)
    if not paths:
        raise DataError(f"{folder}: no evidence is recorded (mmlib record makes it)")
    parsed = {path: _parsed(path, _content(path)) for path in paths}
    live = _live({path: header for path, (_, header) in parsed.items()})
    contract = Contract(paper, tier)
    recordings = [
        _checked(path, *parsed.pop(path), live[path], contract) for path in paths if live[path]
    ]
    _check_agreement(recordings)
    table = _merged(recordings)
    headers = [recording.header for recording in recordings]
    settings = {name: how for header in headers for name, how in header["settings"].items()}
    first = {name: headers[0][name] for name in ("paper", "tier", "method_version", "machine")}
    header = {**first, "settings": settings, "cpu_seconds": seconds_of(table)}
    header["features"] = features_of(headers[0])
    return Evidence(table, header, headers)


def headers(folder: Path) -> list[dict[str, Any]]:
    """The headers of the recordings that are in use; `read` looks at their tables, too.

    Of a recording of which some data sets were recorded anew, the header tells of the others.
    Raises DataError for a damaged file.
    """
    every = {path: _parsed(path, _content(path))[1] for path in paths_of(folder)}
    return [restricted(every[path], names) for path, names in _live(every).items() if names]


def _checked(
    path: Path, arrow: pa.Table, header: Mapping[str, Any], datasets: list[str], contract: Contract
) -> Recording:
    """A recording of these of its data sets. Raises DataError where it breaks the contract."""
    for name, wanted in (("paper", contract.paper), ("tier", contract.tier)):
        if header[name] != wanted:
            raise DataError(f"{path}: is of the {name} {header[name]}; {MEND}")
    table = arrow.to_pandas(split_blocks=True, self_destruct=True)
    try:
        if digest_of(table) != header["digest"]:
            raise Damage("its values are not those of its header")
        if datasets != list(header["jobs"]):
            table = trimmed(table[table.dataset.isin(datasets)])
            header = restricted(header, datasets)
        return Recording(path, table, contract.check(table, header["jobs"]), header)
    except Damage as damage:
        raise DataError(f"{path}: damaged, {damage}; {MEND}") from None


def _content(path: Path) -> bytes:
    """The bytes of a file whose name has their hash."""
    name, content = NAME.fullmatch(path.name), path.read_bytes()
    if not name or name[2] != (actual := _hash(content)):
        problem = "its name has not its hash" if not name else f"its content has the hash {actual}"
        raise DataError(f"{path}: damaged or renamed, {problem}; {MEND}")
    return content


def _parsed(path: Path, content: bytes) -> tuple[pa.Table, dict[str, Any]]:
    try:
        table = pq.read_table(pa.BufferReader(content), use_threads=False, pre_buffer=False)
        header = json.loads(table.schema.metadata[b"mmlib"])
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); {MEND}") from None
    if fault := _fault(header):
        raise DataError(f"{path}: damaged, its header has {fault}; {MEND}")
    return table, {**header, "file": path.name}


def _fault(header: Any) -> str:
    """What a header lacks, or has in another form or of other data sets; empty if it is sound."""
    if not isinstance(header, dict):
        return "no names"
    if lacking := NEEDED - header.keys():
        return f"no {min(lacking)}"
    for name in FORM.keys() & header.keys():
        if not _has_form(header[name], FORM[name]):
            return f"{name} {json.dumps(header[name], ensure_ascii=False)[:60]}"
    sets = header["settings"].keys()
    if header["data"].keys() != sets:
        return "other data sets in data than in settings"
    for name in ("jobs", "inapplicable"):
        if not header[name].keys() <= sets:
            return f"{name} of data sets without settings"
    return ""


def _has_form(value: Any, form: Any) -> bool:
    if isinstance(form, type):
        return isinstance(value, form)
    if not isinstance(value, type(form)):
        return False
    (inner,), values = (form.values(), value.values()) if isinstance(form, dict) else (form, value)
    return all(_has_form(one, inner) for one in values)


def _live(headers: Mapping[Path, Mapping[str, Any]]) -> dict[Path, list[str]]:
    """The data sets of each file that no other file replaces."""
    replaced = {
        (name, dataset)
        for header in headers.values()
        for name, datasets in header.get("replaces", {}).items()
        for dataset in datasets
    }
    return {
        path: [name for name in header["jobs"] if (path.name, name) not in replaced]
        for path, header in headers.items()
    }


def restricted(header: Mapping[str, Any], datasets: list[str]) -> dict[str, Any]:
    """A header as if these data sets alone had been recorded."""
    by_dataset = {
        name: {dataset: value for dataset, value in header[name].items() if dataset in datasets}
        for name in ("jobs", "settings", "data", "inapplicable")
    }
    return {**header, **by_dataset}


def trimmed(table: pd.DataFrame) -> pd.DataFrame:
    """Some rows of a table, numbered anew, without columns and names that are no longer used."""
    table = table.reset_index(drop=True)
    for name in table.select_dtypes("category"):
        table[name] = table[name].cat.remove_unused_categories()
    empty = [name for name in table if name not in COMMON and table[name].isna().all()]
    return table.drop(columns=empty)


def _check_agreement(recordings: Sequence[Recording]) -> None:
    """Raises DataError for two recordings that cannot be of one experiment."""
    for i, later in enumerate(recordings):
        for earlier in recordings[:i]:
            if difference := disagreement(earlier.header, later.header) or _other_systems(
                earlier, later
            ):
                raise DataError(
                    f"{earlier.path} and {later.path.name}: differ in {difference}; record anew "
                    "(--replace), or move one of them away"
                )


def disagreement(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> str:
    """In what two headers differ that must be the same; empty where they agree.

    Machines of other arithmetic compute features with other rounding, and the fingerprints of their
    data may differ. `same_data` of a header names fingerprints that differ in rounding alone.
    """
    if earlier["method_version"] != later["method_version"]:
        return "the version of the method"
    hashes = {features_of(header).get("sha256") for header in (earlier, later)}
    if len(hashes - {None}) > 1:
        return "the image features"
    for name in earlier["inputs"].keys() & later["inputs"].keys():
        if earlier["inputs"][name] != later["inputs"][name]:
            return f"the input {name}"
    alike = earlier["machine"].get("arithmetic") == later["machine"].get("arithmetic") is not None
    for name in earlier["settings"].keys() & later["settings"].keys():
        if earlier["settings"][name] != later["settings"][name]:
            return f"the settings of {name}"
        prints = [
            {h["data"][name], *h.get("same_data", {}).get(name, ())} for h in (earlier, later)
        ]
        if alike and not prints[0] & prints[1]:
            return f"the data of {name}"
    return ""


def _other_systems(earlier: Recording, later: Recording) -> str:
    """Systems that differ in a column, or jobs that both have; empty where there are none."""
    columns = [Evidence(recording.table, {}).columns() for recording in (earlier, later)]
    for key in columns[0].keys() & columns[1].keys():
        if columns[0][key] != columns[1][key]:
            return f"what {key[1]} on {key[0]} is"
    jobs = [{run[:3] for run in recording.runs} for recording in (earlier, later)]
    if shared := sorted(jobs[0] & jobs[1]):
        dataset, system, seed = shared[0]
        return f"the values of {system}, seed {seed}, on {dataset}, which both have"
    return ""


def _merged(recordings: Sequence[Recording]) -> pd.DataFrame:
    """One table of all, its rows in the order of `engine.canonical`.

    The rows of a job stand together and in order, so that jobs alone are sorted.
    """
    if len(recordings) == 1:
        return recordings[0].table
    blocks: dict[tuple[str, str, int], tuple[int, int, int]] = {}
    for number, recording in enumerate(recordings):
        for run in recording.runs:
            key = run[:3]
            start = blocks[key][1] if key in blocks else run.start
            blocks[key] = (number, start, run.stop)
    tables = [recording.table for recording in recordings]
    starts = np.cumsum([0, *map(len, tables)])
    rows = [
        np.arange(start, stop) + starts[number]
        for number, start, stop in (blocks[key] for key in sorted(blocks))
    ]
    systems = sorted({name for table in tables for name in table}.difference(COMMON))
    tables = [table.reindex(columns=[*COMMON[:5], *systems, *COMMON[5:]]) for table in tables]
    for name in (*COMMON[:5], *systems, "metric"):  # one set of categories, sorted
        columns = [table[name].astype("category").cat for table in tables]
        names = sorted(set().union(*(column.categories for column in columns)))
        for table, column in zip(tables, columns, strict=True):
            table[name] = column.set_categories(names)
    merged = pd.concat(tables, ignore_index=True)
    return merged.iloc[np.concatenate(rows)].reset_index(drop=True)
