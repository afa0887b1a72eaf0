"""Names say what they name, and no function takes too many arguments."""

import ast

from mmlib.core.paths import PACKAGE

# Words that say nothing about what they name: a name made of these alone is contentless.
CONTENTLESS = frozenset(
    "own found one known told seen kept more other both each said rest these those given brought "
    "made way what where which there here whole part parts place thing things".split()
)
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
MOST_ARGUMENTS = 8
MOST_CONTENTLESS = 0.02  # of all bindings


def bindings(tree: ast.AST) -> list[str]:
    """All names that a module gives to values: variables and parameters."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            parameters = node.args.args + node.args.kwonlyargs
            names += [p.arg for p in parameters if p.arg not in ("self", "cls")]
    return names


def is_contentless(name: str) -> bool:
    return CONTENTLESS.issuperset(name.strip("_").split("_"))


def is_command(node: ast.FunctionDef) -> bool:
    """Whether its arguments are the options of a command, which nobody gives by place."""
    return any("command" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_no_function_has_too_many_arguments():
    counts = {
        f"{path.relative_to(PACKAGE)}:{node.name}": len(node.args.args + node.args.kwonlyargs)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not is_command(node)
    }
    assert not {where: n for where, n in counts.items() if n > MOST_ARGUMENTS}


def test_names_say_what_they_name():
    names = [name for tree in TREES.values() for name in bindings(tree)]
    contentless = [name for name in names if is_contentless(name)]
    assert len(contentless) <= MOST_CONTENTLESS * len(names), sorted(set(contentless))


def test_contentless_names_by_hand():
    tree = ast.parse("def f(self, own, colour):\n    for part_one, row in x:\n        kept_row = 1")
    names = bindings(tree)
    assert sorted(names) == ["colour", "kept_row", "own", "part_one", "row"]
    assert [name for name in names if is_contentless(name)] == ["own", "part_one"]
