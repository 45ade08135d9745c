"""Every kind of question by its name."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from strata.errors import UnknownName
from strata.validation.questions.question import QuestionKind

# Modules that hold questions, each in a table QUESTIONS by name.
ROOMS = ("kernels", "hardware", "network", "served", "programs", "steps")


@lru_cache(maxsize=1)
def questions() -> dict[str, QuestionKind]:
    """All questions."""
    rooms = [import_module(f"strata.validation.questions.{room}") for room in ROOMS]
    return {name: one for room in rooms for name, one in room.QUESTIONS.items()}


def question(name: str) -> QuestionKind:
    """A question by name.

    >>> sorted(question("train").answers)[:2]
    ['backward', 'does_not_fit']
    """
    known = questions()
    if name not in known:
        raise UnknownName("question", name, known, ", ".join(known))
    return known[name]
