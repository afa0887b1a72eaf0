"""Models that put pictures and texts into one space, for searching and comparing."""

import json
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from safetensors import safe_open
from torch import Tensor

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash, read_tensors, regular_file
from mmlib.core.paths import PACKAGE
from mmlib.features.store import UNREADABLE, rgb
from mmlib.features.text import tokenize
from mmlib.features.words import Words, padded
from mmlib.papers.entailment.data.world import RETRIEVERS
from mmlib.papers.entailment.method.retrievers import MAX_WORDS, build
from mmlib.papers.entailment.run.systems import BUDGETS
from mmlib.world import backbone

BATCH = 64  # pictures or texts that are encoded together
SIDE = 1024  # pixels of a picture's longer side that are read, more than any model here takes
FUNCTIONS = ("encode_images", "encode_texts")
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")
REGIONS = PACKAGE / "world" / "regions.safetensors"  # mean and deviation of the world's regions
MODELS = "small; a CLIP's folder; a .py file with two functions; weights of 02's ALBEF-like, world"
CARD = (
    "The ALBEF-like retriever of mmlib's picture world (notebook 02), {}: two encoders, whose "
    "cosine says how well a text fits a picture. For teaching and tests: it knows the {} words of "
    "that world and nothing of photographs. Pictures are scaled to 128 x 128."
)


def open_small(path: Path) -> Image.Image:
    """A picture as it is meant to be seen (`store.rgb`), at most `SIDE` pixels a side.

    Raises DataError for a file that is no picture or cannot be read.
    """
    try:
        with Image.open(regular_file(path)) as file:
            file.draft(None, (SIDE, SIDE))  # a large JPEG is decoded small, several times as fast
            picture = rgb(file)
    except UnidentifiedImageError:  # whose own words name the file again
        raise DataError(f"{path}: no picture") from None
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {str(error).strip()}") from None
    picture.thumbnail((SIDE, SIDE))
    return picture


