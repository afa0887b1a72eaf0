"""What the bundled pipeline learns from: the caption grammar, and the changes to a treebank."""

import importlib
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import spacy
import yaml
from spacy.pipeline._parser_internals.nonproj import is_nonproj_tree

CI = Path(__file__).parents[2] / "ci"
TREEBANK = yaml.safe_load(Path(__file__).with_name("treebank.yaml").read_text(encoding="utf-8"))


def columns(text: str) -> list[list[str]]:
    rows = [word.split() for word in text.split("; ")]
    return [
        [str(i), word, lemma, pos, tag, "_", head, label, "_", "_"]
        for i, (word, lemma, pos, tag, head, label) in enumerate(rows, 1)
    ]


def imported(name: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CI))
        return importlib.import_module(name)


trees, training = imported("caption_trees"), imported("train_parser")


@pytest.fixture(scope="module")
def captions():
    lexicon = trees.Lexicon([columns(text) for text in TREEBANK])
    grammar = trees.Grammar(lexicon, np.random.default_rng(0))
    return [grammar.caption() for _ in range(1500)]


def text_of(rows) -> str:
    return "".join(row[0] + " " * row[1] for row in rows).strip()


def test_captions_are_trees(captions):
    """One root, everything under it, no arcs that cross, and only relations of UD."""
    for rows in captions:
        heads = [row[4] for row in rows]
        assert [i == head for i, head in enumerate(heads)] == [row[5] == "root" for row in rows]
        assert nx.is_arborescence(nx.DiGraph((h, i) for i, h in enumerate(heads) if i != h))
        assert not is_nonproj_tree(heads)
    labels = {row[5] for rows in captions for row in rows}
    expected = (
        "acl acl:relcl advcl advmod amod aux aux:pass case cc compound compound:prt conj cop det "
        "expl fixed mark nmod nmod:poss nsubj nsubj:pass nummod obj obl obl:agent punct root xcomp"
    )
    assert labels == set(expected.split())


def test_captions_are_cut_into_words_as_spacy_does(captions):
    nlp = spacy.blank("en")
    for rows in captions:
        assert [token.text for token in nlp.make_doc(text_of(rows))] == [row[0] for row in rows]


def test_same_seed_same_captions():
    lexicon = trees.Lexicon([columns(text) for text in TREEBANK])
    item, alternative, third = (trees.Grammar(lexicon, np.random.default_rng(s)) for s in (1, 1, 2))
    built = [item.caption() for _ in range(20)]
    assert built == [alternative.caption() for _ in range(20)]
    assert built != [third.caption() for _ in range(20)]


@pytest.mark.parametrize(
    ("word", "tag", "form"),
    [("dog", "NNS", "dogs"), ("bench", "NNS", "benches"), ("baby", "NNS", "babies"),
     ("police officer", "NNS", "police officers"), ("cowboy", "NNS", "cowboys"),
     ("woman", "NNS", "women"), ("businessman", "NNS", "businessmen"),
     ("run", "VBG", "running"), ("ride", "VBG", "riding"), ("carry", "VBZ", "carries"),
     ("catch", "VBZ", "catches"), ("hold", "VBN", "held"), ("chase", "VBN", "chased"),
     ("lie", "VBG", "lying"), ("play", "VBZ", "plays"), ("wrap", "VBN", "wrapped")],
)  # fmt: skip
def test_plurals_and_verb_forms(word, tag, form):
    assert (trees.plural_of(word) if tag == "NNS" else trees.verb_form(word, tag)) == form


# --- Changes to a treebank's sentences ---


def test_altered_keeps_the_tree():
    rows = training.rows_of(columns(TREEBANK[0]))
    observed = set()
    for seed in range(40):
        built = training.altered(rows, np.random.default_rng(seed))
        observed.add(text_of(built))
        assert [row[4:] for row in built] == [row[4:] for row in rows[: len(built)]]
    start = "The nurse feeds hungry hens"
    assert observed == {f"{start} .".lower(), start, start.lower()}


def test_fragment_is_a_noun_phrase():
    alone = training.rows_of(columns("barn barn NOUN NN 0 root"))
    assert training.fragment(alone, np.random.default_rng(0)) == []
    rows = training.rows_of(columns(
        "sees see VERB VBZ 0 root; in in ADP IN 5 case; a a DET DT 5 det; red red ADJ JJ 5 amod; "
        "barn barn NOUN NN 1 obl"))  # fmt: skip
    built = training.fragment(rows, np.random.default_rng(0))
    assert [(row[0], row[4], row[5]) for row in built] == [
        ("a", 2, "det"), ("red", 2, "amod"), ("barn", 2, "obl"),
    ]  # fmt: skip


def test_joined_sentences_keep_their_roots():
    first, second = (training.rows_of(columns(TREEBANK[k])) for k in (0, 4))
    heads = [row[4] for row in training.joined(first, second)]
    assert heads == [1, 2, 2, 4, 2, 2, 7, 7]
    example = training.example(spacy.blank("en"), training.joined(first, second))
    assert [len(sentence) for sentence in example.reference.sents] == [6, 2]


def test_reads_a_treebank_without_ranges_and_empty_nodes(tmp_path):
    import gzip

    row = "\t".join(columns(TREEBANK[3])[0])
    text = f"# text = snore\n1-2\t{row[2:]}\n{row}\n1.1\t{row[2:]}\n\n# x\n{row}\n\n"
    with gzip.open(tmp_path / "x.conllu.gz", "wt", encoding="utf8") as file:
        file.write(text)
    (tmp_path / "plain.conllu").write_text(text, encoding="utf8")
    for name in ("x.conllu", "plain.conllu"):
        result = training.read_conllu(tmp_path / name)
        assert [[r[1] for r in sentence] for sentence in result] == [["snore"], ["snore"]]


def test_save_replaces_a_folder_whole(tmp_path):
    folder = tmp_path / "english"
    folder.mkdir()
    (folder / "old").write_text("")
    training.save(spacy.blank("en"), folder)
    assert (folder / "meta.json").exists()
    assert not (folder / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["english"]
