"""Run notebooks strictly: papermill executes them, this module refuses what papermill lets pass.

Each notebook runs in a process of its own, in its own folder, with the interpreter of this
environment. A parameter that it does not know or never reads, a failing cell, a dead kernel, a
passed time limit, a missing result and a figure outside its tolerance are errors.
"""

import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mmlib import __version__
from mmlib.core.locks import alone
from mmlib.core.paths import evidence_dir, feature_set, write_atomic
from mmlib.suite.execution import execute, stop
from mmlib.suite.outcomes import RESULTS, NotebookReport, read_results
from mmlib.suite.parameters import ParameterError, check_parameters

TIME_LIMITS = {"world": 1800.0, "flickr8k": 4 * 3600.0, "paper": 72 * 3600.0}  # seconds a notebook


def run_notebook(
    notebook: Path, out_dir: Path, parameters: dict[str, Any], timeout: float
) -> NotebookReport:
    """Run one notebook and check what it leaves. Raises ParameterError, see `check_parameters`.

    out_dir: gets `<stem>.ipynb`, executed, and the folder `<stem>/` of results. parameters: values
    to inject; `out` is set here. timeout: seconds that the whole notebook may take.
    """
    out = (out_dir / notebook.stem).resolve()
    parameters = parameters | {"out": str(out)}
    check_parameters(notebook, parameters)
    report = NotebookReport(notebook.stem, out_dir.resolve() / notebook.name, out)
    old = [report.executed, *(out / name for name in RESULTS), *(out / "figures").glob("*.png")]
    for path in old:  # the results of an earlier run must not pass for new
        path.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    problem = execute(notebook, report.executed, parameters, timeout)
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
    have the same names there. Raises ParameterError, also where `out_dir` is the folder of a
    notebook, and DataError where no scheduler answers, or another run writes into `out_dir`.
    """
    out_dir = out_dir.resolve()
    for notebook in notebooks:
        check_parameters(notebook, parameters)
        if notebook.resolve() == out_dir / notebook.name:
            raise ParameterError(
                f"the results would take the place of {notebook}: name another folder for them"
            )
    busy = f"{out_dir}: another run writes there; wait for its end, or give this one another --out"
    with alone(out_dir / ".lock", busy):  # else their results would be mixed
        (out_dir / "summary.json").unlink(missing_ok=True)  # it would tell of an earlier run
        calls = [(notebook.resolve(), out_dir, parameters, timeout) for notebook in notebooks]
        reports = []
        for report in _finished(calls, cluster, at_a_time):
            for problem in report.problems:
                print(f"\n{report.notebook}: {problem}", file=sys.stderr, flush=True)
            reports.append(report)
        reports.sort(key=lambda report: report.notebook)
        _write_summary(reports, out_dir, parameters)
    return reports


def _finished(calls: Sequence[tuple], cluster: str, at_a_time: int) -> Iterator[NotebookReport]:
    if not cluster:
        return _side_by_side(calls, at_a_time)
    from mmlib.core.parallel import on_cluster

    return on_cluster(run_notebook, calls, cluster)


def _write_summary(
    reports: Sequence[NotebookReport], out_dir: Path, parameters: dict[str, Any]
) -> None:
    summary = {
        "ok": all(r.ok for r in reports),
        "mmlib": __version__,
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "machine": f"{platform.system()} {platform.machine()}",
        "parameters": parameters,
        "features": feature_set(),
        "evidence": str(evidence_dir()),
        "notebooks": [asdict(r) | {"ok": r.ok} for r in reports],
    }
    text = json.dumps(summary, indent=1, default=lambda path: path.relative_to(out_dir).as_posix())
    write_atomic(out_dir / "summary.json", lambda path: path.write_text(text, encoding="utf-8"))


def _side_by_side(calls: Sequence[tuple], at_a_time: int) -> Iterator[NotebookReport]:
    """Reports of `run_notebook`, as they come; an error or an interruption ends all notebooks."""
    with ThreadPoolExecutor(at_a_time) as pool:
        futures = [pool.submit(run_notebook, *call) for call in calls]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in futures):
                stop()
                time.sleep(0.1)
            raise


def link_latest(out_dir: Path) -> None:
    """Let the link `latest` beside `out_dir` name it; a file system without links goes without."""
    latest = out_dir.parent / "latest"
    if latest == out_dir or (latest.exists() and not latest.is_symlink()):
        return
    try:
        latest.unlink(missing_ok=True)
        latest.symlink_to(out_dir.name, target_is_directory=True)
    except OSError:
        pass
