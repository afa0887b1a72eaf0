"""Is every paper's model right on a GPU, how fast, in how much memory; and how long is a training?

Each model trains for some steps from the same weights on the same random batch, on the CPU and on
the device, in float32 and without dropout; what may differ is rounding. Sizes are the papers'.
Then CORA and the links of documents are trained on Flickr8k with ten seeds. What these read is
made once, by a machine that has all packages and the data, and kept in `runs/cache/gpu_acceptance`,
which may be copied to one that has PyTorch alone.

Writes a Markdown table. Exit status 1: a value differs by more than its tolerance.
"""

import argparse
import pickle
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import machine, tensor_peak_mib
from torch import Tensor, nn

from mmlib.core.device import pick_device
from mmlib.core.fit import seed_everything
from mmlib.core.jobs import Job, Run
from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.core.ranking import metrics, rank_images_and_captions
from mmlib.papers.coherence import run as coherence_run
from mmlib.papers.coherence.data import pairs as coherence
from mmlib.papers.cora.method import encode as cora_encode
from mmlib.papers.cora.run import batches as cora
from mmlib.papers.cora.run import systems as cora_systems
from mmlib.papers.cora.run.train import train as cora_train
from mmlib.papers.cora.variants import build as cora_build
from mmlib.papers.entailment.method import classifier as entailment
from mmlib.papers.links import method as links_method
from mmlib.papers.links import run as links_run
from mmlib.papers.links.data.arrays import Arrays, Batch, Split

# Relative: of the first loss, of the first gradient (its length), of the loss after two steps.
TOLERANCES = {"forward": 1e-4, "backward": 1e-3, "step": 1e-3}
KEPT = PACKAGE.parent / "runs" / "cache" / "gpu_acceptance"
Made = tuple[nn.Module, Callable[[], Tensor]]

# --- A model of each paper, and its loss on a random batch ----------------------------------------


def links(tiny: bool, device: str) -> Made:
    """Paper 04: AP with hard negatives, 11 documents of 10 sentences and 10 images."""
    documents, nodes, words, features = (3, 4, 50, 16) if tiny else (11, 10, 10_000, 1664)
    settings = links_method.Settings(dropout=0.0)
    settings = replace(settings, width=16, word_width=8) if tiny else settings
    model = links_method.LinkModel(torch.randn(words, settings.word_width), features, settings)
    there = torch.ones(documents, nodes, dtype=torch.bool, device=device)
    batch = Batch(
        ids=torch.randint(2, words, (documents * nodes, 12)).to(device),
        lengths=torch.randint(5, 13, (documents * nodes,)),
        features=torch.randn(documents * nodes, features).to(device),
        rows=there,
        columns=there,
    )
    system = links_method.System("AP", "AP")
    return model, lambda: links_method.batch_loss(model, batch, system, settings, "hard")


def graphs(tiny: bool, device: str) -> Made:
    """Paper 03: CORA, 128 captions of 3 objects, 36 regions of 2,048."""
    captions, regions, features = (4, 5, 16) if tiny else (128, 36, 2048)
    rates = ("region_dropout", "image_dropout", "graph_dropout", "message_dropout",
             "drop_objects", "drop_attributes", "drop_relations", "mask")  # fmt: skip
    settings = replace(cora_systems.Settings(), **dict.fromkeys(rates, 0.0))
    settings = replace(settings, width=16, word_width=8, heads=2) if tiny else settings
    rng, every = np.random.default_rng(0), np.arange(captions)
    # Each object has an attribute, the first is related to the second by a phrase of two words.
    objects = rng.integers(53, 1000, 3 * captions)
    tokens = np.column_stack([np.arange(1000), np.zeros(1000, dtype=int)])
    tokens[1] = 1, 2
    texts = cora.GraphSet(
        phrases=tuple(map(str, range(1000))),
        tokens=tokens, lengths=np.count_nonzero(tokens, axis=1),
        objects=objects, attributes=objects % 50 + 3, relations=np.ones(captions, dtype=int),
        owner=np.tile(np.arange(3), captions),
        subject=np.zeros(captions, dtype=int), object=np.ones(captions, dtype=int),
        first_object=3 * np.arange(captions + 1), first_attribute=3 * np.arange(captions + 1),
        first_relation=np.arange(captions + 1), mask_id=2,
    )  # fmt: skip
    images = rng.standard_normal((captions, regions, features), dtype=np.float32)
    split = cora.Split(images, every, {"graph": texts})
    batch = cora.make_batch(split, texts, every, settings, rng, list(every[:, None]), device=device)
    words = torch.randn(1000, settings.word_width)
    model = cora_build(cora_systems.CORA, settings, features, words)
    return model, lambda: model.loss(batch)


