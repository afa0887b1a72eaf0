"""Grade what students hand in: their answers, the teacher's checks, in processes apart.

Only the cells of an exercise count, between its question and its check; the rest of a hand-in is
not run. They run after those statements of the teacher's notebook that some answer or check needs.
"""

import ast
import csv
import hashlib
import json
import os
import pickle
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue
from typing import Any

from tqdm import tqdm

from mmlib.core.files import file_hash
from mmlib.core.paths import write_atomic
from mmlib.suite.course.checks import Call, CourseError, Key, NoAnswer, Replay, WrongAnswer, judge
from mmlib.suite.course.form import Exercise, exercise_of, exercises, form_faults, is_part
from mmlib.suite.course.program import Statement, inputs, needed, statements
from mmlib.suite.course.worker import Request, decoded, serve
from mmlib.suite.parameters import reads

COLUMNS = (
    *("student", "file", "notebook", "exercise", "difficulty", "minutes", "result", "reason"),
    "digest",
)
LARGEST = 5e7  # bytes of a hand-in
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_judging = threading.Lock()  # a check redirects what is printed, for all threads


@dataclass(frozen=True)
class Checked:
    """How a check gets at the answer: what it does first, and the expression that it checks."""

    prelude: list[Statement]
    expression: str
    statements: list[Statement]


@dataclass(frozen=True)
class Teacher:
    """A notebook as its author wrote it."""

    path: Path
    cells: list[Any]

    @cached_property
    def exercises(self) -> list[Exercise]:
        """Its exercises, in order."""
        return exercises(self.cells)

    @cached_property
    def program(self) -> list[Statement]:
        """All code outside the exercises."""
        code = [(i, c) for i, c in enumerate(self.cells, 1) if c.cell_type == "code"]
        return [one for i, cell in code if not is_part(cell) for one in statements(cell.source, i)]

    @cached_property
    def checks(self) -> dict[int, Checked]:
        """The checks, by exercise. Raises CourseError for one that does not end with its call."""
        return {exercise.number: self._checked(exercise) for exercise in self.exercises}

    def _checked(self, exercise: Exercise) -> Checked:
        found = statements(exercise.check.source)
        last = ast.parse(found[-1].source).body[0] if found else None
        call = last.value if isinstance(last, ast.Expr) else None
        name = ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name not in ("number", "choice", "function"):
            raise CourseError(
                f"{self.path.name}: the check of exercise {exercise.number} does not end with "
                "course.number, course.choice or course.function"
            )
        named = [one.value for one in call.keywords if one.arg == "answer"]
        answer = ast.Expr(named[0] if named else call.args[1])
        return Checked(needed(found[:-1], reads(answer)), ast.unparse(answer), found)


def read_teacher(path: Path) -> Teacher:
    """A notebook of the repository.

    Raises CourseError where it cannot be read or has an incomplete exercise.
    """
    import nbformat

    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CourseError(f"{path} is not a valid notebook: {fault}") from error
    if faults := form_faults(notebook.cells):
        raise CourseError(f"{path.name}: {faults[0]}")
    return Teacher(path, notebook.cells)


# The notebook's process ---------------------------------------------------------------------


class NotebookFails(CourseError):
    """A notebook whose cells do not run."""


@dataclass
class Kernel:
    """A process that has run a notebook; answers run in forks of it, along `lanes`."""

    cells: Sequence[tuple[int, str]]
    name: str
    lanes: "Queue[Connection]" = field(default_factory=Queue)
    stack: ExitStack = field(default_factory=ExitStack)

    def start(self, lanes: int, progress: Callable[[], object] = lambda: None) -> None:
        """Start a process, with so many more lanes. Raises NotebookFails.

        progress: called after each cell.
        """
        folder = self.stack.enter_context(
            tempfile.TemporaryDirectory(prefix="mmlib-course-", ignore_cleanup_errors=True)
        )
        for name in THREADS:  # a process with threads cannot be forked
            os.environ.setdefault(name, "1")
        context = get_context("spawn")
        ours, theirs = zip(*(context.Pipe() for _ in range(lanes)), strict=True)
        process = context.Process(target=serve, args=(os.getpid(), folder, self.cells, theirs))
        process.start()
        self.stack.callback(_end, process, ours)
        for lane in theirs:
            lane.close()
        try:
            while isinstance(fault := ours[0].recv(), int):
                progress()
        except EOFError:
            fault = "the process that ran it has ended"
        if fault:
            raise NotebookFails(f"{self.name}: {fault}")
        for lane in ours:
            self.lanes.put(lane)


