"""How nbval runs and compares the notebooks of this folder."""

import time
from queue import Empty

import pytest
from nbval.kernel import RunningKernel

# Warnings name temporary files, and vector pictures hold random names.
NOT_COMPARED = ("stderr", "image/svg+xml", "application/pdf")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Compare neither stderr nor pictures."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += NOT_COMPARED


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
