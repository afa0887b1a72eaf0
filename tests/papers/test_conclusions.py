"""What a notebook concludes in words is what the evidence says."""

import re
from pathlib import Path

import nbformat
import pytest

from mmlib.core.evidence import evidence_dir
from mmlib.suite.record import PAPERS, judge_paper, room

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TIERS = ("world", "flickr8k")
# [K2, K2b supported], [C1 undecided on Flickr8k]
TAG = re.compile(
    r"\[([A-Z]\d+[a-z]?(?:, [A-Z]\d+[a-z]?)*) "
    r"(supported|opposite|negligible|undecided|not tested)( on Flickr8k)?\]"
)


def concluded(text: str) -> dict[str, dict[str, str]]:
    """Tier -> claim -> the verdict that a text names."""
    found: dict[str, dict[str, str]] = {tier: {} for tier in TIERS}
    for claims, verdict, photographs in TAG.findall(text):
        tier = found["flickr8k" if photographs else "world"]
        for claim in claims.split(", "):
            assert tier.setdefault(claim, verdict) == verdict, f"{claim} is named twice"
    return found


def conclusion(number: str) -> str:
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    (found,) = (c.source for c in cells if re.match(r"## \d+\. What to take from it\n", c.source))
    return found


def test_tags_are_read():
    text = "it wins [C1, K2b supported] here, not there [C1 undecided on Flickr8k]"
    assert concluded(text) == {
        "world": {"C1": "supported", "K2b": "supported"},
        "flickr8k": {"C1": "undecided"},
    }
    with pytest.raises(AssertionError, match="C1 is named twice"):
        concluded("[C1 supported], or is it [C1 opposite]")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("number", [number for number in PAPERS if number != "00"])
def test_the_conclusion_names_the_verdict_of_each_claim(number, tier):
    if not (evidence_dir() / tier / f"{PAPERS[number]}.parquet").exists():
        pytest.skip(f"no evidence of the tier {tier}")
    judged = {one.claim.id: one.verdict for one in judge_paper(number, tier)}
    assert judged.keys() == {claim.id for claim in room(number, "claims").CLAIMS}
    assert concluded(conclusion(number))[tier] == judged
    assert "[[" not in conclusion(number)
