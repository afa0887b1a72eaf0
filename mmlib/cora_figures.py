"""Notebook 03's tables of data and its figures."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlib import scenegraph
from mmlib.cora import LIMITS
from mmlib.cora_study import ERRORS, RATES, SPLITS, Study
from mmlib.core import plots
from mmlib.core.intervals import Estimate


def describe(study: Study) -> pd.DataFrame:
    """Size of each split, and what a caption and its parsed graph hold on average."""
    rows = {}
    for split in SPLITS:
        captions = study.captions(split)
        held = [
            (
                len(things := scenegraph.objects(g)),
                sum(len(scenegraph.attributes(g, i)) for i in things),
                len(scenegraph.relations(g)),
                100 * g.graph["fallback"],
            )
            for g in study.graphs[split]
        ]
        kinds = ("objects", "attributes", "relations", "fallback graphs in %")
        rows[split] = {
            "images": len(study.images[split].captions),
            "captions": len(captions),
            "words a caption": np.mean([len(c.split()) for c in captions]),
            **dict(zip(kinds, np.mean(held, axis=0), strict=True)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(2)


def some_captions(study: Study, count: int, split: str = "test") -> list[int]:
    """The first captions, one an image, with 2 or 3 objects, 2 attributes and a relation or more.

    Enough to see something, and small enough to be drawn.
    """
    rows: dict[int, int] = {}
    for row, image in enumerate(study.image_of(split)):
        graph = study.graphs[split][row]
        things = scenegraph.objects(graph)
        said = sum(len(scenegraph.attributes(graph, i)) for i in things)
        if (
            image not in rows
            and 2 <= len(things) <= 3
            and said >= 2
            and scenegraph.relations(graph)
        ):
            rows[image] = row
        if len(rows) == count:
            break
    return list(rows.values())


def dependency_table(text: str) -> pd.DataFrame:
    """The parse of a caption: each word, its part of speech, what it depends on, and how."""
    from mmlib.scenegraph.parser import load_english

    rows = [(t.text, t.pos_, t.dep_, t.head.text if t.head.i != t.i else "–")
            for t in load_english()(text)]  # fmt: skip
    return pd.DataFrame(rows, columns=["word", "part of speech", "role", "depends on"])


def pictures(study: Study, count: int, split: str = "test") -> list:
    """The first pictures of a split."""
    images = study.images[split]
    return [images.open_image(i) for i in range(min(count, len(images.captions)))]


def graphs_beside_pictures(study: Study, rows: Sequence[int]) -> Figure:
    """Pictures of test captions and their parsed graphs."""
    figure, axes = plt.subplots(
        len(rows), 2, figsize=(9, 2.6 * len(rows)), width_ratios=(1, 3), squeeze=False
    )
    image_of = study.image_of("test")
    for (left, right), row in zip(axes, rows, strict=True):
        left.imshow(study.images["test"].open_image(int(image_of[row])))
        left.axis("off")
        scenegraph.draw(study.graphs["test"][row], right)
    return figure


def attention_weights(
    graph: nx.MultiDiGraph, attention: Mapping[str, Sequence[Sequence[float]]]
) -> dict[tuple[Any, Any], float]:
    """Weights of `cora.attention` by the graph's own nodes, for `scenegraph.draw`.

    (object, its attribute): what the object takes from the attribute. (subject, object): what the
    subject takes from the object.
    """
    nodes: list[Any] = scenegraph.objects(graph)[: LIMITS["objects"]]
    nodes += [
        node
        for i in list(nodes)
        for node in scenegraph.attributes(graph, i)[: LIMITS["attributes"]]
    ]
    edges = [*attention.get("attributes", ()), *attention.get("objects", ())]
    return {
        (nodes[int(target)], nodes[int(source)]): float(weight) for source, target, weight in edges
    }


def attention_figure(study: Study, examples: Sequence[Mapping[str, Any]]) -> Figure:
    """Test captions' graphs with the attention weights of a trained model."""
    figure, axes = plt.subplots(len(examples), 1, figsize=(8, 2.4 * len(examples)), squeeze=False)
    for axis, example in zip(axes[:, 0], examples, strict=True):
        graph = study.graphs["test"][example["caption"]]
        scenegraph.draw(graph, axis, attention_weights(graph, example["attention"]))
    return figure


