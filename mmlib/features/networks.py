"""Image features from a frozen network by its name; the extraction can be interrupted.

What `extract` writes is read by `open_features`, like every other feature file.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mmlib.core.errors import DataError
from mmlib.features import vision
from mmlib.features.backbones import (
    BACKBONES,
    MOBILENET,
    PREPROCESSING,
    Regions,
    Vision,
    default_weights,
    label_names,
    load_backbone,
    open_picture,
    preprocess,
)
from mmlib.features.extraction import Extraction, Output, fill, finished
from mmlib.features.store import FeatureStore


def of_library(name: str) -> bool:
    """Whether `mmlib.features.vision` loads a backbone of this name."""
    return ":" in name or name == MOBILENET


def load_vision(name: str, weights: str | Path | None = None, seed: int = 0) -> Vision:
    """A frozen backbone of `BACKBONES`, or one of `mmlib.features.vision`.

    weights, seed, errors: as of `load_backbone` and `vision.load`.
    """
    if of_library(name):
        return vision.load(name, weights, seed)
    network = load_backbone(name, weights, seed)
    return Vision(name, network, preprocess(), network, label_names(name))


def feature_name(backbone: str, regions: Regions, weights: str | Path | None = None) -> str:
    """The file name without suffix that `mmlib data features` gives: `grid4x4_densenet169`.

    Of LIBRARY:MODEL it has the model's name.
    """
    kind = {"grid": "grid4x4", "global": "global"}[regions]
    return f"{kind}_{short_name(backbone, weights)}"


def short_name(backbone: str, weights: str | Path | None = None) -> str:
    """A backbone's name as files have it; random weights are marked."""
    model = re.sub(r"[^\w-]+", "-", backbone.rpartition(":")[2])
    return model + ("_random" if weights == "random" else "")


def extract(
    extraction: Extraction,
    backbone: str = "densenet169",
    regions: Regions = "grid",
    labels: Path | None = None,
) -> FeatureStore:
    """Write features of images to a `.npy` file with ids and notes.

    `labels`, if given, gets the class probabilities, (images, 1000) float32, in the same form.
    The run may be killed at any time: called again with the same settings it goes on at the batch
    where it stopped and ends with the same bytes. Image rows keep their order.

    Raises DataError: undecodable image, doubled id, features that the type cannot hold, another
    run's unfinished or finished files with other settings.
    """
    out, images = extraction.out, extraction.images
    settings: dict[str, Any] = {
        "backbone": backbone,
        "weights": extraction.weights_note(lambda: default_weights(backbone)),
        "regions": regions,
        "preprocessing": PREPROCESSING if backbone in BACKBONES else "the library's own",
        **({"library": vision.version_of(backbone)} if of_library(backbone) else {}),
        "labels": labels is not None,
        **extraction.settings(),
    }
    if out.exists():
        return finished(images, out, settings, extraction.batch)
    model = load_vision(backbone, extraction.weights, extraction.seed)
    model.network.to(extraction.device)

    @torch.inference_mode()
    def compute(pictures: list[Tensor]) -> dict[str, np.ndarray]:
        features, scores = model.see(torch.stack(pictures).to(extraction.device), regions)
        rows = {"features": features.float().cpu().numpy()}
        return rows if scores is None else rows | {"labels": scores.float().cpu().numpy()}

    # What one picture gives tells the shapes of all.
    rows = compute([model.preprocess(Image.new("RGB", (256, 256)))])
    shape = rows["features"].shape[1:] if regions == "grid" else rows["features"].shape[2:]
    outputs = {"features": Output(out, shape, np.dtype(extraction.dtype))}
    if labels is not None:
        if "labels" not in rows:
            raise DataError(f"{backbone} has no classes (leave --labels out)")
        notes = {"label_names": model.label_names}
        outputs["labels"] = Output(labels, rows["labels"].shape[1:], np.float32, notes)
    return fill(
        images, outputs, settings, lambda name, path: model.preprocess(open_picture(path)),
        compute, batch=extraction.batch, skip_bad=extraction.skip_bad,
    )  # fmt: skip
