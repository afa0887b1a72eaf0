"""How nbval runs and compares the notebooks of this folder, and then tries their exercises.

A notebook runs without answers. When its last cell is done, the same kernel is given each exercise:
of the blank the check must say that there is no answer yet, of the worked answer that it is right.
"""

import re
import time
from queue import Empty

import pytest
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbFile

from mmlib.suite.course import form
from mmlib.suite.course.form import read_teacher

# Warnings name temporary files, and vector pictures hold random names.
NOT_COMPARED = ("stderr", "image/svg+xml", "application/pdf")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Compare neither stderr nor pictures."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += NOT_COMPARED


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """An item for each exercise after the cells of a notebook."""
    report = yield
    if isinstance(collector, IPyNbFile) and report.passed:
        report.result += exercises(collector)
    return report


def exercises(notebook: IPyNbFile) -> list["Exercise"]:
    """The exercises of a notebook that nbval has collected."""
    tasks = read_teacher(notebook.path).exercises
    return [
        Exercise.from_parent(notebook, name=f"exercise {task.number}", task=task) for task in tasks
    ]


class Exercise(pytest.Item):
    """An exercise and its worked answer, in the kernel that has run the whole notebook."""

    def __init__(self, *, task: form.Exercise, **how) -> None:
        super().__init__(**how)
        self.task = task

    def runtest(self) -> None:
        """The check refuses the blank in one line, and accepts the worked answer."""
        if not self.parent.kernel.is_alive():
            pytest.fail("the kernel is dead", pytrace=False)
        task, check = self.task, self.task.check.source
        name = f"Exercise {task.number}"
        self.run("the blank", task.blank.source, "")
        self.run("the check of the blank", check, f"{name} has no answer yet: ")
        self.run("the worked answer", task.answer, "")
        self.run("the check of the worked answer", check, f"{name}: right.\n")

    def run(self, what: str, source: str, expected: str) -> None:
        """Run a cell, which must not fail and must print what begins as expected."""
        printed: list[str] = []
        done = self.parent.kernel.kc.execute_interactive(
            source,
            allow_stdin=False,
            output_hook=lambda message: printed.append(message["content"].get("text", "")),
            timeout=600,
        )["content"]
        text = COLOUR.sub("", "\n".join(done.get("traceback", ["".join(printed)])))
        if done["status"] != "ok" or not text.startswith(expected):
            pytest.fail(f"{what} of {self.name}\n\n{source}\n\ngave\n\n{text}", pytrace=False)

    def reportinfo(self):
        """Where it stands: the notebook."""
        return self.path, None, self.name


def _message_of_a_living_kernel(kernel, stream, timeout=None):
    """nbval's `get_message`, but a kernel that died is noticed at once, not at the time limit."""
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return _get_message(kernel, stream, timeout=max(0.0, min(left, 1.0)))
        except Empty:
            if not kernel.is_alive():
                raise RuntimeError("the kernel died in this cell") from None
            if left <= 1:
                raise


if RunningKernel.get_message.__name__ == "get_message":  # not patched yet
    _get_message = RunningKernel.get_message
    RunningKernel.get_message = _message_of_a_living_kernel
