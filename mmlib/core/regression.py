"""Is this run's figure the recorded one? Paired by seed: a training is held to its own record."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import stats

from mmlib.core.evidence import Evidence, machine
from mmlib.core.jobs import Data

ROUNDING = 0.25  # what other arithmetic with the same instructions may change, in the metric's unit
CONFIDENCE = 0.999


def check_paired(
    live: Mapping[tuple[str, str, int, str], float],
    evidence: Evidence,
    data: Mapping[str, Data],
) -> dict[str, Any]:
    """Hold figures (data set, system, seed, metric) -> mean over items to the recorded ones.

    Where this machine computes as the one that recorded the job did (`is_same`), a figure may
    differ by rounding. Elsewhere it may differ by the spread of its system's seeds (`spread`); of a
    single seed there is none, and nothing is compared. A figure that is no number, or was not
    recorded, is outside. Figures of other image features than the recorded ones are not compared.

    Returns what goes into checks.json.
    """
    source = {"evidence": f"{evidence.header['tier']}/{evidence.header['paper']}"}
    if why := evidence.other_features:
        return {**source, "comparable": False, "why": why, "figures": []}
    prints = {name: data[name].fingerprint for name, *_ in live if name in data}
    figures = []
    for (dataset, system, seed, metric), value in live.items():
        expected, width = float("nan"), 0.0
        means = evidence.means(dataset, system, metric)
        if seed in means.index:
            expected = float(means[seed])
            recording = evidence.recording_of(dataset, system, seed) or evidence.header
            if is_same(recording, dataset, prints.get(dataset)):
                width = ROUNDING
            elif len(means) < 2:
                why = f"one seed of {system} on record, made elsewhere: no spread to hold to"
                return {**source, "comparable": False, "why": why, "figures": []}
            else:
                width = max(ROUNDING, spread(means.to_numpy()))
        # Of what is written down, so that whoever reads it again decides the same.
        value, expected, width = (round(x, 3) for x in (value, expected, width))
        figures.append({
            "figure": f"{dataset}/{system}/{metric}, seed {seed}",
            "within": bool(abs(value - expected) <= width), "tolerance": width,
            "value": value if np.isfinite(value) else None,
            "expected": expected if np.isfinite(expected) else None,
        })  # fmt: skip
    return {**source, "comparable": True, "why": "", "figures": figures}


def spread(means: np.ndarray, confidence: float = CONFIDENCE) -> float:
    """How far two trainings of one system may lie apart, from the means of its seeds, (seeds,)."""
    return float(stats.t.ppf((1 + confidence) / 2, len(means) - 1) * means.std(ddof=1) * np.sqrt(2))


def is_same(recording: Mapping[str, Any], dataset: str, fingerprint: str | None) -> bool:
    """Whether this machine, with such data, computes as the one of a recording (its header) did."""
    current = machine()
    return (
        recording["machine"].get("gpu") is current["gpu"] is None  # either may have trained on it
        and recording["machine"].get("arithmetic") == current["arithmetic"]
        and recording.get("precision", "float32") == "float32"
        and recording["versions"]["torch"] == torch.__version__.split("+")[0]
        and torch.get_num_threads() == 1  # more of them add in another order
        and fingerprint == recording["data"].get(dataset)
    )


def print_check(check: Mapping[str, Any]) -> None:
    """One line a figure; its words, unlike the numbers, are the same from run to run."""
    if not check["comparable"]:
        print(f"not compared: {check['why']}")
    for figure in check["figures"]:
        outside = "{figure}: {value} is OUTSIDE {expected} ± {tolerance}"
        print(("{figure}: within tolerance" if figure["within"] else outside).format(**figure))