def _end(process: Any, lanes: Iterable[Connection]) -> None:
    for lane in lanes:
        lane.close()
    process.join(10)
    process.kill()


@contextmanager
def running(
    teacher: Teacher, answers: Iterable[Sequence[Statement]], lanes: int = 1, whole: bool = False
) -> Iterator[tuple[Kernel, dict[int, Key]]]:
    """A process that has run what `answers` and the checks need, or all, and the checks' keys.

    answers: the statements of each.
    Where what is needed does not run by itself, all of the notebook is run.
    Raises CourseError where that fails, too, or the teacher's answers do.
    """
    worked = _worked(teacher)
    names = set().union(*(inputs(part) for part in [*answers, *worked]))
    program = teacher.program if whole else needed(teacher.program, names)
    cells = [
        (number, "\n".join(one.source for one in group))
        for number, group in groupby(program, key=lambda one: one.cell)
    ]
    steps = len(cells) + len(worked)
    with ExitStack() as stack:
        kernel = Kernel(cells, teacher.path.name, stack=stack)
        try:
            with tqdm(
                total=steps, desc=teacher.path.stem, unit="cell", delay=1.0, leave=False
            ) as bar:
                kernel.start(lanes, bar.update)
                keys = _keys(teacher, kernel, worked, bar.update)
        except CourseError:
            if whole:
                raise
            keys = {}
        if keys:
            yield kernel, keys
            return
    with running(teacher, answers, lanes, whole=True) as found:
        yield found


def _worked(teacher: Teacher) -> list[list[Statement]]:
    """For each exercise the check, and before it what it needs of the worked answers."""
    answers: list[Statement] = []
    worked = []
    for exercise in teacher.exercises:
        answers += statements(exercise.answer.source)
        check = teacher.checks[exercise.number].statements
        worked.append([*needed(answers, inputs(check)), *check])
    return worked


def _keys(
    teacher: Teacher,
    kernel: Kernel,
    worked: list[list[Statement]],
    progress: Callable[[], object],
) -> dict[int, Key]:
    if not worked:
        return {}
    lane, collected = kernel.lanes.get(), []
    lane.send(Request(tuple(map(_joined, worked))))
    for left in reversed(range(len(worked))):
        message = lane.recv_bytes()
        if message.startswith(b"{"):
            raise NotebookFails(f"{teacher.path.name}: checks: {json.loads(message)['ended']}")
        lane.send(left > 0)
        found = pickle.loads(message)  # from a process that ran the teacher's code alone
        if isinstance(found, str):
            raise NotebookFails(f"{teacher.path.name}: its answers and checks fail with {found}")
        collected += found
        progress()
    kernel.lanes.put(lane)
    keys = {key.exercise: key for key in collected}
    if list(keys) != [one.number for one in teacher.exercises]:
        raise CourseError(f"{teacher.path.name}: its checks are of exercises {[*keys]}")
    return keys


def read_keys(teacher: Teacher) -> dict[int, Key]:
    """The keys of a notebook's checks, by exercise; runs what they need. Raises CourseError."""
    if not teacher.exercises:
        return {}
    with running(teacher, ()) as (_, keys):
        return keys


