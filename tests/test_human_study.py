"""The human study: votes that last, the page, Table 6, its statistics, and what selection does."""

import base64
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats

from mmlib import human_study
from mmlib.core.errors import DataError
from mmlib.core.tables import paper_values
from mmlib.human_study import ANSWERS, Question, Study

SYSTEMS = ("CMCM_Story", "CMCA")
COLOURS = [(200, 0, 0), (0, 0, 200)]  # of the aware system's pictures and of the other's


def open_image(row: int) -> Image.Image:
    """Picture `row`: even rows are the aware system's, of unequal shapes."""
    picture = Image.new("RGB", (30 + 10 * (row % 2), 30), COLOURS[row % 2])
    picture.info["comment"] = b"found by CMCM_Story"
    return picture


def make_study(path, count=3, seed=0, systems=SYSTEMS):
    questions = [
        Question(f"q{i}", f"text <{i}>, with a comma", (2 * i, 2 * i + 1), "Story" if i else "Meta")
        for i in range(count)
    ]
    return Study(questions, open_image, systems, path, seed)


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path / "new folder" / "votes.csv")


@pytest.fixture(autouse=True)
def _no_haste(monkeypatch):
    monkeypatch.setattr(human_study, "HASTE", 0.0)


# --- Votes ------------------------------------------------------------------------------------


def test_votes_are_kept_with_sides_and_time(study):
    study.vote("Anna", "q0", "prefer A")
    study.vote("bob", "q1", "both good")
    table = human_study.votes(study.path)
    assert list(table.columns) == ["question", "rater", "answer", "left", "right", "time"]
    assert list(table.question) == ["q0", "q1"]
    assert list(table.rater) == ["anna", "bob"]
    assert list(table.answer) == ["prefer A", "both good"]
    left, right = study.sides("anna", "q0")
    assert (table.left[0], table.right[0]) == (SYSTEMS[left], SYSTEMS[right])
    assert abs(pd.Timestamp.now("UTC") - table.time[1]) < pd.Timedelta("1min")


def test_no_file_is_no_vote_and_none_is_made_before_the_first(study):
    assert study.votes().empty
    assert study.withdraw("anna") is None
    assert not study.path.exists()
    assert study.votes().time.dtype == human_study.votes(study.path).time.dtype


def test_votes_survive_a_process_that_dies(tmp_path):
    path = tmp_path / "votes.csv"
    script = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_human_study import make_study
