"""Train the picture world's frozen retriever, from which paper 02's judges start.

    python ci/train_world_retriever.py

About 20 minutes of one core. An ALBEF-like retriever grows out of a dual encoder, both trained on
scenes of the split "backbone", which no notebook trains or tests on, with noise added anew to each
epoch's image features. Writes retrievers.safetensors, and paper 02's scale of regions for searches.
"""

import json
import platform
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from safetensors.torch import save_file

from mmlib import world
from mmlib.core.files import write_tensors
from mmlib.core.fit import seed_everything
from mmlib.core.paths import write_atomic
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.features.encoders import region_scale, standardised
from mmlib.features.words import Words
from mmlib.papers.entailment.data import load_arrays, load_study
from mmlib.papers.entailment.data.arrays import Split
from mmlib.papers.entailment.data.world import NOISE, RETRIEVERS
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.method.revision import Phase, train
from mmlib.papers.entailment.run.systems import BUDGETS
from mmlib.suite.encoders import REGIONS

LIST = 2  # of the split's scenes; the world's image network saw list 0 and was tested on list 1
SCENES, HELD_OUT = 9700, 300
PHASES = {"dual": Phase(12, 128, 2e-3), "align": Phase(10, 64, 1e-3)}


def always(table: np.ndarray) -> Callable[[int], np.ndarray]:
    return lambda epoch: table


def main() -> None:
    torch.set_num_threads(1)  # the same sums whatever the machine
    started, plan = time.monotonic(), BUDGETS["world"].retrieval
    images = world.captioned_images("backbone", SCENES + HELD_OUT, LIST, workers=1)
    train_rows, held_rows = np.split(np.arange(len(images.captions)), [SCENES])
    words = Words.of([text for row in train_rows for text in images.captions[row]])
    clean, rng = images.features, np.random.default_rng(0)

    def blurred() -> np.ndarray:
        return clean + NOISE * rng.standard_normal(clean.shape, dtype=np.float32)

    scale = region_scale(blurred()[:SCENES])
    few, held = (Split.of(words, images.captions, rows) for rows in (train_rows, held_rows))
    weights: dict[str, torch.Tensor] = {}
    notes = {"made_by": "ci/train_world_retriever.py", "split": "backbone", "list": LIST,
             "scenes": SCENES, "image_noise": NOISE, "torch": torch.__version__,
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
    scale = load_arrays(load_study("world"), "world")["world"].region_scale
    write_tensors(REGIONS, {"regions": scale.astype(np.float16)})


if __name__ == "__main__":
    main()
