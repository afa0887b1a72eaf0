"""Draw docs/pictures: the world, the package, a small one of each notebook, the README's."""

import base64
import io
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

import grimp
import matplotlib.pyplot as plt
import nbformat
import pages
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from mmlib.core import plots
from mmlib.core.paths import write_atomic
from mmlib.world.captions import captions
from mmlib.world.drawing import draw
from mmlib.world.scenes import sample_scene, split_seeds

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
THUMBNAIL = 320  # pixels wide


def main() -> None:
    plots.use_style()
    for name, figure, dpi in (("world", world(), 90), ("layers", layers(plan()), 110)):
        write(figure, PICTURES / f"{name}.png", dpi)
    for notebook in NOTEBOOKS:
        save(thumbnail(notebook), PICTURES / f"{notebook.stem}.png")
    save(opening(), PICTURES / "opening.png")


def world() -> Figure:
    """Scenes of the picture world, with a caption each."""
    scenes = [sample_scene(seed) for seed in split_seeds("test", 10)]
    texts = [captions(scene, n=1)[0].text for scene in scenes]
    return plots.show_pictures([draw(scene, 256) for scene in scenes], texts)


def write(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure in 256 colours: a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight")
    save(pages.in_few_colours(Image.open(buffer)), path)


def save(image: Image.Image, path: Path) -> None:
    """Write a picture as PNG and say how large it is."""
    write_atomic(path, lambda file: image.save(file, "PNG", optimize=True))
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


def thumbnail(notebook: Path) -> Image.Image:
    """The first picture that an executed notebook shows, 320 pixels wide.

    Raises ValueError for a notebook without a picture.
    """
    [picture] = shown(notebook, 1)
    size = (THUMBNAIL, round(picture.height * THUMBNAIL / picture.width))
    return pages.in_few_colours(picture.resize(size, Image.Resampling.LANCZOS))


def opening() -> Image.Image:
    """The first two pictures of notebook 03, one above the other: the first thing in the README."""
    family, lines = shown(next(path for path in NOTEBOOKS if path.stem.startswith("03")), 2)
    width = max(family.width, lines.width)
    both = Image.new("RGB", (width, family.height + lines.height), "white")
    for picture, top in ((family, 0), (lines, family.height)):
        both.paste(picture, ((width - picture.width) // 2, top))
    return pages.in_few_colours(both)


def shown(notebook: Path, count: int) -> list[Image.Image]:
    """The first pictures that an executed notebook shows. Raises ValueError where there is none."""
    pictures = [
        output["data"]["image/png"]
        for cell in nbformat.read(notebook, as_version=4).cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    if not pictures:
        raise ValueError(f"{notebook.name} shows no picture: execute it with `make notebooks`")
    return [
        Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB") for png in pictures[:count]
    ]


# --- The layers of the package --------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The package as import-linter's contracts order it, with what it really imports.

    layers: folders from above; those of one layer do not import each other. modules: what each
    folder holds. imports: (importing, imported) folders.
    """

    layers: tuple[tuple[str, ...], ...]
    modules: dict[str, tuple[str, ...]]
    imports: frozenset[tuple[str, str]]


def plan() -> Plan:
    """The plan, read from the contracts in pyproject.toml and the package's own imports."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = (c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    rows = tuple(
        tuple(item.strip("() ") for item in row.replace("|", ":").split(":"))
        for row in contract["layers"]
    )
    graph = grimp.build_graph("mmlib", cache_dir=None)
    folders = [folder for row in rows for folder in row]
    modules = {
        folder: tuple(sorted(name.split(".")[2] for name in graph.find_children(f"mmlib.{folder}")))
        for folder in folders
    }
    pairs = {
        (importer.split(".")[1], imported.split(".")[1])
        for importer in graph.modules - {"mmlib"}
        for imported in graph.find_modules_directly_imported_by(importer) - {"mmlib"}
    }
    imports = frozenset((upper, lower) for upper, lower in pairs if upper != lower)
    return Plan(rows, modules, imports)


BOX = 6.3  # inches: width of a layer's box
LANE = 0.36  # inches from one importing folder to the next
LINE = 0.165  # inches: height of a line of text
TINTS = ("#EAF2F8", "#F7F9FB")  # of layers, by turns


def layers(plan: Plan) -> Figure:
    """Layers as rows, and which folder imports which."""
    folders = [folder for row in plan.layers for folder in row]
    texts = {folder: textwrap.wrap(", ".join(plan.modules[folder]), 104) for folder in folders}
    lines = {folder: 2.1 + len(texts[folder]) for folder in folders}
    lanes = folders[:-1]  # the lowest imports none
    height, width = LINE * (sum(lines.values()) + 3), BOX + LANE * len(lanes) + 0.4
    figure = plt.figure(figsize=(width, height), layout="none")
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axis.axis("off")
    axis.text(0.05, 1.2 * LINE, "A layer imports only those below it", fontsize=12, weight="bold")
    axis.text(BOX + 0.2, 1.2 * LINE, "○ imports each ● below it", fontsize=9)
    middles, y = {}, 2.4 * LINE
    for i, row in enumerate(plan.layers):
        depth = LINE * sum(lines[folder] for folder in row)
        box = plt.Rectangle(
            (0.05, y + 0.03), width - 0.1, depth - 0.06, fc=TINTS[i % 2], ec="#888888"
        )
        axis.add_patch(box)
        for folder in row:
            middles[folder] = y + 0.9 * LINE
            axis.text(0.15, y + 1.2 * LINE, f"{folder}/", fontsize=10, weight="bold", va="center")
            block = "\n".join(texts[folder])
            axis.text(0.15, y + 1.95 * LINE, block, fontsize=8, va="top", color="#333333")
            y += LINE * lines[folder]
    for k, upper in enumerate(lanes):
        lane(axis, plan, upper, BOX + 0.3 + LANE * k, middles, plots.COLOURS[k])
    return figure


def lane(
    axis: Axes, plan: Plan, upper: str, x: float, middles: dict[str, float], colour: str
) -> None:
    """A line down from a folder, with a dot at each folder that it imports."""
    lower = [middles[name] for name in middles if (upper, name) in plan.imports]
    axis.plot([x, x], [middles[upper], max(lower)], color=colour, linewidth=1.5)
    axis.plot([x] * len(lower), lower, "o", color=colour, markersize=6)
    axis.plot(x, middles[upper], "o", color=colour, mfc="white", markersize=8, mew=1.8)


if __name__ == "__main__":
    main()
