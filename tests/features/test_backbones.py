"""Backbones against their libraries' own forward passes, and what is refused."""

import pickle
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from transformers import MobileNetV1Config, MobileNetV1ForImageClassification

from mmlib.core.errors import DataError
from mmlib.features import backbones
from mmlib.features.backbones import feature_name, read_weights

PICTURE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8))


def seen(model, picture, regions):
    with torch.inference_mode():
        rows = replace(model, regions=regions).see([model.preprocess(picture)])
    return rows["features"], rows.get("labels")


# timm, with the weights of torchvision


@pytest.mark.parametrize(("name", "width"), [("resnet50", 2048), ("densenet169", 1664)])
def test_networks_of_the_papers_are_torchvisions(tmp_path, name, width):
    original = torchvision.models.get_model(name, weights=None).eval()
    published = {  # the published file's older names
        key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2.") if "dense" in key else key: v
        for key, v in original.state_dict().items()
    }
    assert (published.keys() != original.state_dict().keys()) == (name == "densenet169")
    torch.save(published, tmp_path / "w.pth")
    model = backbones.load(name, tmp_path / "w.pth")
    images = model.preprocess(PICTURE)[None]
    grid, scores = seen(model, PICTURE, "grid")
    pooled, _ = seen(model, PICTURE, "global")
    with torch.inference_mode():
        torch.testing.assert_close(scores, original(images).softmax(dim=1))
        if name == "resnet50":
            maps = torch.nn.Sequential(*list(original.children())[:-2])(images)
        else:
            maps = original.features(images).relu()
    assert (grid.shape, pooled.shape) == ((1, 16, width), (1, 1, width))
    torch.testing.assert_close(pooled[:, 0], maps.mean(dim=(2, 3)))
    # Cell 1 of a 7 x 7 map pooled to 4 x 4: rows 0-1, columns 1-3, so rows come first.
    torch.testing.assert_close(grid[:, 1], maps[:, :, 0:2, 1:4].mean(dim=(2, 3)))
    assert model.label_names[207] == "golden retriever"


def test_pictures_are_squeezed_and_their_centre_is_seen():
    red = Image.new("RGB", (400, 100), "blue")
    red.paste("red", (50, 0, 350, 100))
    pixels = backbones.load("resnet50", "random").preprocess(red)
    assert pixels.shape == (3, 224, 224)
    deviation, mean = np.array([0.229, 0.224, 0.225]), np.array([0.485, 0.456, 0.406])
    colours = pixels.numpy().transpose(1, 2, 0) * deviation + mean
    assert colours[:, 60:160] == pytest.approx(np.broadcast_to([1, 0, 0], (224, 100, 3)), abs=1e-5)
    columns = np.flatnonzero((colours[0] > [0.9, -1, -1]).all(axis=1))
    assert abs(len(columns) - 0.75 * 256) < 3


