"""`mmlib record` makes a paper's evidence, `mmlib judge` reads it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from mmlib.core import evidence as records
from mmlib.core.claims import Judged, judge, ledger
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence, evidence_dir
from mmlib.core.experiment import SECONDS, as_text, canonical, run_jobs, tidy
from mmlib.core.forest import forest
from mmlib.core.jobs import Answer, Job
from mmlib.core.outline import alike, outline
from mmlib.core.parallel import connect
from mmlib.core.paths import write_atomic
from mmlib.core.source import source_hash
from mmlib.core.tables import write_json

# The rooms that have evidence, by the number of their notebook (00 has claims, but no paper).
PAPERS = {"00": "start", "01": "coherence", "02": "entailment", "03": "cora", "04": "links"}
EVERY = 600.0  # seconds after which what is finished is written


def record(
    number: str,
    tier: str,
    seeds: Sequence[int],
    *,
    datasets: Sequence[str] = (),
    device: str = "cpu",
    workers: int = 0,
    cluster: str = "",
    folder: Path | None = None,
    jobs_folder: Path | None = None,
) -> Evidence:
    """Run a paper's whole grid for these seeds, and write `<folder>/<tier>/<paper>.parquet`.

    What the file holds of the same code, data and settings is kept, so that seeds can be added
    later, also on another machine, whose arithmetic gives the same data (`mmlib.core.outline`):
    the header's `added` then says which seeds are whose. Jobs that are finished are not run
    again; every ten minutes the file is written anew.
    cluster: a Dask scheduler's address; on it stages that measure time have one job at a time.
    Raises DataError for a paper without evidence, a scheduler that does not answer, and what
    loading its data raises.
    """
    experiment, data_module = room(number, "experiment"), room(number, "data")
    if cluster:  # found out now, not after the documents are built
        connect(cluster).close()
    study = data_module.load_documents(tier, datasets)
    data = data_module.load_arrays(study, tier)
    folder = (folder or evidence_dir()) / tier
    head = records.header(
        paper=experiment.PAPER, tier=tier, source=source_hash(*experiment.MODULES),
        data={name: own.fingerprint for name, own in data.items()},
        outlines={name: outline(own) for name, own in data.items()},
        settings={name: asdict(experiment.budget(tier, name)) for name in data},
    )  # fmt: skip
    stages = experiment.stages(tier, data, seeds)
    kept = _kept(folder, head, experiment)
    done: list[tuple[Job, Answer]] = []
    written = time.monotonic()

    def write(last: bool = False) -> Evidence | None:
        nonlocal written
        if not done or not (last or time.monotonic() - written > EVERY):
            return None
        written = time.monotonic()
        found = _merged(kept, done, data, head)
        records.write(folder, experiment.PAPER, found)
        return found

    def on_answer(job: Job, answer: Answer) -> None:
        done.append((job, answer))
        write()

    for function, jobs, side_by_side in stages:
        run_jobs(
            function, [job for job in jobs if not _is_kept(job, kept)], data, folder=jobs_folder,
            device=device, workers=workers, cluster=cluster, side_by_side=side_by_side,
            label=f"{experiment.PAPER}, {tier}: {function.__name__}", on_answer=on_answer,
        )  # fmt: skip
    found = write(last=True) or kept
    assert found is not None
    return found


def _kept(folder: Path, head: dict[str, Any], experiment: ModuleType) -> Evidence | None:
    """What is on record of the same code, data, settings and systems; None where nothing is.

    Data sets that this call leaves alone stay as they are.
    """
    try:
        old = records.read(folder, head["paper"])
    except DataError:
        return None
    if old.header.get("source") != head["source"]:
        _announce(folder, head, list(old.header["data"]), "code")
        return None
    same = [
        name
        for name in head["data"]
        if old.header["settings"].get(name) == head["settings"][name]
        and _same_data(old.header, head, name)
    ]
    changed = [name for name in head["data"] if name in old.header["data"] and name not in same]
    if changed:
        _announce(folder, head, changed, "data or settings")
    others = [name for name in old.header["data"] if name not in head["data"]]
    begun = dict(old.header)
    for part in ("data", "outlines", "settings"):
        known = old.header.get(part, {})
        head[part] = {name: known[name] for name in others if name in known} | head[part]
        begun[part] = {name: known[name] for name in [*same, *others] if name in known}
    rows = old.table[old.table.dataset.isin([*same, *others])]
    for dataset, system in _changed(old, head["tier"], experiment):
        if dataset in same:
            rows = rows[~((rows.dataset == dataset) & (rows.system == system))]
    return Evidence(rows, begun) if len(rows) else None


def _announce(folder: Path, head: Mapping[str, Any], names: Sequence[str], other: str) -> None:
    """Say, before hours pass, that a record will be replaced: the user may want to keep it."""
    path = folder / f"{head['paper']}.parquet"
    told = f"what it holds of {', '.join(names)} is of other {other} and will be replaced"
    print(f"{path}: {told}", file=sys.stderr)


def _same_data(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> bool:
    """Whether a data set is what it was, perhaps computed on another machine."""
    if old["data"].get(name) == new["data"][name]:
        return True
    outlines = old.get("outlines", {})
    return name in outlines and alike(outlines[name], new["outlines"][name])


def _changed(found: Evidence, tier: str, experiment: ModuleType) -> list[tuple[str, str]]:
    """(data set, system) for those on record that are no longer what they were."""
    now = {dataset: experiment.systems(tier, dataset) for dataset in found.datasets}
    return [
        (dataset, system)
        for (dataset, system), columns in found.columns().items()
        if columns != as_text(now[dataset].get(system, {}))
    ]


def _is_kept(job: Job, kept: Evidence | None) -> bool:
    return kept is not None and kept.has_job(job.dataset, job.system["system"], job.seed)


def _merged(
    kept: Evidence | None, done: list[tuple[Job, Answer]], data: Any, head: dict[str, Any]
) -> Evidence:
    jobs, answers = zip(*done, strict=True)
    table = tidy(jobs, answers, data)
    if kept is not None:
        table = canonical(pd.concat([kept.table.astype(object), table.astype(object)]))
        head = _with_origins(head, kept.header, jobs)
    seconds = table.value[table.metric == SECONDS].astype(float).sum()
    return Evidence(
        table, {**head, "cpu_seconds": round(seconds), "seeds": Evidence(table, head).seeds}
    )


def _with_origins(
    here: dict[str, Any], begun: Mapping[str, Any], jobs: Sequence[Job]
) -> dict[str, Any]:
    """The header of a record that was begun elsewhere, perhaps, and goes on here.

    The machine that began it stands at the top, others with their data and seeds in `added`: a
    figure is held to the seeds of its like.
    """
    origin = ("commit", "versions", "python", "machine")
    names = dict.fromkeys(job.dataset for job in jobs)
    data, seeds = {name: here["data"][name] for name in names}, {job.seed for job in jobs}
    added = [
        {**one, "data": {name: p for name, p in one["data"].items() if name in begun["data"]}}
        for one in begun.get("added", ())
    ]

    def is_ours(one: Mapping[str, Any]) -> bool:
        return (
            all(one[name] == here[name] for name in ("machine", "versions"))
            and all(one["data"].get(name, data[name]) == data[name] for name in data)
        )  # fmt: skip

    top = here if is_ours(begun) else {name: begun[name] for name in origin}
    if top is not here:
        if not (own := next(filter(is_ours, added), None)):
            own = {**{name: here[name] for name in origin}, "data": {}, "seeds": []}
            added.append(own)
        own |= {"data": own["data"] | data, "seeds": sorted(seeds.union(own["seeds"]))}
    merged = {**here, **top, "data": here["data"] | begun["data"]}
    return {**merged, "added": added} if added else merged


def judge_paper(number: str, tier: str, folder: Path | None = None) -> list[Judged]:
    """Every claim of a paper, judged from its evidence alone. Raises DataError, see `read`."""
    return _judged(number, read(number, tier, folder))


def _judged(number: str, found: Evidence) -> list[Judged]:
    return [judge(claim, found, found.seeds) for claim in room(number, "claims").CLAIMS]


def read(number: str, tier: str, folder: Path | None = None) -> Evidence:
    """A paper's evidence. Raises DataError where there is none, and where code, settings or the
    columns of a system have changed since.
    """
    experiment = room(number, "experiment")
    found = records.read((folder or evidence_dir()) / tier, experiment.PAPER, *experiment.MODULES)
    for name, settings in found.header["settings"].items():
        if settings != asdict(experiment.budget(tier, name)):
            raise DataError(f"evidence of {tier}, {name}: its settings have changed; record anew")
    for dataset, system in _changed(found, tier, experiment):
        raise DataError(f"evidence of {tier}, {dataset}: {system} has changed; record anew")
    return found


def room(number: str, module: str) -> ModuleType:
    """A module of the paper with this number. Raises DataError for one that has no evidence."""
    if number not in PAPERS:
        raise DataError(f"no paper {number!r} has evidence; there is {', '.join(PAPERS)}")
    return import_module(f"mmlib.papers.{PAPERS[number]}.{module}")


def write_judgement(number: str, tier: str, out: Path, folder: Path | None = None) -> str:
    """Write every table, figure and verdict of a paper's evidence into `out`; the ledger as text.

    Nothing is trained and no data is loaded. `out` gets verdicts.json, a CSV file a table and a
    PNG file a figure.
    """
    found = read(number, tier, folder)
    judged = _judged(number, found)
    tables, figures = room(number, "figures").everything(found)
    tables["ledger"] = ledger(judged).set_index("id")
    figures["claims"] = forest(judged)
    for name, table in tables.items():
        write_atomic(out / f"{name}.csv", table.to_csv)
    for name, figure in figures.items():
        write_atomic(out / f"{name}.png", figure.savefig)
    write_json(out / "verdicts.json", [one.record() for one in judged])
    shown = tables["ledger"][["claim", "effect, 95 % interval", "verdict"]]
    return f"{shown.to_string()}\n\n{len(found.seeds)} seeds; all of it is in {out}"
