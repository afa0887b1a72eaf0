"""What notebook 00 trains, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PAPER = "start"
CAPTIONS = "Captions"  # not a system, but a row of the record: properties of the test captions
SYSTEMS: dict[str, Mapping[str, Any]] = {
    "Search": {"system": "Search", "trained": True},
    "Untrained": {"system": "Untrained", "trained": False},
}


@dataclass(frozen=True)
class Settings:
    """How a model is trained; words: of a caption, at most; patience: epochs, of the rate."""

    epochs: int = 5
    batch: int = 64
    learning_rate: float = 0.003
    patience: int = 1
    words: int = 40
    width: int = 64


def datasets(tier: str) -> tuple[str, ...]:
    """The one data set, whatever the tier."""
    return ("world",)


def budget(tier: str, dataset: str) -> Settings:
    """The settings of all systems."""
    return Settings()


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each row of the record."""
    return {**SYSTEMS, CAPTIONS: {"system": CAPTIONS}}
