"""The processes that run a course's code: one runs the notebook, its forks run the hand-ins.

The process of a notebook runs all but its exercises. For each hand-in it forks one that runs the
answers, so that these meet nothing of any other hand-in. What an answer gives comes back as JSON,
and is compared elsewhere: no truth is in its process.
"""

import io
import json
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mmlib.core.parallel import end_with
from mmlib.suite.course import checks

STATM = Path("/proc/self/statm")  # how much memory this process has
FILES = 2**26  # bytes of a file that an answer may write


def serve(
    parent: int, folder: str, cells: Sequence[tuple[int, str]], secret: Sequence[str],
    memory: int, report: Connection, control: socket.socket,
) -> None:  # fmt: skip
    """Run a notebook's cells (number, source), then hand-ins in forks; the target of a process.

    secret: files that no hand-in may open. memory: bytes of a hand-in beyond those of the notebook.
    report: is sent the number of each cell once it has run, then the keys of the checks, or what
    failed; it brings the teacher's answers and checks, which only a fork receives. control: brings
    a connection for each hand-in; a message without one is sent back, as a sign of life.
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
        if error := _error(shell, source):
            report.send(f"cell {number} fails with {_line(error)}")
            return
        report.send(number)
    if "joblib" in sys.modules:  # its threads would not be in a fork
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(kill_workers=True)
    if (child := os.fork()) == 0:
        checks.collected = []
        try:
            for source in report.recv():
                if error := _error(shell, source):
                    raise error
            right = [key for key in checks.collected if key.exercise in checks.solved]
            report.send_bytes(pickle.dumps(right))  # `send` would share tensors, with one that ends
        except BaseException as error:
            report.send(f"its answers and checks fail with {_line(error)}")
        os._exit(0)
    os.waitpid(child, 0)
    report.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for hand-ins
    while (received := socket.recv_fds(control, 1, 1))[0]:
        if not received[1]:
            control.send(received[0])
        elif os.fork() == 0:
            control.close()
            with suppress(BaseException):
                _run_answers(Connection(received[1][0]), shell, secret, memory)
            os._exit(0)
        for handle in received[1]:
            os.close(handle)


def _run_answers(requests: Connection, shell: Any, secret: Sequence[str], memory: int) -> None:
    """Run the answers of a hand-in, in a child: an answer may end or stop its parent.

    A request is the cells of an answer, those before it if they are to run again, what the check
    evaluates, its cases, and how many seconds each of these may take.
    """
    os.setsid()
    end_with(os.getppid())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        requests.close()
        os.waitpid(child, 0)
        return
    os.setsid()
    end_with(os.getppid())
    os.closerange(3, requests.fileno())
    os.closerange(requests.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    with suppress(FileNotFoundError):  # elsewhere than on Linux, memory has no limit
        taken = int(STATM.read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shell.run_line_magic = partial(_line_magic, shell.run_line_magic)
    sys.addaudithook(partial(_refuse, frozenset(map(os.path.realpath, secret))))
    requests.send((os.getpid(), os.getppid()))
    while True:
        sources, earlier, prelude, expression, cases, seconds = requests.recv()

        def time_is_over(*_: Any, limit: float = seconds) -> None:
            raise TimeoutError(f"the time limit of {limit:g} s passed")

        signal.signal(signal.SIGALRM, time_is_over)
        for code in earlier:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            _error(shell, code)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        failed = next(filter(None, (_error(shell, code) for code in sources)), None)
        try:  # also where the answer fails after it has bound what is asked for
            signal.setitimer(signal.ITIMER_REAL, seconds)
            exec(prelude, shell.user_ns)
            seen = checks.look(eval(expression, shell.user_ns), cases)
            message = json.dumps(seen | {"failed": _line(failed) if failed else ""})
        except BaseException as error:  # SystemExit, too
            message = json.dumps({"error": _line(failed or error)})
        signal.setitimer(signal.ITIMER_REAL, 0)
        requests.send_bytes(message.encode())


def _line_magic(run: Callable, name: str, line: str, _stack_depth: int = 1) -> Any:
    """Run a line magic; what only JupyterLab has, as "%matplotlib widget", does nothing."""
    from IPython.core.error import UsageError

    with suppress(UsageError, ImportError):
        return None if name == "matplotlib" else run(name, line, _stack_depth=_stack_depth + 1)


def _refuse(secret: Container[str], event: str, arguments: tuple) -> None:
    """An audit hook of Python: an answer opens neither notebook nor answers itself."""
    if event == "open" and isinstance(arguments[0], str | bytes):
        if os.path.realpath(os.fsdecode(arguments[0])) in secret:
            raise PermissionError("an answer may not open the course's notebooks and answers")


def _error(shell: Any, source: str) -> BaseException | None:
    done = shell.run_cell(source)
    return done.error_before_exec or done.error_in_exec


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
