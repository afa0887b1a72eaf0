"""What tests share: one thread, no window system, the folder of real data, and a browser."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import matplotlib
import pytest
import torch
from matplotlib import pyplot

# Set in this process, not in the environment: notebook kernels started from here keep their own.
matplotlib.use("Agg")
torch.set_num_threads(1)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(autouse=True)
def environment():
    """What a command chooses by the environment, and figures, end with their test."""
    with mock.patch.dict(os.environ):
        yield
    pyplot.close("all")


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


@pytest.fixture
def written_on_a_gpu(monkeypatch):
    """A context in which PyTorch writes down that the tensors of a file are on a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, so such a file can be read as it is")

    @contextmanager
    def tagged():
        with monkeypatch.context() as patch:
            known = torch.serialization._package_registry
            tags = (-1, lambda storage: "cuda:0", lambda storage, location: None)
            patch.setattr(torch.serialization, "_package_registry", [tags, *known])
            yield

    return tagged


@pytest.fixture(scope="module")
def double():
    """Comparisons with loops are made in float64, where a small tolerance is enough."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, driven by Playwright, or a skip that says what is missing."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no browser test: the package playwright is not installed"
    )
    named = os.environ.get("MMLIB_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not path:
        pytest.skip("no browser test: no Chromium found; MMLIB_CHROMIUM can name one")
    root = hasattr(os, "geteuid") and os.geteuid() == 0  # Chromium's sandbox refuses root
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(
            executable_path=path, args=["--no-sandbox"] if root else []
        )
        yield chromium
        chromium.close()
