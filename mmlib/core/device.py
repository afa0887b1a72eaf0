"""Which device to compute on."""

import torch


def pick_device(name: str) -> str:
    """Name a device that is there: "auto" is a GPU where there is one, else the CPU.

    Raises ValueError, in one line, for a name that is none and for a device that is not there.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"no device {name!r}: use auto, cpu, cuda, or cuda:1 and so on") from None
    gpus, apple = torch.cuda.device_count(), int(torch.backends.mps.is_available())
    if (device.index or 0) >= {"cpu": 1, "cuda": gpus, "mps": apple}.get(device.type, 0):
        raise ValueError(f"no device {name!r}: PyTorch sees {gpus} GPUs; use auto or cpu")
    return name
