"""What the page asks: one module a page, each with questions (their parts checked at the door) and pure
functions that answer them as JSON types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from strata.base.errors import BadValue

Answer = TypeVar("Answer", bound=Callable[..., Any])
Tell = Callable[[dict[str, Any]], None]
Text = Annotated[str, StringConstraints(max_length=200)]
FieldPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]*$", max_length=120)]
FieldValue = Annotated[str, StringConstraints(min_length=1, max_length=80)]
Count = Annotated[int, Field(ge=1, le=10**9)]


def _no_file(name: str) -> str:
    if name.lower().endswith((".toml", ".json", ".csv", ".onnx", ".et", ".py")):
        raise ValueError("names of shipped things only, no files")
    return name


Name = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+:-]*$", max_length=80),
    AfterValidator(_no_file),
]
NameOrNone = Annotated[
    str,
    StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._@+:-]*)?$", max_length=80),
    AfterValidator(_no_file),
]


class WebQuestion(BaseModel):
    """What a request says; anything else in it is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuestion(WebQuestion):
    """A request that says nothing."""


def first_mistake(mistakes: Sequence[Any]) -> str:
    """The first thing that is wrong with a question, in one line."""
    place = ".".join(str(p) for p in mistakes[0]["loc"] if p not in ("body", "query", "path"))
    said = mistakes[0]["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said


@dataclass(frozen=True, kw_only=True)
class Route:
    """One thing that can be asked: its path under /api/, the function that answers, what it takes."""

    path: str
    call: str  # "module.function" of `answers`
    says: str  # one line of documentation
    question: type[WebQuestion] = NoQuestion
    job: bool = False  # long: started, watched and cancelled; it takes `tell` and reports on the way
    kept: bool = False  # of a job: it goes on where nobody watches, as what it finds is kept
    example: dict[str, Any] | None = None


def answers(path: str, question: type[WebQuestion] = NoQuestion, **more: Any) -> Callable[[Answer], Answer]:
    """Make a function of `answers` the one that answers what is asked at a path; it is given the whole
    question, with what was not said as it usually is. The first sentence of its docstring is the path's own.
    """

    def named(function: Answer) -> Answer:
        @wraps(function)
        def answer(asked: dict[str, Any], *tell: Tell) -> Any:
            try:
                whole = question(**asked)
            except ValidationError as error:
                raise BadValue(first_mistake(error.errors())) from None
            return function(whole.model_dump(), *tell)

        call = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        says = (function.__doc__ or "").partition(". ")[0].removesuffix(".")
        answer.__dict__["route"] = Route(path=path, call=call, says=says, question=question, **more)
        return cast(Answer, answer)

    return named


def all_routes() -> list[Route]:
    """The routes of every module here.

    >>> "predict" in {route.path for route in all_routes()}
    True
    """
    found = sorted(module.name for module in iter_modules(__path__))
    every = [one for name in found for one in vars(import_module(f"{__name__}.{name}")).values()]
    return [vars(one)["route"] for one in every if isfunction(one) and "route" in vars(one)]
