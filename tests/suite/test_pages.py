"""Pages from evidence, and that a check sees what is another.

What the pages say is held by `ci/generated.py check`, on the recorded evidence.
"""

import re

import made_up_evidence
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from PIL import Image
from scripts import ROOT, load

from mmlib.core.claims import Claim, assess
from mmlib.core.effects import Effect
from mmlib.core.errors import DataError
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS, experiment

generated = load("ci/generated.py")
ledger, studies, pages = generated.ledger, generated.studies, generated.ledger.pages

# --- The table of claims and its picture ----------------------------------------------------------


def judged(name, effects, why="", paper_effect=None, seeds=6):
    """The record of a claim on parts of these (effect, standard error), with d = 1."""
    parts = {
        part: Effect(*of, 10.0, 5 * of[1] ** 2 * (seeds > 1), seeds) for part, of in effects.items()
    }
    claim = Claim(name, f"{name} helps", "", "", "points", 1.0, "", paper_effect=paper_effect,
                  effects=lambda *_: parts or why)  # fmt: skip
    return assess(claim, None).record()


RECORDS = {
    "world": [
        judged("A", {"": (3.0, 0.1)}, paper_effect=2.5),
        judged("B", {}, "nobody was asked"),
        judged("C", {"a": (12.0, 0.1), "b": (-0.05, 0.1), "c": (-4.0, 0.1), "d": (0.0, 2.0)}),
        judged("D", {"": (1.3, 0.8)}),
    ],
    "flickr8k": [
        judged("A", {"": (0.9, 0.35)}, paper_effect=2.5),
        judged("B", {}, "nobody was asked"),
        judged("D", {"": (0.5, 0.05)}, seeds=1),
    ],
    "controlled": [judged("K", {"a": (3.0, 0.1), "b": (2.0, 0.1)})],
}


def test_the_ledger_has_a_row_a_tested_claim(tmp_path):
    (tmp_path / "notebooks").mkdir()
    nb = new_notebook(cells=[new_markdown_cell("# 01 · A paper")])
    nbformat.write(nb, tmp_path / "notebooks" / "01_a.ipynb")
    text = ledger.page({"01_a": RECORDS}, tmp_path)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[2:5] == ["|world|1|1|1|1|2|–|", "|photos|1|–|1|1|–|1|", "|controlled|1|–|–|–|1|–|"]
    assert rows[5:] == [
        "|claim|world, points [95 %]|photos, points [95 %]|paper|",
        "|---|---|---|---|",
        "|A A helps|supported: 3 [2.8, 3.2]|supported, small, *fragile*: .9 [.12, 1.7]|2.5|",
        "|C C helps|fails 1 + 1 ≈ 1 − 1 ?: −4 [−4.2, −3.8]|||",
        "|D D helps|undecided: 1.3 [−.48, 3.1]|undecided: .5 [.39, .61]||",
        "|*In controlled worlds:*||||",
        "|K K helps|holds 2 +: 2 [1.8, 2.2]|||",
    ]
    assert "[Notebook](../notebooks/01_a.ipynb), also why nothing tests B\n" in text


# --- Written and checked --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small repository with two notebooks, whose pages are written; of 02 nothing is recorded."""
    root = tmp_path_factory.mktemp("repository")
    (root / "notebooks").mkdir()
    for name, words in (("02_revision", "02 · Revision"), ("04_links", "04 · Links")):
        nb = new_notebook(cells=[new_markdown_cell(f"# {words}\n\nText.")])
        nbformat.write(nb, root / "notebooks" / f"{name}.ipynb")
    made_up_evidence.write(root / "evidence")
    with pytest.MonkeyPatch.context() as patch:
        for script in (ledger, studies):
            patch.setattr(script, "ROOT", root)
        assert generated.main(["check"]) == 1
        assert generated.main(["write"]) == 0
        yield root


@pytest.fixture
def docs(made):
    """Its pages and pictures; what a test does to them is undone afterwards."""
    before = {path: path.read_bytes() for path in (made / "docs").rglob("*.*")}
    yield made / "docs"
    for path in (made / "docs").rglob("*.*"):
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


