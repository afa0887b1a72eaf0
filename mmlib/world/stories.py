"""How stories, how-tos and discourses of the world name things."""

from mmlib.world import words
from mmlib.world.schema import GROUP_OF, Thing


def describe(item: Thing, style: str, article: bool = True) -> str:
    """ "a small red tent", "a woman in a striped dress": the looks that the style shows."""
    looks = [item.colour] if style != "black and white" else []
    looks += [item.pattern] if item.pattern != "plain" else []
    size = [item.size] if item.size != "medium" else []
    if GROUP_OF[item.kind] == "person":
        garment = words.GARMENTS[item.kind].split()[0]
        dress = f" in {with_article(' '.join([*looks, garment]))}" if looks else ""
        text = " ".join([*size, item.kind]) + dress
    else:
        text = " ".join([*size, *looks, item.kind])
    return with_article(text) if article else text


def with_article(text: str) -> str:
    """ "a tent", "an umbrella"."""
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"