study = make_study(Path(sys.argv[1]))
study.vote("anna", "q0", "prefer B")
study.vote("anna", "q1", "neither fits")
os._exit(9)
"""
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", script, str(path), here], timeout=120)
    assert done.returncode == 9
    again = make_study(path)
    assert list(again.votes().answer) == ["prefer B", "neither fits"]
    assert [q.key for q in again.open_questions("anna")] == ["q2"]


def test_each_rater_goes_on_at_the_own_first_open_question(study):
    for key in ("q0", "q1"):
        study.vote("anna", key, "prefer A")
    study.vote("bob", "q0", "prefer B")
    again = make_study(study.path, seed=5)
    assert [q.key for q in again.open_questions(" ANNA ")] == ["q2"]
    assert [q.key for q in again.open_questions("bob")] == ["q1", "q2"]
    assert [q.key for q in again.open_questions("cem")] == ["q0", "q1", "q2"]


def test_two_kernels_share_a_file_without_losing_a_vote(study):
    other = make_study(study.path)
    study.vote("anna", "q0", "prefer A")
    other.vote("bob", "q0", "prefer A")
    study.vote("anna", "q1", "prefer A")
    assert len(study.votes()) == len(other.votes()) == 3
    with pytest.raises(ValueError, match="not open"):
        other.vote("anna", "q1", "prefer B")


def test_withdrawing_takes_back_only_the_raters_last_vote(study):
    study.vote("anna", "q0", "prefer A")
    study.vote("anna", "q1", "prefer A")
    study.vote("bob", "q0", "prefer B")
    before = study.path.read_bytes()
    assert study.withdraw("anna") == "q1"
    assert study.path.read_bytes().startswith(before)
    assert [q.key for q in study.open_questions("anna")] == ["q1", "q2"]
    study.vote("anna", "q1", "neither fits")
    assert set(zip(study.votes().rater, study.votes().question, strict=True)) == {
        ("anna", "q0"),
        ("anna", "q1"),
        ("bob", "q0"),
    }
    assert [study.withdraw("anna") for _ in range(3)] == ["q1", "q0", None]


def test_false_votes_are_refused(study):
    for rater, key, answer, said in [
        ("anna", "q9", "prefer A", "not open"),
        ("anna", "q0", "withdrawn", "no answer"),
        ("  ", "q0", "prefer A", "needs a name"),
        ("a\x00b", "q0", "prefer A", "printable"),
    ]:
        with pytest.raises(ValueError, match=said):
            study.vote(rater, key, answer)
    assert not study.path.exists()


def test_studies_without_sense_are_refused(tmp_path):
    path = tmp_path / "votes.csv"
    one = Question("q", "text", (0, 1))
    for questions, systems in [
        ([], SYSTEMS),
        ([one, one], SYSTEMS),
        ([Question("q\n", "text", (0, 1))], SYSTEMS),
        ([one], ("CMCA", "CMCA")),
    ]:
        with pytest.raises(ValueError, match=r"question|two systems"):
            Study(questions, open_image, systems, path)


@settings(deadline=None)  # it writes files
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_any_name_and_key_comes_back_from_the_file(tmp_path_factory, rater, key):
    path = tmp_path_factory.mktemp("study") / "votes.csv"
    try:
        clean = human_study.rater_name(rater)
        study = Study([Question(key, "text", (0, 1))], open_image, SYSTEMS, path)
    except ValueError:
        return
    study.vote(rater, key, "prefer A")
    table = study.votes()
    assert (table.rater[0], table.question[0]) == (clean, key)


GOOD = "q0,anna,prefer A,CMCM_Story,CMCA,2025-01-02T03:04:05+00:00"
DAMAGED = [
    ("q0,anna,prefer A,CMCM_Story,CMCA", "5 cells"),
    (GOOD + ",more", "7 cells"),
    (GOOD.replace("prefer A", "prefer C"), "'prefer C' is no answer"),
    (GOOD.replace("CMCM_Story", "CMCA"), "same system on both sides"),
    (GOOD.replace("CMCM_Story", "Base"), "not the systems of this study"),
    (GOOD.replace("q0", "q7"), "no question 'q7'"),
    (GOOD.replace("anna", ""), "rater is empty"),
    (GOOD.replace("anna", " "), "rater's name"),
    (GOOD.replace("anna", "Anna"), "rater's name"),
    (GOOD.removesuffix("0"), "time"),
    (GOOD.removesuffix("+00:00"), "time"),
    (GOOD.replace("2025", "25"), "time"),
    (GOOD.replace("anna", '"anna'), "not a row"),
    (GOOD.replace("prefer A", "withdrawn"), "withdraws no vote"),
    ("", "0 cells"),
]


@pytest.mark.parametrize(("row", "said"), DAMAGED)
def test_a_damaged_row_is_named_with_file_and_mend(study, row, said):
    study.vote("bob", "q1", "prefer A")
    with study.path.open("a") as file:
        file.write(row + "\n")
    for act in (study.votes, lambda: make_study(study.path), lambda: study.withdraw("bob")):
        with pytest.raises(DataError, match=said) as caught:
            act()
        assert f"{study.path}, line 3" in str(caught.value)
        assert "mend or delete this line" in str(caught.value)
        assert not any(system in str(caught.value).split(": ", 1)[1] for system in SYSTEMS)


def test_a_second_vote_and_other_bytes_and_headers_are_named(study):
    study.path.parent.mkdir()
    header = ",".join(human_study.COLUMNS)
    study.path.write_text(f"{header}\n{GOOD}\n{GOOD}\n")
    with pytest.raises(DataError, match="line 3: a second vote"):
        study.votes()
    study.path.write_bytes(f"{header}\n".encode() + b"q0,\xff\n")
    with pytest.raises(DataError, match="line 2: not a row of a CSV file in UTF-8"):
        study.votes()
    study.path.write_text(f"{GOOD}\n")
    with pytest.raises(DataError, match="line 1: the header is not"):
        study.votes()


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_line_cut_off_by_a_crash_is_found(study, cut):
    study.vote("anna", "q0", "prefer A")
    study.path.write_bytes(study.path.read_bytes()[: -1 - cut])
    with pytest.raises(DataError, match="line 2"):
        study.vote("anna", "q1", "prefer A")


def test_files_that_a_spreadsheet_saved_are_read_and_continued(study):
    header = ",".join(human_study.COLUMNS)
    study.path.parent.mkdir()
    study.path.write_bytes(b"\xef\xbb\xbf" + f"{header}\r\n{GOOD}".encode())
    assert list(study.votes().rater) == ["anna"]
    study.vote("anna", "q1", "prefer A")
    assert list(study.votes().question) == ["q0", "q1"]


# --- Sides ------------------------------------------------------------------------------------


def test_sides_are_balanced_reproducible_and_independent(tmp_path):
    study = make_study(tmp_path / "votes.csv", 100)

    def left(seed):
        one = make_study(study.path, 100, seed)
        return np.array([[one.sides(f"r{r}", f"q{q}")[0] for q in range(100)] for r in range(20)])

    first, second = left(0), left(1)
    assert (first == left(0)).all()
    # Four standard deviations of fair coins: 2,000 in all, 100 a rater, 20 a question.
    assert abs(first.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)
    assert abs(first.mean(1) - 0.5).max() < 4 * 0.5 / np.sqrt(100)
    assert abs(first.mean(0) - 0.5).max() < 4.5 * 0.5 / np.sqrt(20)
    for other in (second, np.roll(first, 1, 0), np.roll(first, 1, 1)):
        assert abs((first == other).mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)


# --- The page ---------------------------------------------------------------------------------


def parts(box):
    """Every widget of a page."""
    yield box
    for child in getattr(box, "children", ()):
        yield from parts(child)


def page_text(box) -> str:
    """All that reaches the browser, pictures decoded."""
    state = " ".join(str(part.get_state()) for part in parts(box))
    pictures = [base64.b64decode(data) for data in re.findall(r"base64,([\w+/=]+)", state)]
    return state + " ".join(picture.decode("latin-1") for picture in pictures)


def press(box, words):
    (button,) = [p for p in parts(box) if words in getattr(p, "description", "")]
    assert not button.disabled
    button.click()


def shown_colours(box):
    """Which system's picture stands left and right, told by its colour; and the pictures."""
    pictures = [
        Image.open(io.BytesIO(base64.b64decode(data)))
        for data in re.findall(r"base64,([\w+/=]+)", str(box.children[3].value))
    ]
    return [int(np.argmax(np.asarray(p).mean((0, 1))) == 2) for p in pictures], pictures


