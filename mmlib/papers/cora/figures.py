"""Tables and figures of paper 03: of the captions, and of the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlib import scenegraph
from mmlib.core import plots
from mmlib.core.claims import crossed
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.ranking import KS, rank_images_and_captions
from mmlib.core.tables import mean_and_deviation
from mmlib.papers.cora.data import FAMILY, Captions
from mmlib.papers.cora.experiment import (
    BAG,
    BAG_ENSEMBLE,
    BERT,
    CAPTIONS,
    CEILINGS,
    CORA,
    ENSEMBLE,
    ERRORS,
    FLOORS,
    GOLD,
    LEADS,
    LITTLE_HARM,
    NEAR_MAX,
    OURS,
    QUERY_TIME,
    RATES,
    SEQUENCE,
    STRUCTURE,
    SYSTEMS,
    TABLE_1,
    TABLE_3,
    TRAINED_LONGER,
    TWO_STEP,
    VSE,
    WITH_BERT,
    WITH_BERTS,
    WITH_PATHS,
    beside_paper,
    captions_and_images,
    original,
    printed,
    recalls,
    systems,
    with_rows,
)
from mmlib.papers.cora.graphs import SPLITS, GraphSet
from mmlib.papers.cora.speed import SIZES
from mmlib.papers.cora.training import Encoded, different_entities, right_in_family

ORDER = list(dict.fromkeys([
    *(row["system"] for row in FLOORS), *SYSTEMS,
    *(one.system for one in (*TRAINED_LONGER, *WITH_BERTS)), *(row["system"] for row in CEILINGS),
]))  # fmt: skip
COMPARED = (CORA.system, OURS.system, BAG.system, TWO_STEP.system, SEQUENCE.system)
COLOURS = dict(zip(COMPARED, plots.COLOURS, strict=False))  # the same in every figure
ORACLES = tuple(row["system"] for row in CEILINGS)
ON_DEV = "dev_RSUM", "RSUM on dev"

# --- Captions ----------------------------------------------------------------------------------


def describe(found: Captions) -> pd.DataFrame:
    """Size of each split, and what a caption and its parsed graph hold on average."""
    rows = {}
    for split in SPLITS:
        captions, graphs = found.captions(split), found.graphs[split]
        held = []
        for graph in graphs:
            things = scenegraph.objects(graph)
            said = sum(len(scenegraph.attributes(graph, i)) for i in things)
            ties = len(scenegraph.relations(graph))
            held.append((len(things), said, ties, 100 * graph.graph["fallback"]))
        kinds = ("objects", "attributes", "relations", "fallback graphs in %")
        rows[split] = {
            "images": len(found.images[split].captions),
            "captions": len(captions),
            "words a caption": np.mean([len(c.split()) for c in captions]),
            **dict(zip(kinds, np.mean(held, axis=0), strict=True)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(2)


def graphs_beside_pictures(found: Captions, rows: Sequence[int]) -> Figure:
    """Pictures of test captions and their parsed graphs."""
    figure, axes = plt.subplots(
        len(rows), 2, figsize=(9, 2.6 * len(rows)), width_ratios=(1, 3), squeeze=False
    )
    image_of = found.image_of("test")
    for (left, right), row in zip(axes, rows, strict=True):
        left.imshow(found.images["test"].open_image(int(image_of[row])))
        left.axis("off")
        scenegraph.draw(found.graphs["test"][row], right)
    return figure


def some_captions(found: Captions, count: int) -> list[int]:
    """The first test captions that say enough to see and little enough to draw, a family one.

    2 or 3 objects, at least 2 attributes, and a relation that is more than "with".
    """
    rows: dict[int, int] = {}
    for row, image in enumerate(found.image_of("test")):
        graph = found.graphs["test"][row]
        things = scenegraph.objects(graph)
        said = sum(len(scenegraph.attributes(graph, i)) for i in things)
        tied = any(data["label"] != "with" for *_, data in scenegraph.relations(graph))
        if 2 <= len(things) <= 3 and said >= 2 and tied and image // FAMILY not in rows:
            rows[int(image // FAMILY)] = row
        if len(rows) == count:
            break
    return list(rows.values())


def family(found: Captions, image: int, count: int = 4) -> Figure:
    """`count` test pictures from `image` on with their first captions."""
    rows = range(image, image + count)
    images = found.images["test"]
    captions = [images.captions[i][0] for i in rows]
    return plots.show_pictures([images.open_image(i) for i in rows], captions, columns=count)


# --- A trained model ---------------------------------------------------------------------------


def retrieved(found: Captions, seen: Encoded, rows: Sequence[int], top: int = 5) -> Figure:
    """A row a caption: its best images, the right one in green, and its own with its rank."""
    ranks = rank_images_and_captions(seen.images, seen.captions, seen.image_of).caption_ranks
    images = found.images["test"]
    figure, axes = _pictures(len(rows), top + 1)
    for line, row in zip(axes, rows, strict=True):
        own = int(seen.image_of[row])
        best = np.argsort(-(seen.images @ seen.captions[row]), kind="stable")[:top]
        line[0].set_title(found.captions("test")[row], loc="left", fontsize=9)
        for axis, image in zip(line, [*map(int, best), own], strict=True):
            _framed(axis, images.open_image(image), image == own)
            axis.set_xlabel("right" if image == own else "wrong", fontsize=8)
        line[-1].set_xlabel(f"its own: rank {ranks[row]}", fontsize=8)
    return figure


def _pictures(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    """Room for rows of pictures with a title above and a line below each."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(1.6 * columns, 2.1 * rows), squeeze=False, layout="none"
    )
    figure.subplots_adjust(left=0.01, right=0.99, top=0.93, bottom=0.07, hspace=0.42, wspace=0.06)
    return figure, axes


