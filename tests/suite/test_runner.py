import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from tiny_jobs import in_threads
from tiny_notebooks import PARAMETERS, RESULTS, SETTINGS, judgement, write_notebook

from mmlib.core.errors import DataError
from mmlib.suite import cli, execution, runner
from mmlib.suite.outcomes import NotebookReport

WHERE = """\
import os, sys
from tqdm import tqdm
here = {"python": sys.executable, "cwd": os.getcwd(), "started": os.environ.get("DECOY", "no")}
here |= {"threads": os.environ["OMP_NUM_THREADS"], "seeds": seeds, "names": names}
(folder / "here.json").write_text(json.dumps(here))
for _ in tqdm(range(5)):
    print("a line", flush=True)
"""
PID = "import os\n(folder / 'pid').write_text(str(os.getpid()))\n"
NONSENSE = {"display_name": "Elsewhere", "language": "python", "name": "elsewhere"}
TIME_LIMIT = 12.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def decoy(tmp_path_factory):
    """A kernelspec python3 of the user's that cannot work, and a start-up file of his."""
    home = tmp_path_factory.mktemp("home")
    spec = home / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    content = {"argv": [shutil.which("false")], "display_name": "decoy", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(content))
    startup = home / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import os\nos.environ['DECOY'] = 'yes'\n")
    return home


@pytest.fixture(scope="module")
def reports(folder, decoy):
    """What became of each small notebook, by name; two run at a time."""
    notebooks = folder / "notebooks"
    names = PARAMETERS + "names = []\n"

    def write(name, *cells, **how):
        return write_notebook(notebooks / f"{name}.ipynb", SETTINGS, *cells, **how)

    jobs = [
        (write("good", RESULTS, judgement(), WHERE, parameters=names, kernel=NONSENSE), 120),
        (write("slow", PID, "import time\nprint('begun')\ntime.sleep(300)"), TIME_LIMIT),
    ]

    def run(job):
        notebook, timeout = job
        given = {"seeds": 5, "names": ("a", None)} if notebook.stem == "good" else {}
        start = time.monotonic()
        report = runner.run_notebook(notebook, folder / "runs", given, timeout)
        return notebook.stem, SimpleNamespace(
            report=report, wall=time.monotonic() - start, problem="\n".join(report.problems)
        )

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("JUPYTER_PATH", str(decoy / "jupyter"))
        patch.setenv("JUPYTER_DATA_DIR", str(decoy / "jupyter"))
        patch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
        patch.setenv("IPYTHONDIR", str(decoy / "ipython"))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        return dict(pool.map(run, jobs))


def test_good_notebook_has_no_problem(reports):
    report = reports["good"].report
    assert report.ok, report.problems
    assert report.claims[0]["verdict"] == "supported"
    assert nbformat.read(report.executed, as_version=4).cells[-1].execution_count == 6


def test_kernel_is_this_environment_in_the_notebooks_folder(reports, folder):
    here = json.loads((reports["good"].report.out / "here.json").read_text())
    assert here["python"] == sys.executable
    assert here["cwd"] == str(folder / "notebooks")
    assert here["started"] == "no"
    assert here["threads"] == "1"


def test_parameters_arrive(reports):
    here = json.loads((reports["good"].report.out / "here.json").read_text())
    assert here["seeds"] == 5
    assert here["names"] == ["a", None]


def test_streams_are_joined(reports):
    outputs = nbformat.read(reports["good"].report.executed, as_version=4).cells[-1].outputs
    assert [output.name for output in outputs] == ["stdout", "stderr"]
    assert outputs[0].text == "a line\n" * 5
    assert outputs[1].text.count("it/s") <= 1


def test_notebooks_run_on_a_cluster_and_are_told_by_name(tmp_path):
    wait = "import time\ntime.sleep(1)"
    paths = [
        write_notebook(tmp_path / f"{name}.ipynb", SETTINGS, *cells, RESULTS, judgement())
        for name, cells in (("slow", [wait]), ("broken", ["1 / 0"]))
    ]
    with in_threads() as cluster:
        address = cluster.scheduler_address
        broken, slow = runner.run_notebooks(paths, tmp_path / "runs", {}, 120, address)
    assert slow.ok, slow.problems
    assert "ZeroDivisionError" in broken.problems[0]
    told = json.loads((tmp_path / "runs" / "summary.json").read_text())
    assert [one["notebook"] for one in told["notebooks"]] == ["broken", "slow"]


