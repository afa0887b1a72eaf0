"""The versions of a course: for students, for teachers, for nbgrader."""

import hashlib
import io
import json
import re
from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import nbformat
import torch

from mmlib.core.paths import PACKAGE, cache_dir, evidence_dir, write_atomic
from mmlib.suite.course.checks import CHECKS, CourseError
from mmlib.suite.course.form import Teacher, read_teacher
from mmlib.suite.course.grading import kernel

Version = Literal["student", "answers", "nbgrader"]
REMOVED = {"student": "answer", "answers": "blank", "nbgrader": "answer"}  # cells of this tag
RECORD = ".mmlib-course.json"  # what `write` made in a folder
# To a notebook beside, or to a page of the repository, which no folder of a course has.
LINK = re.compile(r"\[([^\]]+)\]\((\d\d_\w+\.ipynb|\.\./)[^)]*\)")
FOR_TEACHERS = re.compile(r"\n.*mmlib course student.*")  # a line that students do not need
EXERCISES = re.compile(r"#+ [\d. ]*Exercises\n")  # begins the cell before the first of them
GRADED = (
    "Graded is what stands between an exercise's question and its check; put imports that you "
    "need there."
)
POINTS = {"Easy": 1, "Medium": 2, "Hard": 3}
UNMARKED = {"schema_version": 3, **dict.fromkeys(("grade", "solution", "locked", "task"), False)}
STUB = b'c = get_config()\nc.ClearSolutions.code_stub = {"python": "# Put your answer above."}\n'
PACKED = ("pyproject.toml", "requirements.txt", "LICENSE", "Makefile")
README = b"""\
# A course in image-text models

`make lab` installs what is needed into `.venv` (once, about 5 GB), and opens the first notebook of
`notebooks/` in JupyterLab. Put your answers in the place of `...`, and run the check below each.
"""


def write(
    version: Version, out: Path, notebooks: Sequence[Path], pack: bool = False
) -> tuple[list[Path], list[Path]]:
    """Make one version of notebooks.

    In the students' version the answers and the outputs of checks are gone, and the folder `checks`
    holds hashes; in the teacher's the blanks are gone. For nbgrader, each notebook is an assignment
    in `source`. Every other cell keeps its id and its recorded output; a link to a notebook or
    page that the folder lacks becomes plain text. A folder that an earlier call filled may be
    filled again, also from newer notebooks; what was changed since, such as a notebook with a
    student's work, is kept. pack: also the package, its evidence and what installs them; notebooks
    go to `notebooks`.
    Returns the notebooks written, and those kept. Raises CourseError where a notebook cannot be
    read or run or has an incomplete exercise, or where `out` holds the other version, or a file of
    that name that is not of an earlier call; nothing is written then.
    """
    earlier = _earlier(out, version)
    folder = {"nbgrader": "source/{0}/"}.get(version, "notebooks/" if pack else "")
    teachers = {f"{folder}{p.name}".format(p.stem): read_teacher(p) for p in notebooks}
    packed = _packed() if pack else {}

    def begun(name: str) -> bool:
        """Whether a file of an earlier call was changed since."""
        path = out / name
        return name in earlier and path.exists() and _hash(path.read_bytes()) != earlier[name]

    kept = [*filter(begun, teachers), *filter(begun, packed)]
    names = {Path(name).name for name in (*earlier, *teachers)}
    written = {name: content for name, content in packed.items() if name not in kept}
    for name, teacher in teachers.items():
        if name not in kept:
            written |= _files(teacher, version, name, names)
    for name, content in written.items():
        path = out / name
        if name not in earlier and path.exists() and path.read_bytes() != content:
            raise CourseError(
                f"{path} is not of this command's making; name a new folder, or move that file away"
            )
    record = {"version": version, "files": earlier | {k: _hash(v) for k, v in written.items()}}
    written[RECORD] = json.dumps(record, indent=1).encode()
    if version == "nbgrader":
        written["nbgrader_config.py"] = STUB
    for name, content in written.items():
        write_atomic(out / name, partial(Path.write_bytes, data=content))
    return [out / name for name in teachers if name in written], [out / name for name in kept]


