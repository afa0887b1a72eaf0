"""The picture world's pairs: rates and correlations of labels, and what texts say of scenes."""

import re
from itertools import chain, combinations, product

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from mmlib.data.clue import LAST_HUMAN
from mmlib.papers.coherence.data import world
from mmlib.papers.coherence.data.texts import LIVELY, cite_text, clue_text
from mmlib.papers.coherence.data.world import SCHEMES, TELLING, draw_labels, related_pairs
from mmlib.world import words
from mmlib.world.scenes import SPLITS, sample_scene, scene_key, split_of, split_seeds
from mmlib.world.schema import KINDS

BOTH = pytest.mark.parametrize("scheme", SCHEMES)
KIND_OF = {
    form: kind for kind in KINDS for forms in words.NOUNS[kind] for form in forms.split("/") if form
}
NOUN = re.compile(rf"\b({'|'.join(sorted(KIND_OF, key=len, reverse=True))})\b")
VERB = {  # forms of the verbs of what goes on
    form.split()[0]
    for action in LIVELY
    for forms in words.VERBS[action].values()
    for verb in forms.split(", ")
    for form in verb.split("|")
    if form
} - {"having", "has", "have", "going", "taking", "take", "takes", "go", "goes", "high"}


@pytest.fixture(scope="module")
def scenes():
    return [sample_scene(seed) for seed in split_seeds("train", 3000, 77)]


@pytest.fixture(scope="module")
def clue():
    """Texts that are always worded as their relations would have it."""
    return related_pairs("train", 900, "clue", telling=1)


@pytest.fixture(scope="module")
def cite():
    return related_pairs("train", 900, "cite", telling=1)


def holding(pairs, row):
    return {r for r, yes in zip(pairs.relations, pairs.labels[row], strict=True) if yes}


def kinds_named(text):
    return {KIND_OF[word] for word in NOUN.findall(text.lower())}


def kinds_in(scene):
    return {thing.kind for thing in scene.things}


# --- Labels ---


@BOTH
@pytest.mark.parametrize("signal", [0.0, 0.5, 1.0])
def test_rates_and_correlations_are_the_real_ones_at_every_signal(scenes, scheme, signal):
    kind = SCHEMES[scheme]
    labels = draw_labels(scenes, scheme, seed=1, signal=signal)
    rates = np.array(kind.rates)
    slack = np.maximum(0.02, 3 * np.sqrt(rates * (1 - rates) / len(scenes)))
    assert (abs(labels.mean(0) - rates) < slack).all(), labels.mean(0)
    at = kind.relations.index(kind.gate)
    opened = np.delete(labels, at, 1)[labels[:, at] == kind.opens]
    # Q6 to Q8 of CITE cannot be reached better by normal latents
    assert abs(np.corrcoef(opened.T) - np.array(kind.phi)).max() < 0.15


@BOTH
def test_scores_are_standardised_and_tell_the_labels_only_with_signal(scenes, scheme):
    known = SCHEMES[scheme].scores(scenes)
    assert abs(known.mean(0)).max() < 0.1
    assert abs(known.std(0) - 1).max() < 0.1
    areas = {
        signal: [
            roc_auc_score(labels, score)
            for labels, score in zip(draw_labels(scenes, scheme, 1, signal).T, known.T, strict=True)
        ]
        for signal in (0.0, 0.5, 1.0)
    }
    positives = draw_labels(scenes, scheme, 1, 0.0).sum(0)
    error = np.sqrt((len(scenes) + 1) / (12 * positives * (len(scenes) - positives)))
    assert (abs(np.array(areas[0.0]) - 0.5) < 3.5 * error).all(), areas[0.0]
    assert min(areas[0.5]) > 0.6
    assert min(areas[1.0]) > 0.84


# --- The record ---


@BOTH
def test_a_larger_record_begins_with_the_smaller_one(scheme, request):
    large, small = request.getfixturevalue(scheme), related_pairs("train", 40, scheme, telling=1)
    for name in ("texts", "scenes", "about", "image_ids"):
        assert getattr(small, name) == getattr(large, name)[:40]
    assert (small.labels == large.labels[:40]).all()


