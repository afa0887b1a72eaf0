"""The committed notebooks, and the checks that hold them to the rules and to the record."""

import re
import shutil
import subprocess
import sys
from copy import deepcopy

import nbformat
import pytest
from nbformat import from_dict
from nbformat.v4 import new_output
from scripts import NOTEBOOKS, REFUSED, ROOT, load
from tiny_notebooks import (
    PARAMETERS,
    committed_notebook,
    exercise,
    five_exercises,
    stdout,
    write_answers,
)

from mmlib.suite import course

hygiene = load("ci/hygiene.py")


# What is committed


# Words at most, and how hard the exercises are: Easy, Medium, Hard.
SIZES = {"00": (3300, "EEEMH"), "01": (3300, "EEMMH"), "02": (3300, "EEMMH"),
         "03": (3300, "EEMMH"), "04": (3300, "EEEMH")}  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebook_needs_no_fix_keeps_to_its_size_and_shows_a_picture_first(path):
    notebook = nbformat.read(path, as_version=4)  # its rules are held by `ci/hygiene.py check`
    hygiene.fix(fixed := deepcopy(notebook))
    assert fixed == notebook
    cells = notebook.cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    words = len(re.sub("<!--.*?-->", "", prose).split())  # as it is read
    most, levels = SIZES[path.stem[:2]]
    assert words <= most
    assert len(cells) <= 80
    assert any("image/png" in o.get("data", {}) for c in cells[:3] for o in c.get("outputs", []))
    tables = [o.get("data", {}).get("text/html", "") for c in cells for o in c.get("outputs", [])]
    assert sum(str(table).count("<tr") for table in tables) <= 120
    found = course.exercises(cells)
    assert "".join(one.difficulty[:1] for one in found) == levels
    assert all(int(one.minutes) > 0 for one in found)


# The rules

CHECKED = """\
parameters.use("04", globals())
print('AUC: within tolerance')"""


@pytest.fixture
def committed(tmp_path):
    """A notebook without fault, and the path that it would have."""
    path = tmp_path / "04_links.ipynb"
    nb = committed_notebook(
        ("import json", [], []),
        (PARAMETERS, ["parameters"], []),
        ("print(tier, seeds, device, out, evidence)", [], stdout("world 3\n")),
        (CHECKED, ["nbval-check-output"], stdout("AUC: within tolerance")),
    )
    nb.cells += five_exercises(count=5)
    return nb, path


def test_notebook_without_fault_has_none(committed):
    assert hygiene.problems(*committed) == []
    cell(1, source="import re\n" * 35)(committed[0])  # imports alone may be more
    assert hygiene.problems(*committed) == []


def cell(number, **fields):
    """Gives fields of a cell other values."""
    return lambda nb: nb.cells[number].update(fields)


def tagged(number, *tags, **metadata):
    return cell(number, metadata=from_dict({"tags": list(tags), **metadata}))


def text(number, old, new):
    """Changes the source of a cell."""
    return lambda nb: nb.cells[number].update(source=nb.cells[number].source.replace(old, new, 1))


def gone(where):
    return lambda nb: nb.cells.__delitem__(where)


FOLDED = {"jupyter": {"source_hidden": True}}
ERROR = new_output("error", ename="ValueError", evalue="", traceback=[])
WARNING = new_output("stream", name="stderr", text="a warning\n")
ADDRESS = new_output("display_data", data={"text/plain": "<Line at 0x7f3a12bc>"})
SVG = new_output(
    "display_data",
    data={"image/svg+xml": "<svg/>", "text/plain": "<Figure size 640x480 with 1 Axes>"},
)