def read(model: Path | str, device: str = "cpu") -> "Encoder":
    """A model: "small", a folder in transformers' form, a Python file, or weights that were kept.

    Raises DataError for anything else; nothing is ever unpickled.
    """
    path = RETRIEVERS if str(model) == "small" else Path(model)
    if not path.exists():
        raise DataError(f"{path}: no such model (there are: {MODELS})")
    if path.is_dir():
        return hugging_face(path, device)
    return python_file(path) if path.suffix == ".py" else world_retriever(path)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Two encoders; the cosine of their vectors says how well a text fits a picture.

    path: the model's file or folder, for messages. card: what to know before the model is used.
    identity: a text that changes with the model's files. image_vectors, text_vectors: what encodes
    at most `BATCH` RGB pictures or texts: (n, D), of any length. fits: whether a text is read to
    its end. unknown: its words that the model does not know, as far as can be told.
    """

    path: Path
    card: str
    identity: str
    image_vectors: Callable[[list[Any]], Any]
    text_vectors: Callable[[list[str]], Any]
    fits: Callable[[str], bool] = lambda text: True
    unknown: Callable[[str], list[str]] = lambda text: []

    def encode_images(self, pictures: Sequence[Any]) -> np.ndarray:
        """Unit vectors (n, D), float32, of RGB pictures. Raises DataError where these are none."""
        return self._units(self.image_vectors, pictures, "encode_images")

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, D), float32, of texts. Raises DataError where these are none."""
        return self._units(self.text_vectors, texts, "encode_texts")

    def _units(self, encode: Callable[[list], Any], items: Sequence[Any], name: str) -> np.ndarray:
        blocks = []
        for block in batches(items):
            vectors = np.asarray(encode(list(block)), np.float64)  # whose squares are in range
            if vectors.ndim != 2 or len(vectors) != len(block) or not vectors.size:
                shape = f"{vectors.shape} for {len(block)} items, not (items, width)"
                raise DataError(f"{self.path}: {name} gave {shape}")
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            if not np.isfinite(lengths).all():
                raise DataError(f"{self.path}: {name} gives no numbers (are the weights right?)")
            blocks.append((vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32))
        return np.concatenate(blocks)

    def cosines(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Cosines (images, texts) of unit vectors; DataError where their widths differ."""
        if images.shape[1] != texts.shape[1]:
            widths = f"pictures get {images.shape[1]} numbers and texts {texts.shape[1]}"
            raise DataError(f"{self.path}: {widths}, so that they cannot be compared")
        return images @ texts.T

    def say_unread(self, texts: Sequence[str], name: str = "texts") -> None:
        """Say on stderr which words of texts the model does not know, and how many texts it cuts.

        Of the first of these it says at which word.
        """
        if words := list(dict.fromkeys(word for text in texts for word in self.unknown(text))):
            more = f" and {len(words) - 20} more" if len(words) > 20 else ""
            print(f"words that it does not know: {', '.join(words[:20])}{more}", file=sys.stderr)
        if cut := [text for text in texts if not self.fits(text)]:
            words = cut[0].split() or [""]
            ends = range(1, len(words))
            last = next((n for n in ends if not self.fits(" ".join(words[:n]))), len(words))
            first = f"the first is cut at its word {last}, {words[last - 1][:40]!r}"
            said = f"{name} not read to the end: {len(cut)} of {len(texts)}; {first}"
            print(said, file=sys.stderr)


def batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Runs of `BATCH` items, the last one shorter."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def world_retriever(path: Path) -> Encoder:
    """The retriever of the picture world that `ci/train_world_retriever.py` made, or one of paper
    02's ALBEF-like ones of that world, of `mmlib record --keep-weights`. DataError for others.
    """
    with safe_open(RETRIEVERS, "pt") as file:
        words = Words(json.loads(file.metadata()["words"]))
    scale = read_tensors(REGIONS)[0]["regions"].astype(np.float32)
    table = np.zeros((0, backbone.GRID**2, scale.shape[1]), np.float32)
    retriever = build("align", BUDGETS["world"].retrieval, table, len(words)).eval()
    try:
        with safe_open(path, "pt") as file:
            made = (file.metadata() or {}).get("card", "which starts paper 02's judges")
            names = file.keys()
            weights = {n.removeprefix("align."): file.get_tensor(n).float() for n in names}
        retriever.load_state_dict(weights)
    except Exception as error:  # whatever another file leads to
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: no weights of an ALBEF-like retriever ({reason})") from None

    @torch.no_grad()
    def image_vectors(pictures: list[Image.Image]) -> Tensor:
        regions = (backbone.extract(pictures)[0] - scale[0]) / scale[1]
        return retriever.image_states(torch.from_numpy(regions.astype(np.float32)))[1]

    @torch.no_grad()
    def text_vectors(texts: list[str]) -> Tensor:
        ids, lengths = padded([words.ids(text)[:MAX_WORDS] for text in texts])
        return retriever.text_states(torch.from_numpy(ids), torch.from_numpy(lengths))[2]

    vocabulary = set(words.words)
    return Encoder(
        path, CARD.format(made, len(words.words)), file_hash(path), image_vectors, text_vectors,
        lambda text: len(words.ids(text)) <= MAX_WORDS,
        lambda text: [w for w in tokenize(text) if w.isalnum() and w not in vocabulary],
    )  # fmt: skip


def python_file(path: Path) -> Encoder:
    """encode_images and encode_texts of a Python file, which is run.

    Modules beside it can be imported. Raises DataError where it has no such function, and as
    `running` does.
    """
    sys.path.insert(0, str(regular_file(path, "name a .py file").resolve().parent))
    with running(path):
        functions = runpy.run_path(str(path.resolve()))
    if lacking := [name for name in FUNCTIONS if not callable(functions.get(name))]:
        raise DataError(f"{path}: has no function {lacking[0]}")

    def calling(name: str) -> Callable[[list], np.ndarray]:
        def encode(items: list) -> np.ndarray:
            with running(path):
                vectors = functions[name](items)
                if isinstance(vectors, Tensor):
                    vectors = vectors.detach().cpu().double().numpy()
                return np.asarray(vectors, dtype=float)

        return encode

    card, identity = f"{path.name}: two functions of yours.", f"py {file_hash(path)}"
    return Encoder(path, card, identity, calling(FUNCTIONS[0]), calling(FUNCTIONS[1]))


@contextmanager
def running(path: Path) -> Iterator[None]:
    """Run a user's code, of which stderr gets what it prints.

    Raises DataError with its file and line for whatever it raises, SystemExit too.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError):
            frames.append((error.filename or "", error.lineno))
        users = [
            (file, line) for file, line in frames if Path(file).parent == path.parent.resolve()
        ]
        file, line = (users or [(str(path), None)])[-1]
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise DataError(Problem(path.with_name(Path(file).name), line, reason, "mend it")) from None


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
    return Encoder(
        folder, card, f"hf {states}", image_vectors, text_vectors,
        lambda text: len(tokenizer(text, verbose=False)["input_ids"]) <= longest,
    )  # fmt: skip