def retrieved(study: Study, examples: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> Figure:
    """A row a caption: its best images, the right one framed in green, and that one with its rank.

    ranks (captions,): of each test caption's own image.
    """
    image_of, images = study.image_of("test"), study.images["test"]
    columns = len(examples[0]["best"]) + 1
    figure, axes = plt.subplots(
        len(examples), columns, figsize=(1.6 * columns, 2.1 * len(examples)), squeeze=False,
        layout="none",
    )  # fmt: skip
    figure.subplots_adjust(left=0.01, right=0.99, top=0.93, bottom=0.07, hspace=0.42, wspace=0.06)
    for row, example in zip(axes, examples, strict=True):
        caption = example["caption"]
        own = int(image_of[caption])
        row[0].set_title(study.captions("test")[caption], loc="left", fontsize=9)
        for axis, image in zip(row, [*example["best"], own], strict=True):
            axis.imshow(images.open_image(image))
            _frame(axis, plots.TRUE if image == own else plots.FALSE)
            axis.set_xlabel("right" if image == own else "wrong", fontsize=8)
        row[-1].set_xlabel(f"the caption's own: rank {ranks[caption]}", fontsize=8)
    return figure


def _frame(axis: plt.Axes, colour: str) -> None:
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set(visible=True, color=colour, linewidth=3)


def entities_figure(study: Study, top: Sequence[Sequence[Mapping[str, Any]]]) -> Figure:
    """The first test images with the entities that a model ranks first, right ones in green."""
    figure, axes = plt.subplots(
        1, len(top), figsize=(1.9 * len(top), 3.2), squeeze=False, layout="none"
    )
    figure.subplots_adjust(left=0, right=1, top=1, bottom=0.4, wspace=0.08)
    for i, (axis, entities) in enumerate(zip(axes[0], top, strict=True)):
        axis.imshow(study.images["test"].open_image(i))
        axis.axis("off")
        for line, entity in enumerate(entities):
            mark, colour = ("✓", plots.TRUE) if entity["right"] else ("✗", plots.FALSE)
            axis.text(
                0, -0.06 - 0.11 * line, f"{mark} {entity['entity'][:26]}", color=colour,
                transform=axis.transAxes, va="top", fontsize=8,
            )  # fmt: skip
    return figure


def errors_figure(losses: Mapping[str, Estimate]) -> Figure:
    """RSUM lost over the share of captions with a parse error. "<kind> <percent>" -> estimate."""
    figure, axis = plt.subplots(figsize=(7.2, 3.4))
    for number, kind in enumerate(ERRORS):
        x = np.array(RATES) + 0.6 * (number - 1.5)  # side by side, so that intervals can be told
        some = [losses[f"{kind} {rate}"] for rate in RATES]
        bars = np.array([(e.effect - e.low, e.high - e.effect) for e in some]).T
        axis.errorbar(x, [e.effect for e in some], bars, marker="o", capsize=2, label=kind)
    axis.axhline(0, color="#333333", linewidth=0.8)
    axis.set(xlabel="captions drawn for an error in %", ylabel="change of RSUM", xticks=RATES)
    axis.legend(title="what is changed", fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def times_figure(times: Mapping[str, Mapping[int, float]]) -> Figure:
    """Seconds of a query over the number of images: name -> images -> seconds."""
    figure, axis = plt.subplots(figsize=(6, 3.4))
    for name, points in times.items():
        axis.plot(list(points), [1000 * s for s in points.values()], "o-", label=name)
    axis.set(xscale="log", yscale="log", xlabel="images", ylabel="ms a query")
    axis.legend(fontsize=8)
    return figure
