"""Stories and how-tos of the picture world: what they say is true, and becomes documents."""

import re
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from mmlib.papers.links.data.documents import SPLITS
from mmlib.papers.links.data.stories import WorldDocument, organic, story
from mmlib.papers.links.data.world import from_world, picture_scenes, scene_id
from mmlib.world.scenes import check_scene, sample_scene, scene_key, split_of, split_seeds
from mmlib.world.schema import ACTION_RELATIONS, GROUP_OF
from mmlib.world.stories import describe

BACK = re.compile(
    r"\b(he|she|it|they|him|her|his|both of them|the two of them|the same \w+|that \w+|"
    r"did too|did the same|so did|the (man|woman|boy|girl|dog|cat))\b"
)


@pytest.fixture(scope="module")
def stories():
    return tuple(story(i) for i in range(40))


@pytest.fixture(scope="module")
def guides():
    return tuple(organic(i) for i in range(100))


def relations(scene):
    return {relation for _, relation, _ in scene.relations}


def chasable(scene):
    chased = {scene.things[j].kind for _, relation, j in scene.relations if relation == "chasing"}
    return chased <= {"ball", "dog", "cat", "man", "woman", "boy", "girl"}


def actions(scene):
    return [thing.action for thing in scene.things]


def keys_of(documents):
    return {repr(scene_key(scene)) for document in documents for scene in document.scenes}


def nameable(document):
    """Whether each link can be named by one end, each end naming one: the authors' format."""
    ties = nx.Graph((("sentence", s), ("image", i)) for s, i in document.links)
    parts = map(ties.subgraph, nx.connected_components(ties))
    return all(part.number_of_edges() <= len(part) for part in parts)


def test_scenes_are_consistent_and_of_their_split_and_links_fit_the_authors_format(stories, guides):
    for document in (*stories, *guides):
        for scene in document.scenes:
            check_scene(scene)
            assert split_of(scene) == "train"
            for i, relation, j in scene.relations:  # nothing is held before there is a hand
                assert relation not in ACTION_RELATIONS or max(i, j) < len(scene.things)
        assert len(set(document.links)) == len(document.links) > 0
        assert len(set(document.sentences)) == len(document.sentences)
        assert len(keys_of([document])) == len(document.scenes)
        assert nameable(document)


def test_a_seed_gives_its_document_and_splits_share_no_scene(stories, guides):
    assert tuple(story(i) for i in range(3)) == stories[:3]
    assert tuple(organic(i) for i in range(3)) == guides[:3]
    keys = [keys_of(make(i, s) for make in (story, organic) for i in range(6)) for s in SPLITS]
    assert not any(one & other for one, other in combinations(keys, 2))
    for make in (story, organic):
        with pytest.raises(ValueError, match="split 'dev' is not one of"):
            make(0, "dev")


def test_a_story_keeps_place_and_people(stories):
    for document in stories:
        assert len(document.scenes) == len(document.sentences) == 5
        assert document.links == tuple((i, i) for i in range(5))
        assert len({(s.setting, s.style, s.seed) for s in document.scenes}) == 1
        people = [[t for t in s.things if GROUP_OF[t.kind] == "person"] for s in document.scenes]
        assert {len(heroes) for heroes in people} == {1}
        assert len({(t.kind, t.colour, t.pattern, t.size) for [t] in people}) == 1


def test_story_sentences_lean_on_those_before_and_leave_the_picture_open(stories):
    for document in stories:
        assert all(BACK.search(text.lower()) for text in document.sentences[1:]), document.sentences
        assert re.search(r"\b(an?) ", document.sentences[0])  # the first one introduces
        hero = next(t for t in document.scenes[0].things if GROUP_OF[t.kind] == "person")
        name = describe(hero, document.scenes[0].style)
        assert name in document.sentences[0]
        assert not any(name in text for text in document.sentences[1:])
    later = [text for document in stories for text in document.sentences[1:]]
    looks = re.compile(r"\b(red|blue|green|white|black|brown|pink|dress|shirt)\b")
    assert np.mean([bool(looks.search(text)) for text in later]) < 0.35


@pytest.mark.parametrize(
    ("words", "true"),
    [
        (r"\b(rode|ride|got on)\b", lambda s: "riding" in relations(s)),
        (r"\b(chased|ran after)\b", lambda s: "chasing" in relations(s) and chasable(s)),
        (r"\b(carried|found|showed|with a|took .* along)\b", lambda s: "holding" in relations(s)),
        (r"\bunder\b", lambda s: "under" in relations(s)),
        (r"\bjump\w*", lambda s: "jumping" in actions(s)),
        (r"\b(lay|resting|rest)\b", lambda s: "lying" in actions(s) or "on" in relations(s)),
        (r"\b(snack|eating|fed)\b", lambda s: "eating" in actions(s)),
        (r"\bwalk", lambda s: "walking" in actions(s)),
        (r"\b(sat|sitting)\b", lambda s: "sitting" in actions(s)),
        (r"\balone\b", lambda s: not {t.kind for t in s.things} & {"dog", "cat"}),
    ],
)
def test_story_sentences_are_true(stories, words, true):
    hits = [
        (text, scene)
        for document in stories
        for text, scene in zip(document.sentences, document.scenes, strict=True)
        if re.search(words, text)
    ]
    assert len(hits) >= 5
    assert all(true(scene) for _, scene in hits), [hit for hit in hits if not true(hit[1])]


