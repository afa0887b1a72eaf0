"""Texts that relate to a picture in different ways: the picture world's coherence sets.

A pair is a scene and one text. Which relations hold between them is drawn first, from what the
picture shows and from chance, at the rates and correlations of the real sets; then a text is
written. Two dials say how much can be known of a relation: `signal`, how much the picture counts in
the draw (at 0 the labels know nothing of it), and `telling`, how often the text is worded as its
relations would have it (at 1 always, at 0 no more than by chance). Labels are those of readers, who
see more in a pair than its words, and do not always agree with them. `HOW` says how the text
realises each relation and what in the picture goes with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm

from mmlib.core.related import RelatedPairs
from mmlib.world import SIZE, extract_features, picture
from mmlib.world.discourse_cite import cite_text
from mmlib.world.discourse_clue import clue_text
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import GROUPS, Scene, Thing, box

STRENGTH = 0.9  # correlation of a relation's latent with the picture's properties at signal 1
_REFERENCE = 3000  # scenes of the split "backbone" that the properties are standardised on
TELLING = 0.5  # where a bag of words reads relations off texts as well as off the real sets' texts
_SEEDS = 6  # of each pair: one for its scene, the rest for scenes that its text may be about


@dataclass(frozen=True, eq=False)
class WorldPairs(RelatedPairs):
    """RelatedPairs of the world. scenes: one an image. told: the scene each text was written
    from, which is the image's own except where the text is about something else."""

    scenes: tuple[Scene, ...] = ()
    told: tuple[Scene, ...] = ()

    def take(self, rows: Sequence[int] | np.ndarray, split: str | None = None) -> "WorldPairs":
        """The pairs of some rows, in their order; images and scenes stay as they are."""
        fewer = super().take(rows, split)
        assert isinstance(fewer, WorldPairs)
        return replace(fewer, told=tuple(self.told[i] for i in rows))


