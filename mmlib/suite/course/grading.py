"""Grade what students hand in: their answers, the teacher's checks, in processes apart.

Only the cells of an exercise count, between its question and its check; the rest of a hand-in is
not run. They run after all of the teacher's notebook but its exercises.
"""

import hashlib
import json
import os
import signal
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from tqdm import tqdm

from mmlib.core.files import file_hash
from mmlib.core.paths import write_atomic
from mmlib.suite.course.checks import CourseError, Key, NoAnswer, WrongAnswer, judge
from mmlib.suite.course.form import HEADING, Teacher, read_teacher, role
from mmlib.suite.course.targets import Target
from mmlib.suite.course.worker import serve

COLUMNS = ["student", "file", "notebook", "exercise", "difficulty", "minutes", "result", "reason"]
COLUMNS += ["digest"]
MOST = 5e7  # bytes of a hand-in
LARGEST = 2**24  # bytes of an answer
GRACE = 30  # seconds beyond an answer's limit, after which what runs it is stopped
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Fork = tuple[Connection, tuple[int, ...]]  # to a process that runs answers, and what to end


@contextmanager
def kernel(
    teacher: Teacher, memory: int = 2**31
) -> Iterator[tuple[dict[int, Key], Callable[[], Fork]]]:
    """A process that has run all of a notebook but its exercises.

    Gives the keys of its checks by exercise, and a function that forks it. memory: bytes of a fork
    beyond its own. Raises CourseError where the notebook, its answers or its checks fail.
    """
    name, code = teacher.path.name, enumerate(teacher.cells, 1)
    cells = [(n, cell.source) for n, cell in code if cell.cell_type == "code" and not role(cell)]
    worked = [
        source for task in teacher.exercises
        for source in (task.answer.source, task.prelude + task.expression, task.check.source)
    ]  # fmt: skip
    for variable in THREADS:  # a process with threads cannot be forked
        os.environ.setdefault(variable, "1")
    (ours, theirs), (control, far), lock = Pipe(), socket.socketpair(), threading.Lock()

    def fork() -> Fork:
        near, distant = Pipe()
        with lock:
            socket.send_fds(control, [b"1"], [distant.fileno()])
        distant.close()
        return near, near.recv()

    with tempfile.TemporaryDirectory("-mmlib-course", ignore_cleanup_errors=True) as folder:
        arguments = (os.getpid(), folder, cells, worked, memory, theirs, far)
        process = get_context("spawn").Process(target=serve, args=arguments)
        process.start()
        theirs.close()
        far.close()
        try:
            with tqdm(total=len(cells), desc=name, unit="cell", delay=1.0, leave=False) as bar:
                while isinstance(message := ours.recv(), int):
                    bar.update()
            if isinstance(message, str):
                raise CourseError(f"{name}: {message}")
            keys = {key.exercise: key for key in message}
            if list(keys) != [task.number for task in teacher.exercises]:
                raise CourseError(f"{name}: its checks are of exercises {[*keys]}")
            yield keys, fork
        except (EOFError, BrokenPipeError):
            raise CourseError(f"{name}: the process that ran it has ended") from None
        finally:
            control.close()
            process.join(10)
            _end(process.pid)
            process.kill()


