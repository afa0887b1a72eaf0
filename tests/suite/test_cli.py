"""The command line: options, exit statuses, one line for what users can mend."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import made_up_evidence
import nbformat
import numpy as np
import pytest
from scripts import REFUSED
from test_flickr8k import NAMES
from test_flickr8k import make as make_flickr8k
from tiny_notebooks import (
    CLAIM,
    FIVE,
    PARAMETERS,
    RESULTS,
    SETTINGS,
    committed_notebook,
    five_exercises,
    judgement,
    write_answers,
    write_notebook,
)

from mmlib.features import sets
from mmlib.suite import cli, record, report, runner

FIGURE = {"figure": "AUC", "value": 93.0, "expected": 93.5, "tolerance": 1.0, "within": True}
CHECKS = {"evidence": "world/one", "comparable": True, "why": "", "figures": [FIGURE]}


@pytest.fixture
def notebooks(tmp_path):
    """A folder with two notebooks, the second of which knows the parameter b."""
    folder = tmp_path / "notebooks"
    write_notebook(folder / "01_one.ipynb", SETTINGS)
    more = PARAMETERS + "b = None\n"
    write_notebook(folder / "02_two.ipynb", SETTINGS, "print(b)", parameters=more)
    return folder


@pytest.fixture
def executed(monkeypatch):
    """Executes the results cells here instead of in a kernel; returns what was asked for."""
    calls = []

    def execute(notebook, executed, parameters, timeout):
        calls.append({"name": notebook.stem, "timeout": timeout, **parameters})
        names: dict = {}
        exec("\n".join([PARAMETERS, f"out = {parameters['out']!r}", SETTINGS, RESULTS]), names)
        exec(judgement(checks=CHECKS), names)
        return ""

    monkeypatch.setattr(runner, "execute", execute)
    return calls


def run(notebooks, *options):
    return cli.main(["run", "--notebooks", str(notebooks), *options])


def one_line(capsys, start=""):
    message = capsys.readouterr().err
    assert message.startswith(start)
    assert message.count("\n") == 1
    return message


def test_all_notebooks_run_by_default(notebooks, executed, capsys):
    assert run(notebooks) == 0
    world = notebooks.parent / "runs" / "world"
    assert executed == [
        {"name": name, "timeout": 1800.0, "tier": "world", "out": str(world / name)}
        for name in ("01_one", "02_two")
    ]
    printed = capsys.readouterr().out
    assert "01_one  done in 0:00" in printed
    assert "1/1 within tolerance" in printed
    assert (notebooks.parent / "runs" / "latest").resolve() == world
    summary = json.loads((world / "summary.json").read_text())
    assert summary["ok"]
    assert summary["notebooks"][0]["claims"] == [CLAIM]
    assert summary["notebooks"][1]["executed"] == "02_two.ipynb"


def test_notebooks_start_in_the_order_asked_for_once_each(notebooks, executed):
    (notebooks.parent / "runs" / "latest").mkdir(parents=True)
    assert run(notebooks, "02", "01", "02_two") == 0
    assert [call["name"] for call in executed] == ["02_two", "01_one"]
    summary = json.loads((notebooks.parent / "runs" / "world" / "summary.json").read_text())
    assert [entry["notebook"] for entry in summary["notebooks"]] == ["01_one", "02_two"]
    assert not (notebooks.parent / "runs" / "latest").is_symlink()  # a folder is left alone


def test_options_become_parameters(notebooks, executed, tmp_path):
    options = "02 --tier flickr8k --seeds 5 --device cpu --timeout 60 --set b=[1,2]"
    assert run(notebooks, *options.split(), "--out", str(tmp_path / "mine")) == 0
    asked = {"name": "02_two", "timeout": 60, "tier": "flickr8k", "seeds": 5, "device": "cpu"}
    assert executed == [asked | {"b": [1, 2], "out": str(tmp_path / "mine" / "02_two")}]
    assert not (notebooks.parent / "runs").exists()


@pytest.mark.parametrize("option", ["--evidence", "--set"])
def test_features_and_evidence_reach_notebooks_by_the_environment(
    notebooks, executed, tmp_path, monkeypatch, option
):
    photographs = make_flickr8k(tmp_path / "data" / "flickr8k")
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("MMLIB_FEATURES", raising=False)
    monkeypatch.setattr(sets, "_opened", [])
    np.save(photographs / "features" / "clip.npy", np.ones((8, 3), dtype=np.float32))
    (photographs / "features" / "clip.ids.txt").write_text("\n".join(NAMES))
    made_up_evidence.write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    where = "mine" if option == "--evidence" else "evidence=mine"
    assert run(notebooks, "01", "--tier", "flickr8k", "--features", "clip", option, where) == 0
    environment = runner.environment("private")
    seen = environment["MMLIB_FEATURES"], environment["MMLIB_EVIDENCE"]
    assert seen == ("clip", str(tmp_path / "mine"))
    assert "evidence" not in executed[0]  # as a parameter it stays "recorded"
    summary = json.loads((notebooks.parent / "runs/flickr8k/summary.json").read_text())
    assert (summary["features"], summary["evidence"]) == seen


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("3", 3), ("None", None), ("hard", "hard"), ("'3'", "3"), ("a=b", "a=b")),
        *((text, text) for text in ("-" * 10_000 + "1", "(" * 10_000, "{[]: 1}", "1+", "\x00")),
    ],
    ids=lambda value: repr(value)[:9],
)
def test_set_takes_a_literal_or_text(text, value):
    assert cli.parameters_of([f"b={text}"], tier="world", seeds=None) == {
        "tier": "world", "b": value
    }  # fmt: skip


@pytest.mark.parametrize(("options", "said"), REFUSED["run"])
def test_wrong_usage_runs_nothing(notebooks, executed, capsys, monkeypatch, options, said):
    monkeypatch.setenv("MMLIB_DATA", str(notebooks / "data"))
    assert run(notebooks, *options.split()) == 2
    assert said in one_line(capsys)
    assert executed == []


def test_a_failure_gives_status_1_and_does_not_stop_the_others(
    notebooks, executed, capsys, monkeypatch
):
    monkeypatch.setitem(CHECKS, "figures", [FIGURE | {"value": 90.0, "within": False}])
    assert run(notebooks) == 1
    printed = capsys.readouterr()
    for text in printed:
        assert text.count("AUC left its tolerance: 90.0, expected 93.5 ± 1.0") == 2
    assert not json.loads((notebooks.parent / "runs/world/summary.json").read_text())["ok"]
    monkeypatch.setattr(runner, "execute", lambda *_: "cell 4 failed: ZeroDivisionError")
    assert run(notebooks) == 1
    assert capsys.readouterr().out.count("cell 4 failed: ZeroDivisionError") == 2


def test_help_and_version_load_nothing_heavy():
    code = (
        "import sys\nfrom mmlib.suite.cli import main\n"
        "calls = (['--version'], ['--help'], ['run', '--help'], ['data', '--help'])\n"
        "assert [main(call) for call in calls] == [0] * 4\n"
        "print(sorted({'torch', 'numpy', 'nbformat', 'papermill'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("mmlib 0.1.0")
    assert done.stdout.endswith("[]\n")


def test_report_prints_where_the_site_is(tmp_path, monkeypatch, capsys):
    assert cli.main(["report", str(tmp_path)]) == 2
    one_line(capsys, f"mmlib report: {tmp_path / 'summary.json'} cannot be read")
    monkeypatch.setattr(report, "write", lambda run, out: (out or run / "report") / "index.html")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert cli.main(["report", str(tmp_path), "--out", "site"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report' / 'index.html'}\nsite/index.html\n"


# --- Course ---------------------------------------------------------------------------------------


@pytest.fixture
def lessons(notebooks):
    """The folder of two notebooks, both with exercises."""
    for path in notebooks.glob("*.ipynb"):
        nb = nbformat.read(path, as_version=4)
        nb.cells += committed_notebook(("from mmlib.suite import course", [], [])).cells
        nb.cells += five_exercises(count=1)
        nbformat.write(nb, write_answers(path, FIVE))
    return notebooks


def course(lessons, *options):
    return cli.main(["course", *map(str, options), "--notebooks", str(lessons)])


def test_course_writes_all_notebooks(lessons, tmp_path, capsys):
    out = tmp_path / "lessons"
    assert course(lessons, "answers", out) == 0
    paths = [out / "01_one.ipynb", out / "02_two.ipynb"]
    assert capsys.readouterr().out.splitlines() == list(map(str, paths))
    for path in paths:
        cells = nbformat.read(path, as_version=4).cells
        tags = {tag for cell in cells for tag in cell.metadata.get("tags", [])}
        assert tags == {"parameters", "exercise", "answer", "check"}  # no blank
    assert course(lessons, "mistakes", "2") == 0
    assert "**Exercise 5. A title**" in capsys.readouterr().out


def test_course_refuses_in_one_line(lessons, tmp_path, capsys):
    for options, said in (
        (("student", tmp_path / "new", "03"), "no notebook '03'; there are 01_one, 02_two"),
        (("answers", lessons / "01_one.ipynb"), "01_one.ipynb is something else; name a new"),
        (("grade", lessons, "--out", tmp_path / "new", "--timeout", "0"), "are numbers above 0"),
        (("grade", tmp_path / "none", "--out", tmp_path / "marks.csv"), "is not there"),
        (("answers", tmp_path / "new", "--pack"), "--pack is for course student"),
        (("teacher", tmp_path / "new"), "No such command 'teacher'"),
    ):
        assert course(lessons, *options) == 2
        assert said in one_line(capsys, "mmlib course: ")
    assert not (tmp_path / "new").exists()


def test_course_grades_and_says_what_stays(lessons, tmp_path, capsys):
    out, marks = tmp_path / "handins" / "ann", tmp_path / "marks.csv"
    assert course(lessons, "student", out, "1") == 0
    path = out / "01_one.ipynb"
    assert capsys.readouterr().out == f"{path}\n"
    path.write_text(path.read_text().replace("answer_2 = ...", "answer_2 = 1"))
    assert course(lessons, "student", out, "1") == 0
    assert "01_one.ipynb stays as it is, another version: delete" in capsys.readouterr().out
    (out / "b.ipynb").write_bytes(path.read_bytes())
    assert course(lessons, "grade", out.parent, "--out", marks) == 0
    said = capsys.readouterr()
    assert said.out == f"{marks}: 2 right, 0 wrong, 8 blank, 0 error\n"
    assert "ann: 2 files of 01_one, all counted: ann/01_one.ipynb, ann/b.ipynb." in said.err


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[], ["coco"], ["Clue-like, signal 0, telling 0", "CITE-like"]])
def test_record_takes_names_with_blanks_and_commas(monkeypatch, names):
    options = {}
    found = SimpleNamespace(seeds=[0], header={"cpu_seconds": 0})
    monkeypatch.setattr(record, "record", lambda *args, **more: options.update(more) or found)
    words = ["--datasets", *names, "--systems", *names] if names else []
    assert cli.main(["record", "04", *words, "--seeds", "1"]) == 0
    assert list(options["datasets"]) == list(options["systems"]) == names


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_locale_can_print_and_a_paper_needs_no_leading_zero(monkeypatch, tmp_path, encoding):
    printed = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", printed)
    text = "0.3 \u00b1 0.1 \u2013 \u03bb"
    monkeypatch.setattr(record, "write_judgement", lambda number, *_: f"{number}: {text}")
    assert cli.main(["judge", "4", "--out", str(tmp_path)]) == 0
    printed.flush()
    plus_minus = "±" if encoding == "latin-1" else "\\xb1"
    expected = f"04: 0.3 {plus_minus} 0.1 \\u2013 \\u03bb\n"
    assert printed.buffer.getvalue().decode(encoding) == expected
