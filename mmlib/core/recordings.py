"""Recordings: the files of evidence, which are written once and never changed.

`evidence/<tier>/<paper>/<data set>/NNN-HASH.parquet` has what was recorded of a data set at once: a
row a series, and the header as JSON in the Parquet metadata under "mmlib". HASH is the beginning of
the SHA-256 of the file's bytes, so that a flipped bit, a lost end or another name is found at
reading. Another system, more seeds, or those of another machine are another file. What series must
hold is checked when they are written and whenever they are read.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mmlib.core.engine import SECONDS
from mmlib.core.errors import DataError
from mmlib.core.evidence import EPOCHS, Evidence, grouped, in_order
from mmlib.core.files import regular_file
from mmlib.core.jobs import JOB, NO_SEED, SERIES
from mmlib.core.paths import write_atomic

NAME = re.compile(r"(\d{3,})-([0-9a-f]{16})\.parquet")
ASIDE = "replaced"  # the folder of what was recorded anew
COLUMNS = pa.schema([
    *(("system", pa.string()), ("seed", pa.int32()), ("split", pa.string())),
    *(("metric", pa.string()), ("value", pa.list_(pa.float32()))),
    ("cluster", pa.list_(pa.int32())),  # of the first series of each split, null in the others
])  # fmt: skip
BY_DATASET = ("settings", "data", "inapplicable", "systems")
MEND = "get it again, or move it away and record anew"


def check(
    series: pd.DataFrame, bounds: Mapping[str, Sequence[float | None]], may_skip: str
) -> None:
    """Raises ValueError(what is wrong, row) for the first series that breaks the contract.

    bounds: pattern of a metric's whole name -> its lowest and highest value, None for no limit; the
    first that fits counts. may_skip: the pattern of metrics that leave items out (NaN); an item
    that one system skips, all skip: a document without links has no AUC.
    """
    series = series.reset_index(drop=True)

    def refuse(wrong: np.ndarray | pd.Series, problem: str) -> None:
        if len(rows := np.flatnonzero(wrong)):
            named = series.iloc[rows[0]]
            name = "{metric} of {system}, seed {seed}, on {dataset} ({split})".format(**named)
            raise ValueError(problem.format(name, value=worst[rows[0]]), int(rows[0]))

    sizes = series["value"].map(len).to_numpy()
    worst = np.zeros(len(series))
    refuse(sizes == 0, "{} has no value")
    refuse(series["seed"] < NO_SEED, "{}: no such seed")
    refuse(series.duplicated(list(SERIES)), "{} is there twice")
    seeds = series.groupby("system")["seed"].nunique()
    of_metric = series.groupby(["system", "split", "metric"])["seed"].transform("nunique")
    refuse(of_metric != series["system"].map(seeds), "not every seed of its system has {}")
    first = series.drop_duplicates("split").set_index("split")["cluster"]
    columns = (series[name] for name in ("split", "value", "cluster"))
    fits = [
        split == EPOCHS or (len(value) == len(own) and np.array_equal(own, all_))  # no NaN, either
        for split, value, own, all_ in zip(*columns, series["split"].map(first), strict=True)
    ]
    refuse(~np.array(fits), "{} has other items or clusters than other series")

    values, starts = np.concatenate([*series["value"]]), np.cumsum(sizes) - sizes
    limits = {
        metric: next((b for pattern, b in bounds.items() if re.fullmatch(pattern, metric)), ())
        for metric in series["metric"].unique()
    }
    for number, (extreme, beyond) in enumerate(((np.fmin, np.less), (np.fmax, np.greater))):
        limit = {metric: b[number] for metric, b in limits.items() if b and b[number] is not None}
        worst = extreme.reduceat(values, starts)
        outside = beyond(worst, series["metric"].map(limit).astype(float))
        refuse(outside | np.isinf(worst), "{} is {value:g}")
    skipped = np.logical_or.reduceat(np.isnan(values), starts)
    skips = series["metric"].str.fullmatch(may_skip) & ~series["split"].isin([EPOCHS, JOB])
    refuse(skipped & ~skips, "{} is not a number")
    masks = series["value"].where(skips & series["metric"].isin(series["metric"][skipped])).dropna()
    for _, rows in masks.groupby([series["split"], series["metric"]]):
        others = [(np.isnan(own) != np.isnan(rows.iloc[0])).any() for own in rows]
        refuse(series.index.isin(rows.index[others]), "{} skips other items than other series")


def file_name(name: str) -> str:
    """A name of data sets or systems without characters that no file's name should have."""
    return re.sub(r"[^\w.]+", "-", name).strip("-.")


def paths_of(folder: Path) -> list[Path]:
    """The recordings of a folder, by data set and number."""
    return sorted(folder.glob("[!.]*/[!.]*.parquet"))


