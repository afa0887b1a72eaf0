"""Paper 01's experiment, from data to verdicts."""

from mmlib.core.experiment import Experiment
from mmlib.core.paths import table_beside
from mmlib.papers.coherence import claims, data, run, show

EXPERIMENT = Experiment(
    paper=run.PAPER,
    datasets=lambda tier: data.COLLECTIONS.get(tier, ()),
    load_study=data.load_study,
    load_arrays=run.load_arrays,
    budget=run.budget,
    systems=run.systems,
    stages=run.stages,
    claims=claims.ALL_CLAIMS,
    tables=show.tables,
    figures=show.figures,
    **table_beside(__file__),
)
