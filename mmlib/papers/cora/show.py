"""What is shown of paper 03: its captions and models, its tables beside ours, and figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import ceil
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlib import scenegraph
from mmlib.core import plots
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.paths import table_beside
from mmlib.core.ranking import KS
from mmlib.core.records import CaptionedImages
from mmlib.core.tables import Cells, beside, mean_and_deviation, paper_tables, table
from mmlib.papers.cora.claims import captions_and_images, plain
from mmlib.papers.cora.data.controlled import RECORDED, ControlledImages
from mmlib.papers.cora.data.world import FAMILY
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.systems import COMPARED, ORDER, WITH_BERT, Settings, original

CORA, TWO_STEP, JOINT, SEQUENCE, BAG, VSE, AUTHORS = (row.system for row in (
    systems.CORA, systems.TWO_STEP, systems.JOINT, systems.SEQUENCE, systems.BAG, systems.VSE,
    systems.AUTHORS,
))  # fmt: skip
_TABLE = table_beside(__file__)
OUR_NAMES, NAMES_IN, FIELDS, MAIN, COLLECTIONS, SHORT, BOUND, BERTS = (_TABLE[name] for name in (
    "names", "names_in", "fields", "main", "collections", "short", "stalled", "with BERT",
))  # fmt: skip
COLOURS = dict(zip((*COMPARED, JOINT), (*plots.COLOURS[:5], plots.COLOURS[6]), strict=True))
ON_DEV = "dev_RSUM", "RSUM on dev"
OF_COCO = ("table2", "table6")
BESIDE = ("table1", "table3", "table5", *OF_COCO)
CHANCE = 100 / FAMILY
IDEAL = {systems.IDEAL_BAG["system"]: "|", systems.ORACLES[-1]["system"]: "*"}  # marks of readers
MARKS = "osD^vP"  # of systems or collections, which colour alone should not tell apart

# --- Tables --------------------------------------------------------------------------------------


def tables(evidence: Evidence) -> Mapping[str, Callable[[], pd.DataFrame]]:
    """All tables that need nothing but evidence, by name; those of a collection end with its."""
    if evidence.header["tier"] == systems.CONTROLLED_TIER:
        rows = {name: Cells(evidence, name) for name in evidence.datasets}
        return {
            "binding": lambda: table(rows, ORDER, lambda r, s: r.percentage(s, "in family"), None),
            "stalled": lambda: table([*rows], BOUND, lambda r, s: _stalled(evidence, r, s), None),
        }
    of_plain: dict[str, Callable[..., pd.DataFrame]] = dict(
        leads=_leads,
        **{n: partial(_beside_printed, number=n) for n in BESIDE},
        table4=_reranking, families=_families, times=_times,
        parse_errors=_parse_errors,
    )  # fmt: skip
    makers: dict[str, Callable[[], pd.DataFrame]] = {}
    for name in evidence.datasets:
        left_out = ("table1", "table3", "table5") if name == "coco" else OF_COCO
        more = {title: of for title, of in of_plain.items() if title not in left_out}
        more = more if name == original(name) else {"leads": _leads}
        more |= {"swaps": told_swaps} if name.endswith(tuple(systems.REGIONS)) else {}
        if name.endswith(WITH_BERT):
            more = {"table7": partial(_beside_printed, number="table7")}
        every = {"results": results, **more}
        makers |= {f"{title}_{name}": partial(of, evidence, name) for title, of in every.items()}
    return makers


def told_swaps(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """How often captions score above their swaps, in percent: a row a system, a column a kind."""
    metrics = evidence.metrics(dataset, systems.TRIGRAMS["system"])
    kinds = {metric.removeprefix("swap "): metric for metric in metrics}
    return table(ORDER, kinds, Cells(evidence, dataset).percentage)


def _times(evidence: Evidence, dataset: str) -> pd.DataFrame:
    steps = evidence.metrics(dataset, systems.QUERY_TIME, EPOCHS)
    times = {s: np.median(evidence.curves(dataset, systems.QUERY_TIME, s)) for s in steps}
    return pd.DataFrame({"ms": 1000 * pd.Series(times, dtype=float)}).round(2)


def with_rows(evidence: Evidence, dataset: str, names: Iterable[str]) -> list[str]:
    """Those of the systems that are in the record."""
    return [name for name in names if evidence.has(dataset, name, "rank")]


def _recalls(
    evidence: Evidence, dataset: str, system: str, metric: str = "rank"
) -> dict[str, np.ndarray]:
    """R@K and median ranks both ways and RSUM: metric -> (seeds,)."""
    captions, images = captions_and_images(evidence, dataset)
    ranks = evidence.values(dataset, system, metric)
    of = {"i2t": ranks[:, images], "t2i": ranks[:, captions]}
    values = {f"{way}_r{k}": 100 * (r <= k).mean(axis=1) for way, r in of.items() for k in KS}
    values["rsum"] = np.sum(list(values.values()), axis=0)
    return values | {f"{way}_medr": np.median(of[way], axis=1) for way in ("t2i", "i2t")}


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system: R@K and median ranks both ways and RSUM, mean ± deviation over seeds.

    "↗" flags a system that still improved on dev at the end of more than a fifth of its trainings.
    """
    rows = {
        name: _recalls(evidence, dataset, system)
        for name, system in Cells(evidence, dataset).named(ORDER, "rank").items()
    }
    metrics = list(next(iter(rows.values()), {}))
    return table(rows, metrics, lambda of, metric: mean_and_deviation(of[metric]))