def related_pairs(
    split: str,
    n: int,
    scheme: str = "clue",
    seed: int = 0,
    signal: float = 1.0,
    workers: int = 1,
    see_pictures: bool = True,
    telling: float = TELLING,
) -> WorldPairs:
    """n pairs of a split ("train", "val", "test", "backbone"), each with a picture of its own.

    The same arguments give the same record, whatever `workers`. Splits share no scene; a larger n
    begins with the smaller one's pairs. Scenes do not depend on `signal`, `telling` or `scheme`,
    labels not on `telling`.

    Args:
        split: whose scenes.
        n: how many, at least 1.
        scheme: whose relations, "clue" or "cite".
        seed: which list of the split's scenes, 0 to 999.
        signal: how much the picture tells of the relations, from 0 (nothing) to 1.
        workers: processes that draw the pictures and extract features.
        see_pictures: whether to extract features; without, they are None.
        telling: how much the text tells of the relations, from 0 (nothing) to 1 (all).

    Raises:
        ValueError: for an unknown scheme or split, n below 1 or a dial outside 0 to 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}, but a collection needs at least one pair")
    seeds = split_seeds(split, n * _SEEDS, seed)
    scenes = tuple(sample_scene(s) for s in seeds[::_SEEDS])
    labels = draw_labels(scenes, scheme, seed, signal)
    others = [seeds[i * _SEEDS + 1 : (i + 1) * _SEEDS] for i in range(n)]
    wordings = draw_wordings(scenes, labels, scheme, seed, telling)
    relations = _scheme(scheme).relations
    written = []
    for scene, spare, row, wording in zip(scenes, others, labels, wordings, strict=True):
        holds, worded = (
            frozenset(name for name, yes in zip(relations, some, strict=True) if yes)
            for some in (row, wording)
        )
        rng = np.random.default_rng([seed, scene.seed, 8])
        if "Irrelevant" in worded:  # which has no words of its own
            worded = worded - {"Irrelevant"} | {"Visible"}
        about = _told(scene, spare, holds, worded)
        if scheme == "clue":
            written.append((about, clue_text(scene, about, worded, rng)))
        else:
            written.append((about, cite_text(scene, worded, rng)))
    told, texts = zip(*written, strict=True)
    features = None
    if see_pictures:
        features = extract_features(scenes, workers=workers, desc=f"world {split}")[0]
    return WorldPairs(
        name=f"world-{scheme}",
        split=split,
        texts=texts,
        labels=labels,
        relations=relations,
        image_of=np.arange(n),
        image_ids=tuple(f"world-{split}-{scene.seed % 10**10:06d}" for scene in scenes),
        features=features,
        open_image=partial(picture, scenes, SIZE),
        scenes=scenes,
        told=told,
    )


def _told(
    scene: Scene, spare: Sequence[int], holds: frozenset[str], worded: frozenset[str]
) -> Scene:
    """The scene that a text is about: what does not hold is of the least or the most alike other.

    A caption of the most alike one is half true of this one.
    """
    alike, others = partial(_common, scene), map(sample_scene, spare)
    if "Irrelevant" in holds:
        return min(others, key=alike)
    return max(others, key=alike) if "Visible" in worded - holds else scene


def _common(scene: Scene, other: Scene) -> tuple[int, bool]:
    """How many things of the other have a kind that is in the scene, and whether places agree."""
    kinds = {thing.kind for thing in scene.things}
    return sum(thing.kind in kinds for thing in other.things), other.setting == scene.setting


# --- What the pictures' properties are ------------------------------------------------------------

_CHARM = {
    "cat": 1.5, "flower": 1.5, "balloon": 1.5, "kite": 1.2, "duck": 1.2, "dog": 1.0, "girl": 1.0,
    "boy": 0.6, "sheep": 0.6, "bird": 0.6, "horse": 0.4, "umbrella": 0.3, "ball": 0.3, "woman": 0.0,
    "tree": -0.2, "bush": -0.3, "boat": -0.3, "tent": -0.4, "house": -0.5, "cow": -0.4,
    "bicycle": -0.5, "chair": -0.6, "bench": -0.6, "cactus": -0.7, "man": -0.7, "tower": -0.8,
    "barn": -0.8, "lamp": -0.9, "box": -1.0, "bus": -1.2, "car": -1.2, "truck": -1.5,
}  # fmt: skip
_VIGOUR = {"running": 1.5, "jumping": 1.5, "flying": 1.2, "moving": 1.0, "walking": 1.0,
           "floating": 0.8, "eating": 0.5, "standing": 0.0, "sitting": 0.0, "lying": -0.2,
           None: -0.8}  # fmt: skip
_WILD = {"street": -1.5, "park": -0.9, "field": -0.5, "beach": -0.2, "forest": 0.2, "snow": 0.5,
         "mountain": 0.9, "desert": 1.5}  # fmt: skip
_LINE = {"photo": -1.0, "flat": 0.0, "black and white": 0.7, "sketch": 1.5}


def _area(thing: Thing) -> float:
    left, top, right, bottom = box(thing)
    return (right - left) * (bottom - top)


def _weighted(of: Callable[[Thing], float], scene: Scene) -> float:
    """The sum over things of what each is worth, times its extent."""
    return sum(of(thing) * _area(thing) ** 0.5 for thing in scene.things)


PROPERTIES: dict[str, Callable[[Scene], float]] = {
    "filled": lambda scene: float(np.log(sum(map(_area, scene.things)))),
    "charm": partial(_weighted, lambda thing: _CHARM[thing.kind]),
    "motion": partial(_weighted, lambda thing: _VIGOUR[thing.action]),
    "wild": lambda scene: _WILD[scene.setting],
    "line": lambda scene: _LINE[scene.style],
    "crowd": lambda scene: len(scene.things),
    "gear": lambda scene: sum(thing.kind in GROUPS["thing"] for thing in scene.things),
}


# --- The schemes ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scheme:
    """A set of relations and their statistics.

    relations: their names. properties: what in the picture goes with each, from PROPERTIES.
    rates: of the real set. gate: the relation that decides over the others, which reach their
    rates where the gate's value is `opens`, and have the rates `closed` elsewhere.
    phi: the labels' correlations where the gate is open, without the gate.
    told: how often a text is worded as each relation has it, at the default of `telling`.
    """

    relations: tuple[str, ...]
    properties: tuple[str, ...]
    rates: tuple[float, ...]
    gate: str
    opens: bool
    closed: Mapping[str, float]
    phi: tuple[tuple[float, ...], ...]
    told: tuple[float, ...]


SCHEMES = {
    # Clue, the 3534 captions by people among its authors' training rows
    # (conceptual_train_dis.csv). Of the 102 Irrelevant ones 10 have another relation; here none
    # has. phi: the 3432 others.
    "clue": Scheme(
        relations=("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant"),
        properties=("filled", "charm", "motion", "wild", "line", "crowd"),
        rates=(0.6528, 0.0990, 0.1907, 0.2971, 0.2462, 0.0289),
        gate="Irrelevant",
        opens=False,
        closed={},
        phi=(
            (1.00, -0.18, 0.22, -0.57, 0.30),
            (-0.18, 1.00, -0.10, 0.00, -0.09),
            (0.22, -0.10, 1.00, -0.18, 0.26),
            (-0.57, 0.00, -0.18, 1.00, -0.23),
            (0.30, -0.09, 0.26, -0.23, 1.00),
        ),
        told=(0.50, 0.36, 0.49, 0.46, 0.37, 0.50),
    ),
    # CITE, 2047 rows of data.csv. Of the 348 without Q2 all but 27 have no other relation than
    # Q4; here all. phi: the 1699 with Q2.
    "cite": Scheme(
        relations=("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8"),
        properties=("filled", "crowd", "charm", "gear", "motion", "wild", "line"),
        rates=(0.830, 0.058, 0.211, 0.131, 0.056, 0.492, 0.201),
        gate="Q2",
        opens=True,
        closed={"Q4": 0.115},
        phi=(
            (1.00, -0.08, -0.01, 0.02, 0.08, -0.06),
            (-0.08, 1.00, -0.02, 0.02, -0.01, -0.09),
            (-0.01, -0.02, 1.00, -0.01, -0.13, 0.29),
            (0.02, 0.02, -0.01, 1.00, -0.26, -0.11),
            (0.08, -0.01, -0.13, -0.26, 1.00, -0.62),
            (-0.06, -0.09, 0.29, -0.11, -0.62, 1.00),
        ),
        told=(0.0, 0.36, 0.67, 0.12, 0.05, 0.22, 0.06),
    ),
}


def _scheme(name: str) -> Scheme:
    if name not in SCHEMES:
        raise ValueError(f"scheme {name!r} is not one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


# --- Drawing labels -------------------------------------------------------------------------------


def draw_labels(
    scenes: Sequence[Scene], scheme: str = "clue", seed: int = 0, signal: float = 1.0
) -> np.ndarray:
    """(scenes, relations) bool: which relations shall hold between each scene and its text.

    A relation holds where its latent lies above a threshold. The latents are a * s + b * e with
    a = signal * STRENGTH and a^2 + b^2 = 1: s are the scene's properties, e is noise, and both are
    mixed so that they have the labels' correlations. Thresholds give the real rates at any signal.
    """
    kind = _scheme(scheme)
    if not 0 <= signal <= 1:
        raise ValueError(f"signal {signal} is not between 0 and 1")
    a, b = _shares(signal)
    noise = np.array(
        [np.random.default_rng([seed, s.seed, 7]).normal(size=len(kind.rates)) for s in scenes]
    )
    latents = a * scores(scenes, scheme) + b * noise @ _root(_correlations(scheme))
    opened, closed = _thresholds(scheme, signal)
    at = kind.relations.index(kind.gate)
    gate = latents[:, at] > opened[at]
    labels = latents > np.where((gate == kind.opens)[:, None], opened, closed)
    labels[:, at] = gate
    return labels


def draw_wordings(
    scenes: Sequence[Scene], labels: np.ndarray, scheme: str, seed: int, telling: float
) -> np.ndarray:
    """(scenes, relations) bool: the relations that each text is worded for.

    A relation is worded as it is labelled with a probability that `telling` sets, and else as it is
    in labels drawn at the same rates without looking at the pair. That probability is 0 and 1 at
    the ends of the dial, and `Scheme.told` at its default. Where the gate is closed, its own
    probability decides on the whole text.
    """
    kind = _scheme(scheme)
    if not 0 <= telling <= 1:
        raise ValueError(f"telling {telling} is not between 0 and 1")
    told = np.array(kind.told) ** ((1 - telling) / telling if telling else np.inf)
    drawn = [np.random.default_rng([seed, s.seed, 9]).random(len(kind.rates)) for s in scenes]
    as_labelled = np.array(drawn) < told
    at = kind.relations.index(kind.gate)
    closed = labels[:, at] != kind.opens
    as_labelled[closed] = as_labelled[closed][:, [at]]
    return np.where(as_labelled, labels, draw_labels(scenes, scheme, seed + 1000, 0.0))


def scores(scenes: Sequence[Scene], scheme: str = "clue") -> np.ndarray:
    """(scenes, relations): what each picture says for each relation, of mean 0 and variance 1.

    Linear in the scene's properties: made uncorrelated first, then mixed, each relation from its
    own property for the most part, so that they correlate as the relations do.
    """
    mean, mix, _ = _reference(scheme)
    return (_measure(scenes, scheme) - mean) @ mix


def _measure(scenes: Sequence[Scene], scheme: str) -> np.ndarray:
    chosen = [PROPERTIES[name] for name in _scheme(scheme).properties]
    return np.array([[measure(scene) for measure in chosen] for scene in scenes], dtype=float)


@cache
def _reference(scheme: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(properties' means, matrix from properties to scores, scores) of a fixed lot of scenes."""
    values = _measure(_reference_scenes(), scheme)
    deviation = values.std(0)
    uncorrelate = np.linalg.inv(_root(np.corrcoef(values.T)))
    mix = uncorrelate @ _root(_correlations(scheme)) / deviation[:, None]
    return values.mean(0), mix, (values - values.mean(0)) @ mix


