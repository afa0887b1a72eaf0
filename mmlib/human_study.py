"""A study with human raters: which of two retrieved pictures suits a text better.

The questions, the page, the vote file and the statistics of Table 6 of "Cross-Modal Coherence
for Text-to-Image Retrieval" (AAAI 2022, human evaluation), and a simulation of what its
selection of items does to the result.
"""

import base64
import csv
import html
import io
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar

import ipywidgets
import numpy as np
import pandas as pd
from PIL import Image, ImageOps
from scipy import optimize, stats

from mmlib.core.errors import DataError, Problem
from mmlib.core.tables import paper_values

# The paper's four answers and "both good", for which its table has a column but its page no button.
ANSWERS = ("prefer A", "prefer B", "both good", "exactly the same", "neither fits")
WITHDRAWN = "withdrawn"
COLUMNS = ("question", "rater", "answer", "left", "right", "time")
OUTCOMES = ("better", "worse", "both good", "same", "both bad")
NO_MAJORITY = "no majority"
Read = TypeVar("Read")
MAPPING = """From answers to the columns of Table 6. A is the left picture, B the right one.
- "prefer A" and "prefer B": Better where the preferred picture is the coherence-aware system's,
  Worse where it is the other's;
- "both good": BothGood; "neither fits": BothBad;
- "exactly the same": BothGood. The paper offers this answer but prints no column for it. As its
  rows add up to 100, such answers are in BothGood or BothBad or were left out; it does not say.
An answer counts for a question when more than half of its raters gave it; questions without such
an answer stand in a column of their own, which the paper does not print."""


# --- Questions and votes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A text and the picture that each of two systems found for it.

    key: names the question in the vote file. images: rows of the two pictures, in the order of
    `Study.systems`. group: the question's row in Table 6, never shown to a rater.
    """

    key: str
    text: str
    images: tuple[int, int]
    group: str = "all"


@dataclass(frozen=True, eq=False)
class Study:
    """Questions for raters, and the file of their votes.

    open_image: row -> picture. systems: the coherence-aware one, then the agnostic one.
    path: CSV file of the votes; it is made with the first vote and read again at a restart.
    seed: decides, per rater and question, which system stands on the left.

    A vote is appended as one line and synced to the disk before the page goes on. Appending,
    unlike rewriting, cannot lose votes when two kernels use one file, and never touches a line
    that is there already; an undone vote therefore stays, followed by a line "withdrawn".
    Raises ValueError for questions that cannot be told apart and DataError for a damaged file.
    """

    questions: Sequence[Question]
    open_image: Callable[[int], Image.Image]
    systems: tuple[str, str]
    path: Path
    seed: int = 0

    def __post_init__(self) -> None:
        keys = [question.key for question in self.questions]
        if not keys or len(set(keys)) < len(keys):
            raise ValueError("a study needs questions, each with a key of its own")
        if any(not key.isprintable() or key != key.strip() or not key for key in keys):
            raise ValueError("a question's key is one line of text without spaces around it")
        if len(self.systems) != 2 or self.systems[0] == self.systems[1]:
            raise ValueError(f"a study compares two systems, not {self.systems}")
        self.votes()

    def votes(self) -> pd.DataFrame:
        """The votes so far, as `votes` gives them. Raises DataError also for strange names."""
        known = {question.key for question in self.questions}
        for line, vote in _read(self.path):
            if vote["question"] not in known:
                # The systems' names must not reach the page, where errors are shown too.
                _fail(self.path, line, f"no question {vote['question']!r} in this study")
            if {vote["left"], vote["right"]} != set(self.systems):
                _fail(self.path, line, "left and right are not the systems of this study")
        return votes(self.path)

    def open_questions(self, rater: str) -> list[Question]:
        """The questions that a rater has not answered yet, in the study's order."""
        table = self.votes()
        done = set(table.question[table.rater == rater_name(rater)])
        return [question for question in self.questions if question.key not in done]

    def sides(self, rater: str, key: str) -> tuple[int, int]:
        """Which system stands on the left and on the right: (0, 1) or (1, 0)."""
        names = (zlib.crc32(name.encode()) for name in (rater_name(rater), key))
        first = int(np.random.default_rng([self.seed, *names]).integers(2))
        return first, 1 - first

    def vote(self, rater: str, key: str, answer: str) -> None:
        """Keep a rater's answer to an open question. Raises ValueError where it is none."""
        if answer not in ANSWERS:
            raise ValueError(f"{answer!r} is no answer; there are {', '.join(ANSWERS)}")
        if key not in {question.key for question in self.open_questions(rater)}:
            raise ValueError(f"question {key!r} is not open for rater {rater!r}")
        left, right = (self.systems[side] for side in self.sides(rater, key))
        _append(self.path, [key, rater_name(rater), answer, left, right, _now()])

    def withdraw(self, rater: str) -> str | None:
        """Take back a rater's last vote; returns the key of its question, None without votes."""
        table = self.votes()
        own = table[table.rater == rater_name(rater)]
        if own.empty:
            return None
        last = own.iloc[-1]
        _append(self.path, [last.question, last.rater, WITHDRAWN, last.left, last.right, _now()])
        return str(last.question)

    def table6(self) -> pd.DataFrame:
        """The paper's Table 6 from the votes so far, a row a group of questions."""
        groups = {question.key: question.group for question in self.questions}
        return table6(majority(self.votes(), self.systems), groups)


