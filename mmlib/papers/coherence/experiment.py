"""Paper 01's experiment, from data to verdicts."""

from mmlib.core.experiment import FLICKR8K, Experiment
from mmlib.papers.coherence import show
from mmlib.papers.coherence.claims import ALL_CLAIMS
from mmlib.papers.coherence.data import load_study
from mmlib.papers.coherence.data.pairs import COLLECTIONS
from mmlib.papers.coherence.run import PAPER, budget, load_arrays, stages, systems

EXPERIMENT = Experiment(
    number="01",
    paper=PAPER,
    version=1,
    datasets=lambda tier: COLLECTIONS.get(tier, ()),
    load_study=load_study,
    load_arrays=load_arrays,
    budget=budget,
    systems=systems,
    stages=stages,
    claims=ALL_CLAIMS,
    tables=show.tables,
    figures=show.figures,
    inputs={"flickr8k": (*FLICKR8K, "clue/*.csv"), "paper": ("clue/**/*", "cite/**/*")},
    bounds={r"AP\b.*|rate": (0, 1), r"R@\d+.*": (0, 100), r"rank.*|(dev_)?MedR.*": (1, None)},
)