def test_page_shows_text_pictures_and_progress(study):
    box = human_study.widget(study, "anna")
    text = page_text(box)
    assert "text &lt;0&gt;, with a comma" in text
    assert "1 of 3, rater anna" in text
    assert re.findall(r'alt="([^"]+)"', text) == [
        "Picture A, on the left",
        "Picture B, on the right",
    ]
    assert [p.description for p in parts(box) if p.__class__.__name__ == "Button"] == [
        *ANSWERS,
        "undo my last vote",
    ]


def test_page_shows_each_picture_on_its_recorded_side(tmp_path):
    study = make_study(tmp_path / "votes.csv", 12)
    box = human_study.widget(study, "anna")
    seen = []
    for _ in study.questions:
        sides, pictures = shown_colours(box)
        assert [max(picture.size) for picture in pictures] == [human_study.PIXELS] * 2
        seen.append(sides)
        press(box, "prefer A")
    recorded = study.votes()
    assert [[SYSTEMS[s] for s in sides] for sides in seen] == recorded[
        ["left", "right"]
    ].to_numpy().tolist()
    assert len({tuple(sides) for sides in seen}) == 2


def test_page_never_names_a_system_or_group(study):
    box = human_study.widget(study, "anna")
    texts = [page_text(box)]
    for answer in ("prefer A", "prefer B", "both good"):
        press(box, answer)
        texts.append(page_text(box))
    study.path.write_text(study.path.read_text() + GOOD.replace("CMCM_Story", "Base") + "\n")
    press(box, "undo")
    texts.append(page_text(box))
    assert "line 5" in texts[-1]
    for text in texts:
        assert not re.search(r"CMC|Base\b|Story|Meta", text)


def test_page_votes_undoes_and_closes(study):
    box = human_study.widget(study, "anna")
    press(box, "neither fits")
    assert "2 of 3" in page_text(box)
    press(box, "undo")
    assert "1 of 3" in page_text(box)
    for answer in ("both good", "exactly the same", "prefer B"):
        press(box, answer)
    assert list(study.votes().answer) == ["both good", "exactly the same", "prefer B"]
    assert "Thank you, anna: all 3 questions are answered." in page_text(box)
    assert box.children[4].layout.display == "none"
    press(box, "undo")
    assert "3 of 3" in page_text(box)
    assert box.children[4].layout.display == ""


