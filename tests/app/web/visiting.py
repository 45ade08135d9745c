"""People at the page: where they go, what they click, and what the browser complains of."""

import json
from base64 import urlsafe_b64encode
from contextlib import contextmanager


def address(page="", state=None):
    """The part of an address after #: a page and its state, as the page itself packs it."""
    if not state:
        return f"#{page}"
    packed = urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")
    return f"#{page}/{packed}"


class Visit:
    """One person at one page: goes somewhere, waits until it has settled, and counts clicks."""

    def __init__(self, page, url):
        self.page, self.url, self.wrong, self.clicks = page, url, [], 0
        self.refused = ()  # statuses whose line in the console the test provokes
        page.on("console", self.heard)
        page.on("pageerror", lambda error: self.wrong.append(f"page error: {error}"))
        page.set_default_timeout(20_000)

    def heard(self, message):
        if message.type not in ("error", "warning"):
            return
        if any(f"status of {status}" in message.text for status in self.refused):
            return
        self.wrong.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def go(self, page="", state=None):
        self.page.goto(f"{self.url}/{address(page, state)}")
        return self.settled()

    def settled(self):
        """Wait until the page has a heading and nothing in it waits for an answer."""
        self.page.wait_for_function(
            """() => { const main = document.getElementById("main");
              const calm = main.querySelector("h1, .error") && !main.querySelector(".busy");
              const since = (globalThis.calmSince ??= { at: 0 });
              if (!calm) { since.at = 0; return false; }
              since.at ||= performance.now();
              return performance.now() - since.at > 120; }""",
            polling=40,
        )
        self.page.evaluate("() => { globalThis.calmSince = undefined; }")
        return self

    def click(self, what):
        """One click of a person."""
        self.clicks += 1
        (self.page.locator(what) if isinstance(what, str) else what).click()

    def text(self, what="#main"):
        return self.page.locator(what).first.inner_text()


@contextmanager
def allowed(visit, *statuses):
    """Refusals that a test provokes: the browser logs each of them."""
    visit.refused = statuses
    yield
    visit.refused = ()
