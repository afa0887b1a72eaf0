"""Keep notebooks fit to commit.

    python ci/hygiene.py check     say what is wrong with them
    python ci/hygiene.py fix       remove what executing left behind (metadata, progress bars)
    python ci/hygiene.py execute   execute them in place, with defaults and without data, then fix

Each takes names of notebooks; without, all of the folder notebooks/.
"""

import argparse
import base64
import io
import os
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

import nbformat
import pages
import papermill
from PIL import Image

from mmlib.core.paths import write_atomic
from mmlib.suite import course, parameters, record, runner

ROOT = Path(__file__).resolve().parent.parent
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
PARAMETERS = {"tier", "evidence", "seeds", "device", "out"}
CHECKED = re.compile(r"^parameters\.use\(\"\d\d\", globals\(\)\)$", re.MULTILINE)
KEPT_METADATA = {"tags", "jupyter"}
FORBIDDEN_TAGS = set(
    "injected-parameters nbval-skip nbval-ignore-output nbval-raises-exception raises-exception "
    "skip-execution".split()
)
CHECK_TAG = "nbval-check-output"
WITHIN = "within tolerance"
CODE_LINES, ALL_LINES = 15, 25  # a cell's lines of code, and with comments and blank lines
IMPORT_LINES = 35  # of a cell of imports alone, which nobody reads line by line
MEGABYTES = 3
PNG, WIDGET = "image/png", "application/vnd.jupyter.widget-view+json"
EXERCISES = 5  # a notebook has at least as many
HEADING = re.compile(r"### Exercise (\d+)\. \S")
HIDDEN = {"check"}  # code cells whose source is folded, and that need no prose before
PROGRESS = re.compile(r"\d+%\||\d(it/s|s/it)")
MACHINE = re.compile(r"/(home|Users|root|tmp|var/folders)/|[A-Z]:\\Users|" + re.escape(str(ROOT)))
ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")


def fix(nb: nbformat.NotebookNode) -> None:
    """Remove from `nb`, in place, what changes from run to run or names this machine."""
    metadata = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    nb.metadata = nbformat.from_dict(metadata)
    for cell in nb.cells:
        kept = {
            k: v for k, v in cell.metadata.items() if k in KEPT_METADATA and (k, v) != ("tags", [])
        }
        cell.metadata = nbformat.from_dict(kept)
        for output in list(cell.get("outputs", [])):
            data = output.get("data", {})
            lines = output.get("text", "").strip().splitlines()
            bar = output.get("name") == "stderr" and all(map(PROGRESS.search, lines))
            if bar or WIDGET in data:  # few viewers show the latter
                cell.outputs.remove(output)
            elif PNG in data:
                data[PNG] = _in_few_colours(data[PNG])


def _in_few_colours(encoded: str) -> str:
    """A picture in 256 colours, as on the study pages, where that is smaller."""
    small = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        if picture.mode == "P":  # it has them; others would be chosen anew each time
            return encoded
        pages.in_few_colours(picture).save(small, "PNG", optimize=True)
    found = base64.b64encode(small.getvalue()).decode()
    return found if len(found) < len(encoded.replace("\n", "")) else encoded


def problems(nb: nbformat.NotebookNode, path: Path) -> list[str]:
    """What is wrong with a notebook that is to be committed; `path` is where it lies."""
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        return [f"not a valid notebook: {error.message}"]
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    found = [f"metadata holds {key}" for key in nb.metadata if key in ("widgets", "papermill")]
    if nb.metadata.get("kernelspec") != KERNELSPEC:
        found.append("the kernelspec is not python3")
    found += _parameter_problems(nb) + _exercise_problems(nb.cells)
    found += [p for n, cell in enumerate(nb.cells, 1) for p in _cell_problems(cell, n)]
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"execution counts are {counts}, not 1 to {len(code)}: restart and run all")
    for n, (first, second) in enumerate(zip(nb.cells, nb.cells[1:], strict=False), 1):
        if first.cell_type == second.cell_type == "code" and not HIDDEN & _tags(second):
            found.append(f"no prose between the code cells {n} and {n + 1}")
    for cell in code[2:]:
        if re.search(r"^(import|from) ", cell.source, re.MULTILINE):
            found.append(f"imports belong at the top, not in: {cell.source.splitlines()[0]}")
    if path.exists() and path.stat().st_size > MEGABYTES * 1e6:
        found.append(f"larger than {MEGABYTES} MB")
    tagged = [cell for cell in code if CHECK_TAG in _tags(cell)]
    outputs = [output for cell in tagged for output in cell.outputs]
    printed = [output.text for output in outputs if output.output_type == "stream"]
    stated = [WITHIN in line for text in printed for line in text.splitlines()]
    if not tagged:
        found.append(f"no cell is tagged {CHECK_TAG}")
    elif not all(cell.outputs for cell in tagged):
        found.append(f"a cell tagged {CHECK_TAG} has no output, so nothing would be compared")
    elif not stated or not all(stated):
        found.append(f"a figure is not stated to be {WITHIN}")
    return found


