"""`mmlib compare`: a retriever of one's own beside the recorded systems of paper 03."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mmlib import scenegraph
from mmlib.core.effects import crossed, crossed_known
from mmlib.core.errors import DataError
from mmlib.core.files import regular_file
from mmlib.core.paths import write_atomic
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.core.records import CaptionedImages
from mmlib.data import flickr8k
from mmlib.papers.cora.data import controlled, load_study, world
from mmlib.papers.cora.data import swaps as swapped
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.method import per_item, right_in_family, swap_values
from mmlib.papers.cora.run.batches import Split
from mmlib.papers.cora.run.systems import ORDER, THINGS, TRIGRAMS, original
from mmlib.papers.cora.show import captions_and_images, results, told_swaps, with_rows
from mmlib.suite import record
from mmlib.suite.encoders import Encoder, batches, read
from mmlib.world import captioned_images

NO_BETTER = (  # by chance a caption's image comes in the middle
    "These scores are hardly better than chance. Are rows and columns in the order that --items "
    "writes, and do scores differ? Among equal ones the right one counts as the last."
)


@dataclass(frozen=True)
class Comparison:
    """A retriever beside the recorded ones, on the same test items.

    results: a row a system, the retriever's first: R@K and median ranks both ways, RSUM; means ±
    deviation over seeds. differences: a row a recorded system: the retriever's RSUM less its own,
    with a 95 % interval, and in percentage points R@1 both ways and, where pictures come in
    families, the share of captions that find their picture in its family. in_family: that share
    of each system, in percent; empty where there are no families. warning: what looks wrong with
    the scores; empty where nothing does.
    """

    results: pd.DataFrame
    differences: pd.DataFrame
    in_family: pd.Series
    warning: str = ""

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by name."""
        tables = {"results": self.results, "differences": self.differences}
        in_family = self.in_family.round(1).to_frame("in family, %")
        return tables | ({"in_family": in_family} if len(in_family) else {})

    def __str__(self) -> str:
        texts = [self.warning, *(table.to_string() for table in self.tables.values())]
        return "\n\n".join(filter(None, texts))


