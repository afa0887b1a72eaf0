"""Frozen networks that see pictures, by name.

densenet169, resnet50   timm's, with torchvision's first ImageNet weights: those of the papers' time
mobilenetv1             the network of the recorded photographs' features: transformers' MobileNetV1
                        (1.0, 224; Howard et al., 2017), cut after its last-but-one block
timm:MODEL              any of timm's, such as `timm:vit_base_patch16_224`
hf:NAME                 CLIP, SigLIP, DINOv2, ViT and their kin, from a folder in transformers' form

Only the weights of the first two are downloaded; those of the others come from a file or folder.
"""

import difflib
import re
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mmlib.core.errors import DataError
from mmlib.core.files import file_hash, regular_file

# torchvision and timm take seconds to import, which readers of features need not wait for.

Regions = Literal["grid", "global"]
TORCHVISIONS = ("densenet169", "resnet50")
MOBILENET, DETECTOR = "mobilenetv1", "fasterrcnn"  # which `regions.load_detector` gives
LIBRARIES = ("timm", "hf")  # that begin a name
SIDE = 4  # of the grid of regions


@dataclass(frozen=True)
class Vision:
    """A frozen network, and how it sees.

    name: of the backbone. network: to be moved to a device. preprocess: RGB picture -> (3, height,
    width). look: such pictures (n, 3, height, width) -> map (n, C, h, w) or None, vector (n, D),
    class logits (n, classes) or None. label_names: of the classes.
    """

    name: str
    network: nn.Module
    preprocess: Callable[[Image.Image], Tensor]
    look: Callable[[Tensor], tuple[Tensor | None, Tensor, Tensor | None]]
    label_names: tuple[str, ...] = ()
    regions: Regions = "grid"

    def see(self, pictures: Sequence[Tensor]) -> dict[str, Tensor]:
        """Features of pictures and, where the network has classes, their probabilities "labels".

        Features are (n, 16, C), the map averaged to 4 x 4 in rows from the top left, or for the
        regions "global" the vector (n, 1, D). Raises DataError for a grid of a model without a map.
        """
        maps, vector, logits = self.look(torch.stack(list(pictures)))
        scores = {} if logits is None else {"labels": logits.softmax(dim=1)}
        if self.regions == "global":
            return {"features": vector[:, None], **scores}
        if maps is None:
            raise DataError(f"{self.name} gives one vector an image (use --regions global)")
        pooled = nn.functional.adaptive_avg_pool2d(maps, SIDE)
        return {"features": pooled.flatten(2).transpose(1, 2), **scores}


def load(
    name: str, weights: str | Path | None = None, seed: int = 0, regions: Regions = "grid"
) -> Vision:
    """A backbone in evaluation mode, on the CPU (see the module's text for the names).

    weights: a `.safetensors` or `.pth` state dict (of `hf` a folder), or "random", drawn by `seed`;
    None: torchvision's own, from its cache, else downloaded and checked. Never unpickles code.
    Raises DataError: unknown name, no network, weights that do not fit.
    """
    library, _, model = name.partition(":")
    if name not in (*TORCHVISIONS, MOBILENET) and not (library in LIBRARIES and model):
        names = ", ".join((*TORCHVISIONS, MOBILENET, DETECTOR))
        libraries = ", ".join(LIBRARIES)
        raise DataError(
            f"no backbone {name!r} (choose from {names}, or LIBRARY:MODEL of {libraries})"
        )
    if weights is None and name not in TORCHVISIONS:
        kind = "FOLDER" if library == "hf" else "FILE"
        raise DataError(f"{name}: give --weights {kind}, or `random` for a test")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vision = {"hf": _hugging_face, MOBILENET: _mobilenet}.get(library, _timm)(name, weights)
    vision.network.eval().requires_grad_(False)
    return replace(vision, regions=regions)


def short_name(backbone: str, weights: str | Path | None = None) -> str:
    """A backbone's name as files have it: the model's; random weights are marked."""
    model = re.sub(r"[^\w-]+", "-", backbone.rpartition(":")[2])
    return model + ("_random" if weights == "random" else "")


def feature_name(backbone: str, regions: Regions, weights: str | Path | None = None) -> str:
    """The file name without suffix that `mmlib data features` gives: `grid4x4_densenet169`."""
    name = short_name(backbone, weights)
    if backbone == DETECTOR:
        return f"regions36_{name}_ims"
    return f"grid4x4_{name}" if regions == "grid" else f"{regions}_{name}"


# Weights -----------------------------------------------------------------------------------------


def published(model: str) -> Any:
    """torchvision's published weights of one of its models: the first ones."""
    from torchvision.models import get_model_weights

    return next(iter(get_model_weights(model)))


def weights_note(name: str, weights: str | Path | None, seed: int = 0) -> str:
    """Where the weights of a backbone come from, in words."""
    if weights == "random":
        return f"random, seed {seed}: NOT TRAINED, for tests only"
    if weights is None:
        from torchvision.models import list_models

        return str(published(name)) if name in list_models() else "unknown"
    path = Path(weights)
    kind, files = "file", [path] if path.is_file() else []
    if path.is_dir():  # as transformers writes it
        kind, files = "folder", sorted(path.glob("*.safetensors"))
    return f"{kind} {path.name}, SHA-256 {', '.join(map(file_hash, files)) or 'missing'}"


def read_weights(path: str | Path | None, model: str) -> Mapping[str, Tensor]:
    """State dict of a `.safetensors` or `.pth` file; None: of a model's `published` weights.

    The published come from torchvision's cache, else by a checked download. Raises DataError. Never
    unpickles code.
    """
    if path is None:
        choice = published(model)
        try:
            return choice.get_state_dict(progress=True, check_hash=True, weights_only=True)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            folder = Path(torch.hub.get_dir()) / "checkpoints"
            raise DataError(
                f"{choice.url}: cannot be downloaded: {error} (fetch it elsewhere, into {folder}; "
                "`mmlib data features` also takes it as --weights FILE)"
            ) from error
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


