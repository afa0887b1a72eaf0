"""The engine: jobs run side by side, are cached, and their answers become one tidy table.

A finished job is kept under a key made of its identity, its data and the code that its function
really imports, so that nothing is trained twice and nothing stale is taken for new.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from mmlib.core.device import pick_device
from mmlib.core.evidence import in_order
from mmlib.core.files import cached, kept, write_tensors
from mmlib.core.jobs import EPOCHS, JOB, SERIES, Answer, Data, Job, JobFunction, Run, Stage
from mmlib.core.parallel import in_processes, on_cluster
from mmlib.core.paths import cache_dir
from mmlib.core.source import source_hash

SECONDS = "CPU seconds"


@dataclass(frozen=True)
class Resources:
    """What jobs run on.

    device: of each job. workers: processes; 0 is one a core of one thread each on "cpu", one a
    GPU on "cuda". cluster: address of a Dask scheduler in place of processes here; "cuda" is then
    the first GPU that a worker sees. folder: where finished jobs lie; where None, the cache of
    this checkout, with a folder of its own for each other kind of device.
    """

    device: str = "cpu"
    workers: int = 0
    cluster: str = ""
    folder: Path | None = None

    @property
    def jobs(self) -> Path:
        """The folder of finished jobs: no job of a processor is taken for one of a GPU."""
        return self.folder or job_folder(self.device)

    def path(self, function: Callable[..., Any], job: Job, data: Data) -> Path:
        """The file of a job once it is finished."""
        return self.jobs / f"{job_key(function, job, data)}.job"


def job_key(function: Callable[..., Any], job: Job, data: Data) -> str:
    """Under which name a job is kept: what is done, for which job, on which data, by which code."""
    code = source_hash(function.__module__)
    pieces = [function.__qualname__, asdict(job), data.fingerprint, code]
    text = json.dumps([*pieces, torch.__version__.split("+")[0]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def job_folder(device: str = "cpu") -> Path:
    """Where finished jobs are kept: `jobs` in the checkout's cache, else `mmlib-jobs` here."""
    cache, kind = cache_dir(), device.split(":")[0]
    folder = cache / "jobs" if cache else Path("mmlib-jobs")
    return folder if kind == "cpu" else folder / kind


def run_jobs(
    stage: Stage,
    data: Mapping[str, Data],
    resources: Resources = Resources(),
    label: str = "jobs",
    on_answer: Callable[[Job, Answer], str | None] = lambda job, answer: None,
    how: Callable[[Job, Run], Run] = lambda job, run: run,
    watch: Callable[[tqdm], AbstractContextManager] = nullcontext,
) -> list[Answer]:
    """Answers in the order of the stage's jobs; what is finished is taken from the jobs' folder.

    on_answer: is called with each finished job, in the order of finishing, and says what to write
    beside the progress bar. how: a job and where it runs -> its `Run`, in the process that runs it.
    watch: is entered with the bar while jobs run. Stops at the first failure; what was finished
    stays, and a training that was stopped goes on from its last epoch.
    """
    folder, jobs = resources.jobs, stage.jobs
    folder.mkdir(parents=True, exist_ok=True)
    paths = [resources.path(stage.function, job, data[job.dataset]) for job in jobs]
    answers: dict[int, Answer] = {}
    for i, (path, job) in enumerate(zip(paths, jobs, strict=True)):
        if kept_answer := read_answer(path):
            answers[i] = kept_answer
            on_answer(job, kept_answer)
    devices = devices_of(resources, stage.parallel)
    calls = [
        (stage.function, i, job, data[job.dataset], devices[n % len(devices)], paths[i], how)
        for n, (i, job) in enumerate((i, job) for i, job in enumerate(jobs) if i not in answers)
    ]
    if resources.cluster:
        finished = on_cluster(_run, calls, resources.cluster, stage.parallel) if calls else ()
    else:
        finished = in_processes(_run, calls, min(len(devices), len(calls)) or 1, ordered=False)
    bar = tqdm(finished, total=len(calls), desc=label, disable=not calls)
    with watch(bar):
        for i, answer in bar:
            write_answer(paths[i], answer)
            paths[i].with_suffix(".pt").unlink(missing_ok=True)
            for half in folder.glob(f".{paths[i].stem}.*.partial*"):  # of workers that were killed
                half.unlink(missing_ok=True)
            answers[i] = answer
            bar.set_postfix_str(on_answer(jobs[i], answer) or "")
    return [answers[i] for i in range(len(jobs))]


