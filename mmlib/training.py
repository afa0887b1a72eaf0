"""One training loop for all papers, and the pool that runs many trainings side by side."""

import gzip
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmlib.core.device import pick_device as pick_device
from mmlib.core.errors import DataError
from mmlib.core.fit import seed_everything
from mmlib.core.paths import PACKAGE, write_atomic


def choose_budget(
    budgets: Mapping[str, Any], tier: str, preset: str, changes: Mapping[str, object]
) -> Any:
    """The settings (a dataclass) of a tier and preset, changed by name; None and 0 change nothing.

    budgets: "flickr8k", "flickr8k quick", ... -> settings. Raises ValueError for an unknown name.
    """
    name = f"{tier} {preset}".strip()
    if name not in budgets:
        raise ValueError(f"no budget {name!r}: there are {', '.join(budgets)}")
    return replace(budgets[name], **{k: v for k, v in changes.items() if v})


def fit(
    model: nn.Module,
    batches: Callable[[int], Iterable[Any]],
    loss: Callable[[Any], Tensor],
    evaluate: Callable[[], dict[str, float]],
    *,
    epochs: int,
    learning_rate: float,
    patience: int,
    seed: int,
    checkpoint: Path | None = None,
    progress: str | None = None,
    optimiser: torch.optim.Optimizer | None = None,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    factor: float = 0.2,
) -> list[dict[str, float]]:
    """Train with Adam, lower the rate on a plateau of the dev loss, keep the best epoch.

    batches: epoch -> the batches of that epoch, a function of the epoch alone.
    loss: batch -> scalar. evaluate: -> figures of the epoch, among them "dev_loss".
    patience: epochs without an improvement of 1e-4 after which the rate falls to `factor` of it.
    checkpoint: written after every epoch and read at the start where it exists, so that a run
    that was stopped goes on and ends with the same figures as one that was not.
    progress: what to call the progress bar; None for no bar.
    optimiser, schedule: in place of Adam at `learning_rate` and of the plateau rule; the schedule
    is stepped after every epoch.

    Returns one dict an epoch; the model ends with the weights of the epoch of lowest dev loss.
    Raises FloatingPointError when the loss is no longer a number.
    """
    if optimiser is None:  # fused: the same arithmetic in a fifth of the time, also on a CPU
        optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser,
        factor=factor,
        patience=patience,
        threshold=1e-4,
        threshold_mode="abs",
        min_lr=1e-7,
    )
    history: list[dict[str, float]] = []
    best = {name: value.clone() for name, value in model.state_dict().items()}
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        (schedule or plateau).load_state_dict(saved["schedule"])
        history, best = saved["history"], saved["best"]
    left: Iterable[int] = range(len(history), epochs)
    if progress:
        from tqdm.auto import tqdm  # late, as below: PyTorch alone can train

        left = tqdm(left, initial=len(history), total=epochs, desc=progress, leave=False)
    for epoch in left:
        # Each epoch is seeded by its number: a resumed run needs no generator states.
        seed_everything(seed, epoch)
        model.train()
        losses: list[Tensor] = []  # read once an epoch: each look at a GPU's figure waits for it
        for batch in batches(epoch):
            value = loss(batch)
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
            losses.append(value.detach())
        train_loss = sum(torch.stack(losses).tolist()) / len(losses) if losses else 0.0
        if not math.isfinite(train_loss):
            raise FloatingPointError(f"the loss is {train_loss} in epoch {epoch}")
        model.eval()
        with torch.no_grad():
            figures = {name: float(value) for name, value in evaluate().items()}
        if not math.isfinite(figures["dev_loss"]):
            raise FloatingPointError(f"the dev loss is {figures['dev_loss']} in epoch {epoch}")
        rate = optimiser.param_groups[0]["lr"]
        if schedule:
            schedule.step()
        else:
            plateau.step(figures["dev_loss"])
        if figures["dev_loss"] < min((h["dev_loss"] for h in history), default=math.inf):
            best = {name: value.clone() for name, value in model.state_dict().items()}
        history.append({"train_loss": train_loss, "learning_rate": rate, **figures})
        if checkpoint:
            state = {
                "model": model.state_dict(), "optimiser": optimiser.state_dict(),
                "schedule": (schedule or plateau).state_dict(), "history": history, "best": best,
            }  # fmt: skip
            write_atomic(checkpoint, partial(torch.save, state))
    model.load_state_dict(best)
    model.eval()
    return history


