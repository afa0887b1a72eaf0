"""Models that put pictures and texts into one space: what searching and scoring share.

A model is one of three: a file of `score.keep`, the folder of a CLIP, SigLIP or their kin as
transformers writes it, or a Python file with two functions, as `mmlib compare` takes it.
`mmlib.suite.score.read` opens each of them.
"""

import runpy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from mmlib.core.errors import DataError, Problem
from mmlib.features.store import UNREADABLE, rgb

BATCH = 64  # pictures or texts that are encoded together
SIDE = 1024  # pixels of a picture's longer side that are read, more than any model here takes
FUNCTIONS = ("encode_images", "encode_texts")
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")


@dataclass(frozen=True)
class Row:
    """A picture's file, the caption that is judged, and what else is said of the picture."""

    image: Path
    caption: str
    others: tuple[str, ...] = ()
    unreadable: Problem | None = None  # what to say where its file is no picture


def open_small(path: Path) -> Image.Image:
    """A picture as it is meant to be seen (`store.rgb`), at most `SIDE` pixels a side.

    Raises one of `store.UNREADABLE`.
    """
    with Image.open(path) as file:
        file.draft(None, (SIDE, SIDE))  # a large JPEG is decoded small, several times as fast
        picture = rgb(file)
    picture.thumbnail((SIDE, SIDE))
    return picture


def of_pictures(
    rows: Sequence[Row], see: Callable[[list[Image.Image]], np.ndarray]
) -> np.ndarray:  # fmt: skip
    """What `see` makes of each row's picture, (rows, ...); each file is read once.

    Raises DataError, with what its first row has to say, for a picture that cannot be read.
    """
    first = {row.image: row for row in reversed(rows)}
    place = {path: i for i, path in enumerate(first)}

    def read(row: Row) -> Image.Image:
        try:
            return open_small(row.image)
        except UNREADABLE as error:
            fault = row.unreadable or f"{row.image}: no picture"
            raise DataError(f"{fault}: {error}") from None

    asked = list(first.values())
    blocks = [
        see([read(row) for row in asked[start : start + BATCH]])
        for start in range(0, len(asked), BATCH)
    ]
    return np.concatenate(blocks)[[place[row.image] for row in rows]]


class Encoders(ABC):
    """Two encoders; the cosine of their vectors says how well a text fits a picture.

    path: the model's file or folder. card: what to know before it is used.
    """

    path: Path
    card: str

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text that another model does not have, nor this one after a change of its files."""

    @abstractmethod
    def image_vectors(self, pictures: list[Image.Image]) -> Any:
        """RGB pictures, `BATCH` at most -> (n, D), of any length."""

    @abstractmethod
    def text_vectors(self, texts: list[str]) -> Any:
        """Texts, `BATCH` at most -> (n, D), of any length."""

    def unknown(self, text: str) -> list[str]:
        """The words of a text that the model does not know, as far as it can tell."""
        return []

    def encode_images(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Unit vectors (n, D), float32, of RGB pictures. Raises DataError where these are none."""
        return self._units(self.image_vectors, pictures, FUNCTIONS[0])

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, D), float32, of texts. Raises DataError where these are none."""
        return self._units(self.text_vectors, texts, FUNCTIONS[1])

    def _units(
        self, encode: Callable[[list[Any]], Any], items: Sequence[Any], name: str
    ) -> np.ndarray:
        blocks = []
        for start in range(0, len(items), BATCH):
            block = list(items[start : start + BATCH])
            vectors = np.asarray(encode(block), dtype=np.float32)
            if vectors.ndim != 2 or len(vectors) != len(block):
                shape = f"{vectors.shape} for {len(block)} items, not (items, width)"
                raise DataError(f"{self.path}: {name} gave {shape}")
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            if not np.isfinite(lengths).all():
                raise DataError(f"{self.path}: {name} gives no numbers (are the weights right?)")
            blocks.append(vectors / np.maximum(lengths, 1e-12))
        return np.concatenate(blocks)

    def cosines(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Cosines (images, texts) of unit vectors; DataError where their widths differ."""
        if images.shape[1] != texts.shape[1]:
            widths = f"pictures get {images.shape[1]} numbers and texts {texts.shape[1]}"
            raise DataError(f"{self.path}: {widths}, so that they cannot be compared")
        return images @ texts.T

    def score(self, rows: Sequence[Row], prior: float = 0.0) -> pd.DataFrame:
        """A line a pair: image, caption and their cosine; the prior is of judges alone.

        Raises ValueError for no pairs, DataError for a picture that cannot be read.
        """
        table = table_of(rows)
        texts = self.encode_texts([row.caption for row in rows])
        images = of_pictures(rows, self.encode_images)
        self.cosines(images[:1], texts[:1])
        return table.assign(cosine=np.einsum("nd,nd->n", images, texts).round(4))


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """The image and the caption of each row. Raises ValueError for none."""
    if not rows:
        raise ValueError("there are no pairs to score")
    return pd.DataFrame([{"image": str(row.image), "caption": row.caption} for row in rows])


