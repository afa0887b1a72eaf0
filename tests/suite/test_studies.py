"""The study pages: what is recorded stands on them, and lint sees where it does not."""

from types import SimpleNamespace

import made_up_evidence
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from PIL import Image
from scripts import load

from mmlib.core.claims import assess
from mmlib.core.errors import DataError
from mmlib.papers.links.claims import CLAIMS
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS
from mmlib.suite.papers import experiment as experiment_of

studies = load("ci/studies.py")
pages, provenance = studies.pages, studies.provenance


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small repository whose study of paper 04 is written, and its evidence."""
    root = tmp_path_factory.mktemp("repository")
    (root / "notebooks").mkdir()
    nb = new_notebook(cells=[new_markdown_cell("# 04 · Links\n\nText.")])
    nbformat.write(nb, root / "notebooks" / "04_links.ipynb")
    found = made_up_evidence.write(root / "evidence", seeds=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "ROOT", root)
        assert studies.main(["write"]) == 0
    return root, found


@pytest.fixture
def repository(made, monkeypatch):
    """Its folder, with what a test does to its page and pictures undone afterwards."""
    root, _ = made
    monkeypatch.setattr(studies, "ROOT", root)
    folder = root / "docs" / "studies"
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    yield root
    for path in folder.rglob("*.*"):
        if path not in before:
            path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


def text_of(root):
    return (root / "docs" / "studies" / "04_links.md").read_text(encoding="utf-8")


def section(text, heading):
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def row(text, start):
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_page_has_all_its_sections_in_order(repository):
    text = text_of(repository)
    assert text.startswith("# 04 · Links: the study\n")
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == list(studies.SECTIONS)
    assert "[the notebook](../../notebooks/04_links.ipynb)" in text
    assert "Jack Hessel" in section(text, studies.STUDIED)
    assert "favours DC" in section(text, studies.PROTOCOL)


def test_every_claim_has_its_verdict_parts_and_reason(made, repository):
    verdicts = section(text_of(repository), studies.VERDICTS)
    assert [f"| **{claim.id}**" in verdicts for claim in CLAIMS] == [True] * len(CLAIMS)
    (claim,) = (claim for claim in CLAIMS if claim.id == "C2")
    one = assess(claim, made[1], made[1].seeds)
    cells = row(verdicts, "**C2**")
    shown = one.record()
    assert cells[1] == claim.contrast
    assert cells[2].startswith(claim.paper)
    assert f"{shown['effect']:+.3g} [{shown['low']:+.3g}, " in cells[3]
    assert cells[4] == f"{claim.smallest:g} {claim.unit}"
    assert cells[5].startswith(f"**{one.verdict}**")
    assert "this tier has no stress documents" in row(verdicts, "**C3**")[5]
    part = one.parts["coco"]
    assert row(verdicts, "C2 | coco")[2].startswith(f"{part.effect:+.3g} [{part.low:+.3g}, ")
    reasons = [line for line in verdicts.splitlines() if line.startswith(f"- {cells[4]}: ")]
    (reason,) = (line for line in reasons if "C2" in line.rsplit("(", 1)[1])
    assert reason.startswith(f"- {cells[4]}: {claim.why} (")
    assert "![Picture world: Every claim with its parts](pictures/04-world-claims.png)" in verdicts


def test_a_cell_is_what_the_evidence_holds(made, repository):
    means = made[1].means("coco", "AP", "AUC")
    tables = section(text_of(repository), studies.TABLES).split("#### Links found: coco")[1]
    cells = row(tables.split("####")[0], "AP ")
    assert cells[2] == f"{means.mean():.1f} ± {means.std(ddof=1):.1f}"
    assert cells[1] == "98.7"  # as printed


def test_notes_stand_at_the_claims_that_they_are_about(repository):
    verdicts = section(text_of(repository), studies.VERDICTS)
    assert "\n¹ The budget was searched mostly with DC" in verdicts
    assert "**C1**¹\u2009² matching" in verdicts
    assert "**C12** AP is often faster" in verdicts


def test_the_record_is_named_with_its_settings_and_seeds(repository):
    text = text_of(repository)
    sources = section(text, studies.SOURCES)
    assert "`mmlib record 04 --tier world --seeds 4`; 1.5 CPU hours. Missing: " in sources
    assert "0–3" in sources
    protocol = section(text, studies.PROTOCOL)
    assert row(protocol, "steps") == ["steps", "120", "80", "0"]  # 0: all of the data
    assert row(protocol, "coco; story")[1] == "4"


def test_check_is_red_where_a_number_is_another(repository, capsys):
    assert studies.main(["check"]) == 0
    path = repository / "docs" / "studies" / "04_links.md"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if line.startswith("| AP ") and "98.7" in line)
    lines[number] = lines[number].replace("98.7", "98.8")
    path.write_text("".join(lines), encoding="utf-8")
    assert studies.main(["check", "04"]) == 1
    fault = f"docs/studies/04_links.md, line {number + 1}, says something else"
    assert fault in capsys.readouterr().err


def test_check_is_red_where_a_picture_is_missing_another_or_too_many(repository, capsys):
    folder = repository / "docs" / "studies" / "pictures"
    (folder / "04-world-overview.png").unlink()
    Image.new("RGB", (4, 4)).save(folder / "04-world-objectives.png")
    Image.new("RGB", (4, 4)).save(folder / "04-world-old.png")
    assert studies.main(["check"]) == 1
    faults = capsys.readouterr().err
    assert "04-world-overview.png shows something else, or is not there" in faults
    assert "04-world-objectives.png shows something else" in faults
    assert "04-world-old.png is of no figure" in faults
    assert "04-world-difficulty.png" not in faults


def standing(**changed):
    record = {
        "id": "X", "claim": "a", "paper": "b", "contrast": "c", "unit": "points", "smallest": 1.0,
        "smallest_why": "d", "verdict": "supported", "size": "", "fragile": False, "why": "",
        "intervals": 1, "holding_paper": None, "paper_effect": None, "deciding": "", "effect": 3.0,
        "low": 2.0, "high": 4.0, "parts": {"p": {}},
    }  # fmt: skip
    own = {"seeds": 5, "halves": None, "others": (), "tier": "world"}
    own |= {key: changed.pop(key) for key in list(changed) if key in own}
    return SimpleNamespace(record=record | changed, **own)


def test_verdicts_say_what_they_would_not_survive():
    plain = studies.verdict_cell(standing(others=("supported", "supported")))
    assert plain == "**supported**"
    shaky = standing(verdict="unheard of", size="direction only", fragile=True, why="so it is",
                     others=("unheard of", "negligible"))  # fmt: skip
    assert studies.verdict_cell(shaky) == (
        "**unheard of**, direction only; so it is; negligible with twice d; another verdict with a "
        "wider interval"
    )
    halves = SimpleNamespace(another=0.25, contrary=0.041)
    assert studies.halves_cell(standing(halves=halves)) == "25 %, contrary 4 %"


@pytest.mark.parametrize(
    ("effect", "holding", "intervals", "words"),
    [
        (3.5, 1, 1, "+3.5 points, inside our interval"),
        (9.0, 0, 1, "+9 points, outside our interval"),
        (9.0, 2, 3, "+9 points, inside 2 of 3 of our intervals"),
    ],
)
def test_the_papers_effect_is_held_against_ours(effect, holding, intervals, words):
    one = standing(paper_effect=effect, holding_paper=holding, intervals=intervals)
    assert studies.paper_cell(one) == f"b; as we measure it {words}"
    assert studies.paper_cell(standing()) == "b"


def test_parts_that_people_write_must_all_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "PACKAGE", tmp_path)
    (tmp_path / "papers" / "x").mkdir(parents=True)
    path = tmp_path / "papers" / "x" / "study.md"
    path.write_text("".join(f"## {name}\n\ntext\n\n### Deeper\n\n" for name in studies.WRITTEN))
    assert studies.written_parts("x")[studies.LIMITS] == "text\n\n### Deeper"
    path.write_text("## Limits\n\ntext\n")
    with pytest.raises(DataError, match="its sections are not What was studied, Protocol"):
        studies.written_parts("x")


@pytest.mark.parametrize("number", [n for n in PAPERS if studies.has_study(PAPERS[n])])
def test_words_are_of_claims_tiers_and_printed_tables_that_exist(number):
    words = studies.words_of(PAPERS[number])
    ids = {claim.id for claim in experiment_of(number).claims}
    for note in words.notes:
        assert set(note["claims"]) <= ids
        assert set(note["tiers"]) <= set(TIERS)
    printed = studies.printed_section(PAPERS[number], words)
    assert printed.count("#### ") == len(words.printed)
    assert set(studies.written_parts(PAPERS[number])) == set(studies.WRITTEN)


def test_names_of_tables_become_titles():
    words = {"table1": "Table 1\nAs printed.", "table1_long": "Table 1, long\nLonger."}
    labels = {"a_b": "collection A"}
    assert studies.described(words, "table1_a_b", labels) == "Table 1: collection A\nAs printed."
    assert studies.described(words, "table1_long_c", labels) == "Table 1, long: c\nLonger."
    assert studies.described(words, "table1_world", labels, "world") == "Table 1\nAs printed."
    assert studies.described(words, "new_table", labels) == "New table"


# --- Tables and pictures --------------------------------------------------------------------------


def test_a_table_in_markdown():
    frame = pd.DataFrame(
        {"r": [1.5, 20.0], "low": [0.25, 18.0], "high": [3.0, np.nan], "n": [1624.0, 3.0],
         "x": ["a|b", None], "long": [1 / 3, 2.0]},
        index=pd.MultiIndex.from_tuples([("d", "s"), ("d", "t")], names=["set", None]),
    )  # fmt: skip
    assert pages.frame_table(frame, {"d": "data", "n": "pairs"}).splitlines() == [
        "| set |  | r, 95 % interval | pairs | x | long |",
        "|---|---|---|---|---|---|",
        r"| data | s | 1.5 [0.25, 3] | 1,624 | a\|b | 0.333 |",
        "| data | t | 20.0 [18.00, –] | 3 | – | 2 |",
    ]


def test_columns_of_two_levels_have_both_in_words():
    frame = pd.DataFrame(
        [["9", "8"]], columns=pd.MultiIndex.from_product([["r1"], ["paper", "ours"]])
    )
    table = pages.frame_table(frame, {"r1": "R@1", "paper": "the paper"})
    assert table.splitlines()[0] == "|  | R@1: the paper | R@1: ours |"


def drawn(height=2.0, title="a", label="x", bar=1.0, heat=0.5):
    figure, axes = plt.subplots(1, 3)
    axes[0].plot([0, 1], [1, height])
    axes[0].set(title=title)
    axes[1].barh([label], [bar])
    axes[2].imshow([[heat, 1.0]])
    axes[2].scatter([0], [heat])
    plt.close(figure)
    return figure


@pytest.mark.parametrize(
    "changed", [{"height": 2.01}, {"title": "b"}, {"label": "y"}, {"bar": 1.01}, {"heat": 0.51}]
)
def test_a_digest_is_of_what_a_figure_shows(changed):
    assert pages.digest_of(drawn()) == pages.digest_of(drawn(height=2.0 + 1e-9))
    assert pages.digest_of(drawn(**changed)) != pages.digest_of(drawn())


def test_a_picture_has_its_digest_and_no_more_than_256_colours(tmp_path):
    path = tmp_path / "a.png"
    assert pages.shown_in(path) == ""
    pages.write_picture(drawn(), path, "abc")
    assert pages.shown_in(path) == "abc"
    first = path.read_bytes()
    pages.write_picture(drawn(), path, "abc")
    assert path.read_bytes() == first
    with Image.open(path) as image:
        assert image.mode == "P"
