"""Parameters of notebooks: which there are, whether they are read, and what they may be.

`mmlib run` checks them before a kernel starts; a notebook checks the values of its own in its first
cell, so that papermill alone is as safe.
"""

import ast
import json
import math
import re
import symtable
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mmlib.core import paths
from mmlib.papers.coherence.data import pairs as coherence
from mmlib.papers.links import run as links

Allowed: TypeAlias = "Sequence[Any] | re.Pattern[str]"
EVIDENCE = ("recorded", "compute")
SEEDS = range(2**31)  # evidence keeps them in 32 bits


class ParameterError(ValueError):
    """A parameter that a notebook does not know, never reads, or cannot be given."""


# Parameters ---------------------------------------------------------------------------------


def default_parameters(cells: Sequence[Any]) -> dict[str, Any]:
    """Names and defaults in the cell tagged `parameters`, which holds only `name = literal` lines.

    A value computed in that cell would keep its old result when papermill injects another, so
    such a line raises ParameterError, as does a missing cell, and one that is not Python.
    """
    tagged = [c for c in cells if "parameters" in c.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise ParameterError(f"{len(tagged)} cells are tagged `parameters`; there must be one")
    try:
        lines = ast.parse(tagged[0]["source"]).body
    except SyntaxError as error:
        raise ParameterError(f"the parameters cell is not Python ({error})") from None
    defaults = {}
    for line in lines:
        try:
            if not (isinstance(line, ast.Assign) and len(line.targets) == 1):
                raise ValueError
            defaults[line.targets[0].id] = ast.literal_eval(line.value)  # type: ignore[attr-defined]
        except (ValueError, AttributeError):
            shown = ast.unparse(line).splitlines()[0]
            raise ParameterError(
                f"the parameters cell holds `{shown}`; write only `name = literal` there "
                "and derive the rest in a later cell"
            ) from None
    return defaults


def unread_parameters(cells: Sequence[Any], names: Iterable[str]) -> set[str]:
    """Those of `names` that no cell after the parameters cell reads before it assigns them anew."""
    start = next(i for i, c in enumerate(cells) if "parameters" in c["metadata"].get("tags", []))
    pending, lost = set(names), set()
    for cell in cells[start + 1 :]:
        if cell["cell_type"] != "code":
            continue
        try:
            statements = ast.parse(plain_python(cell["source"])).body
            for statement in statements:
                pending -= reads(statement)
                if ast.unparse(statement).startswith("parameters.use("):
                    pending.discard("features")  # read there, of the globals
                overwritten = pending & _assigns(statement)
                lost |= overwritten
                pending -= overwritten
        except SyntaxError:
            return lost  # the kernel will say what is wrong with that cell
    return pending | lost


def plain_python(source: str) -> str:
    """A cell's source with IPython's magics turned into plain calls of get_ipython()."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)


def reads(statement: ast.stmt) -> set[str]:
    """Global names that a statement reads, also inside the functions and classes it defines."""
    names = set()
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        names.add(statement.target.id)
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("get_ipython()"):
            names |= set(re.findall(r"\w+", ast.unparse(call)))  # a magic's code is text
    tables = [symtable.symtable(ast.unparse(statement), "<cell>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        module = table.get_type() == "module"
        names |= {
            s.get_name()
            for s in table.get_symbols()
            if s.is_referenced() and (module or s.is_global())
        }
    return names


def _assigns(statement: ast.stmt) -> set[str]:
    """Names that a plain assignment binds."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def check_parameters(notebook: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """All parameters that `notebook` will run with: its defaults overlaid by `parameters`.

    Raises ParameterError for a name that the notebook does not know or never reads, for a value
    that is not plain data, and for one that `check_values` refuses or that is of another type than
    its default.
    """
    import nbformat  # late: it takes seconds, and a notebook does without

    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except Exception as error:  # nbformat raises many kinds
        reason = str(error).partition("\n")[0][:80]
        raise ParameterError(f"{notebook}: no notebook ({reason}); get it again") from None
    try:
        defaults = default_parameters(cells)
    except ParameterError as error:
        raise ParameterError(f"{notebook.name}: {error}") from None
    unknown = sorted(set(parameters) - set(defaults))
    if unknown:
        raise ParameterError(
            f"{notebook.name} knows no parameter {', '.join(unknown)}; it has {', '.join(defaults)}"
        )
    unread = sorted(unread_parameters(cells, parameters))
    if unread:
        raise ParameterError(
            f"{notebook.name} never reads the parameter {', '.join(unread)}, so setting it "
            "would change nothing"
        )
    try:
        given = json.loads(json.dumps(parameters))
    except TypeError as error:
        raise ParameterError(f"{notebook.name}: a parameter is not plain data: {error}") from None
    try:
        check_values(notebook.stem[:2], defaults | given)
    except ParameterError as error:
        raise ParameterError(f"{notebook.name}: {error}") from None
    for name, value in given.items():
        if not _is_like(defaults[name], value):
            kind = type(defaults[name]).__name__
            raise ParameterError(
                f"{notebook.name}: {name} is {_shown(value)}; it must be of type {kind}, as its "
                f"default {_shown(defaults[name])} is"
            )
    return defaults | given


def check_values(number: str, values: Mapping[str, Any]) -> None:
    """Refuse what the parameters of a notebook cannot be; other names may be anything.

    number: of the notebook, such as "04". values: by name; in the notebook itself `globals()`.
    Raises ParameterError, which names the parameter and what it may be.
    """
    for name, allowed in _allowed(number, values):
        if name in values and not _is_allowed(values[name], allowed):
            raise ParameterError(f"{name} is {_shown(values[name])}; it must be {_words(allowed)}")


def use(number: str, values: Mapping[str, Any]) -> None:
    """Check the parameters of a notebook and let it use their feature set and evidence.

    number: of the notebook, such as "04"; values: by name, in the notebook itself `globals()`.
    `evidence` is "recorded", "compute", or a folder with recordings, which are then the recorded
    ones; a relative one is seen from the working directory. `features` is as of `mmlib run
    --features`; empty: the default. Raises ParameterError, which names the parameter and what it
    may be.
    """
    evidence = values.get("evidence", EVIDENCE[0])
    folder = "" if evidence in EVIDENCE else evidence_folder(evidence)
    check_values(number, {**values, "evidence": EVIDENCE[0] if folder else evidence})
    paths.choose(values.get("features", ""), folder)


def evidence_folder(name: Any) -> Path:
    """The folder of evidence of that name. Raises ParameterError where it has no recording."""
    if not isinstance(name, str) or not any(Path(name).expanduser().glob("*/*/*.parquet")):
        raise ParameterError(
            f"evidence is {_shown(name)}; it must be {_words(EVIDENCE)}, or a folder with "
            "recordings, TIER/PAPER/*.parquet"
        )
    return Path(name).expanduser()


def _allowed(number: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Allowed]]:
    """Name and what it may be, which may depend on the values of those before it."""
    yield "tier", ("world", "flickr8k", "paper")
    yield "evidence", EVIDENCE
    yield "device", re.compile(r"auto|(cpu|cuda|mps)(:\d+)?")  # core.device knows which are there
    yield "seeds", SEEDS[1:]
    yield "seed", SEEDS
    yield "epochs", SEEDS
    if number == "01":
        yield "signal", coherence.SIGNALS
        yield "telling", coherence.TELLINGS
    if number == "04":
        tier, live = values.get("tier", "world"), values.get("live")
        if tier != "paper":  # which has what lies in the data folder
            known = [kind for kind in links.datasets(tier) if kind != links.UNLABELLED]
            yield "live", ["auto", *known]
        dataset = links.chosen_dataset(tier, str(live))
        yield "system", [system.system for system in links.trained_systems(tier, dataset)]


def _is_allowed(value: Any, allowed: Allowed) -> bool:
    if isinstance(allowed, re.Pattern):
        return isinstance(value, str) and bool(allowed.fullmatch(value))
    whole = isinstance(value, int) or not isinstance(allowed, range)  # 5.0 counts nothing
    return whole and not isinstance(value, bool) and value in allowed


def _is_like(default: Any, value: Any) -> bool:
    """Whether a value, as JSON has it, is of its default's type; None says nothing of a type."""
    if isinstance(default, float):
        return type(value) in (int, float) and math.isfinite(value)
    kind = list if isinstance(default, tuple) else type(default)
    return default is None or type(value) is kind


def _words(allowed: Allowed) -> str:
    if isinstance(allowed, re.Pattern):
        return "auto, cpu, cuda, or cuda:1 and so on"
    if isinstance(allowed, range):
        return f"a whole number, {allowed.start} or more"
    *most, last = map(str, allowed)
    return f"{', '.join(most)} or {last}" if most else last


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}…"
