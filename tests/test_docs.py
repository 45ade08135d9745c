"""The documentation runs: Python blocks, commands, links, and what is written from the code.

Blocks of one page share a folder and a namespace and run in order. A comment before a block says more about
it: `<!-- not run: why -->` leaves it out, `<!-- file: NAME -->` writes the block to that file, `<!-- exits: 2
-->` expects that exit code, and `<!-- lines: 1-12 /memory/+2 -->` says which lines of its output the page
shows. `python tests/test_docs.py` runs every page and writes its output into it anew.
"""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from strata.app.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    p for p in (ROOT / n for n in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")) if p.exists()
] + sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(
    r"(?:^<!-- (?P<word>not run|file|exits|lines): (?P<said>.*?) -->\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.M | re.S,
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PROMPT = "$ strata "
QUIET = {"NO_MKDOCS_2_WARNING": "1"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, the comment before it, where its text stands, and whether output of
    Python may stand in it.
    """

    kind: str
    body: str
    word: str
    said: str
    span: tuple[int, int]
    line: int
    follows: bool


def blocks(text):
    found, end = [], -1
    for match in BLOCK.finditer(text):
        follows = end >= 0 and not text[end : match.start()].strip()
        found.append(
            Block(
                match["kind"],
                match["body"],
                match["word"] or "",
                match["said"] or "",
                match.span("body"),
                text.count("\n", 0, match.start("body")),
                follows,
            )
        )
        end = match.end()
    return found


def commands(body):
    """The command lines of a console block, continued lines joined."""
    joined = body.replace("\\\n", " ")
    return [
        " ".join(line[2:].split()) if "'" not in line and '"' not in line else line[2:]
        for line in joined.splitlines()
        if line.startswith(PROMPT)
    ]


def run_command(command, code=0):
    """Run one command in this process; what it prints, or an AssertionError with what it said."""
    words = shlex.split(command)
    target = None
    if ">" in words:
        target = Path(words[words.index(">") + 1])
        words = words[: words.index(">")]
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        patch.setattr(sys, "argv", words)
        main()
    assert (left.value.code or 0) == code, f"{command}: exit code {left.value.code}: {err.getvalue()}"
    if target:
        target.write_text(out.getvalue())
        return ""
    said = out.getvalue() + (err.getvalue() if code else "")
    return "\n".join(line.rstrip() for line in said.strip("\n").splitlines())


def run_python(block, namespace, name):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile("\n" * block.line + block.body, name, "exec"), namespace)
    return said.getvalue().rstrip()


def run_page(path):
    """Run a page's blocks in order; yields each block with the output that belongs into it."""
    namespace, printed = {"__name__": "page"}, None
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.word == "file":
            target = Path(block.said)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body)
        elif block.word == "not run":
            printed = None
        elif block.kind == "python":
            printed = run_python(block, namespace, str(path))
        elif block.kind == "console" and PROMPT in block.body:
            code = int(block.said) if block.word == "exits" else 0
            shown = [run_command(c, code) for c in commands(block.body)]
            yield block, chosen("\n".join(filter(None, shown)), block.said if block.word == "lines" else "")
        elif block.kind == "text" and block.follows and printed:
            yield block, chosen(printed, block.said if block.word == "lines" else "")
            printed = None


def chosen(output, ranges):
    """Lines of an output by ranges such as `1-12` and `20-`, or from a match on (`/memory/+2`), with `...`
    where some are left out.
    """
    lines = output.splitlines()
    if not ranges:
        return output
    kept, last = [], 0
    for item in ranges.split():
        if item.startswith("/"):
            pattern, _, more = item[1:].rpartition("/")
            start = next(
                (i for i, line in enumerate(lines, 1) if i > last and re.search(pattern, line)), None
            )
            assert start, f"no line of the output matches {item}"
            stop = start + int(more or 0)
        else:
            first, dash, end = item.partition("-")
            start, stop = int(first), int(end or len(lines)) if dash else int(first)
        kept += (["..."] if start > last + 1 else []) + lines[start - 1 : stop]
        last = stop
    return "\n".join(kept + (["..."] if last < len(lines) else []))


def refreshed(block, output):
    """A block with its output put in anew, its commands kept."""
    if block.kind == "text":
        return output + "\n"
    kept, inside = [], False
    for line in block.body.splitlines():
        if line.startswith("$ ") or inside:
            kept.append(line)
            inside = line.endswith("\\")
    return "\n".join(kept) + ("\n" + output if output else "") + "\n"


def anchors(path):
    """Heading anchors of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def label(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=label)
def test_python_and_commands_of_a_page_run(path, tmp_path, monkeypatch, predicted_once):
    monkeypatch.chdir(tmp_path)
    for _ in run_page(path):
        pass


@pytest.mark.parametrize("path", PAGES, ids=label)
def test_links_of_a_page_lead_somewhere(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    broken = []
    for link in LINK.findall(text):
        if not re.match(r"[a-z]+:", link):
            place, _, anchor = link.partition("#")
            target = (path.parent / place).resolve() if place else path
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", PAGES, ids=label)
def test_pages_name_no_private_place(path):
    private = re.compile(r"(?<!\w)/work(?![\w-])|(?<!\w)shared/|index-url|artifactory|/root/|/home/\w|/tmp/")
    assert private.findall(path.read_text(encoding="utf-8")) == []


def script(name):
    """A script of docs/scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "scripts" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written():
    """Files of the docs that are written from the code, with what they should hold."""
    yield from (
        (ROOT / "docs" / "equations" / name, text)
        for name, text in script("equations").equation_pages().items()
    )
    yield from script("accuracy_page").accuracy_pages().items()
    yield ROOT / "docs" / "modules.md", script("module_map").module_map()
    yield ROOT / "CONTRIBUTING.md", script("module_map").contributing()
    yield ROOT / "docs" / "architecture.svg", script("architecture").architecture()


def test_what_is_written_from_the_code_is_up_to_date():
    stale = [label(path) for path, text in written() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make docs"


@pytest.mark.parametrize("name", ["equations", "module_map"])
def test_examples_in_scripts_of_the_docs_hold(name):
    assert doctest.testmod(script(name)).failed == 0


def test_the_folder_of_equations_holds_nothing_else():
    there = {path.name for path in (ROOT / "docs" / "equations").iterdir()}
    assert there == set(script("equations").equation_pages())


def test_the_site_builds_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, env=os.environ | QUIET
    )
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"?https?:")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES) and not any(fetched.search(p.read_text(encoding="utf-8")) for p in pages)