def compare(
    number: str, scores: np.ndarray, tier: str = "world", dataset: str = "",
    *, name: str = "yours", folder: Path | None = None,
) -> Comparison:  # fmt: skip
    """Rank test images and captions by `scores`, and hold them against the recorded systems.

    number: "03", the notebook whose paper ranks images by captions. scores (test images, test
    captions), higher is better, in the order of `ranked_items`. dataset: as in `mmlib judge`;
    empty: the tier's own name. name: of the retriever in tables. folder: of evidence.
    Intervals are over seeds of the recorded system and over test images or families, paired by
    item, as those of the claims (`mmlib.core.effects.crossed`); the retriever counts as it is, one
    training. Raises DataError for another paper, collection or shape, for scores that are not
    numbers, and for the name of a recorded system.
    """
    _must_rank(number)
    evidence, dataset = record.read(number, tier, folder), dataset or tier
    if dataset not in evidence.datasets:
        names = "; ".join(evidence.datasets)
        raise DataError(f"no collection {dataset!r} is recorded; there are: {names}")
    if name in ORDER:
        raise DataError(f"{name!r} is a recorded system; give yours another name")
    captions, images = captions_and_images(evidence, dataset)
    clusters = evidence.clusters(dataset)
    image_of, count = clusters[captions], len(clusters[images])
    family = count // len(np.unique(clusters[images]))  # images that differ in structure alone
    if family > 1:
        image_of = np.repeat(np.arange(count), len(image_of) // count)
    shape = count, len(image_of)
    if scores.shape != shape:
        turned = "; transpose it" if scores.shape == shape[::-1] else ""
        wanted = f"{shape}, test images × test captions of {dataset}"
        raise DataError(f"the similarity matrix is {scores.shape}, not {wanted}{turned}")
    try:
        ranks = ranks_of_scores(scores, image_of)
    except ValueError as error:
        raise DataError(f"the similarity matrix: {error}") from None
    mine = per_item(ranks)
    columns = {
        "RSUM": ("RSUM", slice(None)), "caption → image, R@1": ("rank", captions),
        "image → caption, R@1": ("rank", images),
    }  # fmt: skip
    shares = {}
    if family > 1:
        columns["in family"] = "in family", captions
        mine["in family"] = right_in_family(scores, image_of, family)
        shares[name] = float(np.nanmean(mine["in family"]))
    differences: dict[str, dict[str, str]] = {}
    for system in with_rows(evidence, dataset, ORDER):
        differences[system] = {}
        for column, (metric, items) in columns.items():
            pair = mine[metric], evidence.values(dataset, system, metric)
            if metric == "in family":
                shares[system] = float(np.nanmean(pair[1]))
            yours, theirs = (100.0 * (v <= 1) for v in pair) if metric == "rank" else pair
            gap = crossed(yours[items] - theirs[:, items], clusters[items])
            differences[system][f"difference in {column}"] = gap.told(1)
    recorded = results(evidence, dataset)
    row = pd.DataFrame.from_dict({name: metrics(ranks)}, orient="index").map("{:.1f}".format)
    return Comparison(
        pd.concat([row[list(recorded)], recorded]),
        pd.DataFrame.from_dict(differences, orient="index"),
        pd.Series(shares, dtype=float),
        NO_BETTER if ranks.caption_ranks.mean() > 0.45 * count else "",
    )


# --- The test items, and what is made of them --------------------------------------------------


def ranked_items(number: str, tier: str, dataset: str = "") -> CaptionedImages:
    """The test images with their captions, in the order of a similarity matrix.

    Rows are images in this order, columns all captions of the first image, then all of the second.
    Raises DataError for missing data and for a collection that is not there.
    """
    _must_rank(number)
    dataset = dataset or tier
    if tier == flickr8k.NAME:
        return flickr8k.load("test", features=None)
    if tier == "paper":
        return load_study(tier, [dataset])[dataset].images["test"]
    collections: dict[str, Any] = {"world": world.CLARITY, "controlled": controlled.RECORDED}
    recorded = collections[tier]
    if original(dataset) not in recorded:
        raise DataError(f"no collection {dataset!r}; there are: {'; '.join(recorded)}")
    dials = recorded[original(dataset)]
    if isinstance(dials, controlled.Dials):
        return controlled.load(dials).images["test"]
    count = (world.WORLD_IMAGES if tier == "world" else world.DRAWN_IMAGES)["test"]
    return captioned_images("test", count, family=world.FAMILY, clarity=dials)


def similarity(number: str, model: Encoder, tier: str = "world", dataset: str = "") -> np.ndarray:
    """Cosines (test images, test captions) that a model gives.

    Of a controlled collection without pictures, it encodes arrays (regions, width).
    """
    images = ranked_items(number, tier, dataset)
    texts = [caption for group in images.captions for caption in group]
    model.say_unread(texts, "captions")
    return model.cosines(_vectors(model, images), model.encode_texts(texts))


def _vectors(model: Encoder, images: CaptionedImages) -> np.ndarray:
    made_up = isinstance(images, controlled.ControlledImages)
    show = images.features.__getitem__ if made_up else images.open_image
    rows = batches(range(len(images.captions)))
    return np.concatenate([model.encode_images([show(row) for row in block]) for block in rows])


def swaps(
    number: str, source: Path, tier: str, *, name: str = "yours", folder: Path | None = None
) -> pd.DataFrame:
    """How often a photograph's caption scores above itself with two things exchanged, in percent.

    source: a model, as `encoders.read` takes it. A row a system, the model's first, a column a kind
    of swap (`cora.data.swaps`), with 95 % intervals over photographs and a recorded system's seeds.
    Raises DataError for another paper or tier, a matrix of similarities, which has no swaps,
    missing data, and other captions than the recorded ones.
    """
    _must_rank(number)
    if tier != flickr8k.NAME or source.suffix == ".npy":
        raise DataError("swaps are of photographs and take a model: --tier flickr8k, no .npy file")
    model = read(source)
    evidence, dataset = record.read("03", flickr8k.NAME, folder), flickr8k.NAME + THINGS
    collection = Captions({s: flickr8k.load(s, features=None) for s in ("test", "train")}, {})
    captions, training = map(collection.captions, ("test", "train"))
    exchanged, _, rows, _ = swapped.with_plausible(captions, scenegraph.parse(captions), training)
    image_of = collection.image_of("test")
    split = Split(_vectors(model, collection.images["test"]), image_of, {}, rows)
    model.say_unread(captions, "captions")
    own, other = (
        model.cosines(split.features, model.encode_texts(texts))[of, np.arange(len(of))]
        for of, texts in ((image_of, captions), (split.image_of_swaps, exchanged))
    )
    told, recorded = {}, told_swaps(evidence, dataset)
    for metric, values in swap_values(own, other, rows, len(split.features)).items():
        known = evidence.values(dataset, TRIGRAMS["system"], metric)
        if known.shape[1:] != values.shape or (np.isnan(known) != np.isnan(values)).any():
            problem = "are other captions, or parsed otherwise, than the recorded ones"
            raise DataError(f"{flickr8k.NAME}: {problem} (mmlib data check flickr8k)")
        interval = crossed_known(values[None], evidence.clusters(dataset))
        told[metric.removeprefix("swap ")] = interval.told(0, sign="")
    return pd.concat([pd.DataFrame(told, index=[name]), recorded])


def scores_of(number: str, source: Path, tier: str, dataset: str) -> np.ndarray:
    """The similarity matrix of a .npy file, or of a model as `encoders.read` takes it."""
    if source.suffix != ".npy":
        return similarity(number, read(source), tier, dataset)
    try:
        with regular_file(source).open("rb") as file:
            if not file.read(6) == np.lib.format.MAGIC_PREFIX:  # np.load reads archives, too
                raise ValueError("save the matrix alone with np.save")
        scores: Any = np.load(source, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{source}: no such file") from None
    except Exception as error:  # whatever a damaged file leads to
        reason = " ".join(str(error).split())[:80]
        raise DataError(f"{source}: not a readable .npy array: {reason}") from None
    if scores.dtype.kind not in "fiu":
        raise DataError(f"{source}: holds {scores.dtype}, no real numbers; save float32")
    return scores


def write_items(number: str, tier: str, dataset: str, path: Path) -> int:
    """Write the test items as CSV: row, column, image and caption; returns how many there are."""
    images = ranked_items(number, tier, dataset)
    rows = [
        (row, images.ids[row], text) for row, group in enumerate(images.captions) for text in group
    ]
    table = pd.DataFrame(rows, columns=["row", "image", "caption"])
    table.insert(1, "column", range(len(table)))
    write_atomic(path, lambda file: table.to_csv(file, index=False))
    return len(table)


def _must_rank(number: str) -> None:
    if number != "03":
        raise DataError(f"paper {number} ranks no similarity matrix of images and captions; use 03")
