"""Grade what students hand in: their answers, the teacher's checks, in processes apart.

Only the cells of an exercise count, between its question and its check; the rest of a hand-in is
not run. They run after all of the teacher's notebook but its exercises.
"""

import hashlib
import json
import math
import os
import pickle
import signal
import socket
import stat
import tempfile
import threading
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from tqdm import tqdm

from mmlib.core.errors import DataError
from mmlib.core.files import file_hash, printable
from mmlib.core.paths import write_atomic
from mmlib.suite.course.checks import Key, NoAnswer, WrongAnswer, judge
from mmlib.suite.course.form import HEADING, Teacher, read_teacher, role
from mmlib.suite.course.worker import serve

RESULTS = ["right", "wrong", "blank", "error"]
COLUMNS = ["student", "file", "notebook", "exercise", "difficulty", "minutes", "result", "reason"]
COLUMNS += ["digest"]
MOST = 5e7  # bytes of a hand-in
LARGEST = 2**24  # bytes of an answer
GRACE = 30  # seconds beyond an answer's limit, after which what runs it is stopped
NO_NOTEBOOK = "it is no notebook, whose name would end in .ipynb"
EMPTY_FOLDER = "it is an empty folder"
Fork = tuple[Connection, tuple[Any, ...]]  # to a process that runs answers, and what to end


class Kernel:
    """A process that has run all of a notebook but its exercises, until it is closed.

    keys: of the notebook's checks by exercise. memory: bytes of a fork beyond its own. Raises
    DataError where the notebook, its answers or its checks fail.
    """

    def __init__(self, teacher: Teacher, memory: int = 2**31) -> None:
        name, code = teacher.path.name, enumerate(teacher.notebook.cells, 1)
        cells = [
            (n, cell.source) for n, cell in code if cell.cell_type == "code" and not role(cell)
        ]
        worked = [
            source for task in teacher.exercises
            for source in (task.answer, task.prelude + task.expression, task.check.source)
        ]  # fmt: skip
        secret = [str(teacher.path), str(teacher.answers)]
        for library in ("OMP", "MKL", "OPENBLAS"):  # a process with threads cannot be forked
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")
        self.folder = tempfile.TemporaryDirectory("-mmlib-course", ignore_cleanup_errors=True)
        (self.report, theirs), (self.control, far) = Pipe(), socket.socketpair()
        self.control.settimeout(GRACE)
        arguments = (os.getpid(), self.folder.name, cells, secret, memory, theirs, far)
        self.process = get_context("spawn").Process(target=serve, args=arguments)
        self.process.start()
        self.report.send(worked)  # no argument, which answers would find in their process
        theirs.close()
        far.close()
        message: Any = "the process that ran it has ended"
        with tqdm(total=len(cells), desc=name, unit="cell", delay=1.0, leave=False) as bar:
            with suppress(EOFError):
                while isinstance(message := self.report.recv(), int):
                    bar.update()
        if not isinstance(message, str):
            self.keys: dict[int, Key] = {key.exercise: key for key in message}
            if list(self.keys) == [task.number for task in teacher.exercises]:
                return
            message = f"its checks say right for the exercises {[*self.keys]} alone"
        self.close()
        raise DataError(f"{name}: {message}")

    def close(self) -> None:
        """End the process and all that it began."""
        self.control.close()
        self.process.join(1)
        _end((self.report, (self.process.pid,)))
        self.process.kill()
        self.process.join(GRACE)
        self.folder.cleanup()

    def fork(self) -> Fork:
        """A process for the answers of a hand-in. Raises EOFError where there is none."""
        near, distant = Pipe()
        socket.send_fds(self.control, [b"f"], [distant.fileno()])
        distant.close()
        if not near.poll(GRACE):
            raise EOFError
        return near, near.recv()

    def lost(self) -> bool:
        """Whether the process has been stopped or ended, as by an answer."""
        with suppress(OSError):  # also when its time is over
            self.control.sendall(b"?")
            return self.control.recv(1) != b"?"
        return True


def _end(running: Fork | None) -> None:
    """Close a connection, and end the processes behind it and all that they began."""
    if running:
        running[0].close()
        for process in running[1]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)


def mistakes(notebook: Path) -> str:
    """Markdown: each exercise of a notebook, and the typical mistakes that its check knows."""
    teacher, lines = read_teacher(notebook), [f"# {notebook.stem}\n"]
    with closing(Kernel(teacher)) as kernel:
        for exercise in teacher.exercises:
            heading = exercise.question.source.splitlines()[0].lstrip("# ")
            key = kernel.keys[exercise.number]
            reasons = filter(
                None, [*(target.reason for target in key.wrong), *key.options.values()]
            )
            lines += [f"**{heading}**\n", *dict.fromkeys(f"- {reason}" for reason in reasons), ""]
    return "\n".join(lines)