# --- How-tos ---------------------------------------------------------------------------------


def test_how_tos_are_of_unequal_size_and_their_links_of_every_sort(guides):
    assert len({(len(d.sentences), len(d.scenes)) for d in guides}) > 18
    assert all(3 <= len(d.sentences) <= 12 and 2 <= len(d.scenes) <= 10 for d in guides)
    assert all(len({t.kind for t in s.things}) == len(s.things) for d in guides for s in d.scenes)
    sentences = [[s for s, _ in d.links].count(s) for d in guides for s in range(len(d.sentences))]
    images = [[i for _, i in d.links].count(i) for d in guides for i in range(len(d.scenes))]
    for counts in (sentences, images):
        assert {0, 1, 2} <= set(counts)
    assert max(sentences) == 3
    assert 0.2 < np.mean(np.array(sentences) == 0) < 0.6


def test_how_to_steps_add_what_they_say_and_other_colours_are_others(guides):
    step = re.compile(r"(Finally, |Next, |Then |Now |After that, )?(a|put|place|add|start)", re.I)
    steps, recoloured = 0, 0
    for document in guides:
        for s, i in document.links:
            text, scene = document.sentences[s], document.scenes[i]
            if step.match(text) and "colour" not in text:
                steps += 1
                assert describe(scene.things[-1], scene.style) in text, (text, scene.things[-1])
            if re.search(r"\bgive\b", text, re.I):
                assert (len(scene.things) - 2, "holding", len(scene.things) - 1) in scene.relations
            if "sit on" in text:
                assert {"on", "riding"} & relations(scene)
        for s, text in enumerate(document.sentences):
            last = [document.scenes[i].things[-1] for row, i in document.links if row == s]
            if "colour" in text and last:
                recoloured += 1
                assert len({thing.colour for thing in last}) == len(last) >= 2
                assert len({thing.kind for thing in last}) == 1
    assert steps > 80
    assert recoloured > 20


# --- As a corpus -----------------------------------------------------------------------------


def colours(images):
    """What a backbone sees that cannot fail to tell pictures apart: (pictures, regions, width)."""
    small = [np.asarray(image.resize((4, 4)), dtype=np.float32) for image in images]
    return np.stack(small).reshape(len(images), 4, 12) / 255


@pytest.fixture(scope="module", autouse=True)
def backbone():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "mmlib.world.backbone.extract",
            lambda images, _: (colours(images), np.zeros((len(images), 1), np.float32), ("any",)),
        )
        yield


SENTENCES = ("First the house.", "Then the dog and the cat.", "Take your time.", "A ball.")
# One sentence for two pictures, a sentence for none, two sentences for one picture.
LINKS = ((0, 0), (1, 1), (1, 2), (3, 0))


@pytest.fixture(scope="module")
def written():
    scenes = {s: [sample_scene(seed) for seed in split_seeds(s, 9)] for s in SPLITS}
    return {
        s: [WorldDocument(tuple(scenes[s][3 * n : 3 * n + 3]), SENTENCES, LINKS) for n in range(3)]
        for s in SPLITS
    }


def same_links(corpus, written):
    for split in SPLITS:
        for document, before in zip(corpus.split(split), written[split], strict=True):
            ids = [scene_id(scene) for scene in before.scenes]
            links = {(document.sentences[i], document.images[j]) for i, j in document.links}
            assert links == {(before.sentences[i], ids[j]) for i, j in before.links}
            source = dict(zip(document.sentences, document.sources, strict=True))
            yield [source[text] for text in before.sentences], ids


def test_links_survive_shuffling_and_pictures_are_drawn_again_on_demand(written):
    corpus = from_world("organic", written, picture_scenes(written))
    for sources, ids in same_links(corpus, written):
        assert sources == [ids[0], ids[1], "", ids[0]]
    image = corpus.test[0].images[0]
    again = colours([corpus.open_image(image)]).mean(axis=1)[0]
    assert corpus.features[corpus.row_of[image]] == pytest.approx(again, abs=1e-6)


def test_the_worlds_own_writers():
    for kind, write in (("story", story), ("organic", organic)):
        documents = {split: [write(seed, split) for seed in range(4)] for split in SPLITS}
        corpus = from_world(kind, documents, picture_scenes(documents))
        assert len([*same_links(corpus, documents)]) == 12


def test_repeated_sentences_are_left_out_and_a_scene_in_two_splits_is_a_leak(written):
    first, *others = written["train"]
    repeats = replace(first, sentences=("A ball.", "a ball", "x", "y"))
    planted = {**written, "train": [repeats, *others]}
    with pytest.warns(UserWarning, match="organic: left out 1 unfilled document"):
        corpus = from_world("organic", planted, picture_scenes(planted))
    assert [d.id[-4:] for d in corpus.train] == ["0001", "0002"]
    shared = {**written, "test": [first, *written["test"][1:]]}
    with pytest.raises(ValueError, match=r"train .* and test .* have the same id"):
        from_world("organic", shared, picture_scenes(shared))
    with pytest.raises(ValueError, match="no val documents"):
        picture_scenes({**written, "val": []})
