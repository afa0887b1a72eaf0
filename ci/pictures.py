"""Draw docs/pictures/world.png: scenes of the picture world, with a caption each."""

import io
from pathlib import Path

from PIL import Image

from mmlib.core import plots
from mmlib.core.paths import write_atomic
from mmlib.world.captions import captions
from mmlib.world.drawing import draw
from mmlib.world.scenes import sample_scene, split_seeds

ROOT = Path(__file__).resolve().parent.parent


def main(path: Path = ROOT / "docs" / "pictures" / "world.png") -> None:
    plots.use_style()
    scenes = [sample_scene(seed) for seed in split_seeds("test", 10)]
    told = [captions(scene, n=1)[0].text for scene in scenes]
    figure = plots.show_pictures([draw(scene, 256) for scene in scenes], told)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, bbox_inches="tight")
    # 256 colours: a third of the size.
    image = Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    write_atomic(path, lambda file: image.save(file, optimize=True))
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
