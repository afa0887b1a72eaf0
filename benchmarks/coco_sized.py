"""Paper 03 at the size of MS-COCO: memory and time from files to training batches.

Makes up features, captions and scene graphs in the layout that `mmlib.data.precomputed` reads, in a
temporary folder: 123,287 images of 36 × 2,048 values with five captions each. The 36 GB of features
are holes in sparse files and take no disk; reading them costs what reading from the system's cache
costs, not what a disk costs. Then it loads them as notebook 03 does, draws batches from all over
the training split, and makes some steps of training.

Prints Markdown tables: seconds of each stage with the peak of resident memory up to its end; then
milliseconds of a step, and how long it waited for its batch, with and without the thread that
prepares batches ahead.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from measure import machine, process_peak_mib

from mmlib.core.parallel import ahead
from mmlib.papers.cora import data
from mmlib.papers.cora.method import Matcher
from mmlib.papers.cora.run.batches import Batch, training_batches
from mmlib.papers.cora.run.systems import CORA, budget
from mmlib.papers.cora.run.train import fresh

ENTRY = (
    '"{n}": {{"caption": "a {0} {1} {2} {3} a {4} {5} {6} the {7} .", "entities": ['
    '{{"id": 0, "name": "{1}", "attributes": [[0, "{0}", []]]}}, '
    '{{"id": 1, "name": "{5}", "attributes": [[1, "{4}", []]]}}, '
    '{{"id": 2, "name": "{7}", "attributes": []}}], '
    '"relations": [[0, 1, ["{2}"], "{3}"], [1, 2, [], "{6}"]]}}'
)
CAPTION = "a {0} {1} {2} {3} a {4} {5} {6} the {7} .\n"


def make_split(folder: Path, name: str, images: int, shape: tuple[int, int], words: int) -> None:
    """Features, captions and graphs of one split; words are as unequal in number as real ones."""
    np.lib.format.open_memmap(folder / f"{name}_ims.npy", "w+", np.float32, (images, *shape))
    (folder / f"{name}_ids.txt").write_text("".join(f"{name}{row}\n" for row in range(images)))
    drawn = np.random.default_rng(len(name)).zipf(1.3, (5 * images, 8)) % words
    with (
        (folder / f"{name}_caps.txt").open("w") as captions,
        (folder / "scene_graph" / f"{name}.json").open("w") as graphs,
    ):
        for n, row in enumerate(drawn):
            said = [f"w{word}" for word in row]
            captions.write(CAPTION.format(*said))
            graphs.write(("{" if n == 0 else ",\n") + ENTRY.format(*said, n=n))
        graphs.write("}")


def make_vectors(path: Path, words: int, width: int) -> None:
    """Word vectors, which are used where they are there; here of the first words only."""
    path.parent.mkdir()
    lines = [f"w{word} " + " ".join(["0.1"] * width) for word in range(min(words, 1000))]
    path.write_text("\n".join(lines) + "\n")


class Stages:
    """A row of a table for each stage."""

    def __init__(self) -> None:
        print("| stage | CPU s | wall s | peak so far, MiB |\n|---|--:|--:|--:|")
        self.marks = time.process_time(), time.perf_counter()

    def done(self, name: str) -> tuple[float, float]:
        now = time.process_time(), time.perf_counter()
        cpu, wall = (end - start for start, end in zip(self.marks, now, strict=True))
        print(f"| {name} | {cpu:.2f} | {wall:.2f} | {process_peak_mib():,.0f} |", flush=True)
        self.marks = time.process_time(), time.perf_counter()
        return cpu, wall


def time_steps(model: Matcher, prepared: Iterable[Batch]) -> tuple[float, float]:
    """Mean milliseconds of a training step and of the wait for its batch, without the first."""
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    left: Iterator[Batch] = iter(prepared)
    rows, started = [], time.perf_counter()
    for batch in left:
        there = time.perf_counter()
        optimiser.zero_grad()
        model.loss(batch).backward()
        optimiser.step()
        rows.append((time.perf_counter() - started, there - started))
        started = time.perf_counter()
    step, wait = 1000 * np.mean(rows[1:], axis=0)
    return float(step), float(wait)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it still run?")
    parser.add_argument("--batches", type=int, default=2000, help="to prepare (default: 2000)")
    args = parser.parse_args(arguments)
    images, shape, words = {"train": 113_287, "dev": 5_000, "test": 5_000}, (36, 2048), 10_000
    settings = budget("paper", "coco")
    if args.quick:
        images, shape, words = {"train": 60, "dev": 20, "test": 20}, (4, 16), 30
        settings = replace(settings, width=32, heads=4, word_width=16, batch=16)
        args.batches = 10
    print(f"{machine()}; {5 * sum(images.values()):,} captions\n")
    with tempfile.TemporaryDirectory() as temporary, patch.dict(os.environ, MMLIB_DATA=temporary):
        folder, stages = Path(temporary, "coco"), Stages()
        (folder / "scene_graph").mkdir(parents=True)
        for name, count in images.items():
            make_split(folder, name, count, shape, words)
        width = settings.word_width
        make_vectors(Path(temporary, "glove", f"glove.6B.{width}d.txt"), words, width)
        stages.done("make the files up")
        found = data.load_study("paper", ["coco"])["coco"]
        stages.done("load captions and graphs")
        arrays = data.prepare(found, settings)
        stages.done("words, graphs as arrays")
        assert arrays.fingerprint
        stages.done("fingerprint")
        train = arrays.splits["train"]
        epoch = training_batches(CORA, settings, train, train.texts["graph"], 0)
        count = sum(1 for _ in islice(epoch(0), args.batches))
        cpu, _ = stages.done(f"{args.batches} batches of {settings.batch}")
        size = train.features.nbytes / 2**20
        print(
            f"\n{count} batches: {1000 * cpu / count:.0f} ms of CPU each, drawn from "
            f"{size:,.0f} MiB of features\n"
        )
        model = fresh(CORA, settings, arrays).train()
        print("| batches | ms a step | of which waiting |\n|---|--:|--:|")
        for name, prepared in (("in between", iter), ("ahead", ahead)):
            step, wait = time_steps(model, prepared(islice(epoch(0), 4)))
            print(f"| {name} | {step:.0f} | {wait:.1f} |")
        print(f"\npeak of resident memory: {process_peak_mib():,.0f} MiB")


if __name__ == "__main__":
    main()
