"""Work spread over processes: order, errors, and no word about workers that were replaced."""

import subprocess
import sys
import time

import pytest

from mmlib.parallel import in_processes

GROWING = """
import sys, time, warnings
from mmlib.parallel import in_processes

def grow(turn):
    kept = sys.modules["time"].__dict__.setdefault("kept", [])
    if turn > 1:  # joblib measures a worker first after its first call
        kept.append(b"x" * 200_000_000)
    time.sleep(0.6)
    return turn

if {loud}:
    warnings.resetwarnings()
print(list(in_processes(grow, [(turn,) for turn in range(14)], 2)))
"""


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


@pytest.mark.parametrize("loud", [False, True])
def test_a_replaced_worker_is_not_spoken_of(loud):
    """joblib replaces workers that have grown; its warning is seen only where filters are reset."""
    ran = subprocess.run(
        [sys.executable, "-c", GROWING.format(loud=loud)], capture_output=True, text=True
    )
    assert ran.stdout.strip() == str(list(range(14))), ran.stderr
    assert ("A worker stopped" in ran.stderr) == loud
    assert loud or not ran.stderr
