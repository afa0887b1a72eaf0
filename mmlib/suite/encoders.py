"""Models that put pictures and texts into one space, for searching, scoring and comparing.

A model is a file of `score.keep`, the folder of a CLIP, SigLIP or their kin as transformers writes
it, or a Python file with two functions; `mmlib.suite.score.read` opens each of them.
"""

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash, regular_file
from mmlib.core.paths import PACKAGE
from mmlib.features.store import UNREADABLE, rgb

BATCH = 64  # pictures or texts that are encoded together
SIDE = 1024  # pixels of a picture's longer side that are read, more than any model here takes
FUNCTIONS = ("encode_images", "encode_texts")
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")
INSTALLED = {PACKAGE, Path(sys.prefix), Path(sys.base_prefix)}
ROUNDING = 0.02  # distance of one input's unit vectors at half precision, in different batches


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


@dataclass(frozen=True, eq=False)
class Encoder:
    """Two encoders; the cosine of their vectors says how well a text fits a picture.

    path: the model's file or folder, for messages. card: what to know before the model is used.
    identity: a text that changes with the model's files. image_vectors, text_vectors: what encodes
    at most `BATCH` RGB pictures or texts: (n, D), of any length. fits: whether a text is read to
    its end. unknown: its words that the model does not know, as far as can be told. unsteady:
    whether a function gives one input two vectors. width: of those that a function gave first.
    """

    path: Path
    card: str
    identity: str
    image_vectors: Callable[[list[Any]], Any]
    text_vectors: Callable[[list[str]], Any]
    fits: Callable[[str], bool] = lambda text: True
    unknown: Callable[[str], list[str]] = lambda text: []
    unsteady: dict[str, bool] = field(default_factory=dict)
    width: dict[str, int] = field(default_factory=dict)

    def encode_images(self, pictures: Sequence[Any]) -> np.ndarray:
        """Unit vectors (n, D), float32, of RGB pictures. Raises DataError where these are none."""
        return self._units(self.image_vectors, pictures, "encode_images")

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, D), float32, of texts. Raises DataError where these are none."""
        return self._units(self.text_vectors, texts, "encode_texts")

    def _units(self, encode: Callable[[list], Any], items: Sequence[Any], name: str) -> np.ndarray:
        blocks = [self._unit_block(encode, block, name) for block in batches(items)]
        if name not in self.unsteady:  # the first call
            first = blocks[0][:2]
            again = self._unit_block(encode, items[: len(first)], name)
            self.unsteady[name] = differ(again, first, ROUNDING)
            if self.unsteady[name]:
                said = (
                    f"{self.path}: {name} gives one input other vectors each time, so scores vary"
                )
                print(f"{said} (dropout, or batch norm in training? call eval())", file=sys.stderr)
        return np.concatenate(blocks)

    def _unit_block(self, encode: Callable[[list], Any], items: Any, name: str) -> np.ndarray:
        vectors = np.asarray(encode(list(items)), dtype=np.float64)  # whose squares are in range
        if vectors.ndim != 2 or len(vectors) != len(items) or not vectors.size:
            shape = f"{vectors.shape} for {len(items)} items, not (items, width)"
            raise DataError(f"{self.path}: {name} gave {shape}")
        if (width := vectors.shape[1]) != self.width.setdefault(name, width):
            widths = f"{self.width[name]} and then of {width} numbers"
            raise DataError(f"{self.path}: {name} gave vectors of {widths}")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise DataError(f"{self.path}: {name} gives no numbers (are the weights right?)")
        return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def probes(self) -> np.ndarray:
        """Unit vectors of fixed pictures, which change with weights, code and preprocessing.

        Empty for a model that takes no such pictures, as one that wants all of one size.
        """
        rows, columns = np.mgrid[:60, :80]
        waves = np.stack([rows * 5 + columns, columns * 4, rows * columns // 7], axis=2) % 256
        shades = [np.where(np.arange(3) == k, waves, waves // 4).astype(np.uint8) for k in range(3)]
        wide, high, large = map(Image.fromarray, shades)
        try:
            return self.encode_images([wide, high.resize((60, 90)), large.resize((600, 500))])
        except Exception:  # of whatever kind the model has
            return np.zeros((0, 0), np.float32)

    def cosines(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Cosines (images, texts) of unit vectors; DataError where their widths differ."""
        if images.shape[1] != texts.shape[1]:
            widths = f"pictures get {images.shape[1]} numbers and texts {texts.shape[1]}"
            raise DataError(f"{self.path}: {widths}, so that they cannot be compared")
        return images @ texts.T

    def say_unread(self, texts: Sequence[str], name: str = "texts") -> None:
        """Say on stderr which words of texts the model does not know, and which ends it cuts."""
        if words := list(dict.fromkeys(word for text in texts for word in self.unknown(text))):
            more = f" and {len(words) - 20} more" if len(words) > 20 else ""
            print(f"words that it does not know: {', '.join(words[:20])}{more}", file=sys.stderr)
        say_cut(texts, self.fits, name)

    def score(self, pairs: pd.DataFrame, prior: float = 0.0) -> pd.DataFrame:
        """Image, caption and cosine of each pair (`score.read_csv`); the prior is of judges alone.

        Raises DataError for a picture that cannot be read.
        """
        self.say_unread(captions := list(pairs.caption), "captions")
        texts = self.encode_texts(captions)
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