def test_page_goes_on_after_a_restart_and_with_another_rater(study):
    press(human_study.widget(study, "anna"), "prefer A")
    box = human_study.widget(make_study(study.path))
    assert "type your name" in page_text(box)
    assert box.children[4].layout.display == "none"
    box.children[1].value = "Anna "
    assert "2 of 3, rater anna" in page_text(box)
    box.children[1].value = "<b>bob"
    assert "1 of 3, rater &lt;b&gt;bob" in page_text(box)
    press(box, "prefer B")
    assert list(study.votes().rater) == ["anna", "<b>bob"]


def test_page_goes_on_where_another_page_was_ahead(study):
    first, second = (human_study.widget(study, "anna") for _ in range(2))
    press(first, "prefer A")
    press(second, "prefer B")  # meant for a question that is answered already
    assert list(study.votes().answer) == ["prefer A"]
    assert "2 of 3" in page_text(second)


def test_a_double_click_is_one_vote(study, monkeypatch):
    monkeypatch.setattr(human_study, "HASTE", 60.0)
    box = human_study.widget(study, "anna")
    press(box, "prefer A")
    assert study.votes().empty
    monkeypatch.setattr(human_study, "HASTE", 0.0)
    press(box, "prefer A")
    assert len(study.votes()) == 1


def test_page_tells_what_hinders_it(study):
    box = human_study.widget(study, "anna")
    study.path.parent.mkdir()
    study.path.write_text("spoilt\n")
    press(box, "prefer A")
    assert "line 1: the header is not" in page_text(box)
    assert study.path.read_text() == "spoilt\n"


# --- Majorities and Table 6 -------------------------------------------------------------------


def vote_table(*rows):
    """Votes from (question, answer, left) triples, a new rater each."""
    return pd.DataFrame(
        [
            {
                "question": question,
                "rater": f"r{i}",
                "answer": answer,
                "left": SYSTEMS[left],
                "right": SYSTEMS[1 - left],
            }
            for i, (question, answer, left) in enumerate(rows)
        ]
    )


BY_HAND = vote_table(
    *[("won", "prefer A", 0), ("won", "prefer B", 1), ("won", "prefer A", 1)],
    *[("lost", "prefer A", 1), ("lost", "prefer B", 0), ("lost", "both good", 0)],
    *[("good", "both good", 0), ("good", "both good", 1), ("good", "prefer A", 1)],
    *[("bad", "neither fits", 0), ("bad", "neither fits", 1), ("bad", "neither fits", 0)],
    *[("same", "exactly the same", 0), ("same", "exactly the same", 1), ("same", "both good", 0)],
    *[("split", "prefer A", 0), ("split", "prefer B", 0), ("split", "both good", 0)],
    *[("even", "prefer A", 0), ("even", "prefer A", 1)],
)


def test_majority_by_hand():
    table = human_study.majority(BY_HAND, SYSTEMS)
    assert table.outcome.to_dict() == {
        "won": "better",
        "lost": "worse",
        "good": "both good",
        "bad": "both bad",
        "same": "same",
        "split": "no majority",
        "even": "no majority",
    }
    assert table.agree.tolist() == [2, 2, 2, 3, 2, 1, 1]
    assert table.raters.tolist() == [3] * 6 + [2]
    assert human_study.scores(table.outcome).tolist() == [1, -1, 0, 0, 0, 0, 0]


def test_majority_turns_with_the_systems_and_refuses_others():
    turned = human_study.majority(BY_HAND, SYSTEMS[::-1])
    assert turned.outcome[["won", "lost"]].tolist() == ["worse", "better"]
    with pytest.raises(ValueError, match="not all about"):
        human_study.majority(BY_HAND, ("CMCM_Story", "Base"))
    none = human_study.majority(BY_HAND[:0], SYSTEMS)
    assert none.empty


