"""Trained models in one file, and your own pairs of pictures and captions scored by them.

```python
from mmlib.papers.entailment import pairs

judge = pairs.read(pairs.SMALL)
judge.score(pairs.read_csv("pairs.csv"), prior=0.05)
```
"""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmlib.core.entailment_pairs import Samples
from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import write_atomic
from mmlib.data.overlap import Weights
from mmlib.features.encoders import Shape
from mmlib.features.words import Words
from mmlib.papers.entailment.arrays import Arrays
from mmlib.papers.entailment.batches import encode
from mmlib.papers.entailment.data import frozen
from mmlib.papers.entailment.inputs import EVERY, Scale
from mmlib.papers.entailment.judging import Calibration, fresh_model, main_branch, scores
from mmlib.papers.entailment.metrics import best_threshold
from mmlib.papers.entailment.model import Classifier, Settings
from mmlib.world import backbone

FORMAT = 1
SMALL = Path(__file__).with_name("judge.safetensors")  # of the picture world, by ci/small_judge.py


@dataclass(frozen=True)
class Row:
    """A picture's file, the caption that is judged, and what else is said of the picture."""

    image: Path
    caption: str
    others: tuple[str, ...] = ()


def read_csv(path: Path | str) -> list[Row]:
    """Rows of a file with the columns image, caption and, if there are more, captions of the image.

    Pictures are looked for beside the file. Raises DataError that names file, row and mend.
    """
    path, rows = Path(path), []
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if not lines or [name.strip() for name in lines[0][:2]] != ["image", "caption"]:
        raise DataError(
            Problem(path, 1, "is not image,caption", "name the columns in the first line")
        )
    for number, fields in enumerate(lines[1:], start=2):
        if not any(fields):
            continue
        image, caption, *others = (*map(str.strip, fields), "", "")[: max(2, len(fields))]
        if not caption:
            raise DataError(Problem(path, number, "has no caption", "write image,caption"))
        if not (path.parent / image).is_file():
            raise DataError(Problem(path, number, f"there is no picture {image}", "mend its name"))
        rows.append(Row(path.parent / image, caption, tuple(filter(None, others))))
    if not rows:
        raise DataError(Problem(path, None, "has no pairs", "write one a line"))
    return rows


def keep(
    path: Path, arrays: Arrays, shape: Shape, retriever: Mapping[str, Tensor],
    judge: Classifier | None = None, card: str = "", space: int = 64,
) -> None:  # fmt: skip
    """Write a retriever, or a judge with the one that it reads, into one file.

    shape, space: of the retriever, an ALBEF-like one. arrays: whose vocabulary, scales and
    calibration pairs go with it. card: what to know of the model before it is used. Weights are
    float16. Raises ValueError for a judge that reads a BERT, which does not fit into a file.
    """
    if arrays.states is not None and judge is not None:
        raise ValueError("a judge that reads a BERT cannot be kept in one file")
    parts = {f"retriever.{name}": value for name, value in retriever.items()}
    meta = {
        "format": FORMAT, "words": arrays.words.words, "shape": asdict(shape), "space": space,
        "card": card, "stems": dict(arrays.frozen.weights),
        "unknown": getattr(arrays.frozen.weights, "unknown", 0.0), "judge": None,
    }  # fmt: skip
    parts["regions"] = torch.from_numpy(arrays.region_scale)
    if judge is not None:
        own = arrays.calibration
        deep = scores(judge, arrays.encoded(own, judge.settings), arrays.images)
        raw = deep[main_branch(deep)]
        how = Calibration.fit(arrays, raw, EVERY)
        parts |= {f"judge.{name}": value for name, value in judge.state_dict().items()}
        odds = torch.from_numpy(how.margin(raw, own.given) + how.limit)
        meta |= {"judge": asdict(judge.settings), "weights": how.weights.tolist(),
                 "mean": arrays.scale.mean.tolist(), "deviation": arrays.scale.deviation.tolist(),
                 "labels": own.samples.label.tolist(),
                 "odds": odds.numpy().round(3).tolist()}  # fmt: skip
    half = {n: (v.half() if v.is_floating_point() else v).contiguous() for n, v in parts.items()}
    write_atomic(path, lambda p: save_file(half, p, {"mmlib": json.dumps(meta)}))


