"""Train a sample of a record again, and say whether this code still gives the recorded figures.

python ci/recheck.py 03 --tier world                one seed of each data set and system
python ci/recheck.py 03 --tier flickr8k --epochs 1  trainings stop after so many epochs
python ci/recheck.py all --share 0.05               a twentieth of all systems of all papers

The seed of a system is chosen by a hash of its name among those on record, and so is whether it is
in a share. On the arithmetic and the data of its recording every value and every epoch must be the
recorded one, but for rounding: within 1e-4 of it, relatively; elsewhere the mean of each metric
must be as near as the recorded seeds are to each other. The report has a row a system; the exit
status is 1 where one differs. Nothing is changed, and what is finished is not run again. Jobs that
measure time are left out.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from mmlib.core.engine import SECONDS, job_folder, job_key, read_answer, tidy, write_answer
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.core.experiment import Experiment
from mmlib.core.jobs import EPOCHS, NO_SEED, Answer, Data, History, Job, JobFunction, Run
from mmlib.core.parallel import in_processes
from mmlib.core.paths import evidence_dir
from mmlib.core.recordings import paths_of
from mmlib.core.regression import CONFIDENCE, is_same, spread
from mmlib.suite import record
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS
from mmlib.suite.papers import experiment as experiment_of

ROUNDING = 1e-4  # relative, on the arithmetic that recorded
CLOSED_FORM = 1e-2  # of the mean, relative, elsewhere: a closed form has no spread of seeds
ROW = ["split", "metric", "item"]
Call = tuple[JobFunction, Job, Data, int, Path]


class EnoughEpochs(Exception):
    pass


def sample(found: Evidence, share: float = 1.0, draw: str = "") -> dict[tuple[str, str], int]:
    """(data set, system) -> the seed that is trained again, of this share of the systems.

    draw: any text; another one draws other seeds and, of a share, other systems.
    """
    seeds: dict[tuple[str, str], list[int]] = {}
    for dataset, system, seed in found.jobs:
        seeds.setdefault((dataset, system), []).append(seed)
    prefix = (draw, found.header["paper"], found.header["tier"])
    return {
        key: min(of_key, key=lambda seed: _hash(*prefix, *key, seed))
        for key, of_key in sorted(seeds.items())
        if _hash(*prefix, *key) < share
    }


def _hash(*parts: Any) -> float:
    """A number of [0, 1) that is always the same for these parts."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def recheck(
    experiment: Experiment[Any, Any], found: Evidence, chosen: Mapping[tuple[str, str], int],
    epochs: int = 0, workers: int = 0, folder: Path | None = None,
) -> pd.DataFrame:  # fmt: skip
    """A row a system: dataset, system, seed, arithmetic, difference, verdict.

    chosen: see `sample`. epochs: after which a training ends; 0 for all. folder: where answers are
    kept.
    """
    tier = found.header["tier"]
    names = list(dict.fromkeys(dataset for dataset, _ in chosen))
    data = experiment.load_arrays(experiment.load_study(tier, names), tier)
    seeds = sorted(set(chosen.values()) - {NO_SEED}) or [0]
    folder = (folder or job_folder() / "recheck") / f"epochs-{epochs or 'all'}"
    calls: list[Call] = []
    for stage in experiment.stages(tier, data, seeds):
        for job in stage.jobs if stage.parallel else ():
            if chosen.get((job.dataset, job.system["system"])) == job.seed:
                arrays = data[job.dataset]
                path = folder / f"{job_key(stage.function, job, arrays)}.job"
                calls.append((stage.function, job, arrays, epochs, path))
    answers = in_processes(_again, calls, workers or os.cpu_count() or 1, ordered=False)
    label = f"{experiment.paper}, {tier}: again"
    rows = [
        _compared(found, job, data[job.dataset], answer)
        for job, answer in tqdm(answers, desc=label, total=len(calls))
    ]
    return pd.DataFrame(rows).sort_values(["dataset", "system"], ignore_index=True)


def _again(function: JobFunction, job: Job, data: Data, epochs: int, path: Path) -> tuple:
    """A job and its answer; of a training that ends early, the epochs so far."""
    if earlier := read_answer(path):
        return job, earlier
    history: History = []

    def stop(so_far: History) -> None:
        history[:] = so_far
        if len(so_far) == epochs:
            raise EnoughEpochs

    torch.set_num_threads(1)  # as the engine does
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        answer = function(job, data, Run("cpu", path.with_suffix(".pt"), path.parent, stop))
    except EnoughEpochs:
        answer = Answer({}, history)
    write_answer(path, answer)
    path.with_suffix(".pt").unlink(missing_ok=True)
    return job, answer


