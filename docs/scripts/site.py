"""What the site's builder needs beside the pages: files outside docs/ that pages link to, and formulas as MathML.

MkDocs calls `on_files`, `on_page_markdown` and `on_post_page` (`hooks` in mkdocs.yml). Nothing is fetched: browsers draw MathML.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = "source"  # the site's folder for what lies outside docs/
AS_THEY_ARE = (".md", ".svg", ".csv", ".json")  # other files are shown as text
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"(?<![\\$\w`])\$([^$\n`]+)\$(?![\w`])")


def on_files(files: Files, config: Any) -> Files:
    """Every file outside docs/ that a page links to becomes part of the site, and so do those its pages link to."""
    pages = [DOCS / page.src_uri for page in files.documentation_pages()]
    for page in pages:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target in (linked(page, link[1]) for link in LINK.finditer(text)):
            if (
                target
                and not target.is_relative_to(DOCS)
                and files.get_file_from_path(uri_of(target)) is None
            ):
                files.append(File.generated(config, uri_of(target), abs_src_path=str(target)))
                if target.suffix == ".md":
                    pages.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links lead to the site's copies, and formulas become MathML; code stays as it is."""
    uri, done, parts = page.file.src_uri, 0, []
    for block in BLOCK.finditer(markdown):
        parts.append(_text(markdown[done : block.start()], uri))
        formula = block[1] == "math"
        parts.append(convert(" ".join(block[2].split()), display="block") if formula else block[0])
        done = block.end()
    return "".join((*parts, _text(markdown[done:], uri)))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme's search is a dialogue without a name, which readers of screens need."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def linked(page: Path, link: str) -> Path | None:
    """The file of the repository that a link means; of a folder its README."""
    target = (page.parent / link).resolve()
    target = target / "README.md" if target.is_dir() else target
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def uri_of(path: Path) -> str:
    """Where a file of the repository lies in the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    shown = "" if path.suffix in AS_THEY_ARE else ".txt"
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}{shown}"


def _text(text: str, uri: str) -> str:
    place = ROOT / uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else DOCS / uri

    def redirected(link: re.Match[str]) -> str:
        target = linked(place, link[1])
        if target is None:
            return link[0]
        return f"]({posixpath.relpath(uri_of(target), posixpath.dirname(uri) or '.')}{link[2] or ''})"

    return INLINE.sub(lambda formula: convert(formula[1]), LINK.sub(redirected, text))
