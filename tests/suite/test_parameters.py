"""Parameters of notebooks: their names, whether they are read, and what they may be."""

import made_up_evidence
import pytest
from nbformat.v4 import new_code_cell
from scripts import NOTEBOOKS, REFUSED
from tiny_notebooks import PARAMETERS, SETTINGS, write_notebook

from mmlib.core import paths
from mmlib.core.paths import OWN_EVIDENCE as OWN
from mmlib.suite import parameters, record

NUMBERED = {path.stem[:2]: path for path in NOTEBOOKS}
PLAIN, NOT_PYTHON = "write only `name = literal`", "the parameters cell is not Python"


def check(folder, line, *sources, **values):
    path = write_notebook(
        folder / "a.ipynb", SETTINGS, *sources, parameters=f"{PARAMETERS}{line}\n"
    )
    return parameters.check_parameters(path, values)


@pytest.mark.parametrize(
    ("line", "values", "said"),
    [
        ("", {"epochs": 3}, "knows no parameter epochs; it has tier, seeds"),
        ("c = 10", {"c": 20}, "never reads the parameter c"),
        ("", {"seeds": {1, 2}}, "a parameter is not plain data"),
        *((line, {}, PLAIN) for line in ("b = seeds + 1", "b: int = 3", "b += 1", "import os")),
        ("a = b = 3", {}, PLAIN),
        *((line, {}, NOT_PYTHON) for line in ("b = (", "%time b = 3", "b = 05")),
        *(("b = 'a'", {"b": value}, "it must be text") for value in (1, None)),
    ],
)
def test_faults_are_named_in_one_line(tmp_path, line, values, said):
    with pytest.raises(ValueError, match=r"^a\.ipynb: ") as error:
        check(tmp_path, line, "print(b)", **values)
    assert str(error.value).startswith("a.ipynb: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_what_fits_passes(tmp_path):
    assert check(tmp_path, "", seeds=5)["seeds"] == 5
    for default, fits in (("10", 3), ("'a'", ""), ("(1, 2)", (4, "x")), ("None", "a")):
        assert check(tmp_path, f"b = {default}", "print(b)", b=fits)["seeds"] == 3


def test_what_is_no_notebook_is_named(tmp_path):
    (tmp_path / "a.ipynb").write_text("{\n")
    with pytest.raises(ValueError, match=r"a\.ipynb: no notebook .*; get it again"):
        parameters.check_parameters(tmp_path / "a.ipynb", {})


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        *(([source], True) for source in (
            "print(b)", "x = f'{b}'", "b = b + 1", "def f():\n    return b", "%time g(b)",
            "class A:\n    size = b", "%%time\nprint(b)", "!echo {b}",
            "for in Python",  # left for the kernel to say
        )),
        (["%matplotlib inline"], False),
        (["b = 3"], False),
        (["# b", "'b'", "x.b", "f(b=1)"], False),
    ],
)  # fmt: skip
def test_which_parameters_are_read(cells, read):
    first = new_code_cell("b = 10", metadata={"tags": ["parameters"]})
    sources = [new_code_cell(source) for source in cells]
    assert parameters.unread_parameters([first, *sources], {"b"}) == (set() if read else {"b"})


WRONG = REFUSED["parameters"]


@pytest.mark.parametrize("number", WRONG)
def test_a_value_that_no_branch_knows_is_refused_before_a_kernel_starts(number):
    path = NUMBERED[number]
    for name, values in WRONG[number].items():
        for value in values:
            with pytest.raises(ValueError, match="it must be ") as error:
                parameters.check_parameters(path, {name: value})
            assert str(error.value).startswith(f"{path.name}: {name} is {value!r}; it must be ")
            assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("number", "values"),
    [
        ("00", {"evidence": "compute", "seeds": 5, "device": "cuda:1", "tier": "paper"}),
        ("01", {"signal": 0, "telling": 0.75, "epochs": 5, "seed": 7, "out": "/x"}),
        ("04", {"tier": "flickr8k", "live": "mixed5", "system": "TK+½k"}),
        ("04", {"live": "story", "system": "AP, b = 20"}),
        ("04", {"tier": "paper", "live": "of my own"}),
    ],
)
def test_what_the_notebooks_know_passes(number, values):
    assert parameters.check_parameters(NUMBERED[number], values).items() >= values.items()


def test_what_a_system_may_be_depends_on_the_documents():
    values = {"tier": "world", "live": "coco", "system": "AP, b = 20"}
    with pytest.raises(ValueError, match=r"must be NoStruct, DC, TK, .* or AP\+½k"):
        parameters.check_values("04", values)
    parameters.check_values("05", values | {"signal": "mine"})  # dials are one notebook's own


def test_a_notebook_takes_a_folder_of_evidence_and_a_feature_set(tmp_path, monkeypatch, capsys):
    for name in ("MMLIB_EVIDENCE", "MMLIB_FEATURES"):
        monkeypatch.setenv(name, "")
    written = made_up_evidence.write(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    parameters.use("04", {"evidence": "mine", "features": "clip"})
    assert (paths.evidence_dir(), paths.feature_set()) == (tmp_path / "mine", "clip")
    assert record.read("04", "world").jobs == written.jobs
    assert record.read("04", "flickr8k").seeds == record.read("04", "flickr8k", OWN).seeds
    assert capsys.readouterr().out.startswith(f"{tmp_path}/mine/flickr8k/links: no evidence there")
    parameters.use("04", {"evidence": "compute"})
    assert paths.feature_set() == "clip"
    for wrong in ("none", ".", 3):
        with pytest.raises(ValueError, match="it must be recorded or compute, or a"):
            parameters.use("04", {"evidence": wrong})