def rater_name(name: str) -> str:
    """One spelling of a rater's name: small letters, single spaces. ValueError if empty."""
    clean = " ".join(name.split()).casefold()
    if not clean or not clean.isprintable():
        raise ValueError("a rater needs a name of printable letters")
    return clean


def votes(path: Path) -> pd.DataFrame:
    """The votes of a file, oldest first, without the withdrawn ones.

    Columns question, rater, answer, left, right (names of systems) and time (UTC). A file that
    does not exist yet has no votes. Raises DataError for a damaged row.
    """
    table = pd.DataFrame([vote for _, vote in _read(path)], columns=list(COLUMNS), dtype=str)
    return table.assign(time=pd.to_datetime(table.time, utc=True))


def _read(path: Path) -> list[tuple[int, dict[str, str]]]:
    """(line, vote) of each vote that stands."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    standing: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    for number, line in enumerate(lines, 1):
        if not line and number == len(lines):
            break
        cells = _cells(path, number, line)
        if number == 1:
            if tuple(cells) != COLUMNS:
                _fail(path, 1, f"the header is not {','.join(COLUMNS)}", "put it there")
            continue
        if fault := _fault(cells):
            _fail(path, number, fault)
        vote = dict(zip(COLUMNS, cells, strict=True))
        who = vote["rater"], vote["question"]
        if (vote["answer"] == WITHDRAWN) != (who in standing):
            _fail(path, number, "withdraws no vote" if who not in standing else "a second vote")
        if vote["answer"] == WITHDRAWN:
            del standing[who]
        else:
            standing[who] = number, vote
    return list(standing.values())


def _cells(path: Path, number: int, line: bytes) -> list[str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
        return next(csv.reader([text], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        _fail(path, number, "not a row of a CSV file in UTF-8")


def _fault(cells: list[str]) -> str:
    """What is wrong with a row of the vote file; empty if nothing is."""
    if len(cells) != len(COLUMNS):
        return f"{len(cells)} cells instead of {len(COLUMNS)}"
    vote = dict(zip(COLUMNS, cells, strict=True))
    if vote["answer"] not in (*ANSWERS, WITHDRAWN):
        return f"{vote['answer']!r} is no answer"
    if empty := [name for name in COLUMNS if not vote[name]]:
        return f"{empty[0]} is empty"
    if vote["left"] == vote["right"]:
        return "the same system on both sides"
    if _or_none(rater_name, vote["rater"]) != vote["rater"]:
        return "a rater's name has capitals or spaces to spare"
    moment = _or_none(datetime.fromisoformat, vote["time"])
    # A line cut off in its last cell may still read as a time; it does not come back the same.
    if not moment or not moment.tzinfo or moment.isoformat(timespec="seconds") != vote["time"]:
        return f"the time {vote['time']!r} is not of the form {_now()}"
    return ""


def _or_none(read: Callable[[str], Read], text: str) -> Read | None:
    try:
        return read(text)
    except ValueError:
        return None


def _fail(path: Path, line: int, what: str, mend: str = "mend or delete this line") -> NoReturn:
    raise DataError(Problem(path, line, what, mend))


def _append(path: Path, cells: Sequence[str]) -> None:
    """Add a row, and the header to a new file, in one write that is on the disk on return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        text = io.StringIO("" if file.read(1) in (b"", b"\n") else "\n")
        text.seek(0, os.SEEK_END)
        rows = [cells] if size else [COLUMNS, cells]
        csv.writer(text, lineterminator="\n").writerows(rows)
        file.write(text.getvalue().encode())
        os.fsync(file.fileno())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- The page ---------------------------------------------------------------------------------

