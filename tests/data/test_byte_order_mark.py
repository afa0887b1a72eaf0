"""A byte order mark at the beginning of a file of users changes nothing that is read from it."""

import ast
import csv
import json
from pathlib import Path

import numpy as np
import pytest
import test_cite
import test_clue
import test_flickr8k
import test_judgments
import test_links_paper
import test_precomputed
import test_sick
import test_snli_ve

import mmlib
from mmlib.data import cite, clue, flickr8k, judgments, karpathy, precomputed, sick, snli_ve
from mmlib.features.store import open_features
from mmlib.features.text import read_word_vectors
from mmlib.papers.links.data.paper import read_corpus
from mmlib.suite import score

MARK = b"\xef\xbb\xbf"


def flickr(folder):
    test_flickr8k.make(folder, original=folder.name == "token")
    return lambda: [(d.ids, d.captions) for d in (flickr8k.load(s, folder) for s in flickr8k.LISTS)]


def crowd(folder):
    test_judgments.write(folder, test_judgments.VOTES)
    return lambda: (flickr8k.read_judgments(folder)[1], judgments.load(folder).hypothesis)


def sick_pairs(folder):
    test_sick.save(folder)
    return lambda: sick.read(folder).to_dict("list")


def clue_pairs(folder):
    test_clue.write(folder, "train", test_clue.TRAIN)
    (folder / "img2idxmap.json").write_text('{"https://x.org/é.jpg": 3}', encoding="utf-8")
    return lambda: (clue.load("train", folder).texts, clue.image_numbers(folder))


def cite_steps(folder):
    test_cite.write(folder, test_cite.ROWS)
    with (folder / "q2-8_train_dis_11-08.csv").open("w", newline="") as file:
        row = ["pie_1_0.jpg", "Heat the oven.", *["True"] * 7]
        csv.writer(file).writerows([cite.PLUS_COLUMNS, row])
    return lambda: (cite.load(folder).texts, cite.load_plus("train", folder).texts)


def snli(folder):
    test_snli_ve.save(folder)
    return lambda: [snli_ve.read(split, folder).to_dict("list") for split in test_snli_ve.LINES]


def karpathys(folder):
    test_snli_ve.split_file(folder, "coco", {"train": ["1.jpg"]})
    return lambda: karpathy.read_split(folder / "dataset_coco.json", "train")


def region_features(folder):
    test_precomputed.write_scan(folder)
    graphs = {str(i): test_precomputed.graph(c) for i, c in enumerate(test_precomputed.CAPTIONS)}
    test_precomputed.write_graphs(folder, "test", graphs)
    names = {name: f"{name}.jpg" for name in test_precomputed.IDS}
    (folder / "id_mapping.json").write_text(json.dumps(names))

    def read():
        found = precomputed.load(folder, "test")
        return found.images.ids, found.images.captions, found.graphs

    return read


def documents(folder):
    (folder / "docs.json").write_text(json.dumps(test_links_paper.DOCS))
    (folder / "id2row.json").write_text(json.dumps(test_links_paper.ROWS))
    np.save(folder / "features.npy", np.ones((6, 3), np.float32))
    return lambda: (read_corpus(folder).train, read_corpus(folder).row_of)


def features(folder):
    for name in ("a", "b_ims"):
        np.save(folder / f"{name}.npy", np.ones((2, 3), np.float32))
        (folder / f"{name}.json").write_text('{"weights": "é"}', encoding="utf-8")
    (folder / "a.ids.txt").write_text("1.jpg\n2.jpg\n")
    (folder / "b_ids.txt").write_text("3.jpg\n4.jpg\n")

    def read():
        stores = [open_features(folder / name) for name in ("a.npy", "b_ims.npy")]
        return [(store.row_of, store.meta) for store in stores]

    return read


def features_with_a_mapping(folder):
    np.save(folder / "features.npy", np.ones((2, 3), np.float32))
    (folder / "id2row.json").write_text('{"1": 0, "2": 1}')
    return lambda: open_features(folder / "features.npy").row_of


def word_vectors(folder):
    (folder / "bare.txt").write_text("dog 1 2 3\ncow 3 2 1\n")
    (folder / "headed.txt").write_text("2 3\ndog 1 2 3\ncow 3 2 1\n")
    words = ("dog", "cow")

    def read():
        tables = [read_word_vectors(folder / f"{name}.txt", words) for name in ("bare", "headed")]
        return [{word: table[word].tolist() for word in sorted(table)} for table in tables]

    return read


def pairs_to_score(folder):
    (folder / "a.png").touch()
    (folder / "pairs.csv").write_text("image,caption\na.png,A dog\n")
    return lambda: score.read_csv(folder / "pairs.csv")


KINDS = {
    "kaggle": flickr, "token": flickr, "crowd": crowd, "sick": sick_pairs, "clue": clue_pairs,
    "cite": cite_steps, "snli_ve": snli, "karpathy": karpathys, "scan": region_features,
    "links": documents, "features": features, "id2row": features_with_a_mapping,
    "words": word_vectors, "score": pairs_to_score,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_changes_nothing(tmp_path, kind):
    folder = tmp_path / kind
    if kind not in ("karpathy", "kaggle", "token"):  # which make their own
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
