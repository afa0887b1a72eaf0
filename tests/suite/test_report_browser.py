"""The report in a headless Chromium, from the file system: phone, desk, paper, keyboard."""

import os
import re

import pytest
import report_runs as runs

from mmlib.suite import report

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SHEET = {"width": 688, "height": 980}  # the printed area of A4
# Texts whose colour stands out less than 4.5 to 1 from what lies behind them (WCAG AA).
CONTRAST = """() => {
  const parse = colour => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    return parts.length < 4 ? [...parts, 1] : parts;
  };
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim()) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.add(`${element.outerHTML.slice(0, 80)} ${ratio.toFixed(2)}`);
  }
  return [...found];
}"""
TOO_WIDE = """width => [...document.querySelectorAll("body *")]
  .filter(e => e.getBoundingClientRect().right > width + 1 && !e.closest(".scroll, pre, math"))
  .map(e => e.outerHTML.slice(0, 120)).slice(0, 5)"""
CUT = """width => [...document.querySelectorAll("main table, main pre, main img")]
  .filter(e => e.getBoundingClientRect().right > width + 1)
  .map(e => e.outerHTML.slice(0, 120)).slice(0, 5)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The report of a made-up run."""
    folder = tmp_path_factory.mktemp("browser")
    return report.write(runs.made_up_run(folder), expected=runs.recorded(folder)).parent


@pytest.fixture
def watched(browser):
    """A function that opens a page; at the end no page may have complained or left the disk."""
    troubles, context = [], browser.new_context()

    def note(request):
        if not request.url.startswith(("file:", "data:")):
            troubles.append(f"asked for {request.url}")

    def open_page(path, viewport=DESK):
        tab = context.new_page()
        tab.set_viewport_size(viewport)
        tab.on("console", lambda message: troubles.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        tab.on("request", note)
        tab.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
        tab.goto(path.as_uri())
        return tab

    yield open_page
    context.close()
    assert troubles == []


def check_pages(site, watched):
    for path in sorted(site.glob("*.html")):
        for viewport in (PHONE, DESK):
            tab = watched(path, viewport)
            width = tab.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], (path.name, tab.evaluate(TOO_WIDE, width))
            assert tab.evaluate(TOO_WIDE, viewport["width"]) == [], path.name
            if shots := os.environ.get("MMLIB_SCREENSHOTS"):
                tab.screenshot(path=f"{shots}/report-{path.stem}-{viewport['width']}.png")
            tab.close()
        tab = watched(path, SHEET)
        tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert tab.evaluate(CONTRAST) == [], path.name
        broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
        assert tab.evaluate(broken) == []
        tab.emulate_media(media="print")
        assert tab.evaluate(CUT, SHEET["width"]) == [], path.name
        tab.close()


def test_every_page(site, watched):
    check_pages(site, watched)


@pytest.mark.slow
def test_every_page_of_the_committed_notebooks(committed_site, watched):
    check_pages(committed_site, watched)


def test_the_checks_find_what_they_look_for(site, watched):
    tab = watched(site / "about.html", PHONE)
    for width in (0, PHONE["width"] + 50):
        tab.evaluate(
            """width => {
            const p = document.createElement("p");
            p.textContent = "x";
            p.style = `color: #888; max-width: none; width: ${width}px`;
            document.querySelector("main").append(p); }""",
            width,
        )
    assert "#888" in tab.evaluate(CONTRAST)[0] or "rgb" in tab.evaluate(CONTRAST)[0]
    assert len(tab.evaluate(TOO_WIDE, PHONE["width"])) == 1
    assert tab.evaluate("document.documentElement.scrollWidth") > PHONE["width"]


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_clicks_lead_where_they_say(site, watched, viewport):
    tab = watched(site / "index.html", viewport)
    for words, name in (
        ("Claims", "ledger"), ("Tables", "tables"), ("Figures", "figures"), ("Papers", "papers"),
        ("About", "about"), ("Notebook 01", "01_links"), ("Notebook 02", "02_later"),
        ("Overview", "index"),
    ):  # fmt: skip
        tab.get_by_role("navigation", name="Report").get_by_role("link", name=words).click()
        tab.wait_for_url(f"**/{name}.html")
        assert tab.locator("header a[aria-current=page]").count() == 1
    tab.get_by_role("link", name="Claims of 01").click()
    tab.wait_for_url("**/ledger.html#01_links")
    tab.get_by_text("2 parts", exact=True).click()
    assert tab.get_by_text("<story>:").is_visible()
    tab.goto((site / "01_links.html").as_uri())
    tab.get_by_text("Contents of this page").click()
    tab.get_by_role("link", name="2. Tables").click()
    assert tab.url.endswith("#2.-Tables")
    assert -5 <= tab.locator("[id='2.-Tables']").bounding_box()["y"] <= 60
    tab.locator(".notebook a:has(img)").first.click()
    tab.wait_for_url(re.compile(r"01_links_files/.*\.png$"))


def test_the_keyboard_skips_to_the_content_and_scrolls_tables(site, watched):
    tab = watched(site / "01_links.html", PHONE)
    tab.keyboard.press("Tab")
    skip = tab.get_by_role("link", name="Skip to the content")
    assert skip.bounding_box()["x"] >= 0
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    box = tab.locator(".scroll").first
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
    box.focus()
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("document.querySelector('.scroll').scrollLeft > 0")


def test_a_reader_of_screens_finds_its_way(site, watched):
    tab = watched(site / "tables.html")
    for role in ("banner", "main", "contentinfo"):
        assert tab.get_by_role(role).count() == 1
    table = tab.get_by_role("table", name="coco")
    assert table.get_by_role("columnheader", name="AUC").count() == 1
    assert table.get_by_role("rowheader").all_inner_texts() == ["DC", "AP"]


def test_print_shows_all_and_needs_more_than_a_page(site, watched):
    tab = watched(site / "01_links.html")
    printed = tab.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 1
    tab.emulate_media(media="print")
    assert not tab.get_by_role("navigation", name="Report").is_visible()
    answer = tab.get_by_text("There are three")
    fold = answer.locator("xpath=ancestor::details")
    folded, summary = fold.bounding_box(), fold.locator("summary").bounding_box()
    assert folded["height"] > 1.5 * summary["height"]