@lru_cache(maxsize=1)
def source_hash() -> str:
    """A hash of mmlib's own code and PyTorch's version: stored results of other code are stale."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.yaml")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def settings_hash(settings: Mapping[str, Any]) -> str:
    """A short hash of a JSON-able mapping, the same in every process."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def run_jobs(
    function: Callable[..., dict[str, Any]],
    jobs: Sequence[tuple[dict[str, Any], dict[str, Any]]],
    folder: Path,
    *,
    resume: bool = False,
    workers: int = 0,
    label: str = "trainings",
) -> list[dict[str, Any]]:
    """Run `function(**job, **data, checkpoint=...)` for each job, in parallel; keep the answers.

    jobs: pairs (job, data): `job` is JSON-able and names the work; `data` holds what it works on.
    folder: gets one JSON file a job, named by a hash of the job and of mmlib's code. With `resume`
    a job whose file is there is not run again, and one that was stopped goes on from its last
    epoch; without it, both are forgotten first.
    workers: processes, each of one thread; 0 for one a core, or 1 on a GPU.

    Returns the answers in the order of `jobs`. Stops at the first failure; what was finished stays.
    """
    from tqdm.auto import tqdm

    from mmlib.core.parallel import in_processes

    folder.mkdir(parents=True, exist_ok=True)
    answers: dict[int, dict[str, Any]] = {}
    waiting = []
    for i, (job, data) in enumerate(jobs):
        path = job_path(folder, job)
        if not resume:
            path.unlink(missing_ok=True)
            path.with_suffix(".pt").unlink(missing_ok=True)
        if path.exists():
            answers[i] = json.loads(path.read_text())["answer"]
        else:
            waiting.append((i, path, job, data))
    workers = workers or (1 if torch.cuda.is_available() else os.cpu_count() or 1)
    calls = [(function, *item) for item in waiting]
    finished = in_processes(_run_job, calls, min(workers, len(waiting)) or 1, ordered=False)
    for i, answer in tqdm(finished, total=len(waiting), desc=label, disable=not waiting):
        answers[i] = answer
    return [answers[i] for i in range(len(jobs))]


def job_path(folder: Path, job: Mapping[str, Any]) -> Path:
    """Where `run_jobs` keeps a job's answer; its checkpoint has the suffix ".pt"."""
    return folder / f"{settings_hash({**job, 'source': source_hash()})}.json"


def _run_job(
    function: Callable[..., dict[str, Any]], i: int, path: Path, job: dict, data: dict
) -> tuple[int, dict[str, Any]]:
    torch.set_num_threads(1)  # several processes of many threads slow each other many times over
    checkpoint = path.with_suffix(".pt")
    answer = function(**job, **data, checkpoint=checkpoint)
    write_atomic(path, lambda p: p.write_text(json.dumps({"job": job, "answer": answer})))
    checkpoint.unlink(missing_ok=True)
    return i, answer


def write_answers(path: Path, jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict]) -> None:
    """Keep the answers of all jobs in one file (gzipped JSON), for `read_answers`."""
    records = [
        {"job": job, "answer": answer} for (job, _), answer in zip(jobs, answers, strict=True)
    ]
    text = json.dumps(records, ensure_ascii=False, separators=(",", ":"))
    write_atomic(path, lambda p: p.write_bytes(gzip.compress(text.encode(), mtime=0)))


def read_answers(
    path: Path, system: str, settings: Mapping[str, Any]
) -> tuple[list[tuple[dict, dict]], list[dict]]:
    """Jobs and answers of a file of `write_answers`.

    system, settings: one of its systems, and the settings that it must have been trained with.
    Raises DataError where there is no such file or its trainings had other settings.
    """
    if not path.exists():
        raise DataError(f"there are no stored answers {path}: set results to compute")
    records = json.loads(gzip.decompress(path.read_bytes()))
    own = next(r["job"]["settings"] for r in records if r["job"]["system"] == system)
    wanted = json.loads(json.dumps(dict(settings)))  # as they look in a file: no tuples
    if other := [name for name in wanted if own.get(name) != wanted[name]]:
        raise DataError(
            f"{path}: its trainings had {other[0]} = {own.get(other[0])}, not "
            f"{wanted[other[0]]}: take the default preset and epochs, or set results to compute"
        )
    return [(r["job"], {}) for r in records], [r["answer"] for r in records]
