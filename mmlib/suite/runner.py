"""Run notebooks strictly: papermill executes them, this module refuses what papermill lets pass.

Each notebook runs in a process of its own, in its own folder, with the interpreter of this
environment. A parameter that it does not know or never reads, a failing cell, a dead kernel, a
passed time limit, a missing result and a figure outside its tolerance are errors.
"""

import ast
import json
import logging
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import symtable
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import starmap
from pathlib import Path
from typing import Any

from mmlib import __version__
from mmlib.core.paths import write_atomic
from mmlib.suite.outcomes import RESULTS, NotebookReport, clock, judge

TIME_LIMITS = {"world": 1800.0, "flickr8k": 4 * 3600.0, "paper": 72 * 3600.0}  # seconds a notebook
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
GRACE = 60.0  # seconds that a child gets past its time limit to say itself what it was doing


class ParameterError(ValueError):
    """A parameter that a notebook does not know, never reads, or cannot be given."""


# Parameters ---------------------------------------------------------------------------------


def default_parameters(cells: Sequence[Any]) -> dict[str, Any]:
    """Names and defaults in the cell tagged `parameters`, which holds only `name = literal` lines.

    A value computed in that cell would keep its old result when papermill injects another, so
    such a line raises ParameterError, as does a missing cell.
    """
    tagged = [c for c in cells if "parameters" in c.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise ParameterError(f"{len(tagged)} cells are tagged `parameters`; there must be one")
    defaults = {}
    for line in ast.parse(tagged[0]["source"]).body:
        try:
            if not (isinstance(line, ast.Assign) and len(line.targets) == 1):
                raise ValueError
            defaults[line.targets[0].id] = ast.literal_eval(line.value)  # type: ignore[attr-defined]
        except (ValueError, AttributeError):
            shown = ast.unparse(line).splitlines()[0]
            raise ParameterError(
                f"the parameters cell holds `{shown}`; write only `name = literal` there "
                "and derive the rest in a later cell"
            ) from None
    return defaults


def unread_parameters(cells: Sequence[Any], names: Iterable[str]) -> set[str]:
    """Those of `names` that no cell after the parameters cell reads before it assigns them anew."""
    start = next(i for i, c in enumerate(cells) if "parameters" in c["metadata"].get("tags", []))
    pending, lost = set(names), set()
    for cell in cells[start + 1 :]:
        if cell["cell_type"] != "code":
            continue
        try:
            statements = ast.parse(_plain_python(cell["source"])).body
            for statement in statements:
                pending -= _reads(statement)
                overwritten = pending & _assigns(statement)
                lost |= overwritten
                pending -= overwritten
        except SyntaxError:
            return lost  # the kernel will say what is wrong with that cell
    return pending | lost


def _plain_python(source: str) -> str:
    """A cell's source with IPython's magics turned into plain calls of get_ipython()."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)


def _reads(statement: ast.stmt) -> set[str]:
    """Global names that a statement reads, also inside the functions and classes it defines."""
    names = set()
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        names.add(statement.target.id)
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("get_ipython()"):
            names |= set(re.findall(r"\w+", ast.unparse(call)))  # a magic's code is text
    tables = [symtable.symtable(ast.unparse(statement), "<cell>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        module = table.get_type() == "module"
        names |= {
            s.get_name()
            for s in table.get_symbols()
            if s.is_referenced() and (module or s.is_global())
        }
    return names


def _assigns(statement: ast.stmt) -> set[str]:
    """Names that a plain assignment binds."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def check_parameters(notebook: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """All parameters that `notebook` will run with: its defaults overlaid by `parameters`.

    Raises ParameterError for a name that the notebook does not know or never reads, and for a
    value that is not plain data.
    """
    import nbformat

    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except Exception as error:  # nbformat raises many kinds
        told = str(error).partition("\n")[0][:80]
        raise ParameterError(f"{notebook}: no notebook ({told}); get it again") from None
    try:
        defaults = default_parameters(cells)
    except ParameterError as error:
        raise ParameterError(f"{notebook.name}: {error}") from None
    unknown = sorted(set(parameters) - set(defaults))
    if unknown:
        raise ParameterError(
            f"{notebook.name} knows no parameter {', '.join(unknown)}; it has {', '.join(defaults)}"
        )
    unread = sorted(unread_parameters(cells, parameters))
    if unread:
        raise ParameterError(
            f"{notebook.name} never reads the parameter {', '.join(unread)}, so setting it "
            "would change nothing"
        )
    try:
        return defaults | json.loads(json.dumps(parameters))
    except TypeError as error:
        raise ParameterError(f"{notebook.name}: a parameter is not plain data: {error}") from None


# Execution ----------------------------------------------------------------------------------


def execute(
    notebook: Path, executed: Path, parameters: dict[str, Any], timeout: float
) -> str | None:
    """Execute `notebook` into the file `executed`, in a process of its own.

    Args:
        notebook: the notebook; its folder is the working directory.
        executed: where the executed copy goes, also when a cell fails.
        parameters: injected after the parameters cell; none are injected when empty.
        timeout: seconds that the whole notebook may take.

    Returns:
        What went wrong, with the failing cell; None when every cell ran.
    """
    notebook, executed = notebook.resolve(), executed.resolve()
    executed.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mmlib-") as folder:
        private = Path(folder)
        job = {
            "notebook": str(notebook),
            "executed": str(executed),
            "parameters": parameters,
            "timeout": timeout,
        }
        (private / "job.json").write_text(json.dumps(job))
        # A profile of its own: no start-up file or setting of the user's reaches the notebook.
        environment = os.environ | {
            "IPYTHONDIR": str(private / "ipython"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        for name in THREADS:  # notebooks start processes, which share the cores
            environment.setdefault(name, "1")
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "mmlib.suite.runner", folder],
            cwd=notebook.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        try:
            status = child.wait(timeout + GRACE)
        except subprocess.TimeoutExpired:
            _stop(child, 0)
            return f"the time limit of {timeout:g} s passed and the kernel had to be killed"
        except BaseException:  # interrupted: the child has the signal too, or gets it now
            _stop(child, 3)
            raise
        outcome = private / "outcome.json"
        if not outcome.exists():
            return f"the process that ran the notebook ended with exit status {status}"
        return json.loads(outcome.read_text())["problem"]


def _stop(child: subprocess.Popen, patience: float) -> None:
    """Wait for `child`, then ask it to end, then kill it; its kernel ends with it."""
    for act in (lambda: None, child.terminate, child.kill):
        act()
        try:
            child.wait(patience)
            return
        except subprocess.TimeoutExpired:
            patience = 10


class _Progress:
    """Tells on stderr which cell runs and the last line that it printed.

    A terminal gets one line, redrawn; anything else a new line at most every ten seconds.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.index, self.last = name, total, 0, ""
        self.cell: Any = None
        self.busy = False
        self.live = sys.stderr.isatty()
        self.every = 0.2 if self.live else 10.0
        self.start = time.monotonic()
        self.shown = -math.inf

    def cell_starts(self, cell: Any, cell_index: int) -> None:
        """Called by nbclient before each cell."""
        self.cell, self.index, self.last = cell, cell_index, ""
        self.busy = cell.cell_type == "code"
        self.show()

    def cell_ends(self, **_: Any) -> None:
        """Called by nbclient when the kernel has answered."""
        self.busy = False

    def write(self, text: str) -> None:
        """Called by papermill with what the notebook prints."""
        lines = [line.strip() for line in re.split(r"[\r\n]", text) if line.strip()]
        if lines:
            self.last = lines[-1]
            self.show()

    def flush(self) -> None:
        """Part of what papermill asks of a file."""

    def show(self) -> None:
        """Print the line, unless the last one is too fresh."""
        now = time.monotonic()
        if now - self.shown < self.every:
            return
        self.shown = now
        seconds = clock(now - self.start)
        line = f"{self.name}  cell {self.index + 1}/{self.total}  {seconds}  {self.last}"
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[2K" + line[:width], end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave a clean line behind."""
        if self.live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _execute_here(job: dict[str, Any], private: Path) -> str | None:
    """Execute in this process, with papermill; the child's side of `execute`."""
    import nbformat
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    notebook = Path(job["notebook"])
    total = len(nbformat.read(notebook, as_version=4).cells) + bool(job["parameters"])
    progress = _Progress(notebook.stem, total)
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what it logs is reported below
    deadline = time.monotonic() + job["timeout"]

    def seconds_left(cell: Any) -> int:
        return max(1, math.ceil(deadline - time.monotonic()))

    try:
        done = papermill.execute_notebook(
            _literal(notebook),
            _literal(Path(job["executed"])),
            job["parameters"],
            kernel_name="python3",
            language="python",
            cwd=str(notebook.parent),
            progress_bar=False,
            stdout_file=progress,
            stderr_file=progress,
            kernel_manager_class=_kernel_manager_class(private, progress),
            coalesce_streams=True,
            iopub_timeout=60,
            timeout_func=seconds_left,
            on_cell_start=progress.cell_starts,
            on_cell_executed=progress.cell_ends,
        )
    except PapermillExecutionError as error:
        what = f"failed: {error.ename}: {error.evalue}"
        return _failure(error.cell_index, error.source, what, "\n".join(error.traceback))
    except CellTimeoutError:
        what = f"was running when the time limit of {job['timeout']:g} s passed"
        return _failure(progress.index, progress.cell.source, what)
    except DeadKernelError:
        return _failure(progress.index, progress.cell.source, "killed the kernel")
    finally:
        progress.close()
    for index, cell in enumerate(done.cells):  # papermill takes sys.exit() for success
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            return f"the notebook ended before its cell {index + 1}, which did not run"
    return None


def _literal(path: Path) -> str:
    """A path that papermill's str.format leaves as it is."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _kernel_manager_class(private: Path, progress: _Progress) -> type:
    """A kernel manager that starts this interpreter, whatever kernelspecs the user has."""
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class ThisEnvironment(AsyncKernelManager):
        kernel_spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

        def __init__(self, **settings: Any) -> None:
            if os.name != "nt":  # sockets in a folder of ours: no race for a port
                settings |= {"transport": "ipc", "ip": str(private / "k")}
            super().__init__(connection_file=str(private / "kernel.json"), **settings)

        async def shutdown_kernel(  # type: ignore[override]
            self, now: bool = False, restart: bool = False
        ) -> None:
            """Shut the kernel down; in the middle of a cell it is killed rather than asked."""
            await super().shutdown_kernel(now or progress.busy, restart)

    return ThisEnvironment


def _failure(index: int, source: str, what: str, traceback: str = "") -> str:
    """The text that shows a failing cell: its number, its source, the end of the traceback."""
    lines = [f"{n:4} | {line}" for n, line in enumerate(source.splitlines(), 1)]
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", traceback)
    return "\n".join([f"cell {index + 1} {what}", *lines[:40], *plain.splitlines()[-25:]])


def _child(folder: Path) -> int:
    """Entry point of the process that `execute` starts."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the kernel is shut down
    job = json.loads((folder / "job.json").read_text())
    try:
        problem = _execute_here(job, folder)
    except KeyboardInterrupt:
        return 130
    (folder / "outcome.json").write_text(json.dumps({"problem": problem}))
    return int(problem is not None)


# Runs ---------------------------------------------------------------------------------------


def run_notebook(
    notebook: Path, out_dir: Path, parameters: dict[str, Any], timeout: float
) -> NotebookReport:
    """Run one notebook and judge what it leaves.

    Args:
        notebook: path of the notebook.
        out_dir: gets `<stem>.ipynb`, executed, and the folder `<stem>/` of results.
        parameters: values to inject; `out` is set here.
        timeout: seconds that the whole notebook may take.

    Raises:
        ParameterError: see `check_parameters`.
    """
    out = (out_dir / notebook.stem).resolve()
    parameters = parameters | {"out": str(out)}
    check_parameters(notebook, parameters)
    report = NotebookReport(notebook.stem, out_dir.resolve() / notebook.name, out)
    _remove_results(report)
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    problem = execute(notebook, report.executed, parameters, timeout)
    report.seconds = time.monotonic() - start
    if problem:
        report.problems.append(problem)
    else:
        judge(report)
    return report


def _remove_results(report: NotebookReport) -> None:
    """Remove the results of an earlier run, which must not pass for new."""
    old = [report.executed, *(report.out / name for name in RESULTS)]
    for path in [*old, *(report.out / "figures").glob("*.png")]:
        path.unlink(missing_ok=True)


def run_notebooks(
    notebooks: Sequence[Path],
    out_dir: Path,
    parameters: dict[str, Any],
    timeout: float,
    cluster: str = "",
) -> list[NotebookReport]:
    """Run notebooks one after the other, showing problems on stderr as they come.

    All parameters are checked before the first notebook starts. Writes `out_dir/summary.json`.
    cluster: address of a Dask scheduler, on whose workers they run side by side; the folders must
    have the same names there. Raises ParameterError, also where `out_dir` is the folder of a
    notebook, and DataError where no scheduler answers.
    """
    out_dir = out_dir.resolve()
    for notebook in notebooks:
        check_parameters(notebook, parameters)
        if notebook.resolve() == out_dir / notebook.name:
            raise ParameterError(
                f"the results would take the place of {notebook}: name another folder for them"
            )
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / "summary.json").unlink(missing_ok=True)  # it would tell of an earlier run
    calls = [(notebook.resolve(), out_dir, parameters, timeout) for notebook in notebooks]
    done: Iterable[NotebookReport] = starmap(run_notebook, calls)
    if cluster:
        from mmlib.core.parallel import on_cluster

        done = on_cluster(run_notebook, calls, cluster)
    reports = []
    for report in done:
        for problem in report.problems:
            print(f"\n{report.notebook}: {problem}", file=sys.stderr, flush=True)
        reports.append(report)
    reports.sort(key=lambda report: [path.stem for path in notebooks].index(report.notebook))
    summary = {
        "ok": all(r.ok for r in reports),
        "mmlib": __version__,
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "machine": f"{platform.system()} {platform.machine()}",
        "parameters": parameters,
        "notebooks": [asdict(r) | {"ok": r.ok} for r in reports],
    }
    text = json.dumps(summary, indent=1, default=partial(_relative, folder=out_dir))
    write_atomic(out_dir / "summary.json", lambda path: path.write_text(text))
    return reports


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


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


if __name__ == "__main__":
    sys.exit(_child(Path(sys.argv[1])))
