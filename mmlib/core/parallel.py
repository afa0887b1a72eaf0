"""Work spread over processes of this machine or over a Dask cluster, by joblib."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import process_executor

from mmlib.core.errors import DataError

GROWTH = 2e9  # bytes that a worker may grow by before joblib replaces it and PyTorch starts anew
# It warns of that in a thread of its own, but a training that needs much memory is no fault.
warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)


# A worker keeps the memory of its tensors instead of asking for it anew in every step: a third less
# time for a training step of many sentences. Read by the C library when a process starts.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "2000000000",
    "MALLOC_TRIM_THRESHOLD_": "2000000000",
    "MALLOC_TOP_PAD_": "100000000",
}


def in_processes(
    function: Callable[..., Any], calls: Iterable[tuple], workers: int, ordered: bool = True
) -> Iterator[Any]:
    """What `function(*call)` returns for each call, as soon as it is there.

    workers: processes; with 1 all is done in this one. ordered: in the order of `calls`, else in
    that of finishing. An error of one call is raised here, and no further call begins.
    """
    for name, value in MALLOC.items():
        os.environ.setdefault(name, value)
    kind = "generator" if ordered else "generator_unordered"
    found: Iterator[Any] = Parallel(n_jobs=workers, return_as=kind)(
        delayed(_call)(function, call) for call in calls
    )
    return found


def on_cluster(function: Callable[..., Any], calls: Sequence[tuple], address: str) -> Iterator[Any]:
    """As `in_processes`, unordered, on the workers of a Dask scheduler ("tcp://host:8786").

    A worker that dies gives its calls to the others. Raises DataError where no scheduler answers.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=10)
    except (OSError, TimeoutError, ValueError) as error:
        raise DataError(f"no Dask scheduler answers at {address} ({error})") from None
    with client, parallel_config(backend="dask", wait_for_workers_timeout=60):
        yield from Parallel(n_jobs=-1, return_as="generator_unordered", batch_size=1)(
            delayed(_call)(function, call) for call in calls
        )


def _call(function: Callable[..., Any], call: tuple) -> Any:
    # Its own limit is 300 MB, less than what PyTorch's modules take once they are imported.
    process_executor._MAX_MEMORY_LEAK_SIZE = GROWTH
    return function(*call)
