import re
from itertools import pairwise

import numpy as np
import pytest

from mmlib.papers.links.data.stories import organic, story
from mmlib.world.scenes import SPLITS, check_scene, scene_key, split_of
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


def actions(scene):
    return [thing.action for thing in scene.things]


def test_scenes_are_consistent_and_of_their_split(stories, guides):
    for document in (*stories, *guides):
        for scene in document.scenes:
            check_scene(scene)
            assert split_of(scene) == "train"


def test_splits_share_no_scene():
    keys = {
        split: {
            repr(scene_key(scene))
            for make in (story, organic)
            for document in (make(i, split) for i in range(6))
            for scene in document.scenes
        }
        for split in SPLITS
    }
    for one in SPLITS:
        for other in SPLITS:
            assert one == other or not keys[one] & keys[other]


def test_the_same_seed_gives_the_same_document(stories, guides):
    assert tuple(story(i) for i in range(5)) == stories[:5]
    assert tuple(organic(i) for i in range(5)) == guides[:5]
    assert story(3, "val") != story(3, "test")
    assert len({document.id for document in (*stories, *guides)}) == len(stories) + len(guides)


def test_a_story_keeps_place_and_people(stories):
    for document in stories:
        assert len(document.scenes) == len(document.sentences) == 5
        assert document.links == tuple((i, i) for i in range(5))
        assert len({(s.setting, s.style, s.seed) for s in document.scenes}) == 1
        assert len({repr(scene_key(scene)) for scene in document.scenes}) == 5
        heroes = [
            [
                (t.kind, t.colour, t.pattern, t.size)
                for t in s.things
                if GROUP_OF[t.kind] == "person"
            ]
            for s in document.scenes
        ]
        assert all(one == heroes[0] and len(one) == 1 for one in heroes)
        assert len(set(document.sentences)) == 5


def test_story_pictures_are_more_alike_than_others(stories):
    def shared(a, b):
        looks = [{(t.kind, t.colour, t.pattern) for t in s.things} for s in (a, b)]
        return len(looks[0] & looks[1]) / max(map(len, looks))

    inside = np.mean([shared(*document.scenes[:2]) for document in stories])
    across = np.mean([shared(a.scenes[0], b.scenes[1]) for a, b in pairwise(stories)])
    assert inside > 0.5 > 10 * across


def test_story_sentences_lean_on_those_before(stories):
    for document in stories:
        assert all(BACK.search(text.lower()) for text in document.sentences[1:]), document.sentences
        assert re.search(r"\b(an?) ", document.sentences[0])  # the first one introduces
        hero = next(t for t in document.scenes[0].things if GROUP_OF[t.kind] == "person")
        name = describe(hero, document.scenes[0].style)
        assert name in document.sentences[0]
        assert not any(name in text for text in document.sentences[1:])


def test_story_sentences_leave_the_picture_open(stories):
    """Most later sentences name no colour and no garment, whose pictures do show them."""
    later = [text for document in stories for text in document.sentences[1:]]
    coloured = [
        bool(re.search(r"\b(red|blue|green|white|black|brown|pink|dress|shirt)\b", t))
        for t in later
    ]
    assert np.mean(coloured) < 0.35


@pytest.mark.parametrize(
    ("words", "true"),
    [
        (r"\b(rode|ride|got on)\b", lambda s: "riding" in relations(s)),
        (r"\b(chased|ran after)\b", lambda s: "chasing" in relations(s)),
        (r"\b(carried|found|showed|with a|took .* along)\b", lambda s: "holding" in relations(s)),
        (r"\bunder\b", lambda s: "under" in relations(s)),
        (r"\bjump\w*", lambda s: "jumping" in actions(s)),
        (r"\b(lay|resting|rest)\b", lambda s: "lying" in actions(s) or "on" in relations(s)),
        (r"\b(snack|eating|fed)\b", lambda s: "eating" in actions(s)),
        (r"\bwalk", lambda s: "walking" in actions(s)),
        (r"\b(sat|sitting)\b", lambda s: "sitting" in actions(s)),
    ],
)
def test_story_sentences_are_true(stories, words, true):
    hits = 0
    for document in stories:
        for i, text in enumerate(document.sentences):
            if re.search(words, text):
                hits += 1
                assert true(document.scenes[i]), (text, document.scenes[i])
    assert hits >= 5


