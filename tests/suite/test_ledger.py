"""The ledger: each claim stands under its verdict, with its figures and where they come from."""

import importlib.util
import json
from pathlib import Path

import made_up_evidence
import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from mmlib.core import evidence as records
from mmlib.papers.links.claims import CLAIMS

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("ledger", ROOT / "ci" / "ledger.py")
ledger = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ledger)


def claim(name="K1", low=0.5, verdict="supported", parts=1, **more):
    part = {"effect": 1.0, "low": low, "high": 1.5, "verdict": verdict}
    own = {f"part {i}": part for i in range(parts)}
    told = {"id": name, "claim": "A beats B", "paper": "9 > 8", "comparison": "A − B", **part}
    return told | {"unit": "points", "weakest": "part 0", "why": "", "parts": own} | more


NOT_TESTED = claim("K2", None, "not tested", parts=0, effect=None, high=None, why="no data")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A small repository with two notebooks, and a function that records claims of 02."""
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "docs").mkdir()
    for name, words in (("02_revision", "02 · Revision"), ("04_links", "04 · Links")):
        nb = new_notebook(cells=[new_markdown_cell(f"# {words}\n\nText.")])
        nbformat.write(nb, tmp_path / "notebooks" / f"{name}.ipynb")

    def record(tier, *claims, seeds=3):
        how = {"seeds": list(range(seeds)), "command": f"mmlib run 02 --tier {tier}"}
        how |= {"commit": "0123456789abcdef", "date": "2026-01-02"}
        path = tmp_path / "notebooks" / "expected" / tier / "02_claims.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"how": how, "notebook": "02_revision", "claims": claims}))

    return tmp_path, record


def written(root):
    assert ledger.main(["write"]) == 0
    return (root / "docs" / "ledger.md").read_text(encoding="utf-8")


def section(text, heading):
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(text):
    return [line for line in text.splitlines() if "| **" in line]


def test_claims_stand_under_their_verdicts_by_notebook_and_tier(repository):
    root, record = repository
    record("world", claim(parts=2), NOT_TESTED, seeds=1)
    record("flickr8k", claim(), claim("K3", -0.25, "not supported"))
    text = written(root)
    assert rows(section(text, "Supported")) == [
        "| 02 | **K1** A beats B | 9 > 8 | A − B | +1.00 [+0.50, +1.50] points "
        "| 2; part 0; 2 supported | picture world, 1 seed |",
        "| 02 | **K1** A beats B | 9 > 8 | A − B | +1.00 [+0.50, +1.50] points | 1 "
        "| Flickr8k, 3 seeds |",
    ]
    assert rows(section(text, "Not supported"))[0].startswith("| 02 | **K3** A beats B")
    assert rows(section(text, "Not tested")) == [
        "| 02 | **K2** A beats B | 9 > 8 | A − B | no data | picture world, 1 seed |"
    ]
    assert "\n## Opposite" not in text
    assert "| [02 · Revision](../notebooks/02_revision.ipynb) | Flickr8k | 1 | – |" in text
    assert "| all |  | 2 | – | – | – | 1 | 1 |" in text
    assert "| `mmlib run 02 --tier world` | `0123456789ab` | 2026-01-02 |" in text
    assert "Of 04 nothing is recorded yet" in text


def test_claims_with_evidence_are_judged_from_it(repository):
    root, _ = repository
    made_up_evidence.write(root / "evidence", seeds=6, noise=4)
    text = written(root)
    assert "Of 04 nothing is recorded" not in text
    assert len(rows(text)) == len(CLAIMS)
    (best,) = (row for row in rows(section(text, "Supported")) if "**C1**" in row)
    assert "| 98.9 > 89.5 (MSCOCO, DC and Obj Detect) |" in best
    assert "AUC points | 2, sd " in best
    assert "another verdict in 0 % of halves of the seeds | picture world, 6 seeds |" in best
    undecided = section(text, "Undecided")
    assert "| detectable | seeds needed |" in undecided
    (open_,) = (row for row in rows(undecided) if "**C2**" not in row and "**C4**" in row)
    assert open_.split(" | ")[-3].endswith(" AUC points")
    assert int(open_.split(" | ")[-2]) > 6
    assert "| this tier has no stress documents | picture world, 6 seeds |" in text
    assert "| `mmlib record 04 --tier world --seeds 6` |" in text
    assert "| 1.5 CPU hours |" in text


def test_evidence_of_other_code_is_refused(repository, monkeypatch):
    root, _ = repository
    made_up_evidence.write(root / "evidence")
    monkeypatch.setattr(records, "source_hash", lambda *modules: "other")
    with pytest.raises(SystemExit, match="was recorded by other code"):
        ledger.main(["check"])


def test_check_fails_until_the_ledger_is_written(repository, capsys):
    _, record = repository
    record("world", claim())
    assert ledger.main(["check"]) == 1
    assert "python ci/ledger.py write" in capsys.readouterr().err
    ledger.main(["write"])
    assert ledger.main(["check"]) == 0
    record("world", claim(low=0.4))
    assert ledger.main(["check"]) == 1


def test_a_bar_in_a_claim_does_not_end_its_cell(repository):
    root, record = repository
    record("world", claim(paper="|A|"))
    assert r"| 02 | **K1** A beats B | \|A\| | A − B | +1" in written(root)


def test_a_broken_record_is_named(repository):
    root, record = repository
    record("world", claim())
    (root / "notebooks" / "expected" / "world" / "02_claims.json").write_text("{")
    with pytest.raises(SystemExit, match=r"02_claims\.json"):
        ledger.main(["check"])


def test_every_verdict_has_a_group():
    known = {*ledger.old.VERDICTS, *ledger.new.DECIDED, "undecided", "not tested"}
    assert set(ledger.GROUPS) == known
