"""Captions that relate to a picture in Clue's ways: one for each set of relations that may hold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.world import words
from mmlib.world.captions import Writer
from mmlib.world.graphs import CaptionGraph
from mmlib.world.logic import satisfies
from mmlib.world.scenes import pick, pick_weighted
from mmlib.world.schema import GROUP_OF, Scene
from mmlib.world.stories import describe

SHORTEST, LONGEST = 4, 25  # words of a text
LIVELY = {"walking", "running", "jumping", "flying", "floating", "moving", "eating"}
_MOVING = {"flying", "carrying"}  # among the verbs of holding
_TRIES = 60
_PHRASES: dict[str, list[str]] = table_beside(__file__)


def fitting(write: Callable[[bool], str], longest: int = LONGEST) -> str:
    """A text of the right length, from a writer that can be asked to be brief."""
    for attempt in range(_TRIES):
        text = write(attempt > 5)
        if SHORTEST <= len(text.split()) <= longest:
            return text
    raise AssertionError(f"no text of {SHORTEST} to {longest} words: {text!r}")


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
            text = f"{self.phrase('before')} {text}"
        elif story:
            text += pick(self.rng, _PHRASES["after"] + self.living * _PHRASES["after_living"])
        if "Subjective" in self.holds and (shown or self.holds & {"Story", "Action"}):
            before = self.rng.random() < 0.5 and ":" not in text
            text = f"{self.phrase('cheers')} {text}" if before else text + self.phrase("sighs")
        return text

    def phrase(self, kind: str) -> str:
        """One of the phrases of a kind."""
        return pick(self.rng, _PHRASES[kind])

    def seen(self) -> str:
        """What is in the scene, as a caption; an event for Action, else a state."""
        event, meta = "Action" in self.holds, "Meta" in self.holds
        bare, sentence = self.caption(event)
        if meta and self.rng.random() < 0.75:
            return f"{self.phrase('pictures')} {bare}"
        if meta:
            return f"{self.phrase('in_pictures')} {sentence if event else bare}"
        return sentence if event else bare

    def caption(self, event: bool) -> tuple[str, str]:
        """What is in the scene as a noun phrase and as a sentence, true of no other scene."""
        rng = self.rng
        lively = event and any(actor.action in LIVELY for actor in self.about.things)
        bare = sentence = ""
        for _ in range(_TRIES):
            writer = Writer(self.about, rng)
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
            going_on, goes_on = self.phrase("weather").split("|")
            return f"{going_on} {bare}", f"{goes_on} {bare}"
        return bare, sentence

    def unseen(self) -> str:
        """Something about one of the things, but not what the picture shows of it."""
        rng, holds = self.rng, self.holds
        kind = protagonist(rng, self.about)
        living = is_living(kind)
        if "Story" in holds:
            past = "life" if living else "origin"
            sad = [] if "Subjective" in holds else _PHRASES[f"sad_{past}"]
            text = "{the} " + pick(rng, _PHRASES[past] + sad)
            if "Action" in holds and living:
                event = self.phrase("going_on").removeprefix("{the}")
                text += " and" + event.replace("is", "is now", 1)
            elif "Action" in holds:
                text += f", while {self.phrase('passing').replace('{the}', 'it')}"
        elif "Action" in holds:
            text = self.phrase("going_on" if living else "passing")
        elif "Subjective" in holds:
            text = self.phrase("judged")
        else:
            options = _PHRASES["about" if "Meta" in holds else "names"]
            suited = len(options) // (2 if GROUP_OF[kind] == "person" else 1)
            text = pick(rng, options[:suited])
        singular, plural = pick(rng, words.NOUNS[kind]).split("/")
        filled = text.format(
            the=f"the {singular}", kind=singular, kinds=plural, place=place_noun(self.about),
            where=place(self.about, rng), when=self.phrase("when"), since=self.phrase("since"),
            town=self.phrase("town"), who=self.phrase("who"),
        )  # fmt: skip
        if "Meta" in holds and holds & {"Story", "Action", "Subjective"}:
            return f"{self.phrase('in_pictures')} {filled}"
        return filled


def is_event(writer: Writer) -> bool:
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
