"""Forest plots: every part of every claim, and the smallest effect of interest."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from mmlib.core.claims import Assessment

# Of Okabe and Ito, which readers with colour-blindness can tell apart.
COLOURS = {
    "supported": "#009E73", "opposite": "#D55E00", "negligible": "#0072B2",
    "mixed": "#CC79A7", **dict.fromkeys(("undecided", "not tested"), "#777777"),
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
        title = textwrap.fill(f"{titled}: {record['verdict']}", LINE)
        axis.set_title(title, loc="left", fontsize=9, color=colour)
        label = f"{record['contrast']} ({record['unit']};\u00a0band\u00a0±\u00a0{d:g})"  # one word
        axis.set_xlabel(textwrap.fill(label, LINE), fontsize=8)
    if not tested:
        axes[0, 0].axis("off")
    figure.text(0.01, 0.004, "\n".join(untested), fontsize=8, color="#555555", va="bottom")
    return figure


# --- All claims at once --------------------------------------------------------------------------

MARKERS = ("o", "s", "^", "D")  # one for each kind of data
FARTHEST = 30.0  # in smallest effects of interest; what lies beyond is clipped
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)
Records = Mapping[str, Mapping[str, Any]]


def overview(panels: Mapping[str, Mapping[str, Records]]) -> Figure:
    """All tested claims in two columns of panels: effects over their smallest effect of interest.

    panels: title -> kind of data -> claim -> record of `Assessment.record`. A claim is a line in
    its panel, with a mark for each kind of data; the scale is logarithmic beyond ±1. What is judged
    part by part has a dot for each part, and a line over all of their intervals. ≈: claims that A
    hardly differs from B, which hold within ±1.
    """
    kinds = list(dict.fromkeys(kind for panel in panels.values() for kind in panel))
    lines: dict[str, dict[str, dict[str, Mapping[str, Any]]]] = {}  # title, claim, kind, record
    for title, panel in panels.items():
        names = dict.fromkeys(claim for records in panel.values() for claim in records)
        by_kind = {
            claim: {k: r[claim] for k, r in panel.items() if claim in r and r[claim]["intervals"]}
            for claim in names
        }
        if tested := {claim: records for claim, records in by_kind.items() if records}:
            lines[title] = tested
    titles = list(lines)

    def tall(column: Sequence[str]) -> int:
        return sum(len(lines[title]) + 3 for title in column)

    cuts = [(titles[:cut], titles[cut:]) for cut in range(1, len(titles))] or [(titles, [])]
    columns = [half for half in min(cuts, key=lambda cut: max(map(tall, cut))) if half]
    figure = plt.figure(figsize=(10, 0.165 * max(map(tall, columns), default=1) + 1.1))
    grid = figure.add_gridspec(1, len(columns) or 1)
    for number, column in enumerate(columns):
        ratios = [len(lines[title]) + 1 for title in column]
        cells = grid[number].subgridspec(len(column), 1, height_ratios=ratios)
        for i, title in enumerate(column):
            axis = figure.add_subplot(cells[i])
            _claims(axis, lines[title], kinds)
            axis.set_title(title, loc="left", fontsize=10)
            if title == column[-1]:
                axis.set_xlabel("against the claim  ←  effect / d  →  for the claim", fontsize=9)

    def mark(text: str, **look: Any) -> Line2D:
        return Line2D([], [], label=text, **{"color": "#444444", "ms": 4.5, "lw": 0, **look})

    handles: list[Any] = [
        *(mark(kind, marker=marker, lw=1) for kind, marker in zip(kinds, MARKERS, strict=False)),
        mark("several parts, a dot each", marker=".", ms=5, lw=0.6),
        mark(f"beyond {FARTHEST:g} d", marker=">"),
    ]
    by_claim = [records for claims in lines.values() for records in claims.values()]
    if any(r["paper_effect"] is not None for records in by_claim for r in records.values()):
        handles.append(mark("the paper's", mfc="none", mec="black", marker="D", color="C0"))
    handles.append(Patch(color="#E69F00", alpha=0.15, label="within ± d, where ≈ holds"))
    handles += [Patch(color=COLOURS[v], label=v) for v in COLOURS if v != "not tested"]
    figure.legend(handles=handles, loc="outside lower center", ncol=5, fontsize=8)
    return figure


def _claims(axis: Axes, claims: Mapping[str, Records], kinds: Sequence[str]) -> None:
    """A line for each claim, its kinds of data one below the other."""
    axis.axvspan(-1, 1, color="#E69F00", alpha=0.15, linewidth=0)
    axis.axvline(0, color="#333333", linewidth=0.8)
    labels = []
    for line, (name, records) in enumerate(claims.items()):
        labels.append(name + " ≈" * (next(iter(records.values()))["kind"] == "equivalent"))
        for i, (kind, record) in enumerate(records.items()):
            y, d = line + 0.36 * (i - (len(records) - 1) / 2), record["smallest"]
            parts = [*record["parts"].values()] if record["intervals"] > 1 else [record]
            ends = min(p["low"] for p in parts) / d, max(p["high"] for p in parts) / d
            width, size = (1.0, 4.0) if len(parts) == 1 else (0.6, 3.0)
            ends = np.clip(ends, -FARTHEST, FARTHEST)
            axis.plot(ends, [y, y], color=COLOURS[record["verdict"]], linewidth=width)
            for part in parts:
                x, colour = part["effect"] / d, COLOURS[part["verdict"]]
                if abs(x) > FARTHEST:
                    beyond = 1.15 * FARTHEST * np.sign(x)
                    axis.plot(beyond, y, ">" if x > 0 else "<", color=colour, ms=4.5)
                else:
                    axis.plot(x, y, MARKERS[kinds.index(kind)], color=colour, ms=size, mew=0)
            if record["paper_effect"] is not None:
                x = float(np.clip(record["paper_effect"] / d, -FARTHEST, FARTHEST))
                axis.plot(x, y, "D", mfc="none", mec="black", mew=0.8, ms=4.5)
    axis.set_xscale("symlog", linthresh=1, linscale=0.7)
    axis.set_xlim(-FARTHEST * 1.35, FARTHEST * 1.35)
    axis.set_xticks(TICKS, [f"{tick:g}".replace("-", "−") for tick in TICKS], fontsize=8)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_yticks(range(len(labels)), labels, fontsize=7.5)
    axis.set_ylim(len(labels) - 0.4, -0.6)
