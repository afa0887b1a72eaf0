"""A static site from a folder of `mmlib run`: notebooks, claims over tiers, tables, figures.

The site needs no network and no server. Every number on it is read from the run, from the
recorded claims beside the notebooks, or from the transcribed tables of the papers.
"""

import csv
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import yaml
from markupsafe import Markup
from pygments.formatters import HtmlFormatter

from mmlib import __version__
from mmlib.claims import VERDICTS, effect_text
from mmlib.core.paths import PACKAGE, notebooks_dir
from mmlib.suite.outcomes import claim_problems, clock, within
from mmlib.suite.report_html import NotebookPage, image_size, render
from mmlib.suite.runner import TIME_LIMITS, ParameterError, default_parameters

SITE = PACKAGE / "suite" / "report_site"
GENERATOR = '<meta name="generator" content="mmlib report">'  # by which a report is known
COPIED = ("results.csv", "results.json", "claims.json", "checks.json")
LEDGER_COLUMNS = (
    "source", "tier", "notebook", "id", "claim", "paper", "comparison", "verdict", "effect", "low",
    "high", "unit", "margin", "weakest", "why", "parts",
)  # fmt: skip
LIBRARIES = (
    "torch", "torchvision", "numpy", "scipy", "scikit-learn", "pandas", "transformers", "spacy",
    "gensim", "nbconvert",
)  # fmt: skip


class ReportError(ValueError):
    """A run that no report can be made of, or a folder that must not be overwritten."""


# What a run left ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Notebook:
    """What a run left of one notebook.

    claims, checks: content of claims.json and checks.json; empty where it failed before them.
    node: the executed notebook, None where there is none.
    """

    stem: str
    ok: bool
    seconds: float
    problems: list[str]
    claims: list[dict[str, Any]]
    checks: dict[str, Any]
    folder: Path
    node: Any

    @property
    def number(self) -> str:
        """The number that its name begins with."""
        return self.stem.split("_")[0]

    @cached_property
    def name(self) -> str:
        """Its title without the number, or what its file's name says."""
        first = self.node.cells[0].source if self.node and self.node.cells else ""
        if title := re.match(r"#\s+(?:\d+\W+)?(.+)", first):
            return re.sub(r"[*`]", "", title[1]).strip()
        words = self.stem.removeprefix(self.number).replace("_", " ").strip()
        return words[:1].upper() + words[1:]

    @property
    def status(self) -> str:
        """One word for the run of it."""
        return "done" if self.ok else "failed"

    @property
    def time(self) -> str:
        """How long it ran, as minutes and seconds."""
        return clock(self.seconds)

    @property
    def verdicts(self) -> Counter[str]:
        """How many claims got each verdict."""
        return Counter(claim["verdict"] for claim in self.claims)

    @property
    def held(self) -> tuple[int, int]:
        """How many figures lie within tolerance, of how many that were compared."""
        figures = self.checks.get("figures", []) if self.checks.get("comparable") else []
        good = sum(within(f["value"], f["expected"], f["tolerance"]) for f in figures)
        return good, len(figures)

    @property
    def figures(self) -> list[Path]:
        """Its saved figures."""
        return sorted((self.folder / "figures").glob("*.png"))

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """All parameters that it ran with; where it has none to read, what it was given."""
        if self.node is None:
            return {}
        try:
            defaults = default_parameters(self.node.cells)
        except (ParameterError, SyntaxError):
            defaults = {}
        given = dict(self.node.metadata.get("papermill", {}).get("parameters", {}))
        return {k: v for k, v in (defaults | given).items() if k != "out"}  # a path of one machine

    @cached_property
    def seeds(self) -> dict[str, list[int]]:
        """The seeds that its results carry; nothing where they carry none."""
        path = self.folder / "results.json"
        results = json.loads(path.read_text(encoding="utf-8")) if self.ok else []
        found = sorted({one["seed"] for one in results if one.get("seed") is not None})
        return {"seeds of the results": found} if found else {}

    @cached_property
    def paper(self) -> dict[str, Any] | None:
        """The paper that it replicates, as transcribed in mmlib/papers; None where it has none."""
        for word in self.stem.split("_"):
            path = PACKAGE / "papers" / word / "tables.json"
            if path.exists():
                return json.loads(path.read_text(encoding="utf-8")) | {"id": word}
        return None


