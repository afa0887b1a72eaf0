"""Captions that relate to a picture in Clue's ways: one for each set of relations that may hold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmlib.world import words
from mmlib.world.captions import _Writer
from mmlib.world.graphs import CaptionGraph
from mmlib.world.logic import satisfies
from mmlib.world.scenes import pick, pick_weighted
from mmlib.world.schema import GROUP_OF, Scene
from mmlib.world.stories import describe

SHORTEST, LONGEST = 4, 25  # words of a text
LIVELY = {"walking", "running", "jumping", "flying", "floating", "moving", "eating"}
_MOVING = {"flying", "carrying"}  # among the verbs of holding
_TRIES = 60


def fitting(write: Callable[[bool], str], longest: int = LONGEST) -> str:
    """A text of the right length, from a writer that can be asked to be brief."""
    for attempt in range(_TRIES):
        text = write(attempt > 5)
        if SHORTEST <= len(text.split()) <= longest:
            return text
    raise AssertionError(f"no text of {SHORTEST} to {longest} words: {text!r}")


def has_event(scene: Scene) -> bool:
    """Whether anything in the scene moves, or does more than being there."""
    return any(actor.action in LIVELY for actor in scene.things)


# fmt: off
# What goes on wherever nothing moves; no picture speaks against it.
_WEATHER = (
    "a light wind blowing around|a light wind blows around",
    "a breeze sweeping past|a breeze sweeps past",
    "the sun shining down on|the sun shines down on",
    "the wind playing about|the wind plays about",
    "insects buzzing around|insects buzz around",
    "the day slowly passing over|the day slowly passes over",
    "dust swirling around|dust swirls around",
)
_PICTURES = (
    "a picture of", "an image of", "a stock image of", "a full-size picture of", "a print of",
    "a framed picture of", "a postcard with", "a wide view of", "a picture book page with",
    "a high-resolution image of", "a cover picture with", "a wallpaper image of",
)
_IN_PICTURES = (
    "in this picture,", "stock image:", "picture of the week:", "on this postcard,",
    "as the image tells us,", "cover picture:", "image from a series:", "in the picture,",
)
_CHEERS = (
    "so cute:", "how lovely:", "simply wonderful:", "i love this:", "how sweet:", "so charming:",
    "what a delight:", "just perfect:", "absolutely amazing:",
)
_SIGHS = (
    ", and i love it", ", just wonderful", ", how sweet is that", ", which makes me smile",
    ", truly delightful", ", what a joy", ", simply fantastic", ", so charming",
)
_JUDGED = (
    "i have rarely met a nicer {kind}", "{the} is simply adorable", "{the} makes me so happy",
    "what a wonderful {kind} this is", "nothing beats a lovely {kind} {where}",
    "such a charming {kind}, truly amazing", "how lovely {the} is, just perfect",
)
# Background of anybody or anything: what goes before a sentence, what goes after it.
_BEFORE = (
    "after a long week at the office,", "the morning before the race,",
    "on the last day of the holidays,", "two hours before the wedding,",
    "years after the great storm,", "the day after the festival,", "a week before moving abroad,",
    "long before the first visitors arrived,", "when school was finally over,",
    "shortly after the end of the war,",
)
_AFTER = (
    ", the day before the wedding", ", as in the years before the war",
    ", a week after the festival", ", where the tale of the family began",
    ", long after the last guests had left", ", two days before the flood",
    ", as grandmother remembered it for the rest of her days",
)
_AFTER_LIVING = (
    ", on the way to grandmother's", ", after a long week at the office",
    ", just as the doctor advised", ", for the first time since last winter",
    ", waiting for news from an old friend", ", a week after the move from the capital",
    ", too tired from yesterday's party",
)
_LIFE = (  # of the living
    "had waited for this since {since}", "has come all the way from {town}",
    "grew up in {town}", "won a prize {when}", "is going to visit {who} tomorrow",
    "is looking forward to supper with {who}", "moved here from {town} {when}",
    "was named after {who}", "was on the way to {who}",
)
_SAD_LIFE = (  # nothing to cheer at
    "did not sleep at all {when}", "got lost {when}", "had an argument with {who} {when}",
)
_ORIGIN = (  # of all else
    "was a present from {who}", "has belonged to {who} since {since}",
    "came here from {town} {when}", "became famous {when}", "once belonged to {who}",
)
_SAD_ORIGIN = (
    "was sold to {who} {when}", "will soon be replaced by {who}",
    "had been forgotten since {since}", "was almost lost in the storm {when}",
)
_WHEN = "last night, last summer, in the spring, years ago, last winter, during the holidays"
_SINCE = "last night, last summer, the spring, last winter, the holidays, the early days"
_TOWN = "the next village, the capital, a village far away, the north, the south, another country"
_WHO = ("grandmother, an old friend, the neighbours, a famous painter, the mayor, an aunt, "
        "the family next door, a cousin")
_GOING_ON = (  # an event, but nothing that could be seen
    "{the} is having the time of a lifetime", "{the} is spending the afternoon {where}",
    "{the} is getting through the day {where}", "{the} is enjoying some free time {where}",
)
_PASSING = (
    "life goes on around {the}", "time goes by around {the} {where}",
    "the day takes its course around {the}",
)
_ABOUT = (  # pictures, without a word on what is in them; the latter ones not for people
    "picture for a calendar about a {kind}", "cover picture for the tale of a {kind}",
    "image for a book about a {kind} from {town}", "picture to go with a song about a {kind}",
    "stock image for the {kind} club", "one of a hundred pictures about {kinds} and the {place}",
    "cover picture for the {kind} magazine", "print for all friends of {kinds}",
)
_NAMES = (
    "the tale of the {kind}", "the year of the {kind}", "the {kind} and the {place}",
    "the {kind} from the {place}", "the return of the {kind}",
    "days of {kinds} and the {place}", "songs of {kinds} and the {place}",
    "the club of the {kinds}",
    "a summer of {kinds}", "{kinds}, part one of three",
)
# fmt: on


def clue_text(scene: Scene, about: Scene, holds: frozenset[str], rng: np.random.Generator) -> str:
    """A text about a scene for which exactly the relations in `holds` hold of `scene`."""
    return fitting(lambda brief: _Remark(scene, about, holds, rng, brief).text())


@dataclass
class _Remark:
    """A Clue text in the making."""

    scene: Scene
    about: Scene
    holds: frozenset[str]
    rng: np.random.Generator
    brief: bool = False
    living: bool = False  # whether the caption's subject is

    def text(self) -> str:
        shown = bool(self.holds & {"Visible", "Irrelevant"})
        text = self.seen() if shown else self.unseen()
        story = "Story" in self.holds and shown
        if story and self.rng.random() < 0.4 and "Meta" not in self.holds:
            text = f"{pick(self.rng, _BEFORE)} {text}"
        elif story:
            text += pick(self.rng, _AFTER + self.living * _AFTER_LIVING)
        if "Subjective" in self.holds and (shown or self.holds & {"Story", "Action"}):
            before = self.rng.random() < 0.5 and ":" not in text
            text = f"{pick(self.rng, _CHEERS)} {text}" if before else text + pick(self.rng, _SIGHS)
        return text

    def seen(self) -> str:
        """What is in the scene, as a caption; an event for Action, else a state."""
        event, meta = "Action" in self.holds, "Meta" in self.holds
        bare, sentence = self.caption(event)
        if meta and self.rng.random() < 0.75:
            return f"{pick(self.rng, _PICTURES)} {bare}"
        if meta:
            return f"{pick(self.rng, _IN_PICTURES)} {sentence if event else bare}"
        return sentence if event else bare

    def caption(self, event: bool) -> tuple[str, str]:
        """What is in the scene as a noun phrase and as a sentence, true of no other scene."""
        rng = self.rng
        lively = event and has_event(self.about)
        bare = sentence = ""
        for _ in range(_TRIES):
            writer = _Writer(self.about, rng)
            detail = pick(rng, (1, 2) if self.brief else (1, 2, 2, 3, 3))
            clause = writer.clauses(detail)[0]
            if is_event(writer) != lively or (lively and not clause.participle):
                continue
            placed = not clause.closed and rng.random() < 0.5
            end = writer.end(clause) if placed else ""
            graph = CaptionGraph(
                tuple(writer.nodes), tuple(writer.edges), self.about.setting if end else None
            )
            if self.about is self.scene or not satisfies(self.scene, graph):
                self.living = is_living(self.about.things[next(iter(writer.node_of))].kind)
                bare = clause.bare + end
                sentence = writer.finite(clause) + end if lively else bare
                break
        else:  # a plain way out
            shown = pick(rng, [t for t in self.about.things if t.action in LIVELY or not lively])
            name, doing = describe(shown, self.about.style), shown.action or place(self.about)
            bare, sentence = f"{name} {doing}", f"{name} is {doing}"
        if event and not lively:
            going_on, goes_on = pick(rng, _WEATHER).split("|")
            return f"{going_on} {bare}", f"{goes_on} {bare}"
        return bare, sentence

    def unseen(self) -> str:
        """Something about one of the things, but not what the picture shows of it."""
        rng, holds = self.rng, self.holds
        kind = protagonist(rng, self.about)
        living = is_living(kind)
        if "Story" in holds:
            glad, sad = (_LIFE, _SAD_LIFE) if living else (_ORIGIN, _SAD_ORIGIN)
            text = "{the} " + pick(rng, glad if "Subjective" in holds else glad + sad)
            if "Action" in holds and living:
                event = pick(rng, _GOING_ON).removeprefix("{the}")
                text += " and" + event.replace("is", "is now", 1)
            elif "Action" in holds:
                text += f", while {pick(rng, _PASSING).replace('{the}', 'it')}"
        elif "Action" in holds:
            text = pick(rng, _GOING_ON if living else _PASSING)
        elif "Subjective" in holds:
            text = pick(rng, _JUDGED)
        else:
            options = _ABOUT if "Meta" in holds else _NAMES
            suited = len(options) // (2 if GROUP_OF[kind] == "person" else 1)
            text = pick(rng, options[:suited])
        singular, plural = pick(rng, words.NOUNS[kind]).split("/")
        filled = text.format(
            the=f"the {singular}", kind=singular, kinds=plural, place=place_noun(self.about),
            where=place(self.about, rng), when=pick(rng, _WHEN.split(", ")),
            since=pick(rng, _SINCE.split(", ")), town=pick(rng, _TOWN.split(", ")),
            who=pick(rng, _WHO.split(", ")),
        )  # fmt: skip
        if "Meta" in holds and holds & {"Story", "Action", "Subjective"}:
            return f"{pick(rng, _IN_PICTURES)} {filled}"
        return filled


def is_event(writer: _Writer) -> bool:
    """Whether what was written so far tells of something going on."""
    acts = any(("action", name) in node.facts for node in writer.nodes for name in LIVELY)
    ties = any(edge.relation in ("riding", "chasing") for edge in writer.edges)
    return acts or ties or any(edge.words.split()[0] in _MOVING for edge in writer.edges)


def is_living(kind: str) -> bool:
    """Whether it is a person or an animal."""
    return GROUP_OF[kind] in ("person", "animal")


def protagonist(rng: np.random.Generator, scene: Scene) -> str:
    """The kind of something in the scene that a text would be about."""
    weights = {t.kind: 4.0 if is_living(t.kind) else 1.0 for t in scene.things}
    return pick_weighted(rng, weights)


def place(scene: Scene, rng: np.random.Generator | None = None) -> str:
    """The setting as a phrase; the plainest without `rng`."""
    every = words.PLACES[scene.setting]["any"].split(", ")
    options = [p for p in every if p.split(":")[1] not in ("day", "winter")]
    return (pick(rng, options) if rng else options[0]).split(":")[0]


def place_noun(scene: Scene) -> str:
    """The setting as a noun: "beach", "mountains"."""
    return words.PLACES[scene.setting]["any"].split(", ")[0].split(":")[1]


def noun(rng: np.random.Generator, kind: str) -> str:
    """One of the nouns for a kind, in the singular."""
    return pick(rng, words.NOUNS[kind]).split("/")[0]


def article(text: str) -> str:
    """ "a tent", "an old tent"."""
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"
