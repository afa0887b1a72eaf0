"""Statistics of a study in which people compare the pictures that two systems found: Table 6.

Outcomes are a table of votes with the columns question (its number), rater and outcome (of
`OUTCOMES`), which is what the vote says of the coherence-aware system.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.power import TTestPower

from mmlib.core.tables import paper_values

OUTCOMES = ("Better", "Worse", "BothGood", "BothBad")


def majority(table: pd.DataFrame) -> pd.Series:
    """Question -> what more than half of its raters said, else "NoMajority"."""
    counts = pd.crosstab(table.question, table.outcome)
    clear = 2 * counts.max(axis=1) > counts.sum(axis=1)
    return counts.idxmax(axis=1).where(clear, "NoMajority")


def table6(table: pd.DataFrame, relations: Sequence[Sequence[str]]) -> pd.DataFrame:
    """Percent of questions by majority, a row a relation that holds of the text, and "all".

    relations: of each question, by its number, those that hold of its text. A column NoMajority,
    which the paper leaves out, and n; t and p of a one-sample t-test of +1 (Better), −1 (Worse), 0:
    NaN where all say the same or there are fewer than two.
    """
    outcomes, rows = majority(table), {}
    names = dict.fromkeys(c for i in outcomes.index for c in relations[i])
    for name in ("all", *names):
        chosen = outcomes[[name == "all" or name in relations[i] for i in outcomes.index]]
        scores = (chosen == "Better").astype(float) - (chosen == "Worse").astype(float)
        with np.errstate(all="ignore"):
            varies = len(chosen) > 1 and scores.std() > 0
            test = stats.ttest_1samp(scores, 0.0) if varies else (np.nan, np.nan)
        shares = {o: 100 * (chosen == o).mean() for o in (*OUTCOMES, "NoMajority")}
        rows[name] = {**shares, "n": len(chosen), "t": test[0], "p": test[1]}
    return pd.DataFrame.from_dict(rows, orient="index")


def agreement(table: pd.DataFrame) -> float:
    """Krippendorff's α of nominal outcomes: 1 is full agreement, 0 that of chance.

    NaN where no question has several raters, or all outcomes are the same.
    """
    counts = pd.crosstab(table.question, table.outcome).to_numpy(float)
    counts = counts[counts.sum(axis=1) > 1]  # questions with several raters
    n, raters = counts.sum(), counts.sum(axis=1, keepdims=True)
    if not n or np.count_nonzero(counts.sum(axis=0)) < 2:
        return float("nan")
    observed = (counts * (raters - counts) / (raters - 1)).sum() / n
    totals = counts.sum(axis=0)
    return float(1 - observed / ((totals * (n - totals)).sum() / (n * (n - 1))))


# --- The paper's own numbers ---------------------------------------------------------------------


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
