"""The papers that have evidence, by the number of their notebook."""

from typing import Any

from mmlib.core.errors import DataError
from mmlib.core.experiment import Experiment

# 00 has claims of our own, but no paper.
PAPERS = {"00": "start", "01": "coherence", "02": "entailment", "03": "cora", "04": "links"}


def experiment(number: str) -> Experiment[Any, Any]:
    """The experiment of a notebook, imported when it is asked for. Raises DataError for another."""
    match number:
        case "00":
            from mmlib.papers.start.experiment import EXPERIMENT as start

            return start
        case "01":
            from mmlib.papers.coherence.experiment import EXPERIMENT as coherence

            return coherence
        case "02":
            from mmlib.papers.entailment.run.experiment import EXPERIMENT as entailment

            return entailment
        case "03":
            from mmlib.papers.cora.run.record import EXPERIMENT as cora

            return cora
        case "04":
            from mmlib.papers.links.experiment import EXPERIMENT as links

            return links
    raise DataError(f"no paper {number!r} has evidence; there is {', '.join(PAPERS)}")
