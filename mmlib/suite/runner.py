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

import nbformat
from ipykernel.parentpoller import ParentPollerUnix
from tqdm import tqdm

from mmlib import __version__
from mmlib.core.paths import write_atomic
from mmlib.suite.outcomes import RESULTS, NotebookReport, read_results

TIME_LIMITS = {"world": 1800.0, "flickr8k": 4 * 3600.0, "paper": 72 * 3600.0}  # seconds a notebook
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
GRACE = 60.0  # seconds that the child gets past the time limit to say what it was doing


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
    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except Exception as error:  # nbformat raises many kinds
        reason = str(error).partition("\n")[0][:80]
        raise ParameterError(f"{notebook}: no notebook ({reason}); get it again") from None
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
    # A kernel that outlives its parent by a second may still write there.
    with tempfile.TemporaryDirectory(prefix="mmlib-", ignore_cleanup_errors=True) as folder:
        private = Path(folder)
        job = {
            "notebook": str(notebook),
            "executed": str(executed),
            "parameters": parameters,
            "timeout": timeout,
        }
        (private / "job.json").write_text(json.dumps(job))
        try:
            # In a session of its own Ctrl-C reaches this process alone, which then kills that one.
            child = subprocess.run(
                [sys.executable, "-P", "-m", "mmlib.suite.runner", folder],
                cwd=notebook.parent,
                env=_environment(private),
                stdin=subprocess.DEVNULL,
                timeout=timeout + GRACE,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return f"the time limit of {timeout:g} s passed and the kernel had to be killed"
        outcome = private / "outcome.json"
        if not outcome.exists():
            return f"the process that ran the notebook ended with exit status {child.returncode}"
        return json.loads(outcome.read_text())["problem"]


def _environment(private: Path) -> dict[str, str]:
    """The environment of a notebook: this interpreter's kernel, no start-up files of the user's."""
    environment = os.environ | {
        "IPYTHONDIR": str(private / "ipython"),
        "JUPYTER_DATA_DIR": str(private / "jupyter"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    environment.pop("JUPYTER_PATH", None)
    for name in THREADS:  # notebooks start processes, which share the cores
        environment.setdefault(name, "1")
    return environment


class _Progress:
    """A line on stderr: the cell that runs, the time, and the last line that the cell printed.

    A terminal gets one line, redrawn; anything else a new line at most every ten seconds.
    """

    def __init__(self, name: str, cells: int) -> None:
        self.cell, self.index = nbformat.v4.new_code_cell(), 0
        self.bar = tqdm(
            total=cells,
            initial=1,
            desc=name,
            bar_format="{desc}  cell {n}/{total}  {elapsed}{postfix}",
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
            miniters=0,
            dynamic_ncols=True,
            leave=False,
        )

    def cell_starts(self, cell: Any, cell_index: int) -> None:
        """Called by nbclient before each cell."""
        self.cell, self.index, self.bar.n = cell, cell_index, cell_index + 1
        self.bar.set_postfix_str(refresh=False)
        self.bar.update(0)

    def write(self, text: str) -> None:
        """Called by papermill with what the notebook prints."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            self.bar.set_postfix_str(lines[-1], refresh=False)
            self.bar.update(0)

    def flush(self) -> None:
        """Part of what papermill asks of a file."""


def _execute_here(job: dict[str, Any], private: Path) -> str | None:
    """Execute in this process, with papermill; the child's side of `execute`."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    notebook = Path(job["notebook"])
    cells = len(nbformat.read(notebook, as_version=4).cells) + bool(job["parameters"])
    progress = _Progress(notebook.stem, cells)
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what it logs is reported below
    deadline = time.monotonic() + job["timeout"]
    kernel = {"connection_file": str(private / "kernel.json")}
    if os.name != "nt":  # sockets in a folder of ours: no race for a port
        kernel |= {"transport": "ipc", "ip": str(private / "k")}
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
            config=Config(KernelManager=kernel),
            coalesce_streams=True,
            iopub_timeout=60,
            timeout_func=lambda cell: max(1, math.ceil(deadline - time.monotonic())),
            on_cell_start=progress.cell_starts,
        )
    except PapermillExecutionError as error:
        problem = f"failed: {error.ename}: {error.evalue}"
        return _failure(error.cell_index, error.source, problem, "\n".join(error.traceback))
    except CellTimeoutError:
        problem = f"was running when the time limit of {job['timeout']:g} s passed"
        return _failure(progress.index, progress.cell.source, problem)
    except DeadKernelError:
        return _failure(progress.index, progress.cell.source, "killed the kernel")
    finally:
        progress.bar.close()
    for index, cell in enumerate(done.cells):  # papermill takes sys.exit() for success
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            return f"the notebook ended before its cell {index + 1}, which did not run"
    return None


def _literal(path: Path) -> str:
    """A path that papermill's str.format leaves as it is."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _failure(index: int, source: str, problem: str, traceback: str = "") -> str:
    """The text that shows a failing cell: its number, its source, the end of the traceback."""
    lines = [f"{n:4} | {line}" for n, line in enumerate(source.splitlines(), 1)]
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", traceback)
    return "\n".join([f"cell {index + 1} {problem}", *lines[:40], *plain.splitlines()[-25:]])


def _child(private: Path) -> None:
    """Entry point of the process that `execute` starts; it ends with the one that started it."""
    if os.name != "nt":
        ParentPollerUnix(os.getppid()).start()
    problem = _execute_here(json.loads((private / "job.json").read_text()), private)
    (private / "outcome.json").write_text(json.dumps({"problem": problem}))


# Runs ---------------------------------------------------------------------------------------


def run_notebook(
    notebook: Path, out_dir: Path, parameters: dict[str, Any], timeout: float
) -> NotebookReport:
    """Run one notebook and check what it leaves.

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
        read_results(report)
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
    _child(Path(sys.argv[1]))