def _framed(axis: plt.Axes, image: Any, right: bool) -> None:
    axis.imshow(image)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set(visible=True, color=plots.TRUE if right else plots.FALSE, linewidth=3)


@dataclass(frozen=True, eq=False)
class Entities:
    """The different entities of the test captions as a model encodes them.

    texts: each in words; scores (images, entities): cosines; named (images, entities): whether a
    caption of the image names it.
    """

    texts: list[str]
    scores: np.ndarray
    named: np.ndarray


def entities_of(graphs: GraphSet, seen: Encoded) -> Entities:
    """All different entities of a split whose texts are `graphs` and whose vectors are `seen`."""
    if seen.entities is None:
        raise ValueError("this system has no entities")
    index, which = different_entities(graphs)
    caption, name, described = graphs.entities(np.arange(len(graphs)))
    texts = [
        " ".join(graphs.phrases[k] for k in (*described[i][described[i] >= 0], name[i]))
        for i in index
    ]
    named = np.zeros((len(seen.images), len(index)), dtype=bool)
    named[seen.image_of[caption], which] = True
    return Entities(texts, seen.images @ seen.entities[index].T, named)


def entities_in_pictures(
    found: Captions, entities: Entities, images: Sequence[int], top: int = 5
) -> Figure:
    """Test pictures with the entities nearest to each; ✓: a caption of the picture names it."""
    figure, axes = plt.subplots(
        1, len(images), figsize=(1.9 * len(images), 3.2), squeeze=False, layout="none"
    )
    figure.subplots_adjust(left=0, right=1, top=1, bottom=0.4, wspace=0.08)
    for axis, image in zip(axes[0], images, strict=True):
        axis.imshow(found.images["test"].open_image(image))
        axis.axis("off")
        for line, k in enumerate(np.argsort(-entities.scores[image], kind="stable")[:top]):
            right = entities.named[image, k]
            axis.text(
                0, -0.06 - 0.11 * line, f"{'✓' if right else '✗'} {entities.texts[k][:26]}",
                color=plots.TRUE if right else plots.FALSE, transform=axis.transAxes, va="top",
                fontsize=8,
            )  # fmt: skip
    return figure


