"""How servers under closed loops of clients were run and asked, where the files do not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.mapping.engine import Engine
from strata.params import by_name, part, quantity, text
from strata.serving.acceptance import expected_tokens
from strata.validation.readers.benchmark_conditions import parallel_degree
from strata.validation.readers.launch_flags import LaunchFlags
from strata.validation.readers.simulated_loop import ClosedRun
from strata.validation.readers.tables import Table


@dataclass(frozen=True, eq=False, kw_only=True)
class DrawnLengths:
    """A benchmark that draws its lengths, and starts all clients together."""

    lengths: dict[str, Number] = by_name("1", "tokens of the lengths it names")
    mean_share: Number = quantity("1", "mean length over the one it names", positive=True)
    least_share: Number = quantity("1", "least length over the one it names, the most", positive=True)
    rounds: Number = quantity("1", "requests of each client", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedScript:
    """What a script of a benchmark told an engine."""

    engine: str = text("the engine's name in the file")
    model: str = text("the model it is for; all that no other is for", default="")
    tokens: Number | None = quantity("1", "tokens of a step at most", optional=True, positive=True)
    tokens_beside: Number | None = quantity(
        "1", "tokens of a step beyond a prompt and one for each client", optional=True, minimum=0
    )
    wait_steps: Number | None = quantity(
        "1", "steps that prompts of the shortest lengths wait for others at most", optional=True, minimum=0
    )
    wait_share: Number | None = quantity(
        "1", "share of a step's tokens that ends this", optional=True, minimum=0
    )
    wait_below: Number | None = quantity(
        "1", "tensor parallelism below which they wait", optional=True, minimum=0
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Polling:
    """Runs of an engine on some chips that looks for requests only now and then."""

    engine: str = text("the engine's name in the file")
    chips: str = text("names of the chips in the file, separated by spaces")
    steps: Number = quantity("1", "steps between two looks", positive=True)
    many_clients: Number = quantity("1", "clients from which on looks are rarer", positive=True)
    many_clients_steps: Number = quantity("1", "steps between two looks then", positive=True)
    chunk: Number = quantity("1", "tokens read at once at most", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class DraftedTokens:
    """Runs of a version of an engine that guesses tokens, where a model has layers for it."""

    engine: str = text("the engine's name in the file")
    version: str = text("its version in the file")
    tokens: Number = quantity("1", "tokens guessed in a step")
    data_parallel_tokens: Number = quantity("1", "the same with data-parallel attention")
    acceptance: Number = quantity("1", "chance that a guess is right")


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstUse:
    """Runs of a version of an engine whose first full chunk of prompts takes long."""

    engine: str = text("the engine's name in the file")
    version: str = text("its version in the file")
    time: Number = quantity("s", "what it takes once")


@dataclass(frozen=True, eq=False, kw_only=True)
class OtherLengths:
    """Rows of other lengths than those that are drawn: other benchmarks."""

    keeps_prompts: str = text("the engine that does not read a prompt again")
    rounds: Number = quantity("1", "requests of each client", positive=True)
    prompts: Number = quantity("1", "different prompts", positive=True)
    outside: Number = quantity(
        "s", "time of a request outside all steps beyond that of its engine, where nothing is simulated"
    )
    script: tuple[ServedScript, ...] = part(
        ServedScript, "what they told engines; loops of those that none names are not simulated", many=True
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class OnlineConditions:
    """Servers under closed loops of clients, by several benchmarks."""

    title: str = text("what was run")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    weight_only_cache: str = text("format of the cache where a model's experts are widened")
    drawn: DrawnLengths = part(DrawnLengths, "the benchmark behind most rows")
    flags: tuple[LaunchFlags, ...] = part(LaunchFlags, "what that benchmark tells engines", many=True)
    script: tuple[ServedScript, ...] = part(ServedScript, "what it told engines", many=True)
    polling: Polling = part(Polling, "who looks for requests now and then")
    drafting: DraftedTokens = part(DraftedTokens, "who guesses tokens")
    first_use: FirstUse = part(FirstUse, "whose first prompts take long")
    other_lengths: OtherLengths = part(OtherLengths, "the benchmarks behind the other rows")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunConditions:
    """How the runs of some rows were made; an entry for each row."""

    input: Array  # mean tokens read and generated by one request
    output: Array
    guesses: Array  # tokens guessed in a step, 0 without multi-token prediction
    acceptance: Any  # chance that a guess is right
    polled: Array  # steps between two looks for requests; 1: every step
    burst: Array  # prompts read at once at most, where requests are looked for now and then
    fresh: Array  # share of prompts that were not read before
    rounds: Array  # requests of a client, of which the first are sent together; inf after a warm-up
    first: Array  # time that the first requests wait once [s]
    outside: Any = 0.0  # time of a request outside all steps beyond that of its engine [s]
    median: Any = False  # whether the median of first tokens was recorded, not their mean

    @property
    def start_rounds(self) -> Any:
        """Rounds of which the common start is one, as far as it counts: it moves a mean and not a median."""
        return np.where(self.median, np.inf, self.rounds)


def online_runs_of(
    rows: Table, chip: str, engine: str, predicts: bool, known: OnlineConditions
) -> RunConditions:
    """What is known of how rows were measured on a chip with an engine; `predicts`: the model has layers to
    guess tokens with.
    """
    isl, osl, clients = (rows.number(c) for c in ("isl", "osl", "conc"))
    version, together = rows.text("backend_version"), rows.text("mode") == "agg"
    drawn = drawn_rows(rows, known)
    share = np.where(drawn, known.drawn.mean_share, 1.0)
    polling, drafting, first_use, other = known.polling, known.drafting, known.first_use, known.other_lengths
    apart = parallel_degree(rows, "attention_dp_size") > 1
    guessing = predicts & (version == drafting.version) & (engine == drafting.engine) & together
    polled = drawn & together & (engine == polling.engine) & np.isin(chip, polling.chips.split())
    kept = ~drawn & (engine == other.keeps_prompts)
    full = clients * share * isl >= polling.chunk
    slow_start = (engine == first_use.engine) & (version == first_use.version) & drawn & full
    interval = np.where(clients >= polling.many_clients, polling.many_clients_steps, polling.steps)
    fresh = np.minimum(other.prompts / (known.drawn.rounds * clients), 1.0)
    return RunConditions(
        input=share * isl,
        output=share * osl,
        guesses=np.where(guessing, np.where(apart, drafting.data_parallel_tokens, drafting.tokens), 0.0),
        acceptance=drafting.acceptance,
        polled=np.where(polled, interval, 1.0),
        burst=np.maximum(polling.chunk / (share * isl), 1.0),
        fresh=np.where(kept, fresh, 1.0),
        rounds=np.where(kept, np.inf, np.where(drawn, known.drawn.rounds, other.rounds)),
        first=np.where(slow_start, first_use.time, 0.0),
        outside=np.where(drawn, 0.0, other.outside),
    )


def plain_runs(input: Array, output: Array, rounds: Number) -> RunConditions:
    """Runs of such requests of which nothing else is known."""
    one = np.ones_like(input)
    return RunConditions(
        input=input,
        output=output,
        guesses=0.0 * one,
        acceptance=0.0,
        polled=one,
        burst=one,
        fresh=one,
        rounds=rounds * one,
        first=0.0 * one,
    )


def script_of(scripts: Sequence[ServedScript], engine: str, model: str) -> ServedScript | None:
    """The script for an engine and a model, or for all models."""
    return next((s for s in scripts if s.engine == engine and s.model in (model, "")), None)


def closed_runs(
    rows: Table, engine: Engine, model: str, run: RunConditions, known: OnlineConditions
) -> list[ClosedRun | None]:
    """The load generator of each row and what its engine was told; None where nobody knows it."""
    isl, osl, clients = (rows.number(c) for c in ("isl", "osl", "conc"))
    tp, low = parallel_degree(rows, "tp_size"), float(known.drawn.least_share)
    other = script_of(known.other_lengths.script, engine.name, model)
    usual = script_of(known.script, engine.name, model) or ServedScript(engine=engine.name)
    shortest = min(float(length) for length in known.drawn.lengths.values())
    made: list[ClosedRun | None] = []
    for i, drawn in enumerate(drawn_rows(rows, known)):
        told = usual if drawn else other
        if told is None:
            made.append(None)
            continue
        tokens = float(told.tokens or engine.tokens)
        if told.tokens_beside is not None:
            tokens = clients[i] + isl[i] + float(told.tokens_beside)
        waits = isl[i] == osl[i] == shortest and tp[i] < float(told.wait_below or 0.0)
        least = low if drawn else 1.0
        each = ClosedRun(
            clients=int(clients[i]),
            input=(least * isl[i], float(isl[i])),
            output=(least * osl[i], float(osl[i])),
            rounds=float(known.drawn.rounds),
            tokens=int(tokens),
            guesses=float(run.guesses[i]),
            tokens_per_step=float(expected_tokens(run.guesses[i], run.acceptance)),
            looks=int(run.polled[i]),
            wait_steps=int(told.wait_steps or 0) if waits else 0,
            wait_tokens=int((told.wait_share or 0.0) * tokens),
        )
        made.append(each)
    return made


def drawn_rows(rows: Table, known: OnlineConditions) -> Array:
    """Rows of the lengths that are drawn."""
    lengths = [float(length) for length in known.drawn.lengths.values()]
    return np.isin(rows.number("isl"), lengths) & np.isin(rows.number("osl"), lengths)
