"""Small notebooks that keep the rules of the real ones, for the tests of the runner."""

import json
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

PARAMETERS = """\
tier = "world"
seeds = 3
device = "auto"
out = ""
evidence = "recorded"
"""
SETTINGS = """\
from pathlib import Path
folder = Path(out or "../runs/lab/tiny")
settings = (tier, seeds, device, evidence)
"""
RESULTS = """\
import json
(folder / "figures").mkdir(parents=True, exist_ok=True)
(folder / "figures" / "one.png").write_bytes(b"png")
(folder / "results.json").write_text(json.dumps([{"system": "AP", "value": 93.0}]))
(folder / "results.csv").write_text("system,value\\nAP,93.0\\n")
"""
CLAIM = {
    "id": "structure",
    "claim": "structured beats unstructured",
    "verdict": "supported",
    "effect": 3.2,
    "low": 2.1,
    "high": 4.3,
    "unit": "AUC",
    "why": "",
}
NOT_COMPARED = {"comparable": False, "why": "a test", "figures": []}
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def judgement(claims=(CLAIM,), checks=NOT_COMPARED) -> str:
    """Source of a cell that writes claims.json and checks.json."""
    return (
        f"(folder / 'claims.json').write_text({json.dumps(list(claims))!r})\n"
        f"(folder / 'checks.json').write_text({json.dumps(checks)!r});"
    )


def write_notebook(path: Path, *sources: str, parameters: str = PARAMETERS, kernel=None) -> Path:
    """Write a notebook of a parameters cell and `sources`, not executed."""
    cells = [new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel or KERNELSPEC}), path)
    return path


def committed_notebook(*cells: tuple[str, list[str], list]) -> nbformat.NotebookNode:
    """A notebook as it is committed: prose, then a code cell, for each (source, tags, outputs)."""
    made = []
    for count, (source, tags, outputs) in enumerate(cells, 1):
        made.append(new_markdown_cell("Prose."))
        metadata = {"tags": tags} if tags else {}
        made.append(
            new_code_cell(source, metadata=metadata, outputs=outputs, execution_count=count)
        )
    metadata = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    return new_notebook(cells=made, metadata=metadata)


def stdout(text: str) -> list[nbformat.NotebookNode]:
    """The outputs of a cell that printed `text`."""
    return [new_output("stream", name="stdout", text=text)]


def exercise(number: int, check: str, blank: str = "", count: int = 1) -> list:
    """The three cells of an exercise, executed from `count` on; the blank is `answer_N = ...`."""
    name = f"Exercise {number}"
    hidden = {"jupyter": {"source_hidden": True}}
    shown = stdout(f"{name} has no answer yet: put yours in the place of ... in the cell above, ")
    return [
        new_markdown_cell(f"### {name}. A title\n\nQuestion?", metadata={"tags": ["exercise"]}),
        new_code_cell(
            blank or f"answer_{number} = ...",
            metadata={"tags": ["blank"]},
            execution_count=count,
        ),
        new_code_cell(
            check, metadata={"tags": ["check"], **hidden}, outputs=shown, execution_count=count + 1
        ),
    ]


def write_answers(notebook: Path, answers: Mapping[int, str]) -> Path:
    """Write the worked answers, by exercise, of a notebook that is given back."""
    cells = [
        f"# %% [markdown]\n# ## Exercise {n}. A title\n\n# %%\n{code}\n\n"
        f"# %% [markdown]\n# It is so,\n# because of {n}.\n\n"
        for n, code in answers.items()
    ]
    path = notebook.parent / "answers" / f"{notebook.stem[:2]}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# %% [markdown]\n# # Worked answers\n\n" + "".join(cells))
    return notebook


def five_exercises(count: int) -> list[nbformat.NotebookNode]:
    """Five exercises about numbers, as committed; the first cell is executed as number `count`."""
    return [
        cell
        for n in range(5)
        for cell in exercise(
            n + 1, f"course.number({n + 1}, answer_{n + 1}, {n}, 0.1)", count=count + 2 * n
        )
    ]


FIVE = {n: f"answer_{n} = {n - 1}" for n in range(1, 6)}  # their answers


LESSON = {  # answer and check of each exercise
    1: ("answer_1 = facts['links']", "course.number(1, answer_1, facts['links'], 0.1)"),
    2: ("answer_2 = 'AP'", "course.choice(2, answer_2, 'AP', {'DC': 'it lets images repeat'})"),
    3: (
        "def twice(x):\n    return 2 * x",
        "def plain(f):\n    return lambda x: f(x)\n\n\n"
        "# The truth.\ncases = [(1,), (torch.ones(2),)]\n"
        "course.function(3, plain(twice), lambda x: 2 * x, cases, wrong={'a square': square})",
    ),
}


def lesson(path: Path) -> Path:
    """Write a notebook of those three exercises."""
    nb = committed_notebook(
        ("import torch\nfrom mmlib.suite import course", [], []),
        (PARAMETERS, ["parameters"], []),
        ("facts = {'links': 5 if tier == 'world' else 0}\nprint('before')", [], stdout("before\n")),
        ("def square(x):\n    return x * x", [], []),
    )
    for n, (_, check) in LESSON.items():
        blank = "def twice(x):\n    ..." if n == 3 else ""
        question, *cells = exercise(n, check, blank, count=3 + 2 * n)
        question.source = f"### Exercise {n}. A title\n\n*Medium, {5 * n} minutes.* Question?"
        nb.cells += [question, *cells]
    nb.cells += committed_notebook(("print('after')", [], stdout("after\n"))).cells
    write_answers(path, {n: answer for n, (answer, _) in LESSON.items()})
    nbformat.write(nb, path)
    return path
