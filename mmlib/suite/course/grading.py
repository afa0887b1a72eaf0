"""Grade what students hand in: their answers, the teacher's checks, in processes apart.

Only the cells of an exercise count, between its question and its check; the rest of a hand-in is
not run. They run after all of the teacher's notebook but its exercises.
"""

import csv
import hashlib
import json
import os
import pickle
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mmlib.core.files import file_hash
from mmlib.core.paths import write_atomic
from mmlib.suite.course.checks import Answer, CourseError, Key, NoAnswer, WrongAnswer, judge
from mmlib.suite.course.form import HEADING, Exercise, Teacher, read_teacher, role
from mmlib.suite.course.worker import LARGEST, Request, serve

COLUMNS = (
    *("student", "file", "notebook", "exercise", "difficulty", "minutes", "result", "reason"),
    "digest",
)
MOST = 5e7  # bytes of a hand-in
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Limits:
    """What an answer may take: seconds, and bytes of memory beyond the notebook's own."""

    seconds: float = 60.0
    memory: int = 2**31


# The notebook's process ---------------------------------------------------------------------


@contextmanager
def running(teacher: Teacher) -> Iterator[tuple["Kernel", dict[int, Key]]]:
    """A process that has run all of a notebook but its exercises, and the keys of its checks.

    Raises CourseError where the notebook, its answers or its checks fail.
    """
    kernel = Kernel(teacher)
    try:
        yield kernel, kernel.start()
    finally:
        kernel.end()


class Kernel:
    """A process that has run a notebook; answers run in forks of it."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher, self.lock = teacher, threading.Lock()

    def start(self) -> dict[int, Key]:
        """Run the notebook; returns the keys of its checks by exercise. Raises CourseError."""
        name, code = self.teacher.path.name, enumerate(self.teacher.cells, 1)
        cells = [(n, one.source) for n, one in code if one.cell_type == "code" and not role(one)]
        worked = [(one.answer.source, one.check.source) for one in self.teacher.exercises]
        self.folder = tempfile.TemporaryDirectory("-mmlib-course", ignore_cleanup_errors=True)
        for variable in THREADS:  # a process with threads cannot be forked
            os.environ.setdefault(variable, "1")
        (ours, theirs), (self.control, control) = Pipe(), socket.socketpair()
        arguments = (os.getpid(), self.folder.name, cells, worked, theirs, control)
        self.process = get_context("spawn").Process(target=serve, args=arguments)
        self.process.start()
        theirs.close()
        control.close()
        try:
            with tqdm(total=len(cells), desc=name, unit="cell", delay=1.0, leave=False) as bar:
                while isinstance(message := ours.recv(), int):
                    bar.update()
        except EOFError:
            message = "the process that ran it has ended"
        if isinstance(message, str):
            raise CourseError(f"{name}: {message}")
        keys = {key.exercise: key for key in pickle.loads(message)}  # of the teacher's code alone
        if list(keys) != [one.number for one in self.teacher.exercises]:
            raise CourseError(f"{name}: its checks are of exercises {[*keys]}")
        return keys

    def end(self) -> None:
        """End the process, and all that it began."""
        self.control.close()
        self.process.join(10)
        self.process.kill()
        self.folder.cleanup()

    def result(self, request: Request, key: Key) -> tuple[str, str]:
        """The result of an answer and its reason."""
        ours, theirs = Pipe()
        with self.lock:
            if not self.process.is_alive():  # an answer may end it
                self.end()
                self.start()
            socket.send_fds(self.control, [b"1"], [theirs.fileno()])
        theirs.close()
        result, more = ("", ""), True
        try:
            ours.send(request)
            while more:
                message = json.loads(ours.recv_bytes(LARGEST + 100))
                more = message.pop("more", False) is True
                if "error" not in message or result[0] not in ("wrong", "blank"):
                    result = _judged(message, key)
                more = more and result[0] != "right"
                ours.send(more)
        except (OSError, EOFError):
            return "error", "it ended the process that grades"
        except (ValueError, AttributeError):
            return "error", "its answer cannot be read"
        finally:
            ours.close()
        return result


def _judged(message: Mapping[str, Any], key: Key) -> tuple[str, str]:
    """What a key says of what an answer gave."""
    if "error" in message:
        return "error", str(message["error"])
    try:
        judge(key, Answer.read(message))
    except NoAnswer:
        return "blank", ""
    except WrongAnswer as error:
        return "wrong", str(error)
    except Exception as error:  # what no answer sends
        return "error", f"its answer cannot be read: {type(error).__name__}"
    return "right", ""


def read_keys(teacher: Teacher) -> dict[int, Key]:
    """The keys of a notebook's checks, by exercise; runs the notebook. Raises CourseError."""
    if not teacher.exercises:
        return {}
    with running(teacher) as (_, keys):
        return keys


