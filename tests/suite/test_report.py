"""The report of a run: its links, its ledger, its form, and what it refuses."""

import csv
import json
import re
from pathlib import Path

import bs4
import nbformat
import pytest
import report_runs as runs
import site_checks
from jinja2 import TemplateError

from mmlib.suite import report, report_html

NOTEBOOKS = sorted((runs.ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
EQUATION = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$]+?)\$", re.DOTALL)
WORDS = re.compile(r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+")  # commands, which are not shown


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A made-up run, its recorded claims, and its site."""
    folder = tmp_path_factory.mktemp("report")
    run, expected = runs.made_up_run(folder), runs.recorded(folder)
    return run, expected, report.write(run, expected=expected).parent


@pytest.fixture
def run(tmp_path):
    """A made-up run to break."""
    return runs.made_up_run(tmp_path)


def page(site: Path, name: str) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup((site / name).read_text(), "html.parser")


def words(tag: bs4.Tag) -> str:
    return " ".join(tag.get_text(" ").split())


# Form ---------------------------------------------------------------------------------------


def test_links_form_and_loads(made):
    site = made[2]
    assert site == made[0] / "report"
    assert site_checks.broken_links(site) == []
    assert site_checks.outside_loads(site) == []
    # The one command that no converter knows is shown as LaTeX, and said to be so.
    assert site_checks.form_faults(site) == [
        '01_links.html: LaTeX left over: <code class="latex">\\nosuchthing{x}</code>'
    ]


@pytest.mark.slow
def test_committed_notebooks(committed_site):
    assert len(site_checks.pages(committed_site)) == 6 + len(NOTEBOOKS)
    assert site_checks.broken_links(committed_site) == []
    assert site_checks.outside_loads(committed_site) == []
    assert site_checks.form_faults(committed_site) == []


@pytest.mark.parametrize(
    ("was", "now", "check"),
    [
        ('href="ledger.html"', 'href="ledgers.html"', "broken_links"),
        ('href="ledger.html#01_links"', 'href="ledger.html#02_links"', "broken_links"),
        ('href="ledger.html"', 'href="../../summary.json"', "broken_links"),
        ("</main>", '<img alt="a" src="https://x.org/a.png"></main>', "outside_loads"),
        ("</main>", '<img src="data:,"></main>', "form_faults"),
        ("</main>", '<img alt=" " src="data:,"></main>', "form_faults"),
        ("</main>", "<h4>Deep</h4></main>", "form_faults"),
        ("</main>", "<h1>Again</h1></main>", "form_faults"),
        ("<caption>", "<caption hidden></caption><p>", "form_faults"),
        ('<th scope="col">', "<th>", "form_faults"),
        ('lang="en"', "", "form_faults"),
        ('id="verdicts"', 'id="main"', "form_faults"),
    ],
)
def test_the_checks_find_what_they_look_for(made, tmp_path, was, now, check):
    for path in made[2].rglob("*.*"):
        target = tmp_path / path.relative_to(made[2])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    before = getattr(site_checks, check)(tmp_path)
    index = tmp_path / "index.html"
    assert was in index.read_text()
    index.write_text(index.read_text().replace(was, now, 1))
    assert len(getattr(site_checks, check)(tmp_path)) > len(before)


def test_links_between_notebooks(made):
    soup = page(made[2], "01_links.html")
    links = {words(a): a["href"] for a in soup.find(class_="notebook").find_all("a", href=True)}
    assert links["the start"] == "02_later.html#Words"
    assert links["below"] == "#2.-Tables"
    assert links["arXiv"] == "https://arxiv.org/abs/1904.07826"
    assert "the data" not in links
    assert "nobody" not in links
    assert "the data" in words(soup.main)
    assert "nobody" in words(soup.main)


def test_headings_keep_their_order_and_their_own_ids(made):
    soup = page(made[2], "01_links.html")
    assert [words(h) for h in soup.find_all("h1")] == ["01 · Links & more"]
    assert [(h.name, words(h), h["id"]) for h in soup.main.find_all(["h2", "h3"])] == [
        ("h2", "1. Too deep", "1.-Too-deep"),
        ("h2", "2. Tables", "2.-Tables"),
        ("h2", "Pictures", "Pictures"),
        ("h2", "Pictures", "Pictures-2"),
        ("h3", "Exercise 1. Read", "Exercise-1.-Read"),
    ]
    contents = soup.find("nav", attrs={"aria-label": "Contents of this page"})
    assert [words(a) for a in contents.find_all("a")] == [
        "1. Too deep", "2. Tables", "Pictures", "Pictures",
    ]  # fmt: skip


def test_nothing_active_is_left_of_outputs(made):
    soup = page(made[2], "01_links.html")
    text = soup.decode()
    for active in ("<script", "<style", "<iframe", "onclick", "style=", "cdnjs", "require"):
        assert active not in text
    main = words(soup.main)
    assert "kept" in main
    assert "a <warning>" in main  # without the terminal's colours
    assert "\x1b" not in text
    assert "0/10" not in main  # a progress bar
    assert "a widget, which needs a running notebook" in main
    assert all(words(block) for block in soup.find_all("pre"))


def test_answers_are_folded(made):
    soup = page(made[2], "01_links.html")
    folds = {words(d.summary): words(d) for d in soup.find(class_="notebook").find_all("details")}
    assert folds["Worked answer"] == "Worked answer answer_1 = 3"
    assert folds["Code of this cell"].startswith("Code of this cell course . number")
    assert folds["Answer"] == "Answer There are three ."
    right = soup.find(string=re.compile("Exercise 1: right"))
    assert not right.find_parent("details")
    assert not soup.find(string=re.compile("^answer_1$")).find_parent("details")


# Equations ----------------------------------------------------------------------------------


def test_equations_are_mathml(made):
    soup = page(made[2], "01_links.html")
    shown = soup.find(class_="notebook")
    inline, block = shown.find_all("math")[:2]
    assert inline["display"] == "inline"
    assert inline.get_text() == "k<min(n,m)"
    assert block["display"] == "block"
    assert block.find("mfrac")
    assert "DC(M)=1n" in block.get_text().replace("\u2061", "")
    assert [c.get_text() for c in shown.find_all("code", class_="latex")] == [r"\nosuchthing{x}"]


@pytest.mark.parametrize("broken", [r"x_{", r"\left( x", r"\undefined y"])
def test_equations_that_do_not_convert_stay_readable(broken):
    made = bs4.BeautifulSoup(report_html.mathml(broken), "html.parser")
    assert made.code.get_text() == broken


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_no_equation_of_a_notebook_loses_a_sign(path):
    """Every letter and digit of the LaTeX is in the MathML, in the same order but for scripts."""
    number = 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "markdown":
            continue
        soup = bs4.BeautifulSoup(report_html.markdown(cell.source), "html.parser")
        assert not soup.find("code", class_="latex"), soup.find("code", class_="latex")
        written = [a or b for a, b in EQUATION.findall(re.sub(r"`[^`]*`", "", cell.source))]
        shown = [math.get_text() for math in soup.find_all("math")]
        assert len(shown) == len(written), cell.source
        for latex, math in zip(written, shown, strict=True):
            told = sorted(re.findall(r"[A-Za-z0-9]", WORDS.sub("", latex)))
            found = sorted(re.findall(r"[A-Za-z0-9]", math))
            for sign in told:
                assert sign in found, (latex, math)
                found.remove(sign)
            number += 1
    assert number or path.name.startswith("00")


# Pictures and tables ------------------------------------------------------------------------


def test_alt_texts_say_what_stands_before(made):
    soup = page(made[2], "01_links.html")
    pictures = soup.find(class_="notebook").find_all("img")
    assert [p["alt"] for p in pictures] == [
        "coco, 1 of 2: Pictures. Here is the picture of M_ij.",
        "story, 2 of 2: Pictures. Here is the picture of M_ij.",
    ]
    for shown, colour in zip(pictures, ("red", "blue"), strict=True):
        assert (made[2] / shown["src"]).read_bytes() == runs.png(colour)
        assert (shown["width"], shown["height"]) == ("900", "300")
        assert shown.parent["href"] == shown["src"]
    absent = [words(tag) for tag in soup.find_all(class_="absent")]
    assert len(absent) == 2
    assert "https://x.org" not in soup.decode()


def test_figures_have_their_prose_or_at_least_a_name(made):
    soup = page(made[2], "figures.html")
    figures = {words(f.find("strong")): f for f in soup.find_all("figure")}
    assert list(figures) == ["graph_coco", "graph_story", "of nobody"]
    graph = figures["graph_story"]
    assert graph.img["alt"] == "Figure graph story of notebook 01, from “Pictures”"
    assert "Here is the picture of" in words(graph.figcaption)
    assert "| a |" not in words(graph.figcaption)
    assert figures["of nobody"].img["alt"] == "Figure of nobody of notebook 01"
    assert (made[2] / "figures/01_links/of nobody.png").read_bytes() == runs.png("green")


def test_saved_figures():
    source = "plots.save(f(a), here, 'one')\nsave(x, y, name=f'two_{n}')\nother(1, 2, 'three')"
    stems = [p.pattern for p in report_html.saved_figures(source)]
    assert stems == ["one", "two_.+"]
    assert report_html.saved_figures("%magic 3") == []


def test_tables_are_the_notebooks_own(made):
    soup = page(made[2], "tables.html")
    tables = soup.main.find_all("table")
    assert [words(t.caption) for t in tables] == ["coco", "2. Tables"]
    first = [[words(c) for c in row.find_all(["th", "td"])] for row in tables[0].find_all("tr")]
    assert first == [
        ["", "AUC", "p@1"],
        ["", "paper", "ours", "paper", "ours"],
        ["DC", "98.9", "66.5 ± 1.5", "93.6", "20.8 ± 5.6"],
        ["AP", "–", "61.0", "–", "18.3"],
    ]
    assert [c.get("scope") for c in tables[0].find_all("th")] == [
        *["colgroup"] * 2, *["col"] * 4, *["row"] * 2,
    ]  # fmt: skip
    assert "Ours stand beside the paper's." in words(soup.main)
    assert "failed before it showed a table" in words(soup.main)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_every_table_with_ours_beside_a_paper_is_found(path):
    found = beside = 0
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            soup = bs4.BeautifulSoup(output.get("data", {}).get("text/html", ""), "html.parser")
            for table in soup.find_all("table"):
                heads = {words(c) for c in table.select("thead th")}
                known = report_html.is_paper_table(table, cell.source)
                found += known
                beside += {"paper", "ours"} <= heads
                assert known or not {"paper", "ours"} <= heads
                assert not (known and "verdict" in heads)
    assert found >= beside
    assert found or path.name.startswith("00")


@pytest.mark.parametrize(
    ("head", "source", "known"),
    [
        ("paper", "", True),
        ("paper's ±", "", True),
        ("CMCM, paper", "", True),
        ("T 0.1 (paper)", "", False),
        ("papers read", "", False),
        ("RSUM", 'paper_values("cora", "table2")', True),
        ("RSUM", "", False),
    ],
)
def test_what_is_a_papers_table(head, source, known):
    table = f"<table><thead><tr><th></th><th>{head}</th><th>n</th></tr></thead></table>"
    assert report_html.is_paper_table(bs4.BeautifulSoup(table, "html.parser"), source) == known


def test_printed_tables_are_as_transcribed(made):
    soup = page(made[2], "papers.html")
    content = json.loads((report.PACKAGE / "papers" / "links" / "tables.json").read_text())
    for printed, table in zip(content["tables"], soup.main.find_all("table"), strict=True):
        rows = [[words(c) for c in r.find_all(["th", "td"])] for r in table.tbody.find_all("tr")]
        assert len(rows) == len(printed["rows"])
        for row, told in zip(rows, printed["rows"], strict=True):
            values = [told["values"].get(column) for column in printed["columns"]]
            shown = [told["name"], *map(report.value_text, values)]
            assert row == [" ".join(text.split()) for text in shown]


# The ledger ---------------------------------------------------------------------------------


def test_ledger_files_equal_the_notebooks(made):
    run, expected, site = made
    ledger = json.loads((site / "ledger.json").read_text())
    own = json.loads((run / "01_links/claims.json").read_text())
    assert ledger["notebooks"] == {"01_links": own, "02_later": [], "03_gone": []}
    assert own == runs.CLAIMS
    assert list(ledger["recorded"]) == ["world", "flickr8k"]
    for tier, notebooks in ledger["recorded"].items():
        record = json.loads((expected / tier / "01_claims.json").read_text())
        assert notebooks == {"01_links": record}

    with (site / "ledger.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    flat = [("run", "world", own)]
    flat += [("recorded", t, n["01_links"]["claims"]) for t, n in ledger["recorded"].items()]
    every = [(source, tier, one) for source, tier, claims in flat for one in claims]
    assert len(rows) == len(every)
    for row, (source, tier, one) in zip(rows, every, strict=True):
        assert (row["source"], row["tier"], row["notebook"]) == (source, tier, "01_links")
        assert json.loads(row["parts"]) == one["parts"]
        for key in ("effect", "low", "high", "margin"):
            assert (float(row[key]) if row[key] else None) == one[key]
        for key in ("id", "claim", "paper", "comparison", "verdict", "unit", "weakest", "why"):
            assert row[key] == one[key]


def test_ledger_page_shows_every_claim_of_every_tier(made):
    soup = page(made[2], "ledger.html")
    (table,) = soup.find_all("table")
    assert [words(h) for h in table.select("thead th")] == [
        "id", "claim", "this run, world", "recorded, world", "recorded, flickr8k",
    ]  # fmt: skip
    rows = {words(r.th): [words(c) for c in r.find_all("td")] for r in table.tbody.find_all("tr")}
    assert list(rows) == ["C1", "C2", "C3", "C4", "C9"]
    said, own, world, flickr8k = rows["C1"]
    assert "C1: A > B & \"C\", 'D'" in said
    assert own.startswith("supported +2.00 [+0.50, +3.50] AUC 2 parts")
    assert "<story>: +4.00 [+3.50, +4.50] AUC, supported" in own
    assert world.startswith("not supported +0.50 [-1.00, +2.00] AUC")
    assert world.endswith("another verdict than in this run")
    assert flickr8k == "opposite -3.50 [-5.00, -2.00] AUC"
    assert rows["C2"][1] == rows["C2"][2] == "not supported +0.12 [-1.38, +1.62] AUC"
    assert rows["C4"][1:] == ["not tested – this run has nothing to compare", "–", "–"]
    assert rows["C9"][1:] == ["–", "supported +9.00 [+7.50, +10.50] AUC", "–"]
    assert "seeds [0, 1, 2]" in words(soup.main)
    assert "failed , so this run has no verdict" in words(soup.main)


def test_overview_counts(made):
    soup = page(made[2], "index.html")
    assert [words(li) for li in soup.select(".counts li")] == [
        "1 supported", "1 not supported", "1 opposite", "1 not tested",
    ]  # fmt: skip
    assert "1 of 2 figures lie within" in words(soup.main)
    rows = [[words(c) for c in r.find_all(["th", "td"])] for r in soup.select("main tbody tr")]
    assert rows[0] == [
        "01 Links & more", "done", "3:07", "1", "1", "1", "1", "1 of 2", "claims tables figures",
    ]  # fmt: skip
    assert rows[1][:3] == ["02 Later", "failed", "3:07"]
    assert rows[2][:2] == ["03 Gone", "failed"]
    assert "This run is not complete" in words(soup.main)
    assert (made[2] / "data/01_links/results.csv").read_text() == "system,value\nAP,93.0\n"


def test_about_tells_parameters_environment_and_citation(made):
    text = words(page(made[2], "about.html").main)
    for told in (
        "seeds 5",
        "seeds of the results [0, 4]",
        "device auto",
        "python 3.11.7",
        "start time 2026-11-21T02:42:55",
    ):
        assert told in text
    assert "/x" not in text  # a path of the machine that ran it
    for name in ("torch", "platform", "commit"):
        assert f"{name} {report.environment()[name]}" in text
    cited = report.citation()
    assert cited["title"] in text
    for one in cited["references"]:
        assert f"{report.authors_text(one['authors'])}: {one['title']}" in text
    assert (made[2] / "CITATION.cff").read_text() == cited["text"]


def test_authors():
    people = [{"given-names": "Ada", "family-names": "Byron"}, {"name": "The others"}, "Bo"]
    assert report.authors_text(people) == "Ada Byron, The others and Bo"
    assert report.authors_text(people[:1]) == "Ada Byron"


# Runs that failed, runs that are broken -----------------------------------------------------


def test_notebooks_that_failed_have_pages_that_say_so(made):
    later = page(made[2], "02_later.html")
    assert words(later.h1) == "02 · Later"
    assert "This notebook failed in this run." in words(later.main)
    assert "cell 4 failed: ValueError: no <data>" in words(later.main)
    assert words(later.find(class_="output_error")) == "ValueError: no"
    gone = page(made[2], "03_gone.html")
    assert words(gone.h1) == "03 Gone"
    assert "left nothing that could be shown" in words(gone.main)
    assert "the time limit of 5 s passed" in words(gone.main)


def change(path: Path, **new) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | new))


BREAKAGES = {
    "no summary": (lambda r: (r / "summary.json").unlink(), "holds no summary.json"),
    "summary cut": (lambda r: (r / "summary.json").write_text('{"ok": tr'), "cannot be read"),
    "summary list": (lambda r: (r / "summary.json").write_text("[]"), "holds a list, not a dict"),
    "summary old": (lambda r: (r / "summary.json").write_text('{"ok": true}'), "lacks mmlib, note"),
    "no notebooks": (lambda r: change(r / "summary.json", notebooks=[]), "names no notebook"),
    "no notebook": (lambda r: (r / "01_links.ipynb").unlink(), "01_links.ipynb is missing, though"),
    "notebook cut": (lambda r: (r / "01_links.ipynb").write_text("{"), "ipynb is no notebook"),
    "no claims": (lambda r: (r / "01_links/claims.json").unlink(), "claims.json cannot be read"),
    "claims cut": (lambda r: (r / "01_links/claims.json").write_text("[{"), "json cannot be read"),
    "claims dict": (lambda r: (r / "01_links/claims.json").write_text("{}"), "not a list"),
    "claims bare": (
        lambda r: (r / "01_links/claims.json").write_text('[{"id": "C1"}]'),
        "claims.json: claim 1 lacks claim, effect",
    ),
    "no results": (lambda r: (r / "01_links/results.json").unlink(), "results.json cannot be read"),
    "an entry cut": (
        lambda r: change(r / "summary.json", notebooks=[{"notebook": "01_links"}]),
        "a notebook lacks checks, claims, executed",
    ),
    "claims changed": (
        lambda r: (r / "01_links/claims.json").write_text(json.dumps(runs.CLAIMS[:3])),
        "was changed after the run",
    ),
    "checks changed": (
        lambda r: change(r / "01_links/checks.json", why="so"),
        "checks.json is not what summary.json holds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_runs_give_one_clear_error(run, name):
    harm, message = BREAKAGES[name]
    harm(run)
    with pytest.raises(report.ReportError, match=re.escape(message)) as error:
        report.write(run)
    assert "run it again: mmlib run --out" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (run / "report").exists()
    assert not list(run.glob(".report*"))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(report.ReportError, match="there is no folder"):
        report.write(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ('{"how": {}, "claims": []}', "lacks notebook"),
        ('{"how": {}, "notebook": "01_links", "claims": [{}]}', "claim 1 lacks"),
    ],
)
def test_broken_recorded_claims(run, tmp_path, content, message):
    path = tmp_path / "world" / "01_claims.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(report.ReportError, match=message) as error:
        report.write(run, expected=tmp_path)
    assert str(path) in str(error.value)
    assert "ci/make_expected.py" in str(error.value)


def test_a_failed_notebook_may_lack_everything(run, tmp_path):
    (run / "02_later.ipynb").write_text("{")
    index = report.write(run, tmp_path / "site")
    assert index == tmp_path / "site" / "index.html"
    assert "left nothing" in words(page(tmp_path / "site", "02_later.html").main)


# Writing ------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_an_old_report_is_replaced_and_nothing_else(run, tmp_path):
    link = tmp_path / "latest"
    link.symlink_to(run)
    site = report.write(link, expected=tmp_path).parent
    assert site == run / "report"
    first = contents(site)
    (site / "old.html").write_text("old")
    assert contents(report.write(run, expected=tmp_path).parent) == first
    assert not list(run.glob(".report*"))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert contents(report.write(run, empty, expected=tmp_path).parent) == first


@pytest.mark.parametrize("name", ["summary.json", "index.html"])
def test_other_folders_are_left_alone(run, tmp_path, name):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / name).write_text("mine")
    with pytest.raises(report.ReportError, match="something other than a report"):
        report.write(run, mine)
    assert contents(mine) == {name: b"mine"}
    with pytest.raises(report.ReportError, match="is a file"):
        report.write(run, mine / name)
    with pytest.raises(report.ReportError, match="something other than a report"):
        report.write(run, run)


def test_a_report_that_fails_leaves_the_old_one(run, tmp_path, monkeypatch):
    site = report.write(run).parent
    before = contents(site)
    broken = tmp_path / "templates"
    broken.mkdir()
    for path in report.SITE.iterdir():
        (broken / path.name).write_text(path.read_text())
    (broken / "about.html.j2").write_text("{{ nothing }}")
    monkeypatch.setattr(report, "SITE", broken)
    with pytest.raises(TemplateError):
        report.write(run)
    assert contents(site) == before
    assert not list(run.glob(".report*"))
