"""What the page asks: one module a page, each with `ROUTES`, questions (checked at the door) and pure
functions that answer them as JSON types.
"""

from importlib import import_module
from pkgutil import iter_modules

from strata.app.web.questions import Route


def all_routes() -> list[Route]:
    """The routes of every module here.

    >>> "predict" in {route.path for route in all_routes()}
    True
    """
    found = sorted(module.name for module in iter_modules(__path__))
    return [route for name in found for route in import_module(f"{__name__}.{name}").ROUTES]
