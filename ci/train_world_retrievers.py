"""Train the picture world's three retrievers plainly, on scenes of the split "backbone".

    python ci/train_world_retrievers.py

About 20 minutes of one core. Align-then-fuse and single stream grow out of a dual encoder that is
trained three times as long as the one that is kept: as in the paper, that is the weakest. Writes
mmlib/world/retrievers.safetensors, from which notebook 02 starts. Looked-at scenes and a checkpoint
an epoch are kept under build/, so that a stopped run goes on where it was.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

from mmlib import world
from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.entailment_batches import Words, padded
from mmlib.retrievers import DualEncoder
from mmlib.revision_study import (
    BUDGETS,
    FAMILIES,
    NOISE,
    WEIGHTS,
    WORDS,
    Split,
    build,
    metadata,
    pretrain,
    read_weights,
    save_weights,
)
from mmlib.world.hypotheses import noisy

LIST = 2  # of the split's scenes; the world's image network saw list 0 and was tested on list 1
HELD_OUT = 300


def seen(count: int, folder: Path, workers: int) -> tuple[np.ndarray, list, list[int]]:
    """Features without noise, captions and seeds of scenes, looked at once and kept."""
    features, texts = folder / f"features-{count}.npy", folder / f"captions-{count}.json"
    if not texts.exists():
        images = world.captioned_images("backbone", count, LIST, workers=workers)
        write_atomic(features, lambda path: np.save(path, images.features.astype(np.float16)))
        record = {"captions": images.captions, "seeds": [scene.seed for scene in images.scenes]}
        write_atomic(texts, lambda path: path.write_text(json.dumps(record)))
    record = json.loads(texts.read_text())
    return np.load(features).astype(np.float32), record["captions"], record["seeds"]


def make_split(features: np.ndarray, captions: list, words: Words) -> Split:
    ids, lengths = padded([words.ids(text)[:WORDS] for own in captions for text in own])
    counts = [len(own) for own in captions]
    return Split(features, ids, lengths, np.repeat(np.arange(len(captions)), counts))


def recalls(family: str, weights: dict, words: Words, test: Split) -> dict[str, float]:
    """R@K both ways on held-out scenes; a single stream re-ranks align's best."""
    more: dict = {}
    models = {name: build(name, BUDGETS["world"], len(words), test) for name in {family, "align"}}
    models[family].load_state_dict(weights[family])
    if family == "single":
        models["align"].load_state_dict(weights["align"])
        shortlist, _ = DualEncoder.rank(models["align"], *test.tensors())
        more = {"shortlist": shortlist, "top": BUDGETS["world"].top}
    by_image, by_text = models[family].rank(*test.tensors(), **more)
    found = metrics(ranks_of_scores(by_image, test.image_of))
    other = metrics(ranks_of_scores(by_text, test.image_of))
    merged = {name: (found if name.startswith("i2t") else other)[name] for name in found}
    return {name: round(value, 1) for name, value in merged.items() if "_r" in name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=10000)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--build", type=Path, default=PACKAGE.parent / "build" / "world_retrievers")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same sums whatever the machine
    budget = BUDGETS["world"]

    features, captions, seeds = seen(args.scenes + HELD_OUT, args.build, args.workers)
    train = slice(0, args.scenes)
    words = Words.of([text for own in captions[train] for text in own])
    mean = features[train].mean(axis=(0, 1))
    scale = np.sqrt(features[train].var(axis=(0, 1)) + NOISE**2) + 1e-3
    split = make_split((features[train] - mean) / scale, captions[train], words)
    rest = (noisy(features[args.scenes :], seeds[args.scenes :], NOISE) - mean) / scale
    test = make_split(rest, captions[args.scenes :], words)

    known = [family for family in FAMILIES if WEIGHTS.exists() and family not in args.families]
    weights = {family: read_weights(WEIGHTS, family) for family in known}
    notes = metadata(WEIGHTS)["notes"] if known else {}
    blur = (NOISE / scale).astype(np.float32)
    base, history = pretrain(
        "base", budget, len(words), split, args.seed,
        noise=blur, progress="base", checkpoint=args.build / "base.pt",
    )  # fmt: skip
    notes["base"] = {
        "loss": [round(epoch["loss"], 3) for epoch in history],
        "phase": vars(budget.first["base"]),
        f"held_out_of_{HELD_OUT}": recalls("dual", {"dual": base}, words, test),
    }
    notes |= {
        "made_by": "ci/train_world_retrievers.py", "split": "backbone", "list": LIST,
        "scenes": args.scenes, "image_noise": NOISE, "seed": args.seed,
        "torch": torch.__version__, "machine": platform.machine(),
    }  # fmt: skip
    for family in args.families:
        started = time.monotonic()
        weights[family], history = pretrain(
            family, budget, len(words), split, args.seed,
            start=None if family == "dual" else base, noise=blur, progress=family,
            checkpoint=args.build / f"{family}.pt",
        )  # fmt: skip
        notes[family] = {
            "loss": [round(epoch["loss"], 3) for epoch in history],
            "minutes": round((time.monotonic() - started) / 60, 1),
            "phase": vars(budget.first[family]),
            f"held_out_of_{HELD_OUT}": recalls(family, weights, words, test),
        }
        save_weights(WEIGHTS, weights, words, notes)
        print(family, json.dumps(notes[family]), flush=True)


if __name__ == "__main__":
    main()