def _tags(cell: nbformat.NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def _parameter_problems(nb: nbformat.NotebookNode) -> list[str]:
    try:
        names = set(parameters.default_parameters(nb.cells))
    except ValueError as error:
        return [str(error)]
    found = [f"no parameter {name}" for name in sorted(PARAMETERS - names)]
    unread = sorted(parameters.unread_parameters(nb.cells, names))
    found += [f"the parameter {name} is never read" for name in unread]
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(nb, path := Path(folder) / "a.ipynb")
        lost = sorted(names - set(papermill.inspect_notebook(path)))
    found += [f"papermill loses the parameter {name}: its line has another =" for name in lost]
    if not any(CHECKED.search(cell.source) for cell in nb.cells if cell.cell_type == "code"):
        found.append("no cell calls parameters.use: a misspelt choice would be a default")
    return found


def _exercise_problems(cells: list[nbformat.NotebookNode]) -> list[str]:
    """Whether there are enough exercises, each complete, numbered, and with its check folded."""
    found = course.form_faults(cells)
    headings = [HEADING.match(cell.source) for cell in cells if "exercise" in _tags(cell)]
    if len(headings) < EXERCISES:
        found.append(f"{len(headings)} exercises; there must be at least {EXERCISES}")
    numbers = [int(heading[1]) if heading else None for heading in headings]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"exercises are numbered {numbers}; write `### Exercise 1. Title`, and so on")
    for n, cell in enumerate(cells, 1):
        folded = cell.metadata.get("jupyter", {}).get("source_hidden")
        if cell.cell_type == "code" and HIDDEN & _tags(cell) and not folded:
            found.append(f"cell {n}: a check without jupyter.source_hidden")
    return found


def _cell_problems(cell: nbformat.NotebookNode, number: int) -> list[str]:
    stray = [f"metadata {key}" for key in cell.metadata if key not in KEPT_METADATA]
    found = [*stray, *(f"tag {tag}" for tag in FORBIDDEN_TAGS & _tags(cell))]
    if cell.cell_type == "code":
        lines = cell.source.splitlines()
        written = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        imports = all(re.match(r"from |import |[ )]", line) for line in written)
        most, most_in_all = (IMPORT_LINES,) * 2 if imports else (CODE_LINES, ALL_LINES)
        if len(written) > most or len(lines) > most_in_all:
            found.append(f"{len(written)} lines of code, {len(lines)} in all")
        if re.search(r"#\s*(NBVAL_|PYTEST_VALIDATE)", cell.source):
            found.append("a marker of nbval's in a comment: use the tag")
        found += [fault for output in cell.outputs for fault in _output_faults(output)]
        if "record.photographs(" in cell.source and record.DRAWN not in str(cell.outputs):
            found.append("shows photographs, which are others': ci/hygiene.py execute mends it")
    return [f"cell {number}: {fault}" for fault in found]


def _output_faults(output: nbformat.NotebookNode) -> list[str]:
    if output.output_type == "error":
        return [f"failed with {output.ename}"]
    if output.get("name") == "stderr":
        return [f"wrote to stderr: {output.text.strip()[:80]}"]
    data = output.get("data", {"text/plain": output.get("text", "")})
    odd = ("+json", "svg+xml", "pdf")
    bad = [f"an output of type {kind}" for kind in data if kind.endswith(odd)]
    text = "\n".join(str(value) for kind, value in data.items() if kind.startswith("text/"))
    for pattern, what in ((MACHINE, "a path of this machine"), (ADDRESS, "an address in memory")):
        if match := pattern.search(text):
            bad.append(f"{what} in the output: {text[match.start() :][:40]!r}")
    return bad


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("check", "fix", "execute"))
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--timeout", type=float, default=runner.TIME_LIMITS["world"])
    args = parser.parse_args(arguments)
    status = 0
    for path in args.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        found, source = [], path
        with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, MMLIB_DATA=folder):
            if args.command == "execute":
                source = Path(folder) / path.name
                failed = runner.execute(path.resolve(), source, {}, args.timeout)
                found = [failed] if failed else []
            if args.command != "check" and not found:  # a notebook that fails stays as it is
                nb = nbformat.read(source, as_version=4)
                fix(nb)
                write_atomic(path, partial(nbformat.write, nb))
        if args.command != "fix" and not found:
            found = problems(nbformat.read(path, as_version=4), path)
        for problem in found:
            print(f"{path.name}: {problem}", file=sys.stderr)
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main())