def test_alone_means_alone(stories):
    alone = [s for d in stories for s, t in zip(d.scenes, d.sentences, strict=True) if "alone" in t]
    assert alone
    assert not any(t.kind in ("dog", "cat") for s in alone for t in s.things)


# --- How-tos ---


def test_organic_documents_are_of_unequal_size(guides):
    sizes = {(len(d.sentences), len(d.scenes)) for d in guides}
    assert len(sizes) > 18
    for document in guides:
        assert 3 <= len(document.sentences) <= 12
        assert 2 <= len(document.scenes) <= 10
        assert len(set(document.sentences)) == len(document.sentences)
        assert len({repr(scene_key(scene)) for scene in document.scenes}) == len(document.scenes)
        assert document.links


def test_organic_links_are_of_every_sort(guides):
    per_sentence, per_image = [], []
    for document in guides:
        rows = [s for s, _ in document.links]
        columns = [i for _, i in document.links]
        per_sentence += [rows.count(s) for s in range(len(document.sentences))]
        per_image += [columns.count(i) for i in range(len(document.scenes))]
    for counts in (per_sentence, per_image):
        assert {0, 1, 2} <= set(counts)
    assert max(per_sentence) == 3
    assert 0.2 < np.mean(np.array(per_sentence) == 0) < 0.6


def nameable(document):
    """Whether each link can be named by one end, each end naming one: the authors' format."""
    names = {("s", s) for s, _ in document.links} | {("i", i) for _, i in document.links}
    parent = {name: name for name in names}

    def root(name):
        while parent[name] != name:
            name = parent[name]
        return name

    for s, i in document.links:
        parent[root(("s", s))] = root(("i", i))
    for top in {root(name) for name in names}:
        size = sum(root(name) == top for name in names)
        if sum(root(("s", s)) == top for s, _ in document.links) > size:
            return False
    return True


def test_links_fit_the_authors_format(stories, guides):
    for document in (*stories, *guides):
        assert len(set(document.links)) == len(document.links)
        assert nameable(document)


def test_organic_steps_add_what_they_say(guides):
    checked = 0
    for document in guides:
        for s, i in document.links:
            text, scene = document.sentences[s], document.scenes[i]
            if re.match(
                r"(Finally, |Next, |Then |Now |After that, )?(a|put|place|add|start)", text, re.I
            ):
                new = scene.things[-1]
                if "colour" in text:
                    continue
                checked += 1
                assert describe(new, scene.style) in text, (text, new)
            if re.search(r"\bgive\b", text, re.I):
                assert (len(scene.things) - 2, "holding", len(scene.things) - 1) in scene.relations
            if "sit on" in text:
                assert {"on", "riding"} & relations(scene)
    assert checked > 80


def test_other_colours_are_other_colours(guides):
    seen = 0
    for document in guides:
        for s, text in enumerate(document.sentences):
            if "colour" not in text:
                continue
            shown = [document.scenes[i] for row, i in document.links if row == s]
            if not shown:
                continue
            seen += 1
            assert len({scene.things[-1].colour for scene in shown}) == len(shown) >= 2
            assert len({scene.things[-1].kind for scene in shown}) == 1
    assert seen > 20


def test_nothing_is_held_before_there_is_a_hand(guides):
    for document in guides:
        for scene in document.scenes:
            for i, relation, j in scene.relations:
                assert relation not in ACTION_RELATIONS or max(i, j) < len(scene.things)


def test_unknown_splits_are_refused():
    with pytest.raises(ValueError, match="not one of"):
        story(0, "dev")
    with pytest.raises(ValueError, match="not one of"):
        organic(0, "dev")
