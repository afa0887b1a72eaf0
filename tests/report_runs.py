"""Folders such as `mmlib run` leaves, for the tests of the report; nothing is executed."""

import base64
import io
import json
import shutil
from pathlib import Path

import pandas as pd
from nbformat import write
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image
from tiny_notebooks import KERNELSPEC, PARAMETERS

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "expected_file": "expected/world/01.json",
    "comparable": True,
    "why": "",
    "figures": [
        {"figure": "a/AP/AUC", "value": 93.0, "expected": 92.5, "tolerance": 1.0, "within": True},
        {"figure": "a/DC/AUC", "value": 93.0, "expected": 80.0, "tolerance": 1.0, "within": False},
    ],
}
PICTURED = """\
for name in ("coco", "story"):
    plots.save(figure, here, f"graph_{name}")"""
WIDGET = "application/vnd.jupyter.widget-view+json"


def claim(name: str, verdict: str, effect: float | None = 0.12345, **more) -> dict:
    """A record as in claims.json, with characters that HTML and CSV must not break."""
    low, high = (None, None) if effect is None else (effect - 1.5, effect + 1.5)
    return {
        "id": name, "claim": f"{name}: A > B & \"C\", 'D'", "paper": "98.9 > 87.5", "unit": "AUC",
        "verdict": verdict, "comparison": "AUC of A − B", "effect": effect, "low": low,
        "high": high, "margin": None, "weakest": "coco", "why": "", "parts": {}, **more,
    }  # fmt: skip


CLAIMS = [
    claim("C1", "supported", 2.0, parts={
        "coco": {"effect": 2.0, "low": 0.5, "high": 3.5, "verdict": "supported"},
        "<story>": {"effect": 4.0, "low": 3.5, "high": 4.5, "verdict": "supported"},
    }),
    claim("C2", "not supported"),
    claim("C3", "opposite", -7.25),
    claim("C4", "not tested", None, why="this run has nothing to compare"),
]  # fmt: skip


def png(colour: str, size=(900, 300)) -> bytes:
    """A picture of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "png")
    return file.getvalue()


def picture(colour: str):
    """The output of a cell that shows a picture."""
    data = {"image/png": base64.b64encode(png(colour)).decode(), "text/plain": "<Figure>"}
    return new_output("display_data", data=data)


def said(text: str):
    """The output of a cell that displays Markdown."""
    return new_output("display_data", data={"text/markdown": text, "text/plain": "<Markdown>"})


def table(frame: pd.DataFrame):
    """The output of a cell that displays a table."""
    data = {"text/html": f"<div>{frame.to_html()}</div>", "text/plain": str(frame)}
    return new_output("display_data", data=data)


def beside() -> pd.DataFrame:
    """A table with a paper's figures beside ours."""
    columns = pd.MultiIndex.from_product([["AUC", "p@1"], ["paper", "ours"]])
    values = [["98.9", "66.5 ± 1.5", "93.6", "20.8 ± 5.6"], ["–", "61.0", "–", "18.3"]]
    return pd.DataFrame(values, ["DC", "AP"], columns)


def full_notebook():
    """A notebook with everything that a page must cope with."""
    ledger = pd.DataFrame({"paper": ["98.9"], "verdict": ["supported"]}, ["C1"])
    wide = pd.DataFrame({f"a long column's name {i}": [i / 7] for i in range(10)})
    bar = {WIDGET: {"model_id": "x"}, "text/plain": "pictures:   0%|          | 0/10 [00:00<?]"}
    widget = {WIDGET: {"model_id": "y"}, "text/plain": "VBox(children=())"}
    script = {"text/html": '<style>p {color: red}</style><script src="https://x.org/a.js"></script>'
              '<p style="color: #eee" onclick="alert(1)">kept</p>'}  # fmt: skip
    cells = [
        new_markdown_cell(
            "# 01 · Links & *more*\n\n**Paper.** See [the start](02_later.ipynb#Words), "
            "[the data](../data/README.md), [arXiv](https://arxiv.org/abs/1904.07826), "
            "[below](#2.-Tables) and [nobody](09_absent.ipynb)."
        ),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        new_code_cell('tier = "world"', metadata={"tags": ["injected-parameters"]}),
        new_markdown_cell(
            "#### 1. Too deep\n\nWith $k < \\min(n, m)$:\n\n"
            "$$\\mathrm{DC}(M) = \\frac{1}{n}\\sum_i \\max_j M_{ij}$$\n\nand $\\nosuchthing{x}$."
        ),
        new_code_cell("load()", outputs=[
            new_output("display_data", data=bar),
            new_output("display_data", data=widget),
            new_output("display_data", data=script),
            new_output("stream", name="stdout", text="\n"),
            new_output("stream", name="stderr", text="\x1b[31ma <warning>\x1b[0m\n"),
            table(wide),
        ]),
        new_markdown_cell("## 2. Tables\n\nOurs stand beside the paper's.\n\nThe mean $\\bar x$."),
        new_code_cell("show()", outputs=[said("**coco**"), table(beside())]),
        new_code_cell('paper_values("links", "table1")', outputs=[table(beside()["AUC"])]),
        new_code_cell("display(ledger)", outputs=[table(ledger)]),
        new_markdown_cell(
            "# Pictures\n\nHere is the *picture* of $M_{ij}$.\n\n| a | b |\n|---|---|\n| x | 1 |"
        ),
        new_code_cell(PICTURED, outputs=[
            said("coco"), picture("red"), said("story"), picture("blue"),
        ]),
        new_markdown_cell('## Pictures\n\n![](https://x.org/far.png) <img src="near.png">'),
        new_code_cell("a_line_that_is_far_too_long = " + " + ".join(["something"] * 30)),
        new_markdown_cell("### Exercise 1. Read\n\nHow many?", metadata={"tags": ["exercise"]}),
        new_code_cell("answer_1 = ...", metadata={"tags": ["blank"]}),
        new_code_cell("answer_1 = 3", metadata={
            "tags": ["answer"], "jupyter": {"source_hidden": True}}),
        new_code_cell("course.number(1, answer_1, 3)", metadata={
            "tags": ["check"], "jupyter": {"source_hidden": True}},
            outputs=[new_output("stream", name="stdout", text="Exercise 1: right.")]),
        new_markdown_cell("<details><summary>Answer</summary>\n\nThere are *three*.\n\n</details>"),
    ]  # fmt: skip
    return _notebook(cells, "2026-11-21T02:42:55+00:00", {"tier": "world", "seeds": 5, "out": "/x"})


