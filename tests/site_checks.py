"""What must hold of every page of a static site; each check returns the faults that it found."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import bs4

LOADS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


@cache
def _parsed(path: Path, stamp: tuple[int, int]) -> bs4.BeautifulSoup:
    """A page, parsed once for as long as its file stays as it is."""
    return bs4.BeautifulSoup(path.read_text(), "html.parser")


def pages(site: Path) -> dict[str, bs4.BeautifulSoup]:
    """The pages of a site, parsed, by their paths in it."""
    return {
        path.relative_to(site).as_posix(): _parsed(
            path, (path.stat().st_mtime_ns, path.stat().st_size)
        )
        for path in sorted(site.rglob("*.html"))
    }


def broken_links(site: Path) -> list[str]:
    """Links and sources that lead to no file of the site, or to no place in its page."""
    parsed, faults = pages(site), []
    ids = {name: {tag["id"] for tag in soup.find_all(id=True)} for name, soup in parsed.items()}
    for name, soup in parsed.items():
        for tag in soup.find_all(True):
            for attribute in ("href", "src"):
                link = tag.get(attribute)
                if link is None or link.startswith("data:"):
                    continue
                parts = urlsplit(link)
                if parts.scheme in ("http", "https", "mailto") and tag.name == "a":
                    continue  # for readers who are online
                target = (site / name).parent / unquote(parts.path) if parts.path else site / name
                place = unquote(parts.fragment)
                inside = target.resolve().is_relative_to(site.resolve())
                if parts.scheme or not inside or not target.is_file():
                    faults.append(f"{name}: {link} leads nowhere")
                elif place:
                    other = target.resolve().relative_to(site.resolve()).as_posix()
                    if place not in ids.get(other, ()):
                        faults.append(f"{name}: {link} names no place")
    return faults


def outside_loads(site: Path) -> list[str]:
    """Anything that a browser would fetch from a network, and any script."""
    faults = []
    for name, soup in pages(site).items():
        faults += [f"{name}: a script" for _ in soup.find_all("script")]
        for tag, attribute in LOADS.items():
            for found in soup.find_all(tag):
                if re.match(r"(https?:)?//", found.get(attribute, "")):
                    faults.append(f"{name}: {found[attribute]}")
        for found in soup.find_all(style=True):
            faults.append(f"{name}: a style of its own on <{found.name}>")
    for style in site.rglob("*.css"):
        if re.search(r"@import|url\(", style.read_text()):
            faults.append(f"{style.name} loads something")
    return faults


def form_faults(site: Path) -> list[str]:
    """Faults of structure: headings, landmarks, names, alt texts, tables, ids, equations."""
    faults = []
    for name, soup in pages(site).items():
        found = []
        levels = [int(h.name[1]) for h in soup.find_all(re.compile("^h[1-6]$"))]
        if levels.count(1) != 1 or levels[0] != 1:
            found.append(f"headings begin {levels[:3]}, with {levels.count(1)} of level 1")
        found += [f"h{a} is followed by h{b}" for a, b in pairwise(levels) if b > a + 1]
        if soup.html.get("lang") != "en":
            found.append("no language")
        if not (soup.title and soup.title.get_text(strip=True)):
            found.append("no title")
        for landmark in ("header", "main", "footer"):
            if len(soup.find_all(landmark)) != 1:
                found.append(f"not one {landmark}")
        first = soup.body.find("a")
        if first.get("href") != "#main" or soup.main.get("id") != "main":
            found.append("no skip link at the start")
        ids = [tag["id"] for tag in soup.find_all(id=True)]
        found += [
            f"the id {i} is given twice" for i in sorted({i for i in ids if ids.count(i) > 1})
        ]
        found += [f"no alt text: {i}" for i in soup.find_all("img") if not i.get("alt", "").strip()]
        found += [
            f"alt text of a program: {image['alt']}"
            for image in soup.find_all("img", alt=re.compile("^No description"))
        ]
        for table in soup.find_all("table"):
            if not (table.caption and table.caption.get_text(strip=True)):
                found.append("a table without caption")
            found += [f"no scope: {cell}" for cell in table.find_all("th", scope=False)]
            if not table.find("th"):
                found.append("a table without headers")
        for link in soup.find_all("a", href=True):
            inner = " ".join(image.get("alt", "") for image in link.find_all("img"))
            if not (link.get_text(strip=True) or link.get("aria-label") or inner.strip()):
                found.append(f"a link without text: {link}")
        found += [f"LaTeX left over: {m}" for m in soup.find_all("code", class_="latex")]
        faults += [f"{name}: {fault}" for fault in found]
    return faults
