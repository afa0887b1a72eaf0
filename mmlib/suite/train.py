"""`mmlib train`: a judge or a retriever of paper 02, trained as recorded and kept in one file."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch

from mmlib import __version__
from mmlib.core.errors import DataError, Problem
from mmlib.core.jobs import Run
from mmlib.core.paths import data_dir, table_beside, writable
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.data import flickr8k, registry
from mmlib.features import sets
from mmlib.features.encoders import DualEncoder
from mmlib.papers.entailment import data
from mmlib.papers.entailment.method.metrics import METRICS, figure
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.run import judge, retriever
from mmlib.papers.entailment.run.jobs import job as job_of
from mmlib.papers.entailment.run.systems import BUDGETS, DATASETS, systems
from mmlib.suite import score

Kind = Literal["judge", "retriever"]
SYSTEMS: dict[Kind, str] = {"judge": "Full", "retriever": "ALBEF-like, plain"}  # as on record
CARDS: dict[str, dict[str, str]] = table_beside(__file__)


def train(kind: Kind, tier: str, out: Path, seed: int = 0, device: str = "cpu") -> str:
    """Train the recorded system of a kind (`SYSTEMS`) and keep it in a file; returns its card.

    tier: "world" or "flickr8k". A judge is kept with the retriever that it reads. The weights also
    stay among the kept jobs, so that the same call after a full disk trains nothing again.
    Raises DataError for data that are not there, for a feature set that does not name the network
    that made it, and for a judge that would read a BERT, which does not fit into the file.
    """
    writable(out)
    bert = data_dir() / "bert"
    if kind == "judge" and tier == flickr8k.NAME and bert.is_dir():
        problem = "a judge would read this BERT, which does not fit into its file"
        raise DataError(Problem(bert, None, problem, "give the folder another name meanwhile"))
    name, sees = DATASETS[tier], dict(score.WORLD)
    if tier == flickr8k.NAME:  # what made the features of photographs in use
        folder = registry.find(flickr8k.NAME).folder / "features"
        store = sets.opened(folder, default=flickr8k.SHARED_FEATURES)
        sees = {key: store.meta.get(key, "") for key in ("backbone", "weights", "regions")}
        if sees["regions"] not in ("grid", "global") or not all(sees.values()):
            problem = "does not say which network made it, so a model could see no other picture"
            mend = "name another set with --features; `mmlib data features` makes one"
            raise DataError(Problem(store.path, None, problem, mend))
    arrays = data.load_arrays(data.load_study(tier), tier)[name]
    job = job_of(tier, name, systems(tier, name)[SYSTEMS[kind]], seed)
    plan, run, model = BUDGETS[name], Run(device), None
    facts = {"seed": seed, "version": __version__, "words": len(arrays.words.words)}
    if tier == flickr8k.NAME:
        facts["set"] = store.path.stem
    if kind == "judge":
        model, weights = judge.trained(job, arrays, run), arrays.retriever
        margins = judge.calibrated(model, arrays, arrays.images, run.device)
        asked = next(iter(arrays.tests.values()))  # at its natural prior
        margin, label = margins(asked)["margin"], asked.samples.label
        dev = arrays.encoded(arrays.dev, model.settings)
        test = [f"{m} {figure(m, label, margin, asked.weights):.1f}" for m in METRICS[:3]]
        facts |= asdict(plan.judge) | {
            "pairs": len(judge.training_rows(arrays.train, judge.Judge(**job.system), job.seed)),
            "calibration": len(arrays.calibration),
            "prior": arrays.calibration.samples.label.mean(),
            "dev": judge.dev_loss(model, dev, arrays.images, run.device)["dev_loss"],
            "test": ", ".join(test),
        }
    else:
        weights = judge.weights_of(retriever.stage_b, job, arrays, run)
        facts |= asdict(plan.retrieval.stage_b["align"])
        twin = build("align", plan.retrieval, arrays.images, len(arrays.words))
        twin.load_state_dict(weights)
        facts["pictures"] = len(arrays.splits["train"])
        for split in ("val", "test"):  # its two encoders alone, as in a search
            with torch.no_grad():
                scores, _ = DualEncoder.rank(twin, *arrays.splits[split].tensors(arrays.images))
            facts[split] = len(arrays.splits[split])
            ranks = ranks_of_scores(scores, arrays.splits[split].image_of)
            facts[f"{split}_r10"] = metrics(ranks)["t2i_r10"]
    card = " ".join((CARDS[kind]["text"] + CARDS[kind][tier] + CARDS["limits"][tier]).split())
    card, how = card.format(**facts), plan.retrieval
    model = model and model.cpu()
    score.keep(out, arrays, how.transformers, weights, model, card, how.space, sees)
    return card