def write(
    folder: Path, series: pd.DataFrame, header: Mapping[str, Any], replace: Collection[str] = ()
) -> list[Path]:
    """Write a recording of each data set; returns the files.

    series: as `engine.tidy` returns them. header: of `evidence.header`, with paper, tier,
    method_version, device, inputs; by data set settings, data, inapplicable, systems (what each
    is); bounds and may_skip as `check` takes them. What is by data set may tell of others, too.
    replace: data sets whose earlier recordings are set aside.
    Raises DataError for series that break the contract; nothing is then written.
    """
    header = {"systems": {}, "bounds": {}, "may_skip": "", **header}
    contents: dict[str, bytes] = {}
    for dataset, rows in series.groupby("dataset"):
        try:
            check(rows, header["bounds"], header["may_skip"])
        except ValueError as error:
            raise DataError(f"{folder}: not written, {error.args[0]}") from None
        recorded = set(rows["system"])
        of_dataset = {
            name: {k: v for k, v in header[name].items() if k == dataset} for name in BY_DATASET
        }
        systems = header["systems"].get(dataset, {})
        of_dataset["systems"] = {dataset: {k: v for k, v in systems.items() if k in recorded}}
        rows = rows.sort_values(["split", "metric", "system", "seed"])  # alike: compresses better
        rows = rows.assign(cluster=rows["cluster"].where(~rows.duplicated("split"), None))
        table = pa.Table.from_pandas(rows[COLUMNS.names], COLUMNS, preserve_index=False)
        text = json.dumps({**header, **of_dataset}, ensure_ascii=False)
        # A name of a file that is no UTF-8 has half characters: as "\\udcff" they are read back.
        table = table.replace_schema_metadata({"mmlib": text.encode(errors="backslashreplace")})
        # Large pages: what repeats from series to series is then written once.
        options = {"compression": "zstd", "compression_level": 19, "data_page_size": 1 << 20}
        pq.write_table(table, buffer := pa.BufferOutputStream(), **options)
        contents[dataset] = buffer.getvalue().to_pybytes()
    paths = []
    for dataset, content in contents.items():
        target = folder / file_name(dataset)
        if dataset in replace and target.exists():
            aside = folder / ASIDE / f"{datetime.now():%Y-%m-%dT%H%M%S}" / target.name
            aside.parent.mkdir(parents=True, exist_ok=True)
            target.rename(aside)
        names = [NAME.fullmatch(old.name) for old in target.glob("*")]
        numbers = [int(name[1]) for name in names if name]
        path = target / f"{max(numbers, default=0) + 1:03d}-{_hash(content)}.parquet"
        write_atomic(path, partial(Path.write_bytes, data=content))
        paths.append(path)
    return paths


def read(folder: Path) -> Evidence:
    """The evidence of a folder, of all its recordings, as if all had been recorded at once.

    Raises DataError, with the file, for one that is damaged, breaks the contract or contradicts
    another one.
    """
    paths = paths_of(folder)
    if not paths:
        raise DataError(f"{folder}: no evidence is recorded (mmlib record makes it)")
    headers: list[dict[str, Any]] = []
    pieces = []
    for path in paths:
        piece, header = _read(path)
        for earlier in headers:
            if difference := disagreement(earlier, header):
                raise DataError(
                    f"{folder / earlier['file']} and {header['file']}: differ in {difference}; "
                    "record anew (--replace), or move one of them away"
                )
        pieces.append(piece.assign(file=len(headers)))
        headers.append(header)
    series = pd.concat(pieces, ignore_index=True)
    bounds = {pattern: limits for header in headers for pattern, limits in header["bounds"].items()}
    may_skip = "|".join(dict.fromkeys(header["may_skip"] for header in headers))
    for _, rows in series.groupby("dataset"):
        try:
            check(rows, bounds, may_skip)
        except ValueError as error:
            problem, row = error.args
            path = paths[rows["file"].iloc[row]]
            raise DataError(f"{path}: damaged, {problem}; {MEND}") from None
    header = {name: headers[0][name] for name in ("paper", "tier", "method_version", "machine")}
    header["settings"] = {k: how for one in headers for k, how in one["settings"].items()}
    header["cpu_seconds"] = round(sum(one["cpu_seconds"] for one in headers))
    header["features"] = next((one["features"] for one in headers if "features" in one), {})
    return Evidence(in_order(series.drop(columns="file")), header, headers)


