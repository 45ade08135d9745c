"""The `strata` command: its commands put together, words taken as they are typed, and
what a user got wrong said in one line.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

import typer

from strata.app.terminal import complain, put_line, tell_written, usage_line
from strata.base.errors import StrataError
from strata.base.shipped import paper_offers, plugged

# Each command, in the order in which help lists them, and its module; those of papers come after them. A
# command line loads only its own module.
COMMANDS = {
    "predict": "predict",
    "plan": "plan",
    "train": "training",
    "compare": "plan",
    "sweep": "search",
    "power-cap": "search",
    "timeline": "predict",
    "list": "catalogue",
    "show": "catalogue",
    "schema": "catalogue",
    "diff": "catalogue",
    "serving": "serving",
    "simulate": "simulate",
    "launch": "serving",
    "speculate": "serving",
    "post-train": "training",
    "generate": "silicon",
    "fabric": "network",
    "collective": "network",
    "map": "map",
    "heat": "silicon",
    "dram": "silicon",
    "area": "silicon",
    "cost": "silicon",
    "validate": "validate",
    "seal": "validate",
    "measure": "measure",
    "calibrate": "measure",
    "search": "search",
    "study": "search",
    "kernel": "kernel",
    "serve": "serve",
}


class _AsTyped:
    """What typer asks to make a parameter's value of what was typed, in place of its own."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        asked = param.type_descriptor
        if asked.parameter_info.parser is None:
            if asked.annotation is str and type(value) is str:
                return value
            words = get_origin(asked.annotation) is list and get_args(asked.annotation) == (str,)
            if words and isinstance(value, list | tuple) and all(type(v) is str for v in value):
                return list(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def take_words_as_typed(command: Any) -> None:
    """Let a command and its subcommands take words as they are typed, where this version of typer makes its
    checks late.
    """
    listed = command.get_params

    def get_params(ctx: Any) -> list[Any]:
        params: list[Any] = listed(ctx)
        for param in params:
            if getattr(param, "_runtime_param", command) is None and hasattr(param, "get_runtime_param"):
                param._runtime_param = _AsTyped()
        return params

    command.get_params = get_params
    for inner in getattr(command, "commands", {}).values():
        take_words_as_typed(inner)


os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for plugins costs every start 10 ms


def show_version(wanted: bool) -> None:
    """Print the version, where it is asked for, and end."""
    if wanted:
        from strata import __version__

        put_line(f"strata {__version__}")
        raise typer.Exit()


def start(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Predict and optimise AI systems that do not exist yet."""


def commands_app(word: str = "") -> typer.Typer:
    """The app of one command, or of all where the word is none."""
    app = typer.Typer(
        name="strata",
        help="Predict and optimise AI systems that do not exist yet.",
        epilog="Start with: strata predict --model llama-3-70b --system 8xh200 --batch 64 --explain",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
    )
    app.callback()(start)
    own = {word: COMMANDS[word]} if word in COMMANDS else COMMANDS
    offers = {} if word in COMMANDS else paper_offers("commands")
    if word in offers:
        own, offers = {}, {word: offers[word]}
    for name, module in own.items():
        held = vars(import_module(f"strata.app.commands.{module}"))
        if name == "kernel":
            held["register_kernel"](app)
        else:
            every = (one for key, one in held.items() if key.endswith("_command"))
            _add(app, next(one for one in every if vars(one).get("command", {}).get("name") == name))
    for offer in offers.values():
        _add(app, plugged(*offer))
    return app


def _add(app: typer.Typer, function: Any) -> None:
    from strata.app.commands.options import flat_command

    app.command(**vars(function)["command"])(flat_command(function))


def main() -> None:
    """Run the command; a user's mistake is one line on stderr and exit code 2, Ctrl-C one line and 130."""
    if not sys.warnoptions:  # what libraries warn of is no answer; python -W shows it
        warnings.simplefilter("ignore")
    sys.exit(run_command(sys.argv[1:]))


def run_command(words: list[str]) -> int:
    """The exit code of a command line."""
    try:
        command = typer.main.get_command(commands_app(words[0] if words else ""))
        take_words_as_typed(command)
        code = command(words, prog_name="strata", standalone_mode=False)
    except StrataError as error:
        complain(error)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        complain(
            f"cannot use {error.filename}: {str(error.strerror).lower()}" if error.filename else str(error)
        )
        return 2
    except Exception as error:
        if not hasattr(error, "format_message"):
            return unforeseen(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            put_line(error.format_message())
            return 0
        complain(usage_line(error))
        return 2
    if code == 130:
        complain("stopped by Ctrl-C")
    tell_written()
    return code if isinstance(code, int) else 0


def unforeseen(error: Exception) -> int:
    """What no check foresaw is a fault of ours, and one line all the same; STRATA_TRACEBACK=1 shows where."""
    if os.environ.get("STRATA_TRACEBACK"):
        raise error
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    complain(f"this cannot be answered, by a fault of strata's ({said}); STRATA_TRACEBACK=1 shows where")
    return 2


if __name__ == "__main__":
    main()
