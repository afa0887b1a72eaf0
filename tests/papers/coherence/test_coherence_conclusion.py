"""What notebook 01 concludes in words is what the evidence says."""

import re
from pathlib import Path

import nbformat
import pytest

from mmlib.core.evidence import evidence_dir
from mmlib.papers.coherence.claims import CLAIMS
from mmlib.suite.record import judge_paper

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "01_coherence_retrieval.ipynb"
# [K2, K2b supported], [K1 undecided on Flickr8k]
TAG = re.compile(
    r"\[(K\d+[bc]?(?:, K\d+[bc]?)*) (supported|opposite|negligible|undecided|not tested)"
    r"( on Flickr8k)?\]"
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
    return next(c.source for c in cells if c.source.startswith("## 9. What to take from it"))


def test_tags_are_read():
    assert concluded("it wins [K1, K2b supported] here, not there [K1 undecided on Flickr8k]") == {
        "world": {"K1": "supported", "K2b": "supported"},
        "flickr8k": {"K1": "undecided"},
    }


@pytest.mark.parametrize("tier", ["world", "flickr8k"])
def test_the_conclusion_names_the_verdict_of_each_claim(tier):
    if not (evidence_dir() / tier / "coherence.parquet").exists():
        pytest.skip(f"no evidence of the tier {tier}")
    judged = {one.claim.id: one.verdict for one in judge_paper("01", tier)}
    assert judged.keys() == {claim.id for claim in CLAIMS}
    assert concluded(conclusion())[tier] == judged
    assert "[[" not in conclusion()
