"""Figures and tables of a trained model and of evidence: what they show is what is there."""

import os

import made_up_cora
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from mmlib import scenegraph
from mmlib.core.ranking import rank_images_and_captions
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora import figures, probes, tables
from mmlib.papers.cora.data import Captions, load_study, prepare, texts, world
from mmlib.papers.cora.method import encode
from mmlib.papers.cora.systems import BAG, CORA, QUERY_TIME, SPLITS, budget
from mmlib.papers.cora.train import fresh


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "WORLD_IMAGES", {"train": 120, "val": 20, "test": 40})
        patch.setattr(texts, "cache_dir", lambda: None)
        patch.setattr(os, "cpu_count", lambda: 1)
        yield load_study("world", ["world"])["world"]


@pytest.fixture(scope="module")
def arrays(found):
    return prepare(found, budget("world", "world"))


@pytest.fixture(scope="module")
def model(arrays):
    return fresh(CORA, budget("world", "world"), arrays)


@pytest.fixture(scope="module")
def seen(model, arrays):
    test = arrays.splits["test"]
    return encode(model, test, test.texts["graph"])


@pytest.fixture(scope="module")
def evidence():
    return made_up_cora.make()


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def words_on(axis):
    return [text.get_text() for text in axis.texts]


def test_chosen_captions_say_enough_and_are_of_different_families(found):
    rows = figures.some_captions(found, 3)
    assert len({found.image_of("test")[row] // world.FAMILY for row in rows}) == 3
    for row in rows:
        graph = found.graphs["test"][row]
        assert len(scenegraph.objects(graph)) in (2, 3)
        assert scenegraph.relations(graph)
    drawn = figures.graphs_beside_pictures(found, rows)
    assert len(drawn.axes) == 6


def test_a_family_stands_side_by_side(found):
    drawn = figures.family(found.images["test"], 4)
    assert [" ".join(words_on(axis)[0].split()) for axis in drawn.axes] == [
        found.images["test"].captions[i][0] for i in range(4, 8)
    ]


def test_attention_stands_at_the_nodes_that_it_is_of(found, arrays, model):
    [row] = figures.some_captions(found, 1)
    weights = probes.attention(model, arrays.splits["test"].texts["graph"], row)
    graph = found.graphs["test"][row]
    drawn = probes.attention_figure(found, [row], [weights])
    things = scenegraph.objects(graph)
    first = next(i for i in things if scenegraph.attributes(graph, i))
    said = scenegraph.attributes(graph, first)[0]
    number = sum(len(scenegraph.attributes(graph, i)) for i in things if i < first)
    wanted = next(
        w for source, target, w in weights["attributes"]
        if (source, target) == (len(things) + number, things.index(first))
    )  # fmt: skip
    shown = [" ".join(text.split()) for text in words_on(drawn.axes[0])]
    assert f"{scenegraph.phrase(graph, said)} {wanted:.0%}" in shown


def test_pictures_found_are_the_nearest_and_the_own_one_is_told(found, seen):
    rows = figures.some_captions(found, 2)
    drawn = figures.retrieved(found, seen, rows, top=3)
    ranks = rank_images_and_captions(seen.images, seen.captions, seen.image_of).caption_ranks
    for line, row in enumerate(rows):
        axes = drawn.axes[4 * line : 4 * line + 4]
        own = seen.image_of[row]
        best = sorted(range(40), key=lambda i: -(seen.images[i] @ seen.captions[row]))[:3]
        assert [axis.get_xlabel() for axis in axes[:3]] == [
            "right" if image == own else "wrong" for image in best
        ]
        assert axes[3].get_xlabel() == f"its own: rank {ranks[row]}"
        assert axes[0].get_title(loc="left") == found.captions("test")[row]


def test_entities_are_those_of_the_loop(found, arrays, seen):
    graphs = arrays.splits["test"].texts["graph"]
    known = figures.entities_of(graphs, seen)
    named = set()
    for row, graph in enumerate(found.graphs["test"]):
        for i in scenegraph.objects(graph)[:13]:
            said = [scenegraph.phrase(graph, a) for a in scenegraph.attributes(graph, i)[:4]]
            key = frozenset(said), scenegraph.phrase(graph, i)
            named.add((int(seen.image_of[row]), key))
    assert len(known.texts) == len({key for _, key in named})
    assert known.named.sum() == len(named)
    for k, text in enumerate(known.texts):
        images = {image for image, (said, name) in named
                  if sorted(" ".join([*said, name]).split()) == sorted(text.split())}  # fmt: skip
        assert set(np.flatnonzero(known.named[:, k])) <= images
    assert known.scores.shape == known.named.shape
    assert np.abs(known.scores).max() <= 1 + 1e-5


def test_entities_are_marked_both_ways(found, arrays, seen):
    known = figures.entities_of(arrays.splits["test"].texts["graph"], seen)
    drawn = figures.entities_in_pictures(found, known, range(2), top=3)
    for image, axis in enumerate(drawn.axes):
        best = np.argsort(-known.scores[image], kind="stable")[:3]
        marks = ["✓" if known.named[image, k] else "✗" for k in best]
        assert [text[0] for text in words_on(axis)] == marks
    drawn = figures.pictures_of_entities(found, known, count=2, top=4)
    for line in (0, 1):
        axes = drawn.axes[4 * line : 4 * line + 4]
        k = known.texts.index(axes[0].get_title(loc="left"))
        best = np.argsort(-known.scores[:, k], kind="stable")[:4]
        assert [axis.get_xlabel() for axis in axes] == [
            "named" if known.named[i, k] else "not named" for i in best
        ]


def test_a_system_without_entities_is_refused(arrays):
    test = arrays.splits["test"]
    bag = fresh(BAG, budget("world", "world"), arrays)
    with pytest.raises(ValueError, match="no entities"):
        figures.entities_of(test.texts["graph"], encode(bag, test, test.texts["graph"]))


def test_floors_and_ceilings_stand_below_the_table(evidence):
    shown = tables.table(evidence, "world", "table1")
    assert list(shown.index[-6:]) == [
        "Random", "Ridge on words", "Ridge on the graph's words", "Oracle of words",
        "Oracle of entities", "Oracle of the graph",
    ]  # fmt: skip
    mean = evidence.means("world", "Oracle of words", "RSUM").mean()
    assert shown.loc["Oracle of words", ("rsum", "ours")].startswith(f"{mean:.1f}")


def test_the_time_of_a_query_is_the_sum_of_its_parts(evidence):
    ms = tables.times(evidence, "world").ms
    [axis] = figures.times_figure(evidence, "world").axes
    whole = axis.lines[0].get_ydata()
    assert whole[1] == pytest.approx(ms["parse"] + ms["encode"] + ms["search 10000"])
    parse = evidence.curves("world", QUERY_TIME, "parse")
    assert ms["parse"] == pytest.approx(1000 * np.median(parse), abs=0.01)


# --- Captions in figures ------------------------------------------------------------------------

CAPTIONS = (
    ("a small black dog jumps over a wooden fence", "snow"),
    ("a man in a red hat holds a blue cup", "a young girl eats green apples"),
)


@pytest.fixture(scope="module")
def few():
    images = {
        split: CaptionedImages(
            "tiny", split, ("a", "b"), CAPTIONS, np.zeros((2, 1, 4), np.float32),
            lambda row: Image.new("RGB", (8, 8), ("red", "blue")[row]),
        )
        for split in SPLITS
    }  # fmt: skip
    graphs = scenegraph.parse([c for own in CAPTIONS for c in own])
    return Captions(images, dict.fromkeys(SPLITS, graphs))


def test_captions_are_described_by_means(few):
    row = tables.describe(few).loc["test"]
    assert (row["images"], row["captions"]) == (2, 4)
    assert row["words a caption"] == (9 + 1 + 10 + 6) / 4
    assert row["objects"] == (2 + 1 + 3 + 2) / 4
    assert row["attributes"] == (3 + 0 + 2 + 2) / 4
    assert row["relations"] == (1 + 0 + 2 + 1) / 4
    assert row["fallback graphs in %"] == 0


def test_where_trainings_started_and_what_became_of_them(evidence):
    shares = {}

    def share(system, seed):
        return shares.setdefault((system.system, seed), (7 * seed + len(system.system)) % 11 / 100)

    begun = probes.pooling_starts(evidence, "world", share)
    assert not any("near max" in name or "ensemble" in name for name in begun.system)
    both = evidence.means("world", "CORA, ensemble of two", "RSUM of members")
    of_cora = begun[begun.system == "CORA"]
    first = evidence.means("world", "CORA", "RSUM")
    assert of_cora.RSUM.tolist() == pytest.approx([*first, *(2 * both - first)])
    assert of_cora["on largest"].tolist() == pytest.approx(
        [100 * shares["CORA", seed] for seed in (0, 1, 2, 3, 1000, 1001, 1002, 1003)]
    )
    assert set(begun.system[begun.entities]) > {"CORA", "CON"}
    assert set(begun.system[~begun.entities]) > {"HARD", "Joint", BAG.system}
    table = probes.start_matters(begun)
    wanted = np.corrcoef(of_cora["on largest"], of_cora.RSUM)[0, 1]
    assert table.correlation["CORA"] == pytest.approx(wanted, abs=0.005)
    assert table["95 % low"]["CORA"] < wanted < table.high["CORA"]
    assert table.trainings.to_dict() == begun.system.value_counts().to_dict()
    assert probes.start_matters(begun.groupby("system").head(3)).empty
    figure = probes.starts_figure(begun)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["CORA"].get_xdata(), of_cora["on largest"])
    np.testing.assert_allclose(lines["CORA"].get_ydata(), of_cora.RSUM - of_cora.RSUM.mean())