def test_table6_by_hand():
    majorities = human_study.majority(BY_HAND, SYSTEMS)
    table = human_study.table6(majorities)
    paper = paper_values("coherence", "table6")
    assert list(table.columns) == [*paper.columns, "NoMajority", "n"]
    np.testing.assert_allclose(table.loc["all"], [*(100 / 7 * np.array([1, 1, 2, 1, 2])), 7])
    bad = human_study.table6(majorities, same="BothBad").loc["all"]
    assert bad[["BothGood", "BothBad"]].tolist() == pytest.approx([100 / 7, 200 / 7])
    own = human_study.table6(majorities, same="Same").loc["all"]
    assert own[["BothGood", "BothBad", "Same"]].tolist() == pytest.approx([100 / 7] * 3)


def test_table6_has_a_row_a_group(study):
    for rater in ("anna", "bob", "cem"):
        for question in study.questions:
            aware_left = study.sides(rater, question.key)[0] == 0
            study.vote(rater, question.key, "prefer A" if aware_left else "prefer B")
    table = study.table6()
    assert table.n.to_dict() == {"Meta": 1, "Story": 2}
    assert table.Better.tolist() == [100, 100]


def test_mapping_names_every_answer():
    assert all(f'"{answer}"' in human_study.MAPPING for answer in ANSWERS)


# --- Statistics -------------------------------------------------------------------------------


def test_preference_test_by_hand():
    # Mean 1/2; each deviation is 1/2, so the variance is 4 * (1/4) / 3 = 1/3.
    test = human_study.preference_test(np.array([1, 1, 0, 0]))
    assert test.t == pytest.approx(0.5 / np.sqrt(1 / 3 / 4))
    assert test.effect == pytest.approx(0.5 / np.sqrt(1 / 3))
    assert test.p == pytest.approx(2 * stats.t.sf(test.t, 3))
    assert (test.n, test.mean) == (4, 0.5)
    assert human_study.preference_test(-np.array([1, 1, 0, 0])).t == -test.t
    assert np.isnan(human_study.preference_test(np.ones(5)).p)
    with pytest.raises(ValueError, match="two scores"):
        human_study.preference_test(np.ones(1))


@pytest.mark.parametrize(
    ("effect", "power", "n"), [(0.5, 0.95, 54), (0.2, 0.8, 199), (0.8, 0.8, 15), (0.5, 0.8, 34)]
)
def test_effects_are_those_of_the_usual_tables(effect, power, n):
    assert human_study.detectable_effect(n, power) <= effect
    assert human_study.detectable_effect(n - 1, power) > effect


def test_the_papers_sensitivity_analysis_needs_450_questions():
    assert human_study.detectable_effect(450) == pytest.approx(0.17, abs=0.0005)


