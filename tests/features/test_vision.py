"""Vision models of other libraries: tiny ones, built here, against their own forward passes."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from PIL import Image
from safetensors.torch import save_file

from mmlib.core.errors import DataError
from mmlib.features import vision
from mmlib.features.extraction import Extraction
from mmlib.features.networks import extract, feature_name
from mmlib.features.store import open_features


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(3):
        pixels = rng.integers(0, 256, size=(40, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    return [(path.name, path) for path in sorted((tmp_path / "images").iterdir())]


def seen(model, picture, regions):
    with torch.inference_mode():
        features, scores = model.see(model.preprocess(picture)[None], regions)
    return features, scores


PICTURE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8))


# torchvision


@pytest.mark.parametrize(
    ("name", "width", "vector"), [("mobilenet_v3_small", 576, 576), ("vit_b_32", 768, 768)]
)
def test_classifiers_of_torchvision(name, width, vector):
    from torchvision.models import get_model

    model = vision.load(f"torchvision:{name}", "random", seed=2)
    grid, scores = seen(model, PICTURE, "grid")
    whole, _ = seen(model, PICTURE, "global")
    assert (grid.shape, whole.shape) == ((1, 16, width), (1, 1, vector))
    torch.manual_seed(2)
    original = get_model(name, weights=None).eval()
    inputs = model.preprocess(PICTURE)[None]
    with torch.inference_mode():
        torch.testing.assert_close(scores, original(inputs).softmax(dim=1))
        if name.startswith("mobilenet"):
            maps = original.features(inputs)
        else:  # 7 x 7 patches of 32 pixels, after the class token
            tokens = original._process_input(inputs)
            tokens = original.encoder(torch.cat([original.class_token, tokens], dim=1))
            torch.testing.assert_close(whole[0, 0], tokens[0, 0])
            maps = tokens[:, 1:].transpose(1, 2).reshape(1, width, 7, 7)
        torch.testing.assert_close(grid[0, 1], maps[0, :, 0:2, 1:4].mean(dim=(1, 2)))
    assert model.label_names[0] == "tench"


# Hugging Face


TEXT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 9,
        "num_attention_heads": 2}  # fmt: skip
SEES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 32,
        "num_attention_heads": 2, "patch_size": 8}  # fmt: skip


def build(kind, folder):
    """A tiny model of that kind in transformers' form; returns it."""
    import transformers as hf

    torch.manual_seed(0)
    if kind == "clip":
        config = hf.CLIPConfig(text_config=TEXT, vision_config=SEES, projection_dim=6)
        model, processor = hf.CLIPModel(config), hf.CLIPImageProcessor
    elif kind == "siglip":
        model = hf.SiglipModel(hf.SiglipConfig(text_config=TEXT, vision_config=SEES))
        processor = hf.SiglipImageProcessor
    elif kind == "dinov2":
        model, processor = hf.Dinov2Model(hf.Dinov2Config(**SEES)), hf.BitImageProcessor
    else:
        config = hf.ViTConfig(**SEES, id2label={0: "cat", 1: "dog", 2: "hat"})
        model, processor = hf.ViTForImageClassification(config), hf.ViTImageProcessor
    size = {"height": 32, "width": 32}
    model.eval().save_pretrained(folder)
    crop = {"crop_size": size, "size": {"shortest_edge": 32}} if kind in ("clip", "dinov2") else {}
    processor(**(crop or {"size": size})).save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["clip", "siglip", "dinov2", "vit"])
def test_hugging_face_models(tmp_path, kind):
    pytest.importorskip("transformers")
    original = build(kind, tmp_path / kind)
    model = vision.load(f"hf:{kind}", tmp_path / kind)
    inputs = model.preprocess(PICTURE)[None]
    assert inputs.shape == (1, 3, 32, 32)
    grid, scores = seen(model, PICTURE, "grid")
    whole, _ = seen(model, PICTURE, "global")
    with torch.inference_mode():
        tower = getattr(original, "vision_model", getattr(original, "vit", original))
        encoded = tower(pixel_values=inputs)
        tokens = encoded.last_hidden_state
        skipped = 0 if kind == "siglip" else 1  # 4 x 4 patches, so that each is a region
        torch.testing.assert_close(grid, tokens[:, skipped:])
        assert grid.shape == (1, 16, 16)
        if kind == "clip":
            wanted = original.visual_projection(encoded.pooler_output)
            assert whole.shape == (1, 1, 6)
        else:
            wanted = tokens[:, 0] if kind == "vit" else encoded.pooler_output
        torch.testing.assert_close(whole[:, 0], wanted)
        if kind == "vit":
            torch.testing.assert_close(scores, original(pixel_values=inputs).logits.softmax(1))
            assert model.label_names == ("cat", "dog", "hat")
        else:
            assert scores is None


