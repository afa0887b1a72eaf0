"""The table of notebook 00's record."""

import pandas as pd

from mmlib.core.evidence import Evidence
from mmlib.papers.start.run import SYSTEMS


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """A row for each system and metric: mean and standard deviation over seeds."""
    rows = {
        (system, metric): evidence.means("world", system, metric).agg(["mean", "std"])
        for system in SYSTEMS
        for metric in evidence.metrics("world", system)
    }
    return {"systems": pd.DataFrame(rows).T}
