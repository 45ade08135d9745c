"""Answers that behave badly, for tests of the workers."""

import subprocess
import sys
import time
from pathlib import Path

from strata.app.web.answers import WebQuestion, answers


def echo(question):
    return question


def fault(_):
    return 1 / 0


def opened(question):
    return Path(question["path"]).read_text()


def written(question):
    Path(question["path"]).write_text("x")
    return {}


def started(_):
    return subprocess.run([sys.executable, "-c", "pass"], check=True).returncode


def slow_short(question):
    time.sleep(question["seconds"])
    return {}


class Seconds(WebQuestion):
    seconds: float


@answers("slow", Seconds, job=True)
def slow(question, tell):
    """Sleep."""
    tell({"begun": True})
    time.sleep(question["seconds"])
    return {"slept": question["seconds"]}


def predicted(question):
    from strata.app.web.answers.what_if import predicted

    return predicted(question)
