"""The paper's study in which people compared the pictures that two systems found: Table 6."""

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.power import TTestPower

from mmlib.core.tables import paper_values


def detectable_effect(n: int, power: float = 0.95, level: float = 0.05) -> float:
    """The smallest effect (Cohen's d) that a two-sided t-test of n scores finds with this power.

    The paper's sensitivity analysis: d = 0.17 takes about 450 scores.
    """
    return float(TTestPower().solve_power(nobs=n, alpha=level, power=power))


def paper_check(n: int = 100) -> pd.DataFrame:
    """t-tests of the paper's own Table 6, if each relation had n questions; it prints no n.

    The paper states t > 14.1 everywhere. needed: how many questions with these shares that takes.
    """
    bound = paper_values("coherence", "human_evaluation_text").value["t statistic, lower bound"]
    shares = paper_values("coherence", "table6")[["Better", "Worse"]].astype(float)
    shares.loc["all pooled"] = shares.mean()
    table = shares.rename(columns=str.lower).assign(n=n)
    table.loc["all pooled", "n"] = n * (len(shares) - 1)
    mean, square = (table.better - table.worse) / 100, (table.better + table.worse) / 100
    table["t"] = mean / np.sqrt((square - mean**2) / (table.n - 1))
    table["p"] = 2 * stats.t.sf(abs(table.t), table.n - 1)
    return table.assign(needed=np.ceil(table.n * (bound / table.t) ** 2).astype(int))


def selected(aware: np.ndarray, agnostic: np.ndarray, most: int = 100) -> np.ndarray:
    """Rows that the authors' code exports for raters: where the aware system's rank of the true
    picture is strictly better than the other's, its best first. (There the relation holds, too.)
    """
    better = np.flatnonzero(aware < agnostic)
    return better[np.argsort(aware[better], kind="stable")][:most]
