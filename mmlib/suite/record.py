"""`mmlib record` makes a paper's evidence, `mmlib judge` reads it."""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import replace as replaced
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout
from matplotlib import rc_context

from mmlib.core import evidence as records
from mmlib.core import plots
from mmlib.core.claims import Judged, judge, ledger, parts_table
from mmlib.core.engine import SECONDS, Resources, as_text, canonical, run_jobs, tidy
from mmlib.core.errors import DataError
from mmlib.core.evidence import NO_SEED, Evidence, evidence_dir
from mmlib.core.experiment import Experiment
from mmlib.core.forest import forest
from mmlib.core.jobs import Answer, Job
from mmlib.core.outline import alike, outline
from mmlib.core.parallel import connect
from mmlib.core.paths import data_dir, write_atomic
from mmlib.core.tables import write_json
from mmlib.suite.papers import experiment as experiment_of


def record(
    number: str,
    tier: str,
    seeds: Sequence[int],
    *,
    datasets: Sequence[str] = (),
    resources: Resources = Resources(),  # noqa: B008  it is frozen
    replace: bool = False,
    folder: Path | None = None,
) -> Evidence:
    """Run a paper's whole grid for these seeds, and write `<folder>/<tier>/<paper>.parquet`.

    What the file holds of the same code, data and settings is kept, so that seeds can be added
    later, also on another machine, whose arithmetic gives the same data (`mmlib.core.outline`):
    the header's `added` then says which seeds are whose, and `mixed` which have systems of several
    machines. Jobs that are finished are not run again. The file is written at the end, also where
    that is an error or Ctrl-C.
    cluster: a Dask scheduler's address; on it stages that measure time have one job at a time.
    replace: record anew what the file holds of other code, data or settings.
    Raises DataError for a paper without evidence, a scheduler that does not answer, a file that
    another recording is writing, or that holds what would have to be replaced, and what loading
    its data raises.
    """
    experiment = experiment_of(number)
    if resources.cluster:  # found out now, not after the documents are built
        connect(resources.cluster).close()
    folder = (folder or evidence_dir()) / tier
    with alone(folder, experiment.paper):
        study = experiment.load_study(tier, datasets)
        data = experiment.load_arrays(study, tier)
        bert = data_dir() / "bert" / "model.safetensors"  # which is read where there is one
        known = {"bert": _digest(bert)} if tier != "world" and bert.is_file() else {}
        head = records.header(
            paper=experiment.paper, tier=tier, method_version=experiment.version,
            source="",
            data={name: own.fingerprint for name, own in data.items()},
            outlines={name: outline(own) for name, own in data.items()},
            settings={name: asdict(experiment.budget(tier, name)) for name in data},
            device=resources.device, **known,
        )  # fmt: skip
        stages = experiment.stages(tier, data, seeds)
        old = _old(folder, experiment.paper)
        kept, lost = _kept(old, head, experiment) if old else (None, [])
        if lost and not replace:
            raise DataError(
                f"{folder / experiment.paper}.parquet holds {'; '.join(lost)}: record them anew "
                "(--replace), or write elsewhere (--evidence DIR)"
            )
        done: list[tuple[Job, Answer]] = []
        try:
            for stage in stages:
                open_jobs = [job for job in stage.jobs if not _is_kept(job, kept)]
                run_jobs(
                    replaced(stage, jobs=open_jobs), data, resources,
                    on_answer=lambda *both: done.append(both),
                    label=f"{experiment.paper}, {tier}: {stage.function.__name__}",
                )  # fmt: skip
        finally:
            if done:
                found = _merged(kept, done, data, head)
                records.write(folder, experiment.paper, found)
        if done:
            return found
        assert old is not None  # nothing was left to do
        assert kept is not None
        found = Evidence(kept.table, counted(kept.table, kept.header))
        if found.header != old.header or len(found.table) != len(old.table):
            records.write(folder, experiment.paper, found)
        return found


