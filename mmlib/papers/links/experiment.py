"""The experiment of paper 04, as the suite knows it."""

from mmlib.core.experiment import FLICKR8K, Experiment
from mmlib.papers.links import claims, data, run, show

EXPERIMENT = Experiment(
    number="04",
    paper=run.PAPER,
    version=1,
    datasets=run.datasets,
    load_study=data.load_study,
    load_arrays=run.load_arrays,
    budget=run.budget,
    systems=run.systems,
    stages=run.stages,
    claims=claims.CLAIMS,
    tables=show.tables,
    figures=show.figures,
    inputs={"flickr8k": FLICKR8K, "paper": ("links/**/*", "word2vec/*")},
    bounds={r"AUC|p@\d+|dev_AUC": (0, 100), "ms of .*": (0, None)},
    may_skip=r"AUC|p@\d+",
)
