"""A small convolutional network for world pictures: the world's stand-in for an ImageNet network.

Its weights come with the package; `ci/train_world_backbone.py` made them from scenes of the split
"backbone", which no other split shares. `backbone.json` says how, and how accurate it is.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import fuse_conv_bn_eval

from mmlib.core.paths import PACKAGE
from mmlib.world.schema import ACTIONS, COLOURS, KINDS, PATTERNS, SETTINGS, STYLES, Scene

WEIGHTS = PACKAGE / "world" / "backbone.safetensors"
RECORD = PACKAGE / "world" / "backbone.json"
SIZE = 128  # side of the pictures that it sees, in pixels
GRID = 4  # regions a side
# What it was trained to say of each place in the picture, and of the picture as a whole.
HEADS: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "colour": COLOURS,
    "pattern": PATTERNS[1:],
    "action": ACTIONS,
    "setting": SETTINGS,
    "style": STYLES,
}
LOCAL, OVERALL = ("kind", "colour", "pattern", "action"), ("setting", "style")
LABEL_HEADS = ("kind", "colour", "setting")
LABELS = tuple(word for name in LABEL_HEADS for word in HEADS[name])  # single English words
# (channels, stride) of each 3x3 layer
LAYERS = ((16, 2), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1))
WIDTH = LAYERS[-1][0]


class Backbone(nn.Module):
    """Eight 3x3 convolutions with skips; one linear layer that names what each place shows.

    A picture shows a kind, colour, pattern or action as surely as its surest place does. Setting
    and style are read from the mean over places. `norm` adds batch normalisation after each
    convolution, for training; `folded` merges it into the weights again.
    """

    def __init__(self, norm: bool = False):
        super().__init__()
        widths = [3] + [channels for channels, _ in LAYERS]
        self.convs = nn.ModuleList(
            nn.Conv2d(before, channels, 3, stride, 1)
            for before, (channels, stride) in zip(widths, LAYERS, strict=False)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) if norm else nn.Identity() for c, _ in LAYERS)
        self.local = nn.Linear(WIDTH, sum(len(HEADS[name]) for name in LOCAL))
        self.overall = nn.Linear(WIDTH, sum(len(HEADS[name]) for name in OVERALL))
        self.deviation: Tensor
        self.register_buffer("deviation", torch.ones(()))

    def map(self, pixels: Tensor) -> Tensor:
        """(n, 3, 128, 128) pixels, 0 to 255 -> (n, WIDTH, 8, 8) activations."""
        x = (pixels - 128) / 64
        for conv, norm, (_, stride) in zip(self.convs, self.norms, LAYERS, strict=True):
            y = norm(conv(x))
            x = F.relu(y if stride == 2 else x + y)
        return x

    def places(self, activations: Tensor) -> Tensor:
        """(n, WIDTH, h, w) -> (n, h * w, words of the LOCAL heads) logits."""
        return self.local(activations.flatten(2).transpose(1, 2))

    def logits(self, activations: Tensor) -> dict[str, Tensor]:
        """One (n, words) tensor a head."""
        local = self.places(activations).amax(1)
        overall = self.overall(activations.mean((2, 3)))
        logits: dict[str, Tensor] = {}
        for names, values in ((LOCAL, local), (OVERALL, overall)):
            columns = values.split([len(HEADS[name]) for name in names], 1)
            logits |= zip(names, columns, strict=True)
        return logits

    def probabilities(self, activations: Tensor) -> dict[str, np.ndarray]:
        """Every head's (n, words) float32 probabilities."""
        return {
            name: (logits.softmax(1) if name in OVERALL else logits.sigmoid()).numpy()
            for name, logits in self.logits(activations).items()
        }

    def regions(self, activations: Tensor) -> Tensor:
        """(n, WIDTH, h, w) -> (n, GRID * GRID, WIDTH), row by row, of about unit deviation."""
        pooled = F.adaptive_avg_pool2d(activations, GRID) / self.deviation
        return pooled.flatten(2).transpose(1, 2)

    def at_boxes(self, activations: Tensor, boxes: Tensor) -> Tensor:
        """(n, WIDTH, h, w) and boxes (n, k, 4) -> (n, k, WIDTH), scaled as `regions` are.

        boxes: left, top, right, bottom as fractions of the picture. Each is the mean over 3 x 3
        points of it, interpolated between the cells of the map.
        """
        low, high = boxes[..., :2], boxes[..., 2:]
        steps = (torch.arange(3) + 0.5) / 3
        points = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1).reshape(9, 2)
        where = low[..., None, :] + (high - low)[..., None, :] * points  # (n, k, 9, 2)
        sampled = F.grid_sample(activations, 2 * where - 1, align_corners=False)
        return (sampled.mean(3).transpose(1, 2) / self.deviation).contiguous()

    def folded(self) -> "Backbone":
        """The same network in evaluation without normalisation layers."""
        plain = Backbone()
        plain.local, plain.overall, plain.deviation = self.local, self.overall, self.deviation
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                plain.convs[i] = fuse_conv_bn_eval(conv.eval(), norm.eval())
        return plain.eval()


@cache
def load() -> Backbone:
    """The trained network, ready for inference; loaded once."""
    network = Backbone()
    weights = load_file(WEIGHTS)
    network.load_state_dict({name: value.float() for name, value in weights.items()})
    return network.requires_grad_(False).eval().to(memory_format=torch.channels_last)


def to_pixels(images: Sequence[Image.Image]) -> np.ndarray:
    """(n, 128, 128, 3) uint8; pictures of another size or mode are converted."""
    size, how = (SIZE, SIZE), Image.Resampling.BILINEAR
    return np.stack([np.asarray(image.convert("RGB").resize(size, how)) for image in images])


def to_input(pixels: np.ndarray) -> Tensor:
    """(n, h, w, 3) uint8 -> (n, 3, h, w) float32, stored with the channels last."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float()


@torch.inference_mode()
def extract(
    images: Sequence[Image.Image], boxes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """What the network sees in n >= 1 world pictures, 64 at a time.

    Pictures that are not 128 x 128 RGB are converted. boxes: (n, k, 4) of `Backbone.at_boxes`,
    where to look instead of at the grid. Returns:
        (n, 16, 128) float32: a 4 x 4 grid, row by row from the top left, from the last convolution;
            the mean over the regions is a picture's global feature. With boxes (n, k, 128).
        (n, 50) float32 probabilities of kinds, colours and settings.
        The 50 labels, single English words.
    """
    network = load()
    regions, labels = [], []
    for start in range(0, len(images), 64):
        activations = network.map(to_input(to_pixels(images[start : start + 64])))
        probabilities = network.probabilities(activations)
        seen = (
            network.regions(activations)
            if boxes is None
            else network.at_boxes(activations, torch.tensor(boxes[start : start + 64]))
        )
        regions.append(seen.numpy())
        labels.append(np.concatenate([probabilities[name] for name in LABEL_HEADS], 1))
    return np.concatenate(regions), np.concatenate(labels), LABELS


def targets(scenes: Sequence[Scene]) -> dict[str, np.ndarray]:
    """The truth for each head: (n, words) bool, by the names in HEADS."""
    truth = {name: np.zeros((len(scenes), len(words)), bool) for name, words in HEADS.items()}
    for i, scene in enumerate(scenes):
        shown = {name: {getattr(item, name) for item in scene.things} for name in LOCAL}
        shown |= {name: {getattr(scene, name)} for name in OVERALL}
        for name, words in HEADS.items():
            truth[name][i] = [word in shown[name] for word in words]
    return truth
