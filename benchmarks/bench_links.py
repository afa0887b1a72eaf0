"""Paper 04: one training step with mmlib's set similarities against the plain loop over pairs.

A batch of b + 1 documents needs (b + 1)² document similarities. The loop slices the cosines of one
pair after another and computes each similarity by its formula; mmlib treats the batch as a whole.
Both give the same values and gradients, which is checked before anything is timed.

Prints a Markdown table: milliseconds of the similarity with its gradient, and of a whole step
(encoders, similarity, loss, backward), as medians; the ratio is loop / mmlib.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from measure import processor
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mmlib.papers.links.data.arrays import Batch
from mmlib.papers.links.method import LinkModel, Settings, document_loss
from mmlib.papers.links.method import set_similarity as of_batch
from mmlib.papers.links.run import SYSTEMS

STRUCTURED = tuple(name for name in SYSTEMS if name != "NoStruct")
WORDS, WORD_WIDTH, SENTENCE, FEATURES = 2000, 300, 12, 1664


# --- The plain loop --------------------------------------------------------------------------


def of_pair(block: Tensor, name: str) -> Tensor:
    """The document similarity of one pair from its cosines (n, m), by the formula."""
    best_image, best_sentence = block.max(1).values, block.max(0).values
    if name == "DC":
        return best_image.mean() + best_sentence.mean()
    n, m = block.shape
    q = min(n, m)
    k = (q + 1) // 2 if name.endswith("½k") else q
    if name.startswith("TK"):
        return best_image.topk(k).values.mean() + best_sentence.topk(k).values.mean()
    matrix = block.detach().double().numpy()
    shape = (n, q - k) if n <= m else (q - k, m)  # dummies that take the nodes to stay free
    padded = np.concatenate([matrix, np.full(shape, 10.0)], axis=1 if n <= m else 0)
    row, column = linear_sum_assignment(padded, maximize=True)
    real = (row < n) & (column < m)
    return block[row[real], column[real]].mean()


def of_loop(cosines: Tensor, n: list[int], m: list[int], name: str) -> Tensor:
    """Similarities (D, D) of padded cosines (D, D, N, M), one pair after another."""
    pairs = [
        of_pair(cosines[a, b, : n[a], : m[b]], name) for a in range(len(n)) for b in range(len(m))
    ]
    return torch.stack(pairs).reshape(len(n), len(m))


# --- What is timed ---------------------------------------------------------------------------


def make_batch(documents: int, n: int, m: int) -> Batch:
    """Documents of n random sentences and m random images."""
    sentences, images = documents * n, documents * m
    return Batch(
        ids=torch.randint(2, WORDS, (sentences, SENTENCE)),
        lengths=torch.full((sentences,), SENTENCE),
        features=torch.randn(images, FEATURES),
        rows=torch.ones(documents, n, dtype=torch.bool),
        columns=torch.ones(documents, m, dtype=torch.bool),
    )


def medians_ms(works: list[Callable[[], object]], repetitions: int) -> list[float]:
    """Median times in milliseconds, taken in turn, after one call each that does not count."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions + 1):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(1000 * (time.perf_counter() - start))
    return [statistics.median(taken[1:]) for taken in times]


def compare(name: str, model: LinkModel, batch: Batch, repetitions: int) -> list[float]:
    """Milliseconds: similarity by mmlib and by the loop, then a whole step by both."""
    with torch.no_grad():
        cosines, rows, columns = model.eval()(batch)

    def mmlib_way(cosines: Tensor) -> Tensor:
        return of_batch(cosines, rows, columns, SYSTEMS[name])

    def loop_way(cosines: Tensor) -> Tensor:
        n, m = batch.rows.sum(1).tolist(), batch.columns.sum(1).tolist()
        return of_loop(cosines, n, m, name)

    weights = torch.rand(2 * [len(batch.rows)])  # a gradient of its own for each pair

    def similarity(way: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        inputs = cosines.clone().requires_grad_()
        values = way(inputs)
        values.backward(weights)
        return values.detach(), inputs.grad

    def step(way: Callable[[Tensor], Tensor]) -> None:
        model.zero_grad(set_to_none=True)
        document_loss(way(model(batch)[0])).backward()

    for ours, theirs in zip(similarity(mmlib_way), similarity(loop_way), strict=True):
        if not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{name}: mmlib and the loop differ")
    model.train()
    return [
        milliseconds
        for work, count in ((similarity, 3 * repetitions), (step, repetitions))
        for milliseconds in medians_ms(
            [lambda work=work: work(mmlib_way), lambda work=work: work(loop_way)], count
        )
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="b = 3 only: does it still run?")
    quick = parser.parse_args(arguments).quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width, repetitions = (16, 1) if quick else (128, 3)
    model = LinkModel(torch.randn(WORDS, WORD_WIDTH) / 10, FEATURES, Settings(width=width))
    print(
        f"{processor()}, {os.cpu_count()} cores, 1 thread, PyTorch {torch.__version__}; "
        f"encoders of width {width}, medians in ms of {3 * repetitions} (similarity) and "
        f"{repetitions} (step) runs\n"
    )
    print("| documents | b | similarity | mmlib | loop | ratio | step: mmlib | loop | ratio |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|")
    for n, m in ((10, 10), (50, 5)):
        for b in (3,) if quick else (10, 20, 30):
            batch = make_batch(b + 1, n, m)
            for name in STRUCTURED:
                ours, loop, step_ours, step_loop = compare(name, model, batch, repetitions)
                print(
                    f"| {n} × {m} | {b} | {name} | {ours:.1f} | {loop:.1f} | {loop / ours:.1f} "
                    f"| {step_ours:.1f} | {step_loop:.1f} | {step_loop / step_ours:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
