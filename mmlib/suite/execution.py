"""Execute one notebook with papermill, in a process of its own.

This module is also what that process runs, so it imports little.
"""

import json
import logging
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# For this jsonschema, which nbformat imports, would compile a grammar of addresses: a second.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import nbformat  # noqa: E402
from tqdm import tqdm  # noqa: E402

from mmlib.core.parallel import end_with  # noqa: E402
from mmlib.core.paths import data_dir, evidence_dir, own_dataset, write_atomic  # noqa: E402

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
GRACE = 60.0  # seconds that the process gets past the time limit to say what it was doing
SOCKET_BYTES = 103  # of the path of a socket that all systems take; Linux takes 107
# A kernel asks who its parent is when it has started; one that died before is not noticed.
PROFILE = """\
import os
from mmlib.core.parallel import end_with
end_with(int(os.environ["JPY_PARENT_PID"]))
"""
_children: set[subprocess.Popen] = set()


def execute(
    notebook: Path, executed: Path, parameters: dict[str, Any], timeout: float
) -> str | None:
    """Execute `notebook`, in its folder, into the file `executed`, in a process of its own.

    executed: is also written when a cell fails. parameters: injected after the parameters cell;
    none are injected when empty. timeout: seconds that the whole notebook may take.
    Returns what went wrong, with the failing cell; None when every cell ran.
    """
    notebook, executed = notebook.resolve(), executed.resolve()
    executed.parent.mkdir(parents=True, exist_ok=True)
    # A kernel that outlives its parent by a second may still write there.
    with tempfile.TemporaryDirectory(prefix="mmlib-", ignore_cleanup_errors=True) as folder:
        private = Path(folder)
        job: dict[str, Any] = {"notebook": str(notebook), "executed": str(executed)}
        job |= {"parameters": parameters, "timeout": timeout, "parent": os.getpid()}
        text = json.dumps(job)
        write_atomic(private / "job.json", lambda file: file.write_text(text, encoding="utf-8"))
        command = [sys.executable, "-P", "-m", "mmlib.suite.execution", folder]
        # In a session of its own, so that Ctrl-C reaches this process alone, which calls `stop`.
        with subprocess.Popen(
            command, cwd=notebook.parent, env=_environment(private),
            stdin=subprocess.DEVNULL, start_new_session=True,
        ) as child:  # fmt: skip
            _children.add(child)
            try:
                status = child.wait(timeout + GRACE)
            except subprocess.TimeoutExpired:
                return f"the time limit of {timeout:g} s passed and the kernel had to be killed"
            finally:
                child.kill()
                _children.discard(child)
        outcome = private / "outcome.json"
        if not outcome.exists():
            return f"the process that ran the notebook ended with exit status {status}"
        return json.loads(outcome.read_bytes())["problem"]


def stop() -> None:
    """End all notebooks that run now; their kernels end with their processes."""
    for child in list(_children):
        child.kill()


def _environment(private: Path) -> dict[str, str]:
    """The environment of a notebook: this interpreter's kernel, no start-up files of the user's.

    The kernel's profile, which this writes, lets it end with its parent.
    """
    profile = private / "ipython" / "profile_default" / "ipython_kernel_config.py"
    write_atomic(profile, lambda file: file.write_text(PROFILE, encoding="utf-8"))
    environment = os.environ | {
        "IPYTHONDIR": str(private / "ipython"),
        "JUPYTER_DATA_DIR": str(private / "jupyter"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    environment.pop("JUPYTER_PATH", None)
    # Relative ones are seen from here, not from the notebook's folder.
    if "MMLIB_DATA" in os.environ:
        environment["MMLIB_DATA"] = str(data_dir().absolute())
    if "MMLIB_EVIDENCE" in os.environ:
        environment["MMLIB_EVIDENCE"] = str(evidence_dir().absolute())
    if dataset := own_dataset():
        environment["MMLIB_DATASET"] = str(dataset.absolute())
    if "PYTHONPATH" in os.environ:
        folders = os.environ["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, folders))
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
    sockets = str(private / "k")  # each gets a number; in a folder of ours: no race for a port
    if os.name != "nt" and len(os.fsencode(f"{sockets}-1")) <= SOCKET_BYTES:
        kernel |= {"transport": "ipc", "ip": sockets}
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
    except OSError as error:  # a full disk, say, with half a notebook on it
        Path(job["executed"]).unlink(missing_ok=True)
        return f"{error.filename or job['executed']}: {error.strerror or error}"
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


def _main(private: Path) -> None:
    """What the process that `execute` starts does; it ends with its parent."""
    job = json.loads((private / "job.json").read_bytes())
    end_with(job["parent"])
    problem = _execute_here(job, private)
    text = json.dumps({"problem": problem})
    try:
        write_atomic(private / "outcome.json", lambda file: file.write_text(text, encoding="utf-8"))
    except OSError as error:  # a full disk
        sys.exit(str(error))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
