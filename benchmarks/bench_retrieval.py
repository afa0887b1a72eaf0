"""Ranking images against captions by counting against a sort a query; search against a full scan.

The sorting peer takes one argsort a query, as evaluation code in this field does. Its ranks must be
mmlib's but for equal scores, which it orders by chance, and the scan must find what the index
finds; both are checked before anything is printed.

Prints Markdown tables: medians as CPU time and as wall time (on a busy machine they differ), the
ratio of CPU times, and the peak of what NumPy allocated in each way; then a search's time as the
images grow in number, beside that of a scorer that attends from words to regions.
"""

import argparse

import numpy as np
import torch
from measure import machine, peak_mib, times_ms

from mmlib.core.ranking import flat_index, rank_images_and_captions, ranks_of_scores
from mmlib.papers.cora.run.baselines import LENGTH, REGIONS, cross_attention, time_search


def unit_rows(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    vectors = rng.standard_normal((count, width), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def by_sorting(scores: np.ndarray, image_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of each image's best caption and of each caption's image, one sort a query."""
    image_ranks = np.empty(len(scores), dtype=np.int64)
    for image, row in enumerate(scores):
        order = np.argsort(row)[::-1]
        image_ranks[image] = np.flatnonzero(image_of[order] == image)[0] + 1
    caption_ranks = np.empty(len(image_of), dtype=np.int64)
    for caption, column in enumerate(scores.T):
        order = np.argsort(column)[::-1]
        caption_ranks[caption] = np.flatnonzero(order == image_of[caption])[0] + 1
    return image_ranks, caption_ranks


def by_scanning(images: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    """The best k rows by a product in float32 and a sort."""
    return np.argsort(images @ query)[::-1][:k]


def compare_ranking(images: int, width: int, repetitions: int) -> None:
    """Ranking from a given matrix, and from embeddings with the product that it takes."""
    rng = np.random.default_rng(0)
    image_of = np.repeat(np.arange(images), 5)
    v = unit_rows(rng, images, width)
    t = v[image_of] + 2 * unit_rows(rng, 5 * images, width)
    t = t / np.linalg.norm(t, axis=1, keepdims=True)
    scores = v @ t.T
    ranks, own = ranks_of_scores(scores, image_of), scores[image_of, np.arange(len(image_of))]
    best = np.maximum.reduceat(own, np.arange(0, len(own), 5))[:, None]
    least = {"image": (scores > best).sum(axis=1) + 1, "caption": (scores > own).sum(axis=0) + 1}
    for peer, name in zip(by_sorting(scores, image_of), least, strict=True):
        if not ((least[name] <= peer) & (peer <= getattr(ranks, f"{name}_ranks"))).all():
            raise AssertionError(f"{name} queries: mmlib and the sort differ")
    print(f"| ranking {images} × {5 * images} | mmlib: CPU ms | wall | MiB "
          "| sort: CPU ms | wall | MiB | ratio |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, ours, theirs in (
        (
            "from scores",
            lambda: ranks_of_scores(scores, image_of),
            lambda: by_sorting(scores, image_of),
        ),
        (
            f"from embeddings of width {width}",
            lambda: rank_images_and_captions(v, t, image_of),
            lambda: by_sorting(v @ t.T, image_of),
        ),
    ):
        cells, cpu = "", []
        for work in (ours, theirs):
            taken = times_ms(work, repetitions)
            cpu.append(taken[0])
            cells += f" {taken[0]:.1f} | {taken[1]:.1f} | {peak_mib(work):.1f} |"
        print(f"| {name} |{cells} {cpu[1] / cpu[0]:.1f} |", flush=True)


def compare_search(count: int, width: int, repetitions: int, k: int = 10) -> None:
    """One query against `count` images: the index, and a scan of all in float32."""
    rng = np.random.default_rng(1)
    images, queries = unit_rows(rng, count, width), unit_rows(rng, repetitions + 1, width)
    index = flat_index(images)
    scanned = [by_scanning(images, query, k).tolist() for query in queries]
    found = [index.search(query[None], k)[1][0] for query in queries]
    # float32 rounds: where two cosines differ by less, the scan may swap them.
    if not np.allclose(
        [images[rows] @ q for rows, q in zip(scanned, queries, strict=True)],
        [images[rows] @ q for rows, q in zip(found, queries, strict=True)],
        atol=1e-6,
    ):
        raise AssertionError("the index and the scan differ")
    waiting = iter(queries)
    ours = times_ms(lambda: index.search(next(waiting)[None], k), repetitions)
    waiting = iter(queries)
    scan = times_ms(lambda: by_scanning(images, next(waiting), k), repetitions)
    print(f"\n| search {count} × {width}, best {k} | CPU ms | wall |\n|---|--:|--:|")
    print(f"| index (faiss) | {ours[0]:.2f} | {ours[1]:.2f} |")
    print(f"| scan in float32 and sort | {scan[0]:.2f} | {scan[1]:.2f} |")
    print(f"| ratio | {scan[0] / ours[0]:.1f} | {scan[1] / ours[1]:.1f} |")


def time_attention(count: int, width: int, repetitions: int) -> float:
    """Wall milliseconds of SCAN's scores of `count` images; features are those of 1,024."""
    pool, words = torch.randn(min(count, 1024), REGIONS, width), torch.randn(LENGTH, width)

    def score() -> None:
        for first in range(0, count, len(pool)):
            cross_attention(words, pool[: count - first])

    return times_ms(score, repetitions)[1]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it still run?")
    quick = parser.parse_args(arguments).quick
    torch.set_num_threads(1)
    print(f"{machine()}, NumPy {np.__version__}\n")
    compare_ranking(*((50, 16, 1) if quick else (5000, 1024, 3)))
    compare_search(*((2000, 64, 3) if quick else (100_000, 1024, 50)))
    sizes = [10**power for power in range(1, 4 if quick else 7)]
    width, repeats = (16, 3) if quick else (1024, 20)
    medians = {size: float(np.median(time_search(size, width, 0, repeats))) for size in sizes}
    attended = {n: time_attention(n, width, 5) for n in sizes if n <= 10_000}
    print("\n| images | search, wall ms | SCAN's cross-attention |\n|--:|--:|--:|")
    for size, seconds in medians.items():
        peer = f"{attended[size]:.2f}" if size in attended else "–"
        print(f"| {size} | {1000 * seconds:.2f} | {peer} |", flush=True)


if __name__ == "__main__":
    main()
