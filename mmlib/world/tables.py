"""Tables of the picture world, in YAML beside the modules that use them."""

from pathlib import Path
from typing import Any

import yaml


def table_beside(module: str) -> dict[str, Any]:
    """What the YAML file of a module's name holds; `module` is the module's `__file__`."""
    return yaml.safe_load(Path(module).with_suffix(".yaml").read_text(encoding="utf-8"))
