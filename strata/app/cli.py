"""The `strata` command: its commands put together, and what a user got wrong said in one line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from strata.app.commands.area import register_area
from strata.app.commands.calibrate import register_calibrate
from strata.app.commands.catalogue import register_catalogue
from strata.app.commands.codesign import register_codesign
from strata.app.commands.collective import register_collective
from strata.app.commands.cost import register_cost
from strata.app.commands.diff import register_diff
from strata.app.commands.dram import register_dram
from strata.app.commands.fabric import register_fabric
from strata.app.commands.generate import register_generate
from strata.app.commands.heat import register_heat
from strata.app.commands.kernel_programs import register_kernel
from strata.app.commands.mapping import register_mapping
from strata.app.commands.measure import register_measure
from strata.app.commands.plan import register_plan
from strata.app.commands.predict import register_predict
from strata.app.commands.search import register_search
from strata.app.commands.serving import register_serving
from strata.app.commands.speculate import register_speculate
from strata.app.commands.study import register_study
from strata.app.commands.sweep import register_sweep
from strata.app.commands.timeline import register_timeline
from strata.app.commands.validate import register_validate
from strata.app.terminal import complain, put_line, usage_line
from strata.errors import StrataError

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for plugins costs every start 10 ms

app = typer.Typer(
    name="strata",
    help="Predict and optimise AI systems that do not exist yet.",
    epilog="Start with: strata predict --model llama-3-70b --system 8xh200 --batch 64 --explain",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
)


def show_version(wanted: bool) -> None:
    """Print the version, where it is asked for, and end."""
    if wanted:
        from strata import __version__

        put_line(f"strata {__version__}")
        raise typer.Exit()


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Predict and optimise AI systems that do not exist yet."""


# In the order in which help lists them.
for register in (
    register_predict,
    register_plan,
    register_sweep,
    register_timeline,
    register_catalogue,
    register_diff,
    register_serving,
    register_speculate,
    register_generate,
    register_codesign,
    register_fabric,
    register_collective,
    register_mapping,
    register_heat,
    register_dram,
    register_area,
    register_cost,
    register_validate,
    register_measure,
    register_calibrate,
    register_search,
    register_study,
    register_kernel,
):
    register(app)


def main() -> None:
    """Run the command; a user's mistake is one line on stderr and exit code 2, Ctrl-C one line and 130."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(words: list[str]) -> int:
    """The exit code of a command line."""
    try:
        code = app(words, prog_name="strata", standalone_mode=False)
    except StrataError as error:
        complain(str(error))
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
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            put_line(error.format_message())
            return 0
        complain(usage_line(error))
        return 2
    if code == 130:
        complain("stopped by Ctrl-C")
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
