"""Which device is chosen, and what is said where it is not there."""

import pytest
import torch

from mmlib.core.device import pick_device


@pytest.mark.parametrize(
    ("name", "count", "wanted"),
    [
        ("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda:1"),
        ("cuda", 0, "no device 'cuda': PyTorch sees 0 GPUs; use auto or cpu"),
        ("cuda:2", 2, "no device 'cuda:2': PyTorch sees 2 GPUs; use auto or cpu"),
        ("mps", 0, "no device 'mps': PyTorch sees 0 GPUs; use auto or cpu"),
        ("meta", 1, "no device 'meta': PyTorch sees 1 GPUs; use auto or cpu"),
        ("moon", 1, "no device 'moon': use auto, cpu, cuda, or cuda:1 and so on"),
    ],
)  # fmt: skip
def test_a_device_that_is_there_or_one_line(monkeypatch, name, count, wanted):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    if wanted.startswith("no device"):
        with pytest.raises(ValueError, match=rf"^{wanted}$"):
            pick_device(name)
    else:
        assert pick_device(name) == wanted