PIXELS = 512  # the longer side of a picture as it is sent
HASTE = 0.3  # seconds; a click that follows a new question sooner was meant for the one before

STYLE = """<style>
.study { font-family: var(--jp-ui-font-family, sans-serif); line-height: 1.4;
  color: var(--jp-ui-font-color1, #222); font-size: 15px; }
.study blockquote { margin: 6px 0 12px; padding: 8px 14px; font-size: 18px;
  border-left: 4px solid var(--jp-brand-color1, #1976d2);
  background: var(--jp-layout-color2, #eee); overflow-wrap: anywhere; }
.study .pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px; }
.study figure { margin: 0; padding: 6px; border-radius: 4px; text-align: center;
  border: 1px solid var(--jp-border-color2, #ccc); }
.study img { width: 100%; aspect-ratio: 1; object-fit: contain; display: block; }
.study figcaption { font-weight: 600; padding-top: 4px; }
.study p { margin: 4px 0; }
.study .fault { padding: 8px 14px; border: 2px solid var(--jp-error-color1, #c00);
  overflow-wrap: anywhere; }
@media (max-width: 600px) {
  .study .pair { gap: 6px; }
  .study figure { padding: 0; border: 0; }
  .study blockquote { padding: 4px 8px; font-size: 16px; }
}
</style>"""


def widget(study: Study, rater: str | None = None) -> ipywidgets.Widget:
    """The page of a study: text, two pictures, five buttons, progress, undo.

    It goes on at the rater's first open question; without a rater it asks for a name. No system
    and no group is named anywhere on it. Votes are on the disk before the next question shows.
    """
    return _Page(study, rater).box


class _Page:
    """The widgets of one page and what happens on a click."""

    def __init__(self, study: Study, rater: str | None) -> None:
        self.study = study
        self.question: Question | None = None
        self.shown = 0.0
        wide = {"width": "auto", "min_width": "110px", "flex": "1 1 auto", "margin": "4px"}
        self.name = ipywidgets.Text(
            value=rater or "", placeholder="your name", description="Rater",
            continuous_update=False,
            layout={"width": "min(300px, 95%)"}, style={"description_width": "initial"},
        )  # fmt: skip
        self.head, self.body = ipywidgets.HTML(), ipywidgets.HTML()
        self.answers = [ipywidgets.Button(description=a, layout=wide) for a in ANSWERS]
        self.undo = ipywidgets.Button(
            description="undo my last vote",
            icon="undo",
            layout={"width": "auto", "margin": "4px", "align_self": "flex-start"},
        )
        row = {"flex_flow": "row wrap", "width": "100%"}
        self.buttons = ipywidgets.HBox(self.answers, layout=row)
        self.box = ipywidgets.VBox(
            [ipywidgets.HTML(STYLE), self.name, self.head, self.body, self.buttons, self.undo],
            layout={"max_width": "680px", "width": "100%"},
        )
        for button in self.answers:
            button.on_click(self._vote)
        self.undo.on_click(self._undo)
        self.name.observe(lambda _: self.show(), names="value")
        self.show()

    def show(self) -> None:
        """Bring the page to the rater's first open question."""
        try:
            self._show()
        except (DataError, OSError) as error:  # in a callback Jupyter would hide it in a log
            self._fault(error)
        self.shown = time.monotonic()

    def _blank(self, body: str) -> None:
        self.question, self.head.value = None, ""
        self.buttons.layout.display = self.undo.layout.display = "none"
        self.body.value = f'<div class="study">{body}</div>'

    def _fault(self, error: Exception) -> None:
        told = html.escape(f"{error}. Then run this cell again; no vote is lost.")
        self._blank(f'<p class="fault" role="alert">{told}</p>')

    def _show(self) -> None:
        try:
            rater = rater_name(self.name.value)
        except ValueError:
            return self._blank("<p>Please type your name above and press Enter.</p>")
        still, count = self.study.open_questions(rater), len(self.study.questions)
        done = count - len(still)
        self.question = still[0] if still else None
        self.undo.disabled = not done
        self.undo.layout.display = ""
        self.buttons.layout.display = "" if still else "none"
        progress = f"{min(done + 1, count)} of {count}, rater {html.escape(rater)}"
        self.head.value = f'<div class="study"><p role="status">{progress}</p></div>'
        body = self._pair(rater, still[0]) if still else _closing(rater, count)
        self.body.value = f'<div class="study">{body}</div>'

    def _pair(self, rater: str, question: Question) -> str:
        sides = self.study.sides(rater, question.key)
        figures = [
            f'<figure><img alt="Picture {letter}, {where}" src="{address}">'
            f"<figcaption>{letter}</figcaption></figure>"
            for letter, where, address in zip(
                "AB",
                ("on the left", "on the right"),
                (_address(self.study.open_image(question.images[side])) for side in sides),
                strict=True,
            )
        ]
        return (
            "<p>Which picture suits this text better?</p>"
            f'<blockquote dir="auto">{html.escape(question.text)}</blockquote>'
            f'<div class="pair">{"".join(figures)}</div>'
        )

    def _vote(self, button: ipywidgets.Button) -> None:
        question, rater, answer = self.question, self.name.value, button.description
        if question and time.monotonic() - self.shown >= HASTE:
            self._act(lambda: self.study.vote(rater, question.key, answer))

    def _undo(self, _: ipywidgets.Button) -> None:
        self._act(lambda: self.study.withdraw(self.name.value))

    def _act(self, change: Callable[[], object]) -> None:
        try:
            change()
        except (DataError, OSError) as error:
            return self._fault(error)
        except ValueError:
            pass  # answered meanwhile on another page: go on at what is open
        self.show()


