"""Karpathy's split files: captions and splits of Flickr8k, Flickr30K and MS-COCO in one format.

`dataset_flickr30k.json`, `dataset_coco.json`: Karpathy and Fei-Fei, CVPR 2015. The records below
follow what the literature does with them: `restval` joins `train`, and of each image's captions
the first five count.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mmlib.core.errors import Problem
from mmlib.core.files import regular_file
from mmlib.data.tables import check_choice, sound

CAPTIONS_EACH = 5
SPLITS = {"train": ("train", "restval"), "val": ("val",), "test": ("test",)}
AGAIN = "mend it, or get the file again: `mmlib data get karpathy`"


@dataclass(frozen=True)
class SplitImage:
    """One image: its file name, its split as written ("restval" too), its first five captions."""

    name: str
    split: str
    captions: tuple[str, ...]


def read_split(path: Path, split: str) -> tuple[str, list[SplitImage]]:
    """The name of the data set and the images of "train", "val" or "test", in file order.

    Raises DataError for a split that does not exist, and for the first image that is damaged.
    """
    check_choice("split", split, SPLITS)
    items = (i for i in read_images(path) if isinstance(i, Problem) or i.split in SPLITS[split])
    images = sound(items, Problem(path, None, f"no image of the split {split!r}", AGAIN))
    return path.stem.removeprefix("dataset_"), images


def read_images(path: Path) -> Iterator[SplitImage | Problem]:
    """Every image of a split file, or what is wrong with it."""
    try:
        images = list(json.loads(regular_file(path).read_bytes())["images"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield Problem(path, None, f"no split file: {type(error).__name__} {error}", AGAIN)
        return
    names: dict[str, int] = {}
    for number, image in enumerate(images):
        try:
            name, sentences = str(image["filename"]), image["sentences"][:CAPTIONS_EACH]
            captions = tuple(sentence["raw"].strip() for sentence in sentences)
            if (full := sum(map(bool, captions))) < CAPTIONS_EACH:
                raise ValueError(f"{full} captions of {name} instead of {CAPTIONS_EACH}")
            if (first := names.setdefault(name, number)) != number:
                raise ValueError(f"{name} is image {first} too")
            check_choice("split", split := str(image["split"]), sum(SPLITS.values(), ()))
            yield SplitImage(name, split, captions)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fault = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            yield Problem(path, None, f"image {number}: {fault}", AGAIN)