def _end(*processes: int | None) -> None:
    """End processes and all that they began."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)  # type: ignore[arg-type]


def mistakes(notebook: Path) -> str:
    """Markdown: each exercise of a notebook, and the typical mistakes that its check knows."""
    teacher, lines = read_teacher(notebook), [f"# {notebook.stem}\n"]
    with kernel(teacher) as (keys, _):
        for exercise in teacher.exercises:
            heading = exercise.question.source.splitlines()[0].lstrip("# ")
            wrong = [t for t in keys[exercise.number].wrong if isinstance(t, Target)]
            lines += [f"**{heading}**\n", *dict.fromkeys(f"- {t.reason}" for t in wrong), ""]
    return "\n".join(lines)


def grade(
    folder: Path, notebooks: Sequence[Path], out: Path,
    jobs: int = 1, seconds: float = 60.0, memory: int = 2**31,
) -> Counter[str]:  # fmt: skip
    """Grade all notebooks in a folder, or one file, into a CSV file of marks, a row an exercise.

    result: right, wrong, blank or error; the reason says why. A file that cannot be graded is a
    row, too. Rows of an earlier call are kept where hand-in, notebooks and limits are the same.
    notebooks: with the answers. jobs: hand-ins that run at a time. seconds, memory: of an answer,
    and bytes beyond the notebook's own.
    Returns how many exercises have each result. Raises CourseError where there is nothing to grade,
    a notebook fails, or `out` is another file.
    """
    teachers = [read_teacher(path) for path in notebooks]
    setting = f"{seconds} {memory}" + "".join(map(file_hash, notebooks))
    files = [folder] if folder.is_file() else sorted(
        path for path in folder.rglob("*.ipynb")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )  # fmt: skip
    if not files:
        raise CourseError(f"no notebook in {folder}")
    earlier = pd.DataFrame(columns=COLUMNS)
    if out.exists():
        earlier = pd.read_csv(out, dtype=str, keep_default_na=False)
        if list(earlier) != COLUMNS:
            raise CourseError(f"{out} is no table of marks of this command; name another file")
    kernels, starting = dict[Path, Any](), threading.Lock()

    def rows_of(path: Path) -> list[dict[str, Any]]:
        name = path.name if path == folder else path.relative_to(folder).as_posix()
        small = path.is_file() and path.stat().st_size <= MOST
        content = path.read_bytes() if small else b""
        digest = hashlib.sha256(content + setting.encode()).hexdigest()[:16]
        graded = earlier[(earlier.file == name) & (earlier.digest == digest)]
        if len(graded):
            return graded.to_dict("records")
        student = Path(name).parts[0] if "/" in name else path.stem
        about = {"student": student, "file": name, "digest": digest}
        try:
            teacher, answers = read_answers(content, teachers)
        except CourseError as error:
            return [about | {"result": "error", "reason": str(error)}]
        with starting:
            if teacher.path not in kernels:
                kernels[teacher.path] = stack.enter_context(kernel(teacher, memory))
        rows = []
        keys, fork = kernels[teacher.path]
        results = _results(teacher, answers, keys, fork, seconds)
        for task, result in zip(teacher.exercises, results, strict=True):
            values = teacher.path.stem, str(task.number), task.difficulty, task.minutes, *result
            rows.append(about | dict(zip(COLUMNS[2:8], values, strict=True)))
        return rows

    marks: list[dict[str, Any]] = []
    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for rows in tqdm(pool.map(rows_of, files), "hand-ins", len(files), mininterval=1.0):
            marks += rows
            table = pd.DataFrame(marks, columns=COLUMNS)
            write_atomic(out, partial(table.to_csv, index=False))
    return Counter(row["result"] for row in marks)


def read_answers(content: bytes, teachers: Sequence[Teacher]) -> tuple[Teacher, dict[int, str]]:
    """The notebook that a hand-in is of, and its answers: the code by exercise.

    It is of that notebook with which it shares most headings of exercises. An answer is the code
    between such a heading and the check. Raises CourseError for what cannot be graded.
    """
    if not content:
        raise CourseError(f"it is no file, empty, or over {MOST / 1e6:.0f} MB")

    def heading(cell: Any) -> str:
        return cell.source.partition("\n")[0].strip()

    def shared(teacher: Teacher) -> int:
        return len({heading(task.question) for task in teacher.exercises} & headings)

    try:
        cells = nbformat.reads(content.decode(), as_version=4).cells
        headings = set(map(heading, cells))
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"it is not a notebook: {type(error).__name__}: {error}".splitlines()[0]
        raise CourseError(fault[:300]) from None
    teacher = max(teachers, key=shared)
    if not shared(teacher):
        raise CourseError("it has no exercise of the course")
    answers: dict[int, str] = {}
    number = None
    for cell in cells:
        title = HEADING.match(cell.source) if cell.cell_type == "markdown" else None
        if title:
            number = int(title[1])
        elif "check" in cell.metadata.get("tags", []):
            number = None
        elif number and cell.cell_type == "code":
            answers[number] = f"{answers.get(number, '')}\n{cell.source}".strip()
    return teacher, answers


def _results(
    teacher: Teacher, answers: Mapping[int, str], keys: Mapping[int, Key],
    fork: Callable[[], Fork], seconds: float,
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """The result of each exercise of a hand-in, and its reason.

    The answers run one after another in one process; where one ends it, those before it run again
    before the next.
    """
    running: Fork | None = None
    earlier, again = list[str](), list[str]()
    for task in teacher.exercises:
        source, key = answers.get(task.number), keys[task.number]
        if source is None or source == task.blank.source.strip():
            yield ("error", "its cell is missing") if source is None else ("blank", "")
            continue
        connection, processes = running = running or fork()
        try:
            connection.send((source, again, task.prelude, task.expression, key.cases, seconds))
            if not connection.poll((len(again) + 2) * seconds + GRACE):
                raise TimeoutError
            yield _judged(connection.recv_bytes(LARGEST), key)
            earlier, again = [*earlier, source], []
            continue
        except TimeoutError:
            ended = f"TimeoutError: the time limit of {seconds:g} s passed"
        except (EOFError, ConnectionError):
            ended = "it ended the process that ran it"
        except OSError:
            ended = f"its answer takes more than {LARGEST >> 20} MiB"
        yield "error", ended
        connection.close()
        _end(*processes)
        running, again = None, earlier
    if running:
        running[0].close()
        _end(*running[1])


def _judged(message: bytes, key: Key) -> tuple[str, str]:
    try:
        answer = json.loads(message)
        if "error" in answer:
            return "error", str(answer["error"])
        judge(key, answer)
    except NoAnswer:
        return "blank", ""
    except WrongAnswer as error:
        return "wrong", str(error)
    except Exception as error:  # what no answer sends
        return "error", f"its answer cannot be read: {type(error).__name__}"
    return "right", ""