def pictures_of_entities(
    found: Captions, entities: Entities, count: int = 3, top: int = 6
) -> Figure:
    """The other way round: entities with the pictures nearest to each, green where one is named.

    Of entities of several words those that captions of most pictures name.
    """
    long = [k for k, text in enumerate(entities.texts) if len(text.split()) > 1]
    often = sorted(long, key=lambda k: -entities.named[:, k].sum())[:count]
    figure, axes = _pictures(len(often), top)
    for line, k in zip(axes, often, strict=True):
        line[0].set_title(entities.texts[k], loc="left", fontsize=9)
        best = np.argsort(-entities.scores[:, k], kind="stable")[:top]
        for axis, image in zip(line, map(int, best), strict=True):
            right = bool(entities.named[image, k])
            _framed(axis, found.images["test"].open_image(image), right)
            axis.set_xlabel("named" if right else "not named", fontsize=8)
    return figure


# --- Evidence ----------------------------------------------------------------------------------


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system: R@K and median ranks both ways and RSUM, mean ± deviation over seeds.

    Floors stand above the trained systems, ceilings below. "↗" flags a system that still improved
    on dev when its trainings ended, in more than a fifth of them.
    """
    rows = {}
    for name in with_rows(evidence, dataset, ORDER):
        by = recalls(evidence, dataset, name).groupby("metric", sort=False).value
        row = by.agg(mean_and_deviation)
        rows[name + (" ↗" if evidence.unfinished(dataset, name) else "")] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def table(evidence: Evidence, dataset: str, which: str) -> pd.DataFrame:
    """Table 1 or 3, "table1" or "table3", beside ours; floors and ceilings stand below."""
    floors, ceilings = ([row["system"] for row in rows] for rows in (FLOORS, CEILINGS))
    own = [one.system for one in {"table1": TABLE_1, "table3": TABLE_3}[which]]
    more = with_rows(evidence, dataset, [*own, *floors, *ceilings])
    rows = dict.fromkeys([*printed(which).index, *more])
    return beside_paper(evidence, dataset, which, more).loc[list(rows)]


def trained_out(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """RSUM on dev at the end of a training, and its rise over the last two epochs: means of seeds.

    ↗: as in `results`.
    """
    rows = {}
    for name in with_rows(evidence, dataset, ORDER):
        if evidence.has(dataset, name, "dev_RSUM", EPOCHS):
            mean = evidence.curves(dataset, name, "dev_RSUM").mean(axis=0)
            before = mean[max(len(mean) - 3, 0)]
            rising = "↗" if evidence.unfinished(dataset, name) else ""
            rows[name] = {"dev RSUM at the end": f"{mean[-1]:.0f}",
                          "rise over the last two epochs": f"{mean[-1] - before:+.1f}",
                          "improved at the end": rising}  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def reranking(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 4: RSUM before and after reranking (eq. 14), the paper's on MS-COCO 5K beside ours."""
    rows = {}
    paper = printed("table4").rsum
    for name in with_rows(evidence, dataset, SYSTEMS):
        for metric, row in (("RSUM", name), ("RSUM, reranked", f"{name}, reranked")):
            if evidence.has(dataset, name, "RSUM, reranked"):
                ours = evidence.means(dataset, name, metric)
                rows[row] = {"paper": paper.get(row), "ours": ours.mean(), "sd": ours.std()}
    return pd.DataFrame.from_dict(rows, orient="index").round(1).astype(object).fillna("–")


def _with_interval(evidence: Evidence, dataset: str, changes: np.ndarray) -> dict[str, Any]:
    """The mean of changes of RSUM (seeds, items), with its interval over seeds and clusters."""
    one = crossed(changes, evidence.clusters(dataset))
    return {"RSUM": one.effect, "95 % low": one.low, "high": one.high}


