"""Work spread over processes, by joblib."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed

# joblib replaces a worker whose memory has grown, as that of a training does, and warns of it in a
# thread of its own.
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
        delayed(function)(*call) for call in calls
    )
    return found
