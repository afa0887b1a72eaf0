"""Models of paper 02 in one file, and your own pairs of pictures and captions scored by a model.

```python
from mmlib.suite import score

judge = score.read(score.SMALL)
judge.score(score.read_csv("pairs.csv"), prior=0.05)
```
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy.special import expit, logit
from torch import Tensor

from mmlib.core.entailment_pairs import Samples
from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash, write_tensors
from mmlib.core.paths import PACKAGE, table_beside
from mmlib.data.overlap import Weights
from mmlib.data.tables import error_at
from mmlib.features import backbones
from mmlib.features.encoders import Shape
from mmlib.features.text import tokenize
from mmlib.features.words import Words, padded
from mmlib.papers.entailment.data.arrays import Arrays, encode
from mmlib.papers.entailment.data.study import metadata_of, read_retriever
from mmlib.papers.entailment.method.calibration import ALL_INPUTS, Calibration, Scale, frozen
from mmlib.papers.entailment.method.classifier import Classifier, Settings, classifier
from mmlib.papers.entailment.method.metrics import best_threshold
from mmlib.papers.entailment.method.retrievers import MAX_WORDS, AlignFuse
from mmlib.papers.entailment.run.judge import main_branch, scores
from mmlib.suite.encoders import Encoders, HuggingFace, PythonFile, Row, of_pictures, table_of
from mmlib.suite.outcomes import form_fault, strict_json
from mmlib.world import backbone

SMALL = PACKAGE / "world" / "judge.safetensors"  # by `mmlib train judge`
WORLD = {"backbone": "world"}  # what saw the pictures of a model: here the world's own network
MODELS = "small; a file of `mmlib train`; a CLIP's folder; a .py file with two functions"


def read_csv(path: Path | str) -> list[Row]:
    """Rows of a file with the columns image, caption and, for more captions of the image, caption.

    Pictures are looked for beside the file. Raises DataError that names file, row and mend.
    """
    path, rows, lines = Path(path), [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # Excel begins with a mark
            reader, begin = csv.reader(file, strict=True), 1
            for fields in reader:
                lines.append((begin, [*map(str.strip, fields)]))
                begin = reader.line_num + 1
    except csv.Error as error:
        mend = "close the quotes, and double those within a text"
        raise error_at(path, begin, f"cannot be read: {error}", mend) from None
    except UnicodeDecodeError:
        raise error_at(path, begin, "is not UTF-8", "save the file as UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    header = lines[0][1] if lines else []
    if header[:2] != ["image", "caption"] or {*header[2:]} - {"caption"}:
        fault = "is not image,caption or image,caption,caption and so on"
        raise error_at(path, 1, fault, "name the columns there, and leave out others")
    for number, fields in lines[1:]:
        if not any(fields):
            continue
        if len(fields) > len(header):
            fault = f"has {len(fields)} fields, where line 1 names {len(header)}"
            mend = "put a text with commas in quotes, or name one more column caption"
            raise error_at(path, number, fault, mend)
        image, caption, *others = [*fields, "", ""]
        if not caption:
            raise error_at(path, number, "has no caption", "write image,caption")
        if not (path.parent / image).is_file():
            raise error_at(path, number, f"there is no picture {image}", "mend its name")
        unreadable = Problem(path, number, f"{image} is no picture", "mend or leave it out")
        rows.append(Row(path.parent / image, caption, tuple(filter(None, others)), unreadable))
    if not rows:
        raise error_at(path, None, "has no pairs", "write one a line")
    return rows


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
        deep = scores(judge, arrays.encoded(pairs, judge.settings), arrays.images, device)
        raw = deep[main_branch(deep)]
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


NOTES: dict[str, Any] = table_beside(__file__)  # JSON Schemas of a file's notes


def read(model: Path | str, device: str = "cpu", weights: Path | str | None = None) -> Encoders:
    """A model: "small", a file of `keep`, a folder in transformers' form, or a Python file.

    weights: of the network that sees pictures, for a kept model that read other weights than
    torchvision's own. Raises DataError for anything else; nothing is ever unpickled.
    """
    path = SMALL if str(model) == "small" else Path(model)
    if not path.exists():
        raise DataError(f"{path}: no such model (there are: {MODELS})")
    if path.is_dir():
        return HuggingFace(path, device)
    return PythonFile(path) if path.suffix == ".py" else read_kept(path, device, weights)


def read_kept(path: Path, device: str = "cpu", weights: Path | str | None = None) -> "Scorer":
    """A file of `keep`, as `read` opens it."""
    try:
        meta = strict_json(metadata_of(path)["mmlib"])
        tensors = {name: value.float() for name, value in load_file(path).items()}
        if fault := _fault(meta, tensors):
            raise ValueError(fault)
    except (OSError, SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: no model that score.keep has written ({error}); keep it anew"
        ) from None
    return Scorer(path, meta, tensors, device, weights)


def _fault(meta: Any, tensors: Mapping[str, Tensor]) -> str:
    """What of a file's notes and tensors cannot be; empty where nothing is wrong."""
    if fault := form_fault(NOTES["model"], meta):
        return fault
    if meta["judge"] is not None:
        if fault := form_fault(NOTES["judge"], meta):
            return fault
        if len(meta["labels"]) != len(meta["odds"]):
            return f"{len(meta['labels'])} labels for {len(meta['odds'])} odds"
    for name, value in tensors.items():
        if not value.isfinite().all():
            return f"the tensor {name} is not finite"
    scale = tensors["regions"]
    if scale.ndim != 2 or len(scale) != 2 or not (scale[1] > 0).all():
        return "the tensor regions is no mean and deviation (2, W) above 0"
    return ""