# What two systems may differ in, by the fields of `System`.
PARTS = {
    "text": ("text", "words", "steps", "attribute_layers", "object_layers", "connected", "form",
             "attention", "residual", "short_cut", "altered"),
    "image": ("regions", "pooling", "form"),  # the authors' form also tells where regions stand
    "losses": ("losses", "entities", "margin"),
    "members": ("members",),
}  # fmt: skip


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The parts in which two systems' columns differ; "" for oracles, which have none of these."""
    return ", ".join(
        part for part, fields in PARTS.items() if any(a.get(f) != b.get(f) for f in fields)
    )


def leads(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each change gives, alone and together: RSUM of a system minus that of another one.

    With 95 % intervals over seeds and clusters of images, and what differs: the encoder of the
    text, that of the image, the losses, or how many trainings are averaged.
    """
    ours, controls = WITH_PATHS.system, (SEQUENCE.system, BAG.system)
    pairs = [(one.system, TWO_STEP.system) for one in LEADS]
    pairs += [(control, TWO_STEP.system) for control in controls]
    rivals = (CORA.system, OURS.system, ENSEMBLE.system, ours)
    pairs += [(rival, control) for rival in rivals for control in controls]
    pairs += [(ENSEMBLE.system, BAG_ENSEMBLE.system)]  # averages of two on both sides
    pairs += [(CORA.system, VSE.system)]  # as the paper compares: other losses on both sides
    variants = (ours, "CORA, authors' form", "CORA, eqs. 2 to 4 as printed", GOLD.system)
    pairs += [(variant, CORA.system) for variant in variants]
    pairs += [(ours, OURS.system), (CORA.system, TWO_STEP.system), (TWO_STEP.system, "HARD")]
    pairs += [("CORA", "HARD"), ("CORA", "Two-step + FC"), ("Joint", "Joint + FC")]
    pairs += [(f"({a}, 2) layers" if a > 1 else "CORA", f"({a}, 3) layers") for a in (1, 2)]
    pairs += [(one.system, one.system.rsplit(", ", 1)[0]) for one in STRUCTURE[1:]]
    pairs += [("Sequence, words shuffled", "Sequence, CORA's rest")]
    near_max = {one.system.removesuffix(", near max"): one.system for one in NEAR_MAX}
    pairs += [(near, one) for one, near in near_max.items()]
    for rival in (CORA.system, ours):
        pairs += [(near_max[rival], near_max[one]) for one in (*controls, TWO_STEP.system)]
    pairs += [(near_max[TWO_STEP.system], near_max[BAG.system])]
    pairs += [(f"Oracle of {a}", f"Oracle of {b}")
              for a, b in (("entities", "words"), ("the graph", "entities"))]  # fmt: skip
    rows, known = {}, systems(evidence.header["tier"], dataset)
    for changed, base in pairs:
        if len(with_rows(evidence, dataset, (changed, base))) == 2:
            a, b = (evidence.values(dataset, name, "RSUM") for name in (changed, base))
            rows[changed, base] = _with_interval(evidence, dataset, a - b)
            rows[changed, base]["differ in"] = _differing(known[changed], known[base])
    found = pd.DataFrame.from_dict(rows, orient="index").round(1)
    found.index = pd.MultiIndex.from_tuples(found.index, names=("system", "minus"))
    return found


def gains_of_bert(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """RSUM that a BERT adds to the sequence and to CORA, by how it learns, and the difference.

    "mean": of all ways, as C10 has it; "… − frozen BERT": what learning adds. Beside it CORA −
    the sequence, both with that BERT. With 95 % intervals over seeds and clusters of images. A way
    that is not on record has no row.
    """
    a, b = (one.system for one in WITH_BERTS if not one.bert)
    rows = {}
    for way in BERT:
        names = (a, f"{a}, {way}", b, f"{b}, {way}")
        if len(with_rows(evidence, dataset, names)) == len(names):
            a0, a1, b0, b1 = (evidence.values(dataset, name, "RSUM") for name in names)
            rows[way] = {
                "added to the sequence": a1 - a0,
                "added to CORA": b1 - b0,
                "difference": (a1 - a0) - (b1 - b0),
                "CORA − sequence": b1 - a1,
            }
    found = pd.DataFrame.from_dict(rows, orient="index")
    if len(rows) == len(BERT):
        still, *learning = BERT
        found.loc["mean"] = found.loc[list(BERT)].sum() / len(BERT)
        for way in learning:
            found.loc[f"{way} − {still}"] = found.loc[way] - found.loc[still]
    clusters = evidence.clusters(dataset)
    return found.map(lambda values: crossed(values, clusters).told(0))


def _right(hits: np.ndarray, clusters: np.ndarray) -> dict[str, float]:
    """The mean of hits in percent, (seeds, captions) or (captions,), with its interval."""
    one = crossed(hits, clusters)
    return {"right in %": one.effect, "low": one.low, "high": one.high}


def in_family(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """How often, in percent, a caption finds its own image among those of its family.

    They differ in structure alone; chance is 25. Beside it the difference from the bag of phrases,
    which cannot know structure, paired. With 95 % intervals over seeds and images.
    """
    rows: dict[str, dict[str, float]] = {}
    captions, _ = captions_and_images(evidence, dataset)
    clusters = evidence.clusters(dataset)[captions]
    found = {
        name: evidence.values(dataset, name, "in family")[:, captions]
        for name in ORDER if evidence.has(dataset, name, "in family")
    }  # fmt: skip
    for name, own in found.items():
        rows[name] = _right(own, clusters)
        if BAG.system in found and name != BAG.system:
            more = crossed(own - found[BAG.system], clusters)
            rows[name] |= {"minus the bag": more.effect, "from": more.low, "to": more.high}
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def of_readers(scores: Mapping[str, np.ndarray], image_of: np.ndarray) -> pd.DataFrame:
    """As `in_family`, of two scores (images, captions), and of the first less the second.

    Over families alone, as nothing is trained.
    """
    captions = len(image_of)
    hits = {name: right_in_family(own, image_of, FAMILY)[:captions] for name, own in scores.items()}
    a, b = hits
    hits[f"{a} − {b}"] = hits[a] - hits[b]
    rows = {name: _right(own, image_of // FAMILY) for name, own in hits.items()}
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def _without_bert(evidence: Evidence) -> list[str]:
    return [name for name in evidence.datasets if not name.endswith(WITH_BERT)]


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """RSUM of each system, best first: a tick a seed, the mean with its 95 % interval.

    Without "Random", and with oracles as numbers at the edge, since beside either all others would
    look alike. live: (collection, system) -> RSUM of a training of this run, a diamond.
    """
    sets = _without_bert(evidence)
    most = max(len(with_rows(evidence, name, ORDER)) for name in sets)
    figure, axes = plt.subplots(
        1, len(sets), figsize=(7 * len(sets), 0.24 * most + 0.9), squeeze=False
    )
    for axis, dataset in zip(axes[0], sets, strict=True):
        values = {name: evidence.values(dataset, name, "RSUM")
                  for name in with_rows(evidence, dataset, ORDER) if name != "Random"}  # fmt: skip
        own = {name: values[name] for name in sorted(values, key=lambda n: -values[n].mean())}
        here = {name: value for (of, name), value in (live or {}).items() if of == dataset}
        plots.ranked_systems(axis, own, evidence.clusters(dataset), SYSTEMS, here)
        highest = max(own[name].mean(axis=1).max() for name in own if name not in ORACLES)
        axis.set(xlabel="RSUM", title=dataset, xlim=(None, 1.05 * max(highest, *here.values(), 0)))
        for y, name in enumerate(own):
            if name in ORACLES:
                edge = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
                axis.annotate(f"{own[name].mean():.0f} →", (0.93, y), color="#777777", **edge)
    return figure


def curves(evidence: Evidence) -> Figure:
    """RSUM on dev over epochs, mean and range of seeds."""
    sets = _without_bert(evidence)
    figure, axes = plt.subplots(1, len(sets), figsize=(5 * len(sets) + 3, 3.4), squeeze=False)
    for axis, dataset in zip(axes[0], sets, strict=True):
        for name, colour in COLOURS.items():
            if evidence.has(dataset, name, "dev_RSUM", EPOCHS):
                seen = evidence.curves(dataset, name, "dev_RSUM")
                plots.curve_of_seeds(axis, seen, name, colour)
        axis.set(xlabel="epoch", ylabel=ON_DEV[1], title=dataset)
    axes[0, -1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def by_attributes(evidence: Evidence, dataset: str, most: int = 3) -> pd.DataFrame:
    """Sum of the t2i recalls of captions with 0, 1, ... attributes: where graphs trail or lead.

    Below, what the bag has more than two others, with 95 % intervals.
    """
    captions, _ = captions_and_images(evidence, dataset)
    said = np.minimum(evidence.values(dataset, CAPTIONS, "attributes")[0][captions], most)
    columns = {n: f"{n} or more" if n == most else f"{n}" for n in np.unique(said).astype(int)}
    rows = {"captions": {column: f"{np.sum(said == n)}" for n, column in columns.items()}}
    hits = {}
    for name in with_rows(evidence, dataset, COMPARED):
        ranks = evidence.values(dataset, name, "rank")[:, captions]
        hits[name] = 100.0 * np.sum([ranks <= k for k in KS], axis=0)
        rows[name] = {c: f"{hits[name][:, said == n].mean():.0f}" for n, c in columns.items()}
    clusters = evidence.clusters(dataset)[captions]
    for other in (TWO_STEP.system, CORA.system):
        if {BAG.system, other} <= hits.keys():
            lead = hits[BAG.system] - hits[other]
            rows[f"{BAG.system} − {other}"] = {
                c: crossed(lead[:, said == n], clusters[said == n]).told(0)
                for n, c in columns.items()
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def parse_effects(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Change of CORA's RSUM by kind of parse error and by the percentage of captions drawn for one.

    Beside it what CORA keeps beyond the share of C8. With 95 % intervals over seeds and clusters of
    images.
    """
    own = evidence.values(dataset, CORA.system, "RSUM")
    rows = {}
    for kind in ERRORS:
        for rate in RATES:
            hurt = evidence.values(dataset, CORA.system, f"RSUM, {kind} {rate} %")
            kept = crossed(hurt - LITTLE_HARM * own, evidence.clusters(dataset))
            rows[kind, rate] = _with_interval(evidence, dataset, hurt - own)
            rows[kind, rate][f"kept beyond {LITTLE_HARM:.0%}"] = kept.told(1)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["error", "% of captions"])