def printed(number: str) -> pd.DataFrame:
    """A printed table by our names; of its rows with BERT and of equal ones only the first."""
    content = paper_tables(systems.PAPER)[number]
    names = NAMES_IN.get(number, OUR_NAMES)
    rows: dict[str, Any] = {}
    for row in content["rows"]:
        bert = " (BERT)" if "BERT" in row.get("section", "") and "BERT" not in row["name"] else ""
        rows.setdefault(names.get(row["name"], row["name"]) + bert, row["values"])
    return pd.DataFrame.from_dict(rows, orient="index")[content["columns"]]


def _beside_printed(evidence: Evidence, dataset: str, number: str) -> pd.DataFrame:
    """A printed table beside ours; of MS-COCO 2 and 6 have both tests, Table 7 the small one."""
    paper = printed(number)
    trained = systems.TABLES.get("table1" if number == "table2" else number, ())
    untrained = [row["system"] for row in (*systems.BASELINES, *systems.ORACLES)]
    names = dict.fromkeys([*paper.index, *trained, *untrained])
    terms = {name: (dataset, name) for name in with_rows(evidence, dataset, names)}
    terms |= {n: (dataset + WITH_BERT, s) for n, s in BERTS.items() if n in paper.index}

    def cell(term: tuple[str, str], column: str) -> str | None:
        test, metric = column.split("_", 1) if number in OF_COCO else ("", column)
        folds = evidence.has(*term, "rank, 1K")
        if test == "coco5k" and not folds:
            return None  # it is another number of images
        small = folds and (test == "coco1k" or number == "table7")
        recalls = _recalls(evidence, *term, "rank, 1K" if small else "rank")
        return mean_and_deviation(recalls[metric])

    return beside(table(terms, paper.columns, cell), paper)


def main(recorded: Iterable[Evidence]) -> pd.DataFrame:
    """RSUM of the main systems, mean ± deviation: the paper's, and ours on each collection."""
    paper = printed("table3").rsum.to_dict() | printed("table1").rsum.to_dict()
    columns: dict[str, Any] = {"the paper, Flickr30K": None}
    columns |= {COLLECTIONS.get(name, name): (e, name) for e in recorded for name in plain(e)}

    def cell(system: str, column: tuple[Evidence, str] | None) -> str | None:
        if column is None:
            return f"{paper[system]:.1f}" if system in paper else None
        evidence, name = column
        means = evidence.means(name, system, "RSUM")
        return mean_and_deviation(means, 0) if len(means) else None

    return table(MAIN, columns, cell).rename_axis("RSUM")