def say_cut(texts: Sequence[str], fits: Callable[[str], bool], name: str) -> None:
    """Say on stderr how many texts do not fit, and at which word the first of them is cut."""
    if not (cut := [text for text in texts if not fits(text)]):
        return
    words = cut[0].split() or [""]
    ends = range(1, len(words))
    last = next((n for n in ends if not fits(" ".join(words[:n]))), len(words))
    first = f"the first is cut at its word {last}, {words[last - 1][:40]!r}"
    print(f"{name} not read to the end: {len(cut)} of {len(texts)}; {first}", file=sys.stderr)


def differ(vectors: np.ndarray, others: np.ndarray, most: float) -> bool:
    """Whether two arrays (n, D) differ in shape, or a row of them by a distance above `most`."""
    if vectors.shape != others.shape:
        return True
    return bool((np.linalg.norm(vectors - others, axis=1) > most).any())


def python_file(path: Path) -> Encoder:
    """encode_images and encode_texts of a Python file, which is run.

    Raises DataError where it has no such function, and as `running` does.
    """
    modules: dict[str, Any] = {}
    with running(regular_file(path, "name a .py file"), modules):
        functions = runpy.run_path(str(path.absolute()))
    if lacking := [name for name in FUNCTIONS if not callable(functions.get(name))]:
        raise DataError(f"{path}: has no function {lacking[0]}")

    def calling(name: str) -> Callable[[list], np.ndarray]:
        def encode(items: list) -> np.ndarray:
            with running(path, modules, f"{name}: "):
                vectors = numbers(given := functions[name](items))
                if not np.can_cast(vectors.dtype, np.float64, "same_kind"):
                    raise TypeError(f"gave no numbers but {type(given).__name__} ({vectors.dtype})")
            return vectors

        return encode

    card, identity = f"{path.name}: two functions of yours.", f"py {file_hash(path)}"
    image_vectors, text_vectors = map(calling, FUNCTIONS)
    return Encoder(path, card, identity, image_vectors, text_vectors)


@contextmanager
def running(path: Path, modules: dict[str, Any], doing: str = "") -> Iterator[None]:
    """Run a user's code as `python path` would, which finds modules beside it.

    modules: those, which no other file's code gets under the same names. What the code prints goes
    to stderr. Raises DataError with the user's file and line for whatever it raises, SystemExit
    too; Ctrl-C goes on as it is.
    """
    folder, before = path.resolve().parent, set(sys.modules)
    sys.modules |= modules
    sys.path.insert(0, str(folder))
    try:
        with redirect_stdout(sys.stderr):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError):
            frames.append((error.filename or "", error.lineno))
        lines = [(file, line) for file, line in frames if _beside(file, folder)]
        file, line = (lines or [(str(path), None)])[-1]
        users = path.parent / Path(file).resolve().relative_to(folder)
        said = " ".join(str(getattr(error, "msg", error)).split())[:200]
        reason = f"{doing}{type(error).__name__}: {said}"
        raise DataError(Problem(users, line, reason, "mend the code there")) from None
    finally:
        with suppress(ValueError):  # the code may have changed the list
            sys.path.remove(str(folder))
        for name in sys.modules.keys() - before:
            if _beside(getattr(sys.modules[name], "__file__", None) or "", folder):
                modules[name] = sys.modules.pop(name)


def _beside(file: str, folder: Path) -> bool:
    """Whether a file of code is one of a user's folder, not of a package installed there."""
    parents = [] if file[:1] in ("", "<") else [*Path(file).resolve().parents]
    return folder in parents and not INSTALLED & {*parents} and "site-packages" not in file


def numbers(value: Any) -> np.ndarray:
    """An array of what a user's function gave: of arrays and tensors of any kind, and lists."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().to_dense()
        return (value if value.is_complex() else value.double()).numpy()
    if isinstance(value, list | tuple):
        return np.array([item if np.isscalar(item) else numbers(item) for item in value])
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)


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
