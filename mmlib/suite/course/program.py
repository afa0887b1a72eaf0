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
    data = {name for one in program if not one.defines for name in one.binds}
    bodies: dict[str, set[str]] = {}  # what a function or class reads once it is used
    for one in program:
        if one.defines:
            for name in one.binds:
                bodies.setdefault(name, set()).update(one.reads)
    wanted, kept = _with_bodies(names, bodies), []
    for one in reversed(program):
        if not (one.binds & wanted or one.changes & wanted & data or one.seeds):
            continue
        kept.append(one)
        if one.replaces:
            wanted -= one.binds
        wanted |= _with_bodies(one.reads, bodies)
    return kept[::-1]


def inputs(program: Sequence[Statement]) -> set[str]:
    """Names that a run of statements takes from before it."""
    names: set[str] = set()
    for one in reversed(program):
        if one.replaces:
            names -= one.binds
        names |= one.reads
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
    for one in ast.walk(node) if not isinstance(node, DEFINITIONS) else ():
        if isinstance(one, ast.AugAssign):
            yield from _root(one.target)
        elif isinstance(one, ast.Subscript | ast.Attribute) and isinstance(one.ctx, ast.Store):
            yield from _root(one)
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            yield from _root(one.value.func)
            if ast.unparse(one.value.func).endswith(("_", "shuffle", "setattr")):
                for argument in one.value.args:
                    yield from _root(argument)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            if one.func.attr in TAKERS:
                yield from _root(one.func)


def _root(node: ast.expr) -> Iterator[str]:
    """The name at the start of `name.part[0].other`, if any."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
