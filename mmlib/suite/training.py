"""What `mmlib record` asks of each training: its precision, its weights, a live curve."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from mmlib.core.files import write_tensors
from mmlib.core.jobs import History, Job, Precision, Run
from mmlib.core.paths import write_atomic
from mmlib.core.recordings import file_name

LIVE = "live.txt"  # beside the jobs: the last epoch of any training
LOOK = 1.0 if sys.stderr.isatty() else 60.0  # seconds between two looks at it


@dataclass(frozen=True)
class How:
    """How trainings run; called with a job and where it runs, it gives the job's own `Run`.

    weights: folder of the weights that are kept, and log: of TensorBoard's curves; None for none.
    version: of the method.
    """

    precision: Precision = "float32"
    weights: Path | None = None
    log: Path | None = None
    version: int = 0

    def __call__(self, job: Job, run: Run) -> Run:
        """The weights of an earlier try of the job are deleted."""
        assert run.checkpoint is not None
        system, live = str(job.system["system"]), run.checkpoint.with_name(LIVE)
        name = f"{job.dataset}, {system}, seed {job.seed}"
        path = f"{file_name(job.dataset)}/{file_name(system)}/{job.seed}.safetensors"
        weights = self.weights and self.weights / path
        if weights:
            for old in weights.parent.glob(f"{job.seed}[.-]*"):
                old.unlink()
        card = f"{job.paper}, {name} (tier {job.tier}, version {self.version} of the method)"
        log = self.log and self.log / Path(path).with_suffix("")

        def after_epoch(history: History) -> None:
            figures = history[-1]
            metric = [*figures, *(key for key in figures if key.startswith("dev"))][-1]
            text = f"{name}, epoch {len(history)}: {metric} {figures[metric]:.4g}"
            write_atomic(live, lambda file: file.write_text(text, encoding="utf-8"))
            for key in figures if log else ():
                _writer(str(log)).add_scalar(key, figures[key], len(history))

        def keep(model: Any, history: History, best: bool) -> None:
            if not weights or not history:  # none: an untrained baseline
                return
            number, target = 1, weights
            while target.exists():  # an ensemble has several
                target = weights.with_stem(f"{job.seed}-{(number := number + 1)}")
            chosen = min(history, key=lambda h: h["dev_loss"]) if best else history[-1]
            told = ", ".join(f"{name} {value:.4g}" for name, value in chosen.items())
            epoch = f"epoch {history.index(chosen) + 1} of {len(history)}"
            arrays = {name: value.cpu().numpy() for name, value in model.state_dict().items()}
            write_tensors(target, arrays, {"card": f"{card}; {epoch}: {told}"})

        return replace(run, precision=self.precision, after_epoch=after_epoch, keep=keep)


@cache
def _writer(folder: str) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # late: few have it

    return SummaryWriter(folder)


@contextmanager
def shown(folder: Path, show: Callable[[str], object]) -> Iterator[None]:
    """Meanwhile show the last epoch of the trainings whose jobs lie in a folder, as it changes."""
    done, live = threading.Event(), folder / LIVE

    def look() -> None:
        before = ""
        while not done.wait(LOOK):
            with suppress(FileNotFoundError):
                if (text := live.read_text(encoding="utf-8")) != before:
                    show(before := text)

    live.unlink(missing_ok=True)
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
