"""What is shown of paper 01: its pairs and models, its tables beside ours, and figures."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from mmlib.core import plots
from mmlib.core.effects import Effect
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.paths import table_beside
from mmlib.core.records import RelatedPairs
from mmlib.core.tables import Cells, Term, paper_values, table
from mmlib.papers.coherence import method, run
from mmlib.papers.coherence.claims import at_defaults, ratio
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.controlled import CUES, ControlledPairs
from mmlib.papers.coherence.run import PAIRS, REFINED
from mmlib.world.drawing import draw
from mmlib.world.scenes import new_thing
from mmlib.world.schema import KINDS, Scene, box

ON_DEV = "dev_loss", "mean log2 rank on dev"
GAINED = "gain over CMCA, log2 ranks"
POOL_METRICS = ("MedR", "R@1", "R@5", "R@10")
CMCA, CMCM, FIRST = (s.system for s in (run.CMCA, run.CMCM, run.single("first")))
CMCA_RANK, CMCM_RANK, CMCA_ORACLE = (CMCA, "rank"), (CMCM, "rank"), (CMCA, "rank, true relations")
FUSED = {
    "CMCA + relations told by words": (CMCA, "rank, told relations"),
    "CMCA + true relations": CMCA_ORACLE,
}
CITES = (collections.CITE_LIKE, "cite", "cite++")  # beside them stand the figures of CITE++
# λ_cls -> the system that learns all relations with it
WEIGHTS = dict(sorted((system.lambda_cls, system.system) for system in (run.CMCM, *run.SWEPT)))
_TABLE = table_beside(__file__)
WORTH: dict[str, tuple[str, str, str]] = _TABLE["worth"]  # kind of data -> tier, collection, system

# --- Tables --------------------------------------------------------------------------------------


def tables(evidence: Evidence) -> Mapping[str, Callable[[], pd.DataFrame]]:
    """All tables that need nothing but evidence, by name; those of a collection end with its."""
    if evidence.header["tier"] != "controlled":
        made = (results, main_table, refinement, predicted, probes, table7)
        names = at_defaults(evidence)
        return {
            f"{of.__name__}_{name}": partial(of, evidence, name) for name in names for of in made
        }
    gains = controlled_gains(evidence)
    systems = ("Oracle of things", CMCA, *WEIGHTS.values(), FIRST, "Oracle of relations")
    rows = list(dict.fromkeys(name for of in gains.values() for name in of))
    return {
        "levels": lambda: table(systems, list(gains), lambda system, name: (
            _logs(evidence, name).effect({(system, "rank"): 1}).told(2, sign=""))),
        "gains": lambda: table(rows, gains, lambda row, of: of[row].told() if row in of else None),
    }  # fmt: skip


def _logs(evidence: Evidence, dataset: str) -> Cells:
    return Cells(evidence, dataset, figure=np.log2)


def gain(evidence: Evidence, dataset: str, better: Term, worse: Term = CMCA_RANK) -> Effect:
    """What one ranking gains over another in log2 ranks, over seeds and texts."""
    return _logs(evidence, dataset).effect({better: -1, worse: 1})


def rankings(evidence: Evidence, dataset: str) -> dict[str, Term]:
    """Our name of each way to rank -> (system, metric): baselines, systems, fusions."""
    names = ["Random", "Ridge", *(system.system for system in run.trained_systems(dataset))]
    terms = {name: (name, "rank") for name in names} | FUSED
    return {name: term for name, term in terms.items() if evidence.has(dataset, *term)}


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Mean log2 rank of each ranking, what it gains over CMCA, and as a share of the oracle's gain.

    Shares stand only where the oracle gains for certain; ↓ marks systems that still improved.
    """
    cells = _logs(evidence, dataset)

    def level(term: Term) -> str:
        of_seeds = cells.of_seeds(*term)
        spread = f" ± {of_seeds.std(ddof=1):.2f}" if len(of_seeds) > 1 else ""
        return f"{of_seeds.mean():.2f}{spread}"

    def share(term: Term) -> str:
        # Of the same seeds: a term that counts 0 leaves out those that it lacks.
        pairs = {CMCA_ORACLE: 0, term: -1, CMCA_RANK: 1}, {term: 0, CMCA_ORACLE: -1, CMCA_RANK: 1}
        gained, most = map(cells.values, pairs)
        return ratio(gained, most, evidence.clusters(dataset)).told(0, times=100)

    columns: dict[str, Callable[[Term], str]] = {"log2 rank": level}
    if cells.has(CMCA_RANK):
        columns["gain over CMCA"] = lambda term: gain(evidence, dataset, term).told()
        if cells.has(CMCA_ORACLE) and gain(evidence, dataset, CMCA_ORACLE).low > 0:
            columns["in % of the oracle's gain"] = share
    rows = {
        name + " ↓" * evidence.unfinished(dataset, term[0]): term
        for name, term in rankings(evidence, dataset).items()
    }
    return table(rows, columns, lambda term, write: (
        write(term) if write is level or term != CMCA_RANK else None))  # fmt: skip


