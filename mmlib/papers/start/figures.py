"""The figure of notebook 00's record."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from mmlib.core.evidence import Evidence


def figures(evidence: Evidence) -> dict[str, Figure]:
    """The learning curves."""
    figure, axis = plt.subplots()
    for curve in evidence.curves("world", "Search", "dev_R@10"):
        axis.plot(range(1, len(curve) + 1), curve)
    axis.set(xlabel="epoch", ylabel="dev R@10 in %, a line a seed")
    return {"learning": figure}
