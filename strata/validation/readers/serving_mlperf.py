"""MLPerf Inference: output tokens/s of a whole system, with all requests at once (Offline) or at the load
that keeps the limits (Server, Interactive).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number, map_leaves
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine
from strata.mapping.plan import plan
from strata.params import by_name, part, quantity, text
from strata.search.power_caps import capped_system
from strata.simulate.server.load import Lengths
from strata.simulate.server.step_table import StepPricer
from strata.validation.readers.benchmark_conditions import parallel_degree, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.formats import multiplied_format
from strata.validation.readers.labels import dashed, dashed_all, server_names, server_of
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.mlperf_limits import served_copy
from strata.validation.readers.mlperf_prompts import PROMPTS, mlperf_prompts
from strata.validation.readers.mlperf_software import round_order
from strata.validation.readers.served_models import (
    in_process,
    largest_running_batch,
    prompt_time,
    served_model,
)
from strata.validation.readers.server_power import ServerPowerConditions
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import Table
from strata.workload.tasks import decode, mixed

FILE = "serving/mlperf.toml"
SCENARIOS = ("Offline", "Server", "Interactive")
NEAR = 0.9  # of a limit, that a percentile came to
PROMPT_LONGEST = 4.0  # times the mean, of prompts


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedRound:
    """What an engine did not do yet before a round."""

    source: str = text("where it is told, or why it is taken so")
    engine: str = text("the engine's name")
    before: str = text("the first round it no longer holds in, as v4.1")
    fused: Number = quantity("1", "as of engines", minimum=0)
    separate_quantize_share: Number = quantity("1", "as of engines", minimum=0)


@dataclass(frozen=True, eq=False, kw_only=True)
class MlperfConditions:
    """Requests of data sets, given to an engine in process."""

    title: str = text("what was run")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    prompt_spread: Number = quantity("1", "standard deviation of the logarithm of the length of prompts")
    beams: dict[str, Number] = by_name("1", "sequences generated for one request, by model; 1 for others")
    spread: dict[str, Number] = by_name(
        "1", "standard deviation of the length of answers over their mean, by model; 0 for others"
    )
    software: tuple[ServedRound, ...] = part(
        ServedRound, "engines of earlier rounds; what is left out is as its file says", many=True
    )

    def engine_of(self, engine: Engine, rounds: Array) -> Engine:
        """An engine as it was in each row's round; a row that names no round has today's."""
        for one in self.software:
            if one.engine == engine.name:
                early = np.array([() < round_order(r) < round_order(one.before) for r in rounds])
                changes = {
                    name: np.where(early, getattr(one, name), getattr(engine, name))
                    for name in ("fused", "separate_quantize_share")
                }
                engine = replace(engine, **changes) if np.any(early) else engine
        return engine


@dataclass(frozen=True, eq=False, kw_only=True)
class MlperfRequests:
    """Requests of a data set in their means."""

    input: Array
    output: Array
    spread: float = 0.0  # standard deviation of answers over their mean
    prompt_spread: float = 0.0  # of the logarithm of prompts
    beams: float = 1.0

    @property
    def context(self) -> Array:
        r"""Tokens that each sequence of a request that runs attends to on average.

        .. math:: c = p + \frac{L}{2} (1 + \sigma^2)

        Long answers run longer, so that of those that run at any time more are long than of those that come.

        >>> one = dict(input=300.0, output=200.0)
        >>> float(MlperfRequests(**one).context), float(MlperfRequests(**one, spread=1.0).context)
        (400.0, 500.0)
        """
        return self.input + self.output * (1.0 + self.spread**2) / 2.0

    def lengths(self, row: int) -> tuple[Lengths, Lengths]:
        """Prompts and answers of one row, log-normal; answers all alike where they do not vary."""
        wide = float(np.sqrt(np.log1p(self.spread**2)))
        read, written = float(self.input[row]), float(self.output[row])
        return (
            Lengths(mean=read, shape="lognormal", spread=self.prompt_spread, most=int(PROMPT_LONGEST * read)),
            Lengths(mean=written, shape="lognormal" if wide else "fixed", spread=wide),
        )

    @property
    def held(self) -> Array:
        """Tokens a request has in its cache at its end; beams share its prompt."""
        return self.input + self.beams * self.output


def mlperf_serving(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Output tokens/s of the whole system, loaded as it was; of rows that state samples/s alone, these times
    a sample's tokens.
    """
    return _compared(table, catalogue, told=table.number("mean_in_flight"))