class HuggingFace(Encoders):
    """A CLIP, SigLIP or their kin, from a folder in transformers' form; nothing is downloaded."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        """Raises DataError for a folder that is no model, or one that reads no texts."""
        from transformers import AutoTokenizer

        from mmlib.features import backbones

        self.path, self.device = folder, device
        loaded = backbones.load(f"hf:{folder.name or 'model'}", folder)
        self.preprocess = loaded.preprocess
        self.network = cast(Any, loaded.network.to(device))
        if not hasattr(self.network, "get_text_features"):
            kind = self.network.config.model_type
            raise DataError(f"{folder}: a model of the type {kind} reads no texts; take a CLIP")
        if not any((folder / name).is_file() for name in TOKENIZERS):
            # transformers would take an empty one, which knows no word
            raise DataError(f"{folder}: has no tokenizer ({', '.join(TOKENIZERS)})")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # of whatever kind the tokenizer's library has
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise DataError(f"{folder}: its tokenizer cannot be read: {reason}") from None
        self.card = f"{folder.name}, a {self.network.config.model_type} of transformers."

    @cached_property
    def identity(self) -> str:
        """Names, sizes and times of the model's files: hashing gigabytes would take longer."""
        files = [p for p in sorted(self.path.iterdir()) if p.suffix in (".json", ".safetensors")]
        states = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files]
        return f"hf {states}"

    def image_vectors(self, pictures: list[Image.Image]) -> Tensor:
        """(n, D) of pictures."""
        values = torch.stack([self.preprocess(picture) for picture in pictures])
        return self._features(self.network.get_image_features, pixel_values=values)

    def text_vectors(self, texts: list[str]) -> Tensor:
        """(n, D) of texts, padded to the longest that the model takes, as SigLIP was trained."""
        config = self.network.config
        longest = getattr(config, "text_config", config).max_position_embeddings
        tokens = self.tokenizer(
            texts, padding="max_length", truncation=True, max_length=longest, return_tensors="pt"
        )
        return self._features(self.network.get_text_features, **tokens)

    @torch.inference_mode()
    def _features(self, function: Any, **inputs: Tensor) -> Tensor:
        encoded = function(**{name: value.to(self.device) for name, value in inputs.items()})
        # transformers 4 gives vectors, 5 all of the encoder's output.
        return getattr(encoded, "pooler_output", encoded).float().cpu()


class PythonFile(Encoders):
    """encode_images and encode_texts of a Python file, as `mmlib compare` has them."""

    def __init__(self, path: Path) -> None:
        """Runs the file. Raises DataError for one without such functions."""
        self.path, self.card = path, f"{path.name}: two functions of yours."
        self.functions = functions_of(path)

    @cached_property
    def identity(self) -> str:
        """The text of the file; what it loads is not seen."""
        return f"py {self.path.read_text(encoding='utf-8')}"

    def image_vectors(self, pictures: list[Image.Image]) -> Any:
        """What encode_images gives."""
        return self.functions[0](pictures)

    def text_vectors(self, texts: list[str]) -> Any:
        """What encode_texts gives."""
        return self.functions[1](texts)


def functions_of(source: Path) -> list[Callable[[list[Any]], Any]]:
    """encode_images and encode_texts of a Python file, which is run.

    Raises DataError where it has no such function.
    """
    functions = runpy.run_path(str(source))
    if lacking := [name for name in FUNCTIONS if not callable(functions.get(name))]:
        raise DataError(f"{source}: has no function {lacking[0]}")
    return [functions[name] for name in FUNCTIONS]
