"""The picture world's collections: scenes, and texts that relate to them in different ways.

A pair is a scene and one text. Which relations hold between them is drawn first (`schemes`), then
a text is written (`clue_texts`, `cite_texts`). Two dials say how much can be known of a relation:
`signal`, how much the picture counts in the draw (at 0 the labels know nothing of it), and
`telling`, how often the text is worded as its relations would have it (at 1 always, at 0 no more
than by chance).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mmlib.core.related import RelatedPairs
from mmlib.papers.coherence.data.cite_texts import cite_text
from mmlib.papers.coherence.data.clue_texts import clue_text
from mmlib.papers.coherence.data.pairs import CITE_LIKE, DIALS, Pairs, pooled
from mmlib.papers.coherence.data.schemes import SCHEMES, TELLING, draw_labels, draw_wordings
from mmlib.world import SIZE, extract_features, picture
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import Scene

COUNTS = {"train": 2000, "val": 400, "test": 1000}  # pairs of each split
_SEEDS = 6  # of each pair: one for its scene, the rest for scenes that its text may be about


def load(names: Sequence[str], seed: int) -> dict[str, Pairs]:
    """Collections by name. Clue-like ones share their pictures; CITE-like has its own.

    So claims can be pooled over the two, and features are extracted once for all Clue-like ones.
    """
    collections: dict[str, Pairs] = {}
    first: dict[str, Pairs] = {}  # the first collection of each scheme
    for name in names:
        scheme = "cite" if name == CITE_LIKE else "clue"
        signal, telling = DIALS.get(name, (1.0, TELLING))
        splits: dict[str, RelatedPairs] = {}
        for split, count in COUNTS.items():
            pairs = related_pairs(split, count, scheme, seed + (scheme == "cite"), signal, telling)
            if scheme in first:
                splits[split] = replace(pairs, features=first[scheme].split(split).features)
            else:
                cores, desc = os.cpu_count() or 1, f"world {split}"
                features, *_ = extract_features(pairs.scenes, workers=cores, desc=desc)
                splits[split] = pooled(replace(pairs, features=features))
        collections[name] = Pairs(splits["train"], splits["val"], splits["test"])
        first.setdefault(scheme, collections[name])
    return collections


@dataclass(frozen=True, eq=False)
class WorldPairs(RelatedPairs):
    """RelatedPairs of the world. scenes: one an image. about: the scene each text was written
    from, which is the image's own except where the text is about something else."""

    scenes: tuple[Scene, ...] = ()
    about: tuple[Scene, ...] = ()

    def take(self, rows: Sequence[int] | np.ndarray, split: str | None = None) -> "WorldPairs":
        """The pairs of some rows, in their order; images and scenes stay as they are."""
        fewer = super().take(rows, split)
        assert isinstance(fewer, WorldPairs)
        return replace(fewer, about=tuple(self.about[i] for i in rows))


def related_pairs(
    split: str, n: int, scheme: str = "clue", seed: int = 0, signal: float = 1.0,
    telling: float = TELLING,
) -> WorldPairs:  # fmt: skip
    """n pairs of a split ("train", "val", "test", "backbone"), each with a picture of its own.

    scheme: whose relations, "clue" or "cite". seed: which list of the split's scenes, 0 to 999.
    signal, telling: how much picture and text tell of the relations, from 0 (nothing) to 1.

    The same arguments give the same record. Splits share no scene; a larger n begins with the
    smaller one's pairs. Scenes do not depend on `signal`, `telling` or `scheme`, labels not on
    `telling`. Raises ValueError for an unknown split.
    """
    seeds = np.reshape(split_seeds(split, n * _SEEDS, seed), (n, _SEEDS)).tolist()
    scenes = tuple(sample_scene(first) for first, *_ in seeds)
    labels = draw_labels(scenes, scheme, seed, signal)
    wordings = draw_wordings(scenes, labels, scheme, seed, telling)
    about, texts = zip(
        *(
            _written(scheme, seed, scene, spare, *rows)
            for scene, (_, *spare), *rows in zip(scenes, seeds, labels, wordings, strict=True)
        ),
        strict=True,
    )
    return WorldPairs(
        name=f"world-{scheme}",
        split=split,
        texts=texts,
        labels=labels,
        relations=SCHEMES[scheme].relations,
        image_of=np.arange(n),
        image_ids=tuple(f"world-{split}-{scene.seed % 10**10:06d}" for scene in scenes),
        open_image=partial(picture, scenes, SIZE),
        scenes=scenes,
        about=about,
    )


def _written(
    scheme: str, seed: int, scene: Scene, spare: Sequence[int], label: np.ndarray,
    wording: np.ndarray,
) -> tuple[Scene, str]:  # fmt: skip
    """The scene that a text is about, and the text. label, wording: (relations,) bool."""
    names = np.array(SCHEMES[scheme].relations)
    holds, worded = frozenset(names[label].tolist()), frozenset(names[wording].tolist())
    rng = np.random.default_rng([seed, scene.seed, 8])
    if "Irrelevant" in worded:  # which has no words of its own
        worded = worded - {"Irrelevant"} | {"Visible"}
    kinds = {item.kind for item in scene.things}

    def alike(other: Scene) -> tuple[int, bool]:
        shared = sum(item.kind in kinds for item in other.things)
        return shared, other.setting == scene.setting

    about = scene
    if "Irrelevant" in holds:
        about = min(map(sample_scene, spare), key=alike)
    elif "Visible" in worded - holds:  # a caption of the most alike one is half true of this one
        about = max(map(sample_scene, spare), key=alike)
    if scheme == "clue":
        return about, clue_text(scene, about, worded, rng)
    return about, cite_text(scene, worded, rng)
