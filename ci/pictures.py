"""Draw docs/pictures: the world, the package, a small one of each notebook, the README's."""

import base64
import io
import tomllib
from pathlib import Path

import grimp
import matplotlib.pyplot as plt
import nbformat
import pages
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
    for name, figure, dpi in (("world", world(), 90), ("layers", layers(), 110)):
        write(figure, PICTURES / f"{name}.png", dpi)
    for notebook in NOTEBOOKS:
        save(thumbnail(notebook), PICTURES / f"{notebook.stem}.png")
    save(opening(), PICTURES / "opening.png")


def world() -> Figure:
    scenes = [sample_scene(seed) for seed in split_seeds("test", 10)]
    texts = [captions(scene, n=1)[0].text for scene in scenes]
    return plots.show_pictures([draw(scene, 256) for scene in scenes], texts)


def write(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure in 256 colours: a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight")
    save(pages.in_few_colours(Image.open(buffer)), path)


def save(image: Image.Image, path: Path) -> None:
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


def layers() -> Figure:
    """A row a folder of mmlib, in the order of import-linter's contract, a dot what it imports."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = (c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    folders = [name.strip() for row in contract["layers"] for name in row.split("|")]
    graph = grimp.build_graph("mmlib", cache_dir=None)
    dots = {
        (folders.index(imported.split(".")[1]), folders.index(importer.split(".")[1]))
        for importer in graph.modules - {"mmlib"}
        for imported in graph.find_modules_directly_imported_by(importer) - {"mmlib"}
    }
    figure, axis = plt.subplots(figsize=(6, 3.4))
    columns, rows = zip(*sorted((x, y) for x, y in dots if x != y), strict=True)
    axis.scatter(columns, rows, s=80)
    axis.set_xticks(range(len(folders)), folders)
    axis.set_yticks(range(len(folders)), folders)
    axis.invert_yaxis()
    axis.set(xlabel="imports", title="A layer imports only those below it")
    return figure


if __name__ == "__main__":
    main()
