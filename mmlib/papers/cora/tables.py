"""Tables of paper 03: of its captions, and of the evidence, beside the paper's own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mmlib import scenegraph
from mmlib.core.effects import Effect, crossed
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.paths import table_beside
from mmlib.core.ranking import KS
from mmlib.core.tables import beside, mean_and_deviation, paper_tables
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.run.systems import (
    BAG,
    BASELINES,
    BERT,
    CAPTIONS,
    COMPARED,
    COMPARISONS,
    CONTROLLED_TIER,
    CORA,
    ERRORS,
    LITTLE_HARM,
    ORACLES,
    ORDER,
    PAPER,
    QUERY_TIME,
    RATES,
    SEQUENCE,
    SPLITS,
    SYSTEMS,
    TABLES,
    TWO_STEP,
    UNSEEN,
    WITH_BERT,
    WITH_GRU,
    budget,
    original,
    systems,
)

_TABLE = table_beside(__file__)
OUR_NAMES, FIELDS = _TABLE["names"], _TABLE["fields"]
MAIN, COLLECTIONS = _TABLE["main"], _TABLE["collections"]
NAMES_IN, NOT_RECORDED = _TABLE["names_in"], _TABLE["not_recorded"]

RSUM, RIGHT = ("RSUM", "95 % low", "high"), ("right in %", "low", "high")  # with intervals


def describe(collection: Captions) -> pd.DataFrame:
    """Size of each split, and how much a caption and its parsed graph hold on average."""
    rows = {}
    for split in SPLITS:
        captions, counts = collection.captions(split), []
        for graph in collection.graphs[split]:
            objects = scenegraph.objects(graph)
            attributes = sum(len(scenegraph.attributes(graph, i)) for i in objects)
            relations = len(scenegraph.relations(graph))
            counts.append((len(objects), attributes, relations, 100 * graph.graph["fallback"]))
        kinds = ("objects", "attributes", "relations", "fallback graphs in %")
        rows[split] = {
            "images": len(collection.images[split].captions),
            "captions": len(captions),
            "words a caption": np.mean([len(c.split()) for c in captions]),
            **dict(zip(kinds, np.mean(counts, axis=0), strict=True)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(2)


def attributes_said(evidence: Evidence, dataset: str) -> float:
    """Attributes per object of the test captions, as our parser finds them."""
    counts = [evidence.values(dataset, CAPTIONS, kind)[0] for kind in ("attributes", "objects")]
    return float(np.nansum(counts[0]) / np.nansum(counts[1]))


def with_rows(evidence: Evidence, dataset: str, names: Iterable[str]) -> list[str]:
    """Those of the systems that are in the record."""
    return [name for name in names if evidence.has(dataset, name, "rank")]


def captions_and_images(evidence: Evidence, dataset: str) -> tuple[slice, slice]:
    """Which items of a collection are test captions, and which are test images."""
    described = evidence.has(dataset, CAPTIONS, "objects")  # else: a controlled collection
    term = (CAPTIONS, "objects") if described else (ORACLES[-1]["system"], "in family")
    captions = int(np.isfinite(evidence.values(dataset, *term)[0]).sum())
    return slice(captions), slice(captions, None)


def recalls(evidence: Evidence, dataset: str, system: str) -> pd.DataFrame:
    """R@K and median ranks both ways and RSUM of each seed: columns system, metric, seed, value."""
    captions, images = captions_and_images(evidence, dataset)
    ranks = evidence.values(dataset, system, "rank")
    of = {"i2t": ranks[:, images], "t2i": ranks[:, captions]}
    values = {f"{way}_r{k}": 100 * (r <= k).mean(axis=1) for way, r in of.items() for k in KS}
    values["rsum"] = sum(values.values())
    values |= {f"{way}_medr": np.median(of[way], axis=1) for way in ("t2i", "i2t")}
    table = pd.DataFrame(values).assign(seed=evidence.seeds_of(dataset))
    return table.melt("seed", var_name="metric").assign(system=system)


def trained_again(evidence: Evidence, dataset: str) -> list[float]:
    """By how much RSUM of one seed's trainings on two machines differs, where it does.

    Both encoders without a BERT are recorded twice, beside those with one; on one machine their
    figures are the same. Empty where those beside a BERT have a budget of their own.
    """
    quick, tier = dataset + WITH_BERT, evidence.header["tier"]
    if budget(tier, quick) != budget(tier, dataset):
        return []
    differences: list[float] = []
    for first, second in zip((SEQUENCE, CORA), WITH_GRU, strict=True):
        if evidence.has(quick, second, "RSUM"):
            again = evidence.means(quick, second, "RSUM")
            difference = again - evidence.means(dataset, first.system, "RSUM")
            differences += difference[difference.abs() > 1e-6].tolist()
    return differences


def _interval(values: np.ndarray, clusters: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Named mean of values (seeds, items) or (items,), and its interval over seeds and clusters."""
    mean = crossed(values, clusters)
    return dict(zip(names, (mean.effect, mean.low, mean.high), strict=True))


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system: R@K and median ranks both ways and RSUM, mean ± deviation over seeds.

    Baselines come above the trained systems, oracles below. "↗" flags a system that still improved
    on dev when its trainings ended, in more than a fifth of them.
    """
    rows = {}
    for name in with_rows(evidence, dataset, ORDER):
        by_metric = recalls(evidence, dataset, name).groupby("metric", sort=False).value
        flag = " ↗" if evidence.unfinished(dataset, name) else ""
        rows[name + flag] = by_metric.agg(mean_and_deviation)
    return pd.DataFrame.from_dict(rows, orient="index")


def printed(table: str) -> pd.DataFrame:
    """A printed table by our names; of its rows with BERT and of equal ones only the first."""
    content = paper_tables(PAPER)[table]
    names = NAMES_IN.get(table, OUR_NAMES)
    rows: dict[str, Any] = {}
    for row in content["rows"]:
        bert = " (BERT)" if "BERT" in row.get("section", "") and "BERT" not in row["name"] else ""
        rows.setdefault(names.get(row["name"], row["name"]) + bert, row["values"])
    return pd.DataFrame.from_dict(rows, orient="index")[content["columns"]]


def table(evidence: Evidence, dataset: str, number: str) -> pd.DataFrame:
    """Table 1, 3 or 7, as "table1", beside ours, with baselines and oracles below."""
    paper = printed(number)
    untrained = [row["system"] for row in (*BASELINES, *ORACLES)]
    names = with_rows(
        evidence, dataset, dict.fromkeys([*paper.index, *TABLES.get(number, ()), *untrained])
    )
    nothing = pd.DataFrame({"system": [], "metric": [], "seed": [], "value": []})
    ours = [recalls(evidence, dataset, name) for name in names]
    both = beside(pd.concat(ours) if ours else nothing, paper)
    return both.loc[list(dict.fromkeys([*paper.index, *names]))]


def main(recorded: Iterable[Evidence]) -> pd.DataFrame:
    """RSUM of the main systems: the paper's on Flickr30K, and ours on each plain collection.

    Ours are means ± deviations over seeds; "–" means no value.
    """
    paper = printed("table3").rsum.to_dict() | printed("table1").rsum.to_dict()
    columns = {"the paper, Flickr30K": {n: f"{paper[n]:.1f}" for n in MAIN if n in paper}}
    for evidence in recorded:
        for dataset in (name for name in evidence.datasets if name == original(name)):
            names = with_rows(evidence, dataset, MAIN)
            rsum = {name: evidence.means(dataset, name, "RSUM") for name in names}
            columns[COLLECTIONS.get(dataset, dataset)] = {
                name: f"{of_seeds.mean():.0f}"
                + (f" ± {of_seeds.std():.0f}" if len(of_seeds) > 1 else "")
                for name, of_seeds in rsum.items()
            }
    return pd.DataFrame(columns).reindex(MAIN).dropna(how="all").fillna("–").rename_axis("RSUM")


def reranking(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 4: RSUM before and after reranking (eq. 14), the paper's on MS-COCO 5K beside ours.

    Below what the paper alone has: with a BERT.
    """
    rows: dict[str, dict[str, float]] = {}
    paper = printed("table4").rsum
    for name in with_rows(evidence, dataset, SYSTEMS):
        for metric, row in (("RSUM", name), ("RSUM, reranked", f"{name}, reranked")):
            if evidence.has(dataset, name, "RSUM, reranked"):
                ours = evidence.means(dataset, name, metric)
                rows[row] = {"paper": paper.get(row), "ours": ours.mean(), "sd": ours.std()}
    rows |= {row: {"paper": paper[row]} for row in paper.index if row.endswith("(BERT)")}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["paper", "ours", "sd"])
    return table.round(1).astype(object).fillna("–")


