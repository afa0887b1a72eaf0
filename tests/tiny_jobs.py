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
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from tqdm.auto import tqdm

from mmlib.core import experiment as engine
from mmlib.core.fit import fit, seed_everything
from mmlib.core.jobs import Answer, Job
from mmlib.suite import record

PAPER, TIER = "tiny", "world"
MODULES = ("mmlib.core.fit",)


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
    """The columns of some systems; the first has a number that the others lack."""
    return [{"system": one} | ({} if i else {"size": 1}) for i, one in enumerate(systems)]


def train(job: Job, data: Numbers, device: str, checkpoint: Path) -> Answer:
    """Fit a line to noise. Breaks off where the file "stop" beside the jobs names its system.

    The first to find a file "kill" there removes it and kills its own process. Who was trained, in
    whatever process, stands in the file "log" there.
    """
    folder = checkpoint.parent
    stop = (folder / "stop").read_text() if (folder / "stop").exists() else ""
    seed_everything(job.seed)
    line = torch.nn.Linear(2, 1).to(device)
    optimizer = torch.optim.SGD(line.parameters(), 0.1)
    wanted = torch.arange(float(data.items)) / data.items + job.system.get("size", 0)

    def after_epoch(history: list) -> None:
        time.sleep(job.settings["pause"])
        if stop == job.system["system"] and len(history) == 2:
            raise ValueError(f"{stop} broke off")
        with contextlib.suppress(FileNotFoundError):
            (folder / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    history = fit(
        line, lambda epoch: [torch.randn(4, 2)], lambda batch: (line(batch) - 1).square().mean(),
        lambda: {"dev_loss": line.bias.sum() ** 2}, epochs=job.settings["epochs"],
        optimizer=optimizer, schedule=ReduceLROnPlateau(optimizer), seed=job.seed, device=device,
        checkpoint=checkpoint, after_epoch=after_epoch,
    )  # fmt: skip
    values = (wanted + line.bias.detach()).numpy().copy()
    values[0] = np.nan  # an item to skip
    with open(folder / "log", "a") as file:
        file.write(f"{job.dataset} {job.system['system']} {job.seed}\n")
    return Answer({"test": {"AUC": values, "p@1": 2 * values}}, history, 1.5)


def alone(job: Job, data: Numbers, device: str, checkpoint: Path) -> Answer:
    """Fails where another of its kind is under way."""
    busy = checkpoint.with_name("busy")
    busy.touch(exist_ok=False)
    time.sleep(0.1)
    busy.unlink()
    return Answer({}, [{"ms": 100.0}])


def in_threads(workers: int = 2, threads: int = 1):
    """A Dask cluster whose workers are threads of this process."""
    import distributed  # late: workers, which need none, import this module

    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=threads, processes=False, dashboard_address=None
    )


# --- Recording it ------------------------------------------------------------------------------


def room(
    settings: Mapping[str, Settings] | None = None,
    data: Mapping = DATA,
    timed: bool = False,
    **grid,
):
    """What stands for a paper's modules in `mmlib.suite.record`; timed: instead of trainings."""
    settings = settings or {}
    experiment = SimpleNamespace(
        PAPER=PAPER, MODULES=MODULES, budget=lambda tier, name: settings.get(name, Settings()),
        systems=lambda tier, name: {row["system"]: row for row in rows(**grid)},
        stages=lambda tier, found, seeds: [
            (alone if timed else train, [
                job for name in found
                for job in jobs(
                    seeds, data=[name], **{**grid, **asdict(settings.get(name, Settings()))}
                )
            ], not timed)
        ],
    )  # fmt: skip
    documents = SimpleNamespace(
        load_documents=lambda tier, names: names or list(data),
        load_arrays=lambda names, tier: {name: data[name] for name in names},
    )
    return lambda number, module: {"experiment": experiment, "data": documents}[module]


def kill_and_resume(folder: Path, kills: int, seed: int = 0) -> None:
    """Record once undisturbed, then in a process group that is killed `kills` times, then whole.

    Prints how many kills hit a recording that was under way.
    """
    # tqdm's own lock is one of all forked processes: whoever is killed with it stops the others.
    tqdm.set_lock(threading.RLock())
    engine.source_hash = lambda *modules: "tiny"
    slow = Settings(epochs=3, pause=0.01)
    record.room = room({name: slow for name in DATA}, systems=("a", "b", "c"))

    def run(name: str) -> None:
        record.record(
            "04", TIER, range(3), workers=1, folder=folder / name,
            jobs_folder=folder / f"{name}-jobs",
        )  # fmt: skip

    record.record(  # what is imported late is imported before the clock starts
        "04", TIER, [0], datasets=["odd"], workers=1, folder=folder, jobs_folder=folder / "warm"
    )  # fmt: skip
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
        time.sleep(rng.uniform(0, min(taken) / 16))
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:  # not yet, or no longer, a group of its own
            os.kill(child, signal.SIGKILL)
        hit += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    kept = len(list((folder / "killed-jobs").glob("[!.]*.parquet")))
    run("killed")
    print(hit, kept)


if __name__ == "__main__":
    kill_and_resume(Path(sys.argv[1]), int(sys.argv[2]))
