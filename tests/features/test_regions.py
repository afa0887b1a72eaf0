"""The detector against torchvision's own detections; its extraction on generated pictures."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d, box_iou

from mmlib.core.errors import DataError
from mmlib.features import regions
from mmlib.features.backbones import DETECTOR
from mmlib.features.extraction import extract
from mmlib.features.regions import COUNT, Detector, load_detector
from mmlib.features.store import open_features, open_rgb

SIDE = 64  # so that a network without training runs in a tenth of a second


@pytest.fixture(scope="module")
def detector():
    return load_detector("random", seed=3, side=SIDE)


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(3, h, w, generator=generator) for h, w in ((60, 80), (90, 50))]


@pytest.fixture(scope="module")
def regions_seen(detector, images):
    with torch.inference_mode():
        return detector.see(images)


# The network


def test_regions_are_torchvisions_detections(detector, images, regions_seen, monkeypatch):
    """Above a score of one half no second class of a region counts, so that both rules agree."""
    heads = detector.network.roi_heads
    monkeypatch.setattr(heads, "score_thresh", 0.5)
    monkeypatch.setattr(heads, "detections_per_img", 1000)
    with torch.inference_mode():
        theirs = detector.network(images)
        ours = Detector(detector.network, 200).see(images)
    for i, their in enumerate(theirs):
        n = len(their["boxes"])
        assert 10 < n < 200
        torch.testing.assert_close(ours["scores"][i, :n], their["scores"])
        torch.testing.assert_close(ours["boxes"][i, :n], their["boxes"])
        assert ours["scores"][i, n] <= 0.5
        assert torch.equal(regions_seen["boxes"][i], ours["boxes"][i, :COUNT])


def test_features_are_those_of_the_box_head_at_the_boxes(detector, images, regions_seen):
    """torchvision's heads, asked about our boxes as if they were proposals, see these features."""
    network, observed = detector.network, []
    hook = network.roi_heads.box_head.fc7.register_forward_hook(
        lambda layer, inputs, output: observed.append(output.relu())
    )
    with torch.inference_mode(), hook:
        batch, _ = network.transform(images)
        scale = [
            torch.tensor([w / i.shape[2], h / i.shape[1]]).repeat(2)
            for i, (h, w) in zip(images, batch.image_sizes, strict=True)
        ]
        boxes = [b * s for b, s in zip(regions_seen["boxes"], scale, strict=True)]
        network.roi_heads(network.backbone(batch.tensors), boxes, batch.image_sizes)
    assert regions_seen["features"].shape == (2, COUNT, 1024)
    torch.testing.assert_close(
        regions_seen["features"].flatten(0, 1), observed[0], rtol=1e-3, atol=1e-3
    )
    assert len(regions_seen["features"].flatten(0, 1).unique(dim=0)) > 2 * COUNT - 5


def choose(boxes, scores, count=4):
    """`_choose` for proposals of two classes, on a picture of 20 x 10."""
    network = torch.nn.Module()
    network.roi_heads = torch.nn.Module()
    network.roi_heads.box_predictor = torch.nn.Module()
    network.roi_heads.box_predictor.cls_score = torch.nn.Linear(1, 3)
    network.roi_heads.nms_thresh = 0.5
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 1, 4).expand(-1, 3, 4)
    item, two = torch.tensor(scores).reshape(-1, 2).unbind(1)
    scores = torch.stack([1 - item - two, item, two], dim=1)
    chosen, best = Detector(network, count)._choose(boxes, scores, (10, 20))
    return chosen.tolist(), [round(score, 4) for score in best.tolist()]


def test_fewer_regions_than_asked_for_are_filled_up():
    person, twin, horse = [0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 9, 10]
    third, scores = [0, 0, 10, 8], [[0.5, 0], [0.6, 0], [0.8, 0.1], [0, 0.3]]
    boxes, best = choose([third, twin, person, horse], scores, count=5)
    # The twins are the same class and overlap; the horse is another class. Then the whole picture.
    assert boxes == [person, horse, twin, third, [0, 0, 20, 10]]
    assert best == [0.8, 0.3, 0.6, 0.5, 0]
    assert choose([third, twin, person, horse], scores, count=2) == ([person, horse], [0.8, 0.3])
    boxes, scores = choose([[5, 5, 5, 9], [30, 0, 40, 9]], [[0.9, 0], [0.9, 0]])  # empty, outside
    assert (boxes, scores) == ([[0, 0, 20, 10]] * 4, [0] * 4)
    assert choose([], [])[0] == [[0, 0, 20, 10]] * 4


