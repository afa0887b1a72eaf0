"""How nbval runs and compares the notebooks of this folder, and then tries their exercises.

A notebook holds the worked answers, which run as cells like any other. When its last cell is done,
the same kernel forgets each answer and meets the students' blank instead: the check must then say,
in one line, that there is no answer yet.
"""

import ast
import re
import time
from queue import Empty

import pytest
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbFile

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
    code = [cell for cell in notebook.nb.cells if cell.cell_type == "code"]
    parts = [
        [cell.source for cell in code if part in cell.metadata.get("tags", [])]
        for part in ("blank", "answer", "check")
    ]
    kept = {name for cell in code if cell.source not in parts[1] for name in bound(cell.source)}
    found = []
    for number, (blank, answer, check) in enumerate(zip(*parts, strict=True), 1):
        forget = "\n".join(f"globals().pop({name!r}, None)" for name in bound(answer) - kept)
        found.append(
            Exercise.from_parent(
                notebook,
                name=f"exercise {number}: blank is refused",
                sources={"the answer's names": forget, "the blank": blank, "the check": check},
                refusal=f"Exercise {number} has no answer yet",
            )
        )
    return found


def bound(source: str) -> set[str]:
    """Names that a cell gives a value at its top level; of one with magics, none."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return set()
    nodes = [node for line in body if not hasattr(line, "body") for node in ast.walk(line)]
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {line.name for line in body if hasattr(line, "name")}


class Exercise(pytest.Item):
    """An exercise without its answer, in the kernel that has run the whole notebook."""

    def __init__(self, *, sources: dict[str, str], refusal: str, **how) -> None:
        super().__init__(**how)
        self.sources, self.refusal = sources, refusal

    def runtest(self) -> None:
        """The blank passes; its check refuses it without a traceback."""
        kernel = self.parent.kernel
        if not kernel.is_alive():
            pytest.fail("the kernel is dead", pytrace=False)
        for what, source in self.sources.items():
            done = kernel.kc.execute_interactive(
                source, allow_stdin=False, output_hook=lambda _: None, timeout=60
            )["content"]
            told = COLOUR.sub("", "\n".join(done.get("traceback", []))) or "no error"
            if what != "the check":
                failed = done["status"] != "ok"
            else:
                line = f"{done.get('evalue')}"
                polite = done.get("traceback") == [line] and line.startswith(self.refusal)
                failed = not (done.get("ename") == "NoAnswer" and polite)
            if failed:
                pytest.fail(f"{what} of {self.name}\n\n{source}\n\ngave\n\n{told}", pytrace=False)

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