def relations(tiny: bool, device: str) -> Made:
    """Paper 01: CMCM with five relations, 32 pairs of 40 words and 2,048 image features."""
    pairs, words, features = (4, 6, 16) if tiny else (32, 40, 2048)
    settings = coherence_run.Settings()
    settings = replace(settings, word_width=8, hidden=8, width=16) if tiny else settings
    rng = np.random.default_rng(0)
    ids, lengths = rng.integers(1, 1000, (pairs, words)), rng.integers(3, words + 1, pairs)
    images = rng.standard_normal((pairs, features), dtype=np.float32)
    labels, every = rng.random((pairs, 5)) < 0.5, np.arange(pairs)
    labels[0] = True  # each relation holds of some pair
    split = coherence.Split(ids, lengths, labels, every, images)
    batch = split.batch(every, device)
    vectors = rng.standard_normal((1000, settings.word_width), dtype=np.float32)
    arrays = coherence.Arrays({"train": split}, vectors, coherence.CLUE[:5])
    model = coherence_run.make(coherence_run.CMCM, settings, arrays, 0)
    return model, lambda: model.loss(batch)


def classifier(tiny: bool, device: str) -> Made:
    """Paper 02: both branches with cross attention, 16 samples of 60 words and 36 regions."""
    samples, length, regions, features = (6, 8, 4, 16) if tiny else (16, 60, 36, 2048)
    small = {"width": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "words_layers": 1,
             "cross_layers": 1}  # fmt: skip
    settings = replace(entailment.Settings(dropout=0.0), **(small if tiny else {}))
    counted = torch.tensor([entailment.INDICATORS[kind] for kind in ("te", "ve", "mme")])
    ids = torch.randint(4, 1000, (samples, length))
    columns = {
        "pair": ids,
        "pair_mask": torch.ones_like(ids),
        "pair_type": torch.ones_like(ids).tril(),
        "words": ids[:, : length // 2],
        "words_mask": torch.ones_like(ids[:, : length // 2]),
        "images": torch.randn(samples, regions, features),
        "labels": torch.arange(samples) // 2 % 2,
        "counted": counted[torch.arange(samples) % 3],
    }
    batch = entailment.Batch(**{name: value.to(device) for name, value in columns.items()})
    model = entailment.Classifier(1000, features, regions, settings)

    def loss() -> Tensor:
        with torch.no_grad():
            _, attention = model.image(batch.images)
        full = entailment.with_masked(batch, attention, settings.masking, settings.masked)
        return entailment.joint_loss(model(full), full.labels, full.counted)

    return model, loss


PAPERS = {"01": relations, "02": classifier, "03": graphs, "04": links}

# --- Right, fast, small ---------------------------------------------------------------------------


def stepper(make: Callable[[bool, str], Made], tiny: bool, device: str) -> tuple[nn.Module, Any]:
    """The model on its device, and a training step of it; the same weights and batch each time."""
    seed_everything(0)
    model, loss = make(tiny, device)
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return model, step


def values(make: Callable[[bool, str], Made], tiny: bool, device: str) -> dict[str, Tensor]:
    """What is compared: the first loss, the first gradient, and the loss after two steps."""
    model, step = stepper(make, tiny, device)
    first = step()
    gradient = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    found = {"forward": first, "backward": torch.cat(gradient)}
    step()
    return {name: value.cpu().double() for name, value in (found | {"step": step()}).items()}


def differences(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> dict[str, float]:
    """Relative differences, by name."""
    return {
        name: float((ours[name] - value).norm() / value.norm()) for name, value in reference.items()
    }


def compared(make: Callable[[bool, str], Made], tiny: bool, device: str) -> dict[str, float]:
    """Differences from the CPU; on the CPU itself, of two threads from one."""
    threads = torch.get_num_threads()
    exact, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        torch.set_num_threads(1 if device == "cpu" else threads)
        reference = values(make, tiny, "cpu")
        torch.set_num_threads(2 if device == "cpu" else threads)
        return differences(values(make, tiny, device), reference)
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.allow_tf32 = exact


def measured(make: Callable[[bool, str], Made], tiny: bool, device: str) -> tuple[float, str, str]:
    """Steps a second, peak MiB of tensors, and how often a step waits for the device."""
    gpu = device != "cpu"
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    _, step = stepper(make, tiny, device)
    for _ in range(1 if tiny else 5):
        step()
    if gpu:
        torch.cuda.synchronize(device)
    count, started = 0, time.perf_counter()
    while count < (3 if tiny else 20) or (gpu and time.perf_counter() - started < 5):
        step()
        count += 1
    if gpu:
        torch.cuda.synchronize(device)
    rate = count / (time.perf_counter() - started)
    if not gpu:
        return rate, f"{tensor_peak_mib(step):.1f}", "–"
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        step()
        torch.cuda.set_sync_debug_mode("default")
    return rate, f"{torch.cuda.max_memory_allocated(device) / 2**20:.0f}", str(len(waits))


# --- Trainings on Flickr8k ------------------------------------------------------------------------


def cora_arrays() -> dict[str, Any]:
    from mmlib.papers.cora import data
    from mmlib.papers.cora.run import record as grid

    arrays = data.load_arrays(data.load_study("flickr8k"), "flickr8k")["flickr8k"]
    (job,) = [
        job
        for job in grid.trainings("flickr8k", ["flickr8k"], [0])
        if job.system["system"] == "CORA"
    ]
    splits = {s: replace(one, features=np.array(one.features)) for s, one in arrays.splits.items()}
    return {"arrays": replace(arrays, splits=splits), "job": job}


def train_cora(kept: dict[str, Any], seed: int, device: str) -> float:
    """RSUM of the test pairs, in percent."""
    job, arrays = replace(kept["job"], seed=seed), kept["arrays"]
    model, _ = cora_train(job, arrays, Run(device))
    test = arrays.splits["test"]
    encoded = cora_encode(model, test, test.texts["graph"], device)
    ranks = rank_images_and_captions(encoded.images, encoded.captions, encoded.image_of)
    return metrics(ranks)["rsum"]


def links_arrays() -> dict[str, Any]:
    study = links_run.data.load_study("flickr8k", ["cohesive"])
    arrays = links_run.load_arrays(study, "flickr8k")
    jobs = links_run.stages("flickr8k", arrays, [0])[2].jobs
    (job,) = [job for job in jobs if job.system["system"] == "AP"]
    return {"arrays": arrays["cohesive"], "job": job}


def train_links(kept: dict[str, Any], seed: int, device: str) -> float:
    """AUC of the test documents, in percent."""
    job = replace(kept["job"], seed=seed)
    answer = links_run.train_and_score(job, kept["arrays"], Run(device))
    return float(np.nanmean(answer.values["test"]["AUC"]))


TRAININGS = {
    "03 CORA, RSUM": (cora_arrays, train_cora),
    "04 AP, cohesive, AUC": (links_arrays, train_links),
}


# What a file may hold besides tensors. It may have been copied here, so nothing else is unpickled.
HELD = (
    cora.Arrays, cora.GraphSet, cora.SequenceSet, cora.Split, Arrays, Job, Split, bytes, np.dtype,
    np.ndarray, np.empty(0).__reduce__()[0],
    *(type(np.dtype(name)) for name in ("bool", "f4", "f8", "i4", "i8")),
)  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """What a training reads. Raises ValueError for a file that holds what it should not."""
    try:
        with torch.serialization.safe_globals(list(HELD)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: damaged or not ours ({reason}); delete it") from None


def trained(name: str, seeds: int, device: str, deadline: float) -> str:
    """A row of the table; a line that says why not, where there is nothing to train on."""
    make, train = TRAININGS[name]
    path = KEPT / f"{make.__name__}.pt"
    try:
        if not path.exists():
            write_atomic(path, partial(torch.save, make()))
        kept = read(path)
    except (ImportError, OSError, ValueError) as error:
        return f"| {name} | skipped: {str(error).splitlines()[0]} | | |"
    found, taken = [], []
    for seed in range(seeds):
        if found and time.monotonic() + max(taken) > deadline:
            break
        started = time.monotonic()
        found.append(train(kept, seed, device))
        taken.append(time.monotonic() - started)
    spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    seconds = statistics.mean(taken)
    return f"| {name} | {statistics.mean(found):.2f}{spread} | {len(found)} | {seconds:.1f} |"


# --- The report -----------------------------------------------------------------------------------


def report(device: str, tiny: bool, seeds: int, deadline: float) -> Iterator[str]:
    """The lines of the report; a value beyond its tolerance has an exclamation mark."""
    against = "2 threads against 1" if device == "cpu" else "against the CPU"
    gpu = "" if device == "cpu" else f"{torch.cuda.get_device_name(device)}; "
    tolerances = ", ".join(f"{name} {value:g}" for name, value in TOLERANCES.items())
    yield f"{gpu}{machine()}; device {device}, {against}{', tiny models' if tiny else ''}."
    yield f"Relative differences in float32 without TF32; tolerances: {tolerances}.\n"
    yield "| paper | forward | backward | step | steps a second | peak MiB | waits a step |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, make in PAPERS.items():
        try:
            found = compared(make, tiny, device)
        except ImportError as error:
            yield f"| {name} | skipped: {error} | | | | | |"
            continue
        cells = [f"{x:.1e}{'' if x <= TOLERANCES[n] else ' !'}" for n, x in found.items()]
        rate, peak, waits = measured(make, tiny, device)
        yield f"| {name} | {' | '.join(cells)} | {rate:.1f} | {peak} | {waits} |"
    if not tiny:
        yield "\n| training on Flickr8k | test, mean ± sd | seeds | seconds a training |"
        yield "|---|--:|--:|--:|"
        for name in TRAININGS:
            yield trained(name, seeds, device, deadline)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the Markdown file that is written")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="tiny models, no trainings")
    parser.add_argument("--seeds", type=int, default=10, help="of each training (default: 10)")
    parser.add_argument(
        "--minutes", type=float, default=10, help="begin no training that ends later"
    )
    args = parser.parse_args(arguments)
    try:
        device = pick_device(args.device)
    except ValueError as error:
        parser.error(str(error))
    lines = []
    for line in report(device, args.tiny, args.seeds, time.monotonic() + 60 * args.minutes):
        print(line, flush=True)
        lines.append(line)
    text = "\n".join(lines) + "\n"
    write_atomic(args.out, lambda path: path.write_text(text, encoding="utf-8"))
    return int(" !" in text)


if __name__ == "__main__":
    sys.exit(main())