def _closing(rater: str, count: int) -> str:
    """The last page."""
    return f"<p><b>Thank you, {html.escape(rater)}: all {count} questions are answered.</b></p>"


def _address(image: Image.Image) -> str:
    """A picture as a data URI, scaled, and freed of notes that could tell where it is from."""
    picture = ImageOps.contain(image.convert("RGB"), (PIXELS, PIXELS))
    picture.info.clear()
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=95, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


# --- From votes to Table 6 --------------------------------------------------------------------


def majority(table: pd.DataFrame, systems: tuple[str, str]) -> pd.DataFrame:
    """What most raters said of each question.

    table: of `votes`; systems: the coherence-aware one, then the other. Index question; columns
    outcome (one of `OUTCOMES` or "no majority"), agree (its votes) and raters. "better": more
    than half of the raters preferred the coherence-aware system's picture.
    Raises ValueError where the votes are about other systems.
    """
    if not set(table.left).union(table.right) <= set(systems):
        raise ValueError(f"the votes are not all about {systems[0]} and {systems[1]}")
    preferred = table.left.where(table.answer == "prefer A", table.right)
    own = preferred == systems[0]
    chosen = table.answer.isin(["prefer A", "prefer B"])
    plain = table.answer.replace({"exactly the same": "same", "neither fits": "both bad"})
    outcome = plain.mask(chosen & own, "better").mask(chosen & ~own, "worse")
    counts = pd.crosstab(table.question, outcome).reindex(columns=list(OUTCOMES), fill_value=0)
    counts = counts.reindex(table.question.unique())
    winners = _winners(counts.to_numpy())
    return pd.DataFrame(
        {
            "outcome": [OUTCOMES[w] if w >= 0 else NO_MAJORITY for w in winners],
            "agree": counts.max(axis=1),
            "raters": counts.sum(axis=1),
        },
        index=counts.index.rename("question"),
    )


def _winners(counts: np.ndarray) -> np.ndarray:
    """(items, outcomes) -> (items,) the outcome of more than half of the votes, else -1."""
    return np.where(2 * counts.max(axis=1) > counts.sum(axis=1), counts.argmax(axis=1), -1)


def scores(outcomes: pd.Series) -> np.ndarray:
    """+1 for better, -1 for worse, 0 for all else, as the paper's t-test needs them."""
    return (outcomes == "better").to_numpy(float) - (outcomes == "worse").to_numpy(float)


