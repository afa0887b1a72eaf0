"""The picture world: scenes with known ground truth, drawn, captioned and reasoned about.

What it was built to contain: 32 kinds of things with colours, sizes, patterns and actions, placed
in 8 settings by fixed habits (`mmlib.world.habits`), drawn in 4 styles; captions that are always
true and say only a part. Results on it show how a method behaves where the truth is known, not
how well it would do on photographs.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.files import cached
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE, cache_dir
from mmlib.core.records import CaptionedImages
from mmlib.core.source import source_hash
from mmlib.world.captions import FORMS, Caption, captions
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import Scene, Thing, box
from mmlib.world.siblings import clear_family
from mmlib.world.siblings import family as siblings

__all__ = ["Clarity", "WorldImages", "captioned_images", "picture"]

SIZE = 128  # side of a picture, in pixels
BOXES = 8  # of a picture that is read at boxes
BERT = PACKAGE / "world" / "bert"  # a small one that has read other scenes' captions
_CHUNK = 64  # pictures drawn and read together; fixed, so that `workers` changes no figure


@dataclass(frozen=True)
class WorldImages(CaptionedImages):
    """CaptionedImages of the world, with the truth: the scenes and the captions' gold graphs."""

    scenes: tuple[Scene, ...] = ()
    gold: tuple[tuple[Caption, ...], ...] = ()


@dataclass(frozen=True)
class Clarity:
    """What is easier than the world's usual: nothing, if not said otherwise.

    families: those of `siblings.clear_family`. captions: lists of this form, see `captions.Lister`;
    if complete, words alone tell no picture of a family from another. boxes: features are read at
    the things' boxes, among random others, as of an object detector, and not on a grid.
    Raises ValueError for an unknown form, and for lists without clear families, whose things alone
    are of different kinds.
    """

    families: bool = False
    captions: Sequence[str] | None = None
    boxes: bool = False

    def __post_init__(self) -> None:
        if unknown := sorted({*(self.captions or ())} - {*FORMS}):
            raise ValueError(f"no captions of form {unknown[0]!r}: there are {', '.join(FORMS)}")
        if self.captions is not None and not self.families:
            raise ValueError("captions that list things need clear families: add families=True")


USUAL = Clarity()


