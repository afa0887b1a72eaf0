"""How stories, how-tos and discourses of the world name things."""

from mmlib.world import words
from mmlib.world.schema import GROUP_OF, Thing


def describe(thing: Thing, style: str, article: bool = True) -> str:
    """ "a small red tent", "a woman in a striped dress": the looks that the style shows."""
    looks = [thing.colour] if style != "black and white" else []
    looks += [thing.pattern] if thing.pattern != "plain" else []
    size = [thing.size] if thing.size != "medium" else []
    if GROUP_OF[thing.kind] == "person":
        garment = words.GARMENTS[thing.kind].split()[0]
        dress = f" in {with_article(' '.join([*looks, garment]))}" if looks else ""
        text = " ".join([*size, thing.kind]) + dress
    else:
        text = " ".join([*size, *looks, thing.kind])
    return with_article(text) if article else text


def with_article(text: str) -> str:
    """ "a tent", "an umbrella"."""
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"
