"""What is found by looking: every command with its options, every public function with its arguments. One that
is added later is fuzzed without a word here.
"""

from __future__ import annotations

import inspect
import itertools
import random
from functools import cache
from typing import Any

from bases import ARGUMENTS, COMMANDS, OUTPUTS, RIGHT, VALUED
from mutations import bad_text

Option = tuple[
    str, bool, bool, bool
]  # how it is written (nothing: an argument), needed, without value, written to


@cache
def commands() -> dict[tuple[str, ...], tuple[Option, ...]]:
    """The words of each command, and its options."""
    import typer

    from strata.app.cli import commands_app

    found: dict[tuple[str, ...], tuple[Option, ...]] = {}
    group: Any = typer.main.get_command(commands_app())
    for name, command in group.commands.items():
        inner = {(name, n): c for n, c in command.commands.items()} if hasattr(command, "commands") else {}
        for words, one in (inner or {(name,): command}).items():
            found[words] = tuple(_option(p) for p in one.params)
    return found


def _option(parameter: Any) -> Option:
    if parameter.param_type_name != "option":
        return "", bool(parameter.required), False, False
    written = max(parameter.opts, key=len)
    flag = bool(getattr(parameter, "is_flag", False))
    return written, bool(parameter.required), flag, written in OUTPUTS


@cache
def usual_values() -> dict[str, tuple[str, ...]]:
    """Right values of each option: those of the command lines, and some beside them."""
    found: dict[str, list[str]] = {}
    for line in COMMANDS:
        words = [w for w in line.split() if w != "|"]
        for word, after in itertools.pairwise(words):
            if word.startswith("--") and not after.startswith("-"):
                found.setdefault(word, []).append(after)
    for option, values in VALUED.items():
        found.setdefault(option, []).extend(values)
    return {option: tuple(dict.fromkeys(values)) for option, values in found.items()}


def found_line(rng: random.Random) -> tuple[str, ...]:
    """A command with what it needs and some of its options, one of the values bad."""
    name = rng.choice(sorted({words[0] for words in commands()}))
    words = rng.choice([w for w in commands() if w[0] == name])
    known = usual_values()
    options = commands()[words]
    more = [o for o in options if o[0] and not o[1]]
    taken = [o for o in options if o[1] or not o[0]] + rng.sample(more, min(len(more), rng.randint(0, 4)))
    bad = rng.randrange(len(taken)) if taken else 0
    line = list(words)
    for i, (option, _, flag, written) in enumerate(taken):
        if flag:
            line.append(option)
            continue
        usual = known.get(option or f"{name} argument") or ("x", "1")
        value = rng.choice(usual)
        if i == bad and rng.random() < 0.9:
            value = rng.choice(OUTPUT_VALUES) if written else bad_text(rng, value)
        if option in BOUNDS.get(name, {}) and _longer(value, BOUNDS[name][option]):
            value = BOUNDS[name][option]  # as much work as is asked for is no mistake
        line += [option, value] if option else [value]
    held = {o[0] for o in taken}
    for option, value in BOUNDS.get(name, {}).items():
        if option not in held:
            line += [option, value]
    return (*line, *REFUSED.get(name, ()))


def _longer(value: str, bound: str) -> bool:
    """Whether a value is a larger number than another."""
    try:
        return float(value) > float(bound)
    except ValueError:
        return False


# Where an answer cannot be written, or can.
OUTPUT_VALUES = (".", "", "nowhere/deep/x.svg", "space.toml/x.svg", "loop", "/dev/full", "x" * 300, "study", "a.svg", "a\nb", "-")  # fmt: skip
# What ends a command that would listen for ever: its options are read, then this one is refused.
REFUSED = {"serve": ("--port", "70000")}
# What keeps a command that may look for long short.
BOUNDS = {
    "search": {"--budget": "16", "--executor": "one"},
    "map": {"--seconds": "1"},
    "codesign": {"--evaluations": "8"},
    "validate": {"--data": "measured"},
    "calibrate": {"--data": "measured"},
}


@cache
def functions() -> dict[str, tuple[tuple[str, bool], ...]]:
    """The public functions and records, each with its arguments and whether they are needed."""
    import strata as st

    found: dict[str, tuple[tuple[str, bool], ...]] = {}
    for group in ("st", "st.search", "st.serving", "st.network", "st.hardware"):
        module = st if group == "st" else getattr(st, group.split(".")[1])
        for name in module.__all__:
            public = getattr(module, name)
            if inspect.isfunction(public) or (inspect.isclass(public) and _checked(public)):
                parameters = list(inspect.signature(public).parameters.values())
                found[f"{group}.{name}"] = tuple(
                    (p.name, p.default is p.empty)
                    for p in parameters
                    if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
                )
    return found


def _checked(public: type) -> bool:
    """Whether a record looks at what it is made from; the others are answers, which nobody makes by hand."""
    return hasattr(public.__init__, "__wrapped__") and not issubclass(public, Exception)


def found_call(rng: random.Random) -> str:
    """A public function, called with what its arguments are called after, one of them bad."""
    name = rng.choice(sorted(functions()))
    parameters = functions()[name]
    more = [p for p in parameters if not p[1]]
    taken = [p for p in parameters if p[1]] + rng.sample(more, min(len(more), rng.randint(0, 2)))
    bad = rng.randrange(len(taken)) if taken else 0
    said = []
    for i, (argument, _) in enumerate(taken):
        value = rng.choice(RIGHT.get(argument, ("8", "0.5", "'x'")))
        said.append(f"{argument}={rng.choice(ARGUMENTS) if i == bad else value}")
    held = {p[0] for p in taken}
    bounds = {
        p: v for p, v in (("budget", "8"), ("evaluations", "8"), ("executor", "'one'")) if p not in held
    }
    said += [f"{p}={v}" for p, v in bounds.items() if p in {q[0] for q in parameters}]
    return f"{name}({', '.join(said)})"
