"""The experiment of paper 04, as the suite knows it."""

from mmlib.core.experiment import Experiment
from mmlib.core.paths import table_beside
from mmlib.papers.links import claims, data, run, show

EXPERIMENT = Experiment(
    paper=run.PAPER,
    datasets=run.datasets,
    load_study=data.load_study,
    load_arrays=run.load_arrays,
    budget=run.budget,
    systems=run.systems,
    stages=run.stages,
    claims=claims.CLAIMS,
    tables=show.tables,
    figures=show.figures,
    **table_beside(__file__),
)