@dataclass(frozen=True, eq=False)
class Scorer(Encoders):
    """A kept model. path: its file; tensors: by name; meta: everything else.

    device, weights: where pictures are seen, and by which weights, see `read`.
    """

    path: Path
    meta: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    device: str = "cpu"
    weights: Path | str | None = None

    @property
    def card(self) -> str:  # type: ignore[override]
        """What to know of the model before it is used."""
        return self.meta["card"]

    @cached_property
    def identity(self) -> str:
        """A hash of the file."""
        return file_hash(self.path)

    def image_vectors(self, pictures: list[Image.Image]) -> Tensor:
        """(n, D) of pictures, by the retriever."""
        regions = torch.from_numpy(self._regions(pictures))
        with self._fitting(), torch.no_grad():
            return self._retriever.image_states(regions)[1]

    def text_vectors(self, texts: list[str]) -> Tensor:
        """(n, D) of texts, by the retriever."""
        with self._fitting(), torch.no_grad():
            ids, lengths = padded([self._words.ids(text)[:MAX_WORDS] for text in texts])
            return self._retriever.text_states(*map(torch.from_numpy, (ids, lengths)))[2]

    def unknown(self, text: str) -> list[str]:
        """The words of a text that training did not show."""
        known = set(self._words.words)
        return [word for word in tokenize(text) if word not in known and word.isalnum()]

    def score(self, rows: Sequence[Row], prior: float = 0.0) -> pd.DataFrame:
        """A line a pair: image, caption, "log odds", "probability", "threshold", "entailed".

        prior: the share of pairs that you take for entailed; 0: that of the calibration pairs. The
        threshold on the probability is that of best F0.5 there. A retriever alone gives "cosine".
        Raises DataError for a picture that cannot be read and for a model whose weights do not go
        together or give no numbers, ValueError for a prior of 1 or more.
        """
        table = table_of(rows)
        if not 0 <= prior < 1:
            raise ValueError(f"a prior is a share between 0 and 1, not {prior}")
        with self._fitting():
            odds, cosine = self._odds(rows, of_pictures(rows, self._regions))
        if not np.isfinite([cosine, cosine if odds is None else odds]).all():
            raise DataError(f"{self.path}: its weights give no numbers; keep it anew")
        if odds is None:
            return table.assign(cosine=cosine.round(4))
        labels, calibrated = np.array(self.meta["labels"]), np.array(self.meta["odds"])
        share = labels.mean()
        wanted = prior or share
        shift = logit(wanted) - logit(share)
        counts = np.where(labels == 1, wanted / share, (1 - wanted) / (1 - share))
        odds, limit = odds + shift, best_threshold(labels, calibrated, counts) + shift
        columns = {"log odds": odds.round(3), "probability": expit(odds).round(4)}
        columns["threshold"] = round(float(expit(limit)), 4)
        return table.assign(**columns, entailed=odds >= limit)

    def _state(self, prefix: str) -> dict[str, Tensor]:
        """The state dict whose names begin with a prefix."""
        named = self.tensors.items()
        return {n.removeprefix(prefix): v for n, v in named if n.startswith(prefix)}

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """DataError, in one line, for weights that do not go with the notes."""
        try:
            yield
        except DataError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            fault = " ".join(str(error).split())[:200]
            raise DataError(
                f"{self.path}: its weights do not go with its notes ({fault}); keep it anew"
            ) from None

    def _odds(
        self, rows: Sequence[Row], images: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Log odds (n,) at the calibration's prior, or None without a judge, and cosines (n,).

        images (n, R, W): regions of the pictures.
        """
        words, meta = self._words, self.meta
        # Lines are words apart to the reader, and tell which captions were joined.
        premise, n = tuple("\n".join(row.others) for row in rows), len(rows)
        stems = Weights([])
        stems.update(meta["stems"])
        stems.unknown = meta["unknown"]
        frozen_inputs = frozen(
            self._retriever, words, images,
            sorted({text for row in rows for text in (row.caption, *row.others)}), stems,
            {text: row.others for text, row in zip(premise, rows, strict=True)},
        )  # fmt: skip
        samples = Samples(
            premise, tuple(row.caption for row in rows), np.arange(n), np.zeros(n, dtype=int),
            ("mme",) * n, ("yours",) * n,  # type: ignore[arg-type]
            tuple(map(str, range(n))),
        )  # fmt: skip
        raw = frozen_inputs.inputs(samples)
        if meta["judge"] is None:
            return None, raw[:, 4]
        settings = Settings(**meta["judge"])
        model = classifier(settings, len(words), images)
        model.load_state_dict(self._state("judge."))
        encoded = encode(samples, words, words, settings.max_premise, settings.max_hypothesis)
        deep = scores(model, encoded, images)
        scaled = Scale(np.array(meta["mean"]), np.array(meta["deviation"]))(raw)
        how = Calibration(np.array(meta["weights"]), ALL_INPUTS, 0.0)
        return how.margin(deep[main_branch(deep)], scaled), raw[:, 4]

    @cached_property
    def _words(self) -> Words:
        return Words(self.meta["words"])

    @cached_property
    def _retriever(self) -> AlignFuse:
        weights, scale = self._state("retriever."), self.tensors["regions"]
        positions = weights["image.layers.embeddings.position_embeddings.weight"]  # [CLS]'s, too
        table = np.zeros((0, len(positions) - 1, scale.shape[1]), np.float32)
        shape, space = Shape(**self.meta["shape"]), self.meta["space"]
        return read_retriever(weights, shape, space, table, len(self._words)).eval()

    @cached_property
    def _see(self) -> Callable[[list[Image.Image]], np.ndarray]:
        """What makes regions (n, R, W) of pictures, not yet standardised."""
        sees = self.meta.get("sees", WORLD)
        if sees == WORLD:
            return lambda pictures: backbone.extract(pictures)[0]
        name = sees["backbone"]
        given = backbones.weights_note(self.weights, backbones.torchvisions_weights(name))
        if given != sees["weights"]:
            raise DataError(
                f"{self.path}: its pictures were seen by {name}, weights: {sees['weights']}; name "
                f"these with --weights (now: {given})"
            )
        vision = backbones.load(name, self.weights)
        vision.network.to(self.device)

        @torch.inference_mode()
        def see(pictures: list[Image.Image]) -> np.ndarray:
            pixels = torch.stack([vision.preprocess(picture) for picture in pictures])
            return vision.see(pixels.to(self.device), sees["regions"])[0].float().cpu().numpy()

        return see

    def _regions(self, pictures: list[Image.Image]) -> np.ndarray:
        """Regions (n, R, W) of pictures by the network that training had, standardised."""
        regions = self._see(pictures)
        mean, scale = self.tensors["regions"].numpy()
        if mean.shape[-1] != regions.shape[-1]:
            raise DataError(
                f"{self.path}: reads image features of width {mean.shape[-1]}, not "
                f"{regions.shape[-1]}, as the network gives that it names; train it anew"
            )
        return ((regions - mean) / scale).astype(np.float32)
