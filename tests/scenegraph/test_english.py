"""The bundled English pipeline: size, licence, scores, and what it makes of plain captions."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import spacy
import yaml
from spacy.tokens import Doc

from mmlib.core.errors import DataError
from mmlib.scenegraph.parser import ENGLISH, load_english

FOLDER = Path(__file__).parents[2]
CAPTIONS = yaml.safe_load(Path(__file__).with_name("english.yaml").read_text(encoding="utf-8"))
FACTS = [(text, fact) for text, facts in CAPTIONS.items() for fact in facts.split()]


@pytest.fixture(scope="module")
def nlp():
    return load_english()


def tree(doc: Doc) -> list[tuple[str, str, int, str]]:
    return [(token.text, token.pos_, token.head.i, token.dep_) for token in doc]


# --- The folder ---


def test_is_small_and_holds_data_only():
    files = [path for path in ENGLISH.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 8_000_000
    assert not [path for path in files if path.suffix in (".py", ".pkl", ".pickle", ".so")]


def test_meta_states_licence_sources_and_scores():
    meta = json.loads((ENGLISH / "meta.json").read_text())
    assert meta["license"] == "CC BY-SA 4.0"
    assert any("EWT" in source["name"] for source in meta["sources"])
    result = meta["performance"]["ewt_test"]
    assert result["LAS"] >= 80
    assert 100 > result["UPOS"] > result["UAS"] > result["LAS"]
    assert meta["made"]["by"] == "ci/train_parser.py"


def test_loads_without_a_network():
    """In a process whose sockets cannot connect."""
    code = (
        "import socket\n"
        "def refuse(*_): raise OSError('no network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from mmlib.scenegraph.parser import load_english\n"
        "print([t.dep_ for t in load_english()('a dog runs')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER)
    assert done.returncode == 0, done.stderr
    assert "ROOT" in done.stdout


# --- Scores ---


@pytest.mark.real
def test_scores_on_treebank_test(nlp, real_data):
    """Counted here anew, on the first 300 sentences of EWT test: as meta.json states them."""
    path = real_data / "ud_english_ewt" / "en_ewt-ud-test.conllu.gz"
    blocks = gzip.open(path, "rt", encoding="utf8").read().split("\n\n")[:300]
    upos, uas, las = [], [], []
    for block in blocks:
        rows = [line.split("\t") for line in block.split("\n") if re.match(r"\d+\t", line)]
        doc = nlp(Doc(nlp.vocab, [row[1] for row in rows], ["=No" not in row[9] for row in rows]))
        for i, (token, row) in enumerate(zip(doc, rows, strict=True)):
            head = int(row[6]) - 1 if row[6] != "0" else i
            label = "ROOT" if row[7] == "root" else row[7]
            upos.append(token.pos_ == row[3])
            uas.append(token.head.i == head)
            las.append(token.head.i == head and token.dep_ == label)
    assert len(blocks) == 300
    recorded = json.loads((ENGLISH / "meta.json").read_text())["performance"]
    assert 100 * np.mean(las) >= 80
    for name, hits in (("UPOS", upos), ("UAS", uas), ("LAS", las)):
        assert 100 * np.mean(hits) == pytest.approx(recorded["ewt_test_first_300"][name], abs=0.1)


@pytest.mark.parametrize(("text", "fact"), FACTS)
def test_plain_captions(nlp, text, fact):
    word, label, head = fact.split("<")
    [token] = [token for token in nlp(text) if token.text == word]
    assert (token.dep_, token.head.text) == (label, head)


def test_case_and_stop_change_little(nlp):
    """Of all captions above, in lower case without a stop and capitalised with one."""
    same = []
    for text in CAPTIONS:
        bare = text.lower().rstrip(".")
        full = f"{bare[0].upper()}{bare[1:]}."
        pairs = zip(tree(nlp(bare)), tree(nlp(full)), strict=False)
        same += [item[2:] == second[2:] for item, second in pairs]
    assert np.mean(same) > 0.95


# --- Loading ---


def test_no_text_of_the_treebank_comes_along():
    """Its words hold people's addresses, and the network needs their hashes alone."""
    words = set(spacy.load(ENGLISH).vocab.strings) - set(spacy.blank("en").vocab.strings)
    assert not [word for word in words if "@" in word or "www" in word]
    assert len(words) < 500  # labels


def test_damaged_folder_is_one_clear_error(tmp_path, monkeypatch):
    folder = tmp_path / "english"
    shutil.copytree(ENGLISH, folder)
    (folder / "parser" / "model").write_bytes(b"\x00")
    monkeypatch.setattr("mmlib.scenegraph.parser.ENGLISH", folder)
    load_english.cache_clear()
    with pytest.raises(DataError, match=rf"{folder} is missing or damaged: install mmlib anew"):
        load_english()
