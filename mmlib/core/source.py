"""Which code made a result: hashes of the modules that a module really imports."""

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

from mmlib.core.paths import PACKAGE


@lru_cache
def imported_modules(module: str) -> frozenset[str]:
    """`module` and every module of mmlib that it imports, directly or through others.

    Imports inside functions count too. Raises ValueError for a name that is no module of mmlib.
    """
    imported, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name in imported:
            continue
        if (path := _file(name)) is None:
            raise ValueError(f"{name} is no module of mmlib")
        imported.add(name)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                waiting += [a.name for a in node.names if a.name.split(".")[0] == "mmlib"]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mmlib":
                modules = [f"{node.module}.{a.name}" for a in node.names]
                waiting += [str(node.module), *(name for name in modules if _file(name))]
    return frozenset(imported)


@lru_cache
def source_hash(*modules: str) -> str:
    """16 hexadecimal digits of the code of these modules and of all that they import.

    Comments, docstrings and blank lines do not count, and neither does code that is not imported:
    a changed report, or a better explained method, leaves every result valid. `NAME.yaml` beside
    `NAME.py` counts.
    """
    digest = hashlib.sha256()
    for name in sorted(set().union(*map(imported_modules, modules))):
        file = _file(name)
        assert file is not None
        tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            owner = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, owner) and ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
        digest.update(f"\n{name}\n{ast.dump(tree)}".encode())
        if (words := file.with_suffix(".yaml")).is_file():
            digest.update(words.read_bytes())
    return digest.hexdigest()[:16]


def _file(module: str) -> Path | None:
    """The source file of a module of mmlib; None where the name is no module."""
    package, *names = module.split(".")
    path = PACKAGE.joinpath(*names)
    files = (path / "__init__.py", path.with_suffix(".py")) if package == "mmlib" else ()
    return next((file for file in files if file.is_file()), None)
