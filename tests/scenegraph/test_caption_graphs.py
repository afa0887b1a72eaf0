"""The hand-annotated caption graphs are well formed (README.md beside it has the conventions)."""

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parent / "caption_graphs.json"
CONSTRUCTIONS = """compound pair_of adjective participle predicative number adverb verb_relation
    particle verb_preposition preposition passive_agent conj_objects conj_modifiers conj_verbs
    relative_clause fragment there_is intransitive possessive fallback""".split()
LEAST = {tag: 3 if tag == "fallback" else 8 for tag in CONSTRUCTIONS}
AUXILIARIES = set("is are was were be been being am".split())
# Never part of an object or attribute ("in the middle of" may hold an article, a name may not).
DETERMINERS = set("a an the his her its their my your our this that some many several".split())
NUMBERS = set("one two three four five six second fifth 3".split())

Entry = dict[str, Any]


def words(text: str) -> list[str]:
    """The lower-cased words, without punctuation and possessive endings."""
    plain = re.sub(r"['’]s?(?!\w)", " ", text.lower())
    return re.findall(r"[\w-]+", plain)


def unresolved(entry: Entry) -> list[str]:
    """Ids, numbering and shapes that break the format."""
    entities, relations = entry["entities"], entry["relations"]
    found = []
    if [e["id"] for e in entities] != list(range(len(entities))):
        found.append("entity ids are not 0, 1, 2, ...")
    attributes = [a for e in entities for a in e["attributes"]]
    if [a[0] for a in attributes] != list(range(len(attributes))):
        found.append("attributes are not numbered 0, 1, 2, ...")
    if any(len(a) != 3 or not a[1] or not isinstance(a[2], list) for a in attributes):
        found.append("an attribute is not [number, text, adverbs]")
    for relation in relations:
        subject, object_, verb, preposition = relation
        if not {subject, object_} <= set(range(len(entities))) or subject == object_:
            found.append(f"relation {relation} does not join two entities")
        if not verb and not preposition:
            found.append(f"relation {relation} has no label")
    if len({json.dumps(r) for r in relations}) < len(relations):
        found.append("a relation is given twice")
    return found


def misspelt(entry: Entry) -> list[str]:
    """Labels that are not words of the caption, or hold words that no label may hold."""
    caption = words(entry["caption"])
    names = [word for e in entry["entities"] for word in words(e["name"])]
    attributes = [a for e in entry["entities"] for a in e["attributes"]]
    described = [word for _, text, adverbs in attributes for word in [text, *adverbs]]
    relating = []
    for _, _, verb, preposition in entry["relations"]:
        # "the dog's tongue": tongue, "of", dog; the one word that a caption need not have
        if not ("possessive" in entry["constructions"] and not verb and preposition == "of"):
            relating += verb + preposition.split()
    found = [
        f"{word!r} is not in the caption"
        for word in names + described + relating
        if word not in caption
    ]
    found += [f"{w!r} in a label" for w in names + described + relating if w in AUXILIARIES]
    found += [f"{w!r} in a name" for w in names + described if w in DETERMINERS]
    return found


def out_of_order(entry: Entry) -> list[str]:
    """Objects that do not stand in the order in which the caption names them."""
    caption, at = words(entry["caption"]), 0
    for entity in entry["entities"]:
        first = words(entity["name"])[0]
        if first not in caption[at:]:
            return [f"{entity['name']!r} is out of order"]
        at = caption.index(first, at) + 1
    return []