def test_features_of_a_hugging_face_folder_end_to_end(tmp_path, pictures):
    pytest.importorskip("transformers")
    build("vit", tmp_path / "vit")
    out, labels = tmp_path / "features" / "grid4x4_own.npy", tmp_path / "features/labels_own.npy"
    extraction = Extraction(pictures, out, weights=tmp_path / "vit", batch=2, dtype="float32")
    store = extract(extraction, "hf:own", "grid", labels)
    assert store.array.shape == (3, 16, 16)
    assert store.meta["weights"].startswith("folder vit, SHA-256 ")
    assert store.meta["library"].startswith("transformers ")
    assert open_features(labels).meta["label_names"] == ["cat", "dog", "hat"]
    assert extract(extraction, "hf:own", "grid", labels).meta == store.meta  # as it is there


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "not JSON", "weights"])
def test_a_folder_that_is_no_model_is_one_line(tmp_path, damage):
    pytest.importorskip("transformers")
    build("vit", tmp_path / "vit")
    if damage == "not JSON":
        (tmp_path / "vit/config.json").write_text("{")
    elif damage == "weights":
        (tmp_path / "vit/model.safetensors").write_bytes(b"no weights")
    else:
        (tmp_path / "vit" / damage).unlink()
    with pytest.raises(DataError, match=r"^[^\n]*vit[^\n]*$") as told:
        vision.load("hf:vit", tmp_path / "vit")
    assert len(str(told.value)) < 400


# The network of the recorded features


