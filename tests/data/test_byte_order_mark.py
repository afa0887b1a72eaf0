"""A byte order mark at the beginning of a file of users changes nothing that is read from it."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import test_entailment_pairs as entailment
import test_flickr8k
import test_links_paper
import test_pairs
import test_precomputed

import mmlib
from mmlib.data import cite, clue, flickr8k, judgments, karpathy, precomputed, sick, snli_ve
from mmlib.features.store import open_features
from mmlib.features.text import read_word_vectors
from mmlib.papers.links.data.paper import read_corpus
from mmlib.suite import score

MARK = b"\xef\xbb\xbf"


def photographs(folder):
    test_flickr8k.make(folder, original=folder.name == "token")
    return lambda: [(d.ids, d.captions) for d in (flickr8k.load(s, folder) for s in flickr8k.LISTS)]


def samples(folder):
    entailment.write(folder, entailment.VOTES)
    entailment.save_sick(folder)
    entailment.save_snli(folder)
    return lambda: (
        judgments.load(folder).to_dict("list"),
        sick.read(folder).to_dict("list"),
        [snli_ve.read(split, folder).to_dict("list") for split in entailment.RECORDS],
    )


def pairs(folder):
    test_pairs.write_clue(folder)
    test_pairs.write_cite(test_pairs.write_plus(folder))
    (folder / "img2idxmap.json").write_text('{"https://x.org/é.jpg": 3}', encoding="utf-8")
    return lambda: (
        clue.load("train", folder).texts, clue.image_numbers(folder),
        cite.load(folder).texts, cite.load_plus("train", folder).texts,
    )  # fmt: skip


def region_features(folder):
    test_precomputed.write_scan(folder)
    test_precomputed.write_karpathy(folder)
    graphs = {str(i): test_precomputed.graph(c) for i, c in enumerate(test_precomputed.CAPTIONS)}
    test_precomputed.write_graphs(folder, "test", graphs)
    names = {name: f"{name}.jpg" for name in test_precomputed.IDS}
    (folder / "id_mapping.json").write_text(json.dumps(names))

    def read():
        found = precomputed.load(folder, "test")
        split = karpathy.read_split(folder / "dataset_coco.json", "train")
        return found.images.ids, found.images.captions, found.graphs, split

    return read


def features(folder):
    for name, listing in (("a", "a.ids.txt"), ("b_ims", "b_ids.txt"), ("features", "id2row.json")):
        np.save(folder / f"{name}.npy", np.ones((6, 3), np.float32))
        (folder / f"{name}.json").write_text('{"weights": "é"}', encoding="utf-8")
        (folder / listing).write_text("1\n2\n3\n4\n5\n6\n")
    (folder / "docs.json").write_text(json.dumps(test_links_paper.DOCS))
    (folder / "id2row.json").write_text(json.dumps(test_links_paper.ROWS))

    def read():
        stores = [open_features(folder / f"{name}.npy") for name in ("a", "b_ims", "features")]
        documents = read_corpus(folder)
        return [(store.row_of, store.meta) for store in stores], documents.train, documents.row_of

    return read


def words(folder):
    (folder / "bare.txt").write_text("dog 1 2 3\ncow 3 2 1\n")
    (folder / "headed.txt").write_text("2 3\ndog 1 2 3\ncow 3 2 1\n")
    (folder / "a.png").touch()
    (folder / "pairs.csv").write_text("image,caption\na.png,A dog\n")

    def read():
        tables = [
            read_word_vectors(folder / f"{n}.txt", ("dog", "cow")) for n in ("bare", "headed")
        ]
        vectors = [{word: table[word].tolist() for word in sorted(table)} for table in tables]
        return vectors, score.read_csv(folder / "pairs.csv").values.tolist()

    return read


KINDS = {
    "kaggle": photographs, "token": photographs, "samples": samples, "pairs": pairs,
    "regions": region_features, "features": features, "words": words,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_changes_nothing(tmp_path, kind):
    folder = tmp_path / kind
    if KINDS[kind] is not photographs:  # which makes its own
        folder.mkdir()
    read = KINDS[kind](folder)
    sound = read()
    texts = [p for p in folder.rglob("*.*") if p.suffix in (".txt", ".csv", ".json", ".jsonl")]
    assert texts
    for path in texts:
        content = path.read_bytes()
        path.write_bytes(MARK + content)
        assert read() == sound, path.name
        path.write_bytes(content)


def test_every_text_is_opened_with_an_encoding_and_that_of_users_past_a_mark():
    root = Path(mmlib.__file__).parent
    users = {root / name for name in ("data", "features", "papers", "suite/score.py")}
    opened = 0
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = ast.unparse(node) if isinstance(node, ast.Call) else ""
            name = ast.unparse(node.func).rpartition(".")[2] if call else ""
            mode = "".join(word for word in call.split("'")[1::2] if set(word) <= set("abrtwx+"))
            others = "Image." in call or "os.open" in call
            if name not in ("open", "read_text", "write_text") or others or "b" in mode:
                continue
            opened += 1
            assert "encoding='utf-8" in call, f"{path}, line {node.lineno}: {call}"
            ours = name == "write_text" or "__file__" in call or "w" in mode
            if users & {path, *path.parents} and not ours:
                assert "encoding='utf-8-sig'" in call, f"{path}, line {node.lineno}: {call}"
    assert opened > 15