def _joined(found: Iterable[Statement]) -> str:
    return "\n".join(one.source for one in found)


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
    lost these, most headings of exercises. setting: goes into its digest.
    """
    import nbformat

    content = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    digest = hashlib.sha256(content + setting.encode()).hexdigest()[:16]
    if not content:
        return HandIn(path, name, digest, fault=f"it is empty, or over {LARGEST / 1e6:.0f} MB")
    try:
        cells = nbformat.reads(content.decode(), as_version=4).cells
        ids = {cell.get("id") for cell in cells}
        headings = {_heading(cell) for cell in cells}

        def shared(one: Teacher) -> tuple[int, int]:
            titles = {_heading(exercise.question) for exercise in one.exercises}
            return len(ids & {c.id for c in one.cells}), len(headings & titles)

        teacher = max(teachers, key=shared)
        if not any(shared(teacher)):
            return HandIn(path, name, digest, fault="it has no cell of the course")
        return HandIn(path, name, digest, teacher, _answers(cells, teacher))
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"it is not a notebook: {type(error).__name__}: {error}".splitlines()[0]
        return HandIn(path, name, digest, fault=fault[:300])


def _heading(cell: Any) -> str:
    return cell.source.partition("\n")[0].strip()


def _answers(cells: Sequence[Any], teacher: Teacher) -> dict[int, str]:
    """The code between the question and the check of each exercise, and in its blank."""
    starts = {exercise.question.id: exercise.number for exercise in teacher.exercises}
    blanks = {exercise.blank.id: exercise.number for exercise in teacher.exercises}
    ends = {exercise.check.id for exercise in teacher.exercises}
    found: dict[int, list[str]] = {}
    current = None
    for cell in cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            current = starts.get(cell.get("id")) or exercise_of(cell.source) or current
        elif cell.get("id") in ends or "check" in tags:
            current = None
        elif cell.cell_type == "code" and (number := blanks.get(cell.get("id")) or current):
            found.setdefault(number, []).append(cell.source)
    return {number: "\n".join(sources) for number, sources in found.items()}


# Grading ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """What an answer may take: seconds, and bytes of memory beyond the notebook's own."""

    seconds: float = 60.0
    memory: int = 2**31


def grade(
    folder: Path,
    notebooks: Sequence[Path],
    out: Path,
    jobs: int = 1,
    limits: Limits = Limits(),
    whole: bool = False,
) -> Counter[str]:
    """Grade all notebooks in a folder, or one file, into a CSV file of marks, a row an exercise.

    result: right, wrong, blank or error; the reason says why. A file that cannot be graded is a
    row, too. Rows of an earlier call are kept where hand-in, notebooks and limits are the same.
    notebooks: with the answers. jobs: answers that run at a time. whole: run all of a notebook
    before its answers, not only what they need.
    Returns how many exercises have each result. Raises CourseError where there is nothing to grade,
    a notebook fails, or `out` is another file.
    """
    teachers = [read_teacher(path) for path in notebooks]
    setting = f"{limits} {whole}" + "".join(file_hash(path) for path in notebooks)
    files = sorted(p for p in folder.rglob("*.ipynb") if not _hidden(p.relative_to(folder)))
    files = [folder] if folder.is_file() else files
    if not files:
        raise CourseError(f"no notebook in {folder}")
    names = {p: p.relative_to(folder).as_posix() if p != folder else p.name for p in files}
    earlier = _earlier_marks(out)
    marks: dict[str, list[dict[str, Any]]] = {}
    pending = []
    with tqdm(total=len(files), desc="hand-ins", mininterval=1.0) as progress:

        def enter(hand_in: HandIn, rows: list[dict[str, Any]]) -> None:
            marks[hand_in.name] = rows
            _write_marks(out, marks)
            progress.update()

        for path, name in names.items():
            hand_in = read_hand_in(path, name, teachers, setting)
            rows = earlier.get(name, [])
            if rows and all(row["digest"] == hand_in.digest for row in rows):
                enter(hand_in, rows)
            elif hand_in.fault:
                enter(hand_in, [hand_in.row(None, "error", hand_in.fault)])
            else:
                pending.append(hand_in)
        for teacher in teachers:
            of_notebook = [hand_in for hand_in in pending if hand_in.teacher is teacher]
            for hand_in, rows in _graded(teacher, of_notebook, jobs, limits, whole):
                enter(hand_in, rows)
    return Counter(row["result"] for rows in marks.values() for row in rows)