def test_the_request_of_the_docs_is_one_that_the_server_takes():
    from strata.app.web.answers.what_if import Design

    page = (ROOT / "docs" / "explore.md").read_text(encoding="utf-8")
    bodies = re.findall(r"-d '(\{.*\})'", page)
    assert bodies and all(Design.model_validate_json(body) for body in bodies)


def test_screenshots_are_small():
    shots = list((ROOT / "docs" / "explore").iterdir())
    assert shots and [label(shot) for shot in shots if shot.stat().st_size > 150_000] == []


def test_the_reader_of_blocks_finds_them():
    text = "<!-- not run: slow -->\n```console\n$ strata validate\n```\n\n```python\nprint(1)\n```\n\n<!-- lines: 2 -->\n```text\n1\n```\n"
    assert [(b.kind, b.word, b.said, b.follows) for b in blocks(text)] == [
        ("console", "not run", "slow", False),
        ("python", "", "", True),
        ("text", "lines", "2", True),
    ]
    assert chosen("a\nb\nc\nd", "1 3-") == "a\n...\nc\nd"
    assert chosen("a\nb\nc\nd", "/b/+1") == "...\nb\nc\n..."


def refresh(path):
    text = path.read_text(encoding="utf-8")
    changes = [(block.span, refreshed(block, output)) for block, output in run_page(path)]
    for (start, stop), body in reversed(changes):
        text = text[:start] + body + text[stop:]
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    script("equations").write_equations(ROOT / "docs" / "equations")
    for target, content in written():
        target.write_text(content, encoding="utf-8")
    for page in PAGES:
        if sys.argv[1:] and label(page) not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                refresh(page)
                print(label(page))
            except Exception as error:
                print(f"{label(page)}: {error}")
            os.chdir(ROOT)