def mistagged(entry: Entry) -> list[str]:
    """Constructions that the graph shows and the tags do not, or the other way round."""
    relations, caption = entry["relations"], words(entry["caption"])
    names = [e["name"] for e in entry["entities"]]
    attributes = [a for e in entry["entities"] for a in e["attributes"]]
    possessive = re.search(r"['’]", entry["caption"]) is not None
    own = [r for r in relations if not r[2] and not (possessive and r[3] == "of")]
    shown = {
        "pair_of": any(" of " in name for name in names),
        "number": any(text.lower() in NUMBERS for _, text, _ in attributes),
        "verb_relation or passive_agent": any(r[2] and not r[3] for r in relations),
        "verb_preposition": any(r[2] and r[3] for r in relations),
        "there_is": "there" in caption,
        "possessive": possessive,
        "fallback": not names,
    }
    tags = entry["constructions"]
    found = [
        f"{tag}: {'not tagged' if there else 'tagged in vain'}"
        for tag, there in shown.items()
        if there != any(t in tags for t in tag.split(" or "))
    ]
    if own and "preposition" not in tags:
        found.append("preposition: not tagged")
    if any(len(r[2]) > 1 for r in relations) and "particle" not in tags:
        found.append("particle: not tagged")
    if any(adverbs for _, _, adverbs in attributes) and not {"adverb", "particle"} & set(tags):
        found.append("adverb: not tagged")
    found += [f"unknown tag {tag!r}" for tag in tags if tag not in CONSTRUCTIONS]
    return found


def problems(entry: Entry) -> list[str]:
    """All that is wrong with one annotated caption."""
    if broken := unresolved(entry):
        return broken
    return misspelt(entry) + out_of_order(entry) + mistagged(entry)


@pytest.fixture(scope="module")
def graphs() -> dict[str, Entry]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_every_annotation_is_well_formed(graphs):
    wrong = {key: found for key, entry in graphs.items() if (found := problems(entry))}
    assert not wrong


def test_there_are_enough_different_captions(graphs):
    assert list(graphs) == [str(i) for i in range(len(graphs))]
    assert len({entry["caption"].lower() for entry in graphs.values()}) == len(graphs) >= 150
    lengths = {entry["caption"]: len(entry["caption"].split()) for entry in graphs.values()}
    assert {c: n for c, n in lengths.items() if not 4 <= n <= 25} == {}


def test_every_construction_occurs_often_enough(graphs):
    counts = Counter(tag for entry in graphs.values() for tag in entry["constructions"])
    assert {tag: counts[tag] for tag, least in LEAST.items() if counts[tag] < least} == {}
    readme = FILE.with_name("README.md").read_text(encoding="utf-8")
    told = {tag: int(n) for tag, n in re.findall(r"(\w+) (\d+)[,.]", readme) if tag in LEAST}
    assert told == counts
    assert f"\n{len(graphs)} sentences" in readme


SOUND: Entry = {
    "caption": "The girl's two red kites fly over a field.",
    "entities": [
        {"id": 0, "name": "girl", "attributes": []},
        {"id": 1, "name": "kites", "attributes": [[0, "two", []], [1, "red", []]]},
        {"id": 2, "name": "field", "attributes": []},
    ],
    "relations": [[1, 0, [], "of"], [1, 2, ["fly"], "over"]],
    "constructions": ["adjective", "number", "verb_preposition", "possessive"],
}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["entities", 2, "id"], 3, "entity ids"),
        (["entities", 1, "attributes", 1, 0], 0, "not numbered"),
        (["entities", 1, "attributes", 1, 1], "blue", "'blue' is not in the caption"),
        (["entities", 1, "attributes", 1, 1], "", "not [number, text, adverbs]"),
        (["entities", 2, "name"], "a field", "'a' in a name"),
        (["entities", 0, "name"], "field", "out of order"),
        (["relations", 1, 1], 7, "does not join"),
        (["relations", 1, 1], 1, "does not join"),
        (["relations", 0, 3], "", "has no label"),
        (["relations", 1], [1, 0, [], "of"], "given twice"),
        (["relations", 1, 2], ["is", "fly"], "'is' in a label"),
        (["relations", 1, 3], "under", "'under' is not in the caption"),
        (["constructions", 1], "adverb", "number: not tagged"),
        (["constructions", 0], "fallback", "fallback: tagged in vain"),
        (["constructions", 0], "colour", "unknown tag 'colour'"),
    ],
)
def test_the_checks_find_slips(path, value, message):
    assert problems(SOUND) == []
    entry = copy.deepcopy(SOUND)
    place: Any = entry
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert any(message in found for found in problems(entry))
