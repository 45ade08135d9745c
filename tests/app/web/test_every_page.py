"""Every page in a real browser: it opens without a complaint, for all eyes, on wide and narrow screens."""

import os
from pathlib import Path

import pytest

from strata.app.web.server import page_list

PAGES = [name for name, *_ in page_list()]
SHOTS = os.environ.get("STRATA_SHOTS", "")
WIDE, NARROW = 1280, 390


@pytest.fixture(scope="module")
def axe():
    """axe's checks of contrast, names, order and keyboard, or a skip where they are not installed."""
    package = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    return package.Axe()


def hard(axe, page):
    """What axe finds to be serious or worse: rule, element, and why."""
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']}: {' '.join(node['failureSummary'].split())[:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"][:4]
    ]


def shot(page, name, width, theme):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.wait_for_timeout(1500)
        page.screenshot(path=f"{SHOTS}/{name}-{width}-{theme}.png", full_page=True)


@pytest.mark.parametrize("name", ["start", *PAGES])
def test_a_page_opens_for_all_eyes_and_screens(visit, axe, name):
    """Headings, no complaint, no sideways scrolling at either width, axe clean, light and dark."""
    one = visit(theme="light")
    page = one.page
    one.go("" if name == "start" else name)
    assert page.locator("#main h1").count() == 1
    assert page.locator("#main .error").count() == 0, one.text("#main .error")
    wrong = []
    for theme in ("light", "dark"):
        if theme == "dark":
            page.locator("#theme").click()
            assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 900})
            if over := too_wide(page):
                wrong.append(f"{theme} at {width} px: {over} px too wide: {widest(page)}")
            if loose := page.evaluate(LOOSE):
                wrong.append(f"{theme} at {width} px: charts stand out of their place: {loose}")
            shot(page, name, width, theme)
            if (theme, width) in (("light", WIDE), ("dark", NARROW)):
                wrong += [f"{theme} at {width} px: {line}" for line in hard(axe, page)]
    assert not wrong, "\n".join(wrong)


# Charts that are higher or wider than the element they are drawn in.
LOOSE = """() => [...document.querySelectorAll(".chart")].filter((e) => e.isConnected && e.clientWidth > 0)
  .filter((e) => [...e.querySelectorAll("svg.main-svg")].some((s) =>
    s.clientHeight > e.clientHeight + 3 || s.clientWidth > e.clientWidth + 3))
  .map((e) => `${e.closest("section, .panel")?.querySelector("h2")?.textContent}: ${e.clientHeight} px`)"""


def too_wide(page):
    """By how many pixels the page can be scrolled sideways, once charts have followed the window."""
    for _ in range(30):
        page.wait_for_timeout(50)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over <= 0:
            return 0
    return over


def widest(page):
    """Elements that stand out of the window, for the one who mends it."""
    return page.evaluate(
        """() => [...document.querySelectorAll("body *")]
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .wide, svg, nav"))
        .slice(0, 6).map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}`)"""
    )


def test_the_start_page_leads_to_every_page(visit):
    """By the tiles and by the bar: each has its heading and its title."""
    one = visit()
    one.go()
    tiles = {a.get_attribute("href") for a in one.page.locator("a.tile").all()}
    assert {f"#{name}" for name in PAGES} <= tiles
    for link in one.page.locator("#nav a").all():
        link.click()
        one.page.wait_for_selector("#main h1, #main .error")
        assert one.page.title().endswith(" · Strata")
        assert (
            link.get_attribute("href") is None or one.page.locator("#nav a[aria-current=page]").count() == 1
        )
        assert one.page.locator("#main .error").count() == 0