def printed_alone(number: str) -> pd.DataFrame:
    """A printed table that nothing recorded stands beside, in percent; "–" for ours."""
    return printed(number).astype(object).fillna("–").assign(ours="–")


def not_recorded() -> pd.DataFrame:
    """The printed tables, or rows of one, that nothing recorded stands beside, and why."""
    rows = {
        number: {"title": paper_tables(PAPER)[number.split(",")[0]]["title"], "why": why}
        for number, why in NOT_RECORDED.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def trained_out(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """RSUM on dev at the end of a training, and its rise over the last two epochs: means of seeds.

    ↗: as in `results`.
    """
    rows = {}
    for name in with_rows(evidence, dataset, ORDER):
        if evidence.has(dataset, name, "dev_RSUM", EPOCHS):
            mean = evidence.curves(dataset, name, "dev_RSUM").mean(axis=0)
            before = mean[max(len(mean) - 3, 0)]
            rising = "↗" if evidence.unfinished(dataset, name) else ""
            rows[name] = {"dev RSUM at the end": f"{mean[-1]:.0f}",
                          "rise over the last two epochs": f"{mean[-1] - before:+.1f}",
                          "improved at the end": rising}  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """In what two systems' columns differ; "" for oracles, which have none of these."""
    return ", ".join(
        kind for kind, fields in FIELDS.items() if any(a.get(f) != b.get(f) for f in fields)
    )


def leads(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each change gives, alone and together: RSUM of a system minus that of another one.

    With 95 % intervals over seeds and clusters of images, and what differs: the encoder of the
    text, that of the image, the losses, or how many trainings are averaged.
    """
    columns, clusters = systems(evidence.header["tier"], dataset), evidence.clusters(dataset)
    rows = {}
    for changed, base in COMPARISONS:
        if len(with_rows(evidence, dataset, (changed, base))) == 2:
            a, b = (evidence.values(dataset, name, "RSUM") for name in (changed, base))
            rows[changed, base] = _interval(a - b, clusters, RSUM)
            rows[changed, base]["differ in"] = _differing(columns[changed], columns[base])
    table = pd.DataFrame.from_dict(rows, orient="index").round(1)
    table.index = pd.MultiIndex.from_tuples(table.index, names=("system", "minus"))
    return table


def gains_of_bert(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """RSUM that a BERT adds to the sequence and to CORA, by how it learns, and the difference.

    "mean": of all ways, as C10 has it; "… − frozen BERT": what learning adds. Beside it CORA −
    the sequence, both with that BERT. With 95 % intervals over seeds and clusters of images. A way
    that is not in the record has no row.
    """
    (a, b), rows = WITH_GRU, {}
    for bert in BERT:
        names = (a, f"{a}, {bert}", b, f"{b}, {bert}")
        if len(with_rows(evidence, dataset, names)) == len(names):
            a0, a1, b0, b1 = (evidence.values(dataset, name, "RSUM") for name in names)
            rows[bert] = {
                "added to the sequence": a1 - a0,
                "added to CORA": b1 - b0,
                "difference": (a1 - a0) - (b1 - b0),
                "CORA − sequence": b1 - a1,
            }
    table = pd.DataFrame.from_dict(rows, orient="index")
    if len(rows) == len(BERT):
        frozen, *learning = BERT
        table.loc["mean"] = table.loc[list(BERT)].sum() / len(BERT)
        for bert in learning:
            table.loc[f"{bert} − {frozen}"] = table.loc[bert] - table.loc[frozen]
    clusters = evidence.clusters(dataset)
    return table.map(lambda values: crossed(values, clusters).told(0))


def in_family(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """How often, in percent, a caption finds its image among those of its family.

    They differ in structure alone; chance is 25. Beside it the difference from the bag of phrases,
    which cannot know structure, paired. With 95 % intervals over seeds and images.
    """
    rows: dict[str, dict[str, float]] = {}
    captions, _ = captions_and_images(evidence, dataset)
    clusters = evidence.clusters(dataset)[captions]
    hits = {
        name: evidence.values(dataset, name, "in family")[:, captions]
        for name in ORDER if evidence.has(dataset, name, "in family")
    }  # fmt: skip
    for name, hit in hits.items():
        rows[name] = _interval(hit, clusters, RIGHT)
        if BAG.system in hits and name != BAG.system:
            lead = hit - hits[BAG.system]
            rows[name] |= _interval(lead, clusters, ("minus the bag", "from", "to"))
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def right(
    evidence: Evidence, dataset: str, system: str, seeds: Sequence[int] | None = None,
    unseen: bool = False,
) -> np.ndarray:  # fmt: skip
    """Whether captions found their picture in its family, 100 or 0: (seeds, captions).

    unseen: of the second half alone, which `data.controlled.Dials` explains.
    """
    values = evidence.values(dataset, system, "in family", seeds)
    values = values[:, np.isfinite(values[0])]  # pictures have none
    return values[:, values.shape[1] // 2 :] if unseen else values


def families_of(evidence: Evidence, dataset: str, unseen: bool = False) -> np.ndarray:
    """The family of each caption of `right`, (captions,)."""
    system = ORACLES[-1]["system"]
    captions = np.isfinite(evidence.values(dataset, system, "in family")[0])
    families = evidence.clusters(dataset)[captions]
    return families[len(families) // 2 :] if unseen else families


def binding(evidence: Evidence) -> pd.DataFrame:
    """How often captions find their picture in its family, in percent, chance 25: a row a
    controlled collection, a column a system, means with 95 % intervals over seeds and families.

    "unseen pairs, alone" is the second half of its test pictures, which shows no other pairs.
    """
    rows: dict[str, dict[str, str]] = {}
    for dataset in evidence.datasets:
        for unseen in (False, True) if dataset == UNSEEN else (False,):
            row = rows.setdefault(dataset + ", alone" * unseen, {})
            for name in ORDER:
                if evidence.has(dataset, name, "in family"):
                    share = in_families(evidence, dataset, name, unseen)
                    row[name] = f"{share.effect:.0f} [{share.low:.0f}, {share.high:.0f}]"
    return pd.DataFrame.from_dict(rows, orient="index")


def in_families(evidence: Evidence, dataset: str, system: str, unseen: bool = False) -> Effect:
    """The mean of `right`, with its interval over seeds and families."""
    values = right(evidence, dataset, system, None, unseen)
    return crossed(values, families_of(evidence, dataset, unseen))


def by_attributes(evidence: Evidence, dataset: str, most: int = 3) -> pd.DataFrame:
    """Sum of the t2i recalls of captions with 0, 1, ... attributes: where graphs are better.

    Below, the lead of the bag over two others, with 95 % intervals.
    """
    captions, _ = captions_and_images(evidence, dataset)
    count = np.minimum(evidence.values(dataset, CAPTIONS, "attributes")[0][captions], most)
    columns = {n: f"{n} or more" if n == most else f"{n}" for n in np.unique(count).astype(int)}
    rows = {"captions": {column: f"{np.sum(count == n)}" for n, column in columns.items()}}
    hits = {}
    for name in with_rows(evidence, dataset, COMPARED):
        ranks = evidence.values(dataset, name, "rank")[:, captions]
        hits[name] = 100.0 * np.sum([ranks <= k for k in KS], axis=0)
        rows[name] = {c: f"{hits[name][:, count == n].mean():.0f}" for n, c in columns.items()}
    clusters = evidence.clusters(dataset)[captions]
    for rival in (TWO_STEP.system, CORA.system):
        if {BAG.system, rival} <= hits.keys():
            lead = hits[BAG.system] - hits[rival]
            rows[f"{BAG.system} − {rival}"] = {
                c: crossed(lead[:, count == n], clusters[count == n]).told(0)
                for n, c in columns.items()
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def parse_effects(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Change of CORA's RSUM by kind of parse error and by the percentage of captions drawn for one.

    Beside it what remains beyond the share of C8. With 95 % intervals over seeds and clusters of
    images.
    """
    intact, clusters = evidence.values(dataset, CORA.system, "RSUM"), evidence.clusters(dataset)
    rows = {}
    for kind in ERRORS:
        for rate in RATES:
            hurt = evidence.values(dataset, CORA.system, f"RSUM, {kind} {rate} %")
            rows[kind, rate] = _interval(hurt - intact, clusters, RSUM)
            beyond = crossed(hurt - LITTLE_HARM * intact, clusters).told(1)
            rows[kind, rate][f"kept beyond {LITTLE_HARM:.0%}"] = beyond
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["error", "% of captions"])


def entities(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Share with a right answer among the first K, beside what knows nothing of the image.

    image → entity: of images, those with an entity that one of their captions names; entity →
    image: of the entities of captions, those with an image one of whose captions names them.
    """
    names = [n for n in (CAPTIONS, *SYSTEMS) if evidence.has(dataset, n, "entity rank")]
    rows: dict[tuple[str, str], list[float]] = {}
    for name in names:
        ranks = evidence.values(dataset, name, "entity rank")
        label = "most frequent first" if name == CAPTIONS else name
        rows["image → entity", label] = [100 * (ranks[np.isfinite(ranks)] <= k).mean() for k in KS]
    for name in names:
        hits = [evidence.values(dataset, name, f"entity to image, R@{k}") for k in KS]
        rows["entity → image", "random order" if name == CAPTIONS else name] = [
            np.nanmean(hit) for hit in hits
        ]
    table = pd.DataFrame(rows, index=[f"R@{k} in %" for k in KS])
    return table.T.round(1)


def times(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Median milliseconds of each step of a query."""
    steps = evidence.metrics(dataset, QUERY_TIME, EPOCHS)
    medians = {step: np.median(evidence.curves(dataset, QUERY_TIME, step)) for step in steps}
    return pd.DataFrame({"ms": 1000 * pd.Series(medians)}).round(2)


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """All tables that need nothing but evidence, by file name."""
    if evidence.header["tier"] == CONTROLLED_TIER:
        return {"binding": binding(evidence)}
    tables: dict[str, pd.DataFrame] = {}
    for name in evidence.datasets:
        tables[f"results_{name}"] = results(evidence, name)
        if name != original(name):
            kind = gains_of_bert if name.endswith(WITH_BERT) else leads
            tables[f"{kind.__name__}_{name}"] = kind(evidence, name)
            if name.endswith(WITH_BERT):
                tables[f"table7_{name}"] = table(evidence, name, "table7")
            continue
        tables |= {
            f"trained_out_{name}": trained_out(evidence, name),
            f"table1_{name}": table(evidence, name, "table1"),
            f"table3_{name}": table(evidence, name, "table3"),
            f"table4_{name}": reranking(evidence, name),
            f"leads_{name}": leads(evidence, name),
            f"attributes_{name}": by_attributes(evidence, name),
            f"entities_{name}": entities(evidence, name),
        }
        if not (families := in_family(evidence, name)).empty:
            tables[f"families_{name}"] = families
        if evidence.has(name, QUERY_TIME, "parse", EPOCHS):
            tables[f"times_{name}"] = times(evidence, name)
        if has_parse_errors(evidence, name):
            tables[f"parse_errors_{name}"] = parse_effects(evidence, name).round(1)
    alone = {number: printed_alone(number) for number in paper_tables(PAPER).keys() & NOT_RECORDED}
    return tables | dict(sorted(alone.items())) | {"not_recorded": not_recorded()}


def has_parse_errors(evidence: Evidence, dataset: str) -> bool:
    """Whether graphs with parse errors were encoded."""
    return evidence.has(dataset, CORA.system, f"RSUM, edge {RATES[0]} %")
