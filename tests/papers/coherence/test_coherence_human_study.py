"""The human study's statistics: Table 6, agreement, and the paper's own numbers."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from mmlib.papers.coherence import human_study as study

RELATIONS = [("Visible",), ("Visible", "Meta"), ("Story",), ()]  # that hold of each question


def table_of(answers):
    """question -> outcomes of its raters, as a table of votes."""
    rows = [(q, f"r{i}", one) for q, some in answers.items() for i, one in enumerate(some)]
    return pd.DataFrame(rows, columns=["question", "rater", "outcome"])


def test_table_6_has_a_row_a_relation_and_counts_majorities():
    found = table_of({0: ["Better", "Better", "Worse"], 1: ["Worse"] * 3, 2: ["Better", "Worse"],
                      3: ["BothBad"]})  # fmt: skip
    assert study.majority(found).to_dict() == {0: "Better", 1: "Worse", 2: "NoMajority",
                                               3: "BothBad"}  # fmt: skip
    table = study.table6(found, RELATIONS)
    assert list(table.index) == ["all", "Visible", "Meta", "Story"]
    assert table.loc["all", ["Better", "Worse", "BothBad", "NoMajority"]].tolist() == [25.0] * 4
    assert table.loc["Visible", "n"] == 2
    assert table.loc["Story", "NoMajority"] == 100
    test = ttest_1samp([1, -1, 0, 0], 0.0)
    assert table.loc["all", ["t", "p"]].tolist() == pytest.approx([test.statistic, test.pvalue])
    assert np.isnan(table.loc["Meta", "t"])


def test_agreement_is_full_by_chance_or_untold():
    assert study.agreement(table_of({0: ["Better"] * 3, 1: ["Worse"] * 2})) == 1
    assert np.isnan(study.agreement(table_of({0: ["Better"], 1: ["Worse"]})))
    assert np.isnan(study.agreement(table_of({0: ["Better"] * 3})))
    rng = np.random.default_rng(0)
    some = {i: list(rng.choice(["Better", "Worse", "BothBad"], 3)) for i in range(600)}
    assert study.agreement(table_of(some)) == pytest.approx(0, abs=0.04)


def test_agreement_is_the_loop_over_pairs_of_votes():
    some = {0: ["a", "a", "b"], 1: ["b", "b"], 2: ["a", "c", "c", "c"], 3: ["a"]}
    paired = [own for own in some.values() if len(own) > 1]
    every = [one for own in paired for one in own]
    n = len(every)
    observed = sum(
        (x != y) / (len(own) - 1) for own in paired for i, x in enumerate(own)
        for j, y in enumerate(own) if i != j
    ) / n  # fmt: skip
    expected = sum(x != y for i, x in enumerate(every) for j, y in enumerate(every) if i != j)
    wanted = 1 - observed / (expected / (n * (n - 1)))
    assert study.agreement(table_of(some)) == pytest.approx(wanted)


def test_the_papers_numbers():
    table = study.paper_check()
    wanted = {"Visible": 1.1, "Subjective": 6.4, "Story": 4.7, "Meta": 7.1, "Q7": 3.55}
    for name, t in wanted.items():
        assert table.loc[f"CMCM_{name}", "t"] == pytest.approx(t, abs=0.06)
    assert table.loc["all pooled", "t"] == pytest.approx(10.0, abs=0.1)
    assert table.loc["CMCM_Visible", "needed"] == pytest.approx(16_600, rel=0.02)
    assert study.detectable_effect(450) == pytest.approx(0.17, abs=0.001)


def test_the_authors_selection_takes_only_what_the_aware_system_won():
    aware, agnostic = np.array([3, 1, 5, 2, 2]), np.array([9, 1, 6, 1, 4])
    assert study.selected(aware, agnostic).tolist() == [4, 0, 2]
    assert study.selected(aware, agnostic, 1).tolist() == [4]