def _graded(
    teacher: Teacher, hand_ins: Sequence[HandIn], jobs: int, limits: Limits, whole: bool
) -> Iterator[tuple[HandIn, list[dict[str, Any]]]]:
    """Hand-ins of one notebook and their rows, as soon as they are there."""
    if not hand_ins:
        return
    sources = [source for hand_in in hand_ins for source in hand_in.answers.values()]
    answers = [_parsed(source)[0] for source in sources]
    lanes = min(jobs, len(hand_ins))
    with (
        running(teacher, answers, lanes, whole) as (kernel, keys),
        ThreadPoolExecutor(lanes) as pool,
    ):
        todo = {pool.submit(_rows, hand_in, kernel, keys, limits): hand_in for hand_in in hand_ins}
        for done in as_completed(todo):
            yield todo[done], done.result()


def _rows(
    hand_in: HandIn, kernel: Kernel, keys: Mapping[int, Key], limits: Limits
) -> list[dict[str, Any]]:
    assert hand_in.teacher
    rows, answers = [], []
    for exercise in hand_in.teacher.exercises:
        source = hand_in.answers.get(exercise.number)
        own, fault = _parsed(source or "")
        answers += own
        if source is None:
            result = ("error", "its cell is missing")
        elif source.strip() == exercise.blank.source.strip():
            result = ("blank", "")
        elif fault:
            result = ("error", fault)
        else:
            checked, key = hand_in.teacher.checks[exercise.number], keys[exercise.number]
            part = needed(
                [*answers, *checked.prelude], reads(ast.parse(checked.expression).body[0])
            )
            part = [statement for statement in part if statement not in checked.prelude]
            sources = [_joined(part)]
            if any(statement not in part for statement in own):
                sources.append(source)
            request = Request(
                tuple(sources), _joined(checked.prelude), checked.expression,
                key.cases if key.kind == "function" else None, limits.seconds, limits.memory,
            )  # fmt: skip
            result = _result(request, kernel, key)
        rows.append(hand_in.row(exercise, *result))
    return rows


def _parsed(source: str) -> tuple[list[Statement], str]:
    """The statements of an answer; where it is no Python, none, and the error."""
    try:
        return statements(source), ""
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [], f"{type(error).__name__}: {error}".splitlines()[0]


def _result(request: Request, kernel: Kernel, key: Key) -> tuple[str, str]:
    """The result of one answer and its reason.

    All of an answer is run only where the part that seemed needed is not right.
    """
    lane, result = kernel.lanes.get(), ("", "")
    try:
        lane.send(request)
        for number, _ in enumerate(request.sources, 1):
            message = json.loads(lane.recv_bytes())
            if "ended" in message:
                result = result if result[0] in ("wrong", "blank") else ("error", message["ended"])
                break
            result = _judged(message, key)
            more = number < len(request.sources) and result[0] != "right"
            lane.send(more)
            if not more:
                break
        kernel.lanes.put(lane)
    except (EOFError, OSError):  # a lane was killed; the others go on, and there is a new one
        kernel.start(1)
        return "error", "it ended the process that grades"
    return result


def _judged(message: Mapping[str, Any], key: Key) -> tuple[str, str]:
    """What a key says of what an answer gave."""
    if "error" in message:
        return "error", str(message["error"])
    try:
        if "calls" in message:
            calls = [
                Call(**one | {"returned": decoded(one["returned"])}) for one in message["calls"]
            ]
            answer: Any = Replay(calls)
        else:
            answer = decoded(message["answer"])
        with _judging, open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            judge(key, answer)
    except NoAnswer:
        return "blank", ""
    except WrongAnswer as error:
        return "wrong", str(error)
    except Exception as error:  # what no answer sends
        return "error", f"its answer cannot be read: {type(error).__name__}"
    return "right", ""


# The table of marks -------------------------------------------------------------------------


def _earlier_marks(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of an earlier call, by file. Raises CourseError where `out` is no table of marks."""
    if not out.exists():
        return {}
    with open(out, encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise CourseError(f"{out} is no table of marks of this command; name another file")
        rows = list(table)
    return {name: list(group) for name, group in groupby(rows, key=lambda row: row["file"])}


def _write_marks(out: Path, marks: Mapping[str, list[dict[str, Any]]]) -> None:
    def write(path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            for name in sorted(marks):
                table.writerows(marks[name])

    write_atomic(out, write)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