def _read(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The series of a file and its header, with its file, jobs and CPU seconds."""
    name, content = NAME.fullmatch(path.name), regular_file(path, MEND).read_bytes()
    if not name or name[2] != (actual := _hash(content)):
        problem = "its name has not its hash" if not name else f"its content has the hash {actual}"
        raise DataError(f"{path}: damaged or renamed, {problem}; {MEND}")
    try:
        table = pq.read_table(pa.BufferReader(content), use_threads=False)
        header = json.loads(table.schema.metadata[b"mmlib"])
        if not table.schema.equals(COLUMNS):
            raise ValueError("it has other columns")
        (dataset,) = header["settings"]
        folder = Path(header["tier"], header["paper"], file_name(dataset))
        if folder.parts != path.parts[-4:-1]:
            raise ValueError(f"it is of {folder}")
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({error}); {MEND}") from None
    series = table.select(["system", "seed", "split", "metric"]).to_pandas()
    series.insert(0, "dataset", dataset)
    for column in ("value", "cluster"):
        lists = table[column].combine_chunks()
        values = lists.values.to_numpy(zero_copy_only=False)  # a null is NaN
        arrays = np.split(values, lists.offsets.to_numpy()[1:-1])
        series[column] = pd.Series(arrays, dtype=object)
    first = series[~series.duplicated("split")].set_index("split")["cluster"].to_dict()
    series["cluster"] = [  # curves may differ in length
        np.zeros(len(value), np.int32) if split == EPOCHS else first[split]
        for split, value in zip(series["split"], series["value"], strict=True)
    ]
    jobs = grouped(series[["dataset", "system", "seed"]].itertuples(index=False, name=None))
    header["jobs"] = {d: {s: sorted(n) for s, n in systems.items()} for d, systems in jobs.items()}
    seconds = float(sum(map(sum, series["value"][series["metric"] == SECONDS])))
    return series, {**header, "file": f"{path.parent.name}/{path.name}", "cpu_seconds": seconds}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def disagreement(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> str:
    """In what two headers differ that must be the same; empty where they agree.

    Machines of other arithmetic round features otherwise, so fingerprints of data may differ where
    neither lacks an input. `same_data` of a header names those that differ by rounding alone.
    """
    both = (earlier, later)
    if earlier["method_version"] != later["method_version"]:
        return "the version of the method"
    if len({h.get("precision", "float32") for h in both}) > 1:
        return "the precision of trainings"
    if len({h["features"]["sha256"] for h in both if h.get("features")}) > 1:
        return "the image features"
    for kind, words in (("inputs", "the input"), ("settings", "the settings of")):
        for name in earlier[kind].keys() & later[kind].keys():
            if earlier[kind][name] != later[kind][name]:
                return f"{words} {name}"
    alike = earlier["machine"].get("arithmetic") == later["machine"].get("arithmetic") is not None
    inputs = {n for n in earlier["inputs"].keys() ^ later["inputs"].keys() if "/features/" not in n}
    for name in earlier["settings"].keys() & later["settings"].keys():
        prints = [{h["data"][name], *h.get("same_data", {}).get(name, ())} for h in both]
        if prints[0].isdisjoint(prints[1]) and (alike or inputs):
            return f"the data of {name}" + (f" ({min(inputs)} for one only)" if inputs else "")
        before, after = (header["systems"].get(name, {}) for header in (earlier, later))
        for system in before.keys() & after.keys():
            if any(after[system].get(k, v) != v for k, v in before[system].items()):
                return f"what {system} on {name} is"
    return ""


def incomplete(evidence: Evidence, experiment: Any) -> list[str]:
    """What a complete record of the tier would have and this one lacks, in sentences.

    A system that no recording of a data set had a use for is not missing.
    """
    tier, recorded, gaps = evidence.header["tier"], grouped(evidence.jobs), list[str]()
    every = experiment.datasets(tier)
    users = not set(recorded) <= set(every)  # a data set of the reader's own, alone
    for dataset in dict.fromkeys([*([] if users else every), *sorted(recorded)]):
        if dataset not in recorded:
            gaps.append(f"{dataset} was not recorded")
            continue
        systems = recorded[dataset]
        headers = [header["inapplicable"] for header in evidence.recordings]
        unused = [set(names[dataset]) for names in headers if dataset in names]
        wanted = experiment.systems(tier, dataset).keys() - (unused and set.intersection(*unused))
        if missing := sorted(wanted - systems.keys()):
            gaps.append(f"{dataset}: {', '.join(missing)} not recorded")
        seeds = set().union(*systems.values()) - {NO_SEED}
        lacking: dict[tuple[int, ...], list[str]] = {}
        for system, own in sorted(systems.items()):
            if NO_SEED not in own and own != seeds:
                lacking.setdefault(tuple(sorted(seeds - own)), []).append(system)
        for lost, without in lacking.items():
            gaps.append(f"{dataset}: {', '.join(without)} without seed {ranges(lost)}")
    return gaps


def ranges(seeds: Sequence[int]) -> str:
    """Sorted seeds in short: [0, 1, 2, 5] is "0–2, 5"."""
    runs = [list(run) for _, run in groupby(seeds, key=lambda seed: seed - seeds.index(seed))]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
