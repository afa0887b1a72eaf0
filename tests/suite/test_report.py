"""The report of a run: its pages, its links, and what it refuses. Nothing is executed."""

import base64
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import bs4
import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image
from scripts import NOTEBOOKS
from tiny_notebooks import KERNELSPEC, PARAMETERS

from mmlib.core.errors import DataError
from mmlib.suite import report

EQUATION = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$]+?)\$", re.DOTALL)
COMMANDS = re.compile(r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+")  # which are not shown

# --- Runs -----------------------------------------------------------------------------------------

INSIDE = {"figure": "a/AP/AUC", "value": 93.0, "expected": 92.5, "tolerance": 1.0, "within": True}
CHECKS = {"evidence": "world/links", "comparable": True, "why": "",
          "figures": [INSIDE, INSIDE | {"expected": 80.0, "within": False}]}  # fmt: skip


def claim(name: str, verdict: str, effect: float | None = 0.12345, **more) -> dict:
    """A record as in claims.json, with characters that HTML must not break."""
    low, high = (None, None) if effect is None else (effect - 1.5, effect + 1.5)
    return {
        "id": name, "claim": f"{name}: A > B & \"C\", 'D'", "paper": "98.9 > 87.5", "unit": "AUC",
        "verdict": verdict, "effect": effect, "low": low, "high": high, "why": "", "parts": {},
        **more,
    }  # fmt: skip


CLAIMS = [
    claim("C1", "supported", 2.0, parts={
        "<story>": {"effect": 4.0, "low": 3.5, "high": 4.5, "verdict": "supported"},
    }),
    claim("C2", "undecided"),
    claim("C3", "opposite", -7.25),
    claim("C4", "not tested", None, why="this run has nothing to compare"),
]  # fmt: skip


def shown(data):
    return new_output("display_data", data=data)


def table(frame: pd.DataFrame):
    return shown({"text/html": f"<div>{frame.to_html()}</div>", "text/plain": str(frame)})


def png() -> bytes:
    Image.new("RGB", (90, 30), "green").save(file := io.BytesIO(), "png")
    return file.getvalue()


def full_notebook():
    """A notebook with everything that a page must cope with."""
    ledger = pd.DataFrame({"paper": ["98.9"], "verdict": ["supported"]}, ["C1"])
    columns = pd.MultiIndex.from_product([["AUC", "p@1"], ["paper", "ours"]])
    beside = pd.DataFrame([["98.9", "66.5 ± 1.5", "93.6", "20.8 ± 5.6"]], ["DC"], columns)
    bar = {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "0/10 [0"}
    folded = {"jupyter": {"source_hidden": True}}
    return [
        new_markdown_cell(
            "# 01 · Links & *more*\n\n**Paper.** See [the start](02_later.ipynb#Words), "
            "[the data](../data/README.md), [arXiv](https://arxiv.org/abs/1904.07826), "
            "[below](#2.-Tables) and [nobody](09_absent.ipynb). ![far](https://x.org/far.png)"
        ),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        new_markdown_cell(
            "## 1. Sums\n\nWith $k < \\min(n, m)$:\n\n"
            "$$\\mathrm{DC}(M) = \\frac{1}{n}\\sum_i \\max_j M_{ij}$$"
        ),
        new_code_cell("load()", outputs=[
            shown(bar),
            new_output("stream", name="stderr", text="\x1b[31ma <warning>\x1b[0m\n"),
            shown({"text/latex": "$\\frac{1}{2}$"}),
        ]),
        new_markdown_cell("## 2. Tables\n\nOurs stand beside the paper's."),
        new_code_cell("show()", id="beside", outputs=[table(beside)]),
        new_code_cell("display(ledger)", outputs=[table(ledger)]),
        new_markdown_cell("## Pictures\n\nHere is the *picture* of $M_{ij}$."),
        new_code_cell("plots.save(figure, here, 'graph')", outputs=[
            shown({"image/png": base64.b64encode(png()).decode(), "text/plain": "<Figure>"})
        ]),
        new_code_cell("course.number(1, answer_1, 3)", metadata={"tags": ["check"], **folded}),
    ]  # fmt: skip


def write_notebook(path: Path, cells) -> None:
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC}), path)