def _earlier(out: Path, version: Version) -> dict[str, str]:
    """Hashes of the files that earlier calls made in `out`."""
    if out.exists() and not out.is_dir():
        raise CourseError(f"{out} is not a folder; name another one")
    try:
        record = json.loads((out / RECORD).read_bytes())
        before, files = record["version"], dict(record["files"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(f"{out / RECORD} cannot be read ({error}); name a new folder") from None
    if before != version:
        raise CourseError(f"{out} holds the version {before!r} of a course; name another folder")
    return files


def _files(
    teacher: Teacher, version: Version, name: str, names: Container[str]
) -> dict[str, bytes]:
    """The files of one notebook by name, the notebook first; links only to `names`."""
    notebook, stem = nbformat.read(teacher.path, as_version=4), teacher.path.stem
    notebook.cells = [
        cell for cell in notebook.cells if REMOVED[version] not in cell.metadata.get("tags", [])
    ]
    cells = {cell.id: cell for cell in notebook.cells}
    for task in teacher.exercises if version != "answers" else ():
        check = cells[task.check.id]
        check.source = f'{task.prelude}course.check("{stem}", {task.number}, {task.expression})'
        check.outputs = []
        if version == "student":
            check.execution_count = None
            continue
        # The worked answer stands after the blank, and the teacher's check after the student's,
        # each in marks that nbgrader cuts out.
        blank = cells[task.blank.id]
        blank.source += f"\n### BEGIN SOLUTION\n{task.answer.source}\n### END SOLUTION"
        check.source += f"\n### BEGIN HIDDEN TESTS\n{task.check.source}\n### END HIDDEN TESTS"
        grade = {"grade": True, "locked": True, "points": POINTS.get(task.difficulty, 1)}
        for cell, kind, marks in (
            (cells[task.question.id], "question", {"locked": True}),
            (blank, "answer", {"solution": True}),
            (check, "check", grade),
        ):
            cell.metadata["nbgrader"] = {**UNMARKED, "grade_id": f"{kind}-{task.number}", **marks}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(lambda m: m[0] if m[2] in names else m[1], cell.source)
            if version != "answers":
                cell.source = FOR_TEACHERS.sub("", cell.source)
            if version == "student":
                cell.source = EXERCISES.sub(rf"\g<0>\n{GRADED}\n", cell.source, count=1)
    files = {name: (nbformat.writes(notebook) + "\n").encode()}
    if teacher.exercises and version != "answers":
        files[(Path(name).parent / CHECKS / f"{stem}.pt").as_posix()] = _sealed(teacher)
    return files


def _sealed(teacher: Teacher) -> bytes:
    """The sealed keys of a notebook's checks; kept for its code, that of mmlib and the evidence."""
    salt = _hash("\n".join(c.source for c in teacher.cells if c.cell_type == "code").encode())
    evidence = sorted((str(p), p.stat().st_size) for p in evidence_dir().rglob("*"))
    # All of mmlib: `core.source` would follow each module's imports, which takes longer.
    code = sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".yaml", ".json"))
    mmlib = _hash(b"".join(path.read_bytes() for path in code))
    name = _hash(f"{teacher.path.stem} {salt} {mmlib} {evidence}".encode())[:16]
    path = cache / "course" / f"{name}.pt" if (cache := cache_dir()) else None
    if path and path.is_file():
        return path.read_bytes()
    with kernel(teacher) as (keys, _):
        torch.save({number: key.sealed(salt) for number, key in keys.items()}, file := io.BytesIO())
    if path:
        write_atomic(path, partial(Path.write_bytes, data=file.getvalue()))
    return file.getvalue()


def _packed() -> dict[str, bytes]:
    """What a folder needs to run by itself. Raises CourseError outside a clone."""
    root = PACKAGE.parent
    paths = [root / name for name in PACKED]
    for folder in ("mmlib", "evidence"):
        paths += sorted(p for p in (root / folder).rglob("*") if p.is_file() and p.suffix != ".pyc")
    if not (root / "evidence").is_dir() or not all(path.is_file() for path in paths):
        raise CourseError("no evidence beside the package: pack in a clone of the repository")
    return {"README.md": README} | {p.relative_to(root).as_posix(): p.read_bytes() for p in paths}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
