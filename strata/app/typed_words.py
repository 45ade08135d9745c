"""Words of a command line that are what a command takes already: handed on as they are.

Typer checks every value with a model of its own, and loading what makes those models takes a good part of a
short command. A word where a word is asked for, or nothing at all, needs no such check; any other value goes
typer's own way.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin


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
