"""Paper 02 as the suite knows it."""

from mmlib.core.experiment import FLICKR8K, Experiment
from mmlib.features.bert import INPUTS as BERT_FILES
from mmlib.papers.entailment.claims import CLAIMS
from mmlib.papers.entailment.data import load_arrays, load_study
from mmlib.papers.entailment.run.jobs import stages
from mmlib.papers.entailment.run.systems import BUDGETS, DATASETS, PAPER, systems
from mmlib.papers.entailment.show import figures, tables

EXPERIMENT = Experiment(
    number="02",
    paper=PAPER,
    version=1,
    datasets=lambda tier: [DATASETS[tier]],
    load_study=load_study,
    load_arrays=load_arrays,
    budget=lambda tier, dataset: BUDGETS[dataset],
    systems=systems,
    stages=stages,
    claims=CLAIMS,
    tables=tables,
    figures=figures,
    inputs={
        "flickr8k": (*FLICKR8K, "sick/SICK.txt", *BERT_FILES),
        "paper": ("region_features/**/*", "f30k/**/*", "coco/**/*", "snli_ve/**/*",
                  "sick/SICK.txt", *BERT_FILES),
    },
    bounds={r"(E|P)@\d+.*|mAP.*|own rejected": (0, 100), "(dev_)?RSUM": (0, 1e4), "label": (0, 1)},
    may_skip=r"(E|P)@\d+, (judge|people)|mAP, people|own rejected",
)  # fmt: skip