@dataclass(frozen=True)
class Run:
    """A run's folder as read. recorded: tier -> stem -> content of NN_claims.json."""

    folder: Path
    summary: dict[str, Any]
    notebooks: list[Notebook]
    recorded: dict[str, dict[str, dict[str, Any]]]

    @property
    def tier(self) -> str:
        """The tier that it ran on."""
        return str(self.summary["parameters"].get("tier", "world"))


def read_run(folder: Path, expected: Path | None = None) -> Run:
    """Read a run's folder and the recorded claims of its notebooks.

    Args:
        folder: of `mmlib run`, with its summary.json.
        expected: folder of recorded claims, `<tier>/NN_claims.json`; default: that of the
            notebooks beside the package, else here.

    Raises:
        ReportError: names the file that is missing or broken, and what to do.
    """
    again = f"run it again: mmlib run --out {folder}"
    if not (folder / "summary.json").is_file():
        raise ReportError(f"{folder} holds no summary.json, so it is no finished run; {again}")
    summary = _read_json(folder / "summary.json", dict, again)
    missing = {"ok", "mmlib", "parameters", "notebooks"} - summary.keys()
    if missing:
        raise ReportError(f"{folder / 'summary.json'} lacks {', '.join(sorted(missing))}; {again}")
    notebooks = [_read_notebook(folder, entry, again) for entry in summary["notebooks"]]
    if not notebooks:
        raise ReportError(f"{folder / 'summary.json'} names no notebook; {again}")
    if expected is None:
        expected = notebooks_dir() / "expected"
    return Run(folder, summary, notebooks, recorded_claims(expected, [n.stem for n in notebooks]))


def _read_json(path: Path, kind: type, mend: str) -> Any:
    """The content of a JSON file, or a ReportError that says how to mend it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read ({error}); {mend}") from None
    if not isinstance(content, kind):
        found = type(content).__name__
        raise ReportError(f"{path} holds a {found}, not a {kind.__name__}; {mend}")
    return content


def _read_notebook(folder: Path, entry: Mapping[str, Any], again: str) -> Notebook:
    """One notebook of the summary; only one that failed may lack its files."""
    known = {"notebook", "executed", "out", "seconds", "problems", "claims", "checks", "ok"}
    if missing := known - entry.keys():
        raise ReportError(
            f"{folder / 'summary.json'}: a notebook lacks {', '.join(sorted(missing))}; {again}"
        )
    stem, ok = entry["notebook"], entry["ok"]
    executed, out = folder / entry["executed"], folder / entry["out"]
    node, claims, checks = None, [], {}
    if executed.exists():
        try:
            node = nbformat.read(executed, as_version=4)
        except Exception as error:  # nbformat raises many kinds
            if ok:
                raise ReportError(f"{executed} is no notebook ({error}); {again}") from None
    elif ok:
        raise ReportError(f"{executed} is missing, though summary.json says it ran; {again}")
    if ok:
        claims = _read_json(out / "claims.json", list, again)
        checks = _read_json(out / "checks.json", dict, again)
        _read_json(out / "results.json", list, again)
        faults = claim_problems(claims) if claims or entry["claims"] else []
        if faults:
            raise ReportError(f"{out / 'claims.json'}: {faults[0]}; {again}")
        for name, content in (("claims", claims), ("checks", checks)):
            if content != entry[name]:
                raise ReportError(
                    f"{out / name}.json is not what summary.json holds: it was changed after the "
                    f"run; {again}"
                )
    return Notebook(stem, ok, entry["seconds"], entry["problems"], claims, checks, out, node)


def recorded_claims(expected: Path, stems: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Recorded claims of notebooks: tier -> stem -> {"how", "notebook", "claims"}.

    Reads `expected/<tier>/NN_claims.json`; not every tier has every notebook. Raises ReportError
    for a file that is broken.
    """
    recorded: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(expected.glob("*/[0-9][0-9]_claims.json")):
        mend = "record it again with ci/make_expected.py"
        content = _read_json(path, dict, mend)
        missing = {"how", "notebook", "claims"} - content.keys()
        faults = [f"lacks {', '.join(sorted(missing))}"] if missing else None
        faults = faults or claim_problems(content["claims"])
        if faults:
            raise ReportError(f"{path}: {faults[0]}; {mend}")
        if content["notebook"] in stems:
            recorded.setdefault(path.parent.name, {})[content["notebook"]] = content
    return {t: recorded[t] for t in sorted(recorded, key=lambda t: (*TIME_LIMITS, t).index(t))}


