"""Vision models of other libraries as frozen backbones: torchvision, timm, open_clip, Hugging Face.

A name is LIBRARY:MODEL, such as `timm:mobilenetv1_100` or `open_clip:ViT-B-32`. For `hf` the
weights are the folder that transformers writes, and MODEL is what its features will be called. A
library is imported when one of its models is asked for. Only torchvision's weights are downloaded.

`mobilenetv1` is the network of the recorded photographs' features: transformers' MobileNetV1 (1.0,
224; Howard et al., 2017), cut after its last-but-one block.
"""

import difflib
import importlib
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn

from mmlib.core.errors import DataError
from mmlib.features.backbones import MOBILENET, Vision, load_state, pretrained, read_weights

PACKAGES = {"torchvision": "torchvision", "timm": "timm", "open_clip": "open_clip_torch",
            "hf": "transformers", MOBILENET: "transformers"}  # fmt: skip
EXTRAS = ("timm", "open_clip")  # of pyproject.toml; mmlib needs the other packages itself
SIDE = 4  # of the grid of regions


Look = Callable[[Tensor], tuple[Tensor | None, Tensor, Tensor | None]]


def _seen(name: str, look: Look) -> Callable[[Tensor, str], tuple[Tensor, Tensor | None]]:
    """What a `Vision` sees, from `look`: pictures -> map, vector, class logits.

    look: (n, 3, height, width) -> (n, C, h, w) or None, (n, D), (n, classes) or None. A grid is the
    map averaged to 4 x 4. DataError for a grid of a model that has no map.
    """

    def see(images: Tensor, regions: str) -> tuple[Tensor, Tensor | None]:
        maps, vector, logits = look(images)
        scores = None if logits is None else logits.softmax(dim=1)
        if regions == "global":
            return vector[:, None], scores
        if maps is None:
            raise DataError(f"{name} gives one vector an image (use --regions global)")
        pooled = nn.functional.adaptive_avg_pool2d(maps, SIDE)
        return pooled.flatten(2).transpose(1, 2), scores

    return see


def load(name: str, weights: str | Path | None = None, seed: int = 0) -> Vision:
    """A model in evaluation mode, on the CPU.

    weights: a `.safetensors` or `.pth` state dict (of `hf` a folder), or "random", drawn by `seed`;
    None: torchvision's own, which no other library has here.
    Raises DataError: unknown library or model, library not installed, weights that do not fit.
    """
    library, _, model = name.partition(":")
    if name != MOBILENET and (library not in LOADERS or not model):
        libraries = ", ".join(one for one in LOADERS if one != MOBILENET)
        raise DataError(f"no backbone {name!r} (LIBRARY:MODEL of {libraries})")
    version_of(name)
    package = importlib.import_module(PACKAGES[library].removesuffix("_torch"))
    if weights is None and library != "torchvision":
        what = "FOLDER" if library == "hf" else "FILE"
        raise DataError(f"{name}: give --weights {what}, or `random` for a test")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vision = LOADERS[library](package, name, model, weights)
    vision.network.eval().requires_grad_(False)
    return vision


def version_of(name: str) -> str:
    """The library of a backbone with its version. Raises DataError where it is not installed."""
    library = name.partition(":")[0]
    package = PACKAGES.get(library, library)
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        extra = f", or mmlib with its extra: pip install -e '.[{library}]'"
        how = f"pip install {package}{extra if library in EXTRAS else ''}"
        raise DataError(f"{name}: {package} is not installed ({how})") from None


def _known(name: str, model: str, known: Sequence[str]) -> None:
    """DataError for a model that a library does not know."""
    if model not in known:
        near = ", ".join(difflib.get_close_matches(model, known, 3))
        library = name.partition(":")[0]
        raise DataError(f"{library} has no model {model!r}" + (f" (near: {near})" if near else ""))


def _filled(network: nn.Module, name: str, weights: str | Path | None) -> nn.Module:
    """The network with the weights of a file; as it is for "random"."""
    if weights != "random" and weights is not None:
        load_state(network, read_weights(weights), f"{weights}: not the weights of {name}")
    return network


def imagenet_names(classes: int) -> tuple[str, ...]:
    """The names of ImageNet's 1,000 classes, or numbers for another count of them."""
    from torchvision.models import ResNet50_Weights

    names = tuple(ResNet50_Weights.IMAGENET1K_V1.meta["categories"])
    return names if classes == len(names) else tuple(map(str, range(classes)))


def to_map(tokens: Tensor, images: Tensor, patch: int) -> Tensor | None:
    """Tokens (n, T, C) of a picture's patches as a map (n, C, h, w).

    Tokens of no patch (class, registers) come first and are left out; None where there are fewer
    tokens than patches.
    """
    rows, columns = images.shape[2] // patch, images.shape[3] // patch
    if tokens.shape[1] < rows * columns:
        return None
    patches = tokens[:, tokens.shape[1] - rows * columns :]
    return patches.transpose(1, 2).unflatten(2, (rows, columns))


def _classifier_names() -> list[str]:
    """The names of torchvision's classifiers of pictures."""
    from torchvision import models

    return models.list_models(models)