def test_an_interrupted_run_leaves_no_earlier_summary(tmp_path, monkeypatch):
    path = write_notebook(tmp_path / "tiny.ipynb", SETTINGS)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "summary.json").write_text('{"ok": true}')

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_notebook", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run_notebooks([path], tmp_path / "runs", {}, 120)
    assert not (tmp_path / "runs" / "summary.json").exists()


def test_no_scheduler_is_told_in_one_line(tmp_path, capsys):
    write_notebook(tmp_path / "01_tiny.ipynb", SETTINGS)
    where = ["--notebooks", str(tmp_path), "--out", str(tmp_path / "runs")]
    assert cli.main(["run", *where, "--cluster", "nonsense://x"]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("mmlib run: no Dask scheduler answers at nonsense://x")
    assert "\n" not in told


def test_time_limit_holds_for_the_whole_notebook(reports):
    problem = reports["slow"].problem
    assert f"was running when the time limit of {TIME_LIMIT:g} s passed" in problem
    assert "time.sleep(300)" in problem
    assert reports["slow"].wall < 120


def test_no_kernel_is_left_behind(reports):
    assert _gone(int((reports["slow"].report.out / "pid").read_text()))


@pytest.mark.parametrize(
    ("cells", "starts", "holds"),
    [
        (["a = 1\na / 0", "1"], "cell 3 failed: ZeroDivisionError: ", "   2 | a / 0"),
        (["1", "import os\nos._exit(1)"], "cell 4 killed the kernel", "   2 | os._exit(1)"),
        (["import sys\nsys.exit()", "1"], "the notebook ended before its cell 4, which did", ""),
    ],
)
def test_what_went_wrong_is_told(tmp_path, cells, starts, holds):
    """In this process, which has loaded papermill already."""
    notebook = write_notebook(tmp_path / "a.ipynb", SETTINGS, *cells)
    job = {"notebook": notebook, "executed": tmp_path / "b.ipynb", "parameters": {}, "timeout": 600}
    problem = execution._execute_here(job, tmp_path)
    assert problem is not None
    assert problem.startswith(starts)
    assert holds in problem


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_kernels_end_with_the_command(tmp_path, how):
    sleep = "folder.mkdir(parents=True, exist_ok=True)\n" + PID + "import time\ntime.sleep(300)"
    for name in ("01_slow", "02_slow"):
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", SETTINGS, sleep)
    command = [sys.executable, "-m", "mmlib.suite.cli", "run", "--jobs", "2"]
    command += ["--notebooks", str(tmp_path / "notebooks")]
    # A shell starts background jobs with Ctrl-C ignored, and children inherit that.
    run = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pids = [tmp_path / "runs" / "world" / name / "pid" for name in ("01_slow", "02_slow")]
    deadline = time.monotonic() + 600  # on a busy machine it takes minutes until both run
    while not all(pid.exists() and pid.read_text() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.2)
    run.send_signal(how)
    _, printed = run.communicate(timeout=120)
    assert run.returncode == (130 if how == signal.SIGINT else -how)
    assert ("interrupted" in printed) == (how == signal.SIGINT)
    assert all(f"{name}  cell 1/4" in printed for name in ("01_slow", "02_slow"))  # progress
    assert all(_gone(int(pid.read_text())) for pid in pids)


def _gone(pid: int) -> bool:
    """Whether a process has ended, or ends long before its notebook would."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_one_run_in_a_folder_at_a_time(tmp_path, monkeypatch):
    """Two once mixed their results, and one told the other's claims."""
    path = write_notebook(tmp_path / "notebooks" / "a.ipynb", SETTINGS)
    out, told = tmp_path / "runs", []

    def run_notebook(*call):
        report = NotebookReport("a", out / "a.ipynb", out / "a")
        monkeypatch.setattr(runner, "run_notebook", lambda *_: report)  # no third run
        with pytest.raises(DataError) as refused:
            runner.run_notebooks([path], out, {}, TIME_LIMIT)
        told.append(str(refused.value))
        return report

    monkeypatch.setattr(runner, "run_notebook", run_notebook)
    assert runner.run_notebooks([path], out, {}, TIME_LIMIT)[0].ok
    assert told[0].startswith(f"{out}: another run writes there; wait for its end, or give this o")
    assert json.loads((out / "summary.json").read_text())["ok"]


def test_a_process_whose_parent_is_gone_already_ends(tmp_path):
    """Killed early, `mmlib run` once left a notebook running."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    notebook = write_notebook(tmp_path / "a.ipynb", "import time\ntime.sleep(300)")
    job = {"notebook": str(notebook), "executed": str(tmp_path / "b.ipynb"), "parameters": {}}
    job |= {"timeout": 300, "parent": gone.pid}
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "mmlib.suite.execution", str(tmp_path)]
    assert subprocess.run(command, timeout=120).returncode == 1
    environment = execution._environment(tmp_path) | {"JPY_PARENT_PID": str(gone.pid)}
    kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", str(tmp_path / "kernel.json")]
    assert subprocess.run(kernel, timeout=120, env=environment).returncode == 1


def test_paths_in_the_environment_are_seen_from_where_the_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MMLIB_DATA", "mine")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([".", "/lib"]))
    environment = execution._environment(tmp_path)
    assert environment["MMLIB_DATA"] == str(tmp_path / "mine")
    assert environment["PYTHONPATH"] == os.pathsep.join([str(tmp_path), "/lib"])
    monkeypatch.setenv("MMLIB_DATA", "~/mine")
    assert execution._environment(tmp_path)["MMLIB_DATA"] == str(Path.home() / "mine")
    monkeypatch.delenv("MMLIB_DATA")
    assert "MMLIB_DATA" not in execution._environment(tmp_path)


def test_the_folder_of_temporary_files_may_be_long(tmp_path):
    """The path of a socket may not."""
    private = tmp_path / ("folder" * 20)
    private.mkdir()
    notebook = write_notebook(tmp_path / "a.ipynb", "1 + 1")
    job = {"notebook": notebook, "executed": tmp_path / "b.ipynb", "parameters": {}, "timeout": 600}
    assert execution._execute_here(job, private) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_line_and_no_half_notebook(tmp_path):
    executed = tmp_path / "b.ipynb"
    executed.symlink_to("/dev/full")
    job = {"notebook": write_notebook(tmp_path / "a.ipynb", "1"), "executed": executed}
    problem = execution._execute_here(job | {"parameters": {}, "timeout": 600}, tmp_path)
    assert problem == f"{executed}: No space left on device"
    assert not executed.is_symlink()


def test_results_of_an_earlier_run_do_not_count(tmp_path, monkeypatch):
    notebook = write_notebook(tmp_path / "notebooks" / "old.ipynb", SETTINGS)
    out = tmp_path / "runs" / "old"
    (out / "figures").mkdir(parents=True)
    for name in ("results.json", "results.csv", "claims.json", "checks.json", "figures/a.png"):
        (out / name).write_text("[]")
    (out / "checkpoint.pt").write_text("kept")
    monkeypatch.setattr(runner, "execute", lambda *_: None)
    report = runner.run_notebook(notebook, tmp_path / "runs", {}, 1)
    assert len(report.problems) == 5
    assert sorted(p.name for p in out.rglob("*") if p.is_file()) == ["checkpoint.pt"]


def test_broken_child_is_reported(tmp_path, monkeypatch):
    notebook = write_notebook(tmp_path / "a.ipynb", SETTINGS)
    monkeypatch.setattr(execution.sys, "executable", shutil.which("false"))
    problem = execution.execute(notebook, tmp_path / "out.ipynb", {}, 1)
    assert problem == "the process that ran the notebook ended with exit status 1"


def test_results_never_take_the_place_of_the_notebook(tmp_path):
    path = write_notebook(tmp_path / "a.ipynb", SETTINGS)
    before = path.read_bytes()
    with pytest.raises(runner.ParameterError, match="name another folder"):
        runner.run_notebooks([path], tmp_path, {}, TIME_LIMIT)
    assert path.read_bytes() == before
