"""Forest plots: every part of every claim, the pooled effects, and the smallest of interest."""

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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

    Thin lines are the parts' 95 % intervals, the diamond below them is the pooled one, the band is
    the smallest effect of interest on either side of 0. Colours show the verdicts, of parts by
    themselves. Claims that are not tested are named below.
    """
    records = [claim if isinstance(claim, Mapping) else claim.record() for claim in assessed]
    tested = [r for r in records if r["parts"]]
    notes = [f"{r['id']}  not tested: {r['why']}" for r in records if not r["parts"]]
    untested = [line for text in notes for line in textwrap.wrap(text, round(13 * WIDTH))]
    lines = [_lines(r) for r in tested] or [1.0]
    note = 0.22 * len(untested)
    # Each panel also needs room for two lines of title and for the name of its axis.
    heights = [0.19 * n + 1.05 for n in lines]
    figure, axes = plt.subplots(
        len(lines), 1, figsize=(WIDTH, sum(heights) + note), squeeze=False,
        height_ratios=[0.19 * n + 0.2 for n in lines],
    )  # fmt: skip
    share = note / (sum(heights) + note)
    figure.set_layout_engine("constrained", rect=(0, share, 1, 1 - share))
    for axis, record in zip(axes[:, 0], tested, strict=False):
        _panel(axis, record)
    if not tested:
        axes[0, 0].axis("off")
    figure.text(0.01, 0.004, "\n".join(untested), fontsize=8, color="#555555", va="bottom")
    return figure


def _lines(record: Mapping[str, Any]) -> float:
    """Height of a panel in lines of text; one part alone is the pooled effect itself."""
    count = len(record["parts"])
    return 1.0 if count == 1 else 1.3 + count * (0.5 if count > MANY else 1.0)


def _panel(axis: Axes, record: Mapping[str, Any]) -> None:
    """One claim: its parts from above, then the pooled effect."""
    by_name = record["parts"] if len(record["parts"]) > 1 else {}
    step = 0.5 if len(by_name) > MANY else 1.0
    ticks: dict[float, str] = {}
    for i, (name, effect) in enumerate(by_name.items()):
        colour = COLOURS[effect["verdict"]]
        axis.plot([effect["low"], effect["high"]], [i * step] * 2, color=colour, linewidth=1.2)
        axis.plot(effect["effect"], i * step, "o", color=colour, markersize=3 if step < 1 else 4)
        if step == 1:
            ticks[i * step] = name
    y = len(by_name) * step + (0.2 if by_name else 0)
    colour = COLOURS[record["verdict"]]
    if by_name and record["every"]:  # each part counts, and none is pooled
        y -= step
    else:
        corners = [record["low"], record["effect"], record["high"], record["effect"]]
        axis.fill(corners, [y, y - 0.32, y, y + 0.32], color=colour, linewidth=1.5, zorder=3)
        ticks[y] = "pooled" if by_name else next(iter(record["parts"]))
    axis.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axis.set_ylim(y + 0.6, -0.6)
    axis.axvline(0, color="#333333", linewidth=0.8)
    d = record["smallest"]
    axis.axvspan(-d, d, color="#E69F00", alpha=0.15, linewidth=0, label=f"± {d:g}")
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="x", labelsize=8)
    titled = textwrap.shorten(f"{record['id']}  {record['claim']}", 150, placeholder=" …")
    title = textwrap.fill(f"{titled}: {record['verdict']}", LINE)
    axis.set_title(title, loc="left", fontsize=9, color=colour)
    label = f"{record['contrast']} ({record['unit']};\u00a0band\u00a0±\u00a0{d:g})"  # one word
    axis.set_xlabel(textwrap.fill(label, LINE), fontsize=8)
