"""The `strata` command: its commands put together, and what a user got wrong said in one line."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import Annotated

import typer

from strata.app.terminal import complain, put_line, tell_written, usage_line
from strata.app.typed_words import take_words_as_typed
from strata.errors import StrataError

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for plugins costs every start 10 ms

# Each command, in the order in which help lists them: the module that registers it, and by which function.
# A command line loads only its own.
COMMANDS = {
    "predict": ("predict", "register_predict"),
    "plan": ("plan", "register_plan"),
    "train": ("train", "register_train"),
    "compare": ("compare", "register_compare"),
    "sweep": ("sweep", "register_sweep"),
    "power-cap": ("power_cap", "register_power_cap"),
    "timeline": ("timeline", "register_timeline"),
    "list": ("catalogue", "register_catalogue"),
    "show": ("catalogue", "register_catalogue"),
    "schema": ("catalogue", "register_catalogue"),
    "diff": ("diff", "register_diff"),
    "serving": ("serving", "register_serving"),
    "simulate": ("simulate", "register_simulate"),
    "launch": ("launch", "register_launch"),
    "speculate": ("speculate", "register_speculate"),
    "post-train": ("post_train", "register_post_train"),
    "generate": ("generate", "register_generate"),
    "codesign": ("codesign", "register_codesign"),
    "fabric": ("fabric", "register_fabric"),
    "collective": ("collective", "register_collective"),
    "map": ("map", "register_map"),
    "mapping": ("mapping", "register_mapping"),
    "heat": ("heat", "register_heat"),
    "dram": ("dram", "register_dram"),
    "area": ("area", "register_area"),
    "cost": ("cost", "register_cost"),
    "validate": ("validate", "register_validate"),
    "measure": ("measure", "register_measure"),
    "calibrate": ("calibrate", "register_calibrate"),
    "search": ("search", "register_search"),
    "study": ("study", "register_study"),
    "kernel": ("kernel_programs", "register_kernel"),
    "serve": ("serve", "register_serve"),
}


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
    wanted = [COMMANDS[word]] if word in COMMANDS else COMMANDS.values()
    for module, register in dict.fromkeys(wanted):
        getattr(import_module(f"strata.app.commands.{module}"), register)(app)
    return app


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