def failed_notebook():
    """A notebook that stopped in a cell, as papermill leaves it."""
    marker = '<span style="color:red">An Exception was encountered at \'<a href="#papermill-error-cell">In [1]</a>\'.</span>'  # noqa: E501
    error = new_output(
        "error", ename="ValueError", evalue="no <data>", traceback=["\x1b[31mValueError\x1b[0m: no"]
    )
    cells = [
        new_markdown_cell(marker, metadata={"tags": ["papermill-error-cell-tag"]}),
        new_markdown_cell("# 02 · Later\n\n## Words"),
        new_markdown_cell('<span id="papermill-error-cell">Execution stopped here.</span>'),
        new_code_cell("fail()", outputs=[error]),
    ]
    return _notebook(cells, "2026-11-21T03:00:00+00:00", {"tier": "world"})


def _notebook(cells, start: str, parameters: dict):
    stamp = {"parameters": parameters, "start_time": start, "end_time": start}
    return new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC, "papermill": stamp})


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
    (out / "results.json").write_text(
        '[{"system": "AP", "value": 93.0, "seed": 4}, {"value": 9, "seed": 0}]'
    )
    (out / "results.csv").write_text("system,value\nAP,93.0\n")


def write_summary(run: Path, entries: list[dict], **more) -> None:
    """A run's summary.json."""
    summary = {
        "ok": all(e["ok"] for e in entries), "mmlib": "0.1.0", "python": "3.11.7",
        "parameters": {"tier": "world", "seeds": 5}, "notebooks": entries, **more,
    }  # fmt: skip
    (run / "summary.json").write_text(json.dumps(summary))


def made_up_run(folder: Path) -> Path:
    """A run of three: one with everything, one that failed in a cell, one that left nothing."""
    run = folder / "runs" / "made up"
    entries = [
        entry("01_links", claims=CLAIMS, checks=CHECKS),
        entry("02_later", ok=False, problems=["cell 4 failed: ValueError: no <data>"]),
        entry("03_gone", ok=False, problems=["the time limit of 5 s passed"]),
    ]
    write_results(run, entries[0])
    for name in ("graph_coco", "graph_story", "of nobody"):
        (run / "01_links" / "figures" / f"{name}.png").write_bytes(png("green"))
    write(full_notebook(), run / "01_links.ipynb")
    write(failed_notebook(), run / "02_later.ipynb")
    write_summary(run, entries)
    return run


def recorded(folder: Path) -> Path:
    """A folder of recorded claims: one claim of the world has another verdict, one is gone."""
    expected = folder / "expected"
    how = {"commit": "abc", "date": "2026-11-20", "seeds": [0, 1, 2]}
    world = [claim("C1", "not supported", 0.5), *CLAIMS[1:3], claim("C9", "supported", 9.0)]
    for tier, claims in (("flickr8k", [claim("C1", "opposite", -3.5)]), ("world", world)):
        (expected / tier).mkdir(parents=True)
        content = {"how": how, "notebook": "01_links", "claims": claims}
        (expected / tier / "01_claims.json").write_text(json.dumps(content))
    other = {"how": how, "notebook": "04_other", "claims": [claim("C1", "supported")]}
    (expected / "world" / "04_claims.json").write_text(json.dumps(other))
    return expected


def committed_run(folder: Path) -> Path:
    """A run made of the committed notebooks, their outputs, and their claims as recorded."""
    run, entries = folder / "committed", []
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        record = ROOT / "notebooks" / "expected" / "world" / f"{path.name[:2]}_claims.json"
        claims = json.loads(record.read_text())["claims"] if record.exists() else []
        checks = {"expected_file": None, "comparable": False, "why": "a test", "figures": []}
        entries.append(entry(path.stem, claims=claims, checks=checks))
        write_results(run, entries[-1])
        shutil.copy(path, run)
    write_summary(run, entries)
    return run
