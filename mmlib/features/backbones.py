"""torchvision's frozen classifiers that make image features, and reading weights and pictures."""

import functools
import re
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from mmlib.core.errors import DataError
from mmlib.features.store import open_rgb

# torchvision is imported where it is used: that takes seconds, which readers of features need not
# wait for.

Regions = Literal["grid", "global"]


PREPROCESSING = "resize 256x256 bilinear, centre crop 224, ImageNet mean and deviation"
# With the weights of the papers' time: torchvision's first ImageNet weights of each network.
BACKBONES = ("densenet169", "resnet50")
MOBILENET = "mobilenetv1"  # see `mmlib.features.vision`


@functools.cache
def preprocess() -> Callable[[Image.Image], Tensor]:
    """RGB picture -> normalised (3, 224, 224).

    Resize to 256 x 256 without keeping the aspect, centre crop 224 (Hessel et al. 2019, authors'
    code); mean and deviation of ImageNet, as torchvision's weights expect.
    """
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize((256, 256)),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )


@dataclass(frozen=True)
class Vision:
    """A frozen network, and how it sees.

    name: of the backbone. preprocess: RGB picture -> (3, height, width), as the network expects it.
    see: pictures (n, 3, height, width), "grid" or "global" -> region features (n, 16 or 1, width),
    class probabilities (n, classes) or None. label_names: of the classes. network: to be moved to a
    device.
    """

    name: str
    network: nn.Module
    preprocess: Callable[[Image.Image], Tensor]
    see: Callable[[Tensor, str], tuple[Tensor, Tensor | None]]
    label_names: tuple[str, ...] = ()


class Backbone(nn.Module):
    """A torchvision classifier cut in two: `trunk` gives the feature map, `head` the classes."""

    def __init__(self, name: str, network: Any) -> None:
        super().__init__()
        if name == "densenet169":  # torchvision applies this ReLU in `forward`
            self.trunk = nn.Sequential(network.features, nn.ReLU())
            self.head: nn.Linear = network.classifier
        else:
            self.trunk = nn.Sequential(*list(network.children())[:-2])
            self.head = network.fc
        self.width = self.head.in_features

    def forward(self, images: Tensor, regions: Regions) -> tuple[Tensor, Tensor]:
        """Region features and class probabilities of normalised images (n, 3, 224, 224).

        Regions are (n, 16, width), a 4 x 4 grid in rows from the top left (averages of the last
        7 x 7 map), or (n, 1, width), the average of the whole map. Probabilities: (n, classes).
        """
        maps = self.trunk(images)
        side = 4 if regions == "grid" else 1
        pooled = nn.functional.adaptive_avg_pool2d(maps, side).flatten(2).transpose(1, 2)
        return pooled, self.head(maps.mean(dim=(2, 3))).softmax(dim=1)


def load_backbone(name: str, weights: str | Path | None = None, seed: int = 0) -> Backbone:
    """A frozen backbone in evaluation mode.

    weights: None for torchvision's ImageNet weights (its cache, else downloaded and checked), a
        `.safetensors` or `.pth` file with the state dict of the torchvision model, or "random".
    seed: for random weights only.

    Raises DataError: unknown name, no network, a file that does not fit. Never unpickles code.
    """
    if name not in BACKBONES:
        choice = ", ".join((*BACKBONES, MOBILENET))
        raise DataError(f"no backbone {name!r} (choose from {choice}, fasterrcnn or LIBRARY:MODEL)")
    from torchvision.models import get_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = get_model(name, weights=None)
    if weights != "random":
        state = pretrained(default_weights(name)) if weights is None else read_weights(weights)
        state = {_current_key(key): value for key, value in state.items()}
        load_state(network, state, f"{weights}: not the weights of {name}")
    return Backbone(name, network).eval().requires_grad_(False)


def load_state(network: nn.Module, state: Mapping[str, Tensor], refusal: str) -> None:
    """Put `state` into `network`; where it does not fit, a DataError that begins with `refusal`."""
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        faults = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
        raise DataError(f"{refusal}: {faults[0][:200]}") from error


def default_weights(name: str) -> Any:
    """torchvision's weights of one of `BACKBONES`; "unknown" of another network."""
    from torchvision.models import get_model_weights

    return get_model_weights(name)["IMAGENET1K_V1"] if name in BACKBONES else "unknown"


def label_names(name: str) -> tuple[str, ...]:
    """The names of the 1,000 ImageNet classes in the order of a backbone's outputs."""
    return tuple(default_weights(name).meta["categories"])


def pretrained(choice: Any) -> Mapping[str, Tensor]:
    """State dict of one of torchvision's published weights: its cache, else a checked download."""
    try:
        return choice.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        raise DataError(
            f"{choice.url}: cannot be downloaded: {error} (fetch it elsewhere and give it with "
            f"--weights FILE, or put it into {folder})"
        ) from error


def read_weights(path: str | Path) -> Mapping[str, Tensor]:
    """State dict of a `.safetensors` or `.pth` file; raises DataError. Never unpickles code."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a file of plain tensors: {reason}") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path}: not a state dict (save `model.state_dict()`)")
    return state


def _current_key(key: str) -> str:
    """Name of a DenseNet parameter today; the published file still has `norm.1` for `norm1`."""
    return re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.", r"\1\2.", key)


def open_picture(path: Path) -> Image.Image:
    """Decode one picture completely; the DataError says what else can be done."""
    try:
        return open_rgb(path)
    except DataError as error:
        raise DataError(f"{error}; --skip-bad leaves such images out") from error