# Cells 3, 5 and 7 are code. The first exercise is 8 (question), 9, 10; the last begins at 20.
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cell(3, execution_count=7), "execution counts are [1, 7, 3, 4, 5"),
        (cell(5, execution_count=None, outputs=[]), "execution counts are [1, 2, None, 4, 5"),
        (cell(7, outputs=[]), "nothing would be compared"),
        (tagged(7), "no cell is tagged nbval-check-output"),
        (cell(7, outputs=stdout("outside")), "a figure is not stated to be within tolerance"),
        (lambda nb: nb.metadata.kernelspec.update(name="mine"), "the kernelspec is not python3"),
        (lambda nb: nb.metadata.update(widgets={}), "metadata holds widgets"),
        (cell(1, metadata={"papermill": {}}), "cell 2: metadata papermill"),
        (cell(5, outputs=[ERROR]), "cell 6: failed with ValueError"),
        (cell(5, outputs=[WARNING]), "cell 6: wrote to stderr: a warning"),
        (cell(5, outputs=stdout("saved to /home/somebody/runs")), "cell 6: a path of this machine"),
        (cell(5, outputs=[ADDRESS]), "cell 6: an address in memory"),
        (cell(5, outputs=[SVG]), "cell 6: an output of type image/svg+xml"),
        (text(5, "print", "record.photographs()\nprint"), "cell 6: shows photographs, which are"),
        (text(3, "seeds = 3\n", ""), "no parameter seeds"),
        (cell(5, source="print(tier, seeds, device, out)"), "parameter evidence is never read"),
        (text(3, "seeds = 3", "seeds = 3  # with out = 'x'"), "papermill loses the parameter seed"),
        (text(7, 'parameters.use("04"', 'print("04"'), "no cell calls parameters.use"),
        (text(7, "parameters.use", "# parameters.use"), "no cell calls parameters.use"),
        (text(5, ")", ")" + "\nx = 1" * 15), "cell 6: 16 lines of code"),
        (cell(1, source="import re\n" * 36), "cell 2: 36 lines of code, 36 in all"),
        (cell(1, source="import re\n" * 15 + "x = 1"), "cell 2: 16 lines of code, 16 in all"),
        (gone(4), "no prose between the code cells 4 and 5"),
        (text(7, "print", "import os\nprint"), "imports belong at the top"),
        (tagged(5, "nbval-skip"), "cell 6: tag nbval-skip"),
        (text(7, "print", "# NBVAL_IGNORE_OUTPUT\nprint"), "cell 8: a marker of nbval's"),
        (gone(slice(20, None)), "4 exercises; there must be at least 5"),
        (tagged(7, "nbval-check-output", "check", **FOLDED), "cell 8: check (code); an"),
        (cell(11, source="### Exercise 2: a title"), "are numbered [1, None, 3, 4, 5]; write"),
        (cell(11, source="### Exercise 3. A title"), "exercises are numbered [1, 3, 3, 4, 5]"),
        (tagged(10, "check"), "cell 11: a check without jupyter.source_hidden"),
        (tagged(9, "blank", "check", **FOLDED), "9: exercise (markdown), cell 10: blank check ("),
    ],
)
def test_each_fault_is_named(committed, spoil, said):
    nb, path = committed
    spoil(nb)
    found = hygiene.problems(nb, path)
    assert len(found) == 1
    assert said in found[0]


def test_fix_removes_what_a_run_leaves(committed):
    clean, path = committed
    nb = deepcopy(clean)
    nb.metadata["papermill"] = nb.metadata["widgets"] = {}
    nb.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    nb.metadata["kernelspec"] = {"name": "mine", "display_name": "Mine", "language": "python"}
    for cell in nb.cells:
        cell.metadata |= {"papermill": {}, "execution": {}, "tags": cell.metadata.get("tags", [])}
    bar = "100%|██████████| 5/5 [00:00<00:00, 9.96it/s]\n"
    view = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "0%|"}
    nb.cells[5].outputs.append(new_output("stream", name="stderr", text=bar))
    nb.cells[5].outputs.append(new_output("display_data", data=view))
    hygiene.fix(nb)
    assert nb == clean
    nb.cells[5].outputs.append(WARNING)
    hygiene.fix(nb)
    assert "a warning" in hygiene.problems(nb, path)[0]  # for all to see


# nbval on small notebooks: the flags and hooks that the real ones are checked with

CHECK = """\
from types import SimpleNamespace
import pandas as pd
from mmlib.core import evidence, regression
head = {{"tier": "world", "paper": "tiny", "versions": {{"torch": "of another"}}, "data": {{}}}}
head["machine"] = evidence.machine()
means = pd.Series([{auc} - 1, {auc}, {auc} + 1])
record = SimpleNamespace(header=head, means=lambda *_: means, recording_of=lambda *_: head)
record.other_features = ""
check = regression.check_paired({{("coco", "AP", 1, "AUC"): 93.1}}, record, {{}})
regression.print_check(check)
"""
GOOD = "coco/AP/AUC, seed 1: within tolerance\n"
NOISE = """\
import time
from tqdm import tqdm
for step in tqdm(range(3000)):
    print(time.time(), flush=True)
object()
"""
PICTURE = """\
import warnings
import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats
set_matplotlib_formats("svg")
warnings.warn("from a temporary file")
print("same")
plt.plot([1, 2])
plt.show()
"""