def _reranking(evidence: Evidence, dataset: str) -> pd.DataFrame:
    rows: dict[str, dict[str, float]] = {}
    paper = printed("table4").rsum
    for name in systems.SYSTEMS:
        for metric, row in (("RSUM", name), ("RSUM, reranked", f"{name}, reranked")):
            if evidence.has(dataset, name, "RSUM, reranked"):
                ours = evidence.means(dataset, name, metric)
                rows[row] = {"paper": paper.get(row), "ours": ours.mean(), "sd": ours.std()}
    rows |= {row: {"paper": paper[row]} for row in paper.index if row.endswith("(BERT)")}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["paper", "ours", "sd"])
    return frame.round(1).astype(object).fillna("–")


def _leads(evidence: Evidence, dataset: str) -> pd.DataFrame:
    columns, rows = systems.systems(evidence.header["tier"], dataset), {}
    for pair in systems.COMPARISONS:
        if len(with_rows(evidence, dataset, pair)) == 2:
            a, b = (columns[name] for name in pair)
            kinds = [kind for kind, of in FIELDS.items() if any(a.get(f) != b.get(f) for f in of)]
            terms = dict(zip([(name, "RSUM") for name in pair], (1, -1), strict=True))
            effect = Cells(evidence, dataset).effect(terms)
            rows[pair] = {"RSUM": effect.told(1), "differ in": ", ".join(kinds)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["system", "minus"])


def _families(evidence: Evidence, dataset: str) -> pd.DataFrame:
    return table(ORDER, {"right in %": "in family"}, Cells(evidence, dataset).percentage)


def _stalled(evidence: Evidence, dataset: str, *names: str) -> str | None:
    """Of a collection's trainings those that end ten points below the best of their system."""
    levels = [evidence.means(dataset, name, "in family") for name in names]
    far = np.concatenate([level < max(level, default=0) - 10 for level in levels])
    return f"{far.sum()} of {len(far)}" if len(far) else None


def _parse_errors(evidence: Evidence, dataset: str) -> pd.DataFrame:
    cells, names = Cells(evidence, dataset), ("error", "% of captions")
    rows = {(kind, rate): f"RSUM, {kind} {rate} %"
            for kind, rate in product(systems.ERRORS, systems.RATES)}  # fmt: skip
    shares = {"RSUM": 1, f"kept beyond {systems.LITTLE_HARM:.0%}": systems.LITTLE_HARM}

    def cell(hurt: str, share: float) -> str:
        return cells.effect({(CORA, hurt): 1, (CORA, "RSUM"): -share}).told(1)

    frame = table(rows, shares, cell)
    return frame.rename_axis(names) if len(frame) else frame


# --- Figures of captions and models --------------------------------------------------------------


