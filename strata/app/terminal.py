"""What a user types and sees: numbers checked, names completed, answers printed, mistakes in one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from strata.base.errors import BadValue, nearest, printable_line
from strata.base.units import typed_quantity

WIDE = 140  # columns of an answer that goes into a file or a pipe


def typed_number(text: str, option: str) -> float:
    """A finite number, as typed."""
    from strata.base.units import finite_number

    return finite_number(text, option)


def typed_bytes(text: str, option: str) -> float:
    """A number of bytes, as typed, with or without a unit.

    >>> typed_bytes("64kB", "--bytes"), typed_bytes("1 MiB", "--bytes"), typed_bytes("4096", "--bytes")
    (64000.0, 1048576.0, 4096.0)
    """
    value = typed_quantity(text, "B", option)
    if not 0 < value < float("inf"):
        raise BadValue(f"{option} must be a positive number of bytes, but got '{text}'")
    return value


def typed_pairs(items: list[str] | None, option: str, written: str) -> dict[str, str]:
    """Items of an option that are written NAME=VALUE, each name with its value.

    >>> typed_pairs(["inter=nvlink5"], "--link", "NETWORK=NAME, like inter=nvlink5")
    {'inter': 'nvlink5'}
    """
    pairs = {}
    for item in items or []:
        name, _, value = (part.strip() for part in item.partition("="))
        if not (name and value):
            raise BadValue(f"{option} takes {written}, but got '{item}'")
        pairs[name] = value
    return pairs


def set_items(
    items: list[str] | None, owner: str, example: str, call: Callable[..., Any] | None = None
) -> dict[str, str]:
    """`--set` items of a command about one thing: quantities and their new values, with or without the
    thing's name before them. `call`: the function that takes them beside arguments of its own.

    >>> set_items(["cooling.bond_thickness=5 um"], "cooling", "bond_thickness='5 um'")
    {'bond_thickness': '5 um'}
    """
    pairs = typed_pairs(items, "--set", f"PATH=VALUE, like {example}")
    changes = {path.removeprefix(f"{owner}."): value for path, value in pairs.items()}
    own: Mapping[str, Parameter] = {} if call is None else signature(call).parameters
    for path in changes:
        if path in own and own[path].kind is not Parameter.VAR_KEYWORD:
            raise BadValue(f"--set changes quantities, like {example}; '{path}' is none of a {owner}")
    return changes


def say(*parts: Any) -> None:
    """Print tables and text on stdout; without a terminal 140 columns wide, no blanks at line ends."""
    from rich.console import Console

    if sys.stdout.isatty():
        screen = Console(highlight=False, markup=False)
        for part in parts:
            screen.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))
        return
    plain = Console(width=WIDE, highlight=False, markup=False, color_system=None, force_terminal=False)
    with plain.capture() as captured:
        for part in parts:
            plain.print(part, soft_wrap=bool(getattr(part, "no_wrap", False)))
    put_line("\n".join(line.rstrip() for line in captured.get().splitlines()))


_written: list[tuple[str, Path, str]] = []  # files of this command so far: what, where, what to do with it


def wrote(what: str, path: Path, hint: str = "") -> None:
    """A file that the command wrote, told at its end: a mistake is one line, whatever was written before."""
    _written.append((what, path, hint))


def tell_written() -> None:
    """Say which files the command wrote."""
    sys.stderr.write("".join(f"{what}: {path}{hint}\n" for what, path, hint in _written))
    _written.clear()


def print_json(data: Any, *, units: bool = True) -> None:
    """Strict JSON on stdout, with the units of its numbers where it is an answer."""
    from strata.app.rows_out import with_units

    told = with_units(plain_json(data)) if units else plain_json(data)
    put_line(json.dumps(told, indent=2, allow_nan=False, default=str))


def plain_json(node: Any) -> Any:
    """Plain JSON types, with None where a number is not finite.

    >>> plain_json({"a": float("inf"), "b": [1.0, float("nan")]})
    {'a': None, 'b': [1.0, None]}
    """
    if isinstance(node, Mapping):
        return {str(k): plain_json(v) for k, v in node.items()}
    if isinstance(node, (list, tuple, set)):
        return [plain_json(v) for v in node]
    if hasattr(node, "tolist"):
        return plain_json(node.tolist())
    if isinstance(node, float) and not abs(node) < float("inf"):
        return None
    return node


def put_line(text: str) -> None:
    """Text and a line end on stdout; a reader that has seen enough (`| head`) ends the command quietly."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def plain_table(*headings: str, **options: Any) -> Any:
    """A table without lines, as every answer uses. A heading after < or > is of a column on that side that
    is never folded.
    """
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), **options)
    for heading in headings:
        side = heading[:1] in ("<", ">")
        right = heading.startswith(">")
        table.add_column(heading[side:], justify="right" if right else "left", no_wrap=side)
    return table