EXERCISES = (  # blank, worked answer, check; all but the first two are badly made
    ("answer_1 = ...", "answer_1 = 3", "course.number(1, answer_1, 3, 0.1)"),
    ("def twice(x):\n    ...", "def twice(x):\n    return 2 * x",
     "course.function(2, twice, lambda x: 2 * x, [(1,)])"),
    ("answer_3 = 3", "answer_3 = 3", "course.number(3, answer_3, 3, 0.1)"),
    ("answer_4 = ...", "three = 3\nanswer_4 = three", "course.number(4, answer_4, three, 0.1)"),
    ("answer_5 = None + 1", "answer_5 = 3", "course.number(5, answer_5, 3, 0.1)"),
    ("answer_6 = ...", "answer_6 = 3", "course.number(5, answer_6, 3, 0.1)"),
    ("answer_7 = ...", "answer_7 = [3]", "course.number(7, len(answer_7), 1, 0.1)"),
    ("answer_8 = ...", "answer_8 = 4", "course.number(8, answer_8, 3, 0.1)"),
    ("answer_9 = ...", "answer_9 = ...", "course.number(9, answer_9, 3, 0.1)"),
)  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What nbval says of each cell of small notebooks: {(notebook, cell): outcome}."""
    folder = tmp_path_factory.mktemp("repository") / "notebooks"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / "conftest.py", folder)

    def check(auc):
        return (CHECK.format(auc=auc), ["nbval-check-output"], stdout(GOOD))

    other = new_output("stream", name="stderr", text="the warning of another process")
    picture = [*stdout("same\n"), other, SVG]
    notebooks = {
        "01_figures": [
            check(93.5),
            (NOISE, [], stdout("0.0\n")),
            (PICTURE, ["nbval-check-output"], picture),
            check(163.5),
        ],
        "02_dead": [("import os\nos._exit(1)", [], []), ("print(1)", [], stdout("1\n"))],
    }
    for name, cells in notebooks.items():
        nb = committed_notebook(*cells)
        tasks = EXERCISES[:1] if name == "02_dead" else EXERCISES
        nb.cells += committed_notebook(("from mmlib.suite import course", [], [])).cells
        for n, (blank, _, checked) in enumerate(tasks, 1):
            nb.cells += exercise(n, checked, blank)
        write_answers(folder / name, {n: answer for n, (_, answer, _) in enumerate(tasks, 1)})
        nbformat.write(nb, folder / f"{name}.ipynb")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--nbval-lax"]
    command += ["-v", "-p", "no:cacheprovider", "--color=no", f"--rootdir={folder}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    cells = re.findall(r"(\w+)::ipynb::Cell (\d) (\w+)", done.stdout)
    tried = re.findall(r"(\w+)\.ipynb::(exercise \d) (\w+)", done.stdout)
    outcomes = {(name, int(cell)): outcome for name, cell, outcome in cells}
    return outcomes | {(name, n): outcome for name, n, outcome in tried} | {"told": done.stdout}


@pytest.mark.parametrize(("notebook", "cell", "outcome", "said"), REFUSED["nbval"])
def test_what_nbval_says_of_each_cell_and_exercise(verdicts, notebook, cell, outcome, said):
    assert verdicts[notebook, cell] == outcome
    assert re.search(said, verdicts["told"])


# Executing in place


def test_execute_replaces_the_outputs_in_place(committed, monkeypatch):
    nb, path = committed
    nbformat.write(nb, path)
    done = deepcopy(nb)
    done.cells[5].outputs = stdout("new\n")
    done.cells[5].metadata["papermill"] = {}
    monkeypatch.setattr(hygiene.runner, "execute", lambda _, out, *__: nbformat.write(done, out))
    assert hygiene.main(["execute", str(path)]) == 0
    found = nbformat.read(path, as_version=4)
    assert found.cells[5].outputs == stdout("new\n")
    assert [cell.id for cell in found.cells] == [cell.id for cell in nb.cells]
    assert not found.cells[5].metadata


def test_execute_leaves_the_file_when_a_cell_fails(tmp_path, capsys, monkeypatch):
    path = tmp_path / "00_start.ipynb"
    nbformat.write(committed_notebook((PARAMETERS, ["parameters"], [])), path)
    before = path.read_bytes()
    monkeypatch.setattr(hygiene.runner, "execute", lambda *_: "cell 3 failed: ZeroDivisionError")
    assert hygiene.main(["execute", str(path)]) == 1
    assert path.read_bytes() == before
    assert "00_start.ipynb: cell 3 failed: ZeroDivisionError" in capsys.readouterr().err