@contextmanager
def alone(folder: Path, paper: str) -> Iterator[None]:
    """Nobody else writes this record meanwhile: two recordings would each leave out the other."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f".{paper}.lock", timeout=0)
    try:
        with lock:
            yield
    except Timeout:
        raise DataError(
            f"{folder / paper}.parquet: another recording is writing it; wait for its end, or give "
            "this one another folder (--evidence)"
        ) from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _old(folder: Path, paper: str) -> Evidence | None:
    """The record as it lies there; None where there is none, or none that can be read."""
    try:
        return records.read(folder, paper)
    except DataError as error:
        if (folder / f"{paper}.parquet").exists():
            print(f"{error}: it will be replaced", file=sys.stderr)
        return None


def _kept(
    old: Evidence, head: dict[str, Any], experiment: Experiment[Any, Any]
) -> tuple[Evidence | None, list[str]]:
    """What is on record of the same code, data, settings and systems, or None, and what is not.

    Data sets that this call leaves alone stay as they are.
    """
    if old.header.get("method_version", 1) != head["method_version"]:
        return None, [f"{', '.join(old.header['data'])} by another version of the method"]
    same = [
        name
        for name in head["data"]
        if old.header["settings"].get(name) == head["settings"][name]
        and _same_data(old.header, head, name)
    ]
    changed = [name for name in head["data"] if name in old.header["data"] and name not in same]
    lost = [f"{name} of other data or settings" for name in changed]
    others = [name for name in old.header["data"] if name not in head["data"]]
    left_alone = of_datasets(old, others).header
    for part in ("data", "outlines", "settings"):
        head[part] = left_alone.get(part, {}) | head[part]
    kept = of_datasets(old, [*same, *others])
    rows = kept.table
    for dataset, system in _changed(old, head["tier"], experiment):
        if dataset in same:
            lost.append(f"{system} on {dataset} of other settings")
            rows = rows[~((rows.dataset == dataset) & (rows.system == system))]
    return (Evidence(rows, kept.header) if len(rows) else None), lost


def of_datasets(found: Evidence, names: Iterable[str]) -> Evidence:
    """What is on record of these data sets, as if nothing else had been; see `counted`."""
    names = set(names)

    def of_names(known: Mapping[str, Any]) -> dict[str, Any]:
        return {name: own for name, own in known.items() if name in names}

    head = dict(found.header)
    for part in ("data", "outlines", "settings", "mixed"):
        if part in head:
            head[part] = of_names(head[part])
    for part, of in (("added", "data"), ("rechecked", "seeds")):
        entries = [{**one, of: of_names(one[of])} for one in head.pop(part, ())]
        if entries := [one for one in entries if one[of]]:
            head[part] = entries
    return Evidence(found.table[found.table.dataset.isin(names)], head)


def _same_data(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> bool:
    """Whether a data set is what it was, perhaps computed on another machine."""
    if old["data"].get(name) == new["data"][name]:
        return True
    outlines = old.get("outlines", {})
    return name in outlines and alike(outlines[name], new["outlines"][name])


def _changed(found: Evidence, tier: str, experiment: Experiment[Any, Any]) -> list[tuple[str, str]]:
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
        head = _with_origins(head, kept, jobs)
    return Evidence(table, counted(table, head))


def counted(table: pd.DataFrame, head: Mapping[str, Any]) -> dict[str, Any]:
    """The header with the table's seeds and seconds."""
    seconds = table.value[table.metric == SECONDS].astype(float).sum()
    return {**head, "cpu_seconds": round(seconds), "seeds": Evidence(table, head).seeds}


