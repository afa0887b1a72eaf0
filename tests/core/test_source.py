"""Hashes of a module's source: what it imports counts, lazily too, and nothing else does."""

import pytest

from mmlib.core import source

MODULE = "mmlib.papers.tiny.model"
FILES = {
    "papers/tiny/model.py": "from mmlib.core.used import one\nimport mmlib.data.sets\n",
    "core/used.py": "def one():\n    from mmlib.features import late\n    return late\n",
    "features/late.py": "import numpy\n",
    "features/late.yaml": "",
    "data/sets.py": "from mmlib import claims\n",
    "claims.py": "from mmlib.data import sets\n",  # imports may go round
    "core/other.py": "",
    "suite/report.py": "from mmlib.papers.tiny import model\n",
}
COUNTED = [
    *("papers/tiny/model.py", "core/used.py", "features/late.py", "features/late.yaml"),
    *("data/sets.py", "claims.py"),
]


def forget():
    source.imported_modules.cache_clear()
    source.source_hash.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package in the place of mmlib's."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in [tmp_path, *tmp_path.rglob("*/")]:
        if path.is_dir():
            (path / "__init__.py").touch()
    monkeypatch.setattr(source, "PACKAGE", tmp_path)
    forget()
    yield tmp_path
    forget()


def change(path):
    """The hash of `MODULE` before and after a change to a file."""
    forget()
    before = source.source_hash(MODULE)
    path.write_text(path.read_text() + "\nchanged = 1\n")
    forget()
    return before, source.source_hash(MODULE)


@pytest.mark.parametrize("name", FILES)
def test_a_change_in_what_is_imported_and_no_other_changes_the_hash(package, name):
    before, after = change(package / name)
    assert (before != after) == (name in COUNTED)


def test_several_modules_have_one_hash_in_any_order(package):
    one, two = "mmlib.core.used", "mmlib.core.other"
    assert source.source_hash(one, two) == source.source_hash(two, one)
    assert source.source_hash(one, two) != source.source_hash(one)


def test_comments_docstrings_and_blank_lines_do_not_count(package):
    path, found = package / "core" / "used.py", []
    for text in ("x = 1\n", '"""Told."""\n\nx = 1  # one\n\n\n# more\n', "x = 2\n"):
        path.write_text(text)
        forget()
        found.append(source.source_hash(MODULE))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("name", ["mmlib.none", "mmlib.papers.none", "numpy"])
def test_an_unknown_module_is_refused(package, name):
    with pytest.raises(ValueError, match=f"{name} is no module of mmlib"):
        source.source_hash(name)
