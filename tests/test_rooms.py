"""Names say what they name."""

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
MOST_CONTENTLESS = 0.012  # of all bindings


def test_names_say_what_they_name():
    names = [n.id for _, n in NODES if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    names += [n.arg for _, n in NODES if isinstance(n, ast.arg) and n.arg not in ("self", "cls")]
    contentless = [name for name in names if CONTENTLESS.issuperset(name.strip("_").split("_"))]
    assert 0 < len(contentless) <= MOST_CONTENTLESS * len(names), sorted(set(contentless))
