"""What a user types: numbers checked, names completed, and typing mistakes said in one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from strata.errors import BadValue, nearest


def whole(text: str | float, what: str) -> float:
    """A positive whole number, as typed.

    >>> whole("64", "--batch"), whole("1e3", "--input")
    (64.0, 1000.0)
    >>> whole("1.5", "--batch")
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: --batch must be a positive whole number, but got '1.5'
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (value >= 1 and value == value // 1 and value < 1e15):
        raise BadValue(f"{what} must be a positive whole number, but got '{text}'")
    return value


def set_items(items: list[str] | None, owner: str, example: str) -> dict[str, str]:
    """`--set` items of a command about one thing: quantities and their new values, with or without the
    thing's name before them.

    >>> set_items(["cooling.bond_thickness=5 um"], "cooling", "bond_thickness='5 um'")
    {'bond_thickness': '5 um'}
    """
    found = {}
    for item in items or []:
        path, equals, value = item.partition("=")
        if not (equals and path.strip() and value.strip()):
            raise BadValue(f"--set takes PATH=VALUE, like {example}, but got '{item}'")
        found[path.strip().removeprefix(f"{owner}.")] = value.strip()
    return found


def usage(error: Any) -> str:
    """One line for a mistake the option parser found: what is wrong, the nearest right word, where to read
    on.
    """
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "strata"
    param = getattr(error, "param", None)
    option = getattr(error, "option_name", None)
    if param is not None and type(error).__name__ == "MissingParameter":
        name = next((o for o in getattr(param, "opts", []) if o.startswith("--")), f"its {param.name}")
        said = f"{path.removeprefix('strata ')} needs {name}" + (
            f" ({param.help})" if getattr(param, "help", None) else ""
        )
    elif option and context and type(error).__name__ == "NoSuchOption":
        close = nearest(option, [o for p in context.command.params for o in p.opts])
        said = f"no option called '{option}'" + (f"; nearest: {', '.join(close)}" if close else "")
    elif (
        context and hasattr(context.command, "commands") and str(error.message).startswith("No such command")
    ):
        name = str(error.message).split("'")[1]
        known = list(context.command.commands)
        close = nearest(name, known)
        said = (
            f"no command called '{name}'"
            + (f"; nearest: {', '.join(close)}" if close else "")
            + f"; all: {', '.join(known)}"
        )
    else:
        said = " ".join(error.format_message().split()).rstrip(".")
        said = said[:1].lower() + said[1:]
    return f"{said}; see {path} --help"


def complain(said: str) -> None:
    """The one line on stderr."""
    sys.stderr.write(f"strata: {' '.join(said.split())}\n")


def strict(node: Any) -> Any:
    """Plain JSON types, with None where a number is not finite.

    >>> strict({"a": float("inf"), "b": [1.0, float("nan")]})
    {'a': None, 'b': [1.0, None]}
    """
    if isinstance(node, dict):
        return {str(k): strict(v) for k, v in node.items()}
    if isinstance(node, (list, tuple)):
        return [strict(v) for v in node]
    if hasattr(node, "tolist"):
        return strict(node.tolist())
    if isinstance(node, float) and not abs(node) < float("inf"):
        return None
    return node


def print_json(data: Any) -> None:
    """Strict JSON on stdout."""
    put(json.dumps(strict(data), indent=2, allow_nan=False, default=str))


def put(text: str) -> None:
    """Text and a line end on stdout; a reader that has seen enough (`| head`) ends the command quietly."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def plain_table(**options: Any) -> Any:
    """A table without lines, as every answer uses."""
    from rich.table import Table

    return Table(box=None, padding=(0, 1), **options)


def titled(title: str, table: Any, below: str = "") -> Any:
    """A table under its title, each line as wide as the screen (rich would fold a title to the table's
    width).
    """
    from rich.console import Group
    from rich.text import Text

    return Group(Text(title, style="bold"), table, *([Text(below, style="dim")] if below else []))


# -------------------------------------------------------------------------------------------- shell
# completion


def names_of(*kinds: str, before: str = "") -> Callable[[str], list[str]]:
    """A completer that offers the shipped names of some kinds."""

    def complete(incomplete: str) -> list[str]:
        from strata.params import names

        return [
            f"{before}{n}"
            for kind in kinds
            for n in names(kind)
            if n != "README" and f"{before}{n}".startswith(incomplete)
        ]

    return complete


def systems(incomplete: str) -> list[str]:
    """System names: a count and a chip, eight unless a count is typed already."""
    count, times, _ = incomplete.rpartition("x")
    return names_of("chip", before=f"{count}x" if times and count.replace("x", "").isdigit() else "8x")(
        incomplete
    )


def choices(*words: str) -> Callable[[str], list[str]]:
    """A completer that offers fixed words."""
    return lambda incomplete: [w for w in words if w.startswith(incomplete)]


def metrics(incomplete: str) -> list[str]:
    from strata.pricing.metrics import METRIC_UNITS

    return [m for m in METRIC_UNITS if m.startswith(incomplete)]


def precisions(incomplete: str) -> list[str]:
    from strata.precision import PRECISIONS

    return [p for p in PRECISIONS if p.startswith(incomplete)]


def items(ctx: Any, incomplete: str) -> list[str]:
    """Names of the kind that was typed before."""
    kind = str(ctx.params.get("kind") or "chip")
    return (
        systems(incomplete)
        if kind == "system"
        else names_of("models" if kind == "model" else kind)(incomplete)
    )
