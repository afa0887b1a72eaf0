"""Scripts of the repository, which are in no package, as modules; and pages, executed."""

import importlib.util
import itertools
import json
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType

import mistune
import yaml
from bs4 import BeautifulSoup

from mmlib.core import engine
from mmlib.suite import cli

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
REFUSED = yaml.safe_load((ROOT / "tests/suite/refused.yaml").read_text(encoding="utf-8"))


def load(path: str) -> ModuleType:
    """The script at a path such as "ci/ledger.py", run anew."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str((ROOT / path).parent)  # where a script looks for those beside it
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def record_in_two_goes(monkeypatch, module: ModuleType, number: str, folder: Path, *words) -> list:
    """Record a paper's own data, stopped after a training, and judge it; then the rest of it.

    Two systems are named. Returns what `mmlib judge` wrote at last as verdicts.
    """
    train, trained, stops = module.train_and_score, [], [1]

    @wraps(train)  # a kept job is of a function by its name
    def counted(job, *more):
        if [len(trained)] == stops:
            raise KeyboardInterrupt
        trained.append(job.system["system"])
        return train(job, *more)

    monkeypatch.setattr(module, "train_and_score", counted)
    monkeypatch.setattr(engine, "job_folder", lambda device="cpu": folder / "jobs")
    tier = ["--tier", "paper", "--evidence", str(folder / "mine")]
    record = ["record", number, *tier, "--seeds", "1", "--workers", "1", *words]
    judge = ["judge", number, *tier, "--out", str(folder / "judged")]
    for status, complete in ((130, 1), (0, 2)):
        assert cli.main(record) == status
        assert cli.main(judge) == 0
        assert (len(trained), len(set(trained))) == (complete, complete)
        stops.clear()
    return json.loads((folder / "judged" / "verdicts.json").read_text())["claims"]


def until(count: int, function: Callable) -> Callable:
    """The function, interrupted once as by Ctrl-C: at the call after `count` of them."""
    calls = itertools.count()

    @wraps(function)  # a kept job is of a function by its name
    def stopped(*arguments, **how):
        if next(calls) == count:
            raise KeyboardInterrupt
        return function(*arguments, **how)

    return stopped


def run_page(name: str, capsys) -> tuple[list[str], str]:
    """Run the Python blocks and commands of a page of docs in order; what it says they print holds.

    Returns the commands' names, and what they print.
    """
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    soup = BeautifulSoup(mistune.create_markdown(escape=False)(page), "html.parser")
    commands, printed = [], [""]
    for block in soup.find_all("code", class_=True):
        kind, text = block["class"][0].removeprefix("language-"), block.get_text()
        if kind == "text":
            assert printed[-1] == text
        elif kind == "python":
            exec(text, {})
        else:
            for _, *words in (shlex.split(line, comments=True) for line in text.splitlines()):
                capsys.readouterr()
                assert cli.main(words) == 0, words
                printed.append(capsys.readouterr().out)
                commands.append(words[0])
    return commands, "".join(printed)