def question(pictures: CaptionedImages, image: int, caption: str) -> Figure:
    """A family of pictures, and the graph of a caption that is to be found among them.

    image: the row of the picture that it describes, which is framed.
    """
    figure = plt.figure(figsize=(9, 4.4))
    panels: Any = figure.subfigures(2, 1, height_ratios=(4, 3))
    above, below = panels
    for row, axis in enumerate(above.subplots(1, FAMILY), image // FAMILY * FAMILY):
        axis.imshow(pictures.open_image(row))
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set(visible=row == image, color=plots.TRUE, linewidth=4)
    above.suptitle(f'Which picture is "{caption}"?', fontsize=11)
    (graph,) = scenegraph.parse([caption])
    title = "Its graph: objects blue, attributes orange, relations as arrows"
    scenegraph.draw(graph, below.subplots(), title=title)
    return figure


def training(name: str, settings: Settings, history: Sequence[Mapping[str, float]]) -> Figure:
    """Training loss and RSUM on dev of the epochs so far.

    A line marks where L_HARD turns from averaged to hardest negatives, and so has another scale.
    """
    figure = plots.training_curves({name: history}, *ON_DEV)
    for axis in figure.axes:
        axis.set_xlim(0.5, settings.epochs + 0.5)
    figure.suptitle(f"{name}: epoch {len(history)} of {settings.epochs}", fontsize=10)
    if settings.mean_negatives:
        turn = ceil(settings.mean_negatives * settings.epochs) + 0.5
        line = figure.axes[0].axvline(turn, color="#333333", linestyle=":")
        figure.axes[0].legend([line], ["hardest negatives from here"], fontsize=8)
    return figure


def show_training(name: str, settings: Settings, history: Sequence[Mapping[str, float]]) -> None:
    """In a notebook, after each epoch: `training`; after the last one nothing is left of it."""
    from IPython.display import clear_output, display

    clear_output(wait=len(history) < settings.epochs)
    if len(history) < settings.epochs:
        display(figure := training(name, settings, history))
        plt.close(figure)  # else it is shown again at the cell's end


def controlled_family(
    images: ControlledImages, image: int, scores: Mapping[str, np.ndarray]
) -> Figure:
    """What each picture of an image's family shows, and below it models' scores, the best bold.

    image: its row, which is framed; scores: model -> (images,), those of a caption.
    """
    rows = range(image // FAMILY * FAMILY, (image // FAMILY + 1) * FAMILY)
    figure, axes = plt.subplots(1, FAMILY, figsize=(9, 1.6 + 0.22 * len(scores)))
    kinds = sorted(fact[1] for fact in images.facts[image] if len(fact) == 2)
    for axis, row in zip(axes, rows, strict=True):
        colour_of = {fact[1]: fact[0] for fact in images.facts[row] if len(fact) == 2}
        for y, kind in enumerate(kinds):
            colour = "gold" if colour_of[kind] == "golden" else colour_of[kind]
            axis.scatter(0.08, -y, s=80, marker="s", color=colour, edgecolor="#555555")
            axis.text(0.2, -y, f"{colour_of[kind]} {kind}", va="center", fontsize=9)
        for y, (name, cosines) in enumerate(scores.items(), len(kinds) + 1):
            weight = "bold" if cosines[row] == cosines[rows].max() else "normal"
            axis.text(0, -y, f"{name}: {cosines[row]:.2f}", va="center", fontsize=8, weight=weight)
        axis.set(xlim=(-0.05, 1), ylim=(-len(kinds) - len(scores) - 0.5, 0.7), xticks=[], yticks=[])
        frame = {"color": plots.TRUE, "linewidth": 3} if row == image else {"color": "#cccccc"}
        axis.spines[:].set(visible=True, **frame)
    return figure


def in_family(bars: Mapping[str, float], ideal_bag: float, title: str = "") -> Figure:
    """How often captions find their picture in its family, a bar a system, in percent.

    ideal_bag: what an ideal bag of words would reach, a line beside that of chance.
    """
    figure, axis = plt.subplots(figsize=(6, 0.5 * len(bars) + 1.2))
    names = list(bars)[::-1]
    labels = [SHORT.get(name, name) for name in names]
    colours = [COLOURS.get(name, "#555555") for name in names]
    drawn = axis.barh(labels, [bars[name] for name in names], color=colours)
    axis.bar_label(drawn, fmt="%.0f", padding=3)
    plots.chance_line(axis, CHANCE, upright=True)
    axis.axvline(ideal_bag, color="#d55e00", linestyle=":", linewidth=3, label="ideal bag of words")
    axis.set(xlim=(0, 105), xlabel="captions that find their picture in its family in %")
    figure.suptitle(title, fontsize=10)
    axis.legend(loc="lower right", fontsize=8)
    return figure


# --- Figures of the evidence ---------------------------------------------------------------------


def figures(evidence: Evidence) -> Mapping[str, Callable[[], Figure]]:
    """All figures that need nothing but evidence, by file name."""
    if evidence.header["tier"] == systems.CONTROLLED_TIER:
        of = {("binding", ""): binding_map, ("drawn", "drawn"): binding_drawn}
        return {n: partial(draw, evidence) for (n, k), draw in of.items() if _trained(evidence, k)}
    panels: dict[str, Any] = {}
    for name in (name for name in evidence.datasets if not name.endswith(WITH_BERT)):
        shown = [row for row in with_rows(evidence, name, ORDER) if row != "Random"]
        values = {row: evidence.values(name, row, "RSUM") for row in shown}
        best_first = dict(sorted(values.items(), key=lambda row: -row[1].mean()))
        panels |= {name: (best_first, evidence.clusters(name))} if shown else {}
    oracles = {row["system"] for row in systems.ORACLES}
    label = "RSUM (at best 600)"
    overview = partial(plots.overview, panels, systems.SYSTEMS, label, aside=oracles)
    made = {"overview": overview, "curves": partial(curves, evidence)} if panels else {}
    told = any(name.endswith(systems.THINGS) for name in evidence.datasets)
    return made | ({"swaps": partial(swaps, evidence)} if told else {})


def curves(evidence: Evidence, compared: Sequence[str] = (*COMPARED, VSE, AUTHORS)) -> Figure:
    """RSUM on dev over the epochs, of the systems that are compared."""
    return plots.curves({
        (COLLECTIONS.get(name, name), ON_DEV[1]): {
            SHORT.get(row, row): evidence.curves(name, row, ON_DEV[0])
            for row in compared if evidence.has(name, row, ON_DEV[0], EPOCHS)
        }
        for name in evidence.datasets if not name.endswith(WITH_BERT)
    })  # fmt: skip


def swaps(evidence: Evidence, kinds: Sequence[str] = ("attributes", "ends")) -> Figure:
    """How often captions of photographs are told from their swaps, a panel a kind."""
    cells = Cells(evidence, "flickr8k" + systems.THINGS)
    names = list(cells.named(ORDER, f"swap {kinds[0]}").values())
    figure, axes = plt.subplots(1, len(kinds), figsize=(10, 0.4 * len(names) + 1.5), sharey=True)
    for axis, kind in zip(axes, kinds, strict=True):
        series = {
            label: {y: plots.span(cells.effect({(name, f"swap {kind}{end}"): 1}))
                    for y, name in enumerate(names)}
            for label, end in (("all captions", ""), ("trigrams find half", ", as plausible"))
        }  # fmt: skip
        plots.spans(axis, series, shift=0.3)
        plots.chance_line(axis, 50, upright=True)
        plots.name_rows(axis, [SHORT.get(name, name) for name in names])
        axis.set(title=f"{kind} exchanged", xlabel="caption above its swap in %", xlim=(0, 103))
    plots.legend_below(figure)
    return figure


def _trained(evidence: Evidence, kind: str = "") -> dict[str, list[str]]:
    """The controlled collections on record whose names begin so, each with its trained systems."""
    trained = {
        name: [s for s in ORDER if s not in IDEAL and evidence.has(name, s, "in family")]
        for name in RECORDED if name.startswith(kind)
    }  # fmt: skip
    return {name: names for name, names in trained.items() if names}


def binding_drawn(evidence: Evidence) -> Figure:
    """Right in family of the drawn collections on record, a row each: mean and range of seeds.

    A hollow mark is one training. Beside them guessing, and ideal readers of words and of graphs.
    """
    trained = _trained(evidence, "drawn")
    shown = [name for name in ORDER if any(name in names for names in trained.values())]
    figure, axis = plt.subplots(figsize=(9, 1.3 + (0.2 + 0.18 * len(shown)) * len(trained)))
    level = partial(evidence.means, metric="in family")
    for k, name in enumerate(shown):
        mark, colour = MARKS[k % len(MARKS)], COLOURS.get(name, "#555555")
        by = 0.7 * ((k + 0.5) / len(shown) - 0.5)
        of = {y + by: level(d, name) for y, d in enumerate(trained) if name in trained[d]}
        ends = {y: (shares.mean(), shares.min(), shares.max()) for y, shares in of.items()}
        plots.spans(axis, {SHORT.get(name, name): ends}, [colour], style=mark)
        once = {y: shares.mean() for y, shares in of.items() if len(shares) == 1}
        axis.plot([*once.values()], [*once], mark, ms=5, color=colour, mfc="white", zorder=3)
    for name, mark in IDEAL.items():
        shares = [level(dataset, name).mean() for dataset in trained]
        look: dict[str, Any] = {"ms": 18 if mark == "|" else 9, "mew": 2, "color": "#555555"}
        axis.plot(shares, range(len(trained)), mark, label=SHORT.get(name, name), **look)
    plots.chance_line(axis, CHANCE, upright=True)
    plots.name_rows(axis, [f"{d}\nseeds: {len(evidence.seeds_of(d))}" for d in trained])
    bag, _ = IDEAL
    above = [level(d, CORA).min() > level(d, bag).max() for d in trained if CORA in trained[d]]
    title = f"CORA is above an ideal bag of words in {sum(above)} of {len(above)} collections"
    axis.set(title=title, xlabel="captions that find their picture in its family in %",
             xlim=(0, 103))  # fmt: skip
    plots.legend_below(figure)
    return figure


def binding_map(evidence: Evidence) -> Figure:
    """In family of the controlled collections, and ideal readers of words and of graphs."""
    trained = _trained(evidence)
    labels = {}
    for name, of in trained.items():
        stalled = _stalled(evidence, name, *of)
        labels[f"{name}; seeds: {len(evidence.seeds_of(name))}, stalled: {stalled}"] = name
    shown = [name for name in ORDER if any(name in names for names in trained.values())]
    columns = {SHORT.get(s, s).replace(" ", "\n"): s for s in (*shown, *IDEAL)}
    grid = table(labels, columns, lambda r, s: Cells(evidence, r).mean(s, "in family"), None)
    figure, axis = plt.subplots(figsize=(10.5, 0.33 * len(grid) + 1.4))
    plots.heat_map(axis, grid, CHANCE, 100)
    axis.set_title(f"Captions right in their family, %; chance is {CHANCE:.0f}")
    return figure


def summary(recorded: Sequence[Evidence]) -> Figure:
    """Right in family, and RSUM, of the main systems on all plain collections."""
    names = (CORA, TWO_STEP, JOINT, VSE, SEQUENCE, BAG)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for axis, metric in zip(axes, ("in family", "RSUM"), strict=True):
        for k, (evidence, dataset) in enumerate((e, name) for e in recorded for name in plain(e)):
            spans = {
                y + 0.2 * k - 0.3: plots.span(Cells(evidence, dataset).effect({(name, metric): 1}))
                for y, name in enumerate(names) if evidence.has(dataset, name, metric)
            }  # fmt: skip
            if spans:
                series = {COLLECTIONS.get(dataset, dataset): spans}
                plots.spans(axis, series, plots.COLOURS[k:], style=MARKS[k])
    plots.chance_line(axes[0], CHANCE, upright=True)
    plots.name_rows(axes[0], [SHORT.get(name, name) for name in names])
    axes[0].set(xlabel="in %", title="Captions right in their family", xlim=(0, 103))
    axes[1].set(xlabel="RSUM (at best 600); bars: 95 % intervals", title="Search", xlim=(0, None))
    plots.legend_below(figure)
    return figure
