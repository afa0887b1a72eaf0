"""The experiment of notebook 00, as the suite knows it."""

from mmlib.core.experiment import Experiment
from mmlib.papers.start import claims, data, run, show

EXPERIMENT = Experiment(
    number="00",
    paper=run.PAPER,
    version=1,
    datasets=lambda tier: (tier,),
    load_study=data.load_study,
    load_arrays=data.load_arrays,
    budget=run.budget,
    systems=run.systems,
    stages=run.stages,
    claims=claims.CLAIMS,
    tables=show.tables,
    figures=show.figures,
    bounds={r"(dev_)?R@\d+.*": (0, 100)},
)
