"""Figures of paper 03: of captions, of a trained model, and of the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from mmlib import scenegraph
from mmlib.core import plots
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.ranking import rank_images_and_captions
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora.batches import GraphSet
from mmlib.papers.cora.data.controlled import CAPTIONS, RECORDED, ControlledImages, Dials
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.data.world import FAMILY
from mmlib.papers.cora.method import Encoded
from mmlib.papers.cora.metrics import different_entities
from mmlib.papers.cora.systems import (
    BAG,
    COMPARED,
    CONTROLLED_TIER,
    CORA,
    ON_CONTROLLED,
    ORACLES,
    ORDER,
    QUERY_TIME,
    RATES,
    SEQUENCE,
    SIZES,
    SYSTEMS,
    WITH_BERT,
    original,
)
from mmlib.papers.cora.tables import (
    has_parse_errors,
    in_families,
    parse_effects,
    times,
    with_rows,
)
from mmlib.world import Clarity

COLOURS = dict(zip(COMPARED, plots.COLOURS, strict=False))  # the same in every figure
MORE_COLOURS = dict(zip([*dict.fromkeys((*COMPARED, *ON_CONTROLLED))], plots.COLOURS, strict=True))
ON_DEV = "dev_RSUM", "RSUM on dev"


def graphs_beside_pictures(collection: Captions, rows: Sequence[int]) -> Figure:
    """Pictures of test captions and their parsed graphs."""
    figure, axes = plt.subplots(
        len(rows), 2, figsize=(9, 2.6 * len(rows)), width_ratios=(1, 3), squeeze=False
    )
    image_of = collection.image_of("test")
    for (left, right), row in zip(axes, rows, strict=True):
        left.imshow(collection.images["test"].open_image(int(image_of[row])))
        left.axis("off")
        scenegraph.draw(collection.graphs["test"][row], right)
    return figure


def some_captions(collection: Captions, count: int) -> list[int]:
    """The first test captions that say enough to see and little enough to draw, one a family.

    2 or 3 objects, at least 2 attributes, and a relation that is more than "with".
    """
    rows: dict[int, int] = {}  # family -> caption
    for row, image in enumerate(collection.image_of("test")):
        graph = collection.graphs["test"][row]
        objects = scenegraph.objects(graph)
        attributes = sum(len(scenegraph.attributes(graph, i)) for i in objects)
        related = any(data["label"] != "with" for *_, data in scenegraph.relations(graph))
        if 2 <= len(objects) <= 3 and attributes >= 2 and related:
            rows.setdefault(int(image // FAMILY), row)
        if len(rows) == count:
            break
    return list(rows.values())


def family(images: CaptionedImages, image: int = 0, count: int = FAMILY) -> Figure:
    """`count` pictures from `image` on with their first captions."""
    rows = range(image, image + count)
    captions = [images.captions[i][0] for i in rows]
    return plots.show_pictures([images.open_image(i) for i in rows], captions, columns=count)


def _pictures(
    collection: Captions, titles: Sequence[str], images: Sequence[np.ndarray] | np.ndarray,
    right: Sequence[np.ndarray] | np.ndarray, labels: tuple[str, str],
) -> tuple[Figure, np.ndarray]:  # fmt: skip
    """Rows of test pictures with a title each, framed and labelled by whether they are right."""
    rows, columns = len(titles), len(images[0])
    figure, axes = plt.subplots(
        rows, columns, figsize=(1.6 * columns, 2.1 * rows), squeeze=False, layout="none"
    )
    figure.subplots_adjust(left=0.01, right=0.99, top=0.93, bottom=0.07, hspace=0.42, wspace=0.06)
    for line, title in zip(axes, titles, strict=True):
        line[0].set_title(title, loc="left", fontsize=9)
    for axis, image, is_right in zip(axes.flat, np.ravel(images), np.ravel(right), strict=True):
        axis.imshow(collection.images["test"].open_image(int(image)))
        axis.set(xticks=[], yticks=[])
        axis.set_xlabel(labels[0] if is_right else labels[1], fontsize=8)
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set(visible=True, color=plots.TRUE if is_right else plots.FALSE, linewidth=3)
    return figure, axes


def retrieved(collection: Captions, encoded: Encoded, rows: Sequence[int], top: int = 5) -> Figure:
    """A row a caption: the images that rank best, the right one in green, and its rank."""
    ranks = rank_images_and_captions(encoded.images, encoded.captions, encoded.image_of)
    captions, targets = collection.captions("test"), encoded.image_of[list(rows)]
    cosines = [encoded.images @ encoded.captions[row] for row in rows]
    best = [np.argsort(-scores, kind="stable")[:top] for scores in cosines]
    images = np.column_stack([best, targets])
    right = images == targets[:, None]
    titles = [captions[row] for row in rows]
    figure, axes = _pictures(collection, titles, images, right, ("right", "wrong"))
    for axis, row in zip(axes[:, -1], rows, strict=True):
        axis.set_xlabel(f"its own: rank {ranks.caption_ranks[row]}", fontsize=8)
    return figure


@dataclass(frozen=True, eq=False)
class Entities:
    """The different entities of the test captions as a model encodes them.

    texts: each in words; scores (images, entities): cosines; named (images, entities): whether a
    caption of the image names it.
    """

    texts: list[str]
    scores: np.ndarray
    named: np.ndarray


def entities_of(graphs: GraphSet, encoded: Encoded) -> Entities:
    """All different entities of a split whose texts are `graphs`, from its vectors."""
    if encoded.entities is None:
        raise ValueError("this system has no entities")
    index, number = different_entities(graphs)
    caption, name, described = graphs.entities(np.arange(len(graphs)))
    texts = [
        " ".join(graphs.phrases[k] for k in (*described[i][described[i] >= 0], name[i]))
        for i in index
    ]
    named = np.zeros((len(encoded.images), len(index)), dtype=bool)
    named[encoded.image_of[caption], number] = True
    return Entities(texts, encoded.images @ encoded.entities[index].T, named)


def entities_in_pictures(
    collection: Captions, entities: Entities, images: Sequence[int], top: int = 5
) -> Figure:
    """Test pictures with the entities nearest to each; ✓: a caption of the picture names it."""
    figure, axes = plt.subplots(
        1, len(images), figsize=(1.9 * len(images), 3.2), squeeze=False, layout="none"
    )
    figure.subplots_adjust(left=0, right=1, top=1, bottom=0.4, wspace=0.08)
    for axis, image in zip(axes[0], images, strict=True):
        axis.imshow(collection.images["test"].open_image(image))
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
    collection: Captions, entities: Entities, count: int = 3, top: int = 6
) -> Figure:
    """The other way round: entities with the pictures nearest to each, green where one is named.

    Of entities of several words those that captions of most pictures name.
    """
    long = [k for k, text in enumerate(entities.texts) if len(text.split()) > 1]
    often = sorted(long, key=lambda k: -entities.named[:, k].sum())[:count]
    best = [np.argsort(-entities.scores[:, k], kind="stable")[:top] for k in often]
    right = [entities.named[images, k] for images, k in zip(best, often, strict=True)]
    titles = [entities.texts[k] for k in often]
    figure, _ = _pictures(collection, titles, best, right, ("named", "not named"))
    return figure


def _panels(evidence: Evidence, width: float, height: float, extra: float = 0) -> Any:
    """A figure, and an axis for each collection but those that a BERT reads: (name, axis), ..."""
    names = [name for name in evidence.datasets if not name.endswith(WITH_BERT)]
    size = width * len(names) + extra, height
    figure, axes = plt.subplots(1, len(names), figsize=size, squeeze=False)
    return figure, list(zip(names, axes[0], strict=True))


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """RSUM of each system, best first: a tick a seed, the mean with its 95 % interval.

    Without "Random", and with oracles as numbers at the edge, since beside either all others would
    look alike. live: (collection, system) -> RSUM of a training of this run, a diamond.
    """
    oracles = {row["system"] for row in ORACLES}
    rows = {name: with_rows(evidence, name, ORDER) for name in evidence.datasets}
    plain = [name for name in rows if not name.endswith(WITH_BERT)]
    figure, panels = _panels(evidence, 7, 0.24 * max(len(rows[name]) for name in plain) + 0.9)
    for dataset, axis in panels:
        names = [name for name in rows[dataset] if name != "Random"]
        values = {name: evidence.values(dataset, name, "RSUM") for name in names}
        names = sorted(names, key=lambda name: -values[name].mean())
        diamonds = {
            name: value for (of, name), value in evidence.comparable(live).items() if of == dataset
        }
        ranked = {name: values[name] for name in names}
        plots.ranked_systems(axis, ranked, evidence.clusters(dataset), SYSTEMS, diamonds)
        highest = max(values[n].mean(axis=1).max() for n in names if n not in oracles)
        right = 1.05 * max(highest, *diamonds.values(), 0)
        axis.set(xlabel="RSUM", title=dataset, xlim=(None, right))
        for y, name in enumerate(names):
            if name in oracles:
                edge = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
                text = f"{values[name].mean():.0f} →"
                axis.annotate(text, (0.93, y), color="#777777", **edge)
    return figure


def curves(evidence: Evidence) -> Figure:
    """RSUM on dev over epochs, mean and range of seeds."""
    figure, panels = _panels(evidence, 5, 3.4, extra=3)
    for dataset, axis in panels:
        for name, colour in COLOURS.items():
            if evidence.has(dataset, name, "dev_RSUM", EPOCHS):
                curves = evidence.curves(dataset, name, "dev_RSUM")
                plots.curve_of_seeds(axis, curves, name, colour)
        axis.set(xlabel="epoch", ylabel=ON_DEV[1], title=dataset)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def parse_errors(evidence: Evidence, dataset: str) -> Figure:
    """Change of CORA's RSUM over the share of captions with a parse error, 95 % intervals."""
    figure, axis = plt.subplots(figsize=(7.2, 3.4))
    for number, (kind, rows) in enumerate(parse_effects(evidence, dataset).groupby(level=0)):
        x = np.array(RATES) + 0.6 * (number - 1.5)  # side by side, so that intervals can be told
        bars = np.array([rows["RSUM"] - rows["95 % low"], rows["high"] - rows["RSUM"]])
        axis.errorbar(x, rows["RSUM"], bars, marker="o", capsize=2, label=kind)
    axis.axhline(0, color="#333333", linewidth=0.8)
    axis.set(xlabel="captions drawn for an error in %", ylabel="change of RSUM, 95 % intervals",
             xticks=RATES)  # fmt: skip
    axis.legend(title="what is changed", fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def times_figure(evidence: Evidence, dataset: str) -> Figure:
    """Milliseconds of a query over the number of images, CORA's and a cross-attention model's."""
    ms = times(evidence, dataset).ms
    fixed = ms["parse"] + ms["encode"]
    search = np.array([ms[f"search {n}"] for n in SIZES])
    figure, axis = plt.subplots(figsize=(8, 3))
    axis.plot(SIZES, fixed + search, "o-", label="CORA: parse, encode, search")
    axis.plot(SIZES, search, "o-", label="search alone")
    scan = [ms[f"attend {n}"] for n in SIZES]
    axis.plot(SIZES, scan, "o-", label="cross-attention (SCAN), without encoding")
    axis.set(xscale="log", yscale="log", xlabel="images", ylabel="ms a query")
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


CHANCE = 100 / FAMILY
CLEAR = Dials(families=1000)  # whose regions get noisier and more mixed


def controlled_family(
    images: ControlledImages, caption: int, scores: Mapping[str, np.ndarray]
) -> Figure:
    """The family that a caption is about: what each picture shows, and below it each model's score.

    caption: its row; scores: model -> (images, captions). The picture that it is about is framed;
    of each model the highest score is bold.
    """
    image = caption // CAPTIONS
    rows = range(image // FAMILY * FAMILY, (image // FAMILY + 1) * FAMILY)
    figure, axes = plt.subplots(1, FAMILY, figsize=(9, 1.6 + 0.22 * len(scores)), dpi=110)
    kinds = sorted(kind for _, kind in (f for f in images.facts[image] if len(f) == 2))
    best = {name: int(table[rows, caption].argmax()) for name, table in scores.items()}
    for number, (axis, row) in enumerate(zip(axes, rows, strict=True)):
        colour_of = {fact[1]: fact[0] for fact in images.facts[row] if len(fact) == 2}
        for y, kind in enumerate(kinds):
            colour = "gold" if colour_of[kind] == "golden" else colour_of[kind]
            axis.scatter(0.08, -y, s=80, marker="s", color=colour, edgecolor="#555555")
            axis.text(0.2, -y, f"{colour_of[kind]} {kind}", va="center", fontsize=9)
        for y, (name, table) in enumerate(scores.items(), len(kinds) + 1):
            weight = "bold" if best[name] == number else "normal"
            axis.text(0, -y, f"{name}: {table[row, caption]:.2f}", va="center", fontsize=8,
                      weight=weight)  # fmt: skip
        axis.set(xlim=(-0.05, 1), ylim=(-len(kinds) - len(scores) - 0.5, 0.7), xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set(visible=True, color="#cccccc")
        if row == image:
            axis.spines[:].set(color=plots.TRUE, linewidth=3)
    text = images.captions[image][caption % CAPTIONS]
    figure.suptitle(f'Which picture is "{text}"?  The right one is framed.', fontsize=10)
    return figure


def in_family(bars: Mapping[str, float], title: str = "") -> Figure:
    """How often captions find their picture in its family, a bar a system, in percent."""
    figure, axis = plt.subplots(figsize=(6, 0.5 * len(bars) + 1.2), dpi=110)
    names = list(bars)[::-1]
    colours = [MORE_COLOURS[name] for name in names]
    drawn = axis.barh(names, [bars[name] for name in names], color=colours)
    axis.bar_label(drawn, fmt="%.0f", padding=3)
    _chance(axis.axvline)
    axis.set(xlim=(0, 105), xlabel="captions that find their picture in its family in %")
    figure.suptitle(title, fontsize=10)
    axis.legend(loc="lower right", fontsize=8)
    return figure


def _chance(line: Any) -> None:
    line(CHANCE, color="#333333", linestyle="--", linewidth=1, label="chance")


def _shares(evidence: Evidence, datasets: Mapping[int, str], system: str) -> dict[int, np.ndarray]:
    """A system's means in family by seed, of each data set that has it; datasets: x -> name."""
    shares = {x: evidence.means(name, system, "in family") for x, name in datasets.items()}
    return {x: of_seeds for x, of_seeds in shares.items() if len(of_seeds)}


def binding_by_pictures(evidence: Evidence) -> Figure:
    """In family over training pictures, a line a system: the mean and the range of seeds.

    A panel for each vocabulary of which several numbers of pictures are recorded.
    """
    panels: dict[tuple[int, int], dict[int, str]] = {}
    for dataset in evidence.datasets:
        dials = RECORDED[dataset]
        if dataset.endswith(" families") and isinstance(dials, Dials):
            panels.setdefault((dials.kinds, dials.colours), {})[FAMILY * dials.families] = dataset
    panels = {words: dict(sorted(sets.items())) for words, sets in panels.items() if len(sets) > 1}
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.4 * len(panels) + 3, 3.6), sharey=True, squeeze=False, dpi=110
    )
    for axis, ((kinds, colours), by_pictures) in zip(axes[0], panels.items(), strict=True):
        for name in ON_CONTROLLED:
            shares = _shares(evidence, by_pictures, name)
            if shares:
                line, low, high = (
                    [getattr(of_seeds, how)() for of_seeds in shares.values()]
                    for how in ("mean", "min", "max")
                )
                colour = MORE_COLOURS[name]
                axis.plot([*shares], line, "o-", color=colour, label=name)
                axis.fill_between([*shares], low, high, color=colour, alpha=0.15)
        _chance(axis.axhline)
        title = f"{kinds} kinds × {colours} colours"
        axis.set(xscale="log", xlabel="training pictures", title=title, ylim=(0, 103),
                 xticks=[*by_pictures], xticklabels=[*by_pictures])  # fmt: skip
        axis.minorticks_off()
    axes[0, 0].set_ylabel("right in family in %")
    axes[0, -1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def binding_by_regions(evidence: Evidence) -> Figure:
    """In family over noise and mixing of regions, a heat map a system."""
    cells: dict[tuple[float, float], str] = {}
    for dataset in evidence.datasets:
        dials = RECORDED[dataset]
        if (
            isinstance(dials, Dials)
            and replace(dials, noise=CLEAR.noise, mixing=CLEAR.mixing) == CLEAR
        ):
            cells[dials.noise, dials.mixing] = dataset
    noises, mixings = (sorted({key[i] for key in cells}) for i in (0, 1))
    names = (CORA.system, SEQUENCE.system, BAG.system)
    figure, axes = plt.subplots(1, len(names), figsize=(3.3 * len(names), 3.2), dpi=110)
    for axis, name in zip(axes, names, strict=True):
        table = np.full((len(noises), len(mixings)), np.nan)
        for (noise, mixing), dataset in cells.items():
            share = in_families(evidence, dataset, name).effect
            row, column = noises.index(noise), mixings.index(mixing)
            table[row, column] = share
            axis.text(column, row, f"{share:.0f}", ha="center", va="center",
                      color="white" if share < 60 else "black")  # fmt: skip
        axis.imshow(table, vmin=CHANCE, vmax=100, cmap="cividis", interpolation="none")
        axis.set(title=name, xlabel="mixing of regions", ylabel="noise on regions",
                 xticks=range(len(mixings)), xticklabels=mixings,
                 yticks=range(len(noises)), yticklabels=noises)  # fmt: skip
        axis.grid(visible=False)
    figure.suptitle(f"Right in family in %; chance is {CHANCE:.0f}", fontsize=10)
    return figure


def binding_drawn(evidence: Evidence) -> Figure:
    """In family of the drawn collections on record, a line a system: mean and range of seeds."""
    drawn = [name for name, dials in RECORDED.items() if isinstance(dials, Clarity)]
    names = [name for name in drawn if name in evidence.datasets]
    figure, axis = plt.subplots(figsize=(9, 3.6), dpi=110)
    for system in ON_CONTROLLED:
        shares = _shares(evidence, dict(enumerate(names)), system)
        means = [of_seeds.mean() for of_seeds in shares.values()]
        reach = [np.abs([s.min(), s.max()] - s.mean()) for s in shares.values()]
        if shares:
            axis.errorbar([*shares], means, np.transpose(reach), fmt="o-", capsize=3,
                          color=MORE_COLOURS[system], label=system)  # fmt: skip
    _chance(axis.axhline)
    axis.set(ylabel="right in family in %", ylim=(0, 103), xticks=range(len(names)),
             xticklabels=[name.replace(", ", ",\n") for name in names])  # fmt: skip
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def figures(evidence: Evidence) -> dict[str, Figure]:
    """All figures that need nothing but evidence, by file name."""
    if evidence.header["tier"] == CONTROLLED_TIER:
        return {"binding": binding_by_pictures(evidence), "regions": binding_by_regions(evidence),
                "drawn": binding_drawn(evidence)}  # fmt: skip
    figures = {"overview": overview(evidence), "curves": curves(evidence)}
    for name in (name for name in evidence.datasets if name == original(name)):
        if evidence.has(name, QUERY_TIME, "parse", EPOCHS):
            figures[f"times_{name}"] = times_figure(evidence, name)
        if has_parse_errors(evidence, name):
            figures[f"parse_errors_{name}"] = parse_errors(evidence, name)
    return figures