def test_scenes_are_of_their_split_and_signal_and_scheme_leave_them_alone(clue, cite):
    assert all(split_of(s) == split for split in SPLITS for s in related_pairs(split, 20).scenes)
    weaker = related_pairs("train", 50, "clue", signal=0.2)
    assert weaker.scenes == clue.scenes[:50] == cite.scenes[:50]
    assert (weaker.labels != clue.labels[:50]).any()


# --- Texts ---


@BOTH
def test_texts_are_of_the_right_length_and_name_no_label(scheme, request):
    pairs = request.getfixturevalue(scheme)
    label = re.compile(rf"\b({'|'.join(SCHEMES['clue'].relations)})\b", re.I)
    for text in pairs.texts:
        assert 4 <= len(text.split()) <= (25 if scheme == "clue" else 40)
        assert not re.search(r"\{|  |^ | $", text)
        assert not label.search(text)
    assert len(set(pairs.texts)) > 0.85 * len(pairs)


def every_subset(names):
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))


def test_every_combination_of_relations_can_be_written(scenes):
    rng = np.random.default_rng(0)
    single, full = ([s for s in scenes if len(s.things) == count][:4] for count in (1, 5))
    names = SCHEMES["clue"].relations
    for holds in (*every_subset(names[:-1]), names[-1:]):
        for scene, other in zip(single + full, full + single, strict=True):
            about = other if "Irrelevant" in holds else scene
            assert 4 <= len(clue_text(scene, about, frozenset(holds), rng).split()) <= 25
    others = [("Q2", *rest) for rest in every_subset(SCHEMES["cite"].relations[1:])]
    for holds in (*others, (), ("Q4",)):
        for scene in single + full:
            assert 4 <= len(cite_text(scene, frozenset(holds), rng).split()) <= 40


def test_a_text_is_about_its_scene_and_an_irrelevant_one_about_another(clue):
    for row, (scene, about) in enumerate(zip(clue.scenes, clue.about, strict=True)):
        assert kinds_named(clue.texts[row]) <= kinds_in(about), (clue.texts[row], about)
        assert (about is not scene) == ("Irrelevant" in holding(clue, row))
        if about is not scene:
            assert scene_key(about) != scene_key(scene)
            assert len(kinds_in(about) & kinds_in(scene)) <= 2


def test_events_are_told_for_action_only(clue):
    for row, text in enumerate(clue.texts):
        said = set(re.findall(r"[\w-]+", text.lower().replace("sailing boat", "boat")))
        holds = holding(clue, row)
        if not holds & {"Visible", "Irrelevant"} or "Story" in holds:
            continue
        verbs = VERB | {"riding", "rides", "chasing", "chases", "pursuing", "carrying"}
        if "Action" not in holds:
            assert not said & (verbs - {"flying"}), clue.texts[row]
        elif not any(actor.action in LIVELY for actor in clue.about[row].things):
            assert said & {"wind", "breeze", "sun", "insects", "day", "dust"}, clue.texts[row]


def test_pictures_are_spoken_of_for_meta_only_and_whatever_the_style(clue):
    speaks = re.compile(r"\b(picture|pictures|image|print|postcard|view|wallpaper)\b")
    openings = {}
    for row, text in enumerate(clue.texts):
        assert bool(speaks.search(text)) == ("Meta" in holding(clue, row)), text
        if "Meta" in holding(clue, row):
            openings.setdefault(clue.scenes[row].style, set()).add(" ".join(text.split()[:3]))
    assert len(set.intersection(*openings.values())) >= 4


COLOURED = re.compile(
    r"(?:paint|make) the (?P<a>[\w ]+?) (?P<b>\w+)|give the (?P<c>[\w ]+?) a coat of (?P<d>\w+) p"
)
ORDERED = re.compile(r"(?:^|\. )(?:\w+, |\w+ )?(?:Put|Place|Add|Set up|Arrange)\b[^.]*", re.I)


