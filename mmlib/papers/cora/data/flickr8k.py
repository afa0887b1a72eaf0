"""Tier flickr8k: photographs with five captions each."""

from mmlib.data import flickr8k
from mmlib.papers.cora.data.collection import Captions
from mmlib.papers.cora.systems import SPLITS


def load(workers: int) -> dict[str, Captions]:
    """Flickr8k with the features of its photographs, parsed."""
    images = {split: flickr8k.load(split) for split in SPLITS}
    return {"flickr8k": Captions(images, {}).parsed(workers)}