def entry(stem: str, ok: bool = True, problems=(), claims=(), checks=None) -> dict:
    """What summary.json says of a notebook."""
    return {
        "notebook": stem, "executed": f"{stem}.ipynb", "out": stem, "seconds": 187.4,
        "problems": list(problems), "claims": list(claims), "checks": checks or {}, "ok": ok,
    }  # fmt: skip


def write_results(run: Path, told: dict) -> None:
    """The result files of a notebook, in keeping with what the summary says."""
    out = run / told["out"]
    (out / "figures").mkdir(parents=True)
    (out / "claims.json").write_text(json.dumps(told["claims"], ensure_ascii=False))
    (out / "checks.json").write_text(json.dumps(told["checks"]))
    (out / "results.json").write_text('[{"system": "AP", "value": 93.0, "seed": 4}]')
    (out / "results.csv").write_text("system,value\nAP,93.0\n")


def write_summary(run: Path, entries: list[dict], **more) -> None:
    summary = {"mmlib": "0.1.0", "parameters": {"tier": "world", "seeds": 5}, "notebooks": entries}
    (run / "summary.json").write_text(json.dumps(summary | more))


def made_up_run(folder: Path) -> Path:
    """A run of three: one with everything, one that failed in a cell, one that left nothing."""
    run = folder / "runs" / "made up"
    entries = [
        entry("01_links", claims=CLAIMS, checks=CHECKS),
        entry("02_later", ok=False, problems=["cell 4 failed: ValueError: no <data>"]),
        entry("03_gone", ok=False, problems=["the time limit of 5 s passed"]),
    ]
    write_results(run, entries[0])
    for name in ("graph", "of <nobody>"):
        (run / "01_links" / "figures" / f"{name}.png").write_bytes(png())
    write_notebook(run / "01_links.ipynb", full_notebook())
    traceback = ["\x1b[31mValueError\x1b[0m: no"]
    error = new_output("error", ename="ValueError", evalue="no <data>", traceback=traceback)
    later = [new_markdown_cell("# 02 · Later\n\n## Words"), new_code_cell(outputs=[error])]
    write_notebook(run / "02_later.ipynb", later)
    write_summary(run, entries)
    return run


def assess_paper(number: str, tier: str) -> list[SimpleNamespace]:
    """On the world C1 has another verdict and C4 is gone; of 01 alone there are records."""
    world = [claim("C1", "negligible", 0.5), *CLAIMS[1:3], claim("C9", "supported", 9.0)]
    records = {"flickr8k": [claim("C1", "opposite", -3.5)], "world": world}
    if number != "01" or tier not in records:
        raise DataError("no evidence")
    return [SimpleNamespace(record=lambda own=own: own) for own in records[tier]]


