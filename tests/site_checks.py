"""What must hold of every page of a static site; each check returns the faults that it found."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import bs4


def pages(site: Path) -> dict[str, bs4.BeautifulSoup]:
    """The pages of a site, parsed, by their paths in it."""
    paths = sorted(site.rglob("*.html"))
    texts = {path.relative_to(site).as_posix(): path.read_text() for path in paths}
    return {name: bs4.BeautifulSoup(text, "html.parser") for name, text in texts.items()}


def faults(site: Path) -> list[str]:
    """Links that lead nowhere, anything fetched from a network, scripts, pictures without texts."""
    parsed, found = pages(site), []
    ids = {name: {tag["id"] for tag in soup.find_all(id=True)} for name, soup in parsed.items()}
    for name, soup in parsed.items():
        found += [f"{name}: a script" for _ in soup.find_all("script")]
        found += [f"{name}: no alt text" for i in soup.find_all("img") if not i.get("alt")]
        found += [f"{name}: LaTeX {code.text}" for code in soup.find_all("code", class_="latex")]
        found += [f"{name}: @import" for style in soup.find_all("style") if "@import" in style.text]
        for tag in soup.find_all(lambda tag: tag.get("href") or tag.get("src")):
            link = tag.get("href") or tag["src"]
            parts = urlsplit(link)
            online = tag.name == "a" and parts.scheme in ("https", "http", "mailto")
            if online or parts.scheme == "data":
                continue
            path = unquote(parts.path) or name
            if parts.scheme or parts.netloc or not (site / path).is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and not {parts.fragment, unquote(parts.fragment)} & ids[path]:
                found.append(f"{name}: {link} names no place")
    return found