# The ledger ---------------------------------------------------------------------------------


def ledger(run: Run) -> dict[str, Any]:
    """The claims of a run, as its notebooks wrote them, and the recorded ones of all tiers."""
    return {
        "tier": run.tier,
        "parameters": run.summary["parameters"],
        "notebooks": {n.stem: n.claims for n in run.notebooks},
        "recorded": run.recorded,
    }


def ledger_rows(run: Run) -> list[dict[str, Any]]:
    """The ledger as flat rows, LEDGER_COLUMNS each; parts are JSON."""
    sources = [("run", run.tier, n.stem, n.claims) for n in run.notebooks]
    for tier, notebooks in run.recorded.items():
        sources += [("recorded", tier, stem, one["claims"]) for stem, one in notebooks.items()]
    return [
        {"source": source, "tier": tier, "notebook": stem}
        | {key: claim.get(key) for key in LEDGER_COLUMNS[3:]}
        | {"parts": json.dumps(claim.get("parts", {}), ensure_ascii=False)}
        for source, tier, stem, claims in sources
        for claim in claims
    ]


def claim_rows(run: Run, notebook: Notebook) -> list[dict[str, Any]]:
    """A row for each claim of a notebook: what it says, and how it fared here and in each tier."""
    own = {claim["id"]: claim for claim in notebook.claims}
    records = {
        tier: {claim["id"]: claim for claim in notebooks[notebook.stem]["claims"]}
        for tier, notebooks in run.recorded.items()
        if notebook.stem in notebooks
    }
    every = list(dict.fromkeys([*own, *(i for claims in records.values() for i in claims)]))
    rows = []
    for name in every:
        fared = [own.get(name), *(claims.get(name) for claims in records.values())]
        same = records.get(run.tier, {}).get(name)
        differs = bool(same and name in own and same["verdict"] != own[name]["verdict"])
        said = next(claim for claim in fared if claim)
        rows.append({"id": name, "said": said, "fared": fared, "differs": differs})
    return rows


# About --------------------------------------------------------------------------------------


def run_facts(run: Run) -> dict[str, Any]:
    """What a run recorded of itself: all of its summary but the notebooks, and when it ran."""
    facts = {k: v for k, v in run.summary.items() if k not in ("ok", "notebooks", "parameters")}
    facts |= {f"parameter {name}": value for name, value in run.summary["parameters"].items()}
    stamps = [n.node.metadata.get("papermill", {}) for n in run.notebooks if n.node]
    for word, pick in (("start_time", min), ("end_time", max)):
        times = [one[word] for one in stamps if one.get(word)]
        if times:
            facts[word.replace("_", " ")] = pick(times)
    return facts


def environment() -> dict[str, str]:
    """Versions and the machine that writes the report, and the commit of a git checkout."""
    found = {"mmlib": __version__, "Python": sys.version.split()[0]}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["platform"] = platform.platform()
    found["commit"] = _commit()
    return found


