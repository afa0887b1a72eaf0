"""What `mmlib judge 00` writes beside the claims."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from mmlib.core.evidence import Evidence


def everything(evidence: Evidence) -> tuple[dict[str, pd.DataFrame], dict[str, Figure]]:
    """The table of systems (means and standard deviations over seeds), and the learning curves."""
    rows = {
        (system, metric): evidence.means("world", system, metric).agg(["mean", "std"])
        for system in ("Search", "Untrained")
        for metric in evidence.metrics("world", system)
    }
    figure, axis = plt.subplots()
    for curve in evidence.curves("world", "Search", "dev_R@10"):
        axis.plot(range(1, len(curve) + 1), curve)
    axis.set(xlabel="epoch", ylabel="dev R@10 in %, a line a seed")
    return {"systems": pd.DataFrame(rows).T}, {"learning": figure}
