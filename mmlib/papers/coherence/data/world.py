"""The picture world's collections: scenes, and texts that relate to them in different ways.

A pair is a scene and one text. Which relations hold between them is drawn first, from what the
picture shows and from chance, at the rates and correlations of Clue or CITE; then a text is written
(`texts`). Two dials say how much can be known of a relation: `signal`, how much the picture counts
in the draw, and `telling`, how often the text is worded as its relations would have it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm

from mmlib.core.paths import table_beside
from mmlib.core.records import RelatedPairs
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.pairs import Pairs, pooled
from mmlib.papers.coherence.data.texts import cite_text, clue_text
from mmlib.world import SIZE, extract_features, picture
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import GROUPS, Scene, Thing, box

COUNTS = {"train": 2000, "val": 400, "test": 1000}  # pairs of each split
_SEEDS = 6  # of each pair: one for its scene, the rest for scenes that its text may be about
STRENGTH = 0.9  # correlation of a relation's latent with the picture's properties at signal 1
# Where a bag of words reads relations off texts as well as off the real sets' texts.
TELLING = collections.DEFAULTS[1]
_TABLES = table_beside(__file__)

# --- Labels --------------------------------------------------------------------------------------


def _area(item: Thing) -> float:
    left, top, right, bottom = box(item)
    return (right - left) * (bottom - top)


def _extent(worth: Callable[[Thing], float], scene: Scene) -> float:
    return sum(worth(item) * _area(item) ** 0.5 for item in scene.things)


PROPERTIES: dict[str, Callable[[Scene], float]] = {
    "filled": lambda scene: float(np.log(sum(map(_area, scene.things)))),
    "charm": partial(_extent, lambda item: _TABLES["charm"][item.kind]),
    "motion": partial(_extent, lambda item: _TABLES["vigour"][item.action]),
    "wild": lambda scene: _TABLES["wild"][scene.setting],
    "line": lambda scene: _TABLES["line"][scene.style],
    "crowd": lambda scene: len(scene.things),
    "gear": lambda scene: sum(item.kind in GROUPS["thing"] for item in scene.things),
}


@dataclass(frozen=True, eq=False)
class Scheme:
    """A set of relations and their statistics in the real set.

    properties: what in the picture goes with each, from PROPERTIES. gate: the relation that decides
    over the others, which reach their rates where the gate's value is `opens`, and have the rates
    `closed` elsewhere. phi: the labels' correlations where the gate is open, without the gate.
    worded: how often a text is worded as each relation has it, at the default of `telling`.
    how: how a text realises each relation, and which pictures make it likelier, in words.
    """

    relations: tuple[str, ...]
    properties: Sequence[str]
    rates: Sequence[float]
    gate: str
    opens: bool
    closed: Sequence[float]
    phi: Sequence[Sequence[float]]
    worded: Sequence[float]
    how: Mapping[str, str]

    @property
    def gate_column(self) -> int:
        """The column of the gate among the labels."""
        return self.relations.index(self.gate)

    @property
    def open_rates(self) -> np.ndarray:
        """Each relation's rate where the gate is open; the gate's own rate in its column."""
        of_gate = self.rates[self.gate_column]
        p = of_gate if self.opens else 1 - of_gate
        rates = (np.array(self.rates) - (1 - p) * np.array(self.closed)) / p
        rates[self.gate_column] = of_gate
        return rates

    @cached_property
    def correlations(self) -> np.ndarray:
        """The latents' correlations that give the labels' phi, or the nearest that can be.

        CITE's Q6 to Q8 all but exclude each other, which no latents do: negative eigenvalues are
        cut off, with the more weight on a relation the more evenly it splits the pairs.
        """
        at = self.gate_column
        rates = np.delete(self.open_rates, at)
        matrix = np.eye(len(rates))
        for i, j in zip(*np.triu_indices(len(rates), 1), strict=True):
            matrix[i, j] = matrix[j, i] = _of_latents(rates[i], rates[j], np.array(self.phi)[i, j])
        weight = np.outer(rates * (1 - rates), rates * (1 - rates))
        values, vectors = np.linalg.eigh(matrix * weight)
        matrix = (vectors * np.maximum(values, 1e-3)) @ vectors.T / weight
        matrix /= np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
        return np.insert(np.insert(matrix, at, 0, 0), at, np.eye(len(rates) + 1)[at], 1)

    def _measure(self, scenes: Sequence[Scene]) -> np.ndarray:
        chosen = [PROPERTIES[name] for name in self.properties]
        return np.array([[measure(scene) for measure in chosen] for scene in scenes], dtype=float)

    @cached_property
    def reference(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(properties' means, matrix from properties to scores, scores) of the reference scenes."""
        values = self._measure(_reference_scenes())
        uncorrelate = np.linalg.inv(_root(np.corrcoef(values.T)))
        mix = uncorrelate @ _root(self.correlations) / values.std(0)[:, None]
        return values.mean(0), mix, (values - values.mean(0)) @ mix

    def scores(self, scenes: Sequence[Scene]) -> np.ndarray:
        """(scenes, relations): what each picture says for each relation, of mean 0 and variance 1.

        Linear in the scene's properties: made uncorrelated first, then mixed, each relation from
        its own property for the most part, so that they correlate as the relations do.
        """
        mean, mix, _ = self.reference
        return (self._measure(scenes) - mean) @ mix