def main_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 4 or 5 beside ours: MedR and R@1, 5, 10 of θ and θ̄ in the same pools of 500.

    "pools": standard deviation of MedR over the pools of a training, which is the paper's ±.
    """
    paper = paper_values("coherence", "table4" if dataset in CITES else "table5").astype(float)
    cells = Cells(evidence, dataset, "pools")

    def cell(name: str, column: tuple[str, str]) -> float | None:
        metric, of = column
        if of.startswith("paper"):
            printed = "MedR_std" if of == "paper's ±" else metric
            return paper.loc[name, printed] if name in paper.index else None
        if of == "pools":
            return float(cells.values({(name, "MedR"): 1}).std(axis=1, ddof=1).mean())
        if of == "seeds":
            return pd.Series(cells.of_seeds(name, "MedR")).std()
        return cells.mean(name, metric if of == "θ" else f"{metric}, refined")

    columns = [("MedR", "paper"), ("MedR", "paper's ±"), ("MedR", "θ"), ("MedR", "θ̄"),
               ("± of θ", "pools"), ("± of θ", "seeds"),
               *product(POOL_METRICS[1:], ("paper", "θ", "θ̄"))]  # fmt: skip
    ours = (*run.SYSTEMS, *map(run.single, collections.relations_of(dataset)))
    names = ["Random", "Ridge", *(system.system for system in ours), *paper.index]
    return table([*dict.fromkeys(names)], columns, cell, digits=1)


def human_study(n: int = 100) -> pd.Series:
    """t of the paper's own Table 6, if each relation had n questions; it prints no n.

    The paper states t > 14.1 everywhere.
    """
    shares = paper_values("coherence", "table6")[["Better", "Worse"]].astype(float) / 100
    mean, square = shares.Better - shares.Worse, shares.sum(axis=1)
    return mean / np.sqrt((square - mean**2) / (n - 1))


def table7(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 7 beside ours: the test texts of which a relation holds, in pools of 500, unrefined."""
    paper, cells = paper_values("coherence", "table7"), Cells(evidence, dataset)
    systems = (CMCA, CMCM)
    rows = [*product(collections.CITE if dataset in CITES else collections.CLUE, systems)]
    ours: dict[tuple[str, str], dict[str, Any]] = {}
    for relation, name in rows:
        if cells.has((PAIRS, relation), (name, "rank")):
            holds = cells.values({(PAIRS, relation): 1})[0] > 0
            ranks = cells.values({(name, "rank"): 1})
            figures = [
                method.expected_in_pools(row[holds], len(row)) for row in ranks if holds.any()
            ]
            ours[relation, name] = {"texts": str(holds.sum()), **pd.DataFrame(figures).mean()}

    def cell(row: tuple[str, str], column: tuple[str, str]) -> Any:
        metric, of = column
        if of == "paper":
            return paper.loc[" / ".join(row), metric]
        return ours.get(row, {}).get(metric)

    columns = [("texts", "ours"), *product(POOL_METRICS, ("paper", "ours"))]
    return table(rows, columns, cell, digits=1)