@pytest.mark.parametrize(("effect", "n"), [(0.0, 12), (0.6, 12), (-0.3, 80)])
def test_power_is_the_share_of_simulated_studies_that_find_the_effect(effect, n):
    drawn = np.random.default_rng(0).normal(effect, 1, (20000, n))
    found = (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean()
    assert human_study.t_power(effect, n) == pytest.approx(found, abs=4 * 0.5 / np.sqrt(20000))


def test_power_holds_far_out():
    assert human_study.t_power(0.0, 30, 0.01) == pytest.approx(0.01)
    assert human_study.t_power(5.0, 10000) == pytest.approx(1.0)
    # With many scores the test is the normal one.
    exact = (stats.norm.ppf(0.975) + stats.norm.ppf(0.95)) / np.sqrt(100_000)
    assert human_study.detectable_effect(100_000) == pytest.approx(exact, rel=1e-4)


def test_effects_that_cannot_be_sought_are_refused():
    for call in (
        lambda: human_study.detectable_effect(50, power=0.01),
        lambda: human_study.detectable_effect(1),
        lambda: human_study.detectable_effect(50, power=1.0),
    ):
        with pytest.raises(ValueError, match=r"effect|power|two scores"):
            call()


def test_the_papers_t_values_do_not_follow_from_its_table():
    check = human_study.paper_check()
    names = [f"CMCM_{name}" for name in ("Visible", "Subjective", "Story", "Meta", "Q7")]
    assert list(check.index) == [*names, "all pooled"]
    np.testing.assert_allclose(check.t, [1.1, 6.4, 4.7, 7.1, 3.55, 10.0], atol=0.05)
    assert check.p["CMCM_Visible"] == pytest.approx(0.28, abs=0.005)
    assert check.needed["CMCM_Visible"] == pytest.approx(16_600, abs=50)
    # The same through the test itself, from scores.
    shares = paper_values("coherence", "table6")[["Better", "Worse"]].astype(int)
    all_scores = [
        np.repeat([1, -1, 0], [row.Better, row.Worse, 100 - row.Better - row.Worse])
        for row in shares.itertuples()
    ]
    tests = [human_study.preference_test(s) for s in (*all_scores, np.concatenate(all_scores))]
    np.testing.assert_allclose(check.t, [test.t for test in tests])
    np.testing.assert_allclose(check.p, [test.p for test in tests])
    assert check.n.tolist() == [test.n for test in tests]


def test_needed_grows_as_the_sheet_says():
    check = human_study.paper_check()
    again = human_study.paper_check(int(check.needed["CMCM_Visible"]))
    assert again.t["CMCM_Visible"] == pytest.approx(14.1, abs=0.1)


# --- Selection --------------------------------------------------------------------------------


def test_selected_items_by_hand():
    aware = np.array([3, 1, 5, 1, 2, 9, 1])
    agnostic = np.array([4, 1, 2, 7, 8, 9.5, 3])
    positive = np.array([1, 1, 1, 1, 1, 0, 1], bool)
    assert human_study.selected_items(aware, agnostic, positive).tolist() == [3, 6, 4, 0]
    assert human_study.selected_items(aware, agnostic, positive, most=2).tolist() == [3, 6]
    assert human_study.selected_items(aware, agnostic).tolist() == [3, 6, 4, 0, 5]
    with pytest.raises(ValueError, match="ranks count from 1"):
        human_study.selected_items(aware - 1, agnostic)
    with pytest.raises(ValueError, match="positive"):
        human_study.selected_items(aware, agnostic, positive[:3])


@pytest.fixture(scope="module")
def simulated():
    """150 studies of two systems that are equally good."""
    return pd.concat([human_study.simulate_raters(seed=s) for s in range(150)])


def test_random_items_show_two_equal_systems_equal(simulated):
    fair = simulated.loc["at random"]
    half = 4 * fair["win rate"].std() / np.sqrt(len(fair))
    assert half < 0.03
    assert abs(fair["win rate"].mean() - 0.5) < half
    assert 0 < (fair.p < 0.05).mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 / len(fair))


def test_selected_items_show_a_winner_that_is_none(simulated):
    chosen = simulated.loc["authors'"]
    assert (chosen.n == 100).all()
    assert chosen["win rate"].min() > 0.8
    assert chosen.p.max() < 0.01


def test_simulation_adds_up_and_follows_its_seed(simulated):
    total = simulated[["better", "worse", "both"]].sum(axis=1)
    assert (total == simulated.n).all()
    first = simulated.iloc[:2]
    pd.testing.assert_frame_equal(first, human_study.simulate_raters(seed=0))
    assert not first.equals(simulated.iloc[2:4])


def test_simulated_raters_without_noise_see_the_ranks():
    aware = np.array([1, 4, 1, 20, 1, 2])
    agnostic = np.array([4, 1, 1, 20, 3, 3])  # preferred: a, b, same, both bad, a, both good
    table = human_study.simulate_from_ranks(aware, agnostic, noise=0)
    fair, chosen = table.loc["at random"], table.loc["authors'"]
    assert fair[["n", "better", "worse", "both"]].tolist() == [6, 2, 1, 3]
    assert fair["win rate"] == pytest.approx(2 / 3)
    assert chosen[["n", "better", "worse", "both"]].tolist() == [3, 2, 0, 1]
    assert chosen["win rate"] == 1


def test_random_items_are_drawn_from_all_positive_ones():
    aware = np.repeat([1, 50, 1], 200)  # wins the first 200, loses the next, wins what is not asked
    agnostic = np.repeat([50, 1, 50], 200)
    positive = np.arange(600) < 400
    table = human_study.simulate_from_ranks(aware, agnostic, positive, noise=0)
    assert table.n.tolist() == [100, 100]
    assert 0.3 < table["win rate"]["at random"] < 0.7  # four standard deviations of the draw
    assert table["win rate"]["authors'"] == 1


def test_a_system_that_is_better_wins_on_random_items_too():
    rng = np.random.default_rng(0)
    aware, agnostic = 1 + rng.integers(0, 10, 300), 1 + rng.integers(0, 200, 300)
    positive = rng.random(300) < 0.5
    fair = human_study.simulate_from_ranks(aware, agnostic, positive).loc["at random"]
    assert fair["win rate"] > 0.8
    assert fair.p < 0.01