def table6(
    majorities: pd.DataFrame, groups: Mapping[str, str] | None = None, same: str = "BothGood"
) -> pd.DataFrame:
    """Percent of questions in the paper's columns, then what the paper leaves out.

    majorities: of `majority`. groups: question -> row of the table (one row without). same: the
    column that "exactly the same" goes to; see `MAPPING`. Columns Better, Worse, BothGood,
    BothBad, NoMajority (together 100) and n, the number of questions.
    """
    column = {
        "better": "Better", "worse": "Worse", "both good": "BothGood", "both bad": "BothBad",
        "same": same, NO_MAJORITY: "NoMajority",
    }  # fmt: skip
    named = ["Better", "Worse", "BothGood", "BothBad", same, "NoMajority"]
    names = list(dict.fromkeys(named))
    group = pd.Series([groups[q] if groups else "all" for q in majorities.index], dtype=object)
    counts = pd.crosstab(group.to_numpy(), majorities.outcome.map(column).to_numpy())
    counts = counts.reindex(index=group.unique(), columns=names, fill_value=0)
    total = counts.sum(axis=1)
    table = counts.mul(100 / total, axis=0).assign(n=total)
    return table.rename_axis(index=None, columns=None)


# --- Tests and their power --------------------------------------------------------------------


@dataclass(frozen=True)
class Preference:
    """A one-sample two-sided t-test. effect: mean over standard deviation (Cohen's d)."""

    n: int
    mean: float
    effect: float
    t: float
    p: float


def preference_test(scores: np.ndarray) -> Preference:
    """Whether scores (n,) of +1, 0, -1 lean to one side.

    Without any spread t and p are NaN: a t-test cannot say anything then. Raises ValueError for
    fewer than two scores.
    """
    scores = np.asarray(scores, dtype=float)
    if len(scores) < 2:
        raise ValueError("a t-test needs at least two scores")
    mean, spread = float(scores.mean()), float(scores.std(ddof=1))
    if spread == 0:
        return Preference(len(scores), mean, np.nan, np.nan, np.nan)
    test = stats.ttest_1samp(scores, 0.0)
    return Preference(len(scores), mean, mean / spread, float(test.statistic), float(test.pvalue))


def t_power(effect: float, n: int, level: float = 0.05) -> float:
    """Probability that a one-sample two-sided t-test of n scores finds an effect (Cohen's d)."""
    freedom, shift = n - 1, effect * np.sqrt(n)
    bound = stats.t.isf(level / 2, freedom)
    # By symmetry both tails are upper ones, which scipy computes reliably far out.
    tails = stats.nct.sf(bound, freedom, [shift, -shift])
    return float(np.nan_to_num(tails).sum())


def detectable_effect(n: int, power: float = 0.95, level: float = 0.05) -> float:
    """The smallest effect (Cohen's d) that n scores find with the given power.

    The sensitivity analysis of the paper's human evaluation: d = 0.17 takes about 450 scores.
    """
    _check_power(power, level)
    if n < 2:
        raise ValueError("a t-test needs at least two scores")
    bound = stats.t.isf(level / 2, n - 1) + stats.norm.ppf(power) + 10
    return float(optimize.brentq(lambda d: t_power(d, n, level) - power, 0, bound))


def _check_power(power: float, level: float) -> None:
    if not 0 < level < power < 1:
        raise ValueError(f"level {level} and power {power} must be in order within (0, 1)")


def paper_check(n: int = 100) -> pd.DataFrame:
    """What t-tests of the paper's own Table 6 give, if each relation had n questions.

    The paper states t > 14.1 for every relation and prints no n. Index: the rows of Table 6 and
    "all pooled"; columns better, worse (percent), n, t, p, and needed: how many questions with
    the same shares t = 14.1 would take, as t grows with the root of n.
    """
    bound = paper_values("coherence", "human_evaluation_text").value["t statistic, lower bound"]
    shares = paper_values("coherence", "table6")[["Better", "Worse"]].astype(float)
    shares.loc["all pooled"] = shares.mean()
    table = shares.rename(columns=str.lower).assign(n=n)
    table.loc["all pooled", "n"] = n * (len(shares) - 1)
    mean = (table.better - table.worse) / 100
    square = (table.better + table.worse) / 100
    table["t"] = mean / np.sqrt((square - mean**2) / (table.n - 1))
    table["p"] = 2 * stats.t.sf(abs(table.t), table.n - 1)
    table["needed"] = np.ceil(table.n * (bound / table.t) ** 2).astype(int)
    return table


# --- What selecting the items does ------------------------------------------------------------


def selected_items(
    ranks_aware: np.ndarray,
    ranks_agnostic: np.ndarray,
    positive: np.ndarray | None = None,
    most: int = 100,
) -> np.ndarray:
    """The items that the authors' code exports for human evaluation, as indices.

    ranks (n,): rank of the true picture; positive (n,) bool: where the relation holds. Kept are
    positive items whose true picture the aware system ranks strictly higher, its best first.
    """
    aware, agnostic, positive = _ranks(ranks_aware, ranks_agnostic, positive)
    eligible = np.flatnonzero(positive & (aware < agnostic))
    return eligible[np.argsort(aware[eligible], kind="stable")][:most]


