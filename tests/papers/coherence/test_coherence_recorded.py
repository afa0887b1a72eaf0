"""Recorded figures of Clue and CITE are marked as such, and are what counting gives."""

import numpy as np
import pytest
import scripts

from mmlib.core.tables import paper_tables, paper_values

counting = scripts.load("ci/count_clue_and_cite.py")


def test_recorded_tables_are_marked_and_no_printed_one_is():
    for name, table in paper_tables("coherence").items():
        marked = table["source"].startswith("recorded")
        assert marked == name.startswith("recorded_"), name


def test_the_rates_are_those_that_the_paper_prints_for_train():
    rates = paper_values("coherence", "recorded_clue_rates")
    printed = {row["name"]: row["values"]["percent_positive"]
               for row in paper_tables("coherence")["table2"]["rows"]}  # fmt: skip
    assert all(rates.loc[c, "train"] == pytest.approx(v, abs=0.06) for c, v in printed.items())


@pytest.mark.real
@pytest.mark.slow
def test_counting_again_gives_what_is_recorded(real_data):
    for name in ("clue", "cite"):
        if not (real_data / name).is_dir():
            pytest.skip(f"no real data: MMLIB_DATA={real_data} has no folder {name}")
    for name, table in counting.count(real_data / "clue", real_data / "cite").items():
        kept = paper_values("coherence", name)
        assert list(kept.index) == list(map(str, table.index))
        np.testing.assert_allclose(kept.to_numpy(float), table.to_numpy(float), atol=0.011)
