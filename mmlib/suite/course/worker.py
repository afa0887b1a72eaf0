"""The processes that run a course's code: one runs the notebook, its forks run the answers.

The process of a notebook runs all but its exercises. For each answer it forks one that waits, and
that one another, which runs the answer. So an answer meets nothing of any other hand-in. What it
gives comes back as JSON, and is compared elsewhere: no truth is in its process.
"""

import ast
import io
import json
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mmlib.core.parallel import end_with
from mmlib.suite.course import checks
from mmlib.suite.course.form import names

LARGEST = 2**24  # bytes of an answer
STATM = Path("/proc/self/statm")  # how much memory this process has
FILES = 2**26  # bytes of a file that an answer may write


@dataclass(frozen=True)
class Request:
    """An answer to run. source: its code; earlier: that of the exercises before it.

    prelude, expression: `form.Exercise.asked`. cases: of a function's check. seconds: to run in.
    memory: bytes, beyond what the notebook takes.
    """

    source: str
    earlier: Sequence[str]
    prelude: str
    expression: str
    cases: Sequence[tuple]
    seconds: float
    memory: int


def serve(
    parent: int, folder: str, cells: Sequence[tuple[int, str]], worked: Sequence[tuple[str, str]],
    report: Connection, control: socket.socket,
) -> None:  # fmt: skip
    """Run a notebook's cells (number, source), then the answers of requests; a process's target.

    worked: the teacher's answers and checks. report: is sent the number of each cell once it has
    run, then the pickled keys of the checks, or what failed. control: brings a connection for each
    request.
    """
    os.environ |= {"MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": folder}
    end_with(parent)
    os.setsid()
    Path(folder, "notebooks").mkdir(exist_ok=True)
    os.chdir(Path(folder, "notebooks"))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # nothing printed from here on is seen or kept
        os.dup2(nowhere, number)
    sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    for number, source in cells:
        done = shell.run_cell(source)
        if error := done.error_before_exec or done.error_in_exec:
            report.send(f"cell {number} fails with {_line(error)}")
            return
        report.send(number)
    if "joblib" in sys.modules:  # its threads would not be in a fork
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(kill_workers=True)
    if (child := os.fork()) == 0:
        report.send(_keys(worked, shell))
        os._exit(0)
    os.waitpid(child, 0)
    report.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what answers
    while handles := socket.recv_fds(control, 1, 1)[1]:
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with(os.getppid())
            _wait_for_answer(Connection(handles[0]), shell)
            os._exit(0)
        os.close(handles[0])


def _keys(worked: Sequence[tuple[str, str]], shell: Any) -> bytes | str:
    """The pickled keys of the checks, or the line that says why there are none."""
    checks.collected = []
    try:
        for answer, check in worked:
            halves = _halves(answer, check, shell)
            for left, half in zip(reversed(range(len(halves))), halves, strict=True):
                exec(half, shell.user_ns)
                try:
                    exec(check, shell.user_ns)
                    break
                except Exception:
                    if not left:
                        raise
        return pickle.dumps(checks.collected)
    except BaseException as error:
        return f"its answers and checks fail with {_line(error)}"


def _halves(source: str, check: str, shell: Any) -> list[Any]:
    """The statements of an answer up to the last that binds a name which the check reads; the rest.

    Answers end with trainings that show what they do, which a check seldom needs.
    """
    body, wanted = ast.parse(shell.transform_cell(source)).body, names(check)[1]
    ends = [i for i, node in enumerate(body, 1) if names(ast.unparse(node))[0] & wanted]
    end = ends[-1] if ends else len(body)
    halves = [half for half in (body[:end], body[end:]) if half]
    return [compile(ast.Module(half, []), "<answer>", "exec") for half in halves]


def _wait_for_answer(asked: Connection, shell: Any) -> None:
    """Run a request in a process of its own, pass on what it says, and end all that it began."""
    request: Request = asked.recv()
    here, there = Pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        end_with(os.getppid())
        os.closerange(3, there.fileno())
        os.closerange(there.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        with suppress(FileNotFoundError):  # elsewhere than on Linux, memory has no limit
            taken = int(STATM.read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + request.memory,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILES, FILES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for look in _looks(request, shell):
            there.send_bytes(json.dumps(look).encode())
            there.recv_bytes()
        os._exit(0)
    there.close()

    def time_is_over(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, time_is_over)
    end = ""
    while not end:
        try:
            signal.setitimer(signal.ITIMER_REAL, request.seconds)
            message = here.recv_bytes(LARGEST)
        except TimeoutError:
            end = f"the time limit of {request.seconds:g} s passed"
        except EOFError:
            end = "it ended the process that ran it"
        except OSError:
            end = f"its answer takes more than {LARGEST >> 20} MiB"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        asked.send_bytes(json.dumps({"error": end}).encode() if end else message)
        try:
            more = asked.recv()
        except (EOFError, OSError):  # nobody wants to know more
            break
        with suppress(OSError):  # it died meanwhile, which is seen above
            here.send(more)
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)


def _looks(request: Request, shell: Any) -> Iterator[dict[str, Any]]:
    """What the check sees of an answer once the name that it asks for is there, then at its end.

    An answer that lacks a name is run once more, after the answers before it.
    """
    try:
        halves = _halves(request.source, request.prelude + request.expression, shell)
        for left in reversed(range(len(halves))):
            for again in (False, True):
                try:
                    exec(halves[-1 - left], shell.user_ns)
                    exec(request.prelude, shell.user_ns)
                    answer = eval(request.expression, shell.user_ns)
                    look = asdict(checks.Answer.of(answer, request.cases))
                except BaseException as error:  # SystemExit, too
                    look = {"error": _line(error)}
                if again or not request.earlier or "NameError" not in str(look):
                    break
                for source in request.earlier:
                    with suppress(BaseException):
                        exec(shell.transform_cell(source), shell.user_ns)
            yield look | {"more": left > 0}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield {"error": _line(error)}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