def mistakes(notebook: Path) -> str:
    """Markdown: each exercise of a notebook, and the typical mistakes that its check knows."""
    teacher = read_teacher(notebook)
    keys, lines = read_keys(teacher), [f"# {notebook.stem}\n"]
    for exercise in teacher.exercises:
        heading = exercise.question.source.splitlines()[0].lstrip("# ")
        reasons = dict.fromkeys(f"- {one.reason}" for one in keys[exercise.number].wrong)
        lines += [f"**{heading}**\n", *reasons, ""]
    return "\n".join(lines)


# Hand-ins -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HandIn:
    """A file that a student handed in; fault: why it cannot be graded, or empty."""

    path: Path
    name: str  # as seen from the folder of all
    digest: str
    teacher: Teacher | None = None
    answers: Mapping[int, str] = field(default_factory=dict)  # the code, by exercise
    fault: str = ""

    def row(self, exercise: Exercise | None, result: str, reason: str) -> dict[str, Any]:
        """A row of the table of marks."""
        parts = Path(self.name).parts
        about = (exercise.number, exercise.difficulty, exercise.minutes) if exercise else ("",) * 3
        notebook = self.teacher.path.stem if self.teacher else ""
        student = parts[0] if len(parts) > 1 else self.path.stem
        values = (student, self.name, notebook, *about, result, reason, self.digest)
        return dict(zip(COLUMNS, map(str, values), strict=True))


def read_hand_in(path: Path, name: str, teachers: Sequence[Teacher], setting: str) -> HandIn:
    """Read what was handed in; whatever is wrong with the file is its `fault`.

    It is of that notebook with which it shares most ids of cells, or, where other programs have
    lost these, most headings of exercises. An answer is the code between the question and the check
    of its exercise, and in its blank. setting: goes into its digest.
    """
    import nbformat

    content = path.read_bytes() if path.stat().st_size <= MOST else b""
    digest = hashlib.sha256(content + setting.encode()).hexdigest()[:16]
    if not content:
        return HandIn(path, name, digest, fault=f"it is empty, or over {MOST / 1e6:.0f} MB")

    def heading(cell: Any) -> str:
        return cell.source.partition("\n")[0].strip()

    try:
        cells = nbformat.reads(content.decode(), as_version=4).cells
        ids, headings = {cell.get("id") for cell in cells}, set(map(heading, cells))

        def shared(one: Teacher) -> tuple[int, int]:
            titles = {heading(exercise.question) for exercise in one.exercises}
            return len(ids & {c.id for c in one.cells}), len(headings & titles)

        teacher = max(teachers, key=shared)
        if not any(shared(teacher)):
            return HandIn(path, name, digest, fault="it has no cell of the course")
        number_of = {
            cell.id: one.number for one in teacher.exercises for cell in (one.question, one.blank)
        }
        ends = {one.check.id for one in teacher.exercises}
        found: dict[int, list[str]] = {}
        current = None
        for cell in cells:
            known, title = number_of.get(cell.get("id")), HEADING.match(cell.source)
            if cell.cell_type == "markdown":
                current = known or (int(title[1]) if title else current)
            elif cell.get("id") in ends or "check" in cell.metadata.get("tags", []):
                current = None
            elif cell.cell_type == "code" and (number := known or current):
                found.setdefault(number, []).append(cell.source)
        answers = {number: "\n".join(sources) for number, sources in found.items()}
        return HandIn(path, name, digest, teacher, answers)
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"it is not a notebook: {type(error).__name__}: {error}".splitlines()[0]
        return HandIn(path, name, digest, fault=fault[:300])


