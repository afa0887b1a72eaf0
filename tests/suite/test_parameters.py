"""Parameters of notebooks: their names, whether they are read, and what they may be."""

import made_up_evidence
import pytest
from nbformat.v4 import new_code_cell
from scripts import ROOT
from tiny_notebooks import PARAMETERS, SETTINGS, write_notebook

from mmlib.core import paths
from mmlib.core.paths import OWN_EVIDENCE as OWN
from mmlib.suite import parameters, record

PLAIN = "write only `name = literal`"
NOT_PYTHON = "the parameters cell is not Python"


@pytest.mark.parametrize(
    ("line", "given", "said"),
    [
        ("", {"epochs": 3}, "knows no parameter epochs; it has tier, seeds"),
        ("b = 10", {"b": 20}, "never reads the parameter b"),
        ("", {"seeds": {1, 2}}, "a parameter is not plain data"),
        *((line, {}, PLAIN) for line in ("b = seeds + 1", "b: int = 3", "b += 1", "import os")),
        ("a = b = 3", {}, PLAIN),
        *((line, {}, NOT_PYTHON) for line in ("b = (", "%time b = 3", "b = 05")),
    ],
)
def test_faults_are_named_in_one_line(tmp_path, line, given, said):
    path = write_notebook(tmp_path / "a.ipynb", SETTINGS, parameters=f"{PARAMETERS}{line}\n")
    with pytest.raises(parameters.ParameterError) as told:
        parameters.check_parameters(path, given)
    assert str(told.value).startswith("a.ipynb: ")
    assert said in str(told.value)
    assert parameters.check_parameters(
        write_notebook(tmp_path / "b.ipynb", SETTINGS), {"seeds": 5}
    )["seeds"] == 5  # fmt: skip


def test_what_is_no_notebook_is_named(tmp_path):
    (tmp_path / "a.ipynb").write_text("{\n")
    with pytest.raises(parameters.ParameterError, match=r"a\.ipynb: no notebook .*; get it again"):
        parameters.check_parameters(tmp_path / "a.ipynb", {})


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["print(b)"], True),
        (["x = f'{b}'"], True),
        (["b += 1"], True),
        (["b = b + 1"], True),
        (["def f():\n    return b"], True),
        (["x = [a for a in range(3) if a < b]"], True),
        (["class A:\n    size = b"], True),
        (["%time g(b)"], True),
        (["%%time\nprint(b)"], True),
        (["!echo {b}"], True),
        (["%matplotlib inline"], False),
        (["def f(b):\n    return b"], False),
        (["b = 3", "print(b)"], False),
        (["b, c = 3, 4\nprint(b)"], False),
        (["[b for b in range(3)]"], False),
        (["# b", "'b'", "x.b", "f(b=1)"], False),
        (["for in Python"], True),  # left for the kernel to say
    ],
)
def test_which_parameters_are_read(cells, read):
    first = new_code_cell("b = 10", metadata={"tags": ["parameters"]})
    sources = [new_code_cell(source) for source in cells]
    assert parameters.unread_parameters([first, *sources], {"b"}) == (set() if read else {"b"})


NOTEBOOKS = {path.stem[:2]: path for path in (ROOT / "notebooks").glob("*.ipynb")}
WRONG = {
    "evidence": ["computed", "Compute", "", 1, None],
    "tier": ["World", "flickr30k", None],
    "seeds": ["abc", 0, -1, 2.5, 5.0, True, 2**40, float("nan")],
    "device": ["gpu", "cuda:", "", 0],
    "out": [1, None],
}
OF_ONE = {
    "01": {
        "epochs": [-1, "05", 5.0],
        "seed": ["abc", -1, 0.5],
        "signal": [float("nan"), float("inf"), -1, 2, 0.3, "0,5", True],
        "telling": [float("nan"), "0.5"],
    },
    "03": {"epochs": [-1, "", True]},
    "04": {"system": ["ap", "TK+1/2k", "Random"], "live": ["COHESIVE", "unlabelled", "mixed5"]},
}


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_a_value_that_no_branch_knows_is_refused_before_a_kernel_starts(number):
    """`--set evidence=computed` once printed the recorded verdicts."""
    path = NOTEBOOKS[number]
    for name, values in ((WRONG if number == "00" else {}) | OF_ONE.get(number, {})).items():
        for value in values:
            with pytest.raises(parameters.ParameterError) as told:
                parameters.check_parameters(path, {name: value})
            assert str(told.value).startswith(f"{path.name}: {name} is {value!r}; it must be ")
            assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("number", "given"),
    [
        ("00", {"evidence": "compute", "seeds": 5, "device": "cuda:1", "tier": "paper"}),
        ("01", {"signal": 0, "telling": 0.75, "epochs": 5, "seed": 7, "out": "/x"}),
        ("04", {"tier": "flickr8k", "live": "mixed5", "system": "TK+½k"}),
        ("04", {"live": "story", "system": "AP, b = 20"}),
        ("04", {"tier": "flickr8k", "live": "auto"}),
        ("04", {"tier": "paper", "live": "of my own"}),
    ],
)
def test_what_the_notebooks_know_passes(number, given):
    assert parameters.check_parameters(NOTEBOOKS[number], given).items() >= given.items()


def test_what_a_system_may_be_depends_on_the_documents():
    values = {"tier": "world", "live": "coco", "system": "AP, b = 20"}
    with pytest.raises(parameters.ParameterError, match=r"must be NoStruct, DC, TK, .* or AP\+½k"):
        parameters.check_values("04", values)
    parameters.check_values("05", values | {"signal": "mine"})  # dials are one notebook's own


def test_a_notebook_takes_a_folder_of_evidence_and_a_feature_set(tmp_path, monkeypatch, capsys):
    for name in ("MMLIB_EVIDENCE", "MMLIB_FEATURES"):
        monkeypatch.setenv(name, "")
    made_up_evidence.write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    parameters.use("04", {"evidence": "mine", "features": "clip"})
    assert (paths.evidence_dir(), paths.feature_set()) == (tmp_path / "mine", "clip")
    assert record.read("04", "world").header["cpu_seconds"] == 5400
    assert record.read("04", "flickr8k").seeds == record.read("04", "flickr8k", OWN).seeds
    assert capsys.readouterr().out.startswith(f"{tmp_path}/mine/flickr8k/links: no evidence there")
    parameters.use("04", {"evidence": "compute"})
    assert paths.feature_set() == "clip"
    for wrong in ("none", ".", 3):
        with pytest.raises(parameters.ParameterError, match="it must be recorded or compute, or a"):
            parameters.use("04", {"evidence": wrong})


@pytest.mark.parametrize(
    ("default", "fits", "fails"),
    [
        ("10", [3], [3.0, "3", True, None, [3]]),
        ("0.5", [1, 0.25], [True, "1", None]),
        ("'a'", ["", "b"], [1, None]),
        ("True", [False], [0, "no"]),
        ("(1, 2)", [[3], (4, "x")], [3, "12"]),
        ("None", [None, 3, "a", [1]], []),
    ],
)
def test_other_parameters_are_of_their_defaults_type(tmp_path, default, fits, fails):
    notebook = write_notebook(
        tmp_path / "a.ipynb", SETTINGS, "print(b)", parameters=f"{PARAMETERS}b = {default}\n"
    )
    for value in fits:
        parameters.check_parameters(notebook, {"b": value})
    for value in fails:
        with pytest.raises(parameters.ParameterError, match=r"a.ipynb: b is .*; it must be of typ"):
            parameters.check_parameters(notebook, {"b": value})
