"""Models of paper 02 in one file, and your own pairs of pictures and captions scored by a model.

```python
from mmlib.suite import score

judge = score.read(score.SMALL)
judge.score(score.read_csv("pairs.csv"), prior=0.05)
```
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.special import expit, logit
from torch import Tensor

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash, read_tensors, regular_file, write_tensors
from mmlib.core.paths import PACKAGE
from mmlib.data.overlap import Weights
from mmlib.features import backbones
from mmlib.features.encoders import Shape
from mmlib.features.text import tokenize
from mmlib.features.words import Words, padded
from mmlib.papers.entailment.data.arrays import Arrays, encode, read_retriever, samples_of
from mmlib.papers.entailment.method.calibration import ALL_INPUTS, Calibration, Scale, frozen
from mmlib.papers.entailment.method.classifier import Classifier, Settings, classifier
from mmlib.papers.entailment.method.metrics import best_threshold
from mmlib.papers.entailment.method.retrievers import MAX_WORDS, AlignFuse
from mmlib.papers.entailment.run.judge import scores
from mmlib.suite import encoders
from mmlib.suite.encoders import Encoder, say_cut
from mmlib.world import backbone

SMALL = PACKAGE / "world" / "judge.safetensors"  # by `mmlib train judge`
WORLD = {"backbone": "world"}  # what saw the pictures of a model: here the world's own network
MODELS = "small; a file of `mmlib train`; a CLIP's folder; a .py file with two functions"


def read_csv(path: Path | str) -> pd.DataFrame:
    """The pairs of a file with the columns image, caption and, for more captions of it, caption.

    Columns: image (its file), caption, others (a tuple). Pictures are looked for beside the file.
    Raises DataError that names file, row and mend.
    """
    if (path := Path(path)).exists():
        regular_file(path, "name a CSV file")
    try:
        table = pd.read_csv(path, header=None, dtype=str, encoding="utf-8-sig").fillna("")
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        mend = "put texts with commas in quotes, close them, and double those within a text"
        raise DataError(f"{path}: cannot be read ({reason}); {mend}") from None
    header, *rows = [[field.strip() for field in row] for row in table.values]
    if header[:2] != ["image", "caption"] or {*header[2:]} - {"caption"}:
        fault = "is not image,caption or image,caption,caption and so on"
        raise DataError(f"{path}, row 1: {fault}; name the columns there, and leave out others")
    pairs = []
    for number, (image, caption, *others) in enumerate(rows, 2):
        if not caption:
            raise DataError(f"{path}, row {number}: has no caption; write image,caption")
        if not (path.parent / image).is_file():
            raise DataError(f"{path}, row {number}: there is no picture {image}; mend its name")
        pairs.append((str(path.parent / image), caption, tuple(filter(None, others))))
    if not pairs:
        raise DataError(f"{path}: has no pairs; write one a line")
    return pd.DataFrame(pairs, columns=["image", "caption", "others"], dtype=object)


def keep(
    path: Path, arrays: Arrays, shape: Shape, retriever: Mapping[str, Tensor],
    judge: Classifier | None = None, card: str = "", space: int = 64,
    sees: Mapping[str, str] = WORLD,
) -> None:  # fmt: skip
    """Write an ALBEF-like retriever, or a judge and the one that it reads, into a file (float16).

    shape, space: of the retriever. arrays: whose vocabulary, scales and calibration pairs go with
    it. card: what to know of the model before it is used. sees: what made the image features:
    backbone, weights and regions, as the notes of a feature set name them. Raises ValueError for a
    judge that reads a BERT, which does not fit into a file.
    """
    if arrays.states is not None and judge is not None:
        raise ValueError("a judge that reads a BERT cannot be kept in one file")
    tensors = {f"retriever.{name}": value for name, value in retriever.items()}
    tensors["regions"] = torch.from_numpy(arrays.region_scale)
    stems, meta = arrays.frozen.weights, {}
    if judge is not None:
        pairs = arrays.calibration
        device = str(next(judge.parameters()).device)
        raw = scores(judge, arrays.encoded(pairs, judge.settings), arrays.images, device)
        how = Calibration.fit(pairs, raw, ALL_INPUTS)
        tensors |= {f"judge.{name}": value for name, value in judge.state_dict().items()}
        meta = {
            "weights": how.weights.tolist(), "labels": pairs.samples.label.tolist(),
            "odds": (how.margin(raw, pairs.given) + how.limit).round(3).tolist(),
            "mean": arrays.scale.mean.tolist(), "deviation": arrays.scale.deviation.tolist(),
        }  # fmt: skip
    meta |= {
        "words": arrays.words.words, "shape": asdict(shape), "space": space, "card": card,
        "stems": dict(stems), "unknown": getattr(stems, "unknown", 0.0),
        "judge": asdict(judge.settings) if judge else None, "sees": dict(sees),
    }  # fmt: skip
    half = {n: v.half() if v.is_floating_point() else v for n, v in tensors.items()}
    plain = {name: value.detach().cpu().numpy() for name, value in half.items()}
    write_tensors(path, plain, {"mmlib": json.dumps(meta)})


def read(model: Path | str, device: str = "cpu", weights: Path | str | None = None) -> Encoder:
    """A model: "small", a file of `keep`, a folder in transformers' form, or a Python file.

    weights: of the network that sees pictures, for a kept model that read other weights than
    torchvision's own. Raises DataError for anything else; nothing is ever unpickled.
    """
    path = SMALL if str(model) == "small" else Path(model)
    if not path.exists():
        raise DataError(f"{path}: no such model (there are: {MODELS})")
    if path.is_dir():
        return encoders.hugging_face(path, device)
    return encoders.python_file(path) if path.suffix == ".py" else read_kept(path, device, weights)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scorer(Encoder):
    """A kept model.

    meta: the file's notes. words: its vocabulary. regions: pictures -> their regions (n, R, W),
    standardised. judge: None where a retriever was kept alone.
    """

    meta: Mapping[str, Any]
    words: Words
    regions: Callable[[list[Image.Image]], np.ndarray]
    retriever: AlignFuse
    judge: Classifier | None

    def score(self, pairs: pd.DataFrame, prior: float = 0.0) -> pd.DataFrame:
        """A line a pair: image, caption, "log odds", "probability", "threshold", "entailed".

        prior: the share of pairs that you take for entailed; 0: that of the calibration pairs. The
        threshold on the probability is that of best F0.5 there. A retriever alone gives "cosine".
        Raises DataError for a picture that cannot be read and for a model whose weights give no
        numbers, ValueError for a prior of 1 or more.
        """
        table, meta, n = pairs[["image", "caption"]], self.meta, len(pairs)
        if not 0 <= prior < 1:
            raise ValueError(f"a prior is a share between 0 and 1, not {prior}")
        if self.judge is None:
            return super().score(pairs)
        images = encoders.of_pictures(pairs.image, self.regions)
        # Lines are words apart to the reader, and tell which captions were joined.
        premise = tuple(map("\n".join, pairs.others))
        stems = Weights([])
        stems.update(meta["stems"])
        stems.unknown = meta["unknown"]
        words, how = self.words, self.judge.settings
        texts = sorted({*pairs.caption, *pairs.others.explode().dropna()})
        self.say_unread(texts)
        say_cut(pairs.caption, lambda t: len(words.ids(t)) <= how.max_hypothesis, "captions")
        say_cut(premise, lambda t: len(words.ids(t)) <= how.max_premise, "other captions together")
        joined = dict(zip(premise, pairs.others, strict=True))
        samples = samples_of(np.arange(n), tuple(pairs.caption), premise, "yours")
        inputs = frozen(self.retriever, self.words, images, texts, stems, joined).inputs(samples)
        lengths = how.max_premise, how.max_hypothesis
        deep = scores(self.judge, encode(samples, self.words, self.words, *lengths), images)
        scaled = Scale(np.array(meta["mean"]), np.array(meta["deviation"]))(inputs)
        calibration = Calibration(np.array(meta["weights"]), ALL_INPUTS, 0.0)
        result = calibration.margin(deep, scaled)
        if not np.isfinite([inputs[:, 4], result]).all():
            raise DataError(f"{self.path}: its weights give no numbers; keep it anew")
        labels, calibrated = np.array(meta["labels"]), np.array(meta["odds"])
        share = labels.mean()
        wanted = prior or share
        shift = logit(wanted) - logit(share)
        counts = np.where(labels == 1, wanted / share, (1 - wanted) / (1 - share))
        odds, limit = result + shift, best_threshold(labels, calibrated, counts) + shift
        columns = {"log odds": odds.round(3), "probability": expit(odds).round(4)}
        columns["threshold"] = round(float(expit(limit)), 4)
        return table.assign(**columns, entailed=odds >= limit)


def read_kept(path: Path, device: str = "cpu", weights: Path | str | None = None) -> Scorer:
    """A file of `keep`, as `read` opens it."""
    try:
        arrays, notes = read_tensors(path, "")
        meta = json.loads(notes["mmlib"])
        tensors = {name: torch.from_numpy(value).float() for name, value in arrays.items()}
        states: dict[str, dict[str, Tensor]] = {"regions": {}, "retriever": {}, "judge": {}}
        for name, value in tensors.items():
            states[name.partition(".")[0]][name.partition(".")[2]] = value
        words, scale, judge = Words(meta["words"]), tensors["regions"].numpy(), None
        positions = tensors["retriever.image.layers.embeddings.position_embeddings.weight"]
        table = np.zeros((0, len(positions) - 1, scale.shape[1]), np.float32)  # without [CLS]
        shape = Shape(**meta["shape"])
        retriever = read_retriever(states["retriever"], shape, meta["space"], table, len(words))
        if meta["judge"] is not None:
            judge = classifier(Settings(**meta["judge"]), len(words), table)
            judge.load_state_dict(states["judge"])
        sees = meta.get("sees", WORLD)
    except Exception as error:  # whatever a file leads to that is none of `keep`
        lacks = "lacks " if isinstance(error, KeyError) else ""
        reason = lacks + " ".join(str(error).split()).removeprefix(f"{path}: ")[:200]
        fault = f"no model that score.keep has written ({reason})"
        raise DataError(Problem(path, None, fault, "take another copy, or train it anew")) from None

    vision: Any = None
    if sees != WORLD:
        name = sees["backbone"]
        given = backbones.weights_note(name, weights)
        if given != sees["weights"]:
            raise DataError(
                f"{path}: its pictures were seen by {name}, weights: {sees['weights']}; name these "
                f"with --weights (now: {given})"
            )
        vision = backbones.load(name, weights, regions=sees["regions"])
        vision.network.to(device)

    @torch.inference_mode()
    def regions(pictures: list[Image.Image]) -> np.ndarray:
        if vision is None:
            seen = backbone.extract(pictures)[0]
        else:
            pixels = torch.stack([vision.preprocess(picture) for picture in pictures])
            seen = vision.see(pixels.to(device))["features"].float().cpu().numpy()
        return ((seen - scale[0]) / scale[1]).astype(np.float32)

    @torch.no_grad()
    def image_vectors(pictures: list[Image.Image]) -> Tensor:
        return retriever.image_states(torch.from_numpy(regions(pictures)))[1]

    @torch.no_grad()
    def text_vectors(texts: list[str]) -> Tensor:
        ids, lengths = padded([words.ids(text)[:MAX_WORDS] for text in texts])
        return retriever.text_states(torch.from_numpy(ids), torch.from_numpy(lengths))[2]

    vocabulary = set(words.words)
    return Scorer(
        path, meta["card"], file_hash(path), image_vectors, text_vectors,
        lambda text: len(words.ids(text)) <= MAX_WORDS,
        lambda text: [w for w in tokenize(text) if w.isalnum() and w not in vocabulary],
        meta=meta, words=words, regions=regions, retriever=retriever.eval(), judge=judge,
    )  # fmt: skip
