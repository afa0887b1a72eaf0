"""Let a record that older code has made stand, once this code has given the same figures again.

python ci/recheck.py 03 --tier world               every job of one seed of each data set
python ci/recheck.py 03 --tier flickr8k --epochs 1 trainings stop after so many epochs
python ci/recheck.py 03 --datasets world           what is of other data sets leaves the record

Of each data set a seed is run again that this machine, or one of the same arithmetic, has recorded;
each value and each epoch that is run must be the recorded one, to the last bit. Then the record
gets the hash of this code, what systems have gained in columns and budgets in settings since, and
in its header, under "rechecked", what was run again. Else it stays as it is, and the exit status is
1. Jobs that measure time are left out, as are systems that are not on record.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from mmlib.core import evidence as records
from mmlib.core.errors import DataError
from mmlib.core.evidence import EPOCHS, NO_SEED, Evidence, evidence_dir
from mmlib.core.experiment import SECONDS, as_text, canonical, tidy
from mmlib.core.jobs import Answer, Job
from mmlib.core.parallel import in_processes
from mmlib.core.source import source_hash
from mmlib.suite import record
from mmlib.suite.cli import TIERS

KEY = ["dataset", "split", "system", "seed", "metric", "item", "cluster"]


class Enough(Exception):
    """The epochs that are compared are over."""


def recheck(
    number: str, tier: str, epochs: int = 0, workers: int = 0, folder: Path | None = None,
    datasets: Sequence[str] = (),
) -> Evidence:  # fmt: skip
    """Run the jobs again and stamp the record. Raises DataError where it must not stand.

    datasets: what shall stand; the rest, whose figures this code changes, is to be recorded anew.
    """
    experiment, data_module = record.room(number, "experiment"), record.room(number, "data")
    folder = (folder or evidence_dir()) / tier
    with record.alone(folder, experiment.PAPER):
        whole = records.read(folder, experiment.PAPER)
        old = _of_datasets(whole, datasets)
        left = {name: whole.seeds_of(name) for name in whole.datasets if name not in old.datasets}
        new = source_hash(*experiment.MODULES)
        if old.header["source"] == new:
            raise DataError(f"{folder / experiment.PAPER}.parquet is of this code: nothing to do")
        study = data_module.load_documents(tier, old.datasets)
        data = data_module.load_arrays(study, tier)
        seeds = {name: _seed_of(old, name, own.fingerprint) for name, own in data.items()}
        calls, covered = [], set()
        for function, jobs, side_by_side in experiment.stages(tier, data, [*set(seeds.values())]):
            for job in jobs:
                key = job.dataset, job.system["system"]
                if job.seed in (seeds[job.dataset], NO_SEED) and old.has_job(*key, job.seed):
                    covered.add(key)
                    if side_by_side:  # the others measure time
                        calls.append((function, job, data[job.dataset], epochs))
        if lacking := old.columns().keys() - covered:
            raise DataError(f"not run again: {sorted(lacking)}; record anew")
        told = {"from": old.header["source"], **records.header(), "seeds": seeds}
        told |= {"jobs": len(calls), "epochs": epochs or "all", **({"left": left} if left else {})}
        again = [*old.header.get("rechecked", ()), told]
        table = _with_columns(old, {name: experiment.systems(tier, name) for name in old.datasets})
        settings = {
            name: _with_settings(known, experiment.budget(tier, name), epochs)
            for name, known in old.header["settings"].items()
        }
        changed = {"source": new, "settings": settings, "rechecked": again}
        found = Evidence(table, {**old.header, **changed})
        record.must_be_current(found, tier, experiment)
        recorded = dict(iter(old.table.groupby(["dataset", "system", "seed"], observed=True)))
        answers = in_processes(_again, calls, workers or os.cpu_count() or 1, ordered=False)
        label = f"{experiment.PAPER}, {tier}: again"
        for job, answer in tqdm(answers, desc=label, total=len(calls)):
            own = recorded[job.dataset, job.system["system"], job.seed]
            _compare(own, tidy([job], [answer], data), job, answer)
        records.write(folder, experiment.PAPER, found)
        for name, own in left.items():
            print(f"left the record: {name}, {len(own)} seeds; record it anew")
        return found


def _of_datasets(old: Evidence, names: Sequence[str]) -> Evidence:
    """What is on record of these data sets; of all where none is named.

    Raises DataError for one that is not on record.
    """
    if lacking := set(names) - set(old.datasets):
        raise DataError(f"not on record: {', '.join(sorted(lacking))}")
    if not names:
        return old
    found = record.of_datasets(old, names)
    return Evidence(found.table, record.counted(found.table, found.header))


def _seed_of(old: Evidence, dataset: str, fingerprint: str) -> int:
    """The last seed of a data set that a machine like this one has recorded."""
    for seed in reversed(old.seeds_of(dataset)):
        one = records.recorded_by(old.header, dataset, seed)
        if (
            one and one["machine"].get("arithmetic") == records.arithmetic()
            and one["data"][dataset] == fingerprint
        ):  # fmt: skip
            return seed
    raise DataError(f"{dataset}: no seed on record was made by this machine's arithmetic and data")


def _again(function: Any, job: Job, data: Any, epochs: int) -> tuple[Job, Answer]:
    """A job, or of a training so many epochs."""
    begun: list[dict[str, float]] = []

    def stop(history: list[dict[str, float]]) -> None:
        begun[:] = history
        if len(history) == epochs:
            raise Enough

    torch.set_num_threads(1)  # as the engine does
    if not epochs or not job.settings:
        with TemporaryDirectory() as folder:
            return job, function(job, data, device="cpu", checkpoint=Path(folder) / "model.pt")
    try:
        sys.modules[function.__module__].train(job, data, after_epoch=stop)
    except Enough:
        pass
    return job, Answer({}, begun)


def _compare(own: pd.DataFrame, again: pd.DataFrame, job: Job, answer: Answer) -> None:
    """Raises DataError where what a job gives again is not `own`, what is on record of it."""
    if not answer.values:  # only some epochs were run
        own = own[(own.split == EPOCHS) & (own["item"] <= len(answer.history))]
    both = [  # both are `canonical`: their rows are in one order
        part.loc[part.metric != SECONDS, [*KEY, "value"]].astype(dict.fromkeys(KEY, str))
        for part in (own, again)
    ]
    first, second = (part.reset_index(drop=True) for part in both)
    if second.empty or not first.equals(second):
        told = f"{job.dataset}, {job.system['system']}, {job.seed}"
        raise DataError(f"{told}: this code gives other figures than are on record; record anew")


def _with_columns(
    old: Evidence, systems: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> pd.DataFrame:
    """The table with the columns that systems have gained."""
    columns: dict[str, dict[tuple[str, str], str]] = {}
    for (dataset, system), known in old.columns().items():
        now = as_text(systems[dataset].get(system, {}))
        for name in now.keys() - known.keys():
            columns.setdefault(name, {})[dataset, system] = now[name]
    table = old.table
    for name, of in columns.items():
        keys = zip(table.dataset.astype(str), table.system.astype(str), strict=True)
        kept = table[name].astype(object) if name in table else None
        new = pd.Series([of.get(key) for key in keys], index=table.index, dtype=object)
        table = table.assign(**{name: new if kept is None else kept.where(kept.notna(), new)})
    return canonical(table)


def _with_settings(known: Mapping[str, Any], budget: Any, epochs: int) -> dict[str, Any]:
    """The settings on record, and those that the budget has gained.

    Raises DataError for a gained one that is not at its default where only some epochs are run:
    it may act later.
    """
    gained = {field: own for field, own in asdict(budget).items() if field not in known}
    usual = {field.name: field.default for field in fields(budget)}
    if epochs and (new := sorted(f for f, own in gained.items() if own != usual[f])):
        raise DataError(f"a budget has gained {', '.join(new)}: run all epochs again")
    return {**known, **gained}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("number", choices=record.PAPERS)
    parser.add_argument("--tier", choices=TIERS, default="world")
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--datasets", nargs="+", default=(), help="what stays on record")
    found = parser.parse_args(arguments)
    try:
        recheck(found.number, found.tier, found.epochs, found.workers, datasets=found.datasets)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
