"""Train the picture world's frozen retriever, from which paper 02's judges start.

    python ci/train_world_retriever.py

About 20 minutes of one core. An ALBEF-like retriever grows out of a dual encoder, both trained on
scenes of the split "backbone", which no notebook trains or tests on, with noise added anew to the
image features of each epoch. Writes mmlib/world/retrievers.safetensors.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from safetensors.torch import save_file

from mmlib import world
from mmlib.core.fit import seed_everything
from mmlib.core.paths import write_atomic
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.features.encoders import region_scale, standardised
from mmlib.features.words import Words
from mmlib.papers.entailment.data.arrays import Split
from mmlib.papers.entailment.data.world import NOISE, RETRIEVERS
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.method.revision import Phase, train
from mmlib.papers.entailment.run.systems import BUDGETS

LIST = 2  # of the split's scenes; the world's image network saw list 0 and was tested on list 1
HELD_OUT = 300
PHASES = {"dual": Phase(12, 128, 2e-3), "align": Phase(10, 64, 1e-3)}


def always(table: np.ndarray) -> Callable[[int], np.ndarray]:
    return lambda epoch: table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=9700)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same sums whatever the machine
    started, plan = time.monotonic(), BUDGETS["world"].retrieval
    images = world.captioned_images("backbone", args.scenes + HELD_OUT, LIST, workers=args.workers)
    train_rows, held_rows = np.split(np.arange(len(images.captions)), [args.scenes])
    words = Words.of([text for row in train_rows for text in images.captions[row]])
    clean, rng = images.features, np.random.default_rng(0)

    def blurred() -> np.ndarray:
        return clean + NOISE * rng.standard_normal(clean.shape, dtype=np.float32)

    scale = region_scale(blurred()[: args.scenes])
    few, held = (Split.of(words, images.captions, rows) for rows in (train_rows, held_rows))
    weights: dict[str, torch.Tensor] = {}
    notes = {"made_by": "ci/train_world_retriever.py", "split": "backbone", "list": LIST,
             "scenes": args.scenes, "image_noise": NOISE, "torch": torch.__version__,
             "machine": platform.machine()}  # fmt: skip
    for family, phase in PHASES.items():
        seed_everything(0)
        table = standardised([blurred()], scale)
        model = build(family, plan, table, len(words))
        model.load_state_dict(weights, strict=False)
        train(model, few, phase, 0, always(table))
        weights = {n: v.detach().contiguous() for n, v in model.state_dict().items()}
        by_image, by_text = model.rank(*held.tensors(table))
        notes[family] = {
            "i2t": metrics(ranks_of_scores(by_image, held.image_of))["i2t_r10"],
            "t2i": metrics(ranks_of_scores(by_text, held.image_of))["t2i_r10"],
        }
    notes["minutes"] = round((time.monotonic() - started) / 60, 1)
    print(json.dumps(notes, indent=1))
    half = {f"align.{n}": v.half() for n, v in weights.items() if v.is_floating_point()}
    told = {"words": json.dumps(words.words), "notes": json.dumps(notes)}
    write_atomic(RETRIEVERS, partial(save_file, half, metadata=told))
    RETRIEVERS.chmod(0o644)


if __name__ == "__main__":
    main()
