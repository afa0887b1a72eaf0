"""People compare the pictures that two systems found: export, votes, agreement, Table 6.

A question is a text and two pictures, and a vote stores just these and what was said of them. So
votes outlive the systems: whatever found the pictures, now or after a new training, is looked up
when votes are counted, and a vote never attaches to other pictures than its rater saw.
"""

import csv
import hashlib
import html
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from scipy import stats
from statsmodels.stats.power import TTestPower

from mmlib.core.errors import DataError, Problem
from mmlib.core.tables import paper_values

# The paper's four answers, and "both good", for which its table has a column but its page no
# button. "exactly the same" has a button but no column; here it counts as both good.
ANSWERS = ("prefer A", "prefer B", "both good", "exactly the same", "neither fits")
COLUMNS = ("text", "picture A", "picture B", "rater", "answer")
OUTCOMES = ("Better", "Worse", "BothGood", "BothBad")
Key = tuple[str, str, str]  # text, picture A, picture B


@dataclass(frozen=True)
class Question:
    """A text and the pictures of two systems, by name; relations: those that hold of the text."""

    text: str
    aware: str
    agnostic: str
    relations: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What a rater sees: the aware system's picture is A or B, as if by the toss of a coin."""
        first = zlib.crc32("|".join(sorted([self.text, self.aware, self.agnostic])).encode()) % 2
        a, b = sorted([self.aware, self.agnostic], reverse=bool(first))
        return self.text, a, b


