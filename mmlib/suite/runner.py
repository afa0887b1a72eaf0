"""Run notebooks strictly: papermill gives them their parameters, nbclient executes them.

Each notebook has a kernel of its own, in its own folder, with the interpreter of this environment.
A parameter that it does not know or never reads, a failing cell, a dead kernel, a passed time
limit, a missing result and a figure outside its tolerance are errors.
"""

import asyncio
import json
import math
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from tqdm import tqdm

from mmlib import __version__
from mmlib.core import paths
from mmlib.core.errors import DataError
from mmlib.core.files import alone
from mmlib.core.parallel import on_cluster
from mmlib.suite.outcomes import RESULTS, NotebookReport, read_results
from mmlib.suite.parameters import check_parameters

TIME_LIMITS = {"world": 1800.0, "flickr8k": 4 * 3600.0, "paper": 72 * 3600.0}  # seconds a notebook
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Lets a kernel end with this process, also with one that was killed while the kernel started.
END_WITH = "__import__('mmlib.core.parallel').core.parallel.end_with({})"


def select(folder: Path | None, numbers: Sequence[str] | None = None) -> list[Path]:
    """The notebooks whose names begin with `numbers`, in their order; all where there is none.

    folder: of the notebooks; None: the package's own. Raises ValueError where one is missing.
    """
    folder = (folder or paths.notebooks_dir()).resolve()
    notebooks = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not notebooks:
        raise ValueError(f"no notebook in {folder}: run this in a clone of the repository")
    chosen: list[Path] = []
    for number in numbers or ():
        matching = [path for path in notebooks if path.stem.startswith(number.zfill(2))]
        if not matching:
            listing = ", ".join(path.stem for path in notebooks)
            raise ValueError(f"no notebook {number!r}; there are {listing}")
        chosen += matching
    return list(dict.fromkeys(chosen)) or notebooks


def execute(notebook: Path, executed: Path, parameters: dict[str, Any], timeout: float) -> str:
    """Execute `notebook`, in its folder, in a kernel of its own, into the file `executed`.

    executed: is also written when a cell fails. parameters: injected after the parameters cell;
    none are injected when empty. timeout: seconds that the whole notebook may take.
    Returns what went wrong, with the failing cell; "" when every cell ran.
    """
    deadline = time.monotonic() + timeout
    nb = load_notebook_node(str(notebook))
    if parameters:
        nb = parameterize_notebook(nb, parameters, kernel_name="python3", language="python")
    watched = sys.stderr.isatty()
    bar = tqdm(
        total=len(nb.cells), initial=1, desc=notebook.stem, miniters=0, leave=False,
        bar_format="{desc}  cell {n}/{total}  {elapsed}", dynamic_ncols=True,
        mininterval=0.2 if watched else 10.0, position=None if watched else 0,
    )  # fmt: skip

    # The path of a socket must be short, and that of TMPDIR may be long. A kernel that outlives
    # its notebook by a second may still write into the folder.
    with tempfile.TemporaryDirectory("", "mmlib-", "/tmp", ignore_cleanup_errors=True) as folder:
        # No kernelspec of the user's: python3 is then this interpreter.
        kernel = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
        kernel.connection_file = f"{folder}/kernel.json"
        # Sockets in a folder of ours: no race for a port.
        kernel.transport, kernel.ip = "ipc", f"{folder}/k"
        client = NotebookClient(
            nb, km=kernel,
            on_cell_start=lambda cell, cell_index: bar.update(cell_index + 1 - bar.n),
            extra_arguments=["--IPKernelApp.exec_lines=" + END_WITH.format(os.getpid())],
            coalesce_streams=True, record_timing=False, iopub_timeout=60,
            shutdown_kernel="immediate", startup_timeout=math.ceil(timeout),
            timeout_func=lambda cell: max(1, math.ceil(deadline - time.monotonic())),
        )  # fmt: skip
        problem = traceback = ""
        try:
            # A loop of its own: nbclient's is shared by the threads of a Dask worker.
            cwd = str(notebook.parent)
            asyncio.run(client.async_execute(cwd=cwd, env=environment(folder), cleanup_kc=True))
        except CellExecutionError as error:
            problem = f"failed: {error.ename}: {error.evalue}"
            traceback = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", error.traceback)
        except CellTimeoutError:
            problem = f"was running when the time limit of {timeout:g} s passed"
        except RuntimeError as error:  # also before the first cell
            problem = f"killed the kernel: {error}"
        finally:
            bar.close()
    try:
        paths.write_atomic(executed, lambda file: nbformat.write(nb, file))
    except OSError as error:  # a full disk
        return f"{error.filename}: {error.strerror}"
    source = nb.cells[bar.n - 1].source
    return problem and f"cell {bar.n} {problem}\n{source}\n{traceback}".strip()


