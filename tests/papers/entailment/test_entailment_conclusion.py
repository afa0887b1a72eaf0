"""What notebook 02 concludes in words is what the evidence says."""

import re
from pathlib import Path

import nbformat
import pytest

from mmlib.core.evidence import evidence_dir
from mmlib.papers.entailment.claims import CLAIMS
from mmlib.suite.record import judge_paper

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "02_entailment_revision.ipynb"
# [C2, C2b supported], [C1 undecided on Flickr8k]
TAG = re.compile(
    r"\[([CJOP]\d+b?(?:, [CJOP]\d+b?)*) "
    r"(supported|opposite|negligible|undecided|not tested)( on Flickr8k)?\]"
)


def concluded(text: str) -> dict[str, dict[str, str]]:
    """Tier -> claim -> the verdict that a text names."""
    found: dict[str, dict[str, str]] = {"world": {}, "flickr8k": {}}
    for claims, verdict, photographs in TAG.findall(text):
        tier = found["flickr8k" if photographs else "world"]
        for claim in claims.split(", "):
            assert tier.setdefault(claim, verdict) == verdict, f"{claim} is named twice"
    return found


def conclusion() -> str:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    return next(c.source for c in cells if c.source.startswith("## 10. What to take from it"))


def test_tags_are_read():
    assert concluded("it wins [C1, C2b supported] here, not there [C1 undecided on Flickr8k]") == {
        "world": {"C1": "supported", "C2b": "supported"},
        "flickr8k": {"C1": "undecided"},
    }


@pytest.mark.parametrize("tier", ["world", "flickr8k"])
def test_the_conclusion_names_the_verdict_of_each_claim(tier):
    if not (evidence_dir() / tier / "entailment.parquet").exists():
        pytest.skip(f"no evidence of the tier {tier}")
    judged = {one.claim.id: one.verdict for one in judge_paper("02", tier)}
    assert judged.keys() == {claim.id for claim in CLAIMS}
    assert concluded(conclusion())[tier] == judged
    assert "[[" not in conclusion()
