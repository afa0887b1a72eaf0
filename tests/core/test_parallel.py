"""Work ahead, over processes, on a cluster: order, errors, and no word about replaced workers."""

import gc
import socket
import subprocess
import sys
import threading
import time

import pytest
from tiny_jobs import in_threads

from mmlib.core import parallel
from mmlib.core.errors import DataError
from mmlib.core.parallel import ahead, connect, in_processes, on_cluster

GROWING = """
import os, sys, time
from mmlib.core import parallel

def grow(turn):
    kept = sys.__dict__.setdefault("kept", [])
    parallel.GROWTH = {limit}  # for the next call in this worker
    if turn > 1:  # joblib measures a worker first after its first call
        kept.append(b"x" * 100_000_000)
    time.sleep(0.6)
    return turn, os.getpid()

turns, workers = zip(*parallel.in_processes(grow, [(turn,) for turn in range(12)], 2))
assert turns == tuple(range(12))
print(len(set(workers)))
"""


def growing(limit):
    """How many workers there were, and what was said, as workers grow by 500 MB each."""
    script = GROWING.format(limit=limit)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return int(ran.stdout), ran.stderr


def slow_square(number, wait):
    time.sleep(wait)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_calls_and_an_error_is_raised(workers):
    calls = [(number, 0.05 * (number % 2)) for number in range(7)]
    assert list(in_processes(slow_square, calls, workers)) == [number**2 for number in range(7)]
    loose = in_processes(slow_square, calls, workers, ordered=False)
    assert sorted(loose) == [number**2 for number in range(7)]
    assert list(in_processes(slow_square, [], workers)) == []
    with pytest.raises(ValueError, match="-3 is negative"):
        list(in_processes(slow_square, [(2, 0.0), (-3, 0.0), (4, 0.0)], workers))


def test_a_worker_may_grow_and_one_that_grows_too_much_is_replaced_without_a_word():
    assert growing("parallel.GROWTH") == (2, "")
    count, said = growing(1.5e8)
    assert (count > 2, said) == (True, "")


# --- Ahead of use ------------------------------------------------------------------------------


def test_items_are_made_while_the_last_one_is_in_use():
    made = [threading.Event() for _ in range(6)]

    def items():
        for number, event in enumerate(made):
            event.set()
            yield number

    for number, found in enumerate(ahead(items())):
        assert found == number
        assert all(event.wait(30) for event in made[number + 1 : number + 2])
        assert not any(event.is_set() for event in made[number + 2 :])  # and no more than that
    assert list(ahead([])) == []


def test_an_error_in_an_item_comes_in_its_turn():
    found = ahead(1 / (2 - number) for number in range(5))
    assert [next(found), next(found)] == [0.5, 1]
    with pytest.raises(ZeroDivisionError):
        next(found)


# --- A cluster ---------------------------------------------------------------------------------


def take(folder, number):
    """Fails where another call is under way."""
    with open(folder / "busy", "x"):
        time.sleep(0.2)
    (folder / "busy").unlink()
    return number


def test_calls_on_a_cluster_run_side_by_side_or_one_after_another(tmp_path):
    calls = [(tmp_path, number) for number in range(4)]
    with in_threads(2) as cluster:
        address = cluster.scheduler_address
        assert list(on_cluster(take, calls, address, side_by_side=False)) == [0, 1, 2, 3]
        with pytest.raises(FileExistsError):
            list(on_cluster(take, calls, address))


def test_a_scheduler_that_is_lost_or_never_answers_is_one_line(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(parallel, "PATIENCE", 1.0)
    told = "^the Dask scheduler at inproc.* was lost: what .* kept, and the same command goes on$"
    with in_threads(1) as cluster:
        calls = [(tmp_path, number) for number in range(9)]
        results = on_cluster(take, calls, cluster.scheduler_address)
        assert next(results) == 0
        cluster.sync(cluster.scheduler.close)
        with pytest.raises(DataError, match=told):
            list(results)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        for wrong in ("tcp://a:b", "nonsense://x", "tcp://127.0.0.1:1", address):
            gc.collect()  # a client that is freed while another one starts would wait for it
            with pytest.raises(DataError, match=f"^no Dask scheduler answers at {wrong} .*$"):
                connect(wrong)
    assert "distributed.client" not in {record.name for record in caplog.records}


def test_threads_of_one_worker_are_refused(tmp_path):
    with in_threads(1, threads=2) as cluster, pytest.raises(DataError, match="--nthreads 1"):
        list(on_cluster(take, [(tmp_path, 0)], cluster.scheduler_address))


def test_a_worker_whose_asker_is_gone_before_its_first_call_ends():
    """It once took whoever inherits orphans for its parent, and worked on."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    script = (
        f"import time\nfrom mmlib.core.parallel import _call\n_call(time.sleep, (99,), {gone.pid})"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=90).returncode == 1
