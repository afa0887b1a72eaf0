"""Copies of a course's notebooks: for students, or with the worked answers."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import nbformat
from nbformat.v4 import new_markdown_cell

from mmlib.core.errors import DataError
from mmlib.core.paths import notebooks_dir, write_atomic
from mmlib.suite.course.form import Teacher, read_teacher

Version = Literal["student", "answers"]
# To answers or a page of the repository, which no folder of a course has.
LINK = re.compile(r"\[([^\]]+)\]\((answers/|\.\./)[^)]*\)")


def write(version: Version, out: Path, notebooks: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Copy notebooks into a folder.

    Students get them as they are; with the answers, these stand in the place of the blanks. A link
    to a page of the repository becomes plain text. A notebook that is there and differs, such as
    one with a student's work, stays as it is.
    Returns the notebooks written, and those that stay. Raises DataError where a notebook cannot
    be read or has an incomplete exercise, or `out` is no folder; nothing is written then.
    """
    teachers = {out / path.name: read_teacher(path) for path in notebooks}
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is something else; name a new folder, or one of an earlier call")
    copies = {path: _copy(teacher, version) for path, teacher in teachers.items()}
    stay = [p for p, content in copies.items() if p.exists() and p.read_bytes() != content]
    copies = {path: content for path, content in copies.items() if path not in stay}
    pages = notebooks_dir().glob("answers/*.md") if version == "answers" else ()
    for path, content in ({out / p.name: p.read_bytes() for p in pages} | copies).items():
        write_atomic(path, partial(Path.write_bytes, data=content))
    return [*copies], stay


def _copy(teacher: Teacher, version: Version) -> bytes:
    """A notebook's copy."""
    notebook = teacher.notebook
    for task in teacher.exercises if version == "answers" else ():
        for cell in (task.blank, task.check):
            cell.outputs, cell.execution_count = [], None
        task.blank.source, task.blank.metadata.tags = task.answer, ["answer"]
        explanation = new_markdown_cell(task.explanation, id=f"explanation-{task.number}")
        notebook.cells.insert(notebook.cells.index(task.check) + 1, explanation)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(r"\1", cell.source)
    return (nbformat.writes(notebook) + "\n").encode()