@cache
def _reference_scenes() -> tuple[Scene, ...]:
    return tuple(sample_scene(seed) for seed in split_seeds("backbone", _REFERENCE, 999))


def _shares(signal: float) -> tuple[float, float]:
    a = signal * STRENGTH
    return a, (1 - a**2) ** 0.5


def _open_rates(kind: Scheme) -> np.ndarray:
    """Each relation's rate where the gate is open; the gate's own rate in its place."""
    at = kind.relations.index(kind.gate)
    p = kind.rates[at] if kind.opens else 1 - kind.rates[at]
    low = np.array([kind.closed.get(name, 0.0) for name in kind.relations])
    rates = (np.array(kind.rates) - (1 - p) * low) / p
    rates[at] = kind.rates[at]
    return rates


@cache
def _correlations(scheme: str) -> np.ndarray:
    """The latents' correlations that give the labels' phi, or the nearest that can be.

    Not every phi has such latents (CITE's Q6 to Q8 all but exclude each other): negative
    eigenvalues are cut off, with the more weight on a relation the more evenly it splits the pairs.
    """
    kind, at = _scheme(scheme), _scheme(scheme).relations.index(_scheme(scheme).gate)
    rates = np.delete(_open_rates(kind), at)
    made = np.eye(len(rates))
    for i, j in zip(*np.triu_indices(len(rates), 1), strict=True):
        made[i, j] = made[j, i] = _latent_correlation(rates[i], rates[j], kind.phi[i][j])
    weight = np.outer(rates * (1 - rates), rates * (1 - rates))
    values, vectors = np.linalg.eigh(made * weight)
    made = (vectors * np.maximum(values, 1e-3)) @ vectors.T / weight
    made /= np.sqrt(np.outer(np.diag(made), np.diag(made)))
    return np.insert(np.insert(made, at, 0, 0), at, np.eye(len(rates) + 1)[at], 1)