def same_padded(images, weight, stride, groups):
    """A convolution with TensorFlow's padding: what is odd goes to the right and the bottom."""
    size = images.shape[-1]
    short = max((-(-size // stride) - 1) * stride + weight.shape[-1] - size, 0)
    before, after = short // 2, short - short // 2
    images = torch.nn.functional.pad(images, (before, after, before, after))
    return torch.nn.functional.conv2d(images, weight, stride=stride, groups=groups)


def mobilenet_map(state, images, blocks):
    """MobileNetV1's map after some blocks, from Howard et al. (2017), Table 1."""

    def layer(name, images, stride, depthwise):
        weight = state[f"{name}.convolution.weight"]
        groups = len(weight) if depthwise else 1
        images = same_padded(images, weight, stride, groups)
        scale, shift, mean, variance = (
            state[f"{name}.normalization.{kind}"][:, None, None]
            for kind in ("weight", "bias", "running_mean", "running_var")
        )
        return ((images - mean) / (variance + 0.001).sqrt() * scale + shift).clamp(0, 6)

    images = layer("mobilenet_v1.conv_stem", images, 2, False)
    for i, stride in enumerate([1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1][:blocks]):
        images = layer(f"mobilenet_v1.layer.{2 * i}", images, stride, True)
        images = layer(f"mobilenet_v1.layer.{2 * i + 1}", images, 1, False)
    return images


def test_the_network_of_the_recorded_features(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    original = transformers.MobileNetV1ForImageClassification(transformers.MobileNetV1Config())
    state = original.state_dict()
    for key, value in state.items():  # so that no batch normalisation is the identity
        if key.endswith("convolution.weight"):
            torch.nn.init.kaiming_normal_(value)
        elif "normalization" in key and value.ndim:
            value.uniform_(0.5, 1.5)
    save_file(state, tmp_path / "w.safetensors")
    model = vision.load("mobilenetv1", tmp_path / "w.safetensors")
    pixels = np.asarray(PICTURE.resize((224, 224), Image.Resampling.BILINEAR))
    inputs = torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1)[None] / 127.5 - 1
    torch.testing.assert_close(model.preprocess(PICTURE)[None], inputs)
    with torch.inference_mode():
        maps = mobilenet_map(state, inputs, 12)
    grid, scores = seen(model, PICTURE, "grid")
    whole, _ = seen(model, PICTURE, "global")
    assert (maps.shape, grid.shape, scores) == ((1, 1024, 7, 7), (1, 16, 1024), None)
    # The cells of a 7 x 7 map pooled to 4 x 4 overlap by a row or column.
    cells = [(0, 2), (1, 4), (3, 6), (5, 7)]
    wanted = [maps[:, :, a:b, c:d].mean(dim=(2, 3)) for a, b in cells for c, d in cells]
    torch.testing.assert_close(grid, torch.stack(wanted, dim=1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(whole[:, 0], maps.mean(dim=(2, 3)), rtol=1e-4, atol=1e-4)
    assert maps.std() > 0.1
    del state["mobilenet_v1.conv_stem.convolution.weight"]
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(DataError, match=r"not the weights of mobilenetv1: .*conv_stem"):
        vision.load("mobilenetv1", tmp_path / "w.safetensors")
    with pytest.raises(DataError, match="mobilenetv1: give --weights FILE"):
        vision.load("mobilenetv1")


# timm and open_clip


@pytest.mark.parametrize(
    "name", ["mobilenetv1_100", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"]
)
def test_models_of_timm(tmp_path, name):
    timm = pytest.importorskip("timm", reason="the extra timm is not installed")
    torch.manual_seed(1)
    original = timm.create_model(name, pretrained=False).eval()
    save_file(original.state_dict(), tmp_path / "w.safetensors")
    model = vision.load(f"timm:{name}", tmp_path / "w.safetensors")
    inputs = model.preprocess(PICTURE)[None]
    grid, scores = seen(model, PICTURE, "grid")
    whole, _ = seen(model, PICTURE, "global")
    with torch.inference_mode():
        torch.testing.assert_close(scores, original(inputs).softmax(1))
        features = original.forward_features(inputs)
    if name.startswith("vit"):
        maps = features[:, 1:].transpose(1, 2).reshape(1, 192, 14, 14)
    else:
        maps = features.permute(0, 3, 1, 2) if name.startswith("swin") else features
    pooled = torch.nn.functional.adaptive_avg_pool2d(maps, 4).flatten(2).transpose(1, 2)
    torch.testing.assert_close(grid, pooled)
    assert grid.shape[:2] == (1, 16)
    assert whole.shape[:2] == (1, 1)
    with pytest.raises(DataError, match="not the weights of timm:resnet18: "):
        vision.load("timm:resnet18", tmp_path / "w.safetensors")


def test_clip_of_open_clip(tmp_path, monkeypatch):
    open_clip = pytest.importorskip("open_clip", reason="the extra open_clip is not installed")
    tiny = {"embed_dim": 6, "vision_cfg": {"image_size": 32, "layers": 1, "width": 64,
            "patch_size": 8}, "text_cfg": {"context_length": 8, "vocab_size": 9, "width": 64,
            "heads": 1, "layers": 1}}  # fmt: skip
    (tmp_path / "tiny.json").write_text(json.dumps(tiny))
    open_clip.add_model_config(tmp_path / "tiny.json")
    torch.manual_seed(1)
    original = open_clip.create_model("tiny").eval()
    torch.save(original.state_dict(), tmp_path / "w.pth")
    model = vision.load("open_clip:tiny", tmp_path / "w.pth")
    inputs = model.preprocess(PICTURE)[None]
    whole, scores = seen(model, PICTURE, "global")
    grid, _ = seen(model, PICTURE, "grid")
    with torch.inference_mode():
        torch.testing.assert_close(whole[:, 0], original.encode_image(inputs))
    assert (grid.shape, scores) == ((1, 16, 64), None)


# What is refused


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("keras:vgg", "no backbone 'keras:vgg' .LIBRARY:MODEL of torchvision, timm, open_clip, hf"),
        ("torchvision:", "no backbone 'torchvision:'"),
        ("torchvision:resnet5", r"torchvision has no model 'resnet5' \(near: resnet50"),
        ("hf:clip", "random: no folder with config.json"),
    ],
)
def test_what_is_no_model_is_named(name, said):
    with pytest.raises(DataError, match=said):
        vision.load(name, "random")


def test_weights_and_libraries_that_are_missing_are_named(monkeypatch):
    with pytest.raises(DataError, match=r"hf:clip: give --weights FOLDER"):
        vision.load("hf:clip")
    monkeypatch.setitem(vision.PACKAGES, "timm", "no_such_package")
    named = r"no_such_package is not installed \(pip install no_such_package, or .*'\.\[timm\]'\)"
    with pytest.raises(DataError, match=named):
        vision.load("timm:resnet18")


def test_the_extras_bring_the_libraries():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    needed = {Requirement(one).name for one in project["dependencies"]}
    for library in vision.LOADERS:
        package = vision.PACKAGES[library]
        assert (library in vision.EXTRAS) == (package not in needed)
        if library in vision.EXTRAS:
            (extra,) = project["optional-dependencies"][library]
            assert Requirement(extra).name == package


def test_a_model_without_a_map_or_without_classes_says_so(pictures, tmp_path, monkeypatch):
    flat = vision._seen("hf:flat", lambda images: (None, images.flatten(1)[:, :5], None))
    model = vision.Vision("hf:flat", torch.nn.Identity(), lambda p: torch.zeros(3, 4, 4), flat)
    monkeypatch.setattr(vision, "load", lambda *how: model)
    extraction = Extraction(pictures, tmp_path / "f.npy", weights="random")
    with pytest.raises(DataError, match="one vector an image"):
        extract(extraction, "hf:flat", "grid")
    with pytest.raises(DataError, match="hf:flat has no classes"):
        extract(extraction, "hf:flat", "global", tmp_path / "labels.npy")
    assert extract(extraction, "hf:flat", "global").array.shape == (3, 5)


def test_file_names_have_the_models_name():
    assert feature_name("timm:vit.in1k", "grid") == "grid4x4_vit-in1k"
    assert feature_name("hf:my clip", "global", "random") == "global_my-clip_random"
