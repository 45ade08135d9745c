"""Models as serving frameworks run them: weights and caches as served, how many sequences fit, and the times
of an engine's steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import MissingQuantity
from strata.mapping.engine import Engine, request_time
from strata.precision import bytes_of
from strata.serving.acceptance import expected_tokens
from strata.serving.speculation import cycle_time, draft_engine, drafting_layer
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import EngineTimes
from strata.validation.readers.engine_releases import ReleaseTimes
from strata.validation.readers.formats import weight_format
from strata.validation.readers.online_conditions import RunConditions
from strata.validation.readers.prefill_queues import PrefillLoop, mean_first_token, median_first_token
from strata.validation.readers.steps import Serving, priced_step, served_batch, used_bytes
from strata.validation.readers.tables import Table
from strata.workload.model import Model
from strata.workload.tasks import decode, mixed, prefill

POOL_ROUNDS = 2  # secants towards the number of sequences being generated
STEEPEST = 10.0  # of those secants
SHORTEST = 0.8 / 0.9  # of the mean, where lengths are drawn between 0.8 and 1 of the one that is named
AS_IN_FILE = ReleaseTimes(step=np.zeros(1), kernels=np.ones(1), prompts=np.ones(1), guessing=np.zeros(1))


def in_process(engine: Engine) -> Engine:
    """An engine asked in process, as throughput benchmarks do: no server, no client that waits for tokens."""
    return replace(engine, stream=0.0, request=0.0, tokenize=None)


def served_model(catalogue: Catalogue, name: str, weights: str, experts: str) -> Model:
    """A model with weights as served; the cache is fp8 with fp8 and fp4 weights. A model whose own experts
    are mxfp4 keeps them.
    """
    own = catalogue.model(name)
    linear, inner = (_own_format(own, weight_format(wanted)) for wanted in (weights, experts))
    kv = "bf16" if linear == "bf16" and inner == "bf16" else "fp8"
    if own.expert_weights == "mxfp4":
        return catalogue.model(name, kv=kv)
    return catalogue.model(name, weights=linear, expert_weights=inner, kv=kv)


def _own_format(own: Model, wanted: str) -> str:
    """A model published with fp8 weights in blocks is served with those where it is said to be in fp8."""
    return own.weights if (own.weights, wanted) == ("fp8_block", "fp8") else wanted


def stored_model(catalogue: Catalogue, name: str, weights: str) -> Model:
    """A model with weights of this width and a 16-bit cache; official weights of the same width are kept as
    they are.
    """
    own, wanted = catalogue.model(name), weight_format(weights)
    width, *widths = (round(float(bytes_of(w)), 1) for w in (wanted, own.weights, own.expert_weights))
    same = width in widths
    return own if same else catalogue.model(name, weights=wanted)


def handed_over_time(serving: Serving, batch: Array, length: Array) -> Any:
    """Time to read the prompts of a batch that are handed over one after another: an engine in a process of
    its own begins with the first, and finds the others when that is read [s].
    """
    others = np.maximum(batch - 1.0, 1.0)
    later = prompt_time(serving, others, length) - request_time(serving.engine, length)
    return prompt_time(serving, np.ones_like(batch), length) + np.where(batch > 1.0, later, 0.0)


def prompt_time(serving: Serving, batch: Array, length: Array) -> Any:
    """Time to read the prompts of a batch, in steps of as many tokens as each attention rank takes at once;
    through a pipeline, steps follow one another as soon as the slowest stage is free [s].
    """
    engine, layout = serving.engine, serving.plan
    at_once = np.minimum(np.maximum(np.floor(engine.tokens / length), 1.0) * layout.dp, batch)
    step = serving.step(prefill(at_once, length, skew=serving.skew))
    following = np.where(np.asarray(layout.pp) > 1, step.stage * step.microbatches, step.time)
    return request_time(engine, length) + step.time + (batch / at_once - 1.0) * following


def largest_running_batch(serving: Serving, context: Array, dp: Any) -> Array:
    """Sequences whose whole context fits beside the weights, up to the engine's limit for each attention
    rank.

    The footprint is linear in the batch, so two batches give it. A measured run existed: where weights alone
    are too much, only the engine's own limit counts.
    """
    engine = serving.engine
    limit = serving.system.chip.memory.capacity * engine.memory_share
    low, high = (
        used_bytes(serving.step(decode(batch * dp + 0.0 * context, context))) for batch in (1.0, 101.0)
    )
    fits = 1.0 + np.floor((limit - low) / ((high - low) / 100.0))
    return np.clip(np.where(fits < 1.0, engine.sequences, fits), 1.0, engine.sequences) * dp


def engine_times(serving: Serving, running: Array, run: RunConditions) -> EngineTimes:
    """Times of an engine that generates for so many sequences and reads a prompt on every attention rank, as
    a run has it.
    """
    plan, skew = serving.plan, serving.skew
    plain, step, token = token_times(serving, running, run)
    reading = prefill(plan.dp + 0.0 * running, run.input, skew=skew)
    alone = serving.step(reading).time
    middle = run.input + run.output / 2.0
    beside = mixed(
        np.maximum(running, plan.dp), middle, prompts=plan.dp + 0.0 * running, chunk=run.input, skew=skew
    )
    together = serving.step(beside).time
    busy = (running > plan.dp) & (serving.engine.mixed > 0)
    held = replace(serving, engine=replace(serving.engine, prompt_block=None, expert_layer=None))
    launching: Any = 0.0
    if serving.engine.prompt_block is not None or serving.engine.expert_layer is not None:
        waited = [long - held.step(w).time for long, w in ((together, beside), (alone, reading))]
        launching = np.where(busy, *waited)
    return EngineTimes(
        step=step,
        token=token,
        reading=np.where(busy, np.maximum(together - plain, 0.0), alone),
        own=np.where(busy, together, alone),
        launching=launching,
    )


def token_times(serving: Serving, running: Array, run: RunConditions) -> tuple[Any, Any, Any]:
    """Mean time of a plain decode step of so many sequences, of a step as a run has it (with guesses where it
    guesses), and of a token of each sequence [s].
    """
    plain = served_batch(serving, running, run.input, run.output).step
    if not np.any(run.guesses > 0):
        return plain, plain, plain
    drafted = _drafting_cycle(serving, running, run.input + run.output / 2.0, run.guesses)
    step = np.where(run.guesses > 0, drafted, plain)
    return plain, step, step / expected_tokens(run.guesses, run.acceptance)


def _drafting_cycle(serving: Serving, running: Array, context: Array, guesses: Array) -> Any:
    """Time to guess some tokens with the model's own layer and to verify them [s]."""
    skew = serving.skew
    verify = serving.step(decode(running, context + guesses, tokens=guesses + 1.0, skew=skew)).time
    guess = priced_step(
        serving.system,
        drafting_layer(serving.model),
        decode(running, context, skew=skew),
        serving.plan,
        draft_engine(serving.engine),
    )
    return cycle_time(guesses * guess.time, verify)