@pytest.mark.parametrize(
    "name", ["mobilenetv1_100", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"]
)
def test_models_of_timm(tmp_path, name):
    torch.manual_seed(1)
    original = timm.create_model(name, pretrained=False).eval()
    save_file(original.state_dict(), tmp_path / "w.safetensors")
    model = backbones.load(f"timm:{name}", tmp_path / "w.safetensors")
    inputs = model.preprocess(PICTURE)[None]
    grid, scores = seen(model, PICTURE, "grid")
    vector, _ = seen(model, PICTURE, "global")
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
    assert vector.shape[:2] == (1, 1)


def test_random_weights_follow_their_seed_and_leave_the_generator_alone():
    before = torch.random.get_rng_state()
    first, same, second = (
        backbones.load("timm:mobilenetv3_small_050", "random", seed).network.state_dict()
        for seed in (3, 3, 4)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first["conv_stem.weight"], same["conv_stem.weight"])
    assert not torch.equal(first["conv_stem.weight"], second["conv_stem.weight"])


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
    original = build(kind, tmp_path / kind)
    model = backbones.load(f"hf:{kind}", tmp_path / kind)
    inputs = model.preprocess(PICTURE)[None]
    assert inputs.shape == (1, 3, 32, 32)
    grid, scores = seen(model, PICTURE, "grid")
    vector, _ = seen(model, PICTURE, "global")
    with torch.inference_mode():
        tower = getattr(original, "vision_model", getattr(original, "vit", original))
        encoded = tower(pixel_values=inputs)
        tokens = encoded.last_hidden_state
        skipped = 0 if kind == "siglip" else 1  # 4 x 4 patches, so that each is a region
        torch.testing.assert_close(grid, tokens[:, skipped:])
        assert grid.shape == (1, 16, 16)
        if kind == "clip":
            wanted = original.visual_projection(encoded.pooler_output)
            assert vector.shape == (1, 1, 6)
        else:
            wanted = tokens[:, 0] if kind == "vit" else encoded.pooler_output
        torch.testing.assert_close(vector[:, 0], wanted)
        if kind == "vit":
            torch.testing.assert_close(scores, original(pixel_values=inputs).logits.softmax(1))
            assert model.label_names == ("cat", "dog", "hat")
        else:
            assert scores is None


# The network of the recorded features


def test_the_network_of_the_recorded_features(tmp_path):
    torch.manual_seed(1)
    original = MobileNetV1ForImageClassification(MobileNetV1Config()).eval()
    for key, value in (state := original.state_dict()).items():
        if key.endswith("convolution.weight"):
            torch.nn.init.kaiming_normal_(value)
        elif "normalization" in key and value.ndim:  # none of them is the identity
            value.uniform_(0.5, 1.5)
    save_file(state, tmp_path / "w.safetensors")
    model = backbones.load("mobilenetv1", tmp_path / "w.safetensors")
    pixels = np.asarray(PICTURE.resize((224, 224), Image.Resampling.BILINEAR))
    inputs = torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1)[None] / 127.5 - 1
    torch.testing.assert_close(model.preprocess(PICTURE)[None], inputs)
    with torch.inference_mode():  # the stem's map is no hidden state, and a block has two
        maps = original.mobilenet_v1(inputs, output_hidden_states=True).hidden_states[23]
    grid, scores = seen(model, PICTURE, "grid")
    vector, _ = seen(model, PICTURE, "global")
    assert (maps.shape, grid.shape, scores) == ((1, 1024, 7, 7), (1, 16, 1024), None)
    # The cells of a 7 x 7 map pooled to 4 x 4 overlap by a row or column.
    cells = [(0, 2), (1, 4), (3, 6), (5, 7)]
    wanted = [maps[:, :, a:b, c:d].mean(dim=(2, 3)) for a, b in cells for c, d in cells]
    torch.testing.assert_close(grid, torch.stack(wanted, dim=1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(vector[:, 0], maps.mean(dim=(2, 3)), rtol=1e-4, atol=1e-4)
    assert maps.std() > 0.1


# What is refused


class Evil:
    def __reduce__(self):
        return (open, ("evil.txt", "w"))


def test_a_weights_file_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Evil()}, tmp_path / "w.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("w.pth", "plain.pth"):
        with pytest.raises(DataError, match="not a file of plain tensors"):
            read_weights(tmp_path / name, "resnet50")
    assert not (tmp_path / "evil.txt").exists()


def other_weights(folder):
    save_file({"fc.weight": torch.ones(3)}, folder / "w.safetensors")
    return folder / "w.safetensors"


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("vgg", "random", "no backbone 'vgg' .*, or LIBRARY:MODEL of timm, hf"),
        ("keras:vgg", "random", "no backbone 'keras:vgg'"),
        ("timm:", "random", "no backbone 'timm:'"),
        ("timm:resnet5", "random", r"timm has no model 'resnet5' \(near: resnet50"),
        ("hf:clip", "random", "random: no folder with config.json"),
        ("hf:clip", None, "hf:clip: give --weights FOLDER"),
        ("mobilenetv1", None, "mobilenetv1: give --weights FILE"),
        ("resnet50", "none.pth", r"none\.pth: no such weights file"),
        ("resnet50", other_weights, "not the weights of resnet50: "),
        ("timm:resnet18", other_weights, "not the weights of timm:resnet18: "),
        ("mobilenetv1", other_weights, "not the weights of mobilenetv1: "),
    ],
)
def test_what_is_refused(tmp_path, name, weights, message):
    with pytest.raises(DataError, match=message):
        backbones.load(name, weights(tmp_path) if callable(weights) else weights)


def test_no_network_says_what_to_do(tmp_path, monkeypatch):
    refuse = Mock(side_effect=backbones.urllib.error.URLError("no route"))
    monkeypatch.setattr("torch.hub.download_url_to_file", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for model in ("densenet169", "fasterrcnn_resnet50_fpn"):
        with pytest.raises(DataError, match=rf"{model}.* cannot be downloaded.*--weights FILE"):
            read_weights(None, model)


def test_file_names_have_the_models_name():
    assert feature_name("timm:vit.in1k", "grid") == "grid4x4_vit-in1k"
    assert feature_name("hf:my clip", "global", "random") == "global_my-clip_random"
    assert feature_name("fasterrcnn", "grid", "random") == "regions36_fasterrcnn_random_ims"
