"""What tests of the page share: the real server, a real browser, and a page that must stay free of errors."""

import shutil
import urllib.request

import pytest

from benchmarks.served import CHROMIUM, serving

from .visiting import Visit


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """`strata serve` on a free port, one for each process of the test run; it answers before tests begin."""
    pytest.importorskip("uvicorn", reason="the page's packages are not installed (strata[web])")
    with serving(tmp_path_factory.mktemp("studies")) as found:
        with urllib.request.urlopen(f"{found.url}/api/catalogue", timeout=60):  # a worker is there
            pass
        yield found


# A module at a time: while the browser is open, its own event loop runs in this thread, which tests of
# other modules need.
@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, headless; where it or Playwright is not installed, tests are skipped by name."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (strata[dev])"
    )
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=CHROMIUM)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, server):
    """Open pages as people do; whatever the browser's console complains of fails the test."""
    visits, contexts = [], []

    def opened(width=1280, height=900, theme="light", **how):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce", **how
        )
        contexts.append(context)
        visits.append(Visit(context.new_page(), server.url))
        return visits[-1]

    yield opened
    for context in contexts:
        context.close()
    assert not (wrong := [line for one in visits for line in one.wrong]), "\n".join(wrong)
