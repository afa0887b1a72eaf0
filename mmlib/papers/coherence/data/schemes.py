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

from mmlib.papers.coherence.systems import CITE, CLUE
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import GROUPS, Scene, Thing, box

STRENGTH = 0.9  # correlation of a relation's latent with the picture's properties at signal 1
TELLING = 0.5  # where a bag of words reads relations off texts as well as off the real sets' texts

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


def _area(item: Thing) -> float:
    left, top, right, bottom = box(item)
    return (right - left) * (bottom - top)


def _weighted(of: Callable[[Thing], float], scene: Scene) -> float:
    """The sum over things of what each is worth, times its extent."""
    return sum(of(item) * _area(item) ** 0.5 for item in scene.things)


PROPERTIES: dict[str, Callable[[Scene], float]] = {
    "filled": lambda scene: float(np.log(sum(map(_area, scene.things)))),
    "charm": partial(_weighted, lambda item: _CHARM[item.kind]),
    "motion": partial(_weighted, lambda item: _VIGOUR[item.action]),
    "wild": lambda scene: _WILD[scene.setting],
    "line": lambda scene: _LINE[scene.style],
    "crowd": lambda scene: len(scene.things),
    "gear": lambda scene: sum(item.kind in GROUPS["thing"] for item in scene.things),
}


# --- The schemes ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scheme:
    """A set of relations and their statistics.

    relations: their names. properties: what in the picture goes with each, from PROPERTIES.
    rates: of the real set. gate: the relation that decides over the others, which reach their
    rates where the gate's value is `opens`, and have the rates `closed` elsewhere.
    phi: the labels' correlations where the gate is open, without the gate.
    worded: how often a text is worded as each relation has it, at the default of `telling`.
    """

    relations: tuple[str, ...]
    properties: tuple[str, ...]
    rates: tuple[float, ...]
    gate: str
    opens: bool
    closed: Mapping[str, float]
    phi: tuple[tuple[float, ...], ...]
    worded: tuple[float, ...]

    @property
    def gate_column(self) -> int:
        """The column of the gate among the labels."""
        return self.relations.index(self.gate)

    @property
    def closed_rates(self) -> np.ndarray:
        """Each relation's rate where the gate is closed."""
        return np.array([self.closed.get(name, 0.0) for name in self.relations])

    @property
    def open_rates(self) -> np.ndarray:
        """Each relation's rate where the gate is open; the gate's own rate in its column."""
        of_gate = self.rates[self.gate_column]
        p = of_gate if self.opens else 1 - of_gate
        rates = (np.array(self.rates) - (1 - p) * self.closed_rates) / p
        rates[self.gate_column] = of_gate
        return rates

    @cached_property
    def correlations(self) -> np.ndarray:
        """The latents' correlations that give the labels' phi, or the nearest that can be.

        Not every phi has such latents (CITE's Q6 to Q8 all but exclude each other): negative
        eigenvalues are cut off, with the more weight on a relation the more evenly it splits the
        pairs.
        """
        at = self.gate_column
        rates = np.delete(self.open_rates, at)
        matrix = np.eye(len(rates))
        for i, j in zip(*np.triu_indices(len(rates), 1), strict=True):
            matrix[i, j] = matrix[j, i] = _latent_correlation(rates[i], rates[j], self.phi[i][j])
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
    """The scenes of the split "backbone" that properties are standardised on."""
    return tuple(sample_scene(seed) for seed in split_seeds("backbone", 3000, 999))


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def _latent_correlation(p: float, q: float, phi: float) -> float:
    """The correlation of two normal variables that, cut at rates p and q, correlate by phi."""
    joint = p * q + phi * (p * (1 - p) * q * (1 - q)) ** 0.5
    cut = [norm.ppf(p), norm.ppf(q)]

    def excess(r: float) -> float:
        return float(multivariate_normal.cdf(cut, cov=np.array([[1, r], [r, 1]]))) - joint

    return float(brentq(excess, -0.99, 0.99, xtol=1e-4))


SCHEMES = {
    # Clue, the 3534 captions by people among its authors' training rows
    # (conceptual_train_dis.csv). Of the 102 Irrelevant ones 10 have another relation; here none
    # has. phi: the 3432 others.
    "clue": Scheme(
        relations=CLUE,
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
        worded=(0.50, 0.36, 0.49, 0.46, 0.37, 0.50),
    ),
    # CITE, 2047 rows of data.csv. Of the 348 without Q2 all but 27 have no other relation than
    # Q4; here all. phi: the 1699 with Q2.
    "cite": Scheme(
        relations=CITE,
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
        worded=(0.0, 0.36, 0.67, 0.12, 0.05, 0.22, 0.06),
    ),
}


# --- Drawing labels -------------------------------------------------------------------------------


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
    closed = [threshold(c, 1 - is_open, rate) for c, rate in enumerate(kind.closed_rates)]
    return np.array(opened), np.array(closed)


def draw_labels(
    scenes: Sequence[Scene], scheme: str = "clue", seed: int = 0, signal: float = 1.0
) -> np.ndarray:
    """(scenes, relations) bool: which relations shall hold between each scene and its text.

    A relation holds where its latent lies above a threshold. The latents are a * s + b * e with
    a = signal * STRENGTH and a^2 + b^2 = 1: s are the scene's properties, e is noise, and both are
    mixed so that they have the labels' correlations. Thresholds give the real rates at any signal.
    Raises ValueError for a signal outside 0 to 1.
    """
    if not 0 <= signal <= 1:
        raise ValueError(f"signal {signal} is not between 0 and 1")
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
    probability decides on the whole text. Raises ValueError for a `telling` outside 0 to 1.
    """
    if not 0 <= telling <= 1:
        raise ValueError(f"telling {telling} is not between 0 and 1")
    kind = SCHEMES[scheme]
    probability = np.array(kind.worded) ** ((1 - telling) / telling if telling else np.inf)
    drawn = [np.random.default_rng([seed, s.seed, 9]).random(len(kind.rates)) for s in scenes]
    as_labelled = np.array(drawn) < probability
    at = kind.gate_column
    closed = labels[:, at] != kind.opens
    as_labelled[closed] = as_labelled[closed][:, [at]]
    return np.where(as_labelled, labels, draw_labels(scenes, scheme, seed + 1000, 0.0))


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
