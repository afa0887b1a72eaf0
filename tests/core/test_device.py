"""Which device is chosen, and what is said where it is not there."""

import pytest
import torch

from mmlib.core.device import pick_device


@pytest.fixture
def gpus(monkeypatch):
    """Makes PyTorch see so many GPUs."""

    def see(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    return see


@pytest.mark.parametrize(
    ("name", "count", "wanted"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda:1")],
)
def test_a_device_that_is_there(gpus, name, count, wanted):
    gpus(count)
    assert pick_device(name) == wanted


@pytest.mark.parametrize(
    ("name", "count", "why"),
    [
        ("cuda", 0, "no device 'cuda': PyTorch sees 0 GPUs; use auto or cpu"),
        ("cuda:2", 2, "no device 'cuda:2': PyTorch sees 2 GPUs; use auto or cpu"),
        ("mps", 0, "no device 'mps': PyTorch sees 0 GPUs; use auto or cpu"),
        ("meta", 1, "no device 'meta': PyTorch sees 1 GPUs; use auto or cpu"),
        ("moon", 1, "no device 'moon': use auto, cpu, cuda, or cuda:1 and so on"),
    ],
)
def test_a_device_that_is_not_there_gets_one_line(gpus, name, count, why):
    gpus(count)
    with pytest.raises(ValueError, match="no device") as told:
        pick_device(name)
    assert str(told.value) == why
