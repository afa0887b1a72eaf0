"""One reading of the evidence makes the ledger and the studies."""

import made_up_evidence
import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from scripts import load

generated = load("ci/generated.py")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for script in (generated.ledger, generated.studies):
        monkeypatch.setattr(script, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    nb = new_notebook(cells=[new_markdown_cell("# 04 · Links\n\nText.")])
    nbformat.write(nb, tmp_path / "notebooks" / "04_links.ipynb")
    made_up_evidence.write(tmp_path / "evidence", seeds=4)
    return tmp_path


def test_both_pages_are_written_and_checked(repository, capsys):
    assert generated.main(["check"]) == 1
    assert generated.main(["write"]) == 0
    assert generated.main(["check"]) == 0
    for name in ("ledger.md", "studies/04_links.md"):
        path = repository / "docs" / name
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("**supported**", "**opposite**", 1), encoding="utf-8")
        capsys.readouterr()
        assert generated.main(["check"]) == 1
        assert f"docs/{name}" in capsys.readouterr().err
        path.write_text(text, encoding="utf-8")