def grade(
    folder: Path, notebooks: Sequence[Path], out: Path, jobs: int = 1, limits: Limits = Limits()
) -> Counter[str]:
    """Grade all notebooks in a folder, or one file, into a CSV file of marks, a row an exercise.

    result: right, wrong, blank or error; the reason says why. A file that cannot be graded is a
    row, too. Rows of an earlier call are kept where hand-in, notebooks and limits are the same.
    notebooks: with the answers. jobs: answers that run at a time.
    Returns how many exercises have each result. Raises CourseError where there is nothing to grade,
    a notebook fails, or `out` is another file.
    """
    teachers = [read_teacher(path) for path in notebooks]
    setting = f"{limits}" + "".join(map(file_hash, notebooks))
    files = [folder] if folder.is_file() else sorted(
        path for path in folder.rglob("*.ipynb")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )  # fmt: skip
    if not files:
        raise CourseError(f"no notebook in {folder}")
    earlier, marks = _earlier_marks(out), dict[str, list[dict[str, str]]]()
    with tqdm(total=len(files), desc="hand-ins", mininterval=1.0) as progress:

        def enter(hand_in: HandIn, rows: list[dict[str, str]]) -> None:
            marks[hand_in.name] = rows
            write_atomic(out, lambda path: _write_marks(path, marks))
            progress.update()

        pending = []
        for path in files:
            name = path.name if path == folder else path.relative_to(folder).as_posix()
            hand_in = read_hand_in(path, name, teachers, setting)
            rows = earlier.get(name, [])
            if rows and all(row["digest"] == hand_in.digest for row in rows):
                enter(hand_in, rows)
            elif hand_in.fault:
                enter(hand_in, [hand_in.row(None, "error", hand_in.fault)])
            else:
                pending.append(hand_in)
        for teacher in teachers:
            if of_notebook := [hand_in for hand_in in pending if hand_in.teacher is teacher]:
                with running(teacher) as (kernel, keys), ThreadPoolExecutor(jobs) as pool:
                    todo = {pool.submit(_rows, h, kernel, keys, limits): h for h in of_notebook}
                    for done in as_completed(todo):
                        enter(todo[done], done.result())
    return Counter(row["result"] for rows in marks.values() for row in rows)


def _rows(
    hand_in: HandIn, kernel: Kernel, keys: Mapping[int, Key], limits: Limits
) -> list[dict[str, str]]:
    rows, earlier = [], list[str]()
    for exercise in kernel.teacher.exercises:
        source, key = hand_in.answers.get(exercise.number), keys[exercise.number]
        result = ("blank", "")
        if source is None:
            result = ("error", "its cell is missing")
        elif source.strip() != exercise.blank.source.strip():
            request = Request(
                source, tuple(earlier), *exercise.asked, key.cases, limits.seconds, limits.memory
            )
            result = kernel.result(request, key)
            earlier.append(source)
        rows.append(hand_in.row(exercise, *result))
    return rows


# The table of marks -------------------------------------------------------------------------


def _earlier_marks(out: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of an earlier call, by file. Raises CourseError where `out` is no table of marks."""
    if not out.exists():
        return {}
    with open(out, encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise CourseError(f"{out} is no table of marks of this command; name another file")
        rows = list(table)
    return {name: list(group) for name, group in groupby(rows, key=lambda row: row["file"])}


def _write_marks(path: Path, marks: Mapping[str, list[dict[str, str]]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name in sorted(marks):
            table.writerows(marks[name])