@pytest.fixture(scope="module", autouse=True)
def evidence():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report.record, "assess_paper", assess_paper)
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of a made-up run."""
    run = made_up_run(tmp_path_factory.mktemp("report"))
    index = report.write(run)
    assert index == run / "report" / "index.html"
    return index.parent


@pytest.fixture
def run(tmp_path):
    """A made-up run to break."""
    return made_up_run(tmp_path)


# --- Pages ----------------------------------------------------------------------------------------


def page(site: Path, name: str) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup((site / name).read_text(), "html.parser")


def faults(site: Path) -> list[str]:
    """Links that lead nowhere, anything fetched from a network, scripts, pictures without texts."""
    pages, found = {path.name: page(site, path.name) for path in sorted(site.glob("*.html"))}, []
    ids = {name: {tag["id"] for tag in soup.find_all(id=True)} for name, soup in pages.items()}
    for name, soup in pages.items():
        found += [f"{name}: a script" for _ in soup.find_all("script")]
        found += [f"{name}: no alt text" for i in soup.find_all("img") if not i.get("alt")]
        found += [f"{name}: LaTeX {code.text}" for code in soup.find_all("code", class_="latex")]
        found += [f"{name}: @import" for style in soup.find_all("style") if "@import" in style.text]
        for tag in soup.find_all(lambda tag: tag.get("href") or tag.get("src")):
            link = tag.get("href") or tag["src"]
            parts = urlsplit(link)
            online = tag.name == "a" and parts.scheme in ("https", "http", "mailto")
            if online or parts.scheme == "data":
                continue
            path = unquote(parts.path) or name
            if parts.scheme or parts.netloc or not (site / path).is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and not {parts.fragment, unquote(parts.fragment)} & ids[path]:
                found.append(f"{name}: {link} names no place")
    return found


def words(tag: bs4.Tag) -> str:
    return " ".join(tag.get_text(" ").split())


def rows(table: bs4.Tag) -> list[list[str]]:
    return [[words(c) for c in r.find_all(["th", "td"])] for r in table.tbody.find_all("tr")]


def test_links_lead_somewhere_and_nothing_is_loaded(site):
    assert faults(site) == []


def test_a_browser_opens_every_page_without_a_network(site, browser):
    troubles, context = [], browser.new_context()
    for path in sorted(site.glob("*.html")):
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


def test_overview(site):
    soup = page(site, "index.html")
    counts = "1 hold, 1 fail, 1 open, 1 not tested"
    assert counts in words(soup.main)
    found = rows(soup.main.table)
    assert found[0] == [
        "01 · Links & more", "done in 3:07", counts, "1/2 within tolerance",
        "results.json results.csv claims.json checks.json",
    ]  # fmt: skip
    assert found[1][:2] == ["02 · Later", "failed in 3:07"]
    assert found[2][:2] == ["03 gone", "failed in 3:07"]
    assert [i["alt"] for i in soup.find_all("img")] == ["graph", "of <nobody>"]
    assert '"seeds": 5' in words(soup.main)
    assert (site / "01_links/results.csv").read_text() == "system,value\nAP,93.0\n"


def test_claims_of_every_tier(site):
    (table,) = page(site, "claims.html").find_all("table")
    heads = [words(h) for h in table.select("thead th")]
    assert heads == ["id", "claim", "this run", "recorded, world", "recorded, flickr8k"]
    found = {row[0]: row[1:] for row in rows(table)}
    assert list(found) == ["C1", "C2", "C3", "C4", "C9"]
    assert found["C1"] == [
        "C1: A > B & \"C\", 'D' paper: 98.9 > 87.5",
        "supported +2 [+0.5, +3.5] AUC <story>: +4 [+3.5, +4.5] AUC, supported",
        "negligible +0.5 [-1, +2] AUC",
        "opposite -3.5 [-5, -2] AUC",
    ]
    assert found["C4"][1:] == ["not tested – this run has nothing to compare", "–", "–"]
    assert found["C9"][1:] == ["–", "supported +9 [+7.5, +10.5] AUC", "–"]


@pytest.mark.parametrize(
    ("parameters", "changed", "of_record"),
    [
        ({"tier": "world", "device": "cpu"}, "", True),
        ({"tier": "world", "signal": 0}, "Changed in this run: signal = 0.", True),
        ({"live": "<b>", "epochs": 1}, "Changed in this run: live = <b>, epochs = 1.", True),
        ({"evidence": "compute"}, "Changed in this run: evidence = compute.", False),
    ],
)
def test_what_a_run_changed_is_said_before_its_verdicts(run, parameters, changed, of_record):
    write_summary(run, [entry("01_links", claims=CLAIMS, checks=CHECKS)], parameters=parameters)
    site = report.write(run).parent
    said = [changed] * bool(changed) + ["Verdicts of the record, not of this run."] * of_record
    for name, then in (("index.html", "Claims of the papers"), ("claims.html", "The effect that")):
        shown = [words(p) for p in page(site, name).main.find_all("p")]
        assert shown[: len(said)] == said
        assert shown[len(said)].startswith(then)


def test_a_notebooks_page(site):
    soup = page(site, "01_links.html")
    links = {words(a): a["href"] for a in soup.main.find_all("a", href=True)}
    assert links["the start"] == "02_later.html#Words"
    assert links["below"] == "#2.-Tables"
    assert links["arXiv"] == "https://arxiv.org/abs/1904.07826"
    assert not {"the data", "nobody"} & set(links)
    text = words(soup.main)
    assert all(piece in text for piece in ("the data", "[picture: far]", "a <warning>"))
    assert "0/10" not in text  # a progress bar
    assert [i["alt"] for i in soup.find_all("img")] == ["Pictures"]
    [check] = [words(d) for d in soup.find_all("details")]
    assert check.startswith("Code of this cell")
    assert "answer_1" in check
    inline, block, output = soup.find_all("math")[:3]
    assert inline.get_text() == "k<min(n,m)"
    assert block["display"] == "block"
    assert output.find("mfrac")
    later = words(page(site, "02_later.html").main)  # that failed
    assert "Failed in this run. cell 4 failed: ValueError: no <data>" in later
    assert "ValueError : no" in later
    assert "the time limit of 5 s passed" in words(page(site, "03_gone.html").main)


@pytest.mark.parametrize("broken", [r"x_{", r"\left( x", r"\undefined y"])
def test_equations_that_do_not_convert_stay_readable(broken):
    assert report.mathml(broken) == f'<code class="latex">{broken}</code>'


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_no_equation_of_a_notebook_loses_a_sign(path):
    """Every letter and digit of the LaTeX is in the MathML."""
    cells = nbformat.read(path, as_version=4).cells
    texts = [re.sub(r"`[^`]*`", "", cell.source) for cell in cells if cell.cell_type == "markdown"]
    for inline, block in EQUATION.findall("\n\n".join(texts)):
        made = bs4.BeautifulSoup(report.mathml(inline or block), "html.parser")
        assert made.math, inline or block
        found = sorted(re.findall(r"[A-Za-z0-9]", made.get_text()))
        for sign in re.findall(r"[A-Za-z0-9]", COMMANDS.sub("", inline or block)):
            assert sign in found, (inline or block, made)
            found.remove(sign)


# --- Another's run --------------------------------------------------------------------------------

SCRIPT, PICTURE = "<script>alert(1)</script>", "<img src=x onerror=alert(1)>"
REFRESH = '<meta http-equiv="refresh" content="0;url=https://x.org"><base href="https://x.org">'


def test_nothing_of_anothers_run_runs(tmp_path):
    """Its texts, outputs, names and parameters all hold scripts."""
    run = tmp_path / f"r {PICTURE}".replace("/", "")
    told = claim("C1" + SCRIPT, "supported", 1.0, why=SCRIPT + PICTURE, paper=PICTURE)
    entries = [
        entry("01_a", claims=[told], checks=CHECKS),
        entry("02_b", ok=False, problems=[f"cell 4 failed: </pre>{SCRIPT}`{PICTURE}`"]),
    ]
    drawing = f"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>{SCRIPT}</svg>"
    outputs = [
        shown({"text/html": SCRIPT + PICTURE + REFRESH + "<iframe src='x'></iframe>"}),
        shown({"text/html": "<a href=' java&#10;script:alert(1)'>a</a>"}),
        shown({"image/svg+xml": drawing}),
        shown({"image/png": 'x" onerror="alert(1)', "text/plain": "p"}),
        shown({"text/latex": f"$x$ {SCRIPT}"}),
        shown({"text/markdown": SCRIPT + PICTURE}),
        shown({"application/javascript": "alert(1)"}),
        new_output("stream", name="stdout", text=SCRIPT),
        new_output("error", ename=SCRIPT, evalue=SCRIPT, traceback=[SCRIPT]),
    ]
    heading = f"# Title {PICTURE} here\n\n{SCRIPT} [x](javascript:alert(1))\n\n<details>d</details>"
    write_results(run, entries[0])
    for name in ("01_a", "02_b"):
        cells = [new_markdown_cell(heading), new_code_cell("f()", outputs=outputs)]
        write_notebook(run / f"{name}.ipynb", cells)
    write_summary(run, entries, parameters={"system": f"a` {PICTURE}{SCRIPT} `b"})
    site = report.write(run).parent
    for path in site.glob("*.html"):
        soup = page(site, path.name)
        policy = soup.head.find(True)
        assert policy["http-equiv"] == "Content-Security-Policy"
        assert policy["content"].startswith("default-src 'none'; img-src 'self'")
        assert not soup.select("script, iframe, base, meta[http-equiv=refresh]")
        for tag in soup.find_all(True):
            assert not [a for a in tag.attrs if a.startswith("on")], (path, tag)
            assert "script:" not in "".join(str(tag.get("href", "")).split()), (path, tag)
    assert page(site, "01_a.html").find("details")  # what is harmless stays
    assert "alert(1)" in words(page(site, "index.html"))  # as text


# --- What is refused ------------------------------------------------------------------------------


def text(name, content):
    return lambda run: (run / name).write_text(content)


def retold(**new):
    """Writes another entry of the first notebook in the summary."""
    told = entry("01_links", claims=CLAIMS, checks=CHECKS) | new
    return lambda run: write_summary(run, [{k: v for k, v in told.items() if v is not ...}])


def link(name):
    """A file or folder of the run leads out of it, where what is private may be."""
    return lambda run: (run / name).symlink_to((run / name).rename(run.parent / "private"))


CELL = {"cell_type": "code", "id": "a", "metadata": {}, "source": "f()", "execution_count": None}
CELLS = [{**CELL, "outputs": [{"output_type": "display_data"}]}]
PARTS = {"a": {"effect": "1", "low": 0, "high": 2, "verdict": "x"}}
BREAKAGES = [
    (lambda run: (run / "summary.json").unlink(), "cannot be read"),
    (lambda run: (run / "01_links.ipynb").unlink(), "01_links.ipynb"),
    (text("01_links.ipynb", json.dumps({**new_notebook(), "cells": CELLS})), "NotebookValidation"),
    (text("summary.json", '{"ok": tr'), "cannot be read"),
    (lambda run: write_summary(run, []), "$.notebooks: [] should be non-empty"),
    (retold(checks=...), "$.notebooks[0]: 'checks' is a required property"),
    (retold(claims=[{"id": "C1"}]), "notebooks[0].claims[0]: 'claim' is a required property; run"),
    (retold(seconds=None), "seconds: None is not of type 'number'"),
    (retold(seconds=-1), "seconds: -1 is less than"),
    (retold(seconds=10**12), "seconds: 1000000000000 is greater than"),
    (retold(claims=[CLAIMS[0] | {"parts": PARTS}]), "effect: '1' is not"),
    (retold(checks={"comparable": True, "why": "", "figures": [3]}), "notebooks[0].checks: "),
    (retold(problems=[3]), "problems[0]: 3 is not of type"),
    *((retold(notebook=name), "notebooks[0].notebook: ")
      for name in ("../../x", "/x", "a/b", ".hidden", "a\\b", "", "Index", "claims", "x\n", 7)),
    *((retold(**{key: "../x"}), f"notebooks[0].{key}: ") for key in ("out", "executed")),
    *((link(name), "is a link or no file")
      for name in ("01_links/figures/graph.png", "01_links/figures", "01_links/claims.json",
                   "01_links.ipynb", "02_later.ipynb", "summary.json")),
]  # fmt: skip


@pytest.mark.parametrize(("harm", "message"), BREAKAGES)
def test_broken_runs_give_one_clear_error(run, harm, message):
    harm(run)
    with pytest.raises(DataError, match=re.escape(message)) as error:
        report.write(run)
    there = (run / "summary.json").exists()
    mend = "run it again: mmlib run --out|put the file itself there"
    assert re.search(mend if there else "no run is there: `mmlib run` makes one", str(error.value))
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
    with pytest.raises(DataError, match="holds CNAME, no part of a report"):
        report.write(run, mine)
    assert (site / "CNAME").read_text() == "mine"
    for other in (run, run / "summary.json"):
        with pytest.raises(DataError, match="is no report of mmlib"):
            report.write(run, other)
