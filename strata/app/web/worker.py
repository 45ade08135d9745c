"""A worker process: it reads questions from its standard input, answers one after the other, and ends when
the server does. `python -m strata.app.web.worker`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, BinaryIO

from strata.app.web.fence import Fenced, fence
from strata.app.web.plain import plain
from strata.app.web.wire import frame, parsed
from strata.errors import StrataError, Unforeseen, printable_line

ANSWERS = "strata.app.web.answers"
Tell = Callable[[dict[str, Any]], None]
Answer = Callable[..., Any]


def answered(call: str, question: dict[str, Any], tell: Tell, package: str = ANSWERS) -> dict[str, Any]:
    """The answer of a function of `answers`, by "module.function"; those that take `tell` report on the way.

    >>> answered("catalogue.shipped_names", {}, print)["done"]["chips"][0]["name"]
    'a100-80'
    >>> answered("what_if.predicted", {"model": "nonesuch", "system": "8xh200"}, print)["status"]
    422
    """
    module, _, name = call.partition(".")
    function = getattr(import_module(f"{package}.{module}"), name)
    try:
        done = function(question, tell) if getattr(function, "tells", False) else function(question)
    except Unforeseen as error:
        return {"error": str(error), "status": 500}
    except StrataError as error:
        return {"error": str(error), "status": 422}
    except Fenced as error:
        return {"error": f"{error.filename or 'this'}: {error.strerror}", "status": 422}
    except RecursionError:
        return {"error": "this is nested too deep", "status": 422}
    except MemoryError:
        return {"error": "this needs more memory than a worker has", "status": 422}
    except Exception as error:  # a fault of ours; the page says so in a line and goes on
        if os.environ.get("STRATA_TRACEBACK"):
            import traceback

            traceback.print_exc()
        return {
            "error": printable_line(f"a fault of strata's: {type(error).__name__}: {error}"),
            "status": 500,
        }
    return {"done": plain(done)}


def tells(function: Answer) -> Answer:
    """Mark an answer that reports on the way: it takes the question and `tell`."""
    function.tells = True  # type: ignore[attr-defined]
    return function


def work(inward: BinaryIO, outward: BinaryIO, package: str) -> None:
    """Answer questions until there are no more."""

    def tell(told: dict[str, Any]) -> None:
        outward.write(frame({"told": plain(told)}))
        outward.flush()

    while line := inward.readline():
        asked = parsed(line)
        outward.write(frame(answered(asked["call"], asked["question"], tell, package)))
        outward.flush()


def main() -> None:
    """Answer the server. What libraries print goes to stderr: the standard output carries answers alone."""
    warnings.simplefilter("ignore")
    package = sys.argv[1] if len(sys.argv) > 1 else ANSWERS
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    fence(os.getcwd())
    outward = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    work(sys.stdin.buffer, outward, package)


if __name__ == "__main__":
    main()