def _torchvision(package: Any, name: str, model: str, weights: str | Path | None) -> Vision:
    """Any classifier of torchvision; its map is the last one of more than one place."""
    from torchvision.models import get_model, get_model_weights

    _known(name, model, _classifier_names())
    published = get_model_weights(model).DEFAULT
    network = get_model(model, weights=None).eval()
    if weights is None:
        load_state(network, pretrained(published), name)
    _filled(network, name, weights)
    last: dict[str, Tensor] = {}

    def keep(_: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) > 1:
            last["map"] = output
        elif isinstance(output, Tensor) and output.ndim == 3:
            last["tokens"] = output

    for module in network.modules():
        module.register_forward_hook(keep)

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        last.clear()
        logits, maps = network(images), last.get("map")
        if "tokens" in last:  # a vision transformer, whose class token is its vector
            tokens, patch = last["tokens"], getattr(network, "patch_size", 1)
            return to_map(tokens, images, patch), tokens[:, 0], logits
        assert maps is not None
        return maps, maps.mean(dim=(2, 3)), logits

    transform = published.transforms()
    return Vision(name, network, transform, _seen(name, look), tuple(published.meta["categories"]))


def _timm(timm: Any, name: str, model: str, weights: str | Path | None) -> Vision:
    if not timm.is_model(model):
        _known(name, model, timm.list_models())
    network: Any = _filled(timm.create_model(model, pretrained=False), name, weights)
    config = timm.data.resolve_model_data_config(network)
    transform = timm.data.create_transform(**config, is_training=False)

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        features = network.forward_features(images)
        vector = network.forward_head(features, pre_logits=True)
        logits = network.forward_head(features) if network.num_classes else None
        if features.ndim == 3:
            patch = network.patch_embed.patch_size[0] if hasattr(network, "patch_embed") else 1
            return to_map(features, images, patch), vector, logits
        last = features.shape[-1] == network.num_features != features.shape[1]
        return features.permute(0, 3, 1, 2) if last else features, vector, logits

    return Vision(name, network, transform, _seen(name, look), imagenet_names(network.num_classes))


def _open_clip(open_clip: Any, name: str, model: str, weights: str | Path | None) -> Vision:
    _known(name, model, open_clip.list_models())
    network, _, transform = open_clip.create_model_and_transforms(model, pretrained=None)
    _filled(network, name, weights)
    visual = network.visual
    if hasattr(visual, "output_tokens"):
        visual.output_tokens = True

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        encoded = visual(images)
        if isinstance(encoded, Tensor):  # a network without tokens
            return None, encoded, None
        vector, tokens = encoded
        return to_map(tokens, images, visual.patch_size[0]), vector, None

    return Vision(name, network, transform, _seen(name, look))


def _hugging_face(package: Any, name: str, model: str, weights: str | Path | None) -> Vision:
    """CLIP, SigLIP, DINOv2, ViT and their kin, from a folder in transformers' form."""
    folder = Path(weights or "")
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise DataError(f"{folder}: no folder with config.json and *.safetensors")
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = package.AutoConfig.from_pretrained(folder, **local)
        classifies = any("ForImageClassification" in one for one in config.architectures or ())
        auto = package.AutoModelForImageClassification if classifies else package.AutoModel
        network = auto.from_pretrained(folder, use_safetensors=True, **local)
        processor = package.AutoImageProcessor.from_pretrained(folder, **local)
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
        maps = to_map(states, images, patch) if states.ndim == 3 else states
        return maps, vector, network(pixel_values=images).logits if classifies else None

    def preprocess(picture: Image.Image) -> Tensor:
        return processor(images=picture, return_tensors="pt")["pixel_values"][0]

    names = tuple(config.id2label[i] for i in range(config.num_labels)) if classifies else ()
    return Vision(name, network, preprocess, _seen(name, look), names)


def _mobilenet(package: Any, name: str, model: str, weights: str | Path | None) -> Vision:
    """Its map (n, 1024, 7, 7) is the last-but-one block's; the classifier is left out.

    weights: the state dict of `google/mobilenet_v1_1.0_224`, with transformers' names.
    """
    from torchvision import transforms

    network = package.MobileNetV1Model(package.MobileNetV1Config())
    if weights != "random" and weights is not None:
        state = {
            key.removeprefix("mobilenet_v1."): value
            for key, value in read_weights(weights).items()
            if not key.startswith("classifier.")
        }
        load_state(network, state, f"{weights}: not the weights of {name}")
    network.layer = network.layer[:-2]  # a block is two layers: depthwise, then 1 x 1

    def look(images: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        encoded = network(images)
        return encoded.last_hidden_state, encoded.pooler_output, None

    transform = transforms.Compose(
        [
            transforms.Resize((224, 224)),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        ]
    )
    return Vision(name, network, transform, _seen(name, look))


LOADERS: dict[str, Callable[[Any, str, str, str | Path | None], Vision]] = {
    "torchvision": _torchvision, "timm": _timm, "open_clip": _open_clip, "hf": _hugging_face,
    MOBILENET: _mobilenet,
}  # fmt: skip