def pooled_times(
    pool: Mapping[str, Serving],
    workers: Mapping[str, Array],
    at_once: Array,
    clients: Array,
    run: RunConditions,
    release: Mapping[str, ReleaseTimes] | None = None,
    full: Array | None = None,
) -> tuple[Any, Any]:
    """TTFT and TPOT that clients of a closed loop see of workers that only read prompts, `at_once` together
    and up to `full` where they queue, and workers that only generate [s]. A token waits for nobody's prompt,
    prompts wait for prompts only; sequences being generated and prompts that wait or are read are all
    clients.
    """
    reading, engine, output = pool["prefill"], pool["prefill"].engine, run.output
    times = release or dict.fromkeys(("prefill", "decode"), AS_IN_FILE)

    def read(prompts: Any) -> Any:
        return times["prefill"].prompts * reading.step(prefill(prompts, run.input, skew=reading.skew)).time

    round_time = read(at_once)
    each = round_time / at_once / workers["prefill"]
    if full is not None:
        each = np.minimum(each, read(full) / full / workers["prefill"])

    request = request_time(engine, run.input)

    def with_decoding(busy: Any) -> tuple[Any, Any, Any]:
        """TTFT, token time and a step with so many sequences being generated: what the prefill workers do not
        keep up with waits for them.
        """
        _, step, token = token_times(pool["decode"], np.ceil(busy / workers["decode"]), run)
        released = times["decode"].stepped(step, run.guesses > 0)
        token = token * released / step
        prompts = np.maximum(clients - at_once * workers["prefill"], 0.0) * each
        met = np.minimum(prompts / (output * token) * each, prompts) / 2.0
        behind = np.maximum(clients * each - output * token - round_time, 0.0)
        start = prompts / (2.0 * run.start_rounds)
        return request + round_time + released + np.maximum(met, behind) + start, token, released

    def excess(logarithm: Any) -> Any:
        """How many more are being generated than taken for, both as logarithms: it falls where they rise."""
        ttft, token, _ = with_decoding(np.exp(logarithm))
        generating = np.maximum(clients * output * token / (ttft + output * token), 1.0)
        return np.log(generating) - logarithm

    _, token, step = with_decoding(np.exp(_where_none(excess, np.log(clients))))
    ranks = reading.plan.dp
    deep = np.maximum(np.floor((at_once if full is None else full) / ranks), 1.0)
    known = (clients, workers["prefill"], ranks, deep, read(ranks), read(ranks * deep), request, step)
    return _queued_first_tokens((*known, output * token), run), token


def _where_none(excess: Callable[[Any], Any], most: Array) -> Array:
    """Where a falling function of at most `most` passes zero, by secants."""
    last, at_last = most, excess(most)
    busy = np.clip(last + at_last / 2.0, 0.0, most)
    for _ in range(POOL_ROUNDS):
        found = excess(busy)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.nan_to_num((found - at_last) / (busy - last), nan=-1.0)
        last, at_last = busy, found
        busy = np.clip(busy - found / np.clip(slope, -STEEPEST, -1.0), 0.0, most)
    return busy


def _queued_first_tokens(known: tuple[Any, ...], run: RunConditions) -> Array:
    """First tokens behind queues of prompts, row by row: the mean, or the median where that was recorded.
    Rows that are alike are simulated once.
    """
    rows = np.broadcast_arrays(*known, run.median, run.rounds)
    found: dict[tuple[Any, ...], float] = {}
    seen = np.empty(rows[0].shape)
    for i, row in enumerate(zip(*(r.tolist() for r in rows), strict=True)):
        clients, workers, ranks, deep, one, full, request, step, answer, median, rounds = row
        if row not in found:
            loop = PrefillLoop(
                clients=int(clients),
                workers=int(workers),
                ranks=int(ranks),
                deep=int(deep),
                one=one,
                full=full,
                before=request,
                after=step,
                answer=answer,
                shortest=SHORTEST,
            )
            found[row] = (median_first_token if median else mean_first_token)(loop, rounds)
        seen[i] = found[row]
    return seen


def named_in_file(table: Table, pattern: str) -> list[str]:
    """Model and system from a file's name."""
    stem = table.name.rsplit("/", 1)[-1]
    match = re.fullmatch(pattern, stem)
    if not match:
        raise MissingQuantity(
            f"{table.name}: the name must say model and system, like llama33_70b_8xa100_nim.csv"
        )
    return [g.replace("_", "-") for g in match.groups()]
