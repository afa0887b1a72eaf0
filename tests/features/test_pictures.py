"""Pictures as they are meant to be seen, wherever one is opened."""

import numpy as np
import pytest
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.data.pairs import unreadable
from mmlib.features.store import open_rgb

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
UPRIGHT = Image.fromarray(PIXELS)
FLIPS = (  # how a camera's pixels lie for EXIF's orientations 2 to 8
    Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM,
    Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_90, Image.Transpose.TRANSVERSE,
    Image.Transpose.ROTATE_270,
)  # fmt: skip
ORIENTATION = 0x0112


def save(image, path, orientation=0, **options):
    if orientation:
        options["exif"] = Image.Exif()
        options["exif"][ORIENTATION] = orientation
    image.save(path, **options)
    return path


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".webp"])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_photograph_stands_upright(tmp_path, orientation, suffix):
    options = {"lossless": True} if suffix == ".webp" else {}
    lying = UPRIGHT.transpose(FLIPS[orientation - 2])
    path = save(lying, tmp_path / f"phone{suffix}", orientation, **options)
    assert np.array_equal(np.asarray(open_rgb(path)), PIXELS)


def test_sixteen_bits_of_grey_are_scaled_to_eight(tmp_path):
    levels = np.linspace(0, 1, 240).reshape(12, 20)
    eight = np.repeat((levels * 255).astype(np.uint8)[..., None], 3, axis=2)
    deep = Image.fromarray((levels * 65535).astype(np.uint16))
    for suffix in (".png", ".tiff", ".pgm"):
        opened = np.asarray(open_rgb(save(deep, tmp_path / f"deep{suffix}")))
        assert np.array_equal(opened, eight), suffix


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(tmp_path, mode):
    shape = np.zeros((12, 20, 4), np.uint8)  # a black square on nothing, which is black, too
    shape[3:9, 5:15, 3] = 255
    path = tmp_path / "shape.png"
    Image.fromarray(shape).convert(mode).save(path)
    if mode == "P":
        indices = Image.fromarray((shape[..., 3] == 0).astype(np.uint8)).convert("P")
        indices.putpalette([0, 0, 0, 0, 0, 0])
        indices.save(path, transparency=1)
    opened = np.asarray(open_rgb(path))
    assert np.array_equal(opened, np.repeat(255 - shape[..., 3:], 3, axis=2))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "1", "P", "RGBA", "LA"])
def test_other_pictures_keep_their_bytes(tmp_path, mode):
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    if mode == "RGBA":
        image = Image.fromarray(np.dstack([PIXELS, np.full((12, 20), 255, np.uint8)]))
    else:
        image = UPRIGHT.convert("L" if mode in ("1", "LA") else "RGB").convert(mode)
    save(image, path, orientation=1)
    with Image.open(path) as opened:
        assert opened.mode == mode
        assert open_rgb(path).tobytes() == opened.convert("RGB").tobytes()


def test_a_damaged_note_spoils_no_picture(tmp_path):
    path = tmp_path / "noted.jpg"
    UPRIGHT.save(path, exif=b"Exif\0\0no notes at all")
    with Image.open(path) as opened:
        assert open_rgb(path).tobytes() == opened.convert("RGB").tobytes()


def test_numbers_without_a_known_range_are_refused(tmp_path):
    path = tmp_path / "depth.tiff"
    Image.fromarray(np.ones((4, 4), np.float32)).save(path)
    with pytest.raises(DataError, match=r"depth\.tiff: cannot be decoded: .*save it with 8 bits"):
        open_rgb(path)
    assert "no known range" in unreadable({"depth": path})["depth"]