def load_state(network: nn.Module, state: Mapping[str, Tensor], refusal: str) -> None:
    """Put `state` into `network`; where it does not fit, a DataError that begins with `refusal`."""
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        faults = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
        raise DataError(f"{refusal}: {faults[0][:200]}") from error


# Libraries ---------------------------------------------------------------------------------------


def _to_map(tokens: Tensor, images: Tensor, patch: int) -> Tensor | None:
    # Tokens (n, T, C) as a map (n, C, h, w); None where there are fewer of them than patches. Those
    # of no patch (class, registers) come first and are left out.
    rows, columns = images.shape[2] // patch, images.shape[3] // patch
    if tokens.shape[1] < rows * columns:
        return None
    patches = tokens[:, tokens.shape[1] - rows * columns :]
    return patches.transpose(1, 2).unflatten(2, (rows, columns))


def _timm(name: str, weights: str | Path | None) -> Vision:
    import timm
    from torchvision import transforms

    if not timm.is_model(model := name.removeprefix("timm:")):
        near = ", ".join(difflib.get_close_matches(model, timm.list_models(), 3))
        raise DataError(f"timm has no model {model!r}" + (f" (near: {near})" if near else ""))
    network: Any = timm.create_model(model, pretrained=False)
    if weights != "random":
        state = read_weights(weights, name)
        # The published file of DenseNet still has `norm.1` for `norm1`.
        older = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.")
        state = {older.sub(r"\1\2.", key): value for key, value in state.items()}
        load_state(network, state, f"{weights}: not the weights of {name}")
    if name in TORCHVISIONS:  # as Hessel et al. (2019) prepare pictures: the shape is not kept
        mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        steps = [transforms.Resize((256, 256)), transforms.CenterCrop(224), transforms.ToTensor()]
        preprocess = transforms.Compose([*steps, transforms.Normalize(mean, deviation)])
    else:
        config = timm.data.resolve_model_data_config(network)
        preprocess = timm.data.create_transform(**config, is_training=False)

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        features = network.forward_features(images)
        vector = network.forward_head(features, pre_logits=True)
        logits = network.forward_head(features) if network.num_classes else None
        if features.ndim == 3:
            patch = network.patch_embed.patch_size[0] if hasattr(network, "patch_embed") else 1
            return _to_map(features, images, patch), vector, logits
        last = features.shape[-1] == network.num_features != features.shape[1]
        return features.permute(0, 3, 1, 2) if last else features, vector, logits

    names = published("resnet50").meta["categories"]
    if network.num_classes != len(names):
        names = map(str, range(network.num_classes))
    return Vision(name, network, preprocess, look, tuple(names))


def _hugging_face(name: str, weights: str | Path | None) -> Vision:
    import transformers

    folder = Path(weights or "")
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise DataError(f"{folder}: no folder with config.json and *.safetensors")
    for path in (path for path in folder.iterdir() if not path.is_dir()):
        regular_file(path)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **local)
        classifies = any("ForImageClassification" in entry for entry in config.architectures or ())
        auto: Any = transformers.AutoModelForImageClassification
        auto = auto if classifies else transformers.AutoModel
        network = auto.from_pretrained(folder, use_safetensors=True, **local)
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **local)
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"{folder}: not read by transformers: {reason}") from error
    base = network.base_model if classifies else getattr(network, "vision_model", network)
    patch = getattr(getattr(config, "vision_config", config), "patch_size", 1)

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        encoded = base(pixel_values=images)
        states = encoded.last_hidden_state
        pooled = getattr(encoded, "pooler_output", None)
        if pooled is None:
            pooled = states[:, 0] if states.ndim == 3 else states.mean(dim=(2, 3))
        vector = pooled.flatten(1)
        if hasattr(network, "visual_projection"):
            vector = network.visual_projection(vector)
        maps = _to_map(states, images, patch) if states.ndim == 3 else states
        return maps, vector, network(pixel_values=images).logits if classifies else None

    def preprocess(picture: Image.Image) -> Tensor:
        # As an array: of a picture of 1 or 3 pixels a side the channels would be guessed wrongly.
        how: Any = {"return_tensors": "pt", "input_data_format": "channels_last"}
        return processor(images=np.array(picture), **how)["pixel_values"][0]

    names = tuple(config.id2label[i] for i in range(config.num_labels)) if classifies else ()
    return Vision(name, network, preprocess, look, names)


def _mobilenet(name: str, weights: str | Path | None) -> Vision:
    # Its map (n, 1024, 7, 7) is the last-but-one block's; the classifier is left out. Weights have
    # transformers' names, as those of `google/mobilenet_v1_1.0_224`.
    from torchvision import transforms
    from transformers import MobileNetV1Config, MobileNetV1Model

    network = MobileNetV1Model(MobileNetV1Config())
    if weights != "random":
        state = read_weights(weights, name)
        state = {
            k.removeprefix("mobilenet_v1."): v for k, v in state.items() if "classifier." not in k
        }
        load_state(network, state, f"{weights}: not the weights of {name}")
    network.layer = network.layer[:-2]  # a block is two layers: depthwise, then 1 x 1

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        encoded = network(images)
        return encoded.last_hidden_state, encoded.pooler_output, None

    steps = [transforms.Resize((224, 224)), transforms.ToTensor()]
    half = (0.5, 0.5, 0.5)
    preprocess = transforms.Compose([*steps, transforms.Normalize(half, half)])
    return Vision(name, network, preprocess, look)
