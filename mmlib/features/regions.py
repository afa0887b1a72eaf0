"""Regions that a detector finds in photographs: torchvision's Faster R-CNN, 36 an image.

CORA, SCAN and their kin use "bottom-up" regions (Anderson et al., CVPR 2018) of a detector that
needs a framework no longer kept up. This one knows the 90 classes of MS-COCO instead of the 1,600
of Visual Genome, and its features are 1,024 wide instead of 2,048.
"""

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from mmlib.features.backbones import load_state, read_weights

# torchvision is imported where it is used, as in mmlib.features.backbones.

MODEL = "fasterrcnn_resnet50_fpn"
COUNT = 36  # regions an image, as in all files of this kind
KIND = f"the {COUNT} best boxes; fc7 of the box head"
CLASSES = 91  # of MS-COCO, with the background and the numbers that it leaves out
CLASS_BIAS = "roi_heads.box_predictor.cls_score.bias"


class Detector:
    """A torchvision Faster R-CNN that returns its best regions with their features.

    Every proposal of the network counts once, as the class that it most resembles, with its box
    moved as that class asks. Non-maximum suppression within the classes; the `count` best remain.
    Where fewer remain, suppressed proposals follow, best first, and after them the whole picture
    with score 0, so that there are always `count`. The network's own limit on scores does not
    apply. Features are taken at the boxes that are returned.
    """

    label_names = ()

    def __init__(self, network: Any, count: int = COUNT) -> None:
        self.network, self.count = network, count

    def see(self, pictures: list[Tensor]) -> dict[str, Tensor]:
        """Regions of pictures of `preprocess`, of any sizes.

        Returns features (n, count, width), the last layer of the box head; boxes (n, count, 4) as
        x1, y1, x2, y2 in pixels of the image; scores (n, count), the probability of the class.
        """
        net, heads = self.network, self.network.roi_heads
        batch, _ = net.transform(pictures)
        maps = net.backbone(batch.tensors)

        def features(boxes: list[Tensor]) -> Tensor:
            return heads.box_head(heads.box_roi_pool(maps, boxes, batch.image_sizes))

        proposals, _ = net.rpn(batch, maps)
        logits, moves = heads.box_predictor(features(proposals))
        lengths = [len(boxes) for boxes in proposals]
        moved = heads.box_coder.decode(moves, proposals).split(lengths)
        probabilities = logits.softmax(dim=1).split(lengths)
        chosen = map(self._choose, moved, probabilities, batch.image_sizes)
        boxes, scores = zip(*chosen, strict=True)
        of_images = net.transform.postprocess(
            [{"boxes": of_image} for of_image in boxes],
            batch.image_sizes,
            [tuple(picture.shape[1:]) for picture in pictures],
        )
        return {
            "features": features(list(boxes)).unflatten(0, (len(pictures), self.count)),
            "boxes": torch.stack([image["boxes"] for image in of_images]),
            "scores": torch.stack(scores),
        }

    @staticmethod
    def preprocess(picture: Image.Image) -> Tensor:
        """RGB values (3, h, w), 0 to 1, of a picture."""
        from torchvision.transforms.functional import to_tensor

        return to_tensor(picture)

    def _choose(
        self, boxes: Tensor, probabilities: Tensor, size: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        # Boxes (p, classes, 4) and probabilities (p, classes) -> `count` boxes and scores.
        from torchvision.ops import batched_nms, clip_boxes_to_image, remove_small_boxes

        scores, label = probabilities[:, 1:].max(dim=1)  # class 0 is the background
        boxes = clip_boxes_to_image(boxes[torch.arange(len(boxes)), label + 1], size)
        sound = remove_small_boxes(boxes, min_size=1e-2)
        boxes, scores, label = boxes[sound], scores[sound], label[sound]
        best = batched_nms(boxes, scores, label, self.network.roi_heads.nms_thresh)
        order = scores.argsort(descending=True, stable=True)
        suppressed = order[~torch.isin(order, best)]
        chosen = torch.cat([best, suppressed])[: self.count]
        picture = boxes.new_tensor([0, 0, size[1], size[0]]).expand(self.count - len(chosen), 4)
        boxes = torch.cat([boxes[chosen], picture])
        return boxes, torch.cat([scores[chosen], scores.new_zeros(len(picture))])


def load_detector(weights: str | Path | None = None, seed: int = 0, side: int = 800) -> Detector:
    """A frozen Faster R-CNN (ResNet-50, feature pyramid) in evaluation mode.

    weights: None for torchvision's MS-COCO weights (its cache, else downloaded and checked), a
        `.safetensors` or `.pth` file with the state dict of the torchvision model (with any number
        of classes), or "random", drawn by `seed`.
    side: images are resized to this shorter side; 800 is what torchvision's weights expect, less is
        faster and coarser.

    Raises DataError: no network, a file that does not fit. Never unpickles code.
    """
    from torchvision.models import get_model

    state = None if weights == "random" else read_weights(weights, MODEL)
    classes = len(state[CLASS_BIAS]) if state and CLASS_BIAS in state else CLASSES
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = get_model(
            MODEL, weights=None, weights_backbone=None, num_classes=classes,
            min_size=side, max_size=side * 5 // 3,
        )  # fmt: skip
    if state is not None:
        load_state(network, state, f"{weights}: not the weights of {MODEL}")
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = 0.0  # what the published weights were trained with
    return Detector(network.eval().requires_grad_(False))
