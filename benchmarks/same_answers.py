"""`make same REV=...`: answers of this tree beside those of another commit; prints what differs and ends with 1.

Compared are the output of every command of the docs (as `--json` where a command has it), the verdict of every claim of every
study, and the prediction of every measured row, to 1e-9. Each tree answers in a process of its own, by its own docs' reader, to the
commands that stand in this tree's pages.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("docs", "studies", "points")
CLOSE = 1e-9
# What differs from run to run: times taken, paths, dates and hashes.
PASSING = re.compile(
    r"\d[\d.,]* (?:ms|s|us|min)\b(?= (?:taken|to search|of search))|/\S*/tmp\S*|\b[0-9a-f]{12,}\b"
)


def docs_answers() -> dict[str, Any]:
    """Output of each command of the pages, by page and command."""
    sys.path.insert(0, str(Path.cwd() / "tests"))
    import test_docs as docs

    answers = {}
    for page in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for block in docs.blocks(page.read_text(encoding="utf-8")):
                if block.word == "file":
                    Path(block.said).parent.mkdir(parents=True, exist_ok=True)
                    Path(block.said).write_text(block.body, encoding="utf-8")
                elif block.kind == "console" and block.word != "not run":
                    code = int(block.said) if block.word == "exits" else 0
                    for command in docs.commands(block.body):
                        answers[f"{page.name}: {command}"] = answer(docs, command, code)
            os.chdir(ROOT)
    return answers


def answer(docs: Any, command: str, code: int) -> Any:
    """Printed JSON, or text where a command has none."""
    if code == 0 and ">" not in command and "--json" not in command:
        try:
            return json.loads(docs.run_command(f"{command} --json"))
        except (AssertionError, ValueError):
            pass  # no such option
    try:
        return docs.run_command(command, code)
    except AssertionError as error:
        return f"failed: {error}"


def studies_answers() -> dict[str, Any]:
    """Claims of each shipped study, with their verdicts and figures; searches are those it found before."""
    from strata.studies import run_study, study_names

    return {name: run_study(name, quick=True).as_dict()["claims"] for name in study_names()}


def points_answers() -> dict[str, Any]:
    """Prediction of each measured row, by file."""
    from strata.validation.accuracy.run import validate
    from strata.validation.accuracy.tables import ONE_IN

    points = validate(ROOT / "validation", keep_points=True, one_in=ONE_IN)["points"]
    return {f"{p['file']}:{p['row']} {p['group']} {i}": p["predicted"] for i, p in enumerate(points)}


def differences(mine: Any, theirs: Any, path: str = "") -> list[str]:
    """Places at which two answers differ.

    >>> differences({"a": [1.0, "x"]}, {"a": [1.0 + 1e-12, "y"]})
    ['/a/1: x, there y']
    """
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = [*mine, *(k for k in theirs if k not in mine)]
        return [d for k in keys for d in differences(mine.get(k), theirs.get(k), f"{path}/{k}")]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        both = enumerate(zip(mine, theirs, strict=True))
        return [d for i, (a, b) in both for d in differences(a, b, f"{path}/{i}")]
    numbers = all(isinstance(v, int | float) for v in (mine, theirs))
    if numbers and math.isclose(mine, theirs, rel_tol=CLOSE, abs_tol=0):
        return []
    said = [PASSING.sub("", v) if isinstance(v, str) else v for v in (mine, theirs)]
    return [] if said[0] == said[1] else [f"{path}: {mine}, there {theirs}"]


def answers_of(tree: Path, kind: str) -> Any:
    """What a tree answers, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "answers.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--collect", kind, str(kept)]
        subprocess.run(command, cwd=tree, env=environment, check=True)
        return json.loads(kept.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--collect"]:
        kind, kept = arguments[1:]
        collected = {"docs": docs_answers, "studies": studies_answers, "points": points_answers}[kind]()
        Path(kept).write_text(json.dumps(collected, default=str), encoding="utf-8")
        return 0
    revision, kinds = arguments[0], arguments[1:] or KINDS
    other = ROOT / "out" / "bench" / revision
    if not other.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(other), revision], cwd=ROOT, check=True)
    count = 0
    for kind in kinds:
        mine, theirs = (answers_of(tree, kind) for tree in (ROOT, other))
        places = differences(mine, theirs)
        count += len(places)
        print(f"{kind}: {len(mine)} compared, {len(places)} differences")
        print("".join(f"  {place[:400]}\n" for place in places), end="")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
