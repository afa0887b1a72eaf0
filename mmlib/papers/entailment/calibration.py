"""From a network's log odds and INPUTS to a margin, and the baselines that have no network."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mmlib.papers.entailment.batches import Arrays, Labelled
from mmlib.papers.entailment.inputs import ALL_INPUTS, INPUTS
from mmlib.papers.entailment.metrics import best_threshold

RIDGE = 1.0  # of the logistic regression; all inputs have deviation 1


@dataclass(frozen=True)
class Calibration:
    """From what a judge's network says, and INPUTS, to a margin: 0 where a pair is just entailed.

    Fitted on calibration pairs at the prior of mining: a logistic regression on some columns of
    INPUTS and the network's log odds, then the threshold of best F0.5. A network alone (no columns)
    keeps its order.

    weights (1 + p,): intercept first; the network's comes last. limit: the threshold.
    """

    weights: np.ndarray
    columns: tuple[int, ...]
    limit: float

    @classmethod
    def fit(
        cls, pairs: Labelled, log_odds: np.ndarray | None, columns: tuple[int, ...]
    ) -> "Calibration":
        """log_odds (n,): by the network, of the calibration pairs; None for a baseline."""
        table, labels = _table(log_odds, pairs.given, columns), pairs.samples.label
        weights = np.array([0.0, 1.0])
        if table.shape[1] > 1:
            weights = logistic(table, labels, pairs.weights)
        raw = weights[0] + table @ weights[1:]
        return cls(weights, columns, best_threshold(labels, raw, pairs.weights))

    def margin(self, log_odds: np.ndarray | None, given: np.ndarray) -> np.ndarray:
        """Margins (n,) of other pairs; given (n, 9): their INPUTS, scaled."""
        raw = self.weights[0] + _table(log_odds, given, self.columns) @ self.weights[1:]
        return raw - self.limit


def _table(log_odds: np.ndarray | None, given: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    inputs = [given[:, i] for i in columns]
    return np.column_stack(inputs if log_odds is None else [*inputs, log_odds])


def logistic(inputs: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights (1 + p,), intercept first, of a logistic regression with a small ridge penalty.

    inputs (n, p); labels (n,) 0 or 1; counts (n,): how many each row stands for. scikit-learn's
    are the same to 3e-5; recorded margins were made with these.
    """
    x = np.column_stack([np.ones(len(inputs)), inputs])

    def cost(weights: np.ndarray) -> tuple[float, np.ndarray]:
        odds, slopes = x @ weights, RIDGE * np.r_[0, weights[1:]]
        value = counts @ (np.logaddexp(0, odds) - labels * odds) + slopes @ weights / 2
        return value, x.T @ (counts * (expit(odds) - labels)) + slopes

    return minimize(cost, np.zeros(x.shape[1]), jac=True, tol=1e-10).x


def rounded(margin: np.ndarray) -> np.ndarray:
    """To two digits downwards, so that no pair changes from not called to called."""
    return np.floor(100 * margin) / 100


def baseline_margin(arrays: Arrays, name: str, given: np.ndarray, seed: int = 0) -> np.ndarray:
    """Margins (n,) by a baseline, from scaled INPUTS (n, 9).

    name: "overlap" (words said + nearest caption), one of INPUTS, "random", or "regression", a
    logistic one on all of INPUTS. Raises ValueError for another one.
    """
    pairs = arrays.calibration
    if name == "regression":
        return Calibration.fit(pairs, None, ALL_INPUTS).margin(None, given)
    scores = _baseline_scores(arrays, name, pairs.given, seed + 1000)
    limit = best_threshold(pairs.samples.label, scores, pairs.weights)
    return _baseline_scores(arrays, name, given, seed) - limit


def _baseline_scores(arrays: Arrays, name: str, given: np.ndarray, seed: int) -> np.ndarray:
    raw = given * arrays.scale.deviation + arrays.scale.mean
    if name == "random":
        return np.random.default_rng([7, seed]).random(len(given))
    if name == "overlap":
        return raw[:, 0] + raw[:, 1]
    if name not in INPUTS:
        raise ValueError(f"no baseline {name!r}")
    return raw[:, INPUTS.index(name)]
