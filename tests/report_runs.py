"""Folders such as `mmlib run` leaves, for the tests of the report; nothing is executed."""

import base64
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
from nbformat import write
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image
from tiny_notebooks import KERNELSPEC, PARAMETERS

from mmlib.core.errors import DataError

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "evidence": "world/links",
    "comparable": True,
    "why": "",
    "figures": [
        {"figure": "a/AP/AUC", "value": 93.0, "expected": 92.5, "tolerance": 1.0, "within": True},
        {"figure": "a/DC/AUC", "value": 93.0, "expected": 80.0, "tolerance": 1.0, "within": False},
    ],
}
WIDGET = "application/vnd.jupyter.widget-view+json"


def claim(name: str, verdict: str, effect: float | None = 0.12345, **more) -> dict:
    """A record as in claims.json, with characters that HTML must not break."""
    low, high = (None, None) if effect is None else (effect - 1.5, effect + 1.5)
    return {
        "id": name, "claim": f"{name}: A > B & \"C\", 'D'", "paper": "98.9 > 87.5", "unit": "AUC",
        "verdict": verdict, "contrast": "AUC of A − B", "effect": effect, "low": low,
        "high": high, "smallest": 1.0, "why": "", "parts": {}, **more,
    }  # fmt: skip


CLAIMS = [
    claim("C1", "supported", 2.0, parts={
        "coco": {"effect": 2.0, "low": 0.5, "high": 3.5, "verdict": "supported"},
        "<story>": {"effect": 4.0, "low": 3.5, "high": 4.5, "verdict": "supported"},
    }),
    claim("C2", "undecided"),
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
    bar = {WIDGET: {"model_id": "x"}, "text/plain": "pictures:   0%|          | 0/10 [00:00<?]"}
    folded = {"jupyter": {"source_hidden": True}}
    cells = [
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
            new_output("display_data", data=bar),
            new_output("stream", name="stderr", text="\x1b[31ma <warning>\x1b[0m\n"),
            new_output("display_data", data={"text/latex": "$\\frac{1}{2}$"}),
        ]),
        new_markdown_cell("## 2. Tables\n\nOurs stand beside the paper's."),
        new_code_cell("show()", id="beside", outputs=[table(beside())]),
        new_code_cell("display(ledger)", outputs=[table(ledger)]),
        new_markdown_cell("## Pictures\n\nHere is the *picture* of $M_{ij}$."),
        new_code_cell("plots.save(figure, here, 'graph')", outputs=[picture("red")]),
        new_code_cell("answer_1 = 3", metadata={"tags": ["answer"], **folded}),
        new_code_cell("course.number(1, answer_1, 3)", metadata={"tags": ["check"], **folded}),
    ]  # fmt: skip
    return _notebook(cells)


def failed_notebook():
    """A notebook that stopped in a cell."""
    error = new_output(
        "error", ename="ValueError", evalue="no <data>", traceback=["\x1b[31mValueError\x1b[0m: no"]
    )
    return _notebook(
        [new_markdown_cell("# 02 · Later\n\n## Words"), new_code_cell(outputs=[error])]
    )


def _notebook(cells):
    return new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC, "widgets": {}})


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
    for name in ("graph", "of <nobody>"):
        (run / "01_links" / "figures" / f"{name}.png").write_bytes(png("green"))
    write(full_notebook(), run / "01_links.ipynb")
    write(failed_notebook(), run / "02_later.ipynb")
    write_summary(run, entries)
    return run


def assess_paper(number: str, tier: str) -> list[SimpleNamespace]:
    """Stands in for `record.assess_paper`: one claim of the world has another verdict, one is gone.

    Nothing is on record of other notebooks than 01.
    """
    world = [claim("C1", "negligible", 0.5), *CLAIMS[1:3], claim("C9", "supported", 9.0)]
    known = {"flickr8k": [claim("C1", "opposite", -3.5)], "world": world}
    if number != "01" or tier not in known:
        raise DataError("no evidence")
    return [SimpleNamespace(record=lambda own=own: own) for own in known[tier]]


def committed_run(folder: Path) -> Path:
    """A run made of the committed notebooks and their outputs, with made-up claims."""
    run, entries = folder / "committed", []
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        checks = {"comparable": False, "why": "a test", "figures": []}
        entries.append(entry(path.stem, claims=CLAIMS, checks=checks))
        write_results(run, entries[-1])
        shutil.copy(path, run)
    write_summary(run, entries)
    return run
