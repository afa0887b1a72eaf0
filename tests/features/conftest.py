"""Pictures to extract features from."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def pictures(tmp_path):
    """Eleven pictures of different sizes: name and file."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(11):
        pixels = generator.integers(0, 256, size=(30 + i, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.jpg")
    return [(path.name, path) for path in sorted(folder.iterdir())]
