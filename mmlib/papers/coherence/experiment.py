"""Paper 01's experiment, from data to verdicts."""

from mmlib.core.experiment import Experiment
from mmlib.core.paths import table_beside
from mmlib.papers.coherence import show
from mmlib.papers.coherence.claims import ALL_CLAIMS
from mmlib.papers.coherence.data import load_study
from mmlib.papers.coherence.data.pairs import COLLECTIONS
from mmlib.papers.coherence.run import PAPER, budget, load_arrays, stages, systems

EXPERIMENT = Experiment(
    paper=PAPER,
    datasets=lambda tier: COLLECTIONS.get(tier, ()),
    load_study=load_study,
    load_arrays=load_arrays,
    budget=budget,
    systems=systems,
    stages=stages,
    claims=ALL_CLAIMS,
    tables=show.tables,
    figures=show.figures,
    **table_beside(__file__),
)
