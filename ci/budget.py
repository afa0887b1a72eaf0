"""The budgets of lines in pyproject.toml: check that no folder is over its own, or lower them.

python ci/budget.py check
python ci/budget.py lower    to today's lines, where these are fewer; no budget ever rises
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
OTHERS = {
    "tests": ["tests/**/*.py"],
    "ci": ["ci/**/*.py"],
    "yaml_and_json": ["mmlib/**/*.yaml", "mmlib/**/*.json"],
}


def lines_of(name: str) -> int:
    """The lines of a budget's files: of a folder of mmlib its Python, else those of `OTHERS`."""
    patterns = OTHERS.get(name, [f"mmlib/{name}/**/*.py"])
    paths = (path for pattern in patterns for path in ROOT.glob(pattern))
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def over(budgets: dict[str, int]) -> list[str]:
    """One sentence for each budget that is not kept."""
    folders = {path.parent.name for path in ROOT.glob("mmlib/*/__init__.py")}
    lines = {name: lines_of(name) for name in budgets}
    too_long = [
        f"{name}: {lines[name]} lines of {most}; take as many from it as you add"
        for name, most in budgets.items()
        if lines[name] > most
    ]
    return too_long + [f"{name}: has no budget" for name in sorted(folders - budgets.keys())]


def main(command: str) -> int:
    text = PYPROJECT.read_text(encoding="utf-8")
    budgets: dict[str, int] = tomllib.loads(text)["tool"]["mmlib"]["budgets"]
    if command == "lower":
        for name, most in budgets.items():
            fewer = min(most, lines_of(name))
            text = re.sub(rf"(?m)^{name} = {most}$", f"{name} = {fewer}", text)
        PYPROJECT.write_text(text, encoding="utf-8")
        return 0
    problems = over(budgets)
    print("\n".join(problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
