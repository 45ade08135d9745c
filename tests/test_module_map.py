"""The map of modules: every module of the package stands on docs/modules.md once, under its place."""

import re
from pathlib import Path

import strata

PACKAGE = Path(strata.__file__).parent
PAGE = PACKAGE.parent / "docs" / "modules.md"


def listed():
    return re.findall(
        r"^\| \[[^\]]+\]\(\.\./(strata/[^)]+)\) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M
    )


def test_every_module_stands_on_the_map_once():
    there = {p.relative_to(PACKAGE.parent).as_posix() for p in PACKAGE.rglob("*.py")}
    named = [path for path, _ in listed()]
    assert len(named) == len(set(named))
    assert set(named) <= there, "the map names modules that are gone; run: make docs"
    missing = {path for path in there - set(named) if not path.endswith("__init__.py")}
    assert missing == set(), "run: make docs"


def test_every_module_says_in_a_sentence_what_it_is():
    assert [path for path, said in listed() if len(said.split()) < 2 or not said.endswith(".")] == []
