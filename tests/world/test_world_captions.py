import hashlib
import re

import numpy as np
import pytest

from mmlib.world import captioned_images, words
from mmlib.world.backbone import extract
from mmlib.world.captions import captions
from mmlib.world.graphs import CONCEPTS
from mmlib.world.logic import satisfies
from mmlib.world.scenes import derive_relations, sample_scene, split_seeds
from mmlib.world.schema import COLOURS, GROUP_OF, PATTERNS, Scene, Thing
from mmlib.world.siblings import clear_family


@pytest.fixture(scope="module")
def captioned():
    scenes = [sample_scene(seed) for seed in split_seeds("val", 800)]
    return [(scene, captions(scene)) for scene in scenes]


@pytest.fixture(scope="module")
def texts(captioned):
    return [caption.text for _, some in captioned for caption in some]


def scene_of(*things, style="photo"):
    return Scene(things, derive_relations(things), "park", style, 3)


def thing(kind, x=0.5, **rest):
    fields = {"colour": "red", "size": "medium", "pattern": "plain", "action": None}
    return Thing(kind=kind, x=x, y=0.8, **{**fields, **rest})


def test_captions_are_true(captioned):
    for scene, some in captioned:
        for one in some:
            assert satisfies(scene, one.graph), one


def test_captions_stay_what_the_recorded_figures_were_made_with(texts):
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == "7e2aa5f1d6736ad9"


def test_captions_are_seeded_and_as_many_as_asked_for(captioned):
    assert captions(captioned[0][0], seed=1) != captioned[0][1]
    assert len(captions(captioned[1][0], n=2)) == 2


def test_the_graph_is_what_the_text_says(captioned):
    """Every fact's, edge's and noun's words stand in the text, and no colour or pattern beyond."""
    looks = {word for name in (*COLOURS, *PATTERNS) for word in _look_words(name)}
    for _, some in captioned:
        for one in some:
            text = one.text.lower()
            for node in one.graph.nodes:
                assert node.noun.lower() in text
                assert {(name, value) for name, value, _ in node.words} == set(node.facts)
                assert all(word.lower() in text for _, _, word in node.words)
            for edge in one.graph.edges:
                assert edge.words in text
            for phrase in (one.graph.setting_words, one.graph.style_words):
                assert not phrase or phrase[0].lower() in text
            said = {word for node in one.graph.nodes for name, _, word in node.words}
            styled = " ".join((*one.graph.style_words, *one.graph.setting_words))
            rest = text.replace(styled.lower().rsplit(" ", 1)[0], "") if styled else text
            written = looks & set(re.findall(r"[a-z-]+", rest))
            assert written - set(styled.split()) <= said, one


def _look_words(name):
    return (words.COLOUR_WORDS.get(name) or words.PATTERN_WORDS[name]).split()


def test_words_cover_the_world():
    assert set(words.WIDER) == set(GROUP_OF)
    assert set(words.NOUNS) == set(CONCEPTS)
    for kind, wider in words.WIDER.items():
        assert all(kind in CONCEPTS[name] for name in wider)


# --- The collection ---


def test_captioned_images():
    made = captioned_images("val", 70)
    assert made.features.shape == (70, 16, 128)
    assert made.features.dtype == np.float32
    assert made.ids[12] == "world-val-000012"
    assert len(set(made.ids)) == 70
    assert made.captions[5] == tuple(one.text for one in made.gold[5])
    np.testing.assert_allclose(extract([made.open_image(66)])[0][0], made.features[66], atol=1e-4)
    fewer = captioned_images("val", 3)
    assert fewer.captions == made.captions[:3]
    np.testing.assert_allclose(fewer.features, made.features[:3], atol=1e-4)
    other = captioned_images("val", 3, seed=1)
    assert not set(other.ids) & set(made.ids)
    with pytest.raises(ValueError, match="at least one"):
        captioned_images("val", 0)


def test_workers_change_nothing():
    one, two = (captioned_images("test", 66, workers=w) for w in (1, 2))
    np.testing.assert_array_equal(one.features, two.features)
    assert one.captions == two.captions


@pytest.fixture(scope="module")
def clear_scenes():
    return [one for seed in split_seeds("val", 20) for one in clear_family(seed, "val", 4)]


@pytest.mark.parametrize(
    ("form", "named", "coloured", "usual"),
    [((), 2.35, 1, 1), (("complete",), 4.1, 1, 1), (("complete", "omissions"), 4.1, 0.5, 1),
     (("complete", "synonyms"), 4.1, 1, 0.5), (("grammar",), 2.2, 0.86, 0.86)],
)  # fmt: skip
def test_lists_name_things_with_their_colours_in_their_form(
    clear_scenes, form, named, coloured, usual
):
    said = []
    for scene in clear_scenes:
        some = captions(scene, listed=form)
        assert len({one.text for one in some}) == 5
        assert all(satisfies(scene, one.graph) for one in some)
        said += [one.graph for one in some]
    nodes = [node for graph in said for node in graph.nodes]
    assert {name for node in nodes for name, _ in node.facts} <= {"colour", "action"}
    first_words = [node.noun == words.NOUNS[node.concept][0].split("/")[0] for node in nodes]
    assert "grammar" in form or not any(graph.edges for graph in said)
    assert len(nodes) / len(said) == pytest.approx(named, abs=0.15)
    assert np.mean(["colour" in dict(n.facts) for n in nodes]) == pytest.approx(coloured, abs=0.03)
    assert np.mean(first_words) == pytest.approx(usual, abs=0.1)
