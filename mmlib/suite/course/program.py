"""Which statements of a notebook an exercise needs: grading runs these alone."""

import ast
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mmlib.suite.parameters import plain_python, reads

DEFINITIONS = (
    *(ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
TAKERS = {"pop", "popitem", "popleft", "setdefault"}  # methods that change what they read


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell: its source, the names it reads and binds.

    changes: names whose values it may change in place. defines: it binds its names as a function, a
    class or a module. replaces: it binds them whatever they were. seeds: it sets a seed of random
    numbers.
    """

    source: str
    cell: int
    reads: frozenset[str]
    binds: frozenset[str]
    changes: frozenset[str]
    defines: bool
    replaces: bool
    seeds: bool


def statements(source: str, cell: int = 0) -> list[Statement]:
    """The statements of a cell. Raises SyntaxError."""
    plain = plain_python(source)
    return [_statement(node, plain, cell) for node in ast.parse(plain).body]


def _statement(node: ast.stmt, source: str, cell: int) -> Statement:
    changes, calls = frozenset(_changed(node)), isinstance(node, ast.Expr)
    defines = isinstance(node, DEFINITIONS)
    table = symtable.symtable(ast.unparse(node), "<cell>", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    return Statement(
        source=_segment(source, node),
        cell=cell,
        reads=frozenset(reads(node) - _loops_over(node)),
        binds=frozenset(bound),
        changes=changes,
        defines=defines,
        replaces=defines or (isinstance(node, ast.Assign) and not changes),
        seeds=calls and "seed" in ast.unparse(node).partition("(")[0],
    )


def needed(program: Sequence[Statement], names: Iterable[str]) -> list[Statement]:
    """The statements that give `names` their values at the program's end, in order.

    A change is seen where it is an assignment to a part, or a call of a method on its own line; not
    where a function does it to its arguments, unless its name ends as those of PyTorch do, with _.
    Seeds of random numbers are always set.
    """
    data = {name for statement in program if not statement.defines for name in statement.binds}
    bodies: dict[str, set[str]] = {}  # what a function or class reads once it is used
    for statement in program:
        if statement.defines:
            for name in statement.binds:
                bodies.setdefault(name, set()).update(statement.reads)
    wanted, kept = _with_bodies(names, bodies), []
    for statement in reversed(program):
        if not (statement.binds & wanted or statement.changes & wanted & data or statement.seeds):
            continue
        kept.append(statement)
        if statement.replaces:
            wanted -= statement.binds
        wanted |= _with_bodies(statement.reads, bodies)
    return kept[::-1]


def inputs(program: Sequence[Statement]) -> set[str]:
    """Names that a run of statements takes from before it."""
    names: set[str] = set()
    for statement in reversed(program):
        if statement.replaces:
            names -= statement.binds
        names |= statement.reads
    return names


def _with_bodies(names: Iterable[str], bodies: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += bodies.get(name, ())
    return found


def _segment(source: str, node: ast.stmt) -> str:
    """A statement's own text, decorators and comments within it included."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    lines = source.splitlines()[first - 1 : node.end_lineno]
    return "\n".join(lines) if node.col_offset == 0 else ast.unparse(node)  # x = 1; y = 2


def _loops_over(node: ast.stmt) -> set[str]:
    """The variables of a loop, which it sets before it reads them."""
    if not isinstance(node, ast.For):
        return set()
    before = {one.id for one in ast.walk(node.iter) if isinstance(one, ast.Name)}
    return {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)} - before


def _changed(node: ast.stmt) -> Iterator[str]:
    """Names whose values a statement may change in place."""
    for inner in ast.walk(node) if not isinstance(node, DEFINITIONS) else ():
        if isinstance(inner, ast.AugAssign):
            yield from _root(inner.target)
        elif isinstance(inner, ast.Subscript | ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield from _root(inner)
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            yield from _root(inner.value.func)
            if ast.unparse(inner.value.func).endswith(("_", "shuffle", "setattr")):
                for argument in inner.value.args:
                    yield from _root(argument)
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            if inner.func.attr in TAKERS:
                yield from _root(inner.func)


def _root(node: ast.expr) -> Iterator[str]:
    """The name at the start of `name.part[0].other`, if any."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
