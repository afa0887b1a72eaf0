"""Paper 03: captions to scene graphs, one by one against in batches, and by several processes.

One by one is spaCy's `nlp(text)` for each caption, batched is `mmlib.scenegraph.parse`, which also
parses equal captions once; the captions here are all different. That both give the same graphs is
checked before anything is timed. A third line is the rules and graphs without the pipeline.

Prints a Markdown table: captions a second of processor time (of wall-clock time for several
processes), how many times that of one by one, and the peak of what each way holds beyond the loaded
pipeline (the same captions for each), with the graphs that it returns. Below stands the peak of
resident memory, everything included.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from networkx.utils import graphs_equal

sys.path.insert(0, str(Path(__file__).parent))  # for those who load this file from elsewhere
from measure import peak_mib, process_peak_mib, processor

from mmlib.scenegraph import graph_of, parse
from mmlib.scenegraph.parser import load_english
from mmlib.world.captions import captions
from mmlib.world.scenes import sample_scene, split_seeds


def different_captions(n: int) -> list[str]:
    """n different captions of the picture world."""
    texts: dict[str, None] = {}
    for seed in split_seeds("train", n):
        texts.update(dict.fromkeys(one.text for one in captions(sample_scene(seed))))
        if len(texts) >= n:
            break
    return list(texts)[:n]


def rate(work: Callable[[], list], repetitions: int, clock: Callable[[], float]) -> float:
    """Results a second, the median of some runs."""
    rates = []
    for _ in range(repetitions):
        start = clock()
        done = len(work())
        rates.append(done / (clock() - start))
    return statistics.median(rates)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 captions: does it still run?")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args(arguments)
    texts = different_captions(200 if options.quick else 6000)
    repetitions = 1 if options.quick else 3
    nlp = load_english()
    single = [graph_of(nlp(text)) for text in texts[:100]]
    if not all(graphs_equal(a, b) for a, b in zip(single, parse(texts[:100]), strict=True)):
        raise AssertionError("one by one and batched give different graphs")

    some = texts[: len(texts) // 4]
    docs = list(nlp.pipe(some))
    ways: dict[str, Callable[[], list]] = {
        "one by one": lambda: [graph_of(nlp(text)) for text in some],
        "batched": lambda: parse(texts),
        "rules and graphs alone": lambda: [graph_of(doc) for doc in docs],
    }
    rates = {name: rate(work, repetitions, time.process_time) for name, work in ways.items()}
    resident = f"{process_peak_mib():.0f} MiB in one process"
    if not options.quick:
        many = options.workers
        parse(texts[: 1000 * many], workers=many)  # starts the processes
        work = lambda: parse(texts, workers=many)  # noqa: E731
        rates[f"batched, {many} processes"] = rate(work, repetitions, time.perf_counter)
        resident += f", {process_peak_mib():.0f} MiB with {many} more that parse"
    ways["batched"] = lambda: parse(some)
    peaks = {name: f"{peak_mib(work):.1f}" for name, work in ways.items()}
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(
        f"{processor()}, {os.cpu_count()} cores, 1 thread a process; {len(texts)} captions of "
        f"{words:.1f} words on average, medians of {repetitions} runs; peaks with {len(some)}\n"
    )
    print("| way | captions/s | ratio | peak MiB |\n|---|--:|--:|--:|")
    for name, found in rates.items():
        ratio = found / rates["one by one"]
        print(f"| {name} | {found:,.0f} | {ratio:.1f} | {peaks.get(name, '–')} |")
    print(f"\nPeak of resident memory: {resident}.")


if __name__ == "__main__":
    main()