def devices_of(resources: Resources, parallel: bool = True) -> list[str]:
    """The device of each worker: every GPU in turn for "cuda", else the one that is named."""
    device, workers = resources.device, resources.workers if parallel else 1
    if resources.cluster:
        return [device]
    if device == "cuda":
        gpus = torch.cuda.device_count()
        return [f"cuda:{n % gpus}" for n in range(workers or gpus)]
    return [device] * (workers or ((os.cpu_count() or 1) if device == "cpu" else 1))


def _run(
    function: JobFunction, i: int, job: Job, data: Data, device: str, path: Path,
    how: Callable[[Job, Run], Run],
) -> tuple[int, Answer]:  # fmt: skip
    torch.set_num_threads(1)  # several processes of many threads slow each other many times over
    run = how(job, Run(pick_device(device), path.with_suffix(".pt"), path.parent))
    began, answer = time.process_time(), function(job, data, run)
    return i, replace(answer, seconds=answer.seconds or time.process_time() - began)


def handed_over(
    function: Callable[..., Any], job: Job, data: Data, run: Run,
    make: Callable[[], Mapping[str, Tensor]],
) -> dict[str, Tensor]:  # fmt: skip
    """Tensors that a job leaves for other jobs, such as trained weights: kept, or made and kept.

    function: what makes them. They lie beside the jobs, under the key of function, job and data,
    one folder a kind of device.
    """
    path = (run.folder or job_folder(run.device)) / f"{job_key(function, job, data)}.safetensors"
    arrays = cached(path, lambda: {name: t.detach().cpu().numpy() for name, t in make().items()})
    return {name: torch.tensor(array) for name, array in arrays.items()}


def write_answer(path: Path, answer: Answer) -> None:
    """Keep the answer of the job whose key is the file's stem."""
    series = [(split, metric) for split, metrics in answer.values.items() for metric in metrics]
    values = [np.asarray(answer.values[split][metric], np.float32) for split, metric in series]
    notes = {"series": series, "history": list(answer.history), "seconds": answer.seconds}
    arrays = {str(number): value for number, value in enumerate(values)}
    write_tensors(path, arrays, {"answer": json.dumps(notes)})


def read_answer(path: Path) -> Answer | None:
    """What `write_answer` kept; None where there is none, or the file is damaged (`files.kept`)."""
    if (earlier := kept(path)) is None:
        return None
    notes, values = json.loads(earlier[1]["answer"]), dict[str, dict[str, np.ndarray]]()
    for number, (split, metric) in enumerate(notes["series"]):
        values.setdefault(split, {})[metric] = earlier[0][str(number)]
    return Answer(values, notes["history"], notes["seconds"])


def tidy(jobs: Sequence[Job], answers: Sequence[Answer], data: Mapping[str, Data]) -> pd.DataFrame:
    """All values of all jobs: a row a series, in the order of `evidence.in_order`.

    Columns: those of `jobs.SERIES`, value (items,) float32 and cluster (items,) int32. The learning
    curves are there too, split "epochs", and what each job took, split "job".
    """
    rows = []
    for job, answer in zip(jobs, answers, strict=True):
        curves = pd.DataFrame(list(answer.history))
        splits = {**answer.values, EPOCHS: curves, JOB: {SECONDS: [answer.seconds]}}
        for split, metrics in splits.items():
            cluster = data[job.dataset].clusters(split) if split in answer.values else None
            for metric in metrics:
                value = np.asarray(metrics[metric], dtype=np.float32)
                clusters = np.zeros(len(value)) if cluster is None else cluster
                key = (job.dataset, job.system["system"], job.seed, split, metric)
                rows.append((*key, value, np.asarray(clusters, dtype=np.int32)))
    return in_order(pd.DataFrame(rows, columns=[*SERIES, "value", "cluster"]))
