"""The report of a run: its pages, its links, and what it refuses."""

import json
import re
from pathlib import Path

import bs4
import nbformat
import pytest
import report_runs as runs
import site_checks

from mmlib.suite import report

NOTEBOOKS = sorted((runs.ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
EQUATION = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$]+?)\$", re.DOTALL)
WORDS = re.compile(r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+")  # commands, which are not shown


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of a made-up run."""
    folder = tmp_path_factory.mktemp("report")
    run = runs.made_up_run(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report.record, "assess_paper", runs.assess_paper)
        index = report.write(run)
    assert index == run / "report" / "index.html"
    return index.parent


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A made-up run to break."""
    monkeypatch.setattr(report.record, "assess_paper", runs.assess_paper)
    return runs.made_up_run(tmp_path)


def page(site: Path, name: str) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup((site / name).read_text(), "html.parser")


def words(tag: bs4.Tag) -> str:
    return " ".join(tag.get_text(" ").split())


def rows(table: bs4.Tag) -> list[list[str]]:
    return [[words(c) for c in r.find_all(["th", "td"])] for r in table.tbody.find_all("tr")]


# Pages


def test_links_lead_somewhere_and_nothing_is_loaded(site):
    assert site_checks.faults(site) == []


@pytest.fixture(scope="module")
def committed_site(tmp_path_factory):
    """The report of a run that is made of the committed notebooks, and of the world's evidence."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "TIME_LIMITS", {"world": 0})  # reading all tiers takes seconds
        return report.write(runs.committed_run(tmp_path_factory.mktemp("committed"))).parent


@pytest.mark.slow
def test_committed_notebooks(committed_site):
    assert len(list(committed_site.glob("*.html"))) == 2 + len(NOTEBOOKS)
    assert site_checks.faults(committed_site) == []


@pytest.mark.slow
def test_a_browser_opens_every_page_without_a_network(committed_site, browser):
    troubles, context = [], browser.new_context()
    for path in sorted(committed_site.glob("*.html")):
        tab = context.new_page()
        tab.on("console", lambda message: troubles.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        tab.on("request", lambda r: r.url.startswith(("file:", "data:")) or troubles.append(r.url))
        tab.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
        tab.goto(path.as_uri())
        assert tab.evaluate("[...document.images].every(i => !i.complete || i.naturalWidth)")
        assert tab.locator("h1").first.is_visible()
        tab.close()
    context.close()
    assert troubles == []


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('<a href="ledgers.html">x</a>', "ledgers.html leads nowhere"),
        ('<a href="claims.html#here">x</a>', "claims.html#here names no place"),
        ('<img alt="a" src="https://x.org/a.png">', "https://x.org/a.png leads nowhere"),
        ('<link href="//x.org/a.css">', "//x.org/a.css leads nowhere"),
        ('<img src="data:,">', "no alt text"),
        ("<script></script>", "a script"),
        ("<style>@import 'https://x.org';</style>", "@import"),
        (report.mathml(r"\nosuchthing{x}"), r"LaTeX \nosuchthing{x}"),
    ],
)
def test_the_checks_find_what_they_look_for(tmp_path, added, said):
    (tmp_path / "claims.html").write_text("<p id='there'>")
    (tmp_path / "index.html").write_text(f"<a href='claims.html#there'>x</a>{added}")
    assert site_checks.faults(tmp_path) == [f"index.html: {said}"]


def test_overview(site):
    soup = page(site, "index.html")
    told = words(soup.main)
    assert "1 supported, 1 opposite, 1 undecided, 1 not tested" in told
    found = rows(soup.main.table)
    assert found[0] == [
        "01 · Links & more", "done in 3:07", "1 supported, 1 opposite, 1 undecided, "
        "1 not tested", "1/2 within tolerance", "2. Tables",
        "results.json results.csv claims.json checks.json",
    ]  # fmt: skip
    assert found[1][:2] == ["02 · Later", "failed in 3:07"]
    assert found[2][:2] == ["03 gone", "failed in 3:07"]
    assert soup.find("a", string="2. Tables")["href"] == "01_links.html#cell-id=beside"
    assert [i["alt"] for i in soup.find_all("img")] == ["graph", "of <nobody>"]
    assert '"seeds": 5' in told
    assert (site / "01_links/results.csv").read_text() == "system,value\nAP,93.0\n"


def test_claims_of_every_tier(site):
    (table,) = page(site, "claims.html").find_all("table")
    heads = [words(h) for h in table.select("thead th")]
    assert heads == ["id", "claim", "this run", "recorded, world", "recorded, flickr8k"]
    found = {row[0]: row[1:] for row in rows(table)}
    assert list(found) == ["C1", "C2", "C3", "C4", "C9"]
    said, own, world, flickr8k = found["C1"]
    assert said == "C1: A > B & \"C\", 'D' paper: 98.9 > 87.5"
    assert own.startswith("supported +2 [+0.5, +3.5] AUC coco:")
    assert "<story>: +4 [+3.5, +4.5] AUC, supported" in own
    assert world == "negligible +0.5 [-1, +2] AUC"
    assert flickr8k == "opposite -3.5 [-5, -2] AUC"
    assert found["C4"][1:] == ["not tested – this run has nothing to compare", "–", "–"]
    assert found["C9"][1:] == ["–", "supported +9 [+7.5, +10.5] AUC", "–"]


def test_a_notebooks_page(site):
    soup = page(site, "01_links.html")
    links = {words(a): a["href"] for a in soup.main.find_all("a", href=True)}
    assert links["the start"] == "02_later.html#Words"
    assert links["below"] == "#2.-Tables"
    assert links["arXiv"] == "https://arxiv.org/abs/1904.07826"
    assert not {"the data", "nobody"} & set(links)
    told = words(soup.main)
    assert "the data" in told
    assert "[picture: far]" in told
    assert "a <warning>" in told
    assert "0/10" not in told  # a progress bar
    assert [i["alt"] for i in soup.find_all("img")] == ["Pictures"]
    folds = [words(d) for d in soup.find_all("details")]
    assert "answer_1" in folds[0]
    assert folds[0].startswith("Worked answer")
    assert folds[1].startswith("Code of this cell")
    inline, block, output = soup.find_all("math")[:3]
    assert inline.get_text() == "k<min(n,m)"
    assert block["display"] == "block"
    assert output.find("mfrac")


def test_failed_notebooks_have_pages_that_say_so(site):
    later = words(page(site, "02_later.html").main)
    assert "Failed in this run. cell 4 failed: ValueError: no <data>" in later
    assert "ValueError : no" in later
    assert "the time limit of 5 s passed" in words(page(site, "03_gone.html").main)


# What is read from notebooks


@pytest.mark.parametrize("broken", [r"x_{", r"\left( x", r"\undefined y"])
def test_equations_that_do_not_convert_stay_readable(broken):
    made = bs4.BeautifulSoup(report.mathml(broken), "html.parser")
    assert made.code.get_text() == broken


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_no_equation_of_a_notebook_loses_a_sign(path):
    """Every letter and digit of the LaTeX is in the MathML, in the same order but for scripts."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "markdown":
            continue
        for inline, block in EQUATION.findall(re.sub(r"`[^`]*`", "", cell.source)):
            made = bs4.BeautifulSoup(report.mathml(inline or block), "html.parser")
            assert made.math, inline or block
            told = sorted(re.findall(r"[A-Za-z0-9]", WORDS.sub("", inline or block)))
            found = sorted(re.findall(r"[A-Za-z0-9]", made.get_text()))
            for sign in told:
                assert sign in found, (inline or block, made)
                found.remove(sign)


@pytest.mark.parametrize(
    ("head", "known"),
    [("paper", 1), ("paper's ±", 1), ("CMCM, paper", 1), ("T 0.1 (paper)", 0), ("papers read", 0)],
)
def test_what_is_a_papers_table(head, known):
    assert bool(report.PRINTED_COLUMN.search(f"<tr><th></th><th>{head}</th></tr>")) == known


# Another's run

SCRIPT, PICTURE = "<script>alert(1)</script>", "<img src=x onerror=alert(1)>"
QUOTE = 'x" onerror="alert(1)'


def hostile_run(run: Path) -> Path:
    """A run whose texts, outputs, names and parameters all hold scripts."""
    told = runs.claim("C1" + SCRIPT, "supported", 1.0, why=SCRIPT + PICTURE, paper=PICTURE)
    entries = [
        runs.entry("01_a", claims=[told], checks=runs.CHECKS),
        runs.entry("02_b", ok=False, problems=[f"cell 4 failed: </pre>{SCRIPT}`{PICTURE}`"]),
    ]

    def show(data):
        return nbformat.v4.new_output("display_data", data=data)

    drawing = f"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>{SCRIPT}</svg>"
    refresh = '<meta http-equiv="refresh" content="0;url=https://x.org"><base href="https://x.org">'
    told = [
        show({"text/html": SCRIPT + PICTURE + refresh + "<iframe src='x'></iframe>"}),
        show({"text/html": "<a href=' java&#10;script:alert(1)'>a</a>"}),
        show({"image/svg+xml": drawing}),
        show({"image/png": QUOTE, "text/plain": "p"}),
        show({"text/latex": f"$x$ {SCRIPT}"}),
        show({"text/markdown": SCRIPT + PICTURE}),
        show({"application/javascript": "alert(1)"}),
        nbformat.v4.new_output("stream", name="stdout", text=SCRIPT),
        nbformat.v4.new_output("error", ename=SCRIPT, evalue=SCRIPT, traceback=[SCRIPT]),
    ]
    heading = f"# Title {PICTURE} here\n\n{SCRIPT} [x](javascript:alert(1))\n\n<details>d</details>"
    cells = [
        nbformat.v4.new_markdown_cell(heading), nbformat.v4.new_code_cell("f()", outputs=told)
    ]  # fmt: skip
    run.mkdir(parents=True)
    runs.write_results(run, entries[0])
    for name in ("01_a", "02_b"):
        nbformat.write(nbformat.v4.new_notebook(cells=cells), run / f"{name}.ipynb")
    parameters = {"tier": "world", "system": f"a` {PICTURE}{SCRIPT} `b"}
    runs.write_summary(run, entries, parameters=parameters)
    return run


def test_nothing_of_anothers_run_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(report.record, "assess_paper", runs.assess_paper)
    site = report.write(hostile_run(tmp_path / f"r {PICTURE}".replace("/", ""))).parent
    for name, soup in site_checks.pages(site).items():
        policy = soup.head.find(True)
        assert policy["http-equiv"] == "Content-Security-Policy", name
        assert policy["content"].startswith("default-src 'none'; img-src 'self'")
        assert not soup.select("script, iframe, base, meta[http-equiv=refresh]"), name
        for tag in soup.find_all(True):
            assert not [a for a in tag.attrs if a.startswith("on")], (name, tag)
            assert "script:" not in "".join(str(tag.get("href", "")).split()), (name, tag)
    assert page(site, "01_a.html").find("details")  # what is harmless stays
    assert "alert(1)" in words(page(site, "index.html"))  # as text


NAMES = ("../../x", "/x", "a/b", ".hidden", "..", "a\\b", "", "Index", "claims", "x\n", 7)
LINKED = (
    *("01_links/figures/graph.png", "01_links/figures", "01_links/claims.json", "01_links"),
    *("01_links.ipynb", "02_later.ipynb", "summary.json"),
)


@pytest.mark.parametrize("name", LINKED)
def test_a_link_in_a_run_is_not_followed(run, tmp_path, name):
    private = tmp_path / "private"
    (run / name).rename(private)
    (run / name).symlink_to(private)
    with pytest.raises(report.ReportError, match="is a link or no file"):
        report.write(run)
    assert not list(run.glob("*report*"))


# What is refused


def text(name, content):
    return lambda run: (run / name).write_text(content)


def retold(**new):
    """Writes another entry of the first notebook in the summary."""
    entry = runs.entry("01_links", claims=runs.CLAIMS, checks=runs.CHECKS) | new
    return lambda run: runs.write_summary(run, [{k: v for k, v in entry.items() if v is not ...}])


def of_parts(parts):
    return retold(claims=[runs.CLAIMS[0] | {"parts": parts}])


OUTPUT = {"output_type": "display_data"}
CELL = {"cell_type": "code", "id": "a", "metadata": {}, "source": "f()", "execution_count": None}
BROKEN = json.dumps({**runs.full_notebook(), "cells": [{**CELL, "outputs": [OUTPUT]}]})
PART = {"effect": 1, "low": 0, "high": 2}
BREAKAGES = [
    (lambda run: (run / "summary.json").unlink(), "cannot be read"),
    (lambda run: (run / "01_links.ipynb").unlink(), "01_links.ipynb"),
    (text("01_links.ipynb", BROKEN), "NotebookValidationError"),
    (text("summary.json", '{"ok": tr'), "cannot be read"),
    (text("summary.json", '{"ok": 1}'), "$: 'mmlib' is a required property"),
    (lambda run: runs.write_summary(run, []), "$.notebooks: [] should be non-empty"),
    (lambda run: runs.write_summary(run, [{"ok": True}]), "$.notebooks[0]: 'notebook' is"),
    (retold(checks=...), "$.notebooks[0]: 'checks' is a required property"),
    (retold(claims=[{"id": "C1"}]), "notebooks[0].claims[0]: 'claim' is a required property; run"),
    (retold(seconds=None), "seconds: None is not of type 'number'"),
    (retold(seconds="9"), "seconds: '9' is not of type"),
    (retold(seconds=-1), "seconds: -1 is less than"),
    (retold(seconds=float("nan")), "NaN is no number of JSON"),
    (retold(seconds=10**12), "seconds: 1000000000000 is greater than"),
    (of_parts([1]), "claims[0].parts: [1] is not of type"),
    (of_parts({"a": 3}), "parts.a: 3 is not of type 'object'"),
    (of_parts({"a": PART}), "parts.a: 'verdict' is a required"),
    (of_parts({"a": PART | {"effect": "1", "verdict": "x"}}), "effect: '1' is not"),
    (retold(checks={"comparable": True}), "notebooks[0].checks: "),
    (retold(checks={"comparable": True, "why": "", "figures": [3]}), "notebooks[0].checks: "),
    (retold(checks=[]), "notebooks[0].checks: "),
    (retold(problems=[3]), "problems[0]: 3 is not of type"),
    *((retold(**{place: name}), f"notebooks[0].{place}: ")
      for place in ("notebook", "out", "executed") for name in NAMES),
]  # fmt: skip


@pytest.mark.parametrize(("harm", "message"), BREAKAGES)
def test_broken_runs_give_one_clear_error(run, harm, message):
    harm(run)
    with pytest.raises(report.ReportError, match=re.escape(message)) as error:
        report.write(run)
    there = (run / "summary.json").exists()
    mend = "run it again: mmlib run --out" if there else "no run is there: `mmlib run` makes one"
    assert mend in str(error.value)
    assert not list(run.glob("*report*"))
    assert not list(run.parent.rglob("*.html"))


def test_only_an_old_report_is_replaced(run, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.mkdir()
    site = report.write(run, mine).parent
    (site / "old.html").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(report, "_page", lambda *of: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            report.write(run, mine)
    assert (site / "old.html").exists()
    assert not list(tmp_path.glob(".report*"))
    report.write(run, mine)
    assert not (site / "old.html").exists()
    (site / "CNAME").write_text("mine")
    with pytest.raises(report.ReportError, match="holds CNAME, no part of a report"):
        report.write(run, mine)
    assert (site / "CNAME").read_text() == "mine"
    for other in (run, run / "summary.json"):
        with pytest.raises(report.ReportError, match="is no report of mmlib"):
            report.write(run, other)
