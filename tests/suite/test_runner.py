"""Notebooks run in kernels of their own: what they see, what goes wrong, what is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest
from tiny_jobs import in_threads, is_alive, wait_for
from tiny_notebooks import PARAMETERS, RESULTS, SETTINGS, judgement, write_notebook

from mmlib.core.errors import DataError
from mmlib.suite import runner
from mmlib.suite.outcomes import NotebookReport

SEEN = """\
import os, sys
from tqdm import tqdm
seen = {"python": sys.executable, "cwd": os.getcwd(), "started": os.environ.get("DECOY", "no")}
seen |= {"threads": os.environ["OMP_NUM_THREADS"], "seeds": seeds, "names": names}
(folder / "seen.json").write_text(json.dumps(seen))
for _ in tqdm(range(5)):
    print("a line", flush=True)
"""
SLEEP = """\
import os, time
folder.mkdir(parents=True, exist_ok=True)
(folder / "pid").write_text(str(os.getpid()))
time.sleep(300)"""


def test_a_notebook_runs_in_this_environment_and_in_its_folder(tmp_path, monkeypatch):
    """A kernelspec python3 of the user's that cannot work, and a start-up file, are passed over."""
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    content = {"argv": [shutil.which("false")], "display_name": "decoy", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(content))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import os\nos.environ['DECOY'] = 'yes'\n")
    for name in ("JUPYTER_PATH", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    kernel = {"display_name": "Elsewhere", "language": "python", "name": "elsewhere"}
    path = write_notebook(
        tmp_path / "notebooks" / "good.ipynb", SETTINGS, RESULTS, judgement(), SEEN,
        parameters=PARAMETERS + "names = []\n", kernel=kernel,
    )  # fmt: skip
    report = runner.run_notebook(path, tmp_path / "runs", {"seeds": 5, "names": ("a", None)}, 120)
    assert report.ok, report.problems
    assert report.claims[0]["verdict"] == "supported"
    cells = nbformat.read(report.executed, as_version=4).cells
    assert [cell.execution_count for cell in cells] == [1, 2, 3, 4, 5, 6]
    assert json.loads((report.out / "seen.json").read_text()) == {
        "python": sys.executable, "cwd": str(tmp_path / "notebooks"), "started": "no",
        "threads": "1", "seeds": 5, "names": ["a", None],
    }  # fmt: skip
    stdout, stderr = cells[-1].outputs
    assert (stdout.name, stdout.text, stderr.name) == ("stdout", "a line\n" * 5, "stderr")
    assert stderr.text.count("it/s") <= 1


@pytest.mark.parametrize(
    ("cells", "starts", "limit"),
    [
        (["a = 1\na / 0", "1"], "cell 3 failed: ZeroDivisionError: ", 600),
        (["1", "import os\nos._exit(1)"], "cell 4 killed the kernel", 600),
        (["import sys\nsys.exit()", "1"], "cell 3 failed: SystemExit", 600),
        ([SLEEP], "cell 3 was running when the time limit of 3 s passed", 3),
    ],
)
def test_what_went_wrong_is_told(tmp_path, monkeypatch, cells, starts, limit):
    monkeypatch.setattr(runner.tempfile, "tempdir", str(tmp_path / ("long" * 20)))  # of no matter
    settings = SETTINGS.replace('out or "../runs/lab/tiny"', repr(str(tmp_path / "a")))
    notebook = write_notebook(tmp_path / "a.ipynb", settings, *cells)
    problem = runner.execute(notebook, tmp_path / "b.ipynb", {}, limit)
    assert problem.startswith(starts)
    assert next(cell for cell in cells[::-1] if "1" != cell).splitlines()[-1] in problem
    assert nbformat.read(tmp_path / "b.ipynb", as_version=4).cells[1].execution_count == 2
    if cells == [SLEEP]:
        wait_for(lambda: not is_alive(int((tmp_path / "a" / "pid").read_text())), seconds=60)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_kernels_end_with_the_command(tmp_path, how):
    names = ("01_slow", "02_slow")
    for name in names:
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", SETTINGS, SLEEP)
    command = [sys.executable, "-m", "mmlib.suite.cli", "run", "--jobs", "2"]
    # A shell starts background jobs with Ctrl-C ignored, and children inherit that.
    run = subprocess.Popen(
        [*command, "--notebooks", str(tmp_path / "notebooks")], stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    pids = [tmp_path / "runs" / "world" / name / "pid" for name in names]
    # On a busy machine it takes minutes until both run.
    wait_for(lambda: all(pid.exists() and pid.read_text() for pid in pids), seconds=600)
    run.send_signal(how)
    _, printed = run.communicate(timeout=120)
    assert run.returncode == (130 if how == signal.SIGINT else -how)
    assert printed.strip().splitlines()[2:] == (["interrupted"] if how == signal.SIGINT else [])
    assert all(f"{name}  cell 1/4" in printed for name in names)  # progress
    for pid in pids:
        wait_for(lambda pid=pid: not is_alive(int(pid.read_text())), seconds=60)


def test_a_kernel_whose_parent_is_gone_already_ends(tmp_path):
    """Killed early, `mmlib run` once left a notebook running."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", str(tmp_path / "kernel.json")]
    kernel += ["--IPKernelApp.exec_lines=" + runner.END_WITH.format(gone.pid)]
    assert subprocess.run(kernel, timeout=120).returncode == 1


def test_notebooks_run_on_a_cluster_and_are_told_by_name(tmp_path):
    cells = {"slow": ["import time\ntime.sleep(1)"], "broken": ["1 / 0"]}
    paths = [
        write_notebook(tmp_path / f"{name}.ipynb", SETTINGS, *own, RESULTS, judgement())
        for name, own in cells.items()
    ]
    with in_threads() as cluster:
        address = cluster.scheduler_address
        broken, slow = runner.run_notebooks(paths, tmp_path / "runs", {}, 120, address)
    assert slow.ok, slow.problems
    assert "ZeroDivisionError" in broken.problems[0]
    summary = json.loads((tmp_path / "runs" / "summary.json").read_text())
    assert [entry["notebook"] for entry in summary["notebooks"]] == ["broken", "slow"]


def test_paths_in_the_environment_are_seen_from_where_the_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([".", "/lib"]))
    assert runner.environment("")["PYTHONPATH"] == os.pathsep.join([str(tmp_path), "/lib"])
    for named, seen in (("mine", tmp_path / "mine"), ("~/mine", Path.home() / "mine")):
        monkeypatch.setenv("MMLIB_DATA", named)
        assert runner.environment("")["MMLIB_DATA"] == str(seen)
    monkeypatch.delenv("MMLIB_DATA")
    assert "MMLIB_DATA" not in runner.environment("")


# --- Folders -------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path):
    return write_notebook(tmp_path / "notebooks" / "a.ipynb", SETTINGS)


def test_an_interrupted_run_leaves_no_earlier_summary(tiny, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "summary.json").write_text('{"ok": true}')
    monkeypatch.setattr(runner, "on_cluster", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runner.run_notebooks([tiny], tmp_path / "runs", {}, 120, "tcp://x")
    assert not (tmp_path / "runs" / "summary.json").exists()


def test_one_run_in_a_folder_at_a_time(tiny, tmp_path, monkeypatch):
    """Two once mixed their results, and one told the other's claims."""
    out, messages = tmp_path / "runs", []

    def run_notebook(*call):
        report = NotebookReport("a", out / "a.ipynb", out / "a")
        monkeypatch.setattr(runner, "run_notebook", lambda *_: report)  # no third run
        with pytest.raises(DataError) as refused:
            runner.run_notebooks([tiny], out, {}, 12)
        messages.append(str(refused.value))
        return report

    monkeypatch.setattr(runner, "run_notebook", run_notebook)
    assert runner.run_notebooks([tiny], out, {}, 12)[0].ok
    assert messages[0].startswith(f"{out}: another run writes there; wait for its end, or give thi")
    assert json.loads((out / "summary.json").read_text())["ok"]


def test_results_of_an_earlier_run_do_not_count(tiny, tmp_path, monkeypatch):
    out = tmp_path / "runs" / "a"
    (out / "figures").mkdir(parents=True)
    for name in ("results.json", "results.csv", "claims.json", "checks.json", "figures/a.png"):
        (out / name).write_text("[]")
    (out / "checkpoint.pt").write_text("kept")
    monkeypatch.setattr(runner, "execute", lambda *_: "")
    report = runner.run_notebook(tiny, tmp_path / "runs", {}, 1)
    assert len(report.problems) == 5
    assert sorted(p.name for p in out.rglob("*") if p.is_file()) == ["checkpoint.pt"]


def test_results_never_take_the_place_of_the_notebook(tiny):
    with pytest.raises(runner.DataError, match="name another folder"):
        runner.run_notebooks([tiny], tiny.parent, {}, 12)


def test_a_full_disk_is_one_line_and_no_half_notebook(tiny, tmp_path, monkeypatch):
    def full(nb, path):
        path.write_text("{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner.nbformat, "write", full)
    problem = runner.execute(tiny, tmp_path / "b.ipynb", {}, 600)
    assert problem == f"{tmp_path / 'b.ipynb'}: No space left on device"
    assert not list(tmp_path.glob("*b*.ipynb"))
