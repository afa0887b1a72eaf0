"""Write the ledger of claims into README.md, or check that README.md holds it.

python ci/readme.py write       from notebooks/expected/<tier>/<number>_claims.json
python ci/readme.py check       exit status 1 where README.md holds another ledger
python ci/readme.py pictures    draw docs/pictures/
"""

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from mmlib.claims import VERDICTS, effect_text
from mmlib.core.paths import write_atomic
from mmlib.suite.cli import TIERS
from mmlib.suite.outcomes import verdict_counts
from mmlib.suite.report import ReportError, recorded_claims

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- ledger: begin -->", "<!-- ledger: end -->"
TIER_NAMES = {"world": "picture world", "flickr8k": "Flickr8k", "paper": "the paper's data"}
NONE = "–"
Record = dict[str, Any]


def read_records(folder: Path) -> dict[str, dict[str, Record]]:
    """Notebook -> tier -> its recorded claims, of the notebooks of a folder.

    Raises ReportError for a broken record, and for tiers that state a claim in different words.
    """
    stems = sorted(path.stem for path in folder.glob("[0-9][0-9]_*.ipynb"))
    tiers = recorded_claims(folder / "expected", stems)
    found = {stem: {t: own[stem] for t, own in tiers.items() if stem in own} for stem in stems}
    for stem, own in found.items():
        told: dict[str, tuple[str, str]] = {}
        for tier, content in own.items():
            for claim in content["claims"]:
                words = (claim["claim"], claim["paper"])
                if told.setdefault(claim["id"], words) != words:
                    raise ReportError(f"{stem}, tier {tier}: states {claim['id']} in other words")
    return {stem: own for stem, own in found.items() if own}


def _deciding(claim: Record) -> str:
    """Which of several parts the effect is of, and how many of them are supported."""
    if claim["effect"] is None:
        return ""
    verdicts = [part["verdict"] for part in claim["parts"].values()]
    if len(verdicts) > 1:
        good = verdicts.count("supported")
        return f" ({claim['weakest']}; {good} of {len(verdicts)} parts)"
    # One part of several, where only the deciding one was kept.
    return f" ({claim['weakest']})" if claim["why"].startswith("weakest: ") else ""


def ledger(records: Mapping[str, Mapping[str, Record]]) -> str:
    """The Markdown between the markers: a table of counts, then a table of claims a notebook."""
    tiers = [tier for tier in TIERS if any(tier in own for own in records.values())]
    lines = [_row(["notebook", *(TIER_NAMES[tier] for tier in tiers)]), _rule(1 + len(tiers))]
    for notebook, own in records.items():
        counts = [verdict_counts(own[tier]["claims"]) if tier in own else NONE for tier in tiers]
        lines.append(_row([_link(notebook), *counts]))
    blocks = ["\n".join(lines), *(_table(name, own) for name, own in records.items())]
    return "\n\n".join(blocks)


def _link(notebook: str) -> str:
    """A link with the notebook's own title."""
    path = ROOT / "notebooks" / f"{notebook}.ipynb"
    title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].lstrip("# ")
    return f"[{title}](notebooks/{path.name})"


def _table(notebook: str, tiers: Mapping[str, Record]) -> str:
    """One notebook's claims, and where its figures come from."""
    header, sources = ["claim", "the paper"], []
    for tier, content in tiers.items():
        how = content["how"]
        seeds = f"{len(how['seeds'])} seed{'s' * (len(how['seeds']) > 1)}"
        header += [f"{TIER_NAMES[tier]}, {seeds}", "verdict"]
        file = f"notebooks/expected/{tier}/{notebook[:2]}_claims.json"
        sources.append(f"[{tier}]({file}): `{how['command']}`, {how['date']}")
    claims = {tier: {c["id"]: c for c in content["claims"]} for tier, content in tiers.items()}
    lines = [f"### {_link(notebook)}", "", _row(header), _rule(len(header))]
    for key in dict.fromkeys(key for own in claims.values() for key in own):
        known = next(own[key] for own in claims.values() if key in own)
        cells = [f"**{key}** {known['claim']}", known["paper"]]
        for own in claims.values():
            one = own.get(key)
            cells += [effect_text(one) + _deciding(one), one["verdict"]] if one else [NONE, NONE]
        lines.append(_row(cells))
    return "\n".join([*lines, "", f"Recorded: {'; '.join(sources)}."])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def with_ledger(text: str, new: str) -> str:
    """README's text with `new` between the markers; ends the program where they are not there."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"README.md: put one line {BEGIN} and, below it, one line {END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{new}\n{END}{rest.split(END)[1]}"


def draw_pictures(folder: Path, records: Mapping[str, Mapping[str, Record]]) -> None:
    """Scenes of the world with a caption each, and claims as intervals, as small PNG files."""
    from mmlib.core import plots

    plots.use_style()
    _save(folder / "world.png", _scenes())
    _save(folder / "verdicts.png", plots.forest(_one_of_each(records)))


def _scenes() -> Any:
    from mmlib.core import plots
    from mmlib.world.captions import captions
    from mmlib.world.drawing import draw
    from mmlib.world.scenes import sample_scene, split_seeds

    scenes = [sample_scene(seed) for seed in split_seeds("test", 10)]
    told = [captions(scene, n=1)[0].text for scene in scenes]
    return plots.show_pictures([draw(scene, 256) for scene in scenes], told)


def _one_of_each(records: Mapping[str, Mapping[str, Record]]) -> list:
    """The first claim of each verdict that has an effect, of the last notebook, in the world."""
    from mmlib.claims import Claim
    from mmlib.core.intervals import Estimate

    claims = list(records.values())[-1]["world"]["claims"]
    shown = []
    for verdict in VERDICTS[:3]:
        first = next(c for c in claims if c["verdict"] == verdict)
        parts = {
            name: Estimate(*(part[key] for key in ("effect", "low", "high")))
            for name, part in first["parts"].items()
        }
        keys = ("id", "claim", "paper", "comparison")
        shown.append(Claim(*(first[k] for k in keys), parts, first["unit"], margin=first["margin"]))
    return shown


def _save(path: Path, figure: Any) -> None:
    """Save a figure with 256 colours, a third of the size; prints how large it is."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, bbox_inches="tight")
    image = Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    write_atomic(path, lambda file: image.save(file, optimize=True))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} KB")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("write", "check", "pictures"))
    command = parser.parse_args(arguments).command
    try:
        records = read_records(ROOT / "notebooks")
    except ReportError as error:
        raise SystemExit(str(error)) from None
    if not records:
        raise SystemExit("no claims are recorded in notebooks/expected")
    if command == "pictures":
        draw_pictures(ROOT / "docs" / "pictures", records)
        return 0
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    new = with_ledger(text, ledger(records))
    if command == "write":
        write_atomic(path, lambda file: file.write_text(new, encoding="utf-8"))
    elif new != text:
        print("README.md holds another ledger: python ci/readme.py write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
