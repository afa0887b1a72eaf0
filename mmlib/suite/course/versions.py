"""Copies of a course's notebooks: for students, with the worked answers, for nbgrader."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import nbformat
from nbformat.v4 import new_markdown_cell

from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE, notebooks_dir, write_atomic
from mmlib.suite.course.form import Teacher, read_teacher

Version = Literal["student", "answers", "nbgrader"]
# To answers or a page of the repository, which no folder of a course has.
LINK = re.compile(r"\[([^\]]+)\]\((answers/|\.\./)[^)]*\)")
POINTS = {"Easy": 1, "Medium": 2, "Hard": 3}
UNMARKED = {"schema_version": 3, **dict.fromkeys(("grade", "solution", "locked", "task"), False)}
STUB = b'c = get_config()\nc.ClearSolutions.code_stub = {"python": "# Put your answer above."}\n'
PACKED = ("mmlib", "evidence", "pyproject.toml", "requirements.txt", "LICENSE", "Makefile")
README = b"""\
# A course in image-text models

`make lab` installs what is needed (once, about 5 GB) and opens the first notebook in JupyterLab.
"""


def write(
    version: Version, out: Path, notebooks: Sequence[Path],
    pack: bool = False, seed: int | None = None,
) -> tuple[list[Path], list[Path]]:  # fmt: skip
    """Copy notebooks into a folder.

    Students get them as they are; with the answers, these stand in the place of the blanks. For
    nbgrader, each notebook is an assignment in `source`. A link to a page of the repository becomes
    plain text. pack: also the package, its evidence and what installs them; notebooks go to
    `notebooks`. seed: as of `read_teacher`. A notebook that is there and differs, such as one with
    a student's work, stays as it is.
    Returns the notebooks written, and those that stay. Raises DataError where a notebook cannot
    be read or has an incomplete exercise, or `out` is no folder or holds something else than a
    pack; nothing is written then.
    """
    folder = {"nbgrader": "source/{0}/"}.get(version, "notebooks/" if pack else "")
    teachers = {out / f"{folder}{p.name}".format(p.stem): read_teacher(p, seed) for p in notebooks}
    if out.exists() and not (out.is_dir() and (not pack or (out / "mmlib").is_dir())):
        raise DataError(f"{out} is something else; name a new folder, or one of an earlier call")
    copies = {path: _copy(teacher, version) for path, teacher in teachers.items()}
    stay = [p for p, content in copies.items() if p.exists() and p.read_bytes() != content]
    copies = {path: content for path, content in copies.items() if path not in stay}
    others = {"nbgrader_config.py": STUB} if version == "nbgrader" else {}
    if version == "answers":
        others = {p.name: p.read_bytes() for p in notebooks_dir().glob("answers/*.md")}
    others |= _packed() if pack else {}
    for path, content in ({out / name: one for name, one in others.items()} | copies).items():
        write_atomic(path, partial(Path.write_bytes, data=content))
    return [*copies], stay


def _copy(teacher: Teacher, version: Version) -> bytes:
    """A notebook's copy."""
    notebook = teacher.notebook
    for task in teacher.exercises if version != "student" else ():
        question, blank, check = task.question, task.blank, task.check
        for cell in (blank, check):
            cell.outputs, cell.execution_count = [], None
        if version == "answers":
            blank.source, blank.metadata.tags = task.answer, ["answer"]
            explanation = new_markdown_cell(task.explanation, id=f"explanation-{task.number}")
            notebook.cells.insert(notebook.cells.index(check) + 1, explanation)
            continue
        # What is between these marks nbgrader cuts out for students.
        blank.source += f"\n### BEGIN SOLUTION\n{task.answer}\n### END SOLUTION"
        asked = f"assert {task.number} in course.solved"
        check.source += f"\n### BEGIN HIDDEN TESTS\n{asked}\n### END HIDDEN TESTS"
        grade = {"grade": True, "locked": True, "points": POINTS.get(task.difficulty, 1)}
        for cell, kind, marks in (
            (question, "question", {"locked": True}),
            (blank, "answer", {"solution": True}),
            (check, "check", grade),
        ):
            cell.metadata["nbgrader"] = {**UNMARKED, "grade_id": f"{kind}-{task.number}", **marks}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(r"\1", cell.source)
    return (nbformat.writes(notebook) + "\n").encode()


def _packed() -> dict[str, bytes]:
    """What a folder needs to run by itself. Raises DataError outside a clone."""
    root = PACKAGE.parent
    if not all((root / name).exists() for name in PACKED):
        raise DataError("no evidence beside the package: pack in a clone of the repository")
    paths = [path for name in PACKED for path in (root / name, *(root / name).rglob("*"))]
    files = {p.relative_to(root).as_posix(): p for p in paths if p.is_file() and p.suffix != ".pyc"}
    return {"README.md": README} | {name: path.read_bytes() for name, path in files.items()}