def refinement(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What θ̄ gains over θ, in log2 ranks: under both T, as dev chose; and ranking by η alone."""
    return table(
        evidence.systems(dataset), _TABLE["refinement"],
        lambda name, metric: gain(evidence, dataset, (name, metric), (name, "rank")).told(3),
    )  # fmt: skip


def _by_relation(evidence: Evidence, dataset: str, columns: Mapping[Any, Term]) -> pd.DataFrame:
    means = {
        label: evidence.values(dataset, *term, split="relations").mean(axis=0)
        if evidence.has(dataset, *term, "relations") else np.nan
        for label, term in columns.items()
    }  # fmt: skip
    return pd.DataFrame(means, index=list(collections.relations_of(dataset))).round(2)


def predicted(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 8 beside ours: average precision of each relation, and where it comes from."""
    ours = _by_relation(evidence, dataset, _TABLE["predicted"])
    if dataset not in CITES:
        printed = paper_values("coherence", "table8").loc[CMCM]
        ours.insert(0, "CMCM, paper", printed.reindex(ours.index))
    return ours


def probes(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Average precision of linear probes of CMCA's and CMCM's vectors, means over seeds."""
    return _by_relation(evidence, dataset, {
        (of, name): (name, f"AP of {of}") for of in ("z_S", "z_I", "both") for name in (CMCA, CMCM)
    })  # fmt: skip


def dials(evidence: Evidence) -> dict[str, dict[tuple[float, float], Effect]]:
    """Title -> (signal, telling) -> gain over CMCA, on every Clue-like collection that has it."""
    return {
        title: {
            at: gain(evidence, name, term)
            for name, at in collections.DIALS.items()
            if Cells(evidence, name).has(term, CMCA_RANK)
        }
        for title, term in {"CMCM": CMCM_RANK, **FUSED}.items()
    }


def controlled_gains(evidence: Evidence) -> dict[str, dict[str, Effect]]:
    """Collection -> system -> its gain over CMCA in log2 ranks; of refinement, over none."""
    terms = {name: ((name, "rank"), CMCA_RANK) for name in (*WEIGHTS.values(), FIRST)}
    terms["refinement of CMCM"] = ((CMCM, REFINED), CMCM_RANK)
    return {
        dataset: {
            name: gain(evidence, dataset, *pair)
            for name, pair in terms.items()
            if Cells(evidence, dataset).has(*pair)
        }
        for dataset in collections.CONTROLLED
        if dataset in evidence.datasets
    }


def relations_worth(evidence: Mapping[str, Evidence]) -> dict[str, dict[str, Effect]]:
    """Kind of data -> what "learning" and "knowing" the relations gain over CMCA, in log2 ranks.

    evidence: by tier. Learning is CMCM, knowing an oracle: of made-up pairs the reader that knows
    all relations, elsewhere CMCA with the true relations added.
    """
    worth = {}
    for kind, (tier, dataset, system) in WORTH.items():
        oracle = ("Oracle of relations", "rank") if tier == "controlled" else CMCA_ORACLE
        terms = {"learning": (system, "rank"), "knowing": oracle}
        worth[kind] = {name: gain(evidence[tier], dataset, term) for name, term in terms.items()}
    return worth


# --- Figures of pairs and models -----------------------------------------------------------------


def two_texts(pairs: ControlledPairs) -> Figure:
    """Two made-up texts of one thing's picture, a row each, and framed what the relation picks.

    They are the first of which the world can draw all things, and whose relations differ.
    """
    first: dict[str, int] = {}  # what a picture shows -> the first row that does
    relation = np.array(pairs.relations)[pairs.labels.argmax(axis=1)]
    for row, words in enumerate(map(str.split, pairs.texts)):
        if {*words} <= {*KINDS, *CUES}:
            other = first.setdefault(pairs.shown[row], row)
            if relation[other] != relation[row]:
                break
    figure, axes = plt.subplots(2, len(words), figsize=(1.7 * len(words), 4.3))
    for i, line in zip((other, row), axes, strict=True):
        for word, axis in zip(pairs.texts[i].split(), line, strict=True):
            axis.set(xticks=[], yticks=[])
            axis.set_xlabel(word, fontsize=12)
            axis.grid(visible=False)
            axis.spines[:].set(visible=word == pairs.shown[i], color=plots.TRUE, linewidth=4)
            if word in CUES:
                axis.text(0.5, 0.5, f"means:\nthe {relation[i]}", ha="center", va="center")
                continue
            thing = replace(new_thing(np.random.default_rng(2), word), size="medium", x=0.5, y=0.75)
            left, top, right, bottom = 512 * np.array(box(thing))
            half = 0.65 * max(right - left, bottom - top)
            x, y = (left + right) / 2, (top + bottom) / 2
            picture = draw(Scene((thing,), (), "park", "flat", 0), 512)
            axis.imshow(picture.crop((x - half, y - half, x + half, y + half)))
    return figure


def _labelled_text(pairs: RelatedPairs, row: int) -> str:
    names = [n for n, holds in zip(pairs.relations, pairs.labels[row], strict=True) if holds]
    return f"“{pairs.texts[row]}” [{', '.join(names) or 'none'}]"


def one_of_each(pairs: RelatedPairs) -> Figure:
    """For every relation the first pair of which it holds, and no earlier one shown."""
    rows: list[int] = []
    for holds in pairs.labels.T:
        rows += [int(i) for i in np.flatnonzero(holds) if i not in rows][:1]
    assert pairs.open_image is not None
    images = [pairs.open_image(int(pairs.image_of[i])) for i in rows]
    titles = [_labelled_text(pairs, i) for i in rows]
    return plots.show_pictures(images, titles, columns=len(rows), size=2.1)


def attention_figure(words: Sequence[str], weights: Mapping[str, np.ndarray]) -> Figure:
    """Fig. 7: the weights of a text's words, a bar a system."""
    figure, axis = plt.subplots(figsize=(9, 2.4))
    table = pd.DataFrame(weights, words[: len(next(iter(weights.values())))])
    table.plot.bar(ax=axis, width=0.8, rot=0 if len(table) < 15 else 45, legend=False)
    axis.set(title="How much each word counts in the text's vector", ylabel="weight α")
    plots.legend_below(figure)
    return figure


def retrieved(pairs: RelatedPairs, shown: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Fig. 6: the right image of a text, framed, and the best images of each system.

    shown: system -> the text's entry of `run.examples`.
    """
    columns = 1 + len(next(iter(shown.values()))["best"])
    size = (1.45 * columns, 1.6 * len(shown) + 0.5)
    figure, axes = plt.subplots(len(shown), columns, figsize=size, squeeze=False)
    assert pairs.open_image is not None
    for row, (name, example) in zip(axes, shown.items(), strict=True):
        right, *best = (int(pairs.image_of[pair]) for pair in (example["text"], *example["best"]))
        for axis, image in zip(row, [right, *best], strict=True):
            axis.imshow(pairs.open_image(image))
            axis.set(xticks=[], yticks=[])
            axis.grid(visible=False)
            axis.spines[:].set(visible=image == right, color=plots.TRUE, linewidth=3)
        row[0].set_ylabel(f"{name}\nrank {example['rank']:g}", fontsize=8)
        text = textwrap.shorten(_labelled_text(pairs, example["text"]), 100)
    figure.suptitle(
        f"{text}: the right picture, framed, and what each model ranks first", fontsize=10
    )
    return figure


# --- Figures of the evidence ---------------------------------------------------------------------


def figures(evidence: Evidence) -> Mapping[str, Callable[[], Figure]]:
    """All figures that need nothing but evidence, by name."""
    if evidence.header["tier"] == "controlled":
        return {"map": lambda: controlled_map(evidence)}
    panels, on_dev, trained, spreads = {}, {}, set(), {}
    for name in at_defaults(evidence):
        levels = {row: np.log2(evidence.values(name, *term))
                  for row, term in rankings(evidence, name).items() if row != "Random"}  # fmt: skip
        best_first = dict(sorted(levels.items(), key=lambda item: item[1].mean()))
        panels[name] = best_first, evidence.clusters(name)
        on_dev[name, ON_DEV[1]] = {
            s.system: evidence.curves(name, s.system, ON_DEV[0])
            for s in run.SYSTEMS if evidence.has(name, s.system, ON_DEV[0], EPOCHS)
        }  # fmt: skip
        trained |= {s.system for s in run.trained_systems(name)}
        spreads[f"spread_{name}"] = partial(spread, evidence, name)
    several = any(len(cells) > 1 for cells in dials(evidence).values())
    return {
        "overview": lambda: plots.overview(panels, trained, "mean log2 rank (lower is better)"),
        "curves": lambda: plots.curves(on_dev),
        **spreads,
        **({"map": lambda: map_figure(evidence)} if several else {}),
    }


def spread(evidence: Evidence, dataset: str, most: int = 8) -> Figure:
    """MedR of every pool of some trainings: what varies with the pool, and what with the seed."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True)
    for axis, name in zip(axes, (CMCA, CMCM), strict=True):
        values = evidence.values(dataset, name, "MedR", split="pools")[:most]
        axis.boxplot(list(values), tick_labels=list(map(str, evidence.seeds_of(dataset)[:most])))
        axis.set(title=f"{name}, {dataset}", xlabel="seed")
    axes[0].set(ylabel="MedR of 50 pools")
    return figure


def map_figure(evidence: Evidence, signal: float = 1.0, telling: float = 0.5) -> Figure:
    """Gains over CMCA over both dials, a panel a way to use relations, on one scale of colours.

    The last panel has those at `signal` and `telling`, framed in the others, with intervals.
    """
    gains, at = dials(evidence), (signal, telling)
    figure, axes = plt.subplots(2, 2, figsize=(10, 5.6))
    bound = max([0.05, *(abs(e.effect) for cells in gains.values() for e in cells.values())])
    *maps, apart = axes.flat
    for k, (axis, (title, cells)) in enumerate(zip(maps, gains.items(), strict=True)):
        _gain_map(axis, cells, bound)
        axis.set(xlabel="telling: by texts", ylabel="signal: in pictures", title=title)
        axis.invert_yaxis()
        if at in cells:
            y, x = (sorted({place[i] for place in cells}).index(at[i]) - 0.5 for i in (0, 1))
            axis.add_patch(Rectangle((x, y), 1, 1, fill=False, ec=plots.TRUE, lw=4, clip_on=False))
            plots.spans(
                apart, {title: {k: plots.span(cells[at])}}, plots.COLOURS[k:], numbers="+.2f"
            )
    plots.chance_line(apart, 0, upright=True)
    plots.name_rows(apart, ["CMCM", "told\nby words", "true\nrelations"])
    apart.set(title=f"signal {signal:g}, telling {telling:g}", xlim=(-0.3, 1.3 * bound))
    figure.supxlabel(f"{GAINED}, ± half of the 95 % interval", fontsize=9)
    return figure


def _gain_map(axis: Axes, cells: Mapping[tuple[Any, Any], Effect], bound: float) -> AxesImage:
    """Effects by row and column as colours from −bound to bound; ± is half of the 95 % interval."""
    rows, columns = (list(dict.fromkeys(at[i] for at in cells)) for i in (0, 1))
    grid = pd.Series({at: gain.effect for at, gain in cells.items()}).unstack()

    def text(y: int, x: int) -> str:
        gain = cells[rows[y], columns[x]]
        return f"{gain.effect:+.2f} ± {gain.high - gain.effect:.2f}"

    return plots.heat_map(axis, grid.loc[rows, columns], -bound, bound, text, "PuOr")


def relations_gain(evidence: Mapping[str, Evidence]) -> Figure:
    """What learning the relations gains over CMCA, and what knowing them would. By tier."""
    worth = relations_worth(evidence)
    figure, axis = plt.subplots(figsize=(8, 0.34 * len(worth) + 1.3))
    label = "rank changes by less than 7 %"
    axis.axvspan(-0.1, 0.1, color="#E69F00", alpha=0.15, linewidth=0, label=label)
    axis.axvline(0, color="#333333", linewidth=0.8)
    labels = {"learned as a second task (CMCM)": "learning",
              "known to the model (oracle)": "knowing"}  # fmt: skip
    series = {
        label: {y: plots.span(effects[name]) for y, effects in enumerate(worth.values())}
        for label, name in labels.items()
    }
    plots.spans(axis, series, shift=0.25)
    plots.name_rows(axis, list(worth))
    axis.set(xlabel=f"{GAINED} (1 is half the rank), 95 % interval")
    plots.legend_below(figure)
    return figure


def controlled_map(evidence: Evidence) -> Figure:
    """Gain over CMCA, a row a controlled collection, a column a λ_cls."""
    cells = {
        (name, f"{weight:g}"): gains[system]
        for name, gains in controlled_gains(evidence).items()
        for weight, system in WEIGHTS.items() if system in gains
    }  # fmt: skip
    figure, axis = plt.subplots(figsize=(10, 4), dpi=110)
    image = _gain_map(axis, cells, max(0.05, *(abs(gain.effect) for gain in cells.values())))
    axis.set(xlabel="λ_cls, the weight of the relation loss")
    figure.colorbar(image, ax=axis, label=GAINED)
    return figure
