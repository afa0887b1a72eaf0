"""The paper tier: SNLI-VE on Flickr30K's images, as far as its files are in the data folder."""

from mmlib.core.entailment_pairs import Samples, joined
from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.data import precomputed, sick, snli_ve
from mmlib.papers.entailment.batches import SPLITS
from mmlib.papers.entailment.data.study import Study, only_mme, study_of
from mmlib.papers.entailment.systems import Budget


def load(budget: Budget, seed: int) -> Study:
    """SNLI-VE on Flickr30K's images (`f30k` in the data folder); SICK's pairs if they are there."""
    folder = precomputed.find("f30k")
    files = {"train": "train", "val": "dev", "test": "test"}
    collections = {name: precomputed.load(folder, split).images for name, split in files.items()}
    names = [name for images in collections.values() for name in images.ids]
    row_of = {name: row for row, name in enumerate(names)}
    every_caption = [c for images in collections.values() for c in images.captions]
    captions = dict(zip(names, every_caption, strict=True))

    def pairs(split: str, *collected: str) -> Samples:
        """Of SNLI-VE's split, whose images lie in all parts, the pairs of these parts' images."""
        table = snli_ve.read(split)
        ids = [name for images in collected for name in collections[images].ids]
        table = table[table["image"].isin(ids)]
        if table.empty:
            raise DataError(
                f"{snli_ve.split_file(split, data_dir() / snli_ve.NAME)}: no image is one of "
                f"{folder}, such as {names[0]!r} (does id_mapping.json lie there?)"
            )
        return snli_ve.samples(table, row_of, captions)

    text = [sick.text_text()] if (data_dir() / sick.NAME).is_dir() else []
    dev, test = only_mme(pairs("dev", "train", "val")), only_mme(pairs("test", *SPLITS))
    train = joined([*text, pairs("train", "train")])
    samples = {"train": train, "dev": dev, "calibration": dev, "SNLI-VE": test}
    return study_of(collections, budget, seed, samples, {}, {})