def words(said: str, style: str = "", *, no_wrap: bool | None = None) -> Any:
    """Text in a style."""
    from rich.text import Text

    return Text(said, style, no_wrap=no_wrap)


def titled(title: str, table: Any, below: str = "") -> Any:
    """A table under its title, each line as wide as the screen (rich would fold a title to the table's
    width).
    """
    from rich.console import Group

    return Group(words(title, "bold"), table, *([words(below, "dim")] if below else []))


def complain(said: str | Exception) -> None:
    """The one line on stderr, with what was written before; what is an error of ours is one line already."""
    line = printable_line(said) if isinstance(said, str) else str(said)
    if _written:
        line += f" (written before: {', '.join(path.name for _, path, _ in _written)})"
        _written.clear()
    sys.stderr.write(f"strata: {line.encode('utf-8', 'backslashreplace').decode()}\n")


def usage_line(error: Any) -> str:
    """One line for a mistake the option parser found: what is wrong, the nearest right word, where to read
    on.
    """
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "strata"
    param = getattr(error, "param", None)
    option = getattr(error, "option_name", None)
    if param is not None and type(error).__name__ == "MissingParameter":
        name = next((o for o in getattr(param, "opts", []) if o.startswith("--")), f"its {param.name}")
        about = f" ({param.help})" if getattr(param, "help", None) else ""
        said = f"{path.removeprefix('strata ')} needs {name}{about}"
    elif option and context and type(error).__name__ == "NoSuchOption":
        close = nearest(option, [o for p in context.command.params for o in p.opts])
        said = f"no option called '{option}'" + (f"; nearest: {', '.join(close)}" if close else "")
    elif (
        context and hasattr(context.command, "commands") and str(error.message).startswith("No such command")
    ):
        name, known = str(error.message).split("'")[1], list(context.command.commands)
        close = nearest(name, known)
        near = f"; nearest: {', '.join(close)}" if close else ""
        said = f"no command called '{name}'{near}; all: {', '.join(known)}"
    else:
        said = " ".join(error.format_message().split()).rstrip(".")
        said = said[:1].lower() + said[1:]
    return f"{said}; see {path} --help"


def names_of(*kinds: str, before: str = "") -> Callable[[str], list[str]]:
    """A completer that offers the shipped names of some kinds."""

    def complete(incomplete: str) -> list[str]:
        from strata.params import names

        every = (f"{before}{name}" for kind in kinds for name in names(kind) if name != "README")
        return [name for name in every if name.startswith(incomplete)]

    return complete


def system_names(incomplete: str) -> list[str]:
    """System names: a count and a chip, eight unless a count is typed already."""
    count, times, _ = incomplete.rpartition("x")
    before = f"{count}x" if times and count.replace("x", "").isdecimal() else "8x"
    return names_of("chip", before=before)(incomplete)


def one_of(*words: str) -> Callable[[str], list[str]]:
    """A completer that offers fixed words."""
    return lambda incomplete: [w for w in words if w.startswith(incomplete)]


def listed_in(module: str, name: str) -> Callable[[str], list[str]]:
    """A completer that offers what a module lists under a name; it is loaded when somebody asks."""

    def complete(incomplete: str) -> list[str]:
        listed = getattr(import_module(module), name)
        return [word for word in (listed() if callable(listed) else listed) if word.startswith(incomplete)]

    return complete


metric_names = listed_in("strata.pricing.metrics", "METRIC_UNITS")
precision_names = listed_in("strata.base.precision", "PRECISIONS")


def item_names(ctx: Any, incomplete: str) -> list[str]:
    """Names of the kind that was typed before."""
    kind = str(ctx.params.get("kind") or "chip")
    if kind == "system":
        return system_names(incomplete)
    return names_of("models" if kind == "model" else kind)(incomplete)


@contextmanager
def progress_bar(*columns: Any) -> Iterator[Any]:
    """A bar on stderr, where that is a terminal, and gone at the end: a text, how far it is, and the time
    left, unless other columns are told.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    columns = columns or (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        yield bar


@contextmanager
def status_line(first: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr, where that is a terminal: what is being done now."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with progress_bar(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        task = bar.add_task(first, total=None)
        yield lambda text: bar.update(task, description=text)
