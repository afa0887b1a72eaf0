"""The papers that have evidence, by the number of their notebook."""

from importlib import import_module
from typing import Any

from mmlib.core.errors import DataError
from mmlib.core.experiment import Experiment

# 00 has claims of our own, but no paper.
PAPERS = {"00": "start", "01": "coherence", "02": "entailment", "03": "cora", "04": "links"}
MODULES = {"02": "run.jobs", "03": "run.record"}  # of the others: experiment


def experiment(number: str) -> Experiment[Any, Any]:
    """The experiment of a notebook, imported when it is asked for. Raises DataError for another."""
    if number not in PAPERS:
        raise DataError(f"no paper {number!r} has evidence; there is {', '.join(PAPERS)}")
    module = MODULES.get(number, "experiment")
    return import_module(f"mmlib.papers.{PAPERS[number]}.{module}").EXPERIMENT
