"""A page added as the docs say, in a copy of the package, seen in a browser."""

import shutil
from pathlib import Path

from test_docs import blocks

import strata
from benchmarks.served import serving

from .visiting import Visit

PACKAGE = Path(strata.__file__).parent


def test_a_page_of_two_files_is_listed_and_opens(tmp_path, browser):
    shutil.copytree(PACKAGE, tmp_path / "strata", ignore=shutil.ignore_patterns("__pycache__"))
    how_to = (PACKAGE.parent / "docs/how-to/add-a-page.md").read_text(encoding="utf-8")
    files = [b for b in blocks(how_to) if b.word == "file"]
    for block in files:
        (tmp_path / block.said).write_text(block.body, encoding="utf-8")
    with serving(tmp_path / "studies", root=tmp_path) as server:
        visit = Visit(browser.new_page(), server.url).go()
        visit.click(visit.page.locator("#nav").get_by_text("Ridge"))
        visit.settled().page.get_by_label("chip").select_option("b200")
        visit.settled().page.wait_for_function("() => location.hash.length > 8")
        assert "Ridge" in visit.text("h1") and "fp4" in visit.text() and visit.wrong == []
    assert len(files) == 2
