"""Models that put pictures and texts into one space, for searching, scoring and comparing.

A model is a file of `score.keep`, the folder of a CLIP, SigLIP or their kin as transformers writes
it, or a Python file with two functions; `mmlib.suite.score.read` opens each of them.
"""

import runpy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError

from mmlib.core.errors import DataError
from mmlib.features.store import UNREADABLE, rgb

BATCH = 64  # pictures or texts that are encoded together
SIDE = 1024  # pixels of a picture's longer side that are read, more than any model here takes
FUNCTIONS = ("encode_images", "encode_texts")
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")


def open_small(path: Path) -> Image.Image:
    """A picture as it is meant to be seen (`store.rgb`), at most `SIDE` pixels a side.

    Raises DataError for a file that is no picture or cannot be read.
    """
    try:
        with Image.open(path) as file:
            file.draft(None, (SIDE, SIDE))  # a large JPEG is decoded small, several times as fast
            picture = rgb(file)
    except UnidentifiedImageError:  # whose own words name the file again
        raise DataError(f"{path}: no picture") from None
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {str(error).strip()}") from None
    picture.thumbnail((SIDE, SIDE))
    return picture


@dataclass(frozen=True, eq=False)
class Encoder:
    """Two encoders; the cosine of their vectors says how well a text fits a picture.

    path: the model's file or folder, for messages. card: what to know before the model is used.
    identity: a text that changes with the model's files. image_vectors, text_vectors: what encodes
    at most `BATCH` RGB pictures or texts: (n, D), of any length.
    """

    path: Path
    card: str
    identity: str
    image_vectors: Callable[[list[Any]], Any]
    text_vectors: Callable[[list[str]], Any]

    def encode_images(self, pictures: Sequence[Any]) -> np.ndarray:
        """Unit vectors (n, D), float32, of RGB pictures. Raises DataError where these are none."""
        return self._units(self.image_vectors, pictures, "encode_images")

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, D), float32, of texts. Raises DataError where these are none."""
        return self._units(self.text_vectors, texts, "encode_texts")

    def _units(self, encode: Callable[[list], Any], items: Sequence[Any], name: str) -> np.ndarray:
        blocks = []
        for block in batches(items):
            vectors = np.asarray(encode(list(block)), dtype=np.float32)
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

    def unknown(self, text: str) -> list[str]:
        """The words of a text that the model does not know, as far as it can tell."""
        return []

    def score(self, pairs: pd.DataFrame, prior: float = 0.0) -> pd.DataFrame:
        """Image, caption and cosine of each pair (`score.read_csv`); the prior is of judges alone.

        Raises DataError for a picture that cannot be read.
        """
        texts = self.encode_texts(list(pairs.caption))
        images = of_pictures(pairs.image, self.encode_images)
        self.cosines(images[:1], texts[:1])
        cosines = np.einsum("nd,nd->n", images, texts)
        return pairs[["image", "caption"]].assign(cosine=cosines.round(4))


def batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Runs of `BATCH` items, the last one shorter."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def of_pictures(files: pd.Series, see: Callable[[list[Image.Image]], Any]) -> np.ndarray:
    """What `see` makes of each picture, (files, ...); a file that is named twice is read once.

    Raises DataError for a picture that cannot be read.
    """
    codes, paths = pd.factorize(files)
    blocks = [see([open_small(Path(path)) for path in block]) for block in batches(paths)]
    return np.concatenate(blocks)[codes]


def python_file(path: Path) -> Encoder:
    """encode_images and encode_texts of a Python file, which is run.

    Its identity is its text; what it loads is not seen. Raises DataError where it has no such
    function.
    """
    functions = runpy.run_path(str(path))
    if lacking := [name for name in FUNCTIONS if not callable(functions.get(name))]:
        raise DataError(f"{path}: has no function {lacking[0]}")
    about = f"{path.name}: two functions of yours.", f"py {path.read_text(encoding='utf-8')}"
    return Encoder(path, *about, *(functions[name] for name in FUNCTIONS))


def hugging_face(folder: Path, device: str = "cpu") -> Encoder:
    """A CLIP, SigLIP or their kin, from a folder in transformers' form; nothing is downloaded.

    Raises DataError for a folder that is no model, or one that reads no texts.
    """
    from transformers import AutoTokenizer

    from mmlib.features import backbones

    loaded = backbones.load(f"hf:{folder.name or 'model'}", folder)
    network: Any = loaded.network.to(device)
    config = network.config
    if not hasattr(network, "get_text_features"):
        kind = f"a model of the type {config.model_type}"
        raise DataError(f"{folder}: {kind} reads no texts; take a CLIP")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        # transformers would take an empty one, which knows no word
        raise DataError(f"{folder}: has no tokenizer ({', '.join(TOKENIZERS)})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of whatever kind the tokenizer's library has
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise DataError(f"{folder}: its tokenizer cannot be read: {reason}") from None
    # Padded to the longest text that the model takes, as SigLIP was trained.
    longest = getattr(config, "text_config", config).max_position_embeddings
    how = {"padding": "max_length", "truncation": True, "max_length": longest}

    @torch.inference_mode()
    def vectors(function: Any, **inputs: torch.Tensor) -> torch.Tensor:
        encoded = function(**{name: value.to(device) for name, value in inputs.items()})
        # transformers 4 gives vectors, 5 all of the encoder's output.
        return getattr(encoded, "pooler_output", encoded).float().cpu()

    def image_vectors(pictures: list[Image.Image]) -> torch.Tensor:
        pixels = torch.stack([loaded.preprocess(picture) for picture in pictures])
        return vectors(network.get_image_features, pixel_values=pixels)

    def text_vectors(texts: list[str]) -> torch.Tensor:
        return vectors(network.get_text_features, **tokenizer(texts, return_tensors="pt", **how))

    # Names, sizes and times of the model's files: hashing gigabytes would take longer.
    files = [p for p in sorted(folder.iterdir()) if p.suffix in (".json", ".safetensors")]
    states = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    card = f"{folder.name}, a {config.model_type} of transformers."
    return Encoder(folder, card, f"hf {states}", image_vectors, text_vectors)
