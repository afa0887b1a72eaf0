"""What every test shares: one thread, no window system, and the folder of real data."""

import os
from pathlib import Path

import matplotlib
import pytest
import torch

# Set in this process, not in the environment: notebook kernels started from here keep their own.
matplotlib.use("Agg")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real data sets, or a skip that says why there is none."""
    named = os.environ.get("MMLIB_DATA")
    if not named:
        pytest.skip("no real data: MMLIB_DATA is not set")
    folder = Path(named).expanduser()
    if not (folder / "flickr8k").is_dir():
        pytest.skip(f"no real data: MMLIB_DATA={named} has no folder flickr8k")
    return folder


@pytest.fixture(scope="module")
def double():
    """Comparisons with loops are made in float64, where a small tolerance is enough."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
