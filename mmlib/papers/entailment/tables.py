"""Tables of paper 02 from evidence, some beside the paper's own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from mmlib.core.evidence import Evidence
from mmlib.core.tables import beside, mean_and_deviation, paper_values
from mmlib.papers.entailment.claims import (
    REVISED,
    Change,
    as_in_paper,
    judge_figure,
    main_test,
    over_images,
)
from mmlib.papers.entailment.method.metrics import METRICS, recalls
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import FAMILIES, MINING, PAIRS, REFERENCE, name_of

PRINTED = {  # our row of Table 3 -> the paper's
    "Only TE": "Only TE", "Only VE": "Only VE", "Single stream": "OFA", "Full": "Ours",
    "w/o image masking": "w/o Image Masking", "w/o VE data": "w/o VE Data",
    "w/o TE data": "w/o TE Data", "w/o BERT": "w/o BERT",
}  # fmt: skip
TESTS = ("candidates", "edits", "crowd", "SICK triples", "SNLI-VE")
# Change and ending of the paper's name: its baseline and its method.
IN_PAPER: tuple[tuple[Change, str], ...] = (
    ((REFERENCE, ""), ""), (REVISED, " + entailment-enhanced training"),
)  # fmt: skip
RETRIEVAL = ("RSUM", "mAP", "E@10", "E@30", "E@10, rarity", "mAP, people", "P@1, people",
             "E@10, judge", "E@30, judge")  # fmt: skip


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """All tables that need nothing but evidence, by file name."""
    [name] = evidence.datasets
    named = {
        "table1": table1(evidence, name), "table2": table2(evidence, name),
        "table3": table3(evidence, name),
        "judges": judges_table(evidence, name), "mining": mining_table(evidence, name),
        "retrieval": retrieval_table(evidence, name), **beside_paper(evidence, name),
    }  # fmt: skip
    if evidence.has(name, "Full", "alone", "edits"):
        named |= {"errors": errors_by_kind(evidence, name), "dials": dials_table(evidence, name)}
    return named


def _row_name(evidence: Evidence, dataset: str, name: str) -> str:
    """A system's name, with "↗" where its dev figures still improved when the training ended."""
    return f"{name} ↗" if evidence.unfinished(dataset, name) else name


def _names(baselines: Iterable[Mapping[str, str]], trained: Iterable[Any]) -> list[str]:
    return [*(row["system"] for row in baselines), *(row.system for row in trained)]


def judges_table(evidence: Evidence, dataset: str, test: str = "") -> pd.DataFrame:
    """A row a judge: METRICS by network and inputs, those by the network alone, and the paper's.

    "↗" where the dev loss still fell when the training ended.
    """
    test = test or main_test(evidence, dataset)
    paper = paper_values(systems.PAPER, "table3")
    rows = {}
    for name in _names(systems.BASELINES, systems.judges(evidence.header["tier"])):
        if not evidence.has(dataset, name, "margin", test):
            continue
        row: dict[tuple[str, str], Any] = {}
        for how, title in (("margin", "with inputs"), ("alone", "network alone")):
            for metric in METRICS if evidence.has(dataset, name, how, test) else ():
                row[title, metric] = judge_figure(evidence, dataset, name, metric, how, test).mean()
        if name in PRINTED:
            row["paper", "F0.5"] = float(paper.loc[PRINTED[name], "F0.5"])
        rows[_row_name(evidence, dataset, name)] = row
    table = pd.DataFrame.from_dict(rows, orient="index").round(1)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table


