"""The words of the picture world's captions, as `words.yaml` beside this file lists them."""

from mmlib.core.paths import table_beside

_WORDS = table_beside(__file__)

NOUNS = {concept: tuple(words.split(", ")) for concept, words in _WORDS["nouns"].items()}
WIDER = {kind: tuple(concepts) for kind, concepts in _WORDS["wider"].items()}
COLOUR_WORDS: dict[str, str] = _WORDS["colour_words"]
SIZE_WORDS: dict[str, str] = _WORDS["size_words"]
TALL: list[str] = _WORDS["tall"].split()
PATTERN_WORDS: dict[str, str] = _WORDS["pattern_words"]
GARMENTS: dict[str, str] = _WORDS["garments"]
VERBS: dict[str, dict[str, str]] = _WORDS["verbs"]
RELATION_WORDS: dict[str, str] = _WORDS["relation_words"]
HOLDING: dict[str, str] = _WORDS["holding"]
RIDING: dict[str, str] = _WORDS["riding"]
CHASING: dict[str, str] = _WORDS["chasing"]
PASSIVE: dict[str, str] = _WORDS["passive"]
PERCHED: dict[str, str] = _WORDS["perched"]
TOGETHER: str = _WORDS["together"]
SHOWING: str = _WORDS["showing"]
NUMBERS: dict[int, str] = _WORDS["numbers"]
PLACES: dict[str, dict[str, str]] = _WORDS["places"]
MENTION: dict[str, float] = _WORDS["mention"]
FORMS: dict[str, float] = _WORDS["forms"]
STYLE_PHRASES: dict[str, str] = _WORDS["style_phrases"]
