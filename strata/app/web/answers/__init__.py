"""What the page asks: one module a page, each with questions (checked at the door) and pure functions that
answer them as JSON types.
"""

from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules

from strata.app.web.questions import Route


def all_routes() -> list[Route]:
    """The routes of every module here.

    >>> "predict" in {route.path for route in all_routes()}
    True
    """
    found = sorted(module.name for module in iter_modules(__path__))
    every = [one for name in found for one in vars(import_module(f"{__name__}.{name}")).values()]
    return [one.__dict__["route"] for one in every if isfunction(one) and "route" in vars(one)]
