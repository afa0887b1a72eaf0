"""A retriever of the reader's own beside the recorded systems of paper 03."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mmlib.core.effects import crossed
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.core.records import CaptionedImages
from mmlib.data import flickr8k
from mmlib.papers.cora.data import controlled, load_study, world
from mmlib.papers.cora.metrics import per_item, right_in_family
from mmlib.papers.cora.systems import ORDER, original
from mmlib.papers.cora.tables import captions_and_images, results, with_rows
from mmlib.world import Clarity, captioned_images

BATCH = 64  # pictures or captions that an encoder gets at a time
FAMILY_METRIC = "in family"
# By chance a caption's image comes in the middle.
NO_BETTER = (
    "These scores are hardly better than chance. Are rows and columns in the order that --items "
    "writes, and do scores differ? Among equal ones the right one counts as the last."
)
Encode = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Comparison:
    """A retriever beside the recorded ones, on the same test items.

    results: a row a system, the retriever's first: R@K and median ranks both ways, RSUM; means ±
    deviation over seeds. differences: a row a recorded system: the retriever's RSUM less its own,
    with a 95 % interval, and in percentage points R@1 both ways and, where pictures come in
    families, the share of captions that find their picture in its family.
    in_family: that share of each system, in percent; empty where there are no families.
    warning: what looks wrong with the scores; empty where nothing does.
    """

    results: pd.DataFrame
    differences: pd.DataFrame
    in_family: pd.Series
    warning: str = ""

    def __str__(self) -> str:
        """All of it as text."""
        tables: list[pd.DataFrame | pd.Series] = [self.results, self.differences]
        if len(self.in_family):
            tables.append(self.in_family.round(1).rename("in family, %").to_frame())
        texts = [self.warning, *(table.to_string() for table in tables)]
        return "\n\n".join(filter(None, texts))


def image_of(evidence: Evidence, dataset: str) -> np.ndarray:
    """The test image of each test caption of a recorded collection, (captions,) int.

    Raises DataError where the record does not tell.
    """
    captions, images = captions_and_images(evidence, dataset)
    clusters = evidence.clusters(dataset)
    count, family = len(clusters[images]), family_of(evidence, dataset)
    if family == 1:
        return clusters[captions]
    owners = np.repeat(np.arange(count), len(clusters[captions]) // count)
    if not np.array_equal(owners // family, clusters[captions]):
        raise DataError(f"{dataset}: the record does not tell which caption is of which image")
    return owners


def family_of(evidence: Evidence, dataset: str) -> int:
    """How many test images differ in structure alone; 1: there are no such families."""
    _, images = captions_and_images(evidence, dataset)
    clusters = evidence.clusters(dataset)[images]
    return len(clusters) // len(np.unique(clusters))


def compare(
    evidence: Evidence, dataset: str, scores: np.ndarray, name: str = "yours"
) -> Comparison:
    """Rank test images and captions by `scores`, and hold them against the recorded systems.

    scores (test images, test captions), higher is better, in the order of `ranked_items`. Intervals
    are over seeds of the recorded system and over test images or families, paired by item, as those
    of the claims (`mmlib.core.effects.crossed`); the retriever counts as it is, one training.
    Raises DataError for another collection or shape, for scores that are not numbers, and for the
    name of a recorded system.
    """
    _must_be_recorded(evidence, dataset)
    if name in ORDER:
        raise DataError(f"{name!r} is a recorded system; give yours another name")
    owners = image_of(evidence, dataset)
    shape = int(owners.max()) + 1, len(owners)
    if scores.shape != shape:
        turned = "; transpose it" if scores.shape == shape[::-1] else ""
        wanted = f"{shape}, test images × test captions of {dataset}"
        raise DataError(f"the similarity matrix is {scores.shape}, not {wanted}{turned}")
    try:
        ranks = ranks_of_scores(scores, owners)
    except ValueError as error:
        raise DataError(f"the similarity matrix: {error}") from None
    own = per_item(ranks)
    own["R@1"] = 100.0 * (own["rank"] <= 1)
    family = family_of(evidence, dataset)
    if family > 1:
        own[FAMILY_METRIC] = right_in_family(scores, owners, family)
    figures = {key: f"{value:.1f}" for key, value in metrics(ranks).items()}
    recorded = results(evidence, dataset)
    first = pd.DataFrame([figures], index=[name])[list(recorded)]
    return Comparison(
        pd.concat([first, recorded]),
        _differences(evidence, dataset, own),
        _in_family(evidence, dataset, own, name),
        NO_BETTER if ranks.caption_ranks.mean() > 0.45 * shape[0] else "",
    )


def _must_be_recorded(evidence: Evidence, dataset: str) -> None:
    if dataset not in evidence.datasets:
        names = "; ".join(evidence.datasets)
        raise DataError(f"no collection {dataset!r} is recorded; there are: {names}")


def _differences(evidence: Evidence, dataset: str, own: dict[str, np.ndarray]) -> pd.DataFrame:
    """The rows of `Comparison.differences`; own: metric -> values by item."""
    captions, images = captions_and_images(evidence, dataset)
    everything, clusters = slice(None), evidence.clusters(dataset)
    columns = {
        "RSUM": ("RSUM", everything), "caption → image, R@1": ("R@1", captions),
        "image → caption, R@1": ("R@1", images), "in family": (FAMILY_METRIC, captions),
    }  # fmt: skip
    rows: dict[str, dict[str, str]] = {}
    for system in with_rows(evidence, dataset, ORDER):
        rows[system] = {}
        for column, (metric, items) in columns.items():
            if metric not in own:
                continue
            theirs = evidence.values(dataset, system, "rank" if metric == "R@1" else metric)
            theirs = 100.0 * (theirs <= 1) if metric == "R@1" else theirs
            gap = own[metric][items] - theirs[:, items]
            rows[system][column] = crossed(gap, clusters[items]).told(1)
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.add_prefix("difference in ", axis="columns")


def _in_family(
    evidence: Evidence, dataset: str, own: dict[str, np.ndarray], name: str
) -> pd.Series:
    if FAMILY_METRIC not in own:
        return pd.Series(dtype=float)
    recorded = {
        system: float(np.nanmean(evidence.values(dataset, system, FAMILY_METRIC)))
        for system in with_rows(evidence, dataset, ORDER)
        if evidence.has(dataset, system, FAMILY_METRIC)
    }
    return pd.Series({name: float(np.nanmean(own[FAMILY_METRIC])), **recorded})


# --- The test set, and encoders of it ----------------------------------------------------------


def ranked_items(tier: str, dataset: str) -> CaptionedImages:
    """The test images with their captions, in the order of a similarity matrix.

    Rows are images in this order, columns all captions of the first image, then all of the second.
    Raises DataError for missing data and for a collection that is not there.
    """
    if tier == flickr8k.NAME:
        return flickr8k.load("test", features=None)
    if tier == "paper":
        return load_study(tier, [dataset])[dataset].images["test"]
    recorded: Mapping[str, controlled.Dials | Clarity] = controlled.RECORDED
    counts = world.DRAWN_IMAGES
    if tier == "world":
        recorded, counts = world.CLARITY, world.WORLD_IMAGES
    if original(dataset) not in recorded:
        raise DataError(f"no collection {dataset!r}; there are: {'; '.join(recorded)}")
    dials = recorded[original(dataset)]
    if isinstance(dials, controlled.Dials):
        return controlled.load(dials).images["test"]
    return captioned_images("test", counts["test"], family=world.FAMILY, clarity=dials)


def encoded(images: CaptionedImages, encode_images: Encode, encode_texts: Encode) -> np.ndarray:
    """Cosines (images, captions) of what two functions make of them.

    encode_images: a list of RGB pictures (of a controlled collection, which has none: of arrays
    (regions, width)) -> (n, D); encode_texts: a list of captions -> (n, D). Each gets at most
    `BATCH` at a time. Raises DataError for another shape, and for vectors that are not finite.
    """
    captions = [caption for group in images.captions for caption in group]
    made_up = isinstance(images, controlled.ControlledImages)
    show = images.features.__getitem__ if made_up else images.open_image
    vectors = [
        _vectors(encode_images, len(images.captions), show, "encode_images"),
        _vectors(encode_texts, len(captions), captions.__getitem__, "encode_texts"),
    ]
    if vectors[0].shape[1] != vectors[1].shape[1]:
        widths = " and ".join(str(one.shape[1]) for one in vectors)
        raise DataError(f"encode_images and encode_texts give other widths: {widths}")
    a, b = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12) for one in vectors)
    return a @ b.T


def _vectors(encode: Encode, count: int, item: Callable[[int], Any], name: str) -> np.ndarray:
    blocks = []
    for start in range(0, count, BATCH):
        rows: Sequence[int] = range(start, min(start + BATCH, count))
        block = np.asarray(encode([item(row) for row in rows]), dtype=np.float64)
        if block.ndim != 2 or len(block) != len(rows):
            raise DataError(f"{name} gave {block.shape} for {len(rows)} items, not (items, width)")
        if not np.isfinite(block).all():
            raise DataError(f"{name} gave a vector that is not finite")
        blocks.append(block)
    return np.concatenate(blocks)
