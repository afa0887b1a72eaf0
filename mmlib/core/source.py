"""Which code made a result: hashes of the modules that a module really imports."""

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

import torch

from mmlib.core.paths import PACKAGE


@lru_cache
def imported_modules(module: str) -> frozenset[str]:
    """`module` and every module of mmlib that it imports, directly or through others.

    Imports inside functions count too. Raises ValueError for a name that is no module of mmlib.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = _file(name)
        if path is None:
            raise ValueError(f"{name} is no module of mmlib")
        found.add(name)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                waiting += [a.name for a in node.names if a.name.split(".")[0] == "mmlib"]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mmlib":
                own = [f"{node.module}.{a.name}" for a in node.names]
                waiting += [str(node.module), *(name for name in own if _file(name))]
    return frozenset(found)


@lru_cache
def source_hash(*modules: str) -> str:
    """16 hexadecimal digits of the source of these modules and of all that they import.

    A change to code that they do not import leaves the hash as it is. Counted too: `NAME.yaml`
    beside `NAME.py`, and PyTorch's version (without its build: CPU and CUDA builds of one version
    share results).
    """
    digest = hashlib.sha256(torch.__version__.split("+")[0].encode())
    for name in sorted(set().union(*map(imported_modules, modules))):
        digest.update(name.encode())
        file = _file(name)
        assert file is not None
        digest.update(file.read_bytes())
        if (words := file.with_suffix(".yaml")).is_file():
            digest.update(words.read_bytes())
    return digest.hexdigest()[:16]


def _file(module: str) -> Path | None:
    """The source file of a module of mmlib; None where the name is no module."""
    package, *parts = module.split(".")
    if package != "mmlib":
        return None
    path = PACKAGE.joinpath(*parts)
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None