def captioned_images(
    split: str, n: int, seed: int = 0, workers: int = 1, family: int = 1, clarity: Clarity = USUAL
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
        clarity: what is easier than usual; clear families have 2 to 5 pictures.
    """
    if clarity.families and not 2 <= family <= 5:
        raise ValueError(f"clear families have 2 to 5 pictures, not {family}")
    if n < 1 or n % family:
        raise ValueError(
            f"n is {n}, but a collection needs at least one picture, and whole families of {family}"
        )
    seeds = split_seeds(split, n // family, seed)
    scenes = _composed(seeds, split, family, clarity.families, workers)
    write = partial(captions, seed=seed, listed=clarity.captions)
    gold = tuple(in_processes(write, [(scene,) for scene in scenes], workers))
    ids = tuple(
        f"world-{split}-{scene_seed % 10**10:06d}" + (f"-{k}" if family > 1 else "")
        for scene_seed in seeds
        for k in range(family)
    )
    texts = tuple(tuple(caption.text for caption in some) for some in gold)
    return replace(images_of(split, ids, scenes, texts, workers, clarity.boxes), gold=gold)


def images_of(
    split: str, ids: Sequence[str], scenes: Sequence[Scene], texts: Sequence[tuple[str, ...]],
    workers: int = 1, boxes: bool = False,
) -> WorldImages:  # fmt: skip
    """The record of these scenes, drawn and read here; texts: the captions of each."""
    features, scores, names = extract_features(scenes, workers, f"world {split}", boxes)
    return WorldImages(
        name="world", split=split, ids=tuple(ids), captions=tuple(texts), features=features,
        open_image=partial(picture, scenes, SIZE), label_scores=scores, label_names=names,
        scenes=tuple(scenes),
    )  # fmt: skip


def _composed(
    seeds: Sequence[int], split: str, size: int, clear: bool, workers: int
) -> tuple[Scene, ...]:
    """Families of `size` scenes, those of a family one after another.

    clear: those of `siblings.clear_family`. Many of these are cached, since twenty placements are
    tried for each that is easy to see.
    """
    if size == 1:
        return tuple(in_processes(sample_scene, [(seed,) for seed in seeds], workers))
    compose = clear_family if clear else siblings

    def families() -> tuple[Scene, ...]:
        calls = [(seed, split, size) for seed in seeds]
        return tuple(scene for some in in_processes(compose, calls, workers) for scene in some)

    folder = cache_dir()
    if not clear or folder is None or len(seeds) <= _CHUNK:
        return families()
    by = repr((source_hash("mmlib.world.siblings"), version("numpy"), seeds, split, size))
    path = folder / "scenes" / f"{hashlib.sha256(by.encode()).hexdigest()[:32]}.safetensors"

    def written() -> dict[str, np.ndarray]:
        text = json.dumps([asdict(scene) for scene in families()])
        return {"scenes": np.frombuffer(text.encode(), np.uint8)}

    rows = json.loads(cached(path, written)["scenes"].tobytes())
    return tuple(
        replace(
            Scene(**row),
            things=tuple(Thing(**item) for item in row["things"]),
            relations=tuple((i, relation, j) for i, relation, j in row["relations"]),
        )
        for row in rows
    )


def picture(scenes: Sequence[Scene], size: int, row: int) -> Image.Image:
    """The picture of scenes[row], drawn on demand."""
    from mmlib.world.drawing import draw

    return draw(scenes[row], size)


def extract_features(
    scenes: Sequence[Scene], workers: int = 1, desc: str = "pictures", boxes: bool = False
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Draw scenes and extract features: (features, label scores, label names).

    features: (scenes, regions, width) float32, on a grid or at boxes. Those of many scenes are
    cached in a file.
    """
    from mmlib.world.backbone import LABELS, WEIGHTS

    where = np.array([boxes_of(scene) for scene in scenes], np.float32) if boxes else None
    folder, path, others = cache_dir(), None, set()
    if folder and len(scenes) > 3 * _CHUNK:  # pictures/<code>/<scenes>.safetensors
        by = [source_hash("mmlib.world.drawing", "mmlib.world.backbone")]
        by += map(version, ("torch", "pillow", "numpy"))
        code = hashlib.sha256(repr(by).encode() + WEIGHTS.read_bytes()).hexdigest()[:16]
        read = repr((SIZE, tuple(scenes))).encode() + (b"" if where is None else where.tobytes())
        name = hashlib.sha256(read).hexdigest()[:32]
        path = folder / "pictures" / code / f"{name}.safetensors"
        # What other code has drawn goes once this has.
        others = set(path.parent.parent.glob("*")) - {path.parent}

    def draw() -> dict[str, np.ndarray]:
        slices = [slice(i, i + _CHUNK) for i in range(0, len(scenes), _CHUNK)]
        chunks = [(scenes[s], None if where is None else where[s]) for s in slices]
        jobs = in_processes(_extract, chunks, workers)
        pieces = tqdm(jobs, total=len(chunks), desc=desc, leave=False, disable=len(chunks) < 4)
        regions, likely = zip(*pieces, strict=True)
        for old in others:
            shutil.rmtree(old, ignore_errors=True)
        return {"features": np.concatenate(regions), "scores": np.concatenate(likely)}

    arrays = cached(path, draw)
    return arrays["features"], arrays["scores"], LABELS


def _extract(scenes: Sequence[Scene], boxes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    from mmlib.world import backbone

    pictures = [picture(scenes, SIZE, row) for row in range(len(scenes))]
    return backbone.extract(pictures, boxes)[:2]


def boxes_of(scene: Scene) -> np.ndarray:
    """(BOXES, 4): the boxes of the scene's things, and random ones among them.

    Each left, top, right, bottom as fractions of the picture.
    """
    rng = np.random.default_rng([scene.seed, 5])
    items = np.clip([box(item) for item in scene.things], 0, 1)
    sides = 0.15 + 0.35 * rng.random((BOXES - len(items), 2))
    corners = rng.random(sides.shape) * (1 - sides)
    others = np.concatenate([corners, corners + sides], axis=1)
    return np.concatenate([items, others])[rng.permutation(BOXES)]
