"""Links of a static site that lead nowhere: `python docs/site/links.py build/docs`."""

import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import bs4

ELSEWHERE = ("http", "https", "mailto", "data", "javascript")


def broken(site: Path) -> list[str]:
    """Links and pictures whose file, or whose place in a page, is not in the site."""
    names = (path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts)
    pages = {
        path: bs4.BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in names
    }
    ids = {path: {tag["id"] for tag in page.find_all(id=True)} for path, page in pages.items()}
    return [
        f"{path.relative_to(site).as_posix()}: {link}"
        for path, page in pages.items()
        for link in sorted(links_of(page))
        if not leads_somewhere(link, path, ids)
    ]


def links_of(page: bs4.BeautifulSoup) -> set[str]:
    """What a page links to or shows."""
    tags = page.find_all(lambda tag: tag.get("href") or tag.get("src"))
    return {str(tag.get("href") or tag["src"]) for tag in tags}


def leads_somewhere(link: str, path: Path, ids: dict[Path, set[str]]) -> bool:
    """Whether a link of the page at `path` is outside of the site or has its file and place."""
    parts = urlsplit(link)
    if parts.scheme in ELSEWHERE or link == "#":
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    place = unquote(parts.fragment)
    return target.is_file() and (not place or target not in ids or place in ids[target])


if __name__ == "__main__":
    faults = broken(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(f"{fault} leads nowhere" for fault in faults) or 0)
