"""Names say what they name, and no function takes too many arguments."""

import ast

from mmlib.core.paths import PACKAGE

# Words that say nothing about what they name: a name made of these alone is contentless.
CONTENTLESS = frozenset(
    "own found one known told seen kept more other both each said rest these those given brought "
    "made way what where which there here whole part parts place thing things".split()
)
NODES = [
    (path.relative_to(PACKAGE), node)
    for path in PACKAGE.rglob("*.py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
]
MOST_ARGUMENTS = 8
MOST_CONTENTLESS = 0.012  # of all bindings


def arguments(node):
    return [p.arg for p in node.args.args + node.args.kwonlyargs if p.arg not in ("self", "cls")]


def test_no_function_has_too_many_arguments():
    """Options that are given by name alone, as those of a command, do not count."""
    counts = {
        f"{path}:{node.name}": len(node.args.args)
        for path, node in NODES
        if isinstance(node, ast.FunctionDef)
        and not any("command" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert not {where: n for where, n in counts.items() if n > MOST_ARGUMENTS}


def test_names_say_what_they_name():
    names = [n.id for _, n in NODES if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for _, node in NODES:
        names += arguments(node) if isinstance(node, ast.FunctionDef | ast.Lambda) else []
    contentless = [name for name in names if CONTENTLESS.issuperset(name.strip("_").split("_"))]
    assert 0 < len(contentless) <= MOST_CONTENTLESS * len(names), sorted(set(contentless))
