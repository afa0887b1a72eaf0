"""Write notebooks/expected/<tier>/<number>.json from the results of a finished run.

    mmlib run 04 --seeds 5 --out runs/five
    python ci/make_expected.py 04 world --run runs/five

The figures are those of the trained systems. Tolerances come from the spread over the run's seeds
(`mmlib.claims.make_expected`); chance is 50 for AUC and what the system Random got for the rest.
"""

import argparse
import datetime
import platform
import subprocess
from pathlib import Path

import nbformat
import pandas as pd
import torch

from mmlib.claims import make_expected, write_json
from mmlib.runner import default_parameters

ROOT = Path(__file__).resolve().parent.parent
# What of the parameters changes no figure.
IRRELEVANT = {"tier", "device", "out", "resume", "expected", "workers"}
METRICS = ("AUC", "p@1")
UNTRAINED = ("Random", "Obj Detect", "Obj Detect (best K on test)")


def chance_levels(table: pd.DataFrame) -> dict[str, float]:
    levels = {}
    for (dataset, system, metric), _ in table.groupby(["dataset", "system", "metric"]):
        if system not in UNTRAINED and metric in METRICS:
            random = table[(table.dataset == dataset) & (table.system == "Random")]
            chance = 50.0 if metric == "AUC" else random[random.metric == metric].value.mean()
            levels[f"{dataset}/{system}/{metric}"] = float(chance)
    return levels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", help="its number, such as 04")
    parser.add_argument("tier", choices=["world", "flickr8k"])
    parser.add_argument("--run", type=Path, required=True, help="folder of the finished run")
    parser.add_argument("--commit", default="HEAD", help="what the run was made from")
    args = parser.parse_args()
    (notebook,) = (ROOT / "notebooks").glob(f"{args.notebook}_*.ipynb")
    table = pd.read_csv(args.run / notebook.stem / "results.csv")
    parameters = default_parameters(nbformat.read(notebook, as_version=4).cells)
    defaults = {name: value for name, value in parameters.items() if name not in IRRELEVANT}
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
        "command": f"mmlib run {args.notebook} --tier {args.tier} --seeds {table.seed.nunique()}",
        "tolerance": "99.9 % prediction interval for a mean over the default number of seeds",
    }
    expected = make_expected(
        table, chance_levels(table), how, defaults, seeds=int(defaults["seeds"])
    )
    target = ROOT / "notebooks" / "expected" / args.tier / f"{args.notebook}.json"
    write_json(target, expected)
    print(f"{target}: {len(expected['figures'])} figures, not held: {expected['not_held']}")


if __name__ == "__main__":
    main()
