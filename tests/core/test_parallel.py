"""Work spread over processes: order, errors, and no word about workers that were replaced."""

import subprocess
import sys
import time

import pytest

from mmlib.core.parallel import in_processes

GROWING = """
import os, sys, time, warnings
from mmlib.core import parallel

def grow(turn):
    kept = sys.__dict__.setdefault("kept", [])
    parallel.GROWTH = {limit}  # for the next call in this worker
    if turn > 1:  # joblib measures a worker first after its first call
        kept.append(b"x" * 100_000_000)
    time.sleep(0.6)
    return turn, os.getpid()

if {loud}:
    warnings.resetwarnings()
turns, workers = zip(*parallel.in_processes(grow, [(turn,) for turn in range(12)], 2))
assert turns == tuple(range(12))
print(len(set(workers)))
"""


def growing(limit, loud=False):
    """How many workers there were, and what was said, as workers grow by 500 MB each."""
    script = GROWING.format(limit=limit, loud=loud)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return int(ran.stdout), ran.stderr


def slow_square(number, wait):
    time.sleep(wait)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_calls(workers):
    calls = [(number, 0.05 * (number % 2)) for number in range(7)]
    assert list(in_processes(slow_square, calls, workers)) == [number**2 for number in range(7)]
    loose = in_processes(slow_square, calls, workers, ordered=False)
    assert sorted(loose) == [number**2 for number in range(7)]
    assert list(in_processes(slow_square, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_one_call_is_raised(workers):
    with pytest.raises(ValueError, match="-3 is negative"):
        list(in_processes(slow_square, [(2, 0.0), (-3, 0.0), (4, 0.0)], workers))


def test_a_worker_may_grow():
    assert growing("parallel.GROWTH") == (2, "")


def test_a_worker_that_grows_too_much_is_replaced_without_a_word():
    count, said = growing(1.5e8)
    assert count > 2
    assert not said
    count, said = growing(1.5e8, loud=True)
    assert count > 2
    assert "A worker stopped" in said