def read(path: Path | str) -> "Scorer":
    """A file of `keep`. Raises DataError for anything else; nothing is ever unpickled."""
    try:
        with safe_open(path, "pt") as file:
            meta = json.loads((file.metadata() or {})["mmlib"])
        parts = load_file(path)
        if meta["format"] != FORMAT:
            raise KeyError(f"format {meta['format']}")
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"{path}: no model that pairs.keep has written ({error})") from None
    return Scorer(meta, {name: value.float() for name, value in parts.items()})


@dataclass(frozen=True, eq=False)
class Scorer:
    """A kept model. meta: all but its tensors; parts: these by name."""

    meta: Mapping[str, Any]
    parts: Mapping[str, Tensor]

    @property
    def card(self) -> str:
        """What to know of the model before it is used."""
        return self.meta["card"]

    def score(self, rows: Sequence[Row], prior: float = 0.0) -> pd.DataFrame:
        """A line a pair: image, caption, "log odds", "probability", "threshold", "entailed".

        prior: the share of pairs that you take for entailed; 0: that of the calibration pairs. The
        threshold on the probability is that of best F0.5 there. A retriever alone gives "cosine".
        Raises DataError for a picture that cannot be read, ValueError for a prior of 1 or more.
        """
        if not 0 <= prior < 1:
            raise ValueError(f"a prior is a share between 0 and 1, not {prior}")
        table = pd.DataFrame(
            {"image": [str(r.image) for r in rows], "caption": [r.caption for r in rows]}
        )
        odds, cosine = self._odds(rows)
        if odds is None:
            return table.assign(cosine=cosine.round(4))
        labels, known = np.array(self.meta["labels"]), np.array(self.meta["odds"])
        own = labels.mean()
        share = prior or own
        shift = np.log(share / (1 - share)) - np.log(own / (1 - own))
        counts = np.where(labels == 1, share / own, (1 - share) / (1 - own))
        limit = best_threshold(labels, known, counts) + shift
        return table.assign(
            **{"log odds": (odds + shift).round(3), "probability": _chance(odds + shift).round(4)},
            threshold=round(float(_chance(limit)), 4), entailed=odds + shift >= limit,
        )  # fmt: skip

    def _odds(self, rows: Sequence[Row]) -> tuple[np.ndarray | None, np.ndarray]:
        """Log odds (n,) at the calibration's prior, or None without a judge, and cosines (n,)."""
        words, shape = Words(self.meta["words"]), Shape(**self.meta["shape"])
        images = self._regions(rows)
        weights = {n.removeprefix("retriever."): v for n, v in self.parts.items() if n[0] == "r"}
        del weights["regions"]
        premise = [" ".join(r.others) for r in rows]
        merged = {text: r.others for text, r in zip(premise, rows, strict=True) if text}
        texts = sorted({r.caption for r in rows} | {one for r in rows for one in r.others})
        stems = Weights([])
        stems.update(self.meta["stems"])
        stems.unknown = self.meta["unknown"]
        known = frozen(weights, shape, self.meta["space"], words, images, texts, stems, merged)
        n = len(rows)
        samples = Samples(
            tuple(premise), tuple(r.caption for r in rows), np.arange(n), np.zeros(n, dtype=int),
            ("mme",) * n, ("yours",) * n, tuple(map(str, range(n))),
        )  # fmt: skip
        raw = known.inputs(samples)
        if self.meta["judge"] is None:
            return None, raw[:, 4]
        settings = Settings(**self.meta["judge"])
        model = fresh_model(settings, len(words), images)
        own = {n.removeprefix("judge."): v for n, v in self.parts.items() if n.startswith("judge.")}
        model.load_state_dict(own)
        encoded = encode(samples, words, words, settings.max_premise, settings.max_hypothesis)
        deep = scores(model.eval(), encoded, images)
        scale = Scale(np.array(self.meta["mean"]), np.array(self.meta["deviation"]))
        how = Calibration(np.array(self.meta["weights"]), EVERY, 0.0)
        return how.margin(deep[main_branch(deep)], scale(raw)), raw[:, 4]

    def _regions(self, rows: Sequence[Row]) -> np.ndarray:
        """Regions (n, R, W) of pictures by the picture world's network, standardised."""
        opened = []
        for row in rows:
            try:
                with Image.open(row.image) as file:
                    opened.append(file.convert("RGB"))
            except (OSError, UnidentifiedImageError) as error:
                raise DataError(
                    f"{row.image}: no picture ({error}); mend or leave it out"
                ) from None
        mean, scale = self.parts["regions"].numpy()
        return ((backbone.extract(opened)[0] - mean) / scale).astype(np.float32)


def _chance(odds: Any) -> Any:
    return 1 / (1 + np.exp(-odds))