def export(
    questions: Sequence[Question], picture: Callable[[str], Image.Image], folder: Path
) -> Path:
    """Write `questions.csv`, the pictures and `page.html`, which needs nothing but a browser.

    The page names no system. It lets a rater answer, and saves `votes_<name>.csv` (`COLUMNS`).
    Raises ValueError without questions.
    """
    if not questions:
        raise ValueError("there is no question to ask")
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    keys = list(dict.fromkeys(question.key for question in questions))
    for name in {name for _, *both in keys for name in both}:
        picture(name).convert("RGB").save(folder / "pictures" / _file(name), quality=92)
    with (folder / "questions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS[:3], *keys])
    rows = "".join(_row(number, key) for number, key in enumerate(keys))
    buttons = ",".join(f'"{answer}"' for answer in ANSWERS)
    page = PAGE.replace("ANSWERS", buttons).replace("ROWS", rows)  # which may say ANSWERS
    (folder / "page.html").write_text(page, encoding="utf-8")
    return folder / "page.html"


def _file(name: str) -> str:
    """A picture's file; a name that is none, such as an address, is hashed."""
    plain = re.fullmatch(r"[\w-][\w.-]*", name, re.ASCII)
    return f"{name if plain else hashlib.sha256(name.encode()).hexdigest()[:16]}.jpg"


def _row(number: int, key: Key) -> str:
    text, a, b = map(html.escape, key)
    pictures = "".join(f'<img src="pictures/{_file(name)}">' for name in key[1:])
    cells = "".join(
        f' data-{name}="{value}"' for name, value in zip("tab", (text, a, b), strict=True)
    )
    return f"<section{cells}><p>{number + 1}. {text}</p>{pictures}<div></div></section>"


PAGE = """<!doctype html><meta charset="utf-8"><title>Which picture suits the text better?</title>
<style>body{font:16px sans-serif;max-width:640px;margin:auto}img{width:48%;margin:1%}
.on{background:#0072B2;color:#fff}</style><h1>Which picture suits the text better?</h1>
<p>A is on the left, B on the right. Your name: <input id="who"> <button id="save">save votes
</button></p>ROWS<script>
const answers=[ANSWERS];
document.querySelectorAll("section").forEach(s=>answers.forEach(a=>{
 const b=document.createElement("button");b.textContent=a;s.querySelector("div").append(b);
 b.onclick=()=>{s.dataset.answer=a;s.querySelectorAll("button").forEach(o=>o.className="");
  b.className="on"}}));
const cell=v=>'"'+v.replaceAll('"','""')+'"';
document.getElementById("save").onclick=()=>{
 const who=document.getElementById("who").value.trim();if(!who){alert("Your name?");return}
 const rows=[...document.querySelectorAll("section")].filter(s=>s.dataset.answer).map(s=>
  [s.dataset.t,s.dataset.a,s.dataset.b,who,s.dataset.answer].map(cell).join(","));
 const a=document.createElement("a");a.download="votes_"+who+".csv";
 a.href=URL.createObjectURL(new Blob(["text,picture A,picture B,rater,answer\\n"+
  rows.join("\\n")+"\\n"]));a.click()};
</script>"""


# --- Votes ---------------------------------------------------------------------------------------


def read_votes(paths: Iterable[Path]) -> pd.DataFrame:
    """The votes of several raters' files together, columns `COLUMNS`; repeated rows count once.

    Raises DataError with file, row and mend for a row that is no vote, and for a rater who says
    two things of one question.
    """
    rows: dict[tuple[str, ...], str] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if number == 1 and tuple(row) == COLUMNS:
                    continue
                if fault := _fault(row, rows):
                    raise DataError(Problem(path, number, fault, "mend or delete this row"))
                rows[tuple(row[:4])] = row[4]
    return pd.DataFrame([(*key, answer) for key, answer in rows.items()], columns=list(COLUMNS))


def _fault(row: Sequence[str], known: Mapping[tuple[str, ...], str]) -> str:
    if len(row) != len(COLUMNS):
        return f"{len(row)} cells instead of {len(COLUMNS)}"
    if row[4] not in ANSWERS:
        return f"{row[4]!r} is no answer"
    if not all(row):
        return f"{COLUMNS[list(row).index('')]} is empty"
    return "another answer to the same question" if known.get(tuple(row[:4]), row[4]) != row[4] \
        else ""  # fmt: skip


def outcomes(votes: pd.DataFrame, questions: Sequence[Question]) -> pd.DataFrame:
    """Each vote on a question of these, by what it says of the aware system.

    Columns question (its number), rater, outcome (of `OUTCOMES`). Votes on other pictures are left
    out: they tell nothing about these systems.
    """
    number = {question.key: i for i, question in enumerate(questions)}
    rows = []
    for text, a, b, rater, answer in votes[list(COLUMNS)].itertuples(index=False, name=None):
        if (i := number.get((text, a, b))) is not None:
            prefers = {"prefer A": a, "prefer B": b}.get(answer)
            said = "BothBad" if answer == "neither fits" else "BothGood"
            if prefers:
                said = "Better" if prefers == questions[i].aware else "Worse"
            rows.append((i, rater, said))
    return pd.DataFrame(rows, columns=["question", "rater", "outcome"])


def majority(table: pd.DataFrame) -> pd.Series:
    """Question -> what more than half of its raters said, else "NoMajority"."""
    counts = pd.crosstab(table.question, table.outcome)
    clear = 2 * counts.max(axis=1) > counts.sum(axis=1)
    return counts.idxmax(axis=1).where(clear, "NoMajority")


def table6(table: pd.DataFrame, questions: Sequence[Question]) -> pd.DataFrame:
    """Percent of questions by majority, a row a relation that holds of the text, and "all".

    A column NoMajority, which the paper leaves out, and n; t and p of a one-sample t-test of
    +1 (Better), −1 (Worse), 0: NaN where all say the same or there are fewer than two.
    """
    settled, rows = majority(table), {}
    names = dict.fromkeys(c for i in settled.index for c in questions[i].relations)
    for name in ("all", *names):
        own = settled[[name == "all" or name in questions[i].relations for i in settled.index]]
        scores = (own == "Better").astype(float) - (own == "Worse").astype(float)
        with np.errstate(all="ignore"):
            told = len(own) > 1 and scores.std() > 0
            test = stats.ttest_1samp(scores, 0.0) if told else (np.nan, np.nan)
        shares = {o: 100 * (own == o).mean() for o in (*OUTCOMES, "NoMajority")}
        rows[name] = {**shares, "n": len(own), "t": test[0], "p": test[1]}
    return pd.DataFrame.from_dict(rows, orient="index")


def agreement(table: pd.DataFrame) -> float:
    """Krippendorff's α of nominal answers: 1 is full agreement, 0 that of chance; NaN if untold."""
    counts = pd.crosstab(table.question, table.outcome).to_numpy(float)
    counts = counts[counts.sum(axis=1) > 1]  # questions with several raters
    n, each = counts.sum(), counts.sum(axis=1, keepdims=True)
    if not n or np.count_nonzero(counts.sum(axis=0)) < 2:
        return float("nan")
    observed = (counts * (each - counts) / (each - 1)).sum() / n
    by = counts.sum(axis=0)
    return float(1 - observed / ((by * (n - by)).sum() / (n * (n - 1))))


# --- The paper's own numbers ---------------------------------------------------------------------


def detectable_effect(n: int, power: float = 0.95, level: float = 0.05) -> float:
    """The smallest effect (Cohen's d) that a two-sided t-test of n scores finds with this power.

    The paper's sensitivity analysis: d = 0.17 takes about 450 scores.
    """
    return float(TTestPower().solve_power(nobs=n, alpha=level, power=power))


def paper_check(n: int = 100) -> pd.DataFrame:
    """t-tests of the paper's own Table 6, if each relation had n questions; it prints no n.

    The paper states t > 14.1 everywhere. needed: how many questions with these shares that takes.
    """
    bound = paper_values("coherence", "human_evaluation_text").value["t statistic, lower bound"]
    shares = paper_values("coherence", "table6")[["Better", "Worse"]].astype(float)
    shares.loc["all pooled"] = shares.mean()
    table = shares.rename(columns=str.lower).assign(n=n)
    table.loc["all pooled", "n"] = n * (len(shares) - 1)
    mean, square = (table.better - table.worse) / 100, (table.better + table.worse) / 100
    table["t"] = mean / np.sqrt((square - mean**2) / (table.n - 1))
    table["p"] = 2 * stats.t.sf(abs(table.t), table.n - 1)
    return table.assign(needed=np.ceil(table.n * (bound / table.t) ** 2).astype(int))


def selected(aware: np.ndarray, agnostic: np.ndarray, most: int = 100) -> np.ndarray:
    """Rows that the authors' code exports for raters: where the aware system's rank of the true
    picture is strictly better than the other's, its best first. (There the relation holds, too.)
    """
    better = np.flatnonzero(aware < agnostic)
    return better[np.argsort(aware[better], kind="stable")][:most]