def _commit() -> str:
    """The commit of the checkout that the package lies in, or why there is none."""
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return "not a git checkout"
    try:
        told = [
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown: git does not answer"
    commit, changed = (one.stdout.strip() for one in told)
    return commit + (", with changes that are not committed" if changed else "")


def citation() -> dict[str, Any] | None:
    """The content of CITATION.cff beside the package, with its text; None where it is not."""
    path = PACKAGE.parent / "CITATION.cff"
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    return yaml.safe_load(text) | {"text": text}


def authors_text(authors: Sequence[Mapping[str, str] | str]) -> str:
    """Names in one line, from a CITATION.cff or a transcribed paper."""
    names = [
        one
        if isinstance(one, str)
        else one.get("name") or f"{one.get('given-names', '')} {one['family-names']}".strip()
        for one in authors
    ]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


# The site -----------------------------------------------------------------------------------


def write(run: Path, out: Path | None = None, expected: Path | None = None) -> Path:
    """Write the site of a run; an older report in its place is replaced in one step.

    Args:
        run: folder of `mmlib run`; may be a link to it.
        out: the site's folder, `report` in the run's folder by default.
        expected: see `read_run`.

    Returns:
        The path of its index.html.

    Raises:
        ReportError: for a run that cannot be read, and for an `out` that holds something else.
    """
    if not run.is_dir():
        raise ReportError(f"there is no folder {run}; a report needs the folder of a run")
    folder = run.resolve()
    out = (out or folder / "report").resolve()
    _check_replaceable(out)
    content = read_run(folder, expected)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _write_pages(content, partial)
        _replace(out, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out / "index.html"


def _check_replaceable(out: Path) -> None:
    """Raise ReportError where `out` holds anything but a report."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ReportError(f"{out} is a file; name a folder that is new or holds a report")
    index = out / "index.html"
    known = index.is_file() and GENERATOR in index.read_text(encoding="utf-8", errors="replace")
    if any(out.iterdir()) and not known:
        raise ReportError(
            f"{out} holds something other than a report of mmlib, so it is left as it is; "
            "name another folder or remove that one"
        )


def _replace(out: Path, new: Path) -> None:
    """Put `new` in the place of `out`; where that fails, `out` stays as it was."""
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    if out.exists():
        out.rename(old)
    try:
        new.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write_pages(run: Run, site: Path) -> None:
    """Write all files of the site into an empty folder."""
    stems = [n.stem for n in run.notebooks]
    rendered = {
        n.stem: render(n.node, n.stem, stems) if n.node else NotebookPage() for n in run.notebooks
    }
    shown = {n.stem: _figures(n, rendered[n.stem], site) for n in run.notebooks}
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(SITE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters |= {"effect": effect_text, "authors": authors_text, "html": Markup}
    env.filters["badge"] = lambda verdict: verdict.replace(" ", "-")
    env.filters["plain"] = value_text
    env.globals |= {
        "run": run, "generator": Markup(GENERATOR), "verdicts": VERDICTS, "pages": rendered,
        "name": run.folder.name,
    }  # fmt: skip

    def page(name: str, template: str, **values: Any) -> None:
        text = env.get_template(template).render(page=name, **values)
        (site / name).write_text(text, encoding="utf-8")

    page("index.html", "index.html.j2")
    for notebook in run.notebooks:
        page(f"{notebook.stem}.html", "notebook.html.j2", notebook=notebook)
        for path, content in rendered[notebook.stem].files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(content)
        for file in COPIED:
            if notebook.ok and (notebook.folder / file).exists():
                target = site / "data" / notebook.stem / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(notebook.folder / file, target)
    page("ledger.html", "ledger.html.j2", rows={n.stem: claim_rows(run, n) for n in run.notebooks})
    page("tables.html", "tables.html.j2")
    page("papers.html", "papers.html.j2")
    page("figures.html", "figures.html.j2", shown=shown)
    about = {"run_facts": run_facts(run), "environment": environment(), "citation": citation()}
    page("about.html", "about.html.j2", **about)
    _write_ledger(run, site)
    if (PACKAGE.parent / "CITATION.cff").exists():
        shutil.copyfile(PACKAGE.parent / "CITATION.cff", site / "CITATION.cff")
    style = (SITE / "report.css").read_text(encoding="utf-8")
    code = HtmlFormatter(style="default", nobackground=True).get_style_defs(".highlight")
    (site / "report.css").write_text(f"{style}\n{code}\n", encoding="utf-8")


def _write_ledger(run: Run, site: Path) -> None:
    """ledger.json, as the notebooks wrote it, and ledger.csv, the same in rows."""
    text = json.dumps(ledger(run), indent=1, ensure_ascii=False)
    (site / "ledger.json").write_text(text + "\n", encoding="utf-8")
    with (site / "ledger.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, LEDGER_COLUMNS)
        writer.writeheader()
        writer.writerows(ledger_rows(run))


def _figures(notebook: Notebook, page: NotebookPage, site: Path) -> list[dict[str, Any]]:
    """Copy a notebook's figures; returns what is said of each."""
    shown = []
    for figure in notebook.figures:
        target = site / "figures" / notebook.stem / figure.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(figure, target)
        source = next((f for f in page.figures if f.stem.fullmatch(figure.stem)), None)
        words = re.sub(r"[_-]+", " ", figure.stem)
        section = f", from “{source.section}”" if source else ""
        shown.append(
            {
                "path": target.relative_to(site).as_posix(),
                "name": figure.stem,
                "alt": f"Figure {words} of notebook {notebook.number}{section}",
                "size": image_size(figure.read_bytes()),
                "source": source,
            }
        )
    return shown


def value_text(value: Any) -> str:
    """A value of a parameter or a printed table, as text."""
    if value is None or value == "":
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