def _latent_correlation(p: float, q: float, phi: float) -> float:
    """The correlation of two normal variables that, cut at rates p and q, correlate by phi."""
    both = p * q + phi * (p * (1 - p) * q * (1 - q)) ** 0.5
    cut = [norm.ppf(p), norm.ppf(q)]

    def excess(r: float) -> float:
        return float(multivariate_normal.cdf(cut, cov=np.array([[1, r], [r, 1]]))) - both

    return float(brentq(excess, -0.99, 0.99, xtol=1e-4))


@cache
def _thresholds(scheme: str, signal: float) -> tuple[np.ndarray, np.ndarray]:
    """The latents' thresholds where the gate is open (with the gate's own) and where closed."""
    kind, at = _scheme(scheme), _scheme(scheme).relations.index(_scheme(scheme).gate)
    known = _reference(scheme)[2]
    a, b = _shares(signal)

    def threshold(column: int, weights: np.ndarray, rate: float) -> float:
        def excess(t: float) -> float:
            above = norm.sf((t - a * known[:, column]) / b)
            return float(np.average(above, weights=weights)) - rate

        return float(brentq(excess, -9, 9)) if rate > 0 else np.inf

    rates = _open_rates(kind)
    gate = threshold(at, np.ones(len(known)), rates[at])
    yes = norm.sf((gate - a * known[:, at]) / b)
    is_open = yes if kind.opens else 1 - yes
    opened = [threshold(c, is_open, rate) for c, rate in enumerate(rates)]
    opened[at] = gate
    low = [kind.closed.get(name, 0.0) for name in kind.relations]
    closed = [threshold(c, 1 - is_open, rate) for c, rate in enumerate(low)]
    return np.array(opened), np.array(closed)


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


