"""The picture world: scenes with known ground truth, drawn, captioned and reasoned about.

What it was built to contain: 32 kinds of things with colours, sizes, patterns and actions, placed
in 8 settings by fixed habits (`mmlib.world.habits`), drawn in 4 styles; captions that are always
true and say only a part. Results on it show how a method behaves where the truth is known, not
how well it would do on photographs.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.files import cached
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE, cache_dir
from mmlib.core.records import CaptionedImages
from mmlib.world.captions import Caption, captions
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import Scene
from mmlib.world.siblings import family as siblings

__all__ = ["WorldImages", "captioned_images", "picture"]

SIZE = 128  # side of a picture, in pixels
BERT = PACKAGE / "world" / "bert"  # a small one that has read other scenes' captions
_CHUNK = 64  # pictures drawn and read together; fixed, so that `workers` changes no figure


@dataclass(frozen=True)
class WorldImages(CaptionedImages):
    """CaptionedImages of the world, with the truth: the scenes and the captions' gold graphs."""

    scenes: tuple[Scene, ...] = ()
    gold: tuple[tuple[Caption, ...], ...] = ()


def captioned_images(
    split: str, n: int, seed: int = 0, workers: int = 1, family: int = 1
) -> WorldImages:
    """n captioned pictures of a split ("train", "val", "test", "backbone").

    The same arguments give the same record, whatever `workers`. Pictures of different splits are
    different scenes; a larger n begins with the smaller one's pictures.

    Args:
        split: whose scenes.
        n: how many, at least 1.
        seed: which list of the split's scenes, 0 to 999.
        workers: processes that write captions, draw and extract features.
        family: pictures that follow each other and differ in structure alone, see
            `mmlib.world.siblings`; n is a multiple of it.
    """
    if n < 1 or n % family:
        raise ValueError(
            f"n is {n}, but a collection needs at least one picture, and whole families of {family}"
        )
    seeds = split_seeds(split, n // family, seed)
    calls = [(scene_seed, split, seed, family) for scene_seed in seeds]
    pairs = [pair for pairs in in_processes(_written, calls, workers) for pair in pairs]
    scenes, gold = zip(*pairs, strict=True)
    ids = tuple(
        f"world-{split}-{scene_seed % 10**10:06d}" + (f"-{k}" if family > 1 else "")
        for scene_seed in seeds
        for k in range(family)
    )
    texts = tuple(tuple(caption.text for caption in some) for some in gold)
    return replace(images_of(split, ids, scenes, texts, workers), gold=gold)


def images_of(
    split: str, ids: Sequence[str], scenes: Sequence[Scene], texts: Sequence[tuple[str, ...]],
    workers: int = 1,
) -> WorldImages:  # fmt: skip
    """The record of these scenes, drawn and read here; texts: the captions of each."""
    features, scores, names = extract_features(scenes, workers=workers, desc=f"world {split}")
    return WorldImages(
        name="world", split=split, ids=tuple(ids), captions=tuple(texts), features=features,
        open_image=partial(picture, scenes, SIZE), label_scores=scores, label_names=names,
        scenes=tuple(scenes),
    )  # fmt: skip


def _written(
    scene_seed: int, split: str, seed: int, size: int
) -> list[tuple[Scene, tuple[Caption, ...]]]:
    """The scenes of a family of `size`, each with its captions."""
    scenes = siblings(scene_seed, split, size) if size > 1 else (sample_scene(scene_seed),)
    return [(scene, captions(scene, seed)) for scene in scenes]


def picture(scenes: Sequence[Scene], size: int, row: int) -> Image.Image:
    """The picture of scenes[row], drawn on demand."""
    from mmlib.world.drawing import draw

    return draw(scenes[row], size)


def extract_features(
    scenes: Sequence[Scene], workers: int = 1, desc: str = "pictures"
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Draw scenes and extract features: (features, label scores, label names).

    features: (scenes, regions, width) float32. Those of many scenes are cached in a file.
    """
    cache = _cache(scenes) if len(scenes) > 3 * _CHUNK else None
    # What other code has drawn goes once this has.
    others = set(cache.parent.parent.glob("*")) - {cache.parent} if cache else set()

    def draw() -> dict[str, np.ndarray]:
        chunks = [scenes[i : i + _CHUNK] for i in range(0, len(scenes), _CHUNK)]
        jobs = in_processes(_extract, [(chunk,) for chunk in chunks], workers)
        parts = tqdm(jobs, total=len(chunks), desc=desc, leave=False, disable=len(chunks) < 4)
        regions, likely = zip(*parts, strict=True)
        for folder in others:
            shutil.rmtree(folder, ignore_errors=True)
        return {"features": np.concatenate(regions), "scores": np.concatenate(likely)}

    arrays = cached(cache, draw)
    from mmlib.world.backbone import LABELS

    return arrays["features"], arrays["scores"], LABELS


def _cache(scenes: Sequence[Scene]) -> Path | None:
    """The file that caches features of these scenes: `<cache>/pictures/<code>/<scenes>`."""
    from mmlib.core.source import source_hash
    from mmlib.world.backbone import WEIGHTS

    folder = cache_dir()
    if folder is None:
        return None
    by = [source_hash("mmlib.world.drawing", "mmlib.world.backbone")]
    by += map(version, ("torch", "pillow", "numpy"))
    code = hashlib.sha256(repr(by).encode() + WEIGHTS.read_bytes()).hexdigest()[:16]
    drawn = hashlib.sha256(repr((SIZE, tuple(scenes))).encode()).hexdigest()[:32]
    return folder / "pictures" / code / f"{drawn}.safetensors"


def _extract(scenes: Sequence[Scene]) -> tuple[np.ndarray, np.ndarray]:
    from mmlib.world import backbone

    return backbone.extract([picture(scenes, SIZE, row) for row in range(len(scenes))])[:2]