_RELATIONS = {"clue": collections.CLUE, "cite": collections.CITE}
SCHEMES = {name: Scheme(relations, **_TABLES[name]) for name, relations in _RELATIONS.items()}


@cache
def _reference_scenes() -> tuple[Scene, ...]:  # on which properties are standardised
    return tuple(sample_scene(seed) for seed in split_seeds("backbone", 3000, 999))


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def _of_latents(p: float, q: float, phi: float) -> float:  # of normals whose cuts correlate by phi
    joint = p * q + phi * (p * (1 - p) * q * (1 - q)) ** 0.5
    cut = [norm.ppf(p), norm.ppf(q)]

    def excess(r: float) -> float:
        return float(multivariate_normal.cdf(cut, cov=np.array([[1, r], [r, 1]]))) - joint

    return float(brentq(excess, -0.99, 0.99, xtol=1e-4))


@cache
def _thresholds(kind: Scheme, a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    _, _, scores = kind.reference  # thresholds of a s + b e: gate open, with its own, and closed

    def threshold(column: int, weights: np.ndarray, rate: float) -> float:
        def excess(t: float) -> float:
            above = norm.sf((t - a * scores[:, column]) / b)
            return float(np.average(above, weights=weights)) - rate

        return float(brentq(excess, -9, 9)) if rate > 0 else np.inf

    at, rates = kind.gate_column, kind.open_rates
    gate = threshold(at, np.ones(len(scores)), rates[at])
    above = norm.sf((gate - a * scores[:, at]) / b)
    is_open = above if kind.opens else 1 - above
    opened = [threshold(c, is_open, rate) for c, rate in enumerate(rates)]
    opened[at] = gate
    closed = [threshold(c, 1 - is_open, rate) for c, rate in enumerate(kind.closed)]
    return np.array(opened), np.array(closed)


def draw_labels(
    scenes: Sequence[Scene], scheme: str = "clue", seed: int = 0, signal: float = 1.0
) -> np.ndarray:
    """(scenes, relations) bool: which relations shall hold between each scene and its text.

    A relation holds where its latent a * s + b * e lies above a threshold, which gives the real
    rates: a = signal * STRENGTH and a^2 + b^2 = 1; s are the scene's properties, e is noise, and
    both are mixed so that they have the labels' correlations.
    """
    kind, a = SCHEMES[scheme], signal * STRENGTH
    b = (1 - a**2) ** 0.5
    noise = np.array(
        [np.random.default_rng([seed, s.seed, 7]).normal(size=len(kind.rates)) for s in scenes]
    )
    latents = a * kind.scores(scenes) + b * noise @ _root(kind.correlations)
    opened, closed = _thresholds(kind, a, b)
    gate = latents[:, kind.gate_column] > opened[kind.gate_column]
    labels = latents > np.where((gate == kind.opens)[:, None], opened, closed)
    labels[:, kind.gate_column] = gate
    return labels


def draw_wordings(
    scenes: Sequence[Scene], labels: np.ndarray, scheme: str, seed: int, telling: float
) -> np.ndarray:
    """(scenes, relations) bool: the relations that each text is worded for.

    A relation is worded as it is labelled with a probability (0 and 1 at the ends of the dial,
    `Scheme.worded` at its default), and else as in labels drawn without looking at the pair. Where
    the gate is closed, its own probability decides on the whole text.
    """
    kind = SCHEMES[scheme]
    probability = np.array(kind.worded) ** ((1 - telling) / telling if telling else np.inf)
    drawn = [np.random.default_rng([seed, s.seed, 9]).random(len(kind.rates)) for s in scenes]
    as_labelled = np.array(drawn) < probability
    at = kind.gate_column
    closed = labels[:, at] != kind.opens
    as_labelled[closed] = as_labelled[closed][:, [at]]
    return np.where(as_labelled, labels, draw_labels(scenes, scheme, seed + 1000, 0.0))


# --- Pairs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WorldPairs(RelatedPairs):
    """RelatedPairs of the world: of each image its scene, and the one that its text is about."""

    scenes: tuple[Scene, ...] = ()
    about: tuple[Scene, ...] = ()


def related_pairs(
    split: str, n: int, scheme: str = "clue", seed: int = 0, signal: float = 1.0,
    telling: float = TELLING,
) -> WorldPairs:  # fmt: skip
    """n pairs of a split ("train", "val", "test", "backbone"), each with a picture of its own.

    scheme: whose relations, "clue" or "cite". seed: which list of the split's scenes, 0 to 999.
    Splits share no scene; a larger n begins with the smaller one's pairs. Scenes do not depend on
    the dials or the scheme, labels not on `telling`. Raises ValueError for an unknown split.
    """
    seeds = np.reshape(split_seeds(split, n * _SEEDS, seed), (n, _SEEDS)).tolist()
    scenes = tuple(sample_scene(first) for first, *_ in seeds)
    labels = draw_labels(scenes, scheme, seed, signal)
    wordings = draw_wordings(scenes, labels, scheme, seed, telling)
    relations, texts, subjects = SCHEMES[scheme].relations, [], []
    names = np.array(relations)
    for scene, (_, *spare), label, wording in zip(scenes, seeds, labels, wordings, strict=True):
        holds, worded = set(names[label].tolist()), frozenset(names[wording].tolist())
        rng = np.random.default_rng([seed, scene.seed, 8])
        if "Irrelevant" in worded:  # which has no words of its own
            worded = worded - {"Irrelevant"} | {"Visible"}
        about = scene
        if "Irrelevant" in holds or "Visible" in worded - holds:
            kinds, others = {item.kind for item in scene.things}, [*map(sample_scene, spare)]
            alike = [(sum(thing.kind in kinds for thing in other.things),
                      other.setting == scene.setting) for other in others]  # fmt: skip
            # A caption of the most alike is half true of this one.
            about = others[alike.index((min if "Irrelevant" in holds else max)(alike))]
        if scheme == "clue":
            texts.append(clue_text(scene, about, worded, rng))
        else:
            texts.append(cite_text(scene, worded, rng))
        subjects.append(about)
    return WorldPairs(
        f"world-{scheme}", split, tuple(texts), labels, relations, image_of=np.arange(n),
        image_ids=tuple(f"world-{split}-{scene.seed % 10**10:06d}" for scene in scenes),
        open_image=partial(picture, scenes, SIZE), scenes=scenes, about=tuple(subjects),
    )  # fmt: skip


def load(names: Sequence[str], seed: int) -> dict[str, Pairs]:
    """Collections by name. Clue-like ones share their pictures; CITE-like has its own."""
    loaded: dict[str, Pairs] = {}
    first: dict[str, Pairs] = {}  # the first collection of each scheme
    for name in names:
        scheme = "cite" if name == collections.CITE_LIKE else "clue"
        dials = collections.DIALS.get(name, collections.DEFAULTS)
        splits: list[RelatedPairs] = []
        for split in collections.SPLITS:
            pairs = related_pairs(split, COUNTS[split], scheme, seed + (scheme == "cite"), *dials)
            if scheme in first:
                splits.append(replace(pairs, features=first[scheme].split(split).features))
            else:
                cores = os.cpu_count() or 1
                features, *_ = extract_features(pairs.scenes, cores, f"world {split}")
                splits.append(pooled(replace(pairs, features=features)))
        train, val, test = splits
        loaded[name] = Pairs(train, val, test)
        first.setdefault(scheme, loaded[name])
    return loaded