def _with_origins(here: dict[str, Any], kept: Evidence, jobs: Sequence[Job]) -> dict[str, Any]:
    """The header of a record that was begun elsewhere, perhaps, and goes on here.

    The machine that began it stands at the top, others with their data and seeds in `added`: a
    figure is held to the seeds of its like. A seed of which this machine makes some systems and
    others have made some stands in `mixed`, and is nobody's.
    """
    begun: Mapping[str, Any] = kept.header
    origin = ("commit", "versions", "python", "machine", "device")
    begun = {"device": "cpu", **begun}  # older records do not say; none of them had a GPU
    names = dict.fromkeys(job.dataset for job in jobs)
    data, seeds = {name: here["data"][name] for name in names}, {job.seed for job in jobs}
    added = [dict(one) for one in begun.get("added", ())]

    def is_ours(one: Mapping[str, Any]) -> bool:
        return (
            all(one[name] == here[name] for name in ("machine", "versions"))
            and one.get("device", "cpu") == here["device"]
            and all(one["data"].get(name, data[name]) == data[name] for name in data)
        )  # fmt: skip

    known = set(kept.table[["dataset", "seed"]].itertuples(index=False, name=None))

    def others(pairs: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Data sets and seeds of which another machine has made systems."""
        made = {p: records.recorded_by(begun, *p) for p in pairs if p[1] != NO_SEED and p in known}
        return {pair for pair, one in made.items() if not (one and is_ours(one))}

    def goes_on(one: Mapping[str, Any]) -> bool:
        """Whether these jobs fit into an entry without its naming what others have made."""
        every = product({**one["data"], **data}, seeds.union(one["seeds"]))
        return is_ours(one) and others(every) <= others(product(data, seeds))

    # What this machine is named for: all of its entry, or as the first one what it did now.
    named: Iterable[tuple[str, int]] = ((j.dataset, j.seed) for j in jobs)
    top = here if is_ours(begun) else {name: begun[name] for name in origin}
    if top is not here:
        own = next(filter(goes_on, added), None)
        if not own:
            own = {**{name: here[name] for name in origin}, "data": {}, "seeds": []}
            added.append(own)
        own |= {"data": own["data"] | data, "seeds": sorted(seeds.union(own["seeds"]))}
        named = product(own["data"], own["seeds"])
    mixed = {name: set(own_seeds) for name, own_seeds in begun.get("mixed", {}).items()}
    for name, seed in others(named):
        mixed.setdefault(name, set()).add(seed)
    merged = {**here, **top, "data": here["data"] | begun["data"]}
    merged |= {"added": added} if added else {}
    merged |= {"rechecked": begun["rechecked"]} if "rechecked" in begun else {}  # `ci/recheck.py`
    return merged | ({"mixed": {k: sorted(v) for k, v in mixed.items()}} if mixed else {})


def judge_paper(number: str, tier: str) -> list[Judged]:
    """Every claim of a paper, judged from its evidence alone. Raises DataError, see `read`."""
    return _judged(number, read(number, tier))


def _judged(number: str, found: Evidence) -> list[Judged]:
    return [judge(claim, found, found.seeds) for claim in experiment_of(number).claims]


def read(number: str, tier: str, folder: Path | None = None) -> Evidence:
    """A paper's evidence. Raises DataError where there is none, and where code, settings or the
    columns of a system have changed since.
    """
    experiment = experiment_of(number)
    found = records.read((folder or evidence_dir()) / tier, experiment.paper, experiment.version)
    must_be_current(found, tier, experiment)
    return found


def must_be_current(found: Evidence, tier: str, experiment: Experiment[Any, Any]) -> None:
    """Raises DataError where settings, or the columns of a system, are not those of a record."""
    for name, settings in found.header["settings"].items():
        if settings != asdict(experiment.budget(tier, name)):
            raise DataError(f"evidence of {tier}, {name}: its settings have changed; record anew")
    for dataset, system in _changed(found, tier, experiment):
        raise DataError(f"evidence of {tier}, {dataset}: {system} has changed; record anew")


ONE_SEED = "one seed, so the intervals tell nothing of what another training would give"


def write_judgement(number: str, tier: str, out: Path, folder: Path | None = None) -> str:
    """Write every table, figure and verdict of a paper's evidence into `out`; the ledger as text.

    Nothing is trained and no data is loaded. `out` gets verdicts.json, a CSV file a table and a
    PNG file a figure.
    """
    found = read(number, tier, folder)
    judged = _judged(number, found)
    with rc_context():
        plots.use_style()  # without it names stand outside of the picture
        tables = dict(experiment_of(number).tables(found))
        figures = {**experiment_of(number).figures(found), "claims": forest(judged)}
        for name, figure in figures.items():
            plots.write(figure, out / f"{name}.png")
    tables |= {"ledger": ledger(judged).set_index("id"), "parts": parts_table(judged)}
    for name, table in tables.items():
        write_atomic(out / f"{name}.csv", table.to_csv)
    write_json(out / "verdicts.json", [one.record() for one in judged])
    shown = tables["ledger"][["claim", "effect, 95 % interval", "verdict"]]
    seeds = f"{len(found.seeds)} seeds" if len(found.seeds) > 1 else ONE_SEED
    return f"{shown.to_string()}\n\n{seeds}; all of it is in {out}"