def _compared(found: Evidence, job: Job, data: Data, answer: Answer) -> dict[str, Any]:
    """What the report says of a job: the largest relative difference, and whether it may be."""
    system = job.system["system"]
    again = _rows(tidy([job], [answer], {job.dataset: data}))
    where = "dataset == @job.dataset and system == @system and seed == @job.seed"
    recorded = _rows(found.series.query(where))
    if not answer.values:  # only some epochs were run
        epoch = 1 + recorded.index.get_level_values("item")
        is_curve = recorded.index.get_level_values("split") == EPOCHS
        recorded = recorded[is_curve & (epoch <= len(answer.history))]
    header = found.recording_of(job.dataset, system, job.seed)
    same = header is not None and is_same(header, job.dataset, data.fingerprint)
    row = {"dataset": job.dataset, "system": system, "seed": job.seed}
    row["arithmetic"] = "same" if same else "another"
    if again.empty or not again.index.equals(recorded.index):
        return row | {"difference": np.nan, "verdict": "OTHER ROWS"}
    size = np.maximum(recorded.abs(), again.abs()).clip(lower=1e-12)
    row["difference"] = float(((again - recorded).abs() / size).max())
    if same:
        verdict = "equal" if again.equals(recorded) else "within rounding"
        return row | {"verdict": verdict if row["difference"] <= ROUNDING else "DIFFERS"}
    outside = sorted(_outside(found, job, again, recorded))
    verdict = f"DIFFERS: {', '.join(outside)}" if outside else "within the spread"
    return row | {"verdict": verdict}


def _rows(series: pd.DataFrame) -> pd.Series:
    """The values of a job by split, metric and item, without what it took."""
    kept = ~series.metric.str.match(f"{SECONDS}$|entity ")  # nothing measures entities any more
    rows = series[kept].set_index(ROW[:2])["value"].explode().astype(float)
    item = rows.groupby(level=[0, 1]).cumcount().rename("item")
    return rows.to_frame().set_index(item, append=True)["value"].sort_index()


def _outside(found: Evidence, job: Job, again: pd.Series, recorded: pd.Series) -> Iterator[str]:
    """The metrics whose mean is farther from the recorded one than seeds are from each other.

    Of a curve its last epoch counts. That many metrics are compared at once is allowed for.
    """
    system = job.system["system"]
    metrics = recorded.index.droplevel("item").unique()
    confidence = 1 - (1 - CONFIDENCE) / len(metrics)
    for split, metric in metrics:
        new, old = (values[split, metric] for values in (again, recorded))
        if split == EPOCHS:
            last = len(old) - 1
            of_seeds = found.curves(job.dataset, system, metric)[:, last]
            far = abs(new.iloc[last] - old.iloc[last])
        else:
            of_seeds = found.means(job.dataset, system, metric, split).to_numpy()
            far = abs(new.mean() - old.mean())
        if job.seed == NO_SEED or len(of_seeds) < 2:
            allowed = CLOSED_FORM * abs(old.mean())
        else:
            allowed = spread(of_seeds, confidence)
        if far > allowed:
            yield f"{metric} ({split})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", choices=(*PAPERS, "all"))
    parser.add_argument("--tier", choices=TIERS, default="world")
    parser.add_argument("--epochs", type=int, default=0, metavar="N", help="only the first N")
    parser.add_argument("--share", type=float, default=1.0, help="of the systems (default: 1)")
    parser.add_argument("--draw", default="", metavar="TEXT", help="another one: other seeds")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: one a core")
    args = parser.parse_args(arguments)
    failed = 0
    try:
        for number in PAPERS if args.number == "all" else [args.number]:
            experiment = experiment_of(number)
            folder = evidence_dir() / args.tier / experiment.paper
            if args.number == "all" and not paths_of(folder):
                continue  # not every paper is recorded on every tier
            found = record.read(number, args.tier)
            if not (chosen := sample(found, args.share, args.draw)):
                continue
            report = recheck(experiment, found, chosen, args.epochs, args.workers)
            bad = ~report.verdict.isin(["equal", "within rounding", "within the spread"])
            print(f"\n{experiment.paper}, {args.tier}")
            print(report.to_string(index=False, float_format="{:.1e}".format))
            counts = report.verdict.str.split(":").str[0].value_counts()
            print("; ".join(f"{count} {verdict}" for verdict, count in counts.items()))
            failed += int(bad.sum())
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
