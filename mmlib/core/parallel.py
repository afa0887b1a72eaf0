"""Work done ahead in a thread, spread over processes of this machine, or over a Dask cluster."""

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from mmlib.core.errors import DataError

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
PATIENCE = 10.0  # seconds that a Dask scheduler may take to answer
GROWTH = 2e9  # bytes that a worker may grow by before joblib replaces it and PyTorch starts anew
# It warns of that in a thread of its own, but a training that needs much memory is no fault.
warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # Dask's, of a job's data
# A worker keeps the memory of its tensors instead of asking for it anew in every step: a third less
# time for a training step of many sentences. Read by the C library when a process starts.
MALLOC = {"MMAP_THRESHOLD_": "2000000000", "TRIM_THRESHOLD_": "2000000000", "TOP_PAD_": "100000000"}


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items; a thread makes the next one while one is in use.

    An error in making an item is raised here, in its turn.
    """
    left, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, left, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, left, end)
            yield item  # type: ignore[misc]


def in_processes(
    function: Callable[..., Any], calls: Iterable[tuple], workers: int, ordered: bool = True
) -> Iterator[Any]:
    """What `function(*call)` returns for each call, as soon as it is there.

    workers: processes; with 1 all is done in this one. ordered: in the order of `calls`, else in
    that of finishing. An error of one call is raised here, and no further call begins.
    """
    from joblib import Parallel, delayed

    for name, value in MALLOC.items():
        os.environ.setdefault(f"MALLOC_{name}", value)
    kind = "generator" if ordered else "generator_unordered"
    results: Iterator[Any] = Parallel(n_jobs=workers, return_as=kind)(
        delayed(_call)(function, call, os.getpid()) for call in calls
    )
    return results


def connect(address: str) -> "Client":
    """A client of the Dask scheduler at "tcp://host:8786" or "tls://…". Raises DataError."""
    from distributed import Client

    class Caller(Client):
        def start(self, **how: Any) -> None:  # else a server that says nothing is waited for
            super().start(**how, callback_timeout=2 * PATIENCE)

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # it is raised here
    try:
        return Caller(address, timeout=PATIENCE)
    except Exception as error:  # many kinds: no host, port or certificate, another kind of server
        reason = f"{error}".strip().partition("\n")[0] or type(error).__name__
        raise DataError(f"no Dask scheduler answers at {address} ({reason})") from None


def on_cluster(
    function: Callable[..., Any], calls: Iterable[tuple], address: str, side_by_side: bool = True
) -> Iterator[Any]:
    """As `in_processes`, unordered, on the workers of the Dask scheduler at an address.

    Workers may come later. A worker that dies gives its calls to the others. side_by_side: else
    one call after another. Raises DataError as `connect`, for a scheduler that is lost, for a call
    that ends every worker that takes it, and for a worker of several threads.
    """
    from distributed import KilledWorker, as_completed, get_worker

    def alone(*call: Any) -> Any:
        if (threads := get_worker().state.nthreads) > 1:  # which would share random numbers
            raise DataError(f"a Dask worker has {threads} threads: start workers with --nthreads 1")
        return function(*call)

    mend = "what was finished is kept, and the same command goes on"
    with connect(address) as client:
        left, running = iter(calls), as_completed()
        while True:
            try:
                # Two calls a worker are sent at a time: they carry their data, which may be large.
                room = 2 * max(len(client.nthreads()), 1) if side_by_side else 1
                for call in islice(left, max(room - running.count(), 0)):
                    running.add(client.submit(alone, *call, pure=False))
                if running.is_empty():
                    return
                done = next(running)
                lost = done.cancelled()
            except Exception:  # of the connection: a call's own error comes with its result
                lost = True
            if lost:
                raise DataError(f"the Dask scheduler at {address} was lost: {mend}") from None
            if isinstance(done.exception(), KilledWorker):
                raise DataError(f"a call ended all workers that took it (memory?): {mend}")
            yield done.result()


def _call(function: Callable[..., Any], call: tuple, parent: int) -> Any:
    from joblib.externals.loky import process_executor

    # Its own limit is 300 MB, less than what PyTorch's modules take once they are imported.
    process_executor._MAX_MEMORY_LEAK_SIZE = GROWTH
    if os.getpid() != parent:  # a worker of its own, not the process that asks
        end_with(parent)
    return function(*call)


@cache
def end_with(parent: int) -> None:
    """End this process once its parent is gone, whatever it is doing; a killed one tells nobody.

    parent: its process number, as the parent tells it: one that dies early is no longer asked for.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
