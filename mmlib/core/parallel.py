"""Work spread over processes, by joblib."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky import process_executor

GROWTH = 2e9  # bytes that a worker may grow by before joblib replaces it and PyTorch starts anew
# It warns of that in a thread of its own, but a training that needs much memory is no fault.
warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)


def in_processes(
    function: Callable[..., Any], calls: Iterable[tuple], workers: int, ordered: bool = True
) -> Iterator[Any]:
    """What `function(*call)` returns for each call, as soon as it is there.

    workers: processes; with 1 all is done in this one. ordered: in the order of `calls`, else in
    that of finishing. An error of one call is raised here, and no further call begins.
    """
    kind = "generator" if ordered else "generator_unordered"
    found: Iterator[Any] = Parallel(n_jobs=workers, return_as=kind)(
        delayed(_call)(function, call) for call in calls
    )
    return found


def _call(function: Callable[..., Any], call: tuple) -> Any:
    # Its own limit is 300 MB, less than what PyTorch's modules take once they are imported.
    process_executor._MAX_MEMORY_LEAK_SIZE = GROWTH
    return function(*call)
