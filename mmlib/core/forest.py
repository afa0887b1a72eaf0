"""Forest plots: every part of every claim; and a grid of all verdicts."""

import textwrap
from collections.abc import Iterable, Mapping
from itertools import chain, groupby
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mmlib.core.claims import Assessment, summarised

# Of Okabe and Ito, which readers with colour-blindness can tell apart.
COLOURS = {
    **dict.fromkeys(("supported", "holds"), "#009E73"),
    **dict.fromkeys(("opposite", "fails"), "#D55E00"), "negligible": "#0072B2",
    **dict.fromkeys(("undecided", "open", "not tested"), "#777777"),
}  # fmt: skip
WIDTH = 8.0  # inches
LINE = 68  # characters of a title, which stands beside the names of parts


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
    lines = [1.0 if len(r["parts"]) == 1 else 1.3 + len(r["parts"]) for r in tested] or [1.0]
    note = 0.22 * len(untested)
    # Each panel also needs room for two lines of title and for the name of its axis.
    height = sum(0.19 * n + 1.05 for n in lines) + note
    figure, axes = plt.subplots(
        len(lines), 1, figsize=(WIDTH, height), squeeze=False,
        height_ratios=[0.19 * n + 0.2 for n in lines],
    )  # fmt: skip
    figure.set_layout_engine("constrained", rect=(0, note / height, 1, 1 - note / height))
    for axis, record in zip(axes[:, 0], tested, strict=False):
        parts, d = record["parts"], record["smallest"]
        for y, part in enumerate(parts.values()):
            look = {"color": COLOURS[part["verdict"]], "markersize": 4}
            for one in part.get("parts", {}).values():
                axis.plot(one["effect"], y + 0.28, "|", color="#333333", markersize=4)
            if len(parts) == 1:
                corners = [part["low"], part["effect"], part["high"], part["effect"]]
                axis.fill(corners, [0, -0.32, 0, 0.32], color=look["color"], lw=1.5, zorder=3)
                continue
            axis.plot([part["low"], part["high"]], [y, y], linewidth=1.2, **look)
            axis.plot(part["effect"], y, "o", **look)
        axis.set_yticks(range(len(parts)), list(parts), fontsize=8)
        axis.set_ylim(len(parts) - (0.2 if len(parts) > 1 else 0.4), -0.6)
        axis.axvline(0, color="#333333", linewidth=0.8)
        axis.axvspan(-d, d, color="#E69F00", alpha=0.15, linewidth=0, label=f"± {d:g}")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="x", labelsize=8)
        titled = textwrap.shorten(f"{record['id']}  {record['claim']}", 150, placeholder=" …")
        title = record.get("title", f"{titled}: {record['words']}")
        colour = record.get("colour", COLOURS[record["verdict"]])
        axis.set_title(textwrap.fill(title, LINE), loc="left", fontsize=9, color=colour)
        label = f"{record['contrast']} ({record['unit']};\u00a0band\u00a0±\u00a0{d:g})"  # one word
        axis.set_xlabel(textwrap.fill(label, LINE), fontsize=8)
    if not tested:
        axes[0, 0].axis("off")
    figure.text(0.01, 0.004, "\n".join(untested), fontsize=8, color="#555555", va="bottom")
    return figure


def summary(judged: Mapping[str, Iterable[Assessment]]) -> Figure:
    """A `forest` of the claims that have a summary, in which a row is a kind of data.

    judged: tier -> assessments. The first row is the paper's own effect, in our unit. An interval
    is of the part that gives the verdict; ticks below it are the effects of all parts.
    """
    panels = []
    for title, of_claim in groupby(summarised(judged), lambda row: row[1]["summary"]):
        rows, record = dict[str, Mapping[str, Any]](), dict[str, Any]()
        for kind, record in (row for row in of_claim if row[1]["parts"]):
            words = ", ".join(filter(None, (record["word"], record["firmness"])))
            rows[f"{kind}: {words}"] = record | {"verdict": record["word"].split()[0]}
        if (paper := record.get("paper_effect")) is not None:
            rows = {"the paper": dict(effect=paper, low=paper, high=paper, verdict="open"), **rows}
        says = "right of 0" if record.get("kind") == "greater" else "within the band"
        panel = {"title": title, "colour": "black", "contrast": f"the claim says: {says}"}
        panels.append({**record, **panel, "parts": rows})
    return forest(panel for panel in panels if panel["parts"])


# --- All verdicts at once ------------------------------------------------------------------------

Records = Mapping[str, Mapping[str, Any]]
FILLED = {"firm": 0.5, "fragile": 0.2, "": 0.25}  # opacity of a cell


def overview(panels: Mapping[str, Mapping[str, Records]]) -> Figure:
    """A grid of claims and kinds of data, with the verdict in each cell, in two columns of panels.

    panels: title -> kind of data -> claim -> record of `Assessment.record`.
    """
    rows = {title: list(dict.fromkeys(chain(*panel.values()))) for title, panel in panels.items()}
    titles = [title for title, claims in rows.items() if claims]
    cut = (len(titles) + 1) // 2
    columns = list(filter(None, (titles[:cut], titles[cut:])))
    tall = [sum(0.2 * len(rows[title]) + 0.6 for title in column) for column in columns]
    figure = plt.figure(figsize=(WIDTH, max(tall, default=1) + 0.4))
    grid = figure.add_gridspec(1, max(len(columns), 1))
    for number, column in enumerate(columns):
        ratios = [len(rows[title]) for title in column]
        cells = grid[number].subgridspec(len(column), 1, height_ratios=ratios)
        for i, title in enumerate(column):
            axis = figure.add_subplot(cells[i])
            axis.set_title(title, loc="left", fontsize=9)
            claims, panel = rows[title], panels[title]
            for x, records in enumerate(panel.values()):
                for name, r in records.items():
                    y, width = claims.index(name), 0.97 * bool(r["parts"])
                    style = "italic" if r["firmness"] == "fragile" else "normal"
                    colour, alpha = COLOURS[r["verdict"]], FILLED[r["firmness"]]
                    axis.barh(y, width, 0.9, left=x, color=colour, alpha=alpha)
                    word: Any = {"ha": "center", "va": "center", "fontsize": 7, "style": style}
                    axis.text(x + 0.485, y, r["words"], **word)
            axis.set_yticks(range(len(claims)), claims, fontsize=7)
            axis.set_xticks(np.arange(len(panel)) + 0.485, list(panel), fontsize=7.5)
            axis.tick_params(length=0, labeltop=True, labelbottom=False)
            axis.set(xlim=(0, len(panel)), ylim=(len(claims) - 0.4, -0.6))
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
    legend = {"supported, holds": "holds", "opposite, fails": "fails", "negligible": "negligible",
              "undecided, open": "open"}  # fmt: skip
    handles = [Patch(color=COLOURS[v], alpha=FILLED["firm"], label=t) for t, v in legend.items()]
    words, alpha = "italic, paler: fragile", FILLED["fragile"]
    handles.append(Patch(color=COLOURS["holds"], alpha=alpha, label=words))
    figure.legend(handles=handles, loc="outside lower center", ncol=5, fontsize=8)
    return figure