def _ranks(
    aware: np.ndarray, agnostic: np.ndarray, positive: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    aware, agnostic = np.asarray(aware, float), np.asarray(agnostic, float)
    positive = np.ones(aware.shape, bool) if positive is None else np.asarray(positive, bool)
    if not aware.shape == agnostic.shape == positive.shape or aware.ndim != 1:
        raise ValueError(f"ranks {aware.shape}, {agnostic.shape}, positive {positive.shape}")
    if not (np.minimum(aware, agnostic) >= 1).all():
        raise ValueError("ranks count from 1")
    return aware, agnostic, positive


def simulate_from_ranks(
    ranks_a: np.ndarray,
    ranks_b: np.ndarray,
    positive: np.ndarray | None = None,
    most: int = 100,
    raters: int = 3,
    noise: float = 1.0,
    seed: int = 0,
) -> pd.DataFrame:
    """What simulated raters say of two systems, on random items and on the authors' selection.

    ranks (n,) of the true picture by system a (taken for the aware one) and b. Index selection
    ("at random", "authors'"); columns n, better, worse, both (all else), win rate (better among
    better and worse), t, p. Both selections are drawn from the positive items, at most `most`.

    The raters are an assumption: a shown picture suits the text by -log2 of the rank that its
    system gives the true picture (0 where it is shown itself), plus, if it is a wrong one, a
    chance of its own; each rater sees this with an error. Both are normal with deviation `noise`.
    A difference above 1, a factor of two in rank, is a preference; otherwise both are good if
    they look better than rank 8 on the average. Two true pictures are the same.
    """
    aware, agnostic, positive = _ranks(ranks_a, ranks_b, positive)
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(np.flatnonzero(positive))[:most]
    chosen = selected_items(aware, agnostic, positive, most)
    rows = {}
    for name, items in (("at random", drawn), ("authors'", chosen)):
        suits = -np.log2(np.stack([aware[items], agnostic[items]], axis=-1))
        outcome = pd.Series(_judged(suits, raters, noise, rng))
        test = preference_test(scores(outcome))
        better, worse = int((outcome == "better").sum()), int((outcome == "worse").sum())
        rate = better / (better + worse) if better + worse else np.nan
        rows[name] = {
            "n": test.n, "better": better, "worse": worse, "both": test.n - better - worse,
            "win rate": rate, "t": test.t, "p": test.p,
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("selection")


def _judged(suits: np.ndarray, raters: int, noise: float, rng: np.random.Generator) -> list[str]:
    """The majority's outcome of each item, from how well its two pictures suit (items, 2)."""
    suits = suits + np.where(suits < 0, noise * rng.normal(size=suits.shape), 0.0)
    seen = suits[:, None] + noise * rng.normal(size=(len(suits), raters, 2))
    lead, level = seen[..., 0] - seen[..., 1], seen.mean(-1)
    said = np.select([lead > 1, lead < -1, level > -3], [0, 1, 2], 4)
    said[(suits == 0).all(axis=1)] = OUTCOMES.index("same")
    winners = _winners((said[..., None] == np.arange(len(OUTCOMES))).sum(axis=1))
    return [OUTCOMES[w] if w >= 0 else NO_MAJORITY for w in winners]


def simulate_raters(
    items: int = 860,
    pool: int = 500,
    quality: float = 2.0,
    own: float = 1.0,
    most: int = 100,
    raters: int = 3,
    noise: float = 1.0,
    seed: int = 0,
) -> pd.DataFrame:
    """`simulate_from_ranks` for two systems that are equally good.

    A true picture scores `quality` plus normal noise that belongs to the item plus noise of
    deviation `own` of each system; the other pool - 1 pictures score standard normally.
    """
    rng = np.random.default_rng([seed, 1])  # not the stream that the raters draw from
    shared = rng.normal(quality, 1.0, items)
    true = shared + own * rng.normal(size=(2, items))
    ranks = 1 + rng.binomial(pool - 1, stats.norm.sf(true))
    return simulate_from_ranks(ranks[0], ranks[1], most=most, raters=raters, noise=noise, seed=seed)