def test_a_step_orders_what_holds_for_the_result_and_what_does_not_before_it(cite):
    orders = {"Q6": 0, "Q7": 0}
    for row, text in enumerate(cite.texts):
        scene, ordered = cite.scenes[row], holding(cite, row) & {"Q6", "Q7"}
        if len(ordered) != 1:
            continue
        [name] = ordered
        for match in COLOURED.finditer(text):
            noun, colour = match["a"] or match["c"], match["b"] or match["d"]
            colours = {t.colour for t in scene.things if t.kind == KIND_OF.get(noun)}
            if len(colours) == 1 and colour in words.COLOUR_WORDS:
                orders[name] += 1
                assert (colour in colours) == (name == "Q7"), (text, scene)
        for order, relation in product(ORDERED.findall(text), ("left of", "right of")):
            sides = [kinds_named(side) for side in order.split(relation)]
            at = [[i for i, t in enumerate(scene.things) if {t.kind} == side] for side in sides]
            if [*map(len, at)] == [1, 1]:
                orders[name] += 1
                assert ((at[0][0], relation, at[1][0]) in scene.relations) == (name == "Q7"), text
    assert orders["Q6"] >= 5
    assert orders["Q7"] >= 40


def test_amounts_and_pointing_are_for_their_relations_only(cite):
    for row, text in enumerate(cite.texts):
        holds = holding(cite, row)
        assert bool(re.search(r"\d", text)) == ("Q4" in holds)
        pointing = re.search(r"shown|like this|you see|this way|like so|picture", text)
        assert bool(pointing) == ("Q3" in holds)
        something = re.search(r"something ([\w-]+)", text.lower())
        assert bool(something) == ("Q5" in holds)
        if something and something[1] in words.COLOUR_WORDS:
            assert any(t.colour == something[1] for t in cite.scenes[row].things)


# --- How far the text tells ---


@BOTH
def test_wordings_follow_the_labels_as_far_as_the_dial_says(scenes, scheme):
    kind, labels = SCHEMES[scheme], draw_labels(scenes, scheme, 1)
    opened = labels[:, kind.gate_column] == kind.opens
    rates, slack = labels[opened].mean(0), 4 / np.sqrt(opened.sum())
    others = draw_labels(scenes, scheme, 1001, 0.0).mean(0)
    by_chance = rates * others + (1 - rates) * (1 - others)
    for telling in (0.0, TELLING, 0.75):
        worded = world.draw_wordings(scenes, labels, scheme, 1, telling)
        as_labelled = np.array(kind.worded) ** ((1 - telling) / telling) if telling else 0 * rates
        wanted = as_labelled + (1 - as_labelled) * by_chance
        assert (abs((worded == labels)[opened].mean(0) - wanted) < slack).all(), telling
    assert (world.draw_wordings(scenes, labels, scheme, 1, 1.0) == labels).all()


def test_what_is_worded_as_visible_and_is_not_is_true_of_another_scene():
    pairs, shared = related_pairs("train", 400, "clue"), []
    for i, (scene, about) in enumerate(zip(pairs.scenes, pairs.about, strict=True)):
        if about is not scene:
            assert not pairs.labels[i, 0]
            assert kinds_named(pairs.texts[i]) <= kinds_in(about)
            if not pairs.labels[i, 5]:
                shared.append(bool(kinds_in(about) & kinds_in(scene)))
    assert len(shared) > 20
    assert np.mean(shared) > 0.8


@pytest.mark.real
@BOTH
def test_rates_and_correlations_are_those_of_the_real_files(real_data, scheme):
    kind = SCHEMES[scheme]
    if scheme == "clue":
        real = pd.read_csv(real_data / "clue" / "conceptual_train_dis.csv")
        real = real[real["index"] <= LAST_HUMAN][list(kind.relations)]
    else:
        real = pd.read_csv(real_data / "cite" / "data.csv", sep="|")
        real = real[[f"{name.lower()}_resp" for name in kind.relations]]
        real.columns = list(kind.relations)
    real = real.astype(bool)
    assert real.mean().to_numpy() == pytest.approx(np.array(kind.rates), abs=6e-4)
    is_open = real[kind.gate] == kind.opens
    opened = real[is_open].drop(columns=kind.gate).corr().to_numpy()
    assert abs(opened - np.array(kind.phi)).max() < 0.0051
    for name, rate in zip(kind.relations, kind.closed, strict=True):
        if rate:
            assert real[~is_open][name].mean() == pytest.approx(rate, abs=6e-4)
