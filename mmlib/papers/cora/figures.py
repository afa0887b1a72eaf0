"""Figures of paper 03: of captions, of a trained model, and of the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mmlib import scenegraph
from mmlib.core import plots
from mmlib.core.effects import crossed
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora.data.controlled import CAPTIONS, RECORDED, ControlledImages, Dials
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.data.world import FAMILY
from mmlib.papers.cora.run.systems import (
    AUTHORS,
    BAG,
    COMPARED,
    CONTROLLED_TIER,
    CORA,
    JOINT,
    ORACLES,
    ORDER,
    QUERY_TIME,
    RATES,
    SEQUENCE,
    SIZES,
    SYSTEMS,
    TWO_STEP,
    UNSEEN,
    VSE,
    WITH_BERT,
    original,
)
from mmlib.papers.cora.tables import (
    COLLECTIONS,
    attributes_said,
    has_parse_errors,
    in_families,
    parse_effects,
    times,
    with_rows,
)
from mmlib.world import Clarity
from mmlib.world.schema import ACTION_RELATIONS

COLOURS = dict(zip(COMPARED, plots.COLOURS, strict=False))  # the same in every figure
MORE_COLOURS = {**COLOURS, JOINT.system: plots.COLOURS[6]}
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


def acting(collection: Captions) -> list[int]:
    """The test captions, by row, that say once who chases, holds or rides whom."""
    return [
        row for row, graph in enumerate(collection.graphs["test"])
        if sum(data["label"] in ACTION_RELATIONS for *_, data in scenegraph.relations(graph)) == 1
    ]  # fmt: skip


def family(images: CaptionedImages, image: int = 0, count: int = FAMILY) -> Figure:
    """`count` pictures from `image` on with their first captions."""
    rows = range(image, image + count)
    captions = [images.captions[i][0] for i in rows]
    return plots.show_pictures([images.open_image(i) for i in rows], captions, columns=count)


def scored_family(
    collection: Captions, caption: int, scores: Mapping[str, np.ndarray], size: int = FAMILY
) -> Figure:
    """The family that a test caption is about, each model's score below each picture.

    caption: its row; scores: model -> cosines (test images, test captions); size: neighbours that
    are related. The caption's own picture is framed, each model's highest score marked.
    """
    own = int(collection.image_of("test")[caption])
    rows = own // size * size + np.arange(size)
    figure, axes = plt.subplots(1, size, figsize=(9, 2.9 + 0.2 * len(scores)))
    images = collection.images["test"]
    for number, (axis, row) in enumerate(zip(axes, rows, strict=True)):
        lines = [
            f"{name}: {table[row, caption]:.2f}"
            + " ◄" * bool(table[rows, caption].argmax() == number)
            for name, table in scores.items()
        ]
        axis.imshow(images.open_image(int(row)))
        axis.set(xticks=[], yticks=[])
        axis.set_xlabel("\n".join(lines), fontsize=9)
        axis.grid(visible=False)
        if row == own:
            axis.spines[:].set(visible=True, color=plots.TRUE, linewidth=4)
    text = collection.captions("test")[caption]
    figure.suptitle(f'"{text}": its own picture is framed, ◄ marks the highest cosine', fontsize=11)
    return figure


def _panels(evidence: Evidence, width: float, height: float, extra: float = 0) -> Any:
    """A figure, and an axis for each collection but those that a BERT reads: (name, axis), ..."""
    names = [name for name in evidence.datasets if not name.endswith(WITH_BERT)]
    size = width * len(names) + extra, height
    figure, axes = plt.subplots(1, len(names), figsize=size, squeeze=False)
    return figure, list(zip(names, axes[0], strict=True))


def overview(evidence: Evidence) -> Figure:
    """RSUM of each system, best first: a tick a seed, the mean with its 95 % interval.

    Without "Random", and with oracles as numbers at the edge, since beside either all others would
    look alike.
    """
    oracles = {row["system"] for row in ORACLES}
    rows = {name: with_rows(evidence, name, ORDER) for name in evidence.datasets}
    plain = [name for name in rows if not name.endswith(WITH_BERT)]
    figure, panels = _panels(evidence, 7, 0.24 * max(len(rows[name]) for name in plain) + 0.9)
    for dataset, axis in panels:
        names = [name for name in rows[dataset] if name != "Random"]
        values = {name: evidence.values(dataset, name, "RSUM") for name in names}
        names = sorted(names, key=lambda name: -values[name].mean())
        ranked = {name: values[name] for name in names}
        plots.ranked_systems(axis, ranked, evidence.clusters(dataset), SYSTEMS, {})
        highest = max(values[n].mean(axis=1).max() for n in names if n not in oracles)
        axis.set(xlabel="RSUM", title=dataset, xlim=(None, 1.05 * highest))
        for y, name in enumerate(names):
            if name in oracles:
                edge = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
                text = f"{values[name].mean():.0f} →"
                axis.annotate(text, (0.93, y), color="#777777", **edge)
    return figure


def curves(evidence: Evidence) -> Figure:
    """RSUM on dev over epochs, mean and range of seeds."""
    figure, panels = _panels(evidence, 5, 3.4, extra=3)
    colours = dict(zip((*COMPARED, VSE.system, AUTHORS.system), plots.COLOURS, strict=True))
    named: dict[str, Any] = {}  # a panel need not have all systems
    for dataset, axis in panels:
        for name, colour in colours.items():
            if evidence.has(dataset, name, "dev_RSUM", EPOCHS):
                curves = evidence.curves(dataset, name, "dev_RSUM")
                plots.curve_of_seeds(axis, curves, name, colour)
        axis.set(xlabel="epoch", ylabel=ON_DEV[1], title=dataset)
        handles, labels = axis.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    axis.legend(named.values(), named.keys(), fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
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
BOUND = (CORA.system, JOINT.system, SEQUENCE.system, BAG.system)  # of which figures have a line
SHORT = {SEQUENCE.system: "Sequence", TWO_STEP.system: "Two steps, caption losses"}
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
    figure, axes = plt.subplots(1, FAMILY, figsize=(9, 1.6 + 0.22 * len(scores)))
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
    figure, axis = plt.subplots(figsize=(6, 0.5 * len(bars) + 1.2))
    names = list(bars)[::-1]
    colours = [MORE_COLOURS[name] for name in names]
    labels = [SHORT.get(name, name) for name in names]
    drawn = axis.barh(labels, [bars[name] for name in names], color=colours)
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


def _trainings(evidence: Evidence, *datasets: str) -> str:
    """How many trainings of each system in `BOUND` collections have: "2 seeds", "1 to 3 seeds"."""
    counts = {
        len(evidence.means(dataset, system, "in family"))
        for dataset in datasets for system in BOUND
    } - {0}  # fmt: skip
    fewest, most = min(counts), max(counts)
    return f"{fewest} to {most} seeds" if fewest < most else f"{most} seed{'s' * (most > 1)}"


def binding_by_pictures(evidence: Evidence) -> Figure:
    """In family over training pictures, a line a system: the mean and the range of seeds.

    A panel for the smallest and for the largest vocabulary of which several numbers of pictures are
    recorded.
    """
    panels: dict[tuple[int, int], dict[int, str]] = {}
    for dataset in evidence.datasets:
        dials = RECORDED[dataset]
        if dataset.endswith(" families") and isinstance(dials, Dials):
            panels.setdefault((dials.kinds, dials.colours), {})[FAMILY * dials.families] = dataset
    several = sorted(words for words, sets in panels.items() if len(sets) > 1)
    ends = sorted({*several[:1], *several[-1:]})
    panels = {words: dict(sorted(panels[words].items())) for words in ends}
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3 * len(panels) + 3, 3.3), sharey=True, squeeze=False
    )
    for axis, ((kinds, colours), by_pictures) in zip(axes[0], panels.items(), strict=True):
        for name in BOUND:
            shares = _shares(evidence, by_pictures, name)
            if shares:
                line, low, high = (
                    [getattr(of_seeds, how)() for of_seeds in shares.values()]
                    for how in ("mean", "min", "max")
                )
                colour = MORE_COLOURS[name]
                axis.plot([*shares], line, "o-", color=colour, label=SHORT.get(name, name))
                axis.fill_between([*shares], low, high, color=colour, alpha=0.15)
        _chance(axis.axhline)
        title = f"{kinds} kinds × {colours} colours"
        axis.set(xscale="log", xlabel="training pictures", title=title, ylim=(0, 103),
                 xticks=[*by_pictures], xticklabels=[*by_pictures])  # fmt: skip
        axis.minorticks_off()
    axes[0, 0].set_ylabel("right in family in %")
    figure.suptitle("With more pictures the graph encoders learn who has what, a bag hardly")
    axes[0, -1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _by_region(evidence: Evidence) -> dict[tuple[float, float], str]:
    """(noise, mixing) -> the recorded collection that is `CLEAR` but for these."""
    cells = {}
    for dataset in evidence.datasets:
        dials = RECORDED[dataset]
        if (
            isinstance(dials, Dials)
            and replace(dials, noise=CLEAR.noise, mixing=CLEAR.mixing) == CLEAR
        ):
            cells[dials.noise, dials.mixing] = dataset
    return cells


def binding_by_regions(evidence: Evidence) -> Figure:
    """In family over noise and mixing of regions, a heat map a system."""
    cells = _by_region(evidence)
    noises, mixings = (sorted({key[i] for key in cells}) for i in (0, 1))
    names = (CORA.system, SEQUENCE.system, BAG.system)
    figure, axes = plt.subplots(1, len(names), figsize=(3.3 * len(names), 3.2))
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
    seeds = _trainings(evidence, *cells.values())
    figure.suptitle(f"Right in family in %; chance is {CHANCE:.0f}; {seeds} a cell")
    return figure


def binding_drawn(evidence: Evidence) -> Figure:
    """In family of the drawn collections on record, a line a system: mean and range of seeds."""
    drawn = [name for name, dials in RECORDED.items() if isinstance(dials, Clarity)]
    names = [name for name in drawn if name in evidence.datasets]
    figure, axis = plt.subplots(figsize=(9, 3.6))
    for system in BOUND:
        shares = _shares(evidence, dict(enumerate(names)), system)
        means = [of_seeds.mean() for of_seeds in shares.values()]
        reach = [np.abs([s.min(), s.max()] - s.mean()) for s in shares.values()]
        if shares:
            axis.errorbar([*shares], means, np.transpose(reach), fmt="o-", capsize=3,
                          color=MORE_COLOURS[system],
                          label=SHORT.get(system, system))  # fmt: skip
    _chance(axis.axhline)
    axis.set(
        ylabel="right in family in %",
        ylim=(0, 103),
        xticks=range(len(names)),
        xticklabels=[
            f"{name}\n{_trainings(evidence, name)}".replace(", ", ",\n") for name in names
        ],
        title="Who has what is learnt until captions are sentences that leave attributes out",
    )
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def binding_map(evidence: Evidence) -> Figure:
    """In family of the controlled collections that no other figure shows, and those drawn."""
    elsewhere = set(_by_region(evidence).values())
    rows = {
        name + ", alone" * unseen: (name, unseen)
        for name in RECORDED
        if name in evidence.datasets and name not in elsewhere and not name.endswith(" families")
        for unseen in (False, True) if name == UNSEEN or not unseen
    }  # fmt: skip
    shares = [
        [
            in_families(evidence, dataset, system, unseen).effect
            if evidence.has(dataset, system, "in family") else np.nan
            for system in BOUND
        ]
        for dataset, unseen in rows.values()
    ]  # fmt: skip
    figure, axis = plt.subplots(figsize=(7.5, 0.33 * len(rows) + 1))
    axis.imshow(shares, vmin=CHANCE, vmax=100, cmap="cividis", interpolation="none", aspect="auto")
    for y, of_systems in enumerate(shares):
        for x, share in enumerate(of_systems):
            colour = "white" if share < 60 else "black"
            axis.text(x, y, f"{share:.0f}", ha="center", va="center", color=colour)
    axis.set(xticks=range(len(BOUND)), xticklabels=[SHORT.get(name, name) for name in BOUND],
             yticks=range(len(rows)),
             yticklabels=[f"{y}; {_trainings(evidence, rows[y][0])}" for y in rows],
             title=f"Who has what, right in family in %; chance is {CHANCE:.0f}")  # fmt: skip
    axis.grid(visible=False)
    return figure


def binding_by_captions(controlled: Evidence, recorded: Sequence[Evidence]) -> Figure:
    """In family by how many attributes captions give a thing: mean and range of seeds.

    Made-up collections that differ in this alone, and the plain ones of `recorded`; those without
    families, such as photographs, have no dots.
    """
    sets = [
        (dials.described, name, controlled) for name, dials in RECORDED.items()
        if name in controlled.datasets and isinstance(dials, Dials)
        and dials.structure == CLEAR.structure
        and replace(dials, described=1.0, named=2) == CLEAR
    ]  # fmt: skip
    sets += [
        (attributes_said(evidence, name), name, evidence)
        for evidence in recorded
        for name in evidence.datasets
        if name == original(name)
    ]
    sets = sorted(sets, key=lambda row: -row[0])
    figure, axis = plt.subplots(figsize=(8, 0.42 * len(sets) + 1.3))
    for system in (CORA.system, SEQUENCE.system, BAG.system):
        label: str | None = SHORT.get(system, system)
        for y, (_, name, evidence) in enumerate(sets):
            if evidence.has(name, system, "in family"):
                of_seeds = evidence.means(name, system, "in family")
                axis.plot([of_seeds.min(), of_seeds.max()], [y, y], color=MORE_COLOURS[system])
                axis.plot(of_seeds.mean(), y, "o", color=MORE_COLOURS[system], label=label)
                label = None
    for y, (_, name, evidence) in enumerate(sets):
        if not evidence.has(name, CORA.system, "in family"):
            axis.text(CHANCE + 3, y, "no families to measure it in", va="center", fontsize=9)
    _chance(axis.axvline)
    names = [f"{COLLECTIONS.get(name, name)}: {said:.2g} a thing" for said, name, _ in sets]
    axis.set(xlabel="right in family in %", xlim=(0, 103), ylim=(len(sets) - 0.5, -0.5),
             yticks=range(len(sets)), yticklabels=names,
             title="The fewer attributes captions give a thing, the less is bound")  # fmt: skip
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def summary(recorded: Sequence[Evidence]) -> Figure:
    """The main systems on all plain collections: right in family, and RSUM, means with intervals.

    Of each system a mark for each collection; the dashed line is chance.
    """
    sets = [(name, e) for e in recorded for name in e.datasets if name == original(name)]
    names = (CORA.system, TWO_STEP.system, JOINT.system, VSE.system, SEQUENCE.system, BAG.system)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for axis, metric in zip(axes, ("in family", "RSUM"), strict=True):
        for k, (dataset, evidence) in enumerate(sets):
            offset = 0.22 * (k - (len(sets) - 1) / 2)
            for y, name in enumerate(names):
                if not evidence.has(dataset, name, metric):
                    continue
                values = evidence.values(dataset, name, metric)
                items = np.isfinite(values[0])
                mean = crossed(values[:, items], evidence.clusters(dataset)[items])
                reach = [[mean.effect - mean.low], [mean.high - mean.effect]]
                axis.errorbar(mean.effect, y + offset, xerr=reach, linestyle="", ms=5,
                              color=plots.COLOURS[k], marker="osD^v"[k])  # fmt: skip
    marks = [
        Line2D([], [], linestyle="", color=plots.COLOURS[k], marker="osD^v"[k],
               label=COLLECTIONS.get(name, name))
        for k, (name, _) in enumerate(sets)
    ]  # fmt: skip
    _chance(axes[0].axvline)
    axes[0].set(xlabel="right in family in %", title="Who has what", xlim=(0, 103),
                yticks=range(len(names)), yticklabels=[SHORT.get(n, n) for n in names],
                ylim=(len(names) - 0.5, -0.5))  # fmt: skip
    axes[1].set(xlabel="RSUM (at best 600)", title="Search", xlim=(0, None))
    marks.append(Line2D([], [], color="#333333", linestyle="--", linewidth=1, label="chance"))
    figure.legend(handles=marks, loc="outside lower center", ncol=len(marks), fontsize=9)
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
