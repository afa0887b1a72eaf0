"""Write notebooks/expected/<tier>/<number>.json and <number>_claims.json from a finished run.

    mmlib run 01 --seeds 5 --out runs/five
    python ci/make_expected.py 01 world --run runs/five --checked 3

For notebooks that compute their claims; a paper with evidence is recorded by `mmlib record`.

The figures are those of the trained systems, each training once. Tolerances come from the spread
over the run's seeds (`mmlib.claims.make_expected`), for a later run of as many seeds as the
notebook has by default (--checked). Chance is 50 for AUC and what the system Random got for the
rest. Other parameters than the defaults (--set preset=quick) become a further set of figures in
the same file; the claims kept are those of the first set.
"""

import argparse
import datetime
import json
import platform
import subprocess
from pathlib import Path

import nbformat
import pandas as pd
import torch

from mmlib.claims import expected_sets, make_expected
from mmlib.core.tables import write_json
from mmlib.suite.runner import default_parameters

ROOT = Path(__file__).resolve().parent.parent
# What of the parameters changes no figure.
IRRELEVANT = {"tier", "device", "out", "resume", "expected", "workers", "results"}
METRICS = ("AUC", "auc", "p@1", "rsum", "t2i_r10", "r10")
UNTRAINED = ("Random", "Untrained", "Obj Detect", "Obj Detect (best K on test)")
DERIVED = (
    "errors",
    "reranked",
    "θ̄",
    "true relations",
    "shared",
    "separate",
    ", precision",  # sweeps of one seed
)  # the same trainings once more: they would only weigh double


def chance_levels(table: pd.DataFrame, checked: int) -> dict[str, float]:
    levels = {}
    absent = () if checked > 1 else ("ensemble",)  # one seed makes no ensemble
    for (dataset, system, metric), _ in table.groupby(["dataset", "system", "metric"]):
        derived = any(word in system for word in (*DERIVED, *absent))
        if system not in UNTRAINED and not derived and metric in METRICS:
            own = (table.dataset == dataset) & (table.metric == metric)
            random = table[own & (table.system == "Random")].value
            chance = 50.0 if metric.lower() == "auc" else random.mean()
            levels[f"{dataset}/{system}/{metric}"] = float(chance)
    return levels


def combined(before: list[dict], new: dict, defaults: dict) -> dict:
    """A file's content with one set of figures put in or replaced."""
    kept = [one for one in before if one["parameters"] != new["parameters"]]
    sets = [{k: v for k, v in one.items() if k != "variants"} for one in [new, *kept]]
    sets.sort(key=lambda one: one["parameters"] != defaults)  # the defaults first, where they are
    return sets[0] | ({"variants": sets[1:]} if sets[1:] else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", help="its number, such as 01")
    parser.add_argument("tier", choices=["world", "flickr8k"])
    parser.add_argument("--run", type=Path, required=True, help="folder of the finished run")
    parser.add_argument("--checked", type=int, required=True, help="seeds of the checked runs")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--note", help="what else a reader should know of how it was run")
    parser.add_argument("--commit", default="HEAD", help="what the run was made from")
    args = parser.parse_args()
    (notebook,) = (ROOT / "notebooks").glob(f"{args.notebook}_*.ipynb")
    table = pd.read_csv(args.run / notebook.stem / "results.csv")
    parameters = default_parameters(nbformat.read(notebook, as_version=4).cells)
    fixed = {name: value for name, value in parameters.items() if name not in IRRELEVANT}
    changed = dict(pair.split("=", 1) for pair in args.set)
    if unknown := sorted(set(changed) - set(fixed)):
        parser.error(f"{notebook.name} has no parameter {unknown[0]}")
    commit = subprocess.run(
        ["git", "rev-parse", args.commit], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    how = {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "seeds": sorted(int(seed) for seed in table.seed.unique()),
        "command": f"mmlib run {args.notebook} --tier {args.tier} --seeds {table.seed.nunique()}"
        + "".join(f" --set {pair}" for pair in args.set),
        "tolerance": f"99.9 % prediction interval for a mean over {args.checked} seed(s)",
    }
    if args.note:
        how["note"] = args.note
    expected = make_expected(
        table, chance_levels(table, args.checked), how, fixed | changed, seeds=args.checked
    )
    target = ROOT / "notebooks" / "expected" / args.tier / f"{args.notebook}.json"
    content = combined(expected_sets(target) if target.exists() else [], expected, fixed)
    write_json(target, content)
    if content["parameters"] == expected["parameters"]:
        claims = json.loads((args.run / notebook.stem / "claims.json").read_text())
        record = {"how": how, "notebook": notebook.stem, "claims": claims}
        write_json(target.with_name(f"{args.notebook}_claims.json"), record)
    print(f"{target}: {len(expected['figures'])} figures, not held: {expected['not_held']}")


if __name__ == "__main__":
    main()