# --- In words -------------------------------------------------------------------------------------

# How the text realises each relation, and which property of the picture goes with it.
HOW: dict[str, dict[str, str]] = {
    "clue": {
        "Visible": "A caption that is true of the scene, of a state or, with Action, of an event; "
        "without it the text only names one thing. Likelier the more of the picture is filled.",
        "Subjective": "A reaction or judgement (so cute, which makes me smile). Likelier for "
        "charming things (cats, flowers, balloons, not trucks), the larger they are.",
        "Action": "Something goes on (a dog chases a ball; where nothing moves, wind or light). "
        "Likelier the more there is in motion, and the larger that is.",
        "Story": "What went before or lies behind, of which the picture shows nothing (the morning "
        "before the race). Likelier in wild settings: desert and mountains rather than streets.",
        "Meta": "Speaks of the picture as a picture (a framed picture of); the words are the same "
        "for all styles. Likelier for sketches and black and white than for photos.",
        "Irrelevant": "A caption of another scene, worded as for Visible; it excludes the other "
        "relations. Likelier for pictures of many small things.",
    },
    "cite": {
        "Q2": "The step names things that the picture shows; without it it speaks of something "
        "else, names one thing as not yet due, and of the rest only Q4 may hold. Likelier the more "
        "of the picture is filled.",
        "Q3": "The step points at the picture (just like this, as shown here). Likelier for "
        "pictures of many things.",
        "Q4": "The text has an amount that cannot be seen (30 minutes, 50 ml). Likelier for "
        "charming things.",
        "Q5": "The step needs something that it does not name but describes (something green), and "
        "that the picture shows. Likelier the more loose things there are (boxes, chairs, balls).",
        "Q6": "Orders what does not hold in the picture: another colour, the opposite place, "
        "another pose, a thing that is not there. Likelier the more there is in motion.",
        "Q7": "Orders what holds in the picture (put the ball on the bench), in the same words as "
        "Q6 for the most part. Likelier in wild settings.",
        "Q8": "Orders what is going on (let the dog run; keep the boy riding). Likelier for "
        "sketches and black and white.",
    },
}
