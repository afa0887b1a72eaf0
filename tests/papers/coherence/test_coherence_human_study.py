"""The human study: questions, raters' files, Table 6, agreement, and the paper's own numbers."""

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.stats import ttest_1samp

from mmlib.core.errors import DataError
from mmlib.papers.coherence import human_study as study
from mmlib.papers.coherence.human_study import COLUMNS, Question

QUESTIONS = [
    Question("a dog", "p1", "p2", ("Visible",)), Question("a cat", "p3", "p1", ("Visible", "Meta")),
    Question("the tale", "p2", "p4", ("Story",)), Question("a <b> & c", "p4", "p5", ()),
]  # fmt: skip


def write(path: Path, rows, header=True):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS] * header + list(rows))
    return path


def vote(question, rater, better):
    """A row of a file: the rater prefers the aware picture (1), the other (-1) or none (0)."""
    text, a, b = question.key
    letter = "A" if (a == question.aware) == (better > 0) else "B"
    return (text, a, b, rater, f"prefer {letter}" if better else "neither fits")


def test_sides_are_a_toss_that_does_not_know_the_systems():
    swapped = [Question(q.text, q.agnostic, q.aware) for q in QUESTIONS]
    assert [q.key for q in swapped] == [q.key for q in QUESTIONS]
    first = [Question(f"text {i}", "x", "y").key[1] for i in range(400)]
    assert 0.4 < np.mean([name == "x" for name in first]) < 0.6


def test_the_page_and_the_list_name_no_system_and_no_relation(tmp_path):
    page = study.export(QUESTIONS, lambda name: Image.new("RGB", (9, 9)), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.count("<section") == 4
    assert "a &lt;b&gt; &amp; c" in text
    assert all(f'"{answer}"' in text for answer in study.ANSWERS)
    for word in ("CMCM", "CMCA", "aware", "Visible", "Story"):
        assert word not in text.replace("coherence-aware", "")
    names = {path.stem for path in (tmp_path / "pictures").iterdir()}
    assert names == {"p1", "p2", "p3", "p4", "p5"}
    with (tmp_path / "questions.csv").open(newline="", encoding="utf-8") as file:
        assert [tuple(row) for row in csv.reader(file)] == [
            COLUMNS[:3],
            *(q.key for q in QUESTIONS),
        ]
    own = Question("the ANSWERS in ROWS", "p1", "p2")
    page = study.export([own], lambda name: Image.new("RGB", (9, 9)), tmp_path / "of our words")
    assert 'data-t="the ANSWERS in ROWS"' in page.read_text(encoding="utf-8")
    address = Question("a", "https://x.org/a/1.jpg?b", "p1")
    page = study.export([address], lambda name: Image.new("RGB", (9, 9)), tmp_path / "of addresses")
    files = re.findall(r'src="(pictures/[^"]+)"', page.read_text(encoding="utf-8"))
    assert len(files) == 2
    assert all((page.parent / file).is_file() for file in files)
    with pytest.raises(ValueError, match="no question"):
        study.export([], lambda name: Image.new("RGB", (9, 9)), tmp_path)


def test_files_of_raters_are_joined_and_repeated_rows_count_once(tmp_path):
    rows = [vote(q, "ann", 1) for q in QUESTIONS]
    one = write(tmp_path / "ann.csv", rows)
    two = write(tmp_path / "bob.csv", [vote(QUESTIONS[0], "bob", -1), rows[0]], header=False)
    table = study.read_votes([one, two])
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == 5
    assert study.read_votes([two, one, one]).sort_values(list(COLUMNS)).to_numpy().tolist() == (
        table.sort_values(list(COLUMNS)).to_numpy().tolist()
    )
    assert study.read_votes([]).empty


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (("a", "x", "y", "ann"), "4 cells instead of 5"),
        (("a", "x", "y", "ann", "A"), "'A' is no answer"),
        (("a", "x", "", "ann", "prefer A"), "picture B is empty"),
        ((*vote(QUESTIONS[0], "ann", 1)[:4], "neither fits"), "another answer"),
    ],
)
def test_a_damaged_row_is_named_with_file_row_and_mend(tmp_path, row, what):
    path = write(tmp_path / "votes.csv", [vote(QUESTIONS[0], "ann", 1), row])
    with pytest.raises(DataError, match=f"votes.csv, line 3: .*{what}.*mend or delete"):
        study.read_votes([path])


def test_votes_outlive_the_systems_and_never_attach_to_other_pictures(tmp_path):
    path = write(tmp_path / "v.csv", [vote(q, "ann", 1) for q in QUESTIONS])
    votes = study.read_votes([path])
    # After a training the aware system finds what the other one had found, and a new picture.
    after = [Question("a dog", "p2", "p1"), Question("a cat", "p9", "p1"), QUESTIONS[2]]
    found = study.outcomes(votes, after)
    assert found.to_numpy().tolist() == [[0, "ann", "Worse"], [2, "ann", "Better"]]


def test_outcomes_by_hand():
    said = {"both good": "BothGood", "exactly the same": "BothGood", "neither fits": "BothBad"}
    for answer, outcome in said.items():
        votes = pd.DataFrame([(*QUESTIONS[0].key, "ann", answer)], columns=list(COLUMNS))
        assert study.outcomes(votes, QUESTIONS).outcome.tolist() == [outcome]


def table_of(answers):
    """question -> answers of its raters, as `outcomes` gives them."""
    rows = [(q, f"r{i}", one) for q, some in answers.items() for i, one in enumerate(some)]
    return pd.DataFrame(rows, columns=["question", "rater", "outcome"])


def test_table_6_has_a_row_a_relation_and_counts_majorities():
    found = table_of({0: ["Better", "Better", "Worse"], 1: ["Worse"] * 3, 2: ["Better", "Worse"],
                      3: ["BothBad"]})  # fmt: skip
    assert study.majority(found).to_dict() == {0: "Better", 1: "Worse", 2: "NoMajority",
                                               3: "BothBad"}  # fmt: skip
    table = study.table6(found, QUESTIONS)
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