def grade(
    folder: Path, notebooks: Sequence[Path], out: Path,
    jobs: int = 1, seconds: float = 60.0, memory: float = 2**31, seed: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Grade all notebooks in a folder, or one file, into a CSV file of marks, a row an exercise.

    result: right, wrong, blank or error; the reason says why. A file that cannot be graded is a
    row, too. Rows of an earlier call are kept where hand-in, notebooks, limits and grader are the
    same. Beside `out`, `…_totals.csv` has a row a student. jobs: hand-ins that run at a time.
    seconds, memory: of an answer, and bytes beyond the notebook's own. seed: of students' copies.
    Returns the totals. Raises DataError where there is nothing to grade, a limit allows nothing,
    a notebook fails, or `out` is another file.
    """
    if not (0 < seconds < math.inf and 0 < memory < math.inf):
        raise DataError("the limits of an answer, seconds and memory, are numbers above 0")
    teachers = [read_teacher(path, seed) for path in notebooks]
    code = [*notebooks, *(teacher.answers for teacher in teachers)]
    code += sorted(Path(__file__).parent.glob("*.py"))
    code += [teacher.answers.with_name("private.yaml") for teacher in teachers[:1]]
    setting = f"{seconds} {memory} {seed}" + "".join(map(file_hash, filter(Path.is_file, code)))
    totals = out.with_name(f"{out.stem}_totals.csv")
    files = hand_ins(folder, (out, totals))
    if not files:
        raise DataError(f"{folder}: " + ("no notebook" if folder.exists() else "is not there"))
    names = {p: p.name if p == folder else p.relative_to(folder).as_posix() for p in files}
    earlier = pd.DataFrame(columns=COLUMNS)
    if out.exists():
        old = pd.read_csv(out, dtype=str, keep_default_na=False)
        earlier = old[old.get("file", old.index).isin(map(printable, names.values()))]
        if list(old) != COLUMNS or len(old) > len(earlier) == 0:
            raise DataError(f"{out}: no marks of hand-ins in {folder}; name another file")
    kernels: dict[tuple[int, Path], Kernel] = {}

    def kernel_of(teacher: Teacher) -> Kernel:
        """This thread's own kernel: what an answer does to it meets no other hand-in."""
        key = threading.get_ident(), teacher.path
        if key in kernels and kernels[key].lost():
            kernels.pop(key).close()
        if key not in kernels:
            kernels[key] = Kernel(teacher, int(memory))
        return kernels[key]

    def rows_of(path: Path) -> list[dict[str, Any]]:
        student = Path(names[path]).parts[0] if "/" in names[path] else path.stem
        about = {"student": student, "file": names[path]}
        try:
            if files[path]:
                raise DataError(files[path])
            content = path.read_bytes()
            about["digest"] = hashlib.sha256(content + setting.encode()).hexdigest()[:16]
            graded = earlier[
                (earlier.file == printable(names[path])) & (earlier.digest == about["digest"])
            ]
            if len(graded):
                return graded.to_dict("records")
            teacher, answers = read_answers(content, teachers)
        except OSError as error:
            return [about | {"result": "error", "reason": f"it cannot be read: {error.strerror}"}]
        except DataError as error:
            return [about | {"result": "error", "reason": str(error)}]
        rows = []
        results = _results(teacher, answers, partial(kernel_of, teacher), seconds)
        for task, result in zip(teacher.exercises, results, strict=True):
            values = teacher.path.stem, str(task.number), task.difficulty, task.minutes, *result
            rows.append(about | dict(zip(COLUMNS[2:8], values, strict=True)))
        return rows

    marks: list[dict[str, Any]] = []
    try:
        with ThreadPoolExecutor(jobs) as pool:
            for rows in tqdm(pool.map(rows_of, files), "hand-ins", len(files), mininterval=1.0):
                marks += [
                    {name: printable(str(value)) for name, value in row.items()} for row in rows
                ]
                table = pd.DataFrame(marks, columns=COLUMNS).fillna("")
                left = earlier[~earlier.file.isin(table.file)]  # kept where this is interrupted
                write_atomic(out, partial(pd.concat([table, left]).to_csv, index=False))
    finally:
        for kernel in kernels.values():
            kernel.close()
    table = _totals(table)
    write_atomic(totals, partial(table.to_csv, index=False))
    return table


def hand_ins(folder: Path, leave_out: Sequence[Path] = ()) -> dict[Path, str]:
    """The files below a folder, sorted, each with what speaks against grading it, mostly nothing.

    Links are not followed. Other files than notebooks count where a student has no notebook, in one
    row. Hidden files and `leave_out` do not count.
    """
    others = {path.parent.resolve() / path.name for path in leave_out}

    def files(path: Path) -> dict[Path, str]:
        about = path.lstat()
        if path.name.startswith((".", "__MACOSX")) or path.parent.resolve() / path.name in others:
            return {}
        if stat.S_ISDIR(about.st_mode):
            try:
                found = [files(child) for child in sorted(path.iterdir())]
            except OSError as error:
                return {path: f"it cannot be read: {error.strerror}"}
            return dict(ChainMap(*reversed(found))) or {path: EMPTY_FOLDER}
        faults = {
            "it is a link, which is not followed": stat.S_ISLNK(about.st_mode),
            "it is no file": not stat.S_ISREG(about.st_mode),
            NO_NOTEBOOK: path.suffix.lower() != ".ipynb",
            "it is empty": not about.st_size,
            f"it is over {MOST / 1e6:.0f} MB": about.st_size > MOST,
        }
        return {path: next((fault for fault in faults if faults[fault]), "")}

    listed: dict[Path, str] = {}
    for student in sorted(folder.iterdir()) if folder.is_dir() else [folder]:
        found = files(student) if os.path.lexists(student) else {}
        beside = [path for path in found if found[path] in (NO_NOTEBOOK, EMPTY_FOLDER)]
        for path in beside if "" in found.values() else beside[1:]:
            del found[path]
        listed |= found
    return listed


def _totals(marks: pd.DataFrame) -> pd.DataFrame:
    """A row a student: how many exercises have each result, and what to look at by hand."""
    counts = pd.crosstab(marks.student, marks.result)
    counts = counts.reindex(index=marks.student.unique(), columns=RESULTS, fill_value=0)
    notes = dict.fromkeys(counts.index, "")
    for (student, notebook), rows in marks[marks.notebook != ""].groupby(["student", "notebook"]):
        if len(paths := list(dict.fromkeys(rows.file))) > 1:
            notes[student] += f"{len(paths)} files of {notebook}, all counted: {', '.join(paths)}. "
    return counts.assign(note=notes.values()).rename_axis(columns=None).reset_index()


def read_answers(
    content: bytes, teachers: Sequence[Teacher]
) -> tuple[Teacher, dict[int, list[str]]]:
    """The notebook that a hand-in is of, and the cells of its answers by exercise.

    It is of that notebook with which it shares most headings of exercises. An answer is the code
    between such a heading and the check. Raises DataError for what cannot be graded.
    """

    def heading(cell: Any) -> str:
        return cell.source.partition("\n")[0].strip()

    def shared(teacher: Teacher) -> int:
        return len({heading(task.question) for task in teacher.exercises} & headings)

    cells = defaultdict[int, list[str]](list)
    try:
        number = None
        notebook = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
        headings = set(map(heading, notebook.cells))
        for cell in notebook.cells:
            title = HEADING.match(cell.source) if cell.cell_type == "markdown" else None
            if title:
                number = int(title[1])
            elif "check" in cell.metadata.get("tags", []):
                number = None
            elif number and cell.cell_type == "code":
                cells[number].append(cell.source.strip())
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"it is not a notebook: {type(error).__name__}: {error}".splitlines()[0]
        raise DataError(fault[:300]) from None
    teacher = max(teachers, key=shared)
    if not shared(teacher):
        raise DataError("it has no exercise of the course")
    return teacher, cells


def _results(
    teacher: Teacher, answers: Mapping[int, Sequence[str]], kernel_of: Callable[[], Kernel],
    seconds: float,
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """The result of each exercise of a hand-in, and its reason.

    The answers run one after another in one process; where one ends it, those before it run again
    before the next.
    """
    running: Fork | None = None
    earlier, again = list[str](), list[str]()
    for task in teacher.exercises:
        handed_in, blank = answers.get(task.number, ()), task.blank.source.strip()
        sources = list(filter(None, handed_in))
        # A question may be there twice, as after a copy: a second blank would undo the answer.
        cells = sources[:1] + [cell for cell in sources[1:] if cell != blank]
        if cells in ([], [blank]):
            yield ("blank", "") if handed_in else ("error", "its cell is missing")
            continue
        kernel, result = kernel_of(), ""
        key = kernel.keys[task.number]
        try:
            running = running or kernel.fork()
            request = cells, again, task.prelude, task.expression, key.cases, seconds
            running[0].send_bytes(pickle.dumps(request))  # `send` would share tensors
            if not running[0].poll((len(again) + 2) * seconds + GRACE):
                raise TimeoutError
            result, reason = _judged(running[0].recv_bytes(LARGEST), key)
        except TimeoutError:
            reason = f"TimeoutError: the time limit of {seconds:g} s passed"
        except (EOFError, ConnectionError):
            reason = "it ended the process that ran it"
        except OSError:
            reason = f"its answer takes more than {LARGEST >> 20} MiB"
        if kernel.lost():
            result, reason = "", "it stopped or ended the process that grades it"
        yield result or "error", reason
        if result:
            earlier, again = earlier + cells, []
        else:
            _end(running)
            running, again = None, earlier
    _end(running)


def _judged(message: bytes, key: Key) -> tuple[str, str]:
    try:
        answer = json.loads(message)
        if "error" in answer:
            return "error", str(answer["error"])
        judge(key, answer)
        failed = answer["failed"]
    except NoAnswer:
        return "blank", ""
    except WrongAnswer as error:
        return "wrong", str(error)
    except Exception as error:  # what no answer sends
        return "error", f"its answer cannot be read: {type(error).__name__}"
    return "right", f"its code then fails: {failed}" if failed else ""