def environment(private: str) -> dict[str, str]:
    """The environment of a kernel: no start-up files of the user's, paths as seen from here."""
    changed = {"IPYTHONDIR": f"{private}/ipython", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    for name in ("MMLIB_DATA", "MMLIB_EVIDENCE", "MMLIB_DATASET"):
        if named := os.environ.get(name):
            changed[name] = str(Path(named).expanduser().absolute())
    if "PYTHONPATH" in os.environ:
        folders = os.environ["PYTHONPATH"].split(os.pathsep)
        changed["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, folders))
    # Notebooks start processes, which share the cores.
    return dict.fromkeys(THREADS, "1") | os.environ | changed


def run_notebook(
    notebook: Path, out_dir: Path, parameters: dict[str, Any], timeout: float
) -> NotebookReport:
    """Run one notebook and check what it leaves. Raises DataError, see `check_parameters`.

    out_dir: gets `<stem>.ipynb`, executed, and the folder `<stem>/` of results. parameters: values
    to inject; `out` is set here. timeout: seconds that the whole notebook may take.
    """
    out = (out_dir / notebook.stem).resolve()
    parameters = parameters | {"out": str(out)}
    checked = check_parameters(notebook, parameters)
    parameters = {name: checked[name] for name in parameters}  # as plain data
    report = NotebookReport(notebook.stem, out_dir.resolve() / notebook.name, out)
    old = [report.executed, *(out / name for name in RESULTS), *(out / "figures").glob("*.png")]
    for path in old:  # the results of an earlier run must not pass for new
        path.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    problem = execute(notebook.resolve(), report.executed, parameters, timeout)
    report.seconds = time.monotonic() - start
    if problem:
        report.problems.append(problem)
    else:
        read_results(report)
    return report


def run_notebooks(
    notebooks: Sequence[Path],
    out_dir: Path,
    parameters: dict[str, Any],
    timeout: float,
    cluster: str = "",
    at_a_time: int = 1,
) -> list[NotebookReport]:
    """Run notebooks, `at_a_time` side by side, showing problems on stderr as they come.

    They start in the order given; the reports are by name.
    All parameters are checked before the first notebook starts. Writes `out_dir/summary.json`.
    cluster: address of a Dask scheduler, on whose workers they run side by side; the folders must
    have the same names there. Raises DataError, also where `out_dir` is the folder of a
    notebook, and DataError where no scheduler answers, or another run writes into `out_dir`.
    """
    out_dir = out_dir.resolve()
    for notebook in notebooks:
        check_parameters(notebook, parameters)
        if notebook.resolve() == out_dir / notebook.name:
            raise DataError(
                f"the results would take the place of {notebook}: name another folder for them"
            )
    busy = f"{out_dir}: another run writes there; wait for its end, or give this one another --out"
    # After an error the threads still run, but as daemons: their kernels end with this process.
    with alone(out_dir / ".lock", busy), ThreadPool(at_a_time) as pool:
        (out_dir / "summary.json").unlink(missing_ok=True)  # it would tell of an earlier run
        calls = [(notebook.resolve(), out_dir, parameters, timeout) for notebook in notebooks]
        finished: Iterable[NotebookReport]
        if cluster:
            finished = on_cluster(run_notebook, calls, cluster)
        else:
            finished = pool.imap_unordered(lambda call: run_notebook(*call), calls)
        reports = []
        for report in finished:
            for problem in report.problems:
                print(f"\n{report.notebook}: {problem}", file=sys.stderr, flush=True)
            reports.append(report)
        reports.sort(key=lambda report: report.notebook)
        summary = {
            "ok": all(report.ok for report in reports),
            "mmlib": __version__,
            "python": platform.python_version(),
            "torch": version("torch"),
            "machine": f"{platform.system()} {platform.machine()}",
            "parameters": parameters,
            "features": paths.feature_set(),
            "evidence": str(paths.evidence_dir()),
            "notebooks": [asdict(report) | {"ok": report.ok} for report in reports],
        }
        text = json.dumps(summary, indent=1, default=lambda p: p.relative_to(out_dir).as_posix())
        paths.write_atomic(
            out_dir / "summary.json", lambda path: path.write_text(text, encoding="utf-8")
        )
    return reports


def link_latest(out_dir: Path) -> None:
    """Let the link `latest` beside `out_dir` name it; a file system without links goes without."""
    latest = out_dir.parent / "latest"
    if latest == out_dir or (latest.exists() and not latest.is_symlink()):
        return
    with suppress(OSError):
        latest.unlink(missing_ok=True)
        latest.symlink_to(out_dir.name, target_is_directory=True)
