"""What a notebook concludes in words is what the evidence says, and no recorded table changes."""

import hashlib
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from mmlib.core.claims import Assessment, assess, ledger, parts_table
from mmlib.core.contrast import Vocabulary
from mmlib.core.evidence import Evidence
from mmlib.suite.papers import PAPERS, experiment
from mmlib.suite.record import read

TIERS, ROOT = ("world", "flickr8k"), Path(__file__).parents[2]


@cache
def recorded(number: str, tier: str) -> tuple[Evidence, list[Assessment]]:
    """The evidence of a paper and its assessed claims."""
    evidence = read(number, tier)
    claims = experiment(number).claims_of(tier)
    return evidence, [assess(claim, evidence) for claim in claims]


# A sentence on results names what it rests on in a comment behind it, such as
# <!-- C1 world: coco|stress; -C5 photos -->: those parts of C1, and C5 with its sides exchanged.
COMMENT, KINDS = re.compile("<!-- ?(.+?) ?-->"), {"photos": "flickr8k", "made up": "controlled"}
NAMED = re.compile(r"(?:(\d\d) )?(-?)(\w+) (world|photos|made up)(?:: ([^;]+))?")
CASES = yaml.safe_load(Path(__file__).with_name("comparisons.yaml").read_text(encoding="utf-8"))
MORE, LESS, SAME = (rf"\b({words})\b" for words in CASES["words"].values())
READINGS = (  # what a sentence says, the first that fits -> the sides of 0 that it is about
    (r"\bcannot tell\b", lambda sides: None in sides),
    (r"\bdepends\b", lambda sides: 1 in sides and len(sides) > 1),
    (SAME, lambda sides: sides == {0}),
    (rf"\b(no|not|nor|never)\b.*{MORE}", lambda sides: sides and sides <= {0, -1}),
    (f"{MORE}.*{LESS}|{LESS}.*{MORE}", lambda sides: False),  # one thing a comment
    (LESS, lambda sides: sides == {-1}),
    (MORE, lambda sides: sides == {1}),
)


def says(sentence):
    return next((fits for words, fits in READINGS if re.search(words, sentence, re.I)), None)


def overstated(text, number, record_of):
    """Sentences that compare and name no claim, or a claim whose parts came out otherwise."""
    for line in text.splitlines():
        *pieces, tail = COMMENT.split(line)
        for words, comment in zip([*pieces[::2], tail], [*pieces[1::2], ""], strict=True):
            *before, last = re.split(r"(?<=[.!?:])\**\s+", words)
            yield from (s for s in [*before, *[last] * (not comment)] if says(s))
            for claim in filter(None, comment.split("; ")):
                paper, reverse, name, kind, which = NAMED.fullmatch(claim).groups("")
                record = record_of(paper or number, KINDS.get(kind, kind), name)
                zero = "supported" if record["kind"] == "equivalent" else "negligible"
                named = [part for label, part in record["parts"].items() if re.search(which, label)]
                sides = {
                    0 if p["verdict"] == zero else int(reverse + "1") * np.sign(p["effect"])
                    if p["verdict"] != "undecided" else None for p in named
                }  # fmt: skip
                if not (fits := says(last)) or not fits(sides):
                    yield f"{last} [{claim}: {record['words']} {record['counts']}]"


@pytest.mark.parametrize("number", ["README", "01", "02", "03", "04"])
def test_what_is_concluded_does_not_say_more_than_its_claims(number):
    def record_of(paper, tier, name):
        return next(one.record() for one in recorded(paper, tier)[1] if one.claim.id == name)

    path = next((ROOT / "notebooks").glob(f"{number}_*.ipynb"), ROOT / "README.md")
    section = r'(?s)"(## \d+\. What to take from it.*?)(?:"## |\n   \])'
    place = r"(?m)^\| !.* \| (.*) \|$" if number == "README" else section
    text = "\n".join(re.findall(place, path.read_text(encoding="utf-8")))
    assert len(COMMENT.findall(text)) > 4
    assert list(overstated(text, number, record_of)) == []


@pytest.mark.parametrize(("verdicts", "right", "wrong"), CASES["sentences"])
def test_a_sentence_that_says_more_than_its_claim_is_refused(verdicts, right, wrong):
    parts = {v: {"verdict": v, "effect": 1 - 2 * (v == "opposite")} for v in verdicts.split()}
    record = {"kind": "greater", "parts": parts, "words": "", "counts": ""}
    for sentence, refused in ((right, 0), (wrong, 1)):
        text = re.sub("@(-?)", r".<!-- \1A world -->", sentence)
        assert len(list(overstated(text, "01", lambda *_: record))) == refused


# Systems and metrics that claims name although no tier records them: where hard negatives were
# searched they are what the system uses.
NOT_RECORDED = {"04": "(DC|AP), hard.*: AUC"}


@pytest.mark.parametrize("number", [number for number in PAPERS if number != "00"])
def test_what_a_claim_names_is_recorded_somewhere(number, monkeypatch):
    look_up, named = Vocabulary.recorded, defaultdict(bool)

    def asked(self, evidence, term):
        place = look_up(self, evidence, term)
        _, system, metric = term
        named[f"{system}: {metric}"] |= place is not None
        return place

    monkeypatch.setattr(Vocabulary, "recorded", asked)
    for tier in (*TIERS, *(["controlled"] if number in ("01", "03") else [])):
        evidence = read(number, tier)
        for claim in experiment(number).claims_of(tier):
            claim.effects(evidence)
    assert len(named) > 20
    absent = [name for name, there in named.items() if not there]
    assert [n for n in absent if not re.fullmatch(NOT_RECORDED.get(number, ""), n)] == []


# Of each recorded table and claim, with numbers of six digits. A digest changes only with a reason,
# and the reason goes into the changelog. What is new need not have one.
DIGESTS = json.loads(Path(__file__).with_name("table_digests.json").read_text(encoding="utf-8"))


def digest(csv: str) -> str:
    """Twelve hexadecimal digits of a table, the same whatever a machine does to the last bits."""
    rounded = re.sub(r"-?\d+\.\d{5,}(e-?\d+)?", lambda n: f"{float(n[0]):.6g}", csv)
    return hashlib.sha256(rounded.encode()).hexdigest()[:12]


@pytest.mark.parametrize("place", DIGESTS)
def test_no_table_of_the_record_changes_unnoticed(place):
    tier, number = place.split("/")
    evidence, assessments = recorded(number, tier)
    makers = experiment(number).tables(evidence)
    found = {name: digest(make().to_csv()) for name, make in makers.items()}
    for one in assessments:
        found[one.claim.id] = digest(ledger([one]).to_csv() + parts_table([one]).to_csv())
    new = {name: found.get(name) for name in DIGESTS[place]}
    assert new == DIGESTS[place], "left: what the record gives now; right: the digests kept"
