"""The processes that run a course's code: one runs the notebook, its forks run the answers.

The process of a notebook forks `lanes`, and a lane forks a process for each answer, which dies with
it. So an answer meets the notebook as it is before the exercises, and nothing of any other answer.
What an answer gives comes back as JSON, and is compared elsewhere: no truth is in its process.
"""

import io
import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.core.parallel import end_with
from mmlib.suite.course import checks
from mmlib.suite.course.values import plain, shown

LARGEST = 2**24  # bytes of an answer
STATM = Path("/proc/self/statm")  # how much memory this process has
FILES = 2**26  # bytes of a file that an answer may write


@dataclass(frozen=True)
class Request:
    """An answer to run, or, without an `expression`, checks whose keys to collect.

    sources: the needed part of the answer, and all of it where that is more. prelude: what the
    check does before its call. expression: what the check checks. cases: for a function, else None.
    seconds: for each of the sources. memory: bytes, beyond what the notebook takes.
    """

    sources: tuple[str, ...]
    prelude: str = ""
    expression: str = ""
    cases: tuple[tuple, ...] | None = None
    seconds: float = 600.0
    memory: int = 0


class Other:
    """A value that is neither number nor text: what it looks like."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def serve(parent: int, folder: str, cells: Sequence[tuple[int, str]], lanes: Sequence[Connection]):
    """Run a notebook's cells (number, source), then what comes along each lane; a process's target.

    The first lane is told the number of each cell once it has run, then None, or what failed.
    """
    os.environ |= {"MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": folder}
    end_with(parent)
    Path(folder, "notebooks").mkdir(exist_ok=True)
    os.chdir(Path(folder, "notebooks"))
    _silence()
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    fault = None
    for number, source in cells:
        done = shell.run_cell(source)
        if error := done.error_before_exec or done.error_in_exec:
            fault = f"cell {number} fails with {_line(error)}"
            break
        lanes[0].send(number)
    if "joblib" in sys.modules:  # its threads would not be in a fork
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(kill_workers=True)
    lanes[0].send(fault)
    for lane in lanes if fault is None else ():
        if os.fork() == 0:
            for other in set(lanes) - {lane}:
                other.close()
            end_with(os.getppid())
            _serve_lane(lane, shell.user_ns)
            os._exit(0)
    for lane in lanes:
        lane.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _serve_lane(lane: Connection, namespace: dict[str, Any]) -> None:
    """Answer requests, one process each, until the other side closes the lane."""
    signal.signal(signal.SIGALRM, _time_is_over)
    while True:
        try:
            request = lane.recv()
        except EOFError:
            return
        here, there = Pipe()
        if (child := os.fork()) == 0:
            _run_request(request, there, namespace)
            os._exit(0)
        there.close()
        _pass_on(request, here, lane)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        here.close()


def _pass_on(request: Request, here: Connection, lane: Connection) -> None:
    """What a process says goes to the other side of the lane, which says whether to go on."""
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
        if end:
            return lane.send_bytes(json.dumps({"ended": end}).encode())
        lane.send_bytes(message)
        if not lane.recv():
            return None
        with suppress(OSError):  # it died meanwhile, which is seen above
            here.send_bytes(b"go on")


def _time_is_over(*_: Any) -> None:
    raise TimeoutError


# The process of an answer -------------------------------------------------------------------


def _run_request(request: Request, there: Connection, namespace: dict[str, Any]) -> None:
    os.setsid()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if not request.expression:
        for source in request.sources:
            there.send_bytes(_keys(source, namespace))
            there.recv_bytes()
        return
    end_with(os.getppid())
    os.closerange(3, there.fileno())
    os.closerange(there.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    with suppress(FileNotFoundError):  # elsewhere than on Linux, memory has no limit
        taken = int(STATM.read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + request.memory,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for source in request.sources:
        there.send_bytes(json.dumps(_answer(request, source, namespace)).encode())
        there.recv_bytes()


def _keys(source: str, namespace: dict[str, Any]) -> bytes:
    """The keys of a check, or the line that says why there are none."""
    checks.collected = []
    try:
        exec(source, namespace)
        return pickle.dumps(checks.collected)
    except BaseException as error:
        return pickle.dumps(_line(error))


def _answer(request: Request, source: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """What an answer gives: {"answer": ...}, {"calls": [...]} of a function, or {"error": ...}."""
    try:
        exec(source, namespace)
        exec(request.prelude, namespace)
        answer = eval(request.expression, namespace)
        if request.cases is None or not callable(answer):
            return {"answer": encoded(answer)}
        calls = [vars(checks.attempt(answer, case)) for case in request.cases]
        return {"calls": [call | {"returned": encoded(call["returned"])} for call in calls]}
    except BaseException as error:  # SystemExit, too
        return {"error": _line(error)}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _silence() -> None:
    """Nothing printed from here on is seen or kept."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8")


# Answers as JSON ----------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """A value as JSON takes it; of what is no number, text, list, dict or set, only the looks."""
    value = plain(value)
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return {"array": np.ravel(value).tolist(), "shape": np.shape(value)}
    if isinstance(value, list | tuple):
        return [encoded(one) for one in value]
    if isinstance(value, Mapping):
        return {"dict": [[encoded(key), encoded(one)] for key, one in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": [encoded(one) for one in value]}
    if value is ...:
        return {"blank": True}
    with suppress(TypeError, ValueError, OverflowError):  # Fraction, Decimal
        return float(value)
    return {"other": shown(value)}


def decoded(value: Any) -> Any:
    """What `encoded` made of a value, as that value or what resembles it.

    Raises ValueError, TypeError or KeyError for what `encoded` did not make.
    """
    if isinstance(value, list):
        return [decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    [kind] = value.keys() - {"shape"}
    if kind == "array":
        return np.array(value["array"]).reshape(value["shape"])
    if kind == "dict":
        return {_hashable(decoded(key)): decoded(one) for key, one in value["dict"]}
    if kind == "set":
        return {_hashable(decoded(one)) for one in value["set"]}
    return ... if kind == "blank" else Other(str(value["other"]))


def _hashable(value: Any) -> Any:
    """Lists in a set or as a key were tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
