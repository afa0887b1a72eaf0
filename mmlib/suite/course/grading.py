"""Grade what students hand in: their answers, the teacher's checks, in processes apart.

Only the cells of an exercise count, between its question and its check; the rest of a hand-in is
not run. They run after all of the teacher's notebook but its exercises.
"""

import hashlib
import json
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from tqdm import tqdm

from mmlib.core.files import file_hash
from mmlib.core.paths import write_atomic
from mmlib.suite.course.checks import Answer, CourseError, Key, NoAnswer, WrongAnswer, judge
from mmlib.suite.course.form import HEADING, Teacher, read_teacher, role
from mmlib.suite.course.seals import Target
from mmlib.suite.course.worker import LARGEST, Request, serve

COLUMNS = ["student", "file", "notebook", "exercise", "difficulty", "minutes", "result", "reason"]
COLUMNS += ["digest"]
MOST = 5e7  # bytes of a hand-in
GRACE = 60  # seconds beyond an answer's limit, after which what runs it was stopped
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Limits:
    """What an answer may take: seconds, and bytes of memory beyond the notebook's own."""

    seconds: float = 60.0
    memory: int = 2**31


class Kernel:
    """A process that has run all of a notebook but its exercises; answers run in forks of it.

    keys: of the notebook's checks, by exercise. Raises CourseError where the notebook, its answers
    or its checks fail.
    """

    def __init__(self, teacher: Teacher) -> None:
        self.teacher, self.lock = teacher, threading.Lock()

    def __enter__(self) -> "Kernel":
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
        if isinstance(message, bytes):  # of the teacher's code alone
            self.keys: dict[int, Key] = {key.exercise: key for key in pickle.loads(message)}
            if list(self.keys) == [one.number for one in self.teacher.exercises]:
                return self
            message = f"its checks are of exercises {[*self.keys]}"
        self.__exit__()
        raise CourseError(f"{name}: {message}")

    def __exit__(self, *_: Any) -> None:
        self.control.close()
        self.process.join(10)
        with suppress(ProcessLookupError):  # what an answer has stopped, too
            os.killpg(self.process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        self.process.kill()
        self.folder.cleanup()

    def result(self, request: Request, key: Key) -> tuple[str, str]:
        """The result of an answer and its reason."""
        ours, theirs = Pipe()
        with self.lock:
            if not self.process.is_alive():  # an answer may end it
                self.__exit__()
                self.__enter__()
            socket.send_fds(self.control, [b"1"], [theirs.fileno()])
        theirs.close()
        result, more = ("", ""), True
        try:
            ours.send(request)
            while more:
                if not ours.poll(request.seconds + GRACE):
                    raise TimeoutError
                message = json.loads(ours.recv_bytes(LARGEST + 100))
                more = message.pop("more", False) is True
                if "error" not in message or result[0] not in ("wrong", "blank"):
                    result = _judged(message, key)
                if more := more and result[0] != "right":
                    ours.send("go on")
        except (OSError, EOFError):
            result = "error", "it ended the process that grades"
        except (ValueError, AttributeError):
            result = "error", "its answer cannot be read"
        ours.close()
        return result


def _judged(message: Mapping[str, Any], key: Key) -> tuple[str, str]:
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


def mistakes(notebook: Path) -> str:
    """Markdown: each exercise of a notebook, and the typical mistakes that its check knows."""
    lines = [f"# {notebook.stem}\n"]
    with Kernel(read_teacher(notebook)) as kernel:
        for exercise in kernel.teacher.exercises:
            heading = exercise.question.source.splitlines()[0].lstrip("# ")
            wrong = [one for one in kernel.keys[exercise.number].wrong if isinstance(one, Target)]
            lines += [f"**{heading}**\n", *dict.fromkeys(f"- {one.reason}" for one in wrong), ""]
    return "\n".join(lines)


def read_answers(content: bytes, teachers: Sequence[Teacher]) -> tuple[Teacher, dict[int, str]]:
    """The notebook that a hand-in is of, and its answers: the code by exercise.

    It is of that notebook with which it shares most ids of cells, or, where other programs have
    lost these, most headings of exercises. An answer is the code between the question and the check
    of its exercise, and in its blank. Raises CourseError for what cannot be graded.
    """
    if not content:
        raise CourseError(f"it is no file, empty, or over {MOST / 1e6:.0f} MB")

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
            raise CourseError("it has no cell of the course")
        exercises = teacher.exercises
        number_of = {cell.id: one.number for one in exercises for cell in (one.question, one.blank)}
        ends = {one.check.id for one in exercises}
        answers: dict[int, str] = {}
        current = None
        for cell in cells:
            known, title = number_of.get(cell.get("id")), HEADING.match(cell.source)
            if cell.cell_type == "markdown":
                current = known or (int(title[1]) if title else current)
            elif cell.get("id") in ends or "check" in cell.metadata.get("tags", []):
                current = None
            elif cell.cell_type == "code" and (number := known or current):
                answers[number] = f"{answers.get(number, '')}\n{cell.source}".strip()
        return teacher, answers
    except CourseError:
        raise
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"it is not a notebook: {type(error).__name__}: {error}".splitlines()[0]
        raise CourseError(fault[:300]) from None


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
    earlier, marks, pending = pd.DataFrame(columns=COLUMNS), dict[str, Rows](), []
    if out.exists():
        earlier = pd.read_csv(out, dtype=str, keep_default_na=False)
        if list(earlier) != COLUMNS:
            raise CourseError(f"{out} is no table of marks of this command; name another file")
    with tqdm(total=len(files), desc="hand-ins", mininterval=1.0) as progress:

        def enter(name: str, rows: Rows) -> None:
            marks[name] = rows
            every = [row for one in sorted(marks) for row in marks[one]]
            table = pd.DataFrame(every, columns=COLUMNS)
            write_atomic(out, lambda path: table.to_csv(path, index=False))
            progress.update()

        for path in files:
            name = path.name if path == folder else path.relative_to(folder).as_posix()
            small = path.is_file() and path.stat().st_size <= MOST
            content = path.read_bytes() if small else b""
            digest = hashlib.sha256(content + setting.encode()).hexdigest()[:16]
            student = Path(name).parts[0] if "/" in name else path.stem
            about = dict.fromkeys(COLUMNS, "") | {"student": student, "file": name}
            about["digest"] = digest
            known = earlier[earlier.file == name]
            if len(known) and (known.digest == digest).all():
                enter(name, known.to_dict("records"))
                continue
            try:
                pending.append((about, *read_answers(content, teachers)))
            except CourseError as error:
                enter(name, [about | {"result": "error", "reason": str(error)}])
        for teacher in teachers:
            mine = [(about, answers) for about, of, answers in pending if of is teacher]
            if mine:
                with Kernel(teacher) as kernel, ThreadPoolExecutor(jobs) as pool:
                    todo = {pool.submit(_rows, *one, kernel, limits): one[0] for one in mine}
                    for done in as_completed(todo):
                        enter(todo[done]["file"], done.result())
    return Counter(row["result"] for rows in marks.values() for row in rows)


def _rows(
    about: Mapping[str, str], answers: Mapping[int, str], kernel: Kernel, limits: Limits
) -> Rows:
    rows, earlier = Rows(), list[str]()
    for exercise in kernel.teacher.exercises:
        source, key = answers.get(exercise.number), kernel.keys[exercise.number]
        result = ("blank", "")
        if source is None:
            result = ("error", "its cell is missing")
        elif source != exercise.blank.source.strip():
            how: dict[str, Any] = {"cases": key.cases, **vars(limits)}
            result = kernel.result(Request(source, tuple(earlier), *exercise.asked, **how), key)
            earlier.append(source)
        values = exercise.number, exercise.difficulty, exercise.minutes, *result
        row = dict(zip(COLUMNS[3:8], map(str, values), strict=True))
        rows.append({**about, "notebook": kernel.teacher.path.stem, **row})
    return rows