def table1(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 1 beside ours: how many pairs a test has, and how many of them are entailed.

    On photographs the false pairs that were asked about stand for all that people judged.
    """
    table = paper_values(systems.PAPER, "table1")
    table.columns = pd.MultiIndex.from_product([["paper"], table.columns])
    for test in (name for name in TESTS if evidence.has(dataset, PAIRS, "label", name)):
        columns = (evidence.values(dataset, PAIRS, n, [0], test)[0] for n in ("label", "weight"))
        label, weight = columns
        table["ours", test] = [round(weight.sum()), round(weight[label == 1].sum())]
    return table


def table2(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 2: the paper's data by task; "–" for ours, whose training pairs no record counts.

    The notebook counts them where it makes them. The number of test pairs is that of `table1`.
    """
    table = paper_values(systems.PAPER, "table2")
    table = table[["split", "task", "dataset", "count_printed"]].fillna("–")
    table = table.rename(columns={"count_printed": "paper"}).assign(ours="–")
    pairs = table1(evidence, dataset)["ours", main_test(evidence, dataset)]
    table.loc[table.split == "Test", "ours"] = str(pairs["Total pairs"])
    return table.reset_index(drop=True)


def table3(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 3 beside ours: each judge's network alone, at its threshold.

    ours: in the test, of whose pairs few are entailed. half entailed: its pairs weighted so that as
    many are as in the paper's test, 1,006 of 2,000; what is called entailed is the same.
    """
    printed = paper_values(systems.PAPER, "table3")
    test, ours_of = main_test(evidence, dataset), {theirs: own for own, theirs in PRINTED.items()}
    columns: dict[tuple[str, str], dict[str, str]] = {}
    for metric in printed.columns:
        columns[metric, "paper"] = printed[metric].map(str).to_dict()
        for row, name in ours_of.items():
            if not evidence.has(dataset, name, "alone", test):
                continue
            in_test = judge_figure(evidence, dataset, name, metric, "alone")
            columns.setdefault((metric, "ours"), {})[row] = mean_and_deviation(pd.Series(in_test))
            weighed = as_in_paper(evidence, dataset, name, metric).mean(axis=1)
            of_half = columns.setdefault((metric, "half entailed"), {})
            of_half[row] = mean_and_deviation(pd.Series(weighed))
    return pd.DataFrame(columns).reindex(printed.index).fillna("–")


def errors_by_kind(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """How often Full's network calls edited hypotheses wrongly, in percent, by their origin."""
    called = evidence.values(dataset, "Full", "alone", None, "edits") >= 0
    label, kind = (evidence.values(dataset, PAIRS, n, [0], "edits")[0] for n in ("label", "kind"))
    rows: dict[str, dict[str, float]] = {}
    for number, name in enumerate(systems.ORIGINS):
        for truth, title in ((1, "entailed"), (0, "not entailed")):
            some = (kind == number) & (label == truth)
            if some.any():
                rows.setdefault(name, {})[f"{title}, pairs"] = int(some.sum())
                wrong = 100 * float((called[:, some] != truth).mean())
                rows[name][f"{title}, wrong %"] = round(wrong, 1)
    return pd.DataFrame.from_dict(rows, orient="index")


def mining_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Pairs that a miner takes, and how many are true; baselines take as many as the judge."""
    recorded = set(evidence.metrics(dataset, MINING, "mined"))

    def total(metric: str) -> float:
        return float(evidence.values(dataset, MINING, metric, None, "mined").sum(axis=1).mean())

    mined, rows = total("mined"), {}
    for name in ("candidates", "mined", "overlap", "cosine", "inputs"):
        row = {"pairs": total("candidates") if name == "candidates" else mined}
        if f"{name}, true" in recorded:
            row |= {"true": total(f"{name}, true")}
            row |= {"precision, %": 100 * row["true"] / max(row["pairs"], 1),
                    "of the true candidates, %": 100 * row["true"] / total("candidates, true"),
                    "of all true pairs, %": 100 * row["true"] / total("true")}  # fmt: skip
        rows[{"mined": "the judge", "candidates": "all candidates"}.get(name, name)] = row
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def retrieval_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a variant: RSUM and all other figures, means over seeds; "↗" where dev still rose."""
    rows = {}
    for name in _names(systems.RANKINGS, systems.variants(evidence.header["tier"])):
        if evidence.has(dataset, name, "RSUM"):
            rows[_row_name(evidence, dataset, name)] = {
                metric: evidence.means(dataset, name, metric).mean()
                for metric in RETRIEVAL if evidence.has(dataset, name, metric)
            }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def beside_paper(evidence: Evidence, dataset: str) -> dict[str, pd.DataFrame]:
    """Tables 4 and 5 beside ours: "table4_flickr30k", "table4_mscoco", "table5".

    Extra golden stands for the paper's baseline, both uses of the miner's set for its method.
    Beside E@M, labelled by hand, stands E@10 by logic.
    """
    rows = []
    for family in FAMILIES:
        for change, ending in IN_PAPER:
            name, system = name_of(family, *change), systems.PAPER_RETRIEVERS[family] + ending
            if not evidence.has(dataset, name, "hits"):
                continue
            figures = recalls(evidence.values(dataset, name, "hits"))
            means = {metric: values.mean(axis=1) for metric, values in figures.items()}
            for metric, ours in (("E@10", "E@10, judge"), ("E@30", "E@30, judge"), ("E@M", "E@10")):
                if evidence.has(dataset, name, ours):
                    means[metric] = evidence.means(dataset, name, ours).to_numpy()
            rows += [
                {"system": system, "metric": metric, "seed": seed, "value": value}
                for metric, values in means.items()
                for seed, value in enumerate(values)
            ]
    ours = pd.DataFrame(rows, columns=["system", "metric", "seed", "value"])
    printed = ("table4_flickr30k", "table4_mscoco", "table5")
    return {table: beside(ours, paper_values(systems.PAPER, table)) for table in printed}


def gains_table(
    evidence: Evidence, dataset: str, pairs: Mapping[str, tuple[str, str]], metrics: Sequence[str]
) -> pd.DataFrame:
    """Effects with their intervals: title -> (system, system that it is held against)."""
    rows = {}
    for title, names in pairs.items():
        row = {}
        for metric in metrics:
            if all(evidence.has(dataset, name, metric) for name in names):
                ours, reference = (evidence.values(dataset, name, metric) for name in names)
                row[metric] = over_images(evidence, ours - reference).told()
        if row:
            rows[title] = row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def dialled(evidence: Evidence, dataset: str) -> dict[str, tuple[str, str]]:
    """CLIP-like: the truth on an image's general, all and rare captions; λ; what fills batches.

    Title -> the system, and extra golden with the same captions and the same λ.
    """
    reference, pairs = name_of("dual", REFERENCE), {}
    for captions in (", general captions", "", ", rare captions"):
        for use in ("exclusion", "both"):
            system = name_of("dual", use, "all") + captions
            pairs[f"{use}{captions or ', all captions'}"] = (system, reference + captions)
    mined, true = name_of("dual", *REVISED), name_of("dual", "both", "all")
    lambdas = [name for name in evidence.systems(dataset) if name.startswith(f"{true}, λ")]
    for name in (mined, f"{mined}{systems.FILLED}", *lambdas):
        ending = name.removeprefix(true) if name in lambdas else ""
        pairs[name.removeprefix("CLIP-like, ")] = (name, reference + ending)
    return pairs


def dials_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Gains of `dialled`, with 95 % intervals over seeds and images."""
    return gains_table(evidence, dataset, dialled(evidence, dataset), ("mAP", "E@10", "RSUM"))
