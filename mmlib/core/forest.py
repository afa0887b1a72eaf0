"""Forest plots: every part of every claim; and a grid of all verdicts."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mmlib.core.claims import Assessment, effect_text

# Of Okabe and Ito, which readers with colour-blindness can tell apart.
COLOURS = {
    **dict.fromkeys(("supported", "holds"), "#009E73"),
    **dict.fromkeys(("opposite", "fails"), "#D55E00"), "negligible": "#0072B2",
    **dict.fromkeys(("undecided", "open", "not tested"), "#777777"),
}  # fmt: skip
WIDTH = 8.0  # inches
LINE = 68  # characters of a title, which stands beside the names of parts
MANY = 16  # parts; beyond these, lines are half as high and go without names


def forest(assessed: Iterable[Assessment | Mapping[str, Any]]) -> Figure:
    """A panel for each tested claim, from what `claims.assess` returned or from its records.

    Thin lines are the parts' 95 % intervals, the diamond is that of a part alone, the band is the
    smallest effect of interest on either side of 0. Colours show the verdicts, of parts by
    themselves. Claims that are not tested are named below.
    """
    records = [claim if isinstance(claim, Mapping) else claim.record() for claim in assessed]
    tested = [r for r in records if r["parts"]]
    notes = [f"{r['id']}  not tested: {r['why']}" for r in records if not r["parts"]]
    untested = [line for text in notes for line in textwrap.wrap(text, round(13 * WIDTH))]
    # The height of a panel in lines of text.
    counts = [len(r["parts"]) for r in tested]
    lines = [1.0 if n == 1 else 1.3 + n * (0.5 if n > MANY else 1.0) for n in counts] or [1.0]
    note = 0.22 * len(untested)
    # Each panel also needs room for two lines of title and for the name of its axis.
    height = sum(0.19 * n + 1.05 for n in lines) + note
    figure, axes = plt.subplots(
        len(lines), 1, figsize=(WIDTH, height), squeeze=False,
        height_ratios=[0.19 * n + 0.2 for n in lines],
    )  # fmt: skip
    figure.set_layout_engine("constrained", rect=(0, note / height, 1, 1 - note / height))
    for axis, record in zip(axes[:, 0], tested, strict=False):
        parts, d, colour = record["parts"], record["smallest"], COLOURS[record["verdict"]]
        step = 0.5 if len(parts) > MANY else 1.0
        rows = np.arange(len(parts)) * step
        if len(parts) == 1:
            corners = [record["low"], record["effect"], record["high"], record["effect"]]
            axis.fill(corners, [0, -0.32, 0, 0.32], color=colour, linewidth=1.5, zorder=3)
        else:
            for y, part in zip(rows, parts.values(), strict=True):
                look = {"color": COLOURS[part["verdict"]], "markersize": 3 if step < 1 else 4}
                axis.plot([part["low"], part["high"]], [y, y], linewidth=1.2, **look)
                axis.plot(part["effect"], y, "o", **look)
        axis.set_yticks(*((rows, list(parts)) if step == 1 else ([], [])), fontsize=8)
        axis.set_ylim(rows[-1] + (0.8 if len(parts) > 1 else 0.6), -0.6)
        axis.axvline(0, color="#333333", linewidth=0.8)
        axis.axvspan(-d, d, color="#E69F00", alpha=0.15, linewidth=0, label=f"± {d:g}")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="x", labelsize=8)
        titled = textwrap.shorten(f"{record['id']}  {record['claim']}", 150, placeholder=" …")
        title = textwrap.fill(f"{titled}: {record['words']}", LINE)
        axis.set_title(title, loc="left", fontsize=9, color=colour)
        label = f"{record['contrast']} ({record['unit']};\u00a0band\u00a0±\u00a0{d:g})"  # one word
        axis.set_xlabel(textwrap.fill(label, LINE), fontsize=8)
    if not tested:
        axes[0, 0].axis("off")
    figure.text(0.01, 0.004, "\n".join(untested), fontsize=8, color="#555555", va="bottom")
    return figure


# --- All verdicts at once ------------------------------------------------------------------------

Records = Mapping[str, Mapping[str, Any]]
FILLED = {"firm": 0.5, "fragile": 0.2, "": 0.25}  # opacity of a cell
FRAGILE = "italic, paler: fragile"


def overview(panels: Mapping[str, Mapping[str, Records]], detailed: bool = False) -> Figure:
    """A grid of claims and kinds of data, with the verdict in each cell.

    panels: title -> kind of data -> claim -> record of `Assessment.record`. detailed: with the
    claims in words and the counts and effects; else two columns of panels with the claims' names.
    """
    rows = {title: list(dict.fromkeys(chain(*panel.values()))) for title, panel in panels.items()}
    titles = [title for title, claims in rows.items() if claims]
    line = 0.36 if detailed else 0.2  # inches

    def tall(column: Sequence[str]) -> float:
        return sum(line * len(rows[title]) + 0.6 for title in column)

    cuts = [(titles[:cut], titles[cut:]) for cut in range(1, len(titles))]
    halves = min(cuts, key=lambda cut: max(map(tall, cut))) if cuts and not detailed else (titles,)
    width = 1.25 * WIDTH if detailed else WIDTH
    figure = plt.figure(figsize=(width, max(map(tall, halves), default=1) + 0.4))
    grid = figure.add_gridspec(1, len(halves))
    for number, column in enumerate(halves if titles else ()):
        ratios = [len(rows[title]) for title in column]
        cells = grid[number].subgridspec(len(column), 1, height_ratios=ratios)
        for i, title in enumerate(column):
            axis = figure.add_subplot(cells[i])
            axis.set_title(title, loc="left", fontsize=9)
            _verdicts(axis, rows[title], panels[title], detailed)
    legend = {"supported, holds": "holds", "opposite, fails": "fails", "negligible": "negligible",
              "undecided, open": "open"}  # fmt: skip
    handles = [Patch(color=COLOURS[v], alpha=FILLED["firm"], label=t) for t, v in legend.items()]
    handles.append(Patch(color=COLOURS["holds"], alpha=FILLED["fragile"], label=FRAGILE))
    figure.legend(handles=handles, loc="outside lower center", ncol=5, fontsize=8)
    return figure


def _verdicts(axis: Axes, claims: Sequence[str], panel: Mapping[str, Records], full: bool) -> None:
    """A line for each claim, a column for each kind of data."""
    labels = dict.fromkeys(claims, "")
    for x, records in enumerate(panel.values()):
        for name, record in records.items():
            words, y, tested = record["words"], claims.index(name), bool(record["parts"])
            labels[name] = f"{name}  {record['claim']}" if full else name
            if full and tested:
                counts = f" ({record['counts']})" * bool(record["counts"])
                words += f"{counts}\n{effect_text(record)}"
            style = "italic" if record["firmness"] == "fragile" else "normal"
            colour, alpha = COLOURS[record["verdict"]], FILLED[record["firmness"]]
            axis.barh(y, 0.97 * tested, 0.9, left=x, color=colour, alpha=alpha)
            axis.text(x + 0.485, y, words, ha="center", va="center", fontsize=7, style=style)
    shown = [textwrap.fill(textwrap.shorten(label, 110), 56) for label in labels.values()]
    axis.set_yticks(range(len(claims)), shown, fontsize=7)
    axis.set_xticks(np.arange(len(panel)) + 0.485, list(panel), fontsize=7.5)
    axis.tick_params(length=0, labeltop=True, labelbottom=False)
    axis.set(xlim=(0, len(panel)), ylim=(len(claims) - 0.4, -0.6))
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
