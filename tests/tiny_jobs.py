"""A paper of its own for the tests of the engine: numbers to fit, in a moment a training.

Its functions are importable by name, as workers need them to be.
"""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from tqdm.auto import tqdm

from mmlib.core import engine
from mmlib.core.claims import Claim
from mmlib.core.engine import Resources
from mmlib.core.experiment import Experiment
from mmlib.core.fit import Descent, fit, seed_everything
from mmlib.core.jobs import Answer, Job, Run, Stage
from mmlib.core.tables import Cells
from mmlib.suite import record

PAPER, TIER = "tiny", "world"


@dataclass(frozen=True)
class Settings:
    epochs: int = 3
    pause: float = 0.0


@dataclass(frozen=True)
class Numbers:
    """Numbers of a test split, in clusters of two."""

    fingerprint: str = "numbers"
    items: int = 6

    def clusters(self, split: str) -> np.ndarray:
        return np.arange(self.items) // 2


DATA = {"odd": Numbers("odd", 5), "even": Numbers("even", 6)}


def jobs(seeds: Sequence[int] = range(2), systems=("a", "b"), data=DATA, **settings) -> list[Job]:
    how = asdict(Settings(**settings))
    return [
        Job(PAPER, TIER, name, row, seed, how)
        for seed in seeds
        for name in data
        for row in rows(systems)
    ]


def rows(systems: Sequence[str] = ("a", "b")) -> list[dict]:
    """The columns of some systems; the first is of size 1, the others of size 0."""
    return [{"system": one, "size": int(i == 0)} for i, one in enumerate(systems)]


def train(job: Job, data: Numbers, run: Run = Run()) -> Answer:
    """Fit a line to noise. Breaks off where the file "stop" beside the jobs names its system.

    The first to find a file "kill" there removes it and kills its own process. Who was trained, in
    whatever process, stands in the file "log" there, and its process in "pids".
    """
    folder = run.checkpoint.parent
    stop = (folder / "stop").read_text() if (folder / "stop").exists() else ""
    with open(folder / "pids", "a") as file:
        file.write(f"{os.getpid()}\n")
    seed_everything(job.seed)
    line = torch.nn.Linear(2, 1).to(run.device)
    optimizer = torch.optim.SGD(line.parameters(), 0.1)
    wanted = torch.arange(float(data.items)) / data.items + job.system["size"]

    def after_epoch(history: list) -> None:
        run.after_epoch(history)
        time.sleep(job.settings["pause"])
        if stop == job.system["system"] and len(history) == 2:
            raise ValueError(f"{stop} broke off")
        with contextlib.suppress(FileNotFoundError):
            (folder / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    step = Descent(
        lambda batch: (line(batch) - 1).square().mean(), optimizer, ReduceLROnPlateau(optimizer)
    )
    history = fit(
        line, lambda epoch: [torch.randn(4, 2)], step, lambda: {"dev_loss": line.bias.sum() ** 2},
        epochs=job.settings["epochs"], seed=job.seed, run=replace(run, after_epoch=after_epoch),
    )  # fmt: skip
    values = (5 + wanted + line.bias.detach()).numpy().copy()
    values[0] = np.nan  # an item to skip
    with open(folder / "log", "a") as file:
        file.write(f"{job.dataset} {job.system['system']} {job.seed}\n")
    return Answer({"test": {"AUC": values, "p@1": 2 * values}}, history, 1.5)


def alone(job: Job, data: Numbers, run: Run = Run()) -> Answer:
    """Fails where another of its kind is under way."""
    busy = run.checkpoint.with_name("busy")
    busy.touch(exist_ok=False)
    time.sleep(0.1)
    busy.unlink()
    return Answer({}, [{"ms": 100.0}], 0.5)


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def in_threads(workers: int = 2, threads: int = 1):
    """A Dask cluster whose workers are threads of this process."""
    import distributed  # late: workers, which need none, import this module

    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=threads, processes=False, dashboard_address=None
    )


def _a_less_b(evidence):
    """The AUC of a less that of b on each data set; items that are skipped left out."""
    terms = {("a", "AUC"): 1, ("b", "AUC"): -1}
    return {name: Cells(evidence, name).effect(terms) for name in evidence.datasets}


CLAIMS = (Claim("T1", "a beats b", "(ours)", "a - b", "points", 0.1, "so", effects=_a_less_b),)


# --- Recording it ------------------------------------------------------------------------------


def experiment(
    settings: Mapping[str, Settings] | None = None,
    data: Mapping = DATA,
    timed: bool = False,
    version: int = 1,
    **grid,
) -> Experiment:
    """The tests' own paper; timed: its jobs may not run side by side."""
    budgets = settings or {}

    def stages(tier, arrays, seeds) -> list[Stage]:
        every = [
            job
            for name in arrays
            for job in jobs(
                seeds, data=[name], **{**grid, **asdict(budgets.get(name, Settings()))}
            )
        ]  # fmt: skip
        return [Stage(alone if timed else train, every, not timed)]

    return Experiment(
        number="04", paper=PAPER, version=version, datasets=lambda tier: list(data),
        load_study=lambda tier, names: names or list(data),
        load_arrays=lambda names, tier: {name: data[name] for name in names},
        budget=lambda tier, name: budgets.get(name, Settings()),
        systems=lambda tier, name: {row["system"]: row for row in rows(**grid)},
        bounds={"AUC|p@1": (0, 100)}, may_skip="AUC|p@1", stages=stages, claims=CLAIMS,
        tables=lambda found: {}, figures=lambda found: {},
    )  # fmt: skip


def kill_and_resume(folder: Path, kills: int, seed: int = 0) -> None:
    """Record once undisturbed, then in a process group that is killed `kills` times, then whole.

    Prints how many kills hit a recording that was under way.
    """
    # tqdm's own lock is one of all forked processes: whoever is killed with it stops the others.
    tqdm.set_lock(threading.RLock())
    engine.source_hash = lambda *modules: "tiny"
    slow = experiment({name: Settings(3, 0.01) for name in DATA}, systems=("a", "b", "c"))
    record.experiment_of = lambda number: slow

    def run(name: str, **how) -> None:
        resources = Resources(workers=1, folder=folder / f"{name}-jobs")
        record.record("04", TIER, range(3), resources=resources, folder=folder / name, **how)

    run("warm", datasets=["odd"])  # what is imported late is imported before the clock starts
    taken = []
    for name in ("timed", "whole"):  # twice, as other processes may slow one of them
        started = time.monotonic()
        run(name)
        taken.append(time.monotonic() - started)
    rng, hit = random.Random(seed), 0
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            os.setsid()
            run("killed")
            os._exit(0)
        time.sleep(rng.uniform(0, min(taken) / 8))
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:  # not yet, or no longer, a group of its own
            os.kill(child, signal.SIGKILL)
        hit += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    kept = len(list((folder / "killed-jobs").glob("[!.]*.job")))
    run("killed")
    print(hit, kept)


def record_slowly(folder: Path) -> None:
    """A recording by two workers, whose every training takes ten minutes."""
    engine.source_hash = lambda *modules: "tiny"
    slow = experiment({name: Settings(6000, 0.1) for name in DATA})
    record.experiment_of = lambda number: slow
    resources = Resources(workers=2, folder=folder / "jobs")
    record.record("04", TIER, range(3), resources=resources, folder=folder)


if __name__ == "__main__":
    if sys.argv[2] == "slow":
        record_slowly(Path(sys.argv[1]))
    else:
        kill_and_resume(Path(sys.argv[1]), int(sys.argv[2]))
