"""Parameters of notebooks: which there are, whether they are read, and what they may be.

`mmlib run` checks them before a kernel starts; a notebook checks the values of its own in its first
cell, so that papermill alone is as safe.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmlib.core import paths
from mmlib.core.errors import DataError

EVIDENCE = ("recorded", "compute")
DEVICE = re.compile(r"auto|(cpu|cuda|mps)(:\d+)?")  # core.device knows which are there
SEEDS = range(2**31)  # evidence keeps them in 32 bits


def read_notebook(path: Path) -> Any:
    """A notebook's file. Raises DataError for one that cannot be read."""
    import nbformat  # late: it takes seconds, and a notebook does without

    try:
        nbformat.validate(notebook := nbformat.read(path, as_version=4))
    except Exception as error:  # nbformat raises many kinds
        reason = str(error).partition("\n")[0][:80]
        raise DataError(f"{path}: no notebook ({reason}); get it again") from None
    return notebook


def default_parameters(cells: Sequence[Any]) -> dict[str, Any]:
    """Names and defaults in the cell tagged `parameters`, which holds only `name = literal` lines.

    A value computed in that cell would keep its old result when papermill injects another, so
    such a line raises DataError, as does a missing cell, and one that is not Python.
    """
    tagged = [c for c in cells if "parameters" in c.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise DataError(f"{len(tagged)} cells are tagged `parameters`; there must be one")
    try:
        lines = ast.parse(tagged[0]["source"]).body
    except SyntaxError as error:
        raise DataError(f"the parameters cell is not Python ({error})") from None
    defaults = {}
    for line in lines:
        try:
            [target] = line.targets  # type: ignore[attr-defined]
            defaults[target.id] = ast.literal_eval(line.value)  # type: ignore[attr-defined]
        except (ValueError, AttributeError):
            shown = ast.unparse(line).splitlines()[0]
            raise DataError(
                f"the parameters cell holds `{shown}`; write only `name = literal` there "
                "and derive the rest in a later cell"
            ) from None
    return defaults


def unread_parameters(cells: Sequence[Any], names: Iterable[str]) -> set[str]:
    """Those of `names` that no cell after the parameters cell names to read them."""
    from IPython.core.inputtransformer2 import TransformerManager

    start = next(i for i, c in enumerate(cells) if "parameters" in c["metadata"].get("tags", []))
    read = set[str]()
    for source in (c["source"] for c in cells[start + 1 :] if c["cell_type"] == "code"):
        try:
            # Magics become plain calls of get_ipython(), and their code text.
            tree = ast.parse(TransformerManager().transform_cell(source))
        except SyntaxError:
            return set()  # the kernel will say what is wrong with that cell
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        loaded = {node.id for node in nodes if isinstance(node.ctx, ast.Load)}
        read |= loaded | {*(re.findall(r"\w+", source) if "get_ipython" in loaded else ())}
        if "parameters.use(" in source:
            read.add("features")  # there, of the globals
    return set(names) - read


def check_parameters(notebook: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """All parameters that `notebook` will run with: its defaults overlaid by `parameters`.

    Raises DataError for a name that the notebook does not know or never reads, for a value
    that is not plain data, and for one that `check_values` refuses or that is no text as its
    default is.
    """
    cells = read_notebook(notebook).cells
    try:
        defaults = default_parameters(cells)
        if unknown := ", ".join(sorted(set(parameters) - set(defaults))):
            raise DataError(f"knows no parameter {unknown}; it has {', '.join(defaults)}")
        if unread := ", ".join(sorted(unread_parameters(cells, parameters))):
            raise DataError(
                f"never reads the parameter {unread}, so setting it would change nothing"
            )
        values = json.loads(json.dumps(parameters))  # in JSON a tuple is a list
        check_values(notebook.stem[:2], defaults | values)
        for name, value in values.items():
            if isinstance(defaults[name], str) and not isinstance(value, str):
                raise DataError(f"{name} is {value!r:.80}; it must be text")
    except TypeError as error:
        raise DataError(f"{notebook.name}: a parameter is not plain data: {error}") from None
    except DataError as error:
        raise DataError(f"{notebook.name}: {error}") from None
    return defaults | values


def check_values(number: str, values: Mapping[str, Any]) -> None:
    """Refuse what the parameters of a notebook cannot be; other names may be anything.

    number: of the notebook, such as "04". values: by name; in the notebook itself `globals()`.
    Raises DataError, which names the parameter and what it may be.
    """
    for name, allowed in _allowed(number, values):
        value = values.get(name)
        if allowed is DEVICE:
            fits = isinstance(value, str) and DEVICE.fullmatch(value)
            words = "auto, cpu, cuda, or cuda:1 and so on"
        elif isinstance(allowed, range):  # 5.0 counts nothing
            fits = type(value) is int and value in allowed
            words = f"a whole number, {allowed.start} or more and below {allowed.stop}"
        else:
            fits = not isinstance(value, bool) and value in allowed
            *most, last = map(str, allowed)
            words = f"{', '.join(most)} or {last}"
        if name in values and not fits:
            raise DataError(f"{name} is {value!r:.80}; it must be {words}")


def _allowed(number: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and what it may be, which may depend on the values of those before it."""
    yield "tier", ("world", "flickr8k", "paper")
    yield "evidence", EVIDENCE
    yield "device", DEVICE
    yield "seeds", SEEDS[1:]
    yield "seed", SEEDS
    yield "epochs", SEEDS
    if number == "01":
        from mmlib.papers.coherence.data import pairs as coherence  # late: PyTorch takes seconds

        yield "signal", coherence.SIGNALS
        yield "telling", coherence.TELLINGS
    if number == "04":
        from mmlib.papers.links import run as links

        tier, live = values.get("tier", "world"), values.get("live")
        if tier != "paper":  # which has what lies in the data folder
            named = [kind for kind in links.datasets(tier) if kind != links.UNLABELLED]
            yield "live", ["auto", *named]
        dataset = links.chosen_dataset(tier, str(live))
        yield "system", [system.system for system in links.trained_systems(tier, dataset)]


def use(number: str, values: Mapping[str, Any]) -> None:
    """Check the parameters of a notebook and let it use their feature set and evidence.

    number: of the notebook, such as "04"; values: by name, in the notebook itself `globals()`.
    `evidence` is "recorded", "compute", or a folder with recordings, which are then the recorded
    ones; a relative one is seen from the working directory. `features` is as of `mmlib run
    --features`; empty: the default. Raises DataError, which names the parameter and what it
    may be.
    """
    evidence = values.get("evidence", EVIDENCE[0])
    folder = "" if evidence in EVIDENCE else evidence_folder(evidence)
    check_values(number, {**values, "evidence": EVIDENCE[0] if folder else evidence})
    paths.choose(values.get("features", ""), folder)


def evidence_folder(name: Any) -> Path:
    """The folder of evidence of that name. Raises DataError where it has no recording."""
    if not isinstance(name, str) or not any(Path(name).expanduser().glob("*/*/*/*.parquet")):
        raise DataError(
            f"evidence is {name!r:.80}; it must be recorded or compute, or a folder with "
            "recordings, TIER/PAPER/DATASET/*.parquet"
        )
    return Path(name).expanduser()
