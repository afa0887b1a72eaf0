"""Which relations hold between the world's pictures and their texts, at the real sets' statistics.

A scheme is a set of relations, Clue's or CITE's, with their rates and correlations. Which of them
hold is drawn from what the picture shows and from chance. Labels are those of readers, who see more
in a pair than its words, and do not always agree with them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm

from mmlib.core.paths import table_beside
from mmlib.papers.coherence.data.pairs import CITE, CLUE
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import GROUPS, Scene, Thing, box

STRENGTH = 0.9  # correlation of a relation's latent with the picture's properties at signal 1
TELLING = 0.5  # where a bag of words reads relations off texts as well as off the real sets' texts
_TABLES = table_beside(__file__)


def _area(item: Thing) -> float:
    left, top, right, bottom = box(item)
    return (right - left) * (bottom - top)


def _weighted(of: Callable[[Thing], float], scene: Scene) -> float:
    """The sum over things of what each is worth, times its extent."""
    return sum(of(item) * _area(item) ** 0.5 for item in scene.things)


PROPERTIES: dict[str, Callable[[Scene], float]] = {
    "filled": lambda scene: float(np.log(sum(map(_area, scene.things)))),
    "charm": partial(_weighted, lambda item: _TABLES["charm"][item.kind]),
    "motion": partial(_weighted, lambda item: _TABLES["vigour"][item.action]),
    "wild": lambda scene: _TABLES["wild"][scene.setting],
    "line": lambda scene: _TABLES["line"][scene.style],
    "crowd": lambda scene: len(scene.things),
    "gear": lambda scene: sum(item.kind in GROUPS["thing"] for item in scene.things),
}


@dataclass(frozen=True, eq=False)
class Scheme:
    """A set of relations and their statistics.

    relations: their names. properties: what in the picture goes with each, from PROPERTIES.
    rates: of the real set. gate: the relation that decides over the others, which reach their
    rates where the gate's value is `opens`, and have the rates `closed` elsewhere.
    phi: the labels' correlations where the gate is open, without the gate.
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

        Latents are normal; cut at the relations' rates, two of them correlate by phi.

        Not every phi has such latents (CITE's Q6 to Q8 all but exclude each other): negative
        eigenvalues are cut off, with the more weight on a relation the more evenly it splits the
        pairs.
        """
        at = self.gate_column
        rates = np.delete(self.open_rates, at)
        matrix = np.eye(len(rates))
        for i, j in zip(*np.triu_indices(len(rates), 1), strict=True):
            p, q, phi = rates[i], rates[j], np.array(self.phi)[i, j]
            joint = p * q + phi * (p * (1 - p) * q * (1 - q)) ** 0.5
            cut = [norm.ppf(p), norm.ppf(q)]

            def excess(r: float, cut: list[float] = cut, joint: float = joint) -> float:
                return float(multivariate_normal.cdf(cut, cov=np.array([[1, r], [r, 1]]))) - joint

            matrix[i, j] = matrix[j, i] = float(brentq(excess, -0.99, 0.99, xtol=1e-4))
        weight = np.outer(rates * (1 - rates), rates * (1 - rates))
        values, vectors = np.linalg.eigh(matrix * weight)
        matrix = (vectors * np.maximum(values, 1e-3)) @ vectors.T / weight
        matrix /= np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
        return np.insert(np.insert(matrix, at, 0, 0), at, np.eye(len(rates) + 1)[at], 1)

    def measure(self, scenes: Sequence[Scene]) -> np.ndarray:
        """The scenes' properties (scenes, relations), the one that goes with each relation."""
        chosen = [PROPERTIES[name] for name in self.properties]
        return np.array([[measure(scene) for measure in chosen] for scene in scenes], dtype=float)

    @cached_property
    def reference(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(properties' means, matrix from properties to scores, scores) of the reference scenes."""
        values = self.measure(_reference_scenes())
        uncorrelate = np.linalg.inv(_root(np.corrcoef(values.T)))
        mix = uncorrelate @ _root(self.correlations) / values.std(0)[:, None]
        return values.mean(0), mix, (values - values.mean(0)) @ mix

    def scores(self, scenes: Sequence[Scene]) -> np.ndarray:
        """(scenes, relations): what each picture says for each relation, of mean 0 and variance 1.

        Linear in the scene's properties: made uncorrelated first, then mixed, each relation from
        its own property for the most part, so that they correlate as the relations do.
        """
        mean, mix, _ = self.reference
        return (self.measure(scenes) - mean) @ mix


@cache
def _reference_scenes() -> tuple[Scene, ...]:
    # Properties are standardised on them.
    return tuple(sample_scene(seed) for seed in split_seeds("backbone", 3000, 999))


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


SCHEMES = {"clue": Scheme(CLUE, **_TABLES["clue"]), "cite": Scheme(CITE, **_TABLES["cite"])}


@cache
def _thresholds(kind: Scheme, a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    """The latents' thresholds where the gate is open (with the gate's own) and where closed.

    a, b: the weights of scores and noise in a latent.
    """
    _, _, scores = kind.reference

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

    A relation holds where its latent lies above a threshold. The latents are a * s + b * e with
    a = signal * STRENGTH and a^2 + b^2 = 1: s are the scene's properties, e is noise, and both are
    mixed so that they have the labels' correlations. Thresholds give the real rates at any signal.
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

    A relation is worded as it is labelled with a probability that `telling` sets, and else as it is
    in labels drawn at the same rates without looking at the pair. That probability is 0 and 1 at
    the ends of the dial, and `Scheme.worded` at its default. Where the gate is closed, its own
    probability decides on the whole text.
    """
    kind = SCHEMES[scheme]
    probability = np.array(kind.worded) ** ((1 - telling) / telling if telling else np.inf)
    drawn = [np.random.default_rng([seed, s.seed, 9]).random(len(kind.rates)) for s in scenes]
    as_labelled = np.array(drawn) < probability
    at = kind.gate_column
    closed = labels[:, at] != kind.opens
    as_labelled[closed] = as_labelled[closed][:, [at]]
    return np.where(as_labelled, labels, draw_labels(scenes, scheme, seed + 1000, 0.0))