@pytest.mark.parametrize("size", [(1, 1), (1, 100), (100, 1)])
def test_tiny_pictures_have_all_their_regions(detector, size):
    with torch.inference_mode():
        item = detector.see([torch.rand(3, *size)])
    assert item["features"].shape == (1, COUNT, 1024)
    assert torch.isfinite(item["features"]).all()


def test_weights_load_as_torchvision_loads_its_own(tmp_path, images):
    """A file as published: frozen norms, the names of older versions, another number of classes."""
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    network = FasterRCNN(backbone, num_classes=7, min_size=SIDE, max_size=106).eval()
    for layer in network.modules():
        if isinstance(layer, FrozenBatchNorm2d):
            layer.eps = 0.0  # as torchvision sets it for its published weights
            layer.running_var.uniform_(1e-5, 1e-3)
            layer.running_mean.normal_()
            layer.weight.copy_(layer.running_var.sqrt() * 0.5)
    state = {
        k.replace("blocks.0.0.", "blocks.0.").replace("rpn.head.conv.0.0.", "rpn.head.conv."): v
        for k, v in network.state_dict().items()
    }
    assert set(state) != set(network.state_dict())
    torch.save(state, tmp_path / "w.pth")
    ours = load_detector(tmp_path / "w.pth", side=SIDE).network
    with torch.inference_mode():
        expected = network.backbone(network.transform(images)[0].tensors)
        maps = ours.backbone(ours.transform(images)[0].tensors)
    for level, values in expected.items():
        torch.testing.assert_close(maps[level], values, rtol=1e-3, atol=1e-3)
    assert ours.roi_heads.box_predictor.cls_score.out_features == 7


def test_weights_that_do_not_fit(tmp_path):
    save_file({"fc.weight": torch.ones(3)}, tmp_path / "w.safetensors")
    with pytest.raises(DataError, match="not the weights of fasterrcnn_resnet50_fpn"):
        load_detector(tmp_path / "w.safetensors")


@pytest.fixture
def run(detector, monkeypatch, tmp_path):
    monkeypatch.setattr(regions, "load_detector", lambda *settings: detector)

    def extract_into(name, pictures, file="own_ims.npy", **settings):
        how = {"weights": "random", "batch": 2, "dtype": "float32", "side": SIDE, **settings}
        return extract(pictures, tmp_path / name / file, DETECTOR, **how)

    return extract_into


def test_extract_writes_scans_layout(tmp_path, run, detector, pictures):
    store = run("out", pictures[:3])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "own_boxes.json", "own_boxes.npy", "own_ids.txt", "own_ims.json", "own_ims.npy",
        "own_scores.json", "own_scores.npy",
    ]  # fmt: skip
    assert (store.array.shape, store.array.dtype) == ((3, COUNT, 1024), np.float32)
    assert list(store.row_of) == [name for name, _ in pictures[:3]]
    assert "NOT TRAINED" in store.meta["weights"]
    with torch.inference_mode():  # a batch is padded to one size
        expected = detector.see([detector.preprocess(open_rgb(path)) for _, path in pictures[:2]])
    more = {kind: open_features(tmp_path / f"out/own_{kind}.npy") for kind in ("boxes", "scores")}
    for kind, array in {"features": store, **more}.items():
        assert np.array_equal(array.array[:2], expected[kind].numpy())
    boxes = expected["boxes"][0]
    assert (box_iou(boxes, boxes) > 0.999).sum() == COUNT  # no region twice
    with pytest.raises(DataError, match="was made with other settings: side 64, now 65"):
        run("out", pictures[:3], side=65)
    half = run("half", pictures[:1], dtype="float16")
    assert half.array.dtype == np.float16


def test_names_and_damaged_pictures(tmp_path, run, pictures):
    with pytest.raises(DataError, match=r"must be named NAME_ims\.npy"):
        run("out", pictures, "own.npy")
    pictures[2][1].write_bytes(b"?")
    Image.new("RGB", (500, 4)).save(pictures[3][1])
    for number, fault in ((2, "cannot be decoded"), (3, "500 x 4 pixels are too thin")):
        with pytest.raises(DataError, match=rf"0{number}\.jpg: {fault}.*--skip-bad"):
            run(str(number), pictures[number : number + 1])
    store = run("out", pictures[1:5], skip_bad=True)
    assert store.meta["skipped"] == ["02.jpg", "03.jpg"]
