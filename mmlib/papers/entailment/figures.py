"""Tables and figures of paper 02: of the data, and of the evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image

from mmlib.core import plots
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.tables import beside, paper_values
from mmlib.papers.entailment.arrays import KINDS
from mmlib.papers.entailment.claims import gain, over_images
from mmlib.papers.entailment.data import Study
from mmlib.papers.entailment.experiment import (
    FAMILIES,
    FILLED,
    FLOORS,
    MINING,
    PAIRS,
    PAPERS_NAMES,
    RANKED,
    REFERENCE,
    judged,
    judges,
    main_test,
    name_of,
    relevance,
    rungs,
)
from mmlib.papers.entailment.metrics import METRICS
from mmlib.papers.entailment.model import mask_regions
from mmlib.papers.entailment.retraining import NAMES, recalls

PRINTED = {  # our row of Table 3 -> the paper's
    "Only TE": "Only TE", "Only VE": "Only VE", "Single stream": "OFA", "Full": "Ours",
    "w/o image masking": "w/o Image Masking", "w/o VE data": "w/o VE Data",
    "w/o TE data": "w/o TE Data", "w/o BERT": "w/o BERT",
}  # fmt: skip

# --- The data ------------------------------------------------------------------------------------


def fit_counts(fits: np.ndarray, image_of: np.ndarray) -> Figure:
    """Fig. 3: how many other images a caption fits, and how many foreign captions an image.

    fits (images, captions) bool; image_of (captions,): of each caption, whose pair is not counted.
    """
    foreign = fits.astype(bool).copy()
    foreign[image_of, np.arange(len(image_of))] = False
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2))
    for axis, counts, what, of in (
        (axes[0], foreign.sum(axis=0), "other images that a caption fits", "captions"),
        (axes[1], foreign.sum(axis=1), "foreign captions that fit an image", "images"),
    ):
        axis.hist(counts, 40, color=plots.COLOURS[0], alpha=0.75, log=True)
        axis.axvline(np.median(counts), color=plots.COLOURS[1])
        some = 100 * float((counts > 0).mean())
        told = f"median {np.median(counts):g}, most {counts.max()}; {some:.0f} % have one"
        axis.set(xlabel=what, ylabel=of, title=told)
    return figure


def sample_sheet(study: Study, rows: Sequence[int]) -> Figure:
    """Fig. 6: training pairs as one who labels them sees them; black without a picture."""
    samples, opened, titles = study.arrays.train.samples, [], []
    for row in rows:
        at = int(samples.image[row])
        opened.append(Image.new("RGB", (64, 64)) if at < 0 else study.open_image(at))
        label = "entailed" if samples.label[row] else "not entailed"
        titles.append(f"{samples.hypothesis[row]} ({samples.kind[row]}, {label})")
    return plots.show_pictures(opened, titles, columns=len(rows))


def masked_regions(
    pictures: Sequence[Image.Image], attention: np.ndarray, ratio: float = 0.4
) -> Figure:
    """Pictures, each with what the masking leaves of it on its right.

    attention (pictures, R): of a grid of √R x √R regions in rows from the top left.
    """
    side, shown = round(attention.shape[1] ** 0.5), []
    left = mask_regions(torch.ones(*attention.shape, 1), torch.as_tensor(attention), ratio)
    for picture, kept in zip(pictures, left[..., 0].numpy(), strict=True):
        grid = Image.fromarray((255 * (1 - kept)).astype(np.uint8).reshape(side, side))
        hidden = grid.resize(picture.size, Image.Resampling.NEAREST)
        grey = Image.new("RGB", picture.size, (128, 128, 128))
        shown += [picture, Image.composite(grey, picture.convert("RGB"), hidden)]
    return plots.show_pictures(shown, columns=len(shown), size=1.6)


def with_foreign(study: Study, best: np.ndarray, top: int = 8) -> int:
    """The first test image with a true text of another one among its best; 0 where nobody knows.

    best (images, K): flat captions.
    """
    test = study.arrays.splits["test"]
    if test.fits is None:
        return 0
    told, image = best[:, :top], np.arange(len(best))[:, None]
    found = test.fits[image, told] & (test.image_of[told] != image)
    return int(found.any(axis=1).argmax())


def before_after(
    study: Study, image: int, best: Mapping[str, np.ndarray], top: int = 8
) -> pd.DataFrame:
    """Fig. 4: an image's best texts by several retrievers; ● its own, ✓ others that are true of it.

    best: name -> (images, K) flat captions.
    """
    test = study.arrays.splits["test"]
    texts, image_of, fits = test.texts, test.image_of, test.fits

    def marked(caption: int) -> str:
        known = "✓" if fits is not None and fits[image, caption] else "–"
        return f"{'●' if image_of[caption] == image else known} {texts[caption]}"

    columns = {name: [marked(c) for c in own[image][:top]] for name, own in best.items()}
    return pd.DataFrame(columns, index=range(1, top + 1))


# --- Evidence: judges ----------------------------------------------------------------------------


def _late(evidence: Evidence, dataset: str, name: str) -> str:
    return " ↗" if evidence.unfinished(dataset, name) else ""


def judges_table(evidence: Evidence, dataset: str, test: str = "") -> pd.DataFrame:
    """A row a judge: METRICS by network and inputs, those by the network alone, and the paper's.

    "↗" where the dev loss still fell when the training ended.
    """
    test = test or main_test(evidence, dataset)
    paper = paper_values("entailment", "table3")
    rows = {}
    names = [*(r["system"] for r in FLOORS), *(j.system for j in judges(evidence.header["tier"]))]
    for name in (name for name in names if evidence.has(dataset, name, "margin", test)):
        row: dict[tuple[str, str], Any] = {}
        for how, title in (("margin", "with inputs"), ("alone", "network alone")):
            for metric in METRICS if evidence.has(dataset, name, how, test) else ():
                row[title, metric] = judged(evidence, dataset, name, metric, how, test).mean()
        if name in PRINTED:
            row["paper", "F0.5"] = float(paper.loc[PRINTED[name], "F0.5"])
        rows[name + _late(evidence, dataset, name)] = row
    table = pd.DataFrame.from_dict(rows, orient="index").round(1)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table


def errors_by_kind(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """How often Full's network calls edited hypotheses wrongly, in percent, by their kind."""
    called = evidence.values(dataset, "Full", "alone", None, "edits") >= 0
    label, kind = (evidence.values(dataset, PAIRS, n, [0], "edits")[0] for n in ("label", "kind"))
    rows: dict[str, dict[str, float]] = {}
    for number, name in enumerate(KINDS):
        for truth, title in ((1, "entailed"), (0, "not entailed")):
            some = (kind == number) & (label == truth)
            if some.any():
                rows.setdefault(name, {})[f"{title}, pairs"] = int(some.sum())
                wrong = 100 * float((called[:, some] != truth).mean())
                rows[name][f"{title}, wrong %"] = round(wrong, 1)
    return pd.DataFrame.from_dict(rows, orient="index")