def parse_errors(evidence: Evidence, dataset: str) -> Figure:
    """Change of CORA's RSUM over the share of captions with a parse error, 95 % intervals."""
    figure, axis = plt.subplots(figsize=(7.2, 3.4))
    for number, (kind, own) in enumerate(parse_effects(evidence, dataset).groupby(level=0)):
        x = np.array(RATES) + 0.6 * (number - 1.5)  # side by side, so that intervals can be told
        bars = np.array([own["RSUM"] - own["95 % low"], own["high"] - own["RSUM"]])
        axis.errorbar(x, own["RSUM"], bars, marker="o", capsize=2, label=kind)
    axis.axhline(0, color="#333333", linewidth=0.8)
    axis.set(xlabel="captions drawn for an error in %", ylabel="change of RSUM, 95 % intervals",
             xticks=RATES)  # fmt: skip
    axis.legend(title="what is changed", fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def entities(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Share with a right answer among the first K, beside what knows nothing of the image.

    image → entity: of images, those with an entity that one of their captions names; entity →
    image: of the entities of captions, those with an image one of whose captions names them.
    """
    to_entity: dict[tuple[str, str], dict[str, float]] = {}
    to_image: dict[tuple[str, str], dict[str, float]] = {}
    columns = [f"R@{k} in %" for k in KS]
    shown = [f"entity to image, R@{k}" for k in KS]
    for name in (CAPTIONS, *SYSTEMS):
        if evidence.has(dataset, name, "entity rank"):
            ranks = evidence.values(dataset, name, "entity rank")
            ranks = ranks[np.isfinite(ranks)]
            hits = [100 * (ranks <= k).mean() for k in KS]
            row = "most frequent first" if name == CAPTIONS else name
            to_entity["image → entity", row] = dict(zip(columns, hits, strict=True))
            hits = [np.nanmean(evidence.values(dataset, name, metric)) for metric in shown]
            row = "random order" if name == CAPTIONS else name
            to_image["entity → image", row] = dict(zip(columns, hits, strict=True))
    return pd.DataFrame.from_dict(to_entity | to_image, orient="index").round(1)


def times(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Median milliseconds of each part of a query."""
    parts = evidence.metrics(dataset, QUERY_TIME, EPOCHS)
    found = {part: np.median(evidence.curves(dataset, QUERY_TIME, part)) for part in parts}
    return pd.DataFrame({"ms": 1000 * pd.Series(found)}).round(2)


def times_figure(evidence: Evidence, dataset: str) -> Figure:
    """Milliseconds of a query over the number of images, CORA's and a cross-attention model's."""
    ms = times(evidence, dataset).ms
    fixed = ms["parse"] + ms["encode"]
    lines = {
        "CORA: parse, encode, search": [fixed + ms[f"search {n}"] for n in SIZES],
        "search alone": [ms[f"search {n}"] for n in SIZES],
        "cross-attention (SCAN), without encoding": [ms[f"attend {n}"] for n in SIZES],
    }
    figure, axis = plt.subplots(figsize=(8, 3))
    for name, own in lines.items():
        axis.plot(SIZES, own, "o-", label=name)
    axis.set(xscale="log", yscale="log", xlabel="images", ylabel="ms a query")
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def everything(evidence: Evidence) -> tuple[dict[str, pd.DataFrame], dict[str, Figure]]:
    """All tables and all figures that need nothing but evidence, by name."""
    tables: dict[str, pd.DataFrame] = {}
    figures = {"overview": overview(evidence), "curves": curves(evidence)}
    for name in evidence.datasets:
        if name != original(name):
            tables[f"results_{name}"] = results(evidence, name)
            more = gains_of_bert if name.endswith(WITH_BERT) else leads
            tables[f"{more.__name__}_{name}"] = more(evidence, name)
            continue
        own = {
            "results": results(evidence, name),
            "trained_out": trained_out(evidence, name),
            "table1": table(evidence, name, "table1"),
            "table3": table(evidence, name, "table3"),
            "table4": reranking(evidence, name),
            "leads": leads(evidence, name),
            "attributes": by_attributes(evidence, name),
            "entities": entities(evidence, name),
        }
        if not (families := in_family(evidence, name)).empty:
            own["families"] = families
        if evidence.has(name, QUERY_TIME, "parse", EPOCHS):
            own["times"] = times(evidence, name)
            figures[f"times_{name}"] = times_figure(evidence, name)
        tables |= {f"{kind}_{name}": table for kind, table in own.items()}
        if evidence.has(name, CORA.system, f"RSUM, edge {RATES[0]} %"):
            figures[f"parse_errors_{name}"] = parse_errors(evidence, name)
            tables[f"parse_errors_{name}"] = parse_effects(evidence, name).round(1)
    tables["table2"] = printed("table2")[["coco1k_rsum", "coco5k_rsum"]]
    return tables, figures
