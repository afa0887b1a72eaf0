"""The paper's own numbers of its human study, and what its code exports for raters."""

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from mmlib.papers.coherence import method, tables


def test_the_papers_numbers():
    table = tables.human_study()
    wanted = {"Visible": 1.1, "Subjective": 6.4, "Story": 4.7, "Meta": 7.1, "Q7": 3.55}
    for name, t in wanted.items():
        assert table.loc[f"CMCM_{name}", "t"] == pytest.approx(t, abs=0.06)
    assert table.loc["all pooled", "t"] == pytest.approx(10.0, abs=0.1)
    assert table.loc["CMCM_Visible", "needed"] == pytest.approx(16_600, rel=0.02)
    least = TTestPower().solve_power(nobs=450, alpha=0.05, power=0.95)  # the paper's analysis
    assert least == pytest.approx(0.17, abs=0.001)


def test_the_authors_selection_takes_only_what_the_aware_system_won():
    aware, agnostic = np.array([3, 1, 5, 2, 2]), np.array([9, 1, 6, 1, 4])
    assert method.selected(aware, agnostic).tolist() == [4, 0, 2]
    assert method.selected(aware, agnostic, 1).tolist() == [4]