def test_what_is_not_recorded_is_said(docs):
    text = (docs / "ledger.md").read_text(encoding="utf-8")
    assert "Of 02 nothing is recorded yet" in text
    assert "Of 04 nothing is recorded" not in text
    assert "[Study page](studies/04_links.md)" in text


def test_check_is_red_where_a_page_or_a_picture_is_another(docs, capsys):
    pictures = docs / "studies" / "pictures"
    page, ledger_page = docs / "studies" / "04_links.md", docs / "ledger.md"
    text = page.read_text(encoding="utf-8")
    number = text[: text.index("\n| AP ")].count("\n") + 2
    page.write_text(text.replace("\n| AP ", "\n| AP² ", 1), encoding="utf-8")
    content = ledger_page.read_bytes()
    ledger_page.write_bytes(content.replace(b"|holds", b"|fails", 1))
    assert generated.main(["check"]) == 1
    assert "docs/ledger.md says something else" in capsys.readouterr().err
    ledger_page.write_bytes(content)
    (pictures / "04-world-overview.png").unlink()
    for name in ("objectives", "old"):
        Image.new("RGB", (4, 4)).save(pictures / f"04-world-{name}.png")
    assert generated.main(["check", "04"]) == 1
    assert capsys.readouterr().err.replace(": python ci/studies.py write", "").splitlines() == [
        f"docs/studies/04_links.md, line {number}, says something else",
        "docs/studies/pictures/04-world-overview.png shows something else, or is not there",
        "docs/studies/pictures/04-world-objectives.png shows something else, or is not there",
        "docs/studies/pictures/04-world-old.png is of no figure",
    ]


def test_evidence_that_cannot_be_judged_is_named(tmp_path, monkeypatch, made):
    monkeypatch.setattr(studies, "ROOT", tmp_path)
    (tmp_path / "notebooks").symlink_to(made / "notebooks")
    made_up_evidence.write(tmp_path / "evidence", method_version=0)
    with pytest.raises(SystemExit, match="differs in the version of the method"):
        generated.main(["check"])


def test_parts_that_people_write_must_all_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "PACKAGE", tmp_path)
    (tmp_path / "papers" / "x").mkdir(parents=True)
    (tmp_path / "papers" / "x" / "study.md").write_text("## Limits\n\ntext\n")
    with pytest.raises(DataError, match="its sections are not What was studied, The paper"):
        studies.written_parts("x")


@pytest.mark.parametrize("number", [n for n in PAPERS if studies.has_study(PAPERS[n])])
def test_words_are_of_claims_and_tiers_that_exist(number):
    ids = {claim.id for claim in experiment(number).claims}
    for note in studies.words_of(PAPERS[number]).notes:
        assert set(note["claims"]) <= ids
        assert set(note["tiers"]) <= set(TIERS)


@pytest.mark.parametrize("number", [n for n in PAPERS if studies.has_study(PAPERS[n])])
def test_every_table_and_figure_of_a_paper_has_a_row_that_leads_somewhere(number):
    paper, words = PAPERS[number], studies.words_of(PAPERS[number])
    written, (path,) = studies.written_parts(paper), ROOT.glob(f"docs/studies/{number}_*.md")
    (notebook,), page = ROOT.glob(f"notebooks/{number}_*.ipynb"), path.read_text(encoding="utf-8")
    section = studies.of_paper_section(paper, written[studies.OF_PAPER], words)
    assert section in page
    for name, kind, where, why in pages.written_rows(section):
        assert kind in ("shown", "on other data", "not made", "not possible"), name
        assert (where, why) != ("–", "–"), name
        for title, target in re.findall(r"\[(.+?)\]\((.+?)\)", where):
            of = notebook.read_text(encoding="utf-8") if "ipynb" in target else page
            assert re.search(rf"# {title.removeprefix('notebook, ')}|\n\*{title}\.", of), title
        less = written[studies.OF_PAPER].replace(f"| {name} |", "| Table 0 |")
        with pytest.raises(DataError, match=f"tables and figures: no row for {name}"):
            studies.of_paper_section(paper, less, words)


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