def mlperf_at_limits(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Output tokens/s at the highest load that keeps the limits, request by request, of rows that came near
    one of them; others had room left that their submitters did not use.
    """
    near = np.zeros(len(table))
    for name in ("ttft", "tpot"):
        share = table.number(f"{name}_p99_s") / table.number(f"{name}_limit_s")
        near = np.fmax(near, share)
    rows = table.keep((near >= NEAR) & (table.text("scenario") != SCENARIOS[0]))
    return _compared(rows, catalogue, told=np.full(len(rows), np.nan))


def _compared(table: Table, catalogue: Catalogue, told: Array) -> ComparedPoints:
    """`told`: requests in flight in the whole system; nan where the limits say how many."""
    chips, engines = (np.array(dashed_all(table.text(c)), dtype=object) for c in ("chip", "engine"))
    models, scenarios = table.text("model"), table.text("scenario")
    known = read_conditions(MlperfConditions, table, FILE)
    variants = [variant_named(s, c, catalogue) for s, c in zip(table.text("system"), chips, strict=True)]
    keys = [np.array(variants, dtype=object), engines, models, table.text("weights"), scenarios]

    def price(key: tuple[str, str, str, str, str], rows: Array) -> Any:
        chip_name, engine, model, weights, scenario = key
        if scenario not in SCENARIOS:
            raise BadValue(f"scenario must be one of {', '.join(SCENARIOS)}, but got '{scenario}'")
        chosen = table.keep(rows)
        serving, replicas = _replica(chosen, catalogue, (chip_name, server_of(engine), model, weights), known)
        requests = _requests(chosen, model, known)
        running = _largest(serving, requests)
        flight = told[rows] / replicas if scenario != SCENARIOS[0] else running
        running = np.clip(np.where(np.isnan(flight), running, flight), 1.0, running)
        each = running / _token_time(serving, requests, running)
        if np.any(np.isnan(flight)):
            each = np.where(np.isnan(flight), within_limits(chosen, serving, requests, replicas, each), each)
        return replicas * each

    forecasts = forecast(table, keys, price, ("devices", "mean_output"))
    measured = table.number("tokens_per_s")
    said = table.number("samples_per_s") * table.number("mean_output")
    return compare_metric(
        table,
        np.where(np.isnan(measured), said, measured),
        forecasts,
        group_names(scenarios, chips, models, count=len(table)),
        rate=True,
        case=case_keys(catalogue, "throughput", chips, models, server_names(engines)),
    )


def variant_named(system_name: str, chip_name: str, catalogue: Catalogue) -> str:
    """The chip a row names, or that variant of it which the name of its system says.

    >>> variant_named("SYS-521GE-TNRT (8x H100-NVL-94GB, TensorRT)", "h100", Catalogue())
    'h100-nvl'
    >>> variant_named("Supermicro AS -8126GS-TNMR (8x MI325X)", "mi325x", Catalogue())
    'mi325x'
    """
    own = re.escape(chip_name)
    for word in re.findall(rf"(?:^|-)(?:\d+x-?)?{own}-([a-z]+)", dashed(system_name)):
        variant = f"{chip_name}-{word}"
        if catalogue.has_chip(variant):
            return catalogue.chip(variant).name
    return chip_name


def _replica(
    rows: Table, catalogue: Catalogue, named: tuple[str, str, str, str], known: MlperfConditions
) -> tuple[Serving, Array]:
    """One copy of the model, and how many there are, at the power limits of the submission. Where attention
    is told to be data parallel, it is so over the ranks that share the layers, and the largest batch is that
    of a rank.
    """
    chip_name, engine_name, model_name, weights = named
    format = multiplied_format(weights, catalogue.chip(chip_name))
    model = served_model(catalogue, model_name, format, format)
    ranks, pp, ep = (parallel_degree(rows, c) for c in ("tp", "pp", "ep"))
    apart = rows.number("attention_dp", empty=0.0) > 0
    tp, dp = np.where(apart, 1.0, ranks), np.where(apart, ranks, 1.0)
    experts: dict[str, Any] = {"moe_tp": tp}
    if model.has_experts:
        experts = {"ep": ep, "moe_tp": np.maximum(ranks / ep, 1.0)}
    engine = known.engine_of(in_process(catalogue.engine(engine_name)), rows.text("round"))
    most = rows.number("max_batch")
    engine = replace(engine, sequences=np.where(np.isnan(most), engine.sequences, np.maximum(most, 1.0)))
    system = systems_of(catalogue, chip_name, ranks * pp)
    limits = power_limits_served(rows, system.chip, model_name)
    if np.any(limits < system.chip.energy.power_limit):
        system = capped_system(system, limits)
    copies = rows.number("replicas")
    copies = np.where(np.isnan(copies), rows.number("devices") / (ranks * pp), copies)
    return Serving(system, model, plan(tp=tp, pp=pp, dp=dp, **experts), engine, known.skew), copies


def power_limits_served(rows: Table, chip: Chip, model: str) -> Array:
    """Power limit of each row's devices [W]: the chip's own, unless the name of the system says that it was
    lowered; of a range the middle.
    """
    known = read_conditions(ServerPowerConditions, rows, "serving/mlperf_power.toml")
    benchmark = next((b.name for b in known.benchmark if b.model == model), model)
    return np.array([np.mean(known.power_limits_of(chip, benchmark, name)) for name in rows.text("system")])


def _requests(rows: Table, model: str, known: MlperfConditions) -> MlperfRequests:
    """Mean requests of the data set; nothing of a run's start shows, as it lasts for minutes."""
    told = rows.number("mean_input")
    likely = mlperf_prompts().likely
    if np.any(np.isnan(told)) and model not in likely:
        raise BadValue(f"mean_input is empty, and the prompts of {model} are not known ({PROMPTS})")
    return MlperfRequests(
        input=np.where(np.isnan(told), likely.get(model, np.nan), told),
        output=rows.number("mean_output"),
        spread=float(known.spread.get(model, 0.0)),
        prompt_spread=float(known.prompt_spread),
        beams=float(known.beams.get(model, 1.0)),
    )


def _largest(serving: Serving, requests: MlperfRequests) -> Array:
    """Requests that run at once: what fits, and the engine's limit of requests."""
    return np.maximum(largest_running_batch(serving, requests.held, serving.plan.dp), 1.0)


def _token_time(serving: Serving, requests: MlperfRequests, running: Array) -> Any:
    r"""Mean time between two tokens of a request while so many run, one coming for each that ends [s].

    .. math:: T = \frac{L + 1}{L} \left((1 - q)\, d + q\, d_m\right), \quad q = 1 - e^{-n / L}

    n requests of L tokens: n / L of them end in a step d on average, at random, and new ones take their
    places. Steps that meet prompts, a share q of all, take d_m and have m = n / (L q) of them; ranks of
    attention wait for each other, so that it is as if each had one. A request's own prompt is one step more.
    Engines that do not mix, and pipelines, read prompts in steps of their own.
    """
    engine, output, layout = serving.engine, requests.output, serving.plan
    sequences, dp = requests.beams * running, np.asarray(layout.dp, float)
    plain = serving.step(decode(sequences, requests.context, skew=serving.skew)).time
    alone = plain + prompt_time(serving, running, requests.input) / output
    begin = running / output
    met = 1.0 - np.exp(-begin)
    work = mixed(
        np.maximum(sequences, dp),
        requests.context,
        prompts=np.maximum(begin / met, dp),
        chunk=requests.input,
        skew=serving.skew,
    )
    together = plain + met * np.maximum(serving.step(work).time - plain, 0.0)
    mixes = (engine.mixed > 0) & (np.asarray(layout.pp) <= 1)
    return np.where(mixes, together, alone) * (output + 1.0) / output


def within_limits(
    rows: Table, serving: Serving, requests: MlperfRequests, replicas: Array, most: Array
) -> Array:
    """Tokens/s of one copy at the highest load that keeps the limits of each row, request by request; at most
    those of the largest batch, `most`.
    """
    found = np.full(len(rows), np.nan)
    limits = {name: rows.number(f"{name}_limit_s") for name in ("ttft", "tpot")}
    if np.any(np.isnan(limits["ttft"]) | np.isnan(limits["tpot"])):
        raise BadValue("a loaded row needs mean_in_flight, or both limits")
    for i in range(len(rows)):
        one = _of_row(serving, i, len(rows))
        pricer = StepPricer(
            system=one.system,
            model=one.model,
            plan=one.plan,
            engine=one.engine,
            routed={"skew": float(one.skew)},
        )
        read, written = requests.lengths(i)
        copy = served_copy(pricer, read, written, evenness=float(replicas[i]))
        kept = {name: float(limit[i]) for name, limit in limits.items()}
        found[i] = copy.highest_rate(kept, float(most[i] / written.mean)) * written.mean
    return found


def _of_row(serving: Serving, row: int, count: int) -> Serving:
    """What serves one of several rows: its own of each quantity that is one for each row."""

    def own(value: Any) -> Any:
        return float(value[row]) if np.shape(value) == (count,) else value

    system, layout, engine = (map_leaves(own, v) for v in (serving.system, serving.plan, serving.engine))
    return replace(serving, system=system, plan=layout, engine=engine)
