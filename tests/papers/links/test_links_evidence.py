"""What is recorded of the world decides the claims, in seconds and without any training."""

import time

import pytest

from mmlib.core.claims import assess
from mmlib.core.paths import evidence_dir
from mmlib.papers.links import run
from mmlib.papers.links.claims import CLAIMS
from mmlib.suite import record

FOLDER = evidence_dir()
pytestmark = pytest.mark.skipif(
    not (FOLDER / "world" / "links").is_dir(), reason="no evidence of the world is recorded"
)


@pytest.fixture(scope="module")
def judged():
    """Every claim, and the seconds that reading and judging took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "train", lambda *arguments, **more: pytest.fail("it trains"))
        started = time.process_time()
        evidence = record.read("04", "world")
        found = [assess(claim, evidence, evidence.seeds) for claim in CLAIMS]
        yield evidence, found, time.process_time() - started


def test_every_claim_has_a_verdict_in_seconds(judged):
    _, found, seconds = judged
    assert [one.claim.id for one in found] == [claim.id for claim in CLAIMS]
    assert all(one.verdict for one in found)
    assert seconds < 30


def test_the_record_is_small_enough_for_a_repository():
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size <= 30e6


def test_all_that_the_notebook_shows_is_written(judged, tmp_path):
    text = record.write_judgement("04", "world", tmp_path)
    assert all(claim.id in text for claim in CLAIMS)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"verdicts.json", "ledger.csv", "claims.png", "overview.png"} <= names
