"""Paper 03 as the suite knows it."""

from mmlib.core.experiment import Experiment
from mmlib.features.bert import INPUTS as BERT_FILES
from mmlib.papers.cora.batches import Arrays
from mmlib.papers.cora.claims import ALL_CLAIMS
from mmlib.papers.cora.data import Study, load_arrays, load_study
from mmlib.papers.cora.figures import figures
from mmlib.papers.cora.grid import stages
from mmlib.papers.cora.systems import PAPER, budget, datasets, systems
from mmlib.papers.cora.tables import tables

EXPERIMENT: Experiment[Study, Arrays] = Experiment(
    number="03",
    paper=PAPER,
    version=1,
    datasets=datasets,
    load_study=load_study,
    load_arrays=load_arrays,
    budget=budget,
    systems=systems,
    stages=stages,
    claims=ALL_CLAIMS,
    tables=tables,
    figures=figures,
    inputs={
        "flickr8k": ("flickr8k/captions.txt", "flickr8k/Flickr8k_text/*", "flickr8k/features/*",
                     *BERT_FILES),
        "paper": ("region_features/**/*", "f30k/**/*", "coco/**/*", "glove/*",
                  *BERT_FILES),
    },
)  # fmt: skip