def mining_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Pairs that a miner takes, and how many of them are true; floors take as many as the judge."""
    known = set(evidence.metrics(dataset, MINING, "mined"))

    def total(metric: str) -> float:
        return float(evidence.values(dataset, MINING, metric, None, "mined").sum(axis=1).mean())

    mined, rows = total("mined"), {}
    for name in ("candidates", "mined", "overlap", "cosine", "inputs"):
        row = {"pairs": total("candidates") if name == "candidates" else mined}
        if f"{name}, true" in known:
            row |= {"true": total(f"{name}, true")}
            row |= {"precision, %": 100 * row["true"] / max(row["pairs"], 1),
                    "of the true candidates, %": 100 * row["true"] / total("candidates, true"),
                    "of all true pairs, %": 100 * row["true"] / total("true")}  # fmt: skip
        rows[{"mined": "the judge", "candidates": "all candidates"}.get(name, name)] = row
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


# --- Evidence: retrievers ------------------------------------------------------------------------


def retrieval_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a rung: RSUM and every other figure, means over seeds; "↗" where dev still rose."""
    names = [*(r["system"] for r in RANKED), *(r.system for r in rungs(evidence.header["tier"]))]
    shown = ("RSUM", "mAP", "E@10", "E@30", "E@10, rarity", "mAP, people", "P@1, people",
             "E@10, judge", "E@30, judge")  # fmt: skip
    rows = {}
    for name in (name for name in names if evidence.has(dataset, name, "RSUM")):
        known = [metric for metric in shown if evidence.has(dataset, name, metric)]
        rows[name + _late(evidence, dataset, name)] = {
            m: evidence.means(dataset, name, m).mean() for m in known
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


ENHANCED = " + entailment-enhanced training"


def beside_paper(evidence: Evidence, dataset: str) -> dict[str, pd.DataFrame]:
    """Tables 4 and 5 beside ours: "table4_flickr30k", "table4_mscoco", "table5".

    Extra golden stands for the paper's baseline, both uses of the miner's set for its method.
    Beside E@M, labelled by hand, stands E@10 by logic.
    """
    rows = []
    for family in FAMILIES:
        for rung, ending in (((REFERENCE, ""), ""), (("both", "miner"), ENHANCED)):
            name, system = name_of(family, *rung), PAPERS_NAMES[family] + ending
            if not evidence.has(dataset, name, "hits"):
                continue
            figures = recalls(evidence.values(dataset, name, "hits"))
            means = {metric: own.mean(axis=1) for metric, own in figures.items()}
            for metric, ours in (("E@10", "E@10, judge"), ("E@30", "E@30, judge"), ("E@M", "E@10")):
                if evidence.has(dataset, name, ours):
                    means[metric] = evidence.means(dataset, name, ours).to_numpy()
            rows += [
                {"system": system, "metric": metric, "seed": seed, "value": value}
                for metric, own in means.items()
                for seed, value in enumerate(own)
            ]
    ours = pd.DataFrame(rows, columns=["system", "metric", "seed", "value"])
    names = ("table4_flickr30k", "table4_mscoco", "table5")
    return {name: beside(ours, paper_values("entailment", name)) for name in names}


LADDER = (
    ("plain", ""), ("weak", "random"), ("both", "near misses"), ("exclusion", "miner"),
    ("weak", "miner"), ("both", "miner"), ("both", "candidates"), ("both", "rare"),
    ("exclusion", "all"), ("weak", "all"), ("both", "all"),
)  # fmt: skip


def ladder(
    evidence: Evidence, dataset: str, live: Mapping[str, Mapping[str, float]] = {}
) -> Figure:
    """What each rung gains over extra golden: order, first of the list, RSUM; 95 % intervals.

    live: rung -> metric -> gain of a training of this run, a diamond.
    """
    shown = (*relevance(evidence, dataset), "RSUM")
    rungs = [one for one in LADDER
             if any(evidence.has(dataset, name_of(f, *one), "RSUM") for f in FAMILIES)]  # fmt: skip
    height = 1.0 + 0.33 * len(rungs)
    figure, axes = plt.subplots(1, len(shown), figsize=(11, height), sharey=True)
    for axis, metric in zip(axes, shown, strict=True):
        for f, family in enumerate(FAMILIES):
            for y, rung in enumerate(rungs):
                values = gain(evidence, evidence.seeds, family, rung, metric)
                if values is None:
                    continue
                one = over_images(evidence, values)
                at = y + 0.22 * (f - 1)
                axis.plot([one.low, one.high], [at, at], color=plots.COLOURS[f], lw=2)
                axis.plot(one.effect, at, "o", color=plots.COLOURS[f], ms=4)
                name = name_of(family, *rung)
                if live and metric in live.get(name, {}):
                    axis.plot(live[name][metric], at, "D", color="black", mfc="none", ms=8)
        axis.axvline(0, color="#333333", lw=0.8)
        axis.set(xlabel=f"{metric}, gain over extra golden", ylim=(len(rungs) - 0.4, -0.6))
    names = [use + (f" ({pairs})" if pairs else "") for use, pairs in rungs]
    axes[0].set_yticks(range(len(rungs)), names)
    for f, family in enumerate(FAMILIES):
        axes[1].plot([], [], "o-", color=plots.COLOURS[f], label=NAMES[family])
    axes[1].legend(fontsize=8)
    return figure


def gains_table(
    evidence: Evidence, dataset: str, pairs: Mapping[str, tuple[str, str]], metrics: Sequence[str]
) -> pd.DataFrame:
    """Effects with their intervals: title -> (system, system that it is held against)."""
    rows = {}
    for title, (a, b) in pairs.items():
        row = {}
        for metric in metrics:
            if evidence.has(dataset, a, metric) and evidence.has(dataset, b, metric):
                one, other = (evidence.values(dataset, name, metric) for name in (a, b))
                row[metric] = over_images(evidence, one - other).told()
        if row:
            rows[title] = row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def dials_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """CLIP-like: the truth on an image's general, all and rare captions; λ; what fills batches.

    Each over extra golden with the same captions and the same λ.
    """
    reference, pairs = name_of("dual", REFERENCE), {}
    for which in (", general captions", "", ", rare captions"):
        for use in ("exclusion", "both"):
            own = name_of("dual", use, "all") + which
            pairs[f"{use}{which or ', all captions'}"] = (own, reference + which)
    mined, both = name_of("dual", "both", "miner"), name_of("dual", "both", "all")
    for name in (mined, f"{mined}{FILLED}"):
        pairs[name.removeprefix("CLIP-like, ")] = (name, reference)
    for name in evidence.systems(dataset):
        if name.startswith(f"{both}, λ"):
            same = reference + name.removeprefix(both)
            pairs[name.removeprefix("CLIP-like, ")] = (name, same)
    return gains_table(evidence, dataset, pairs, ("mAP", "E@10", "RSUM"))


def curves(evidence: Evidence, dataset: str) -> Figure:
    """Dev figures over epochs, means over seeds with their range: judges, stage A, stage B."""
    panels = {
        "dev_loss": ["Only TE", "Only VE", "Single stream"],
        "dev_RSUM": [f"{NAMES[f]}, start" for f in ("dual", "align")],
        "dev_RSUM ": [name_of(f, REFERENCE) for f in FAMILIES],
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3))
    for axis, (metric, names) in zip(axes, panels.items(), strict=True):
        for name in (n for n in names if evidence.has(dataset, n, metric.strip(), EPOCHS)):
            seen = evidence.curves(dataset, name, metric.strip())
            plots.curve_of_seeds(axis, seen, name)
        axis.set(xlabel="epoch", ylabel=metric.strip().replace("_", " "))
        axis.legend(fontsize=8)
    return figure


def everything(evidence: Evidence) -> tuple[dict[str, pd.DataFrame], dict[str, Figure]]:
    """All tables and all figures that need nothing but evidence, by name."""
    [name] = evidence.datasets
    tables = {
        "judges": judges_table(evidence, name), "mining": mining_table(evidence, name),
        "retrieval": retrieval_table(evidence, name), **beside_paper(evidence, name),
    }  # fmt: skip
    if evidence.has(name, "Full", "alone", "edits"):
        tables |= {"errors": errors_by_kind(evidence, name), "dials": dials_table(evidence, name)}
    return tables, {"ladder": ladder(evidence, name), "curves": curves(evidence, name)}
