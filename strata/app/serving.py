"""`strata serving`: a model under load. What rate of requests keeps limits on latency, what they see at a
rate, pools, guesses, the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from strata.app.words import choices, names_of, plain_table, precisions, print_json, systems, titled, whole
from strata.errors import BadValue, UnknownName, require
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import plan as make_plan
from strata.mapping.plan import plan_text
from strata.serving.curve import Curve, Requests, curve
from strata.serving.frontier import Frontier, frontier
from strata.serving.load import (
    LEVERS,
    Load,
    closed_load,
    goodput,
    largest_batch,
    most_rate,
    open_load,
    shortlist,
)
from strata.serving.pools import Disaggregation, disaggregate, pools_limit
from strata.serving.speculation import Drafting, Speculation, best_window, speculate
from strata.units import parse, show
from strata.workload.model import Model
from strata.workload.model import model as make_model

# of its highest rate: what is shown of an engine where no limits are told; queues grow without end towards 1
EASY = 0.8
GUESS = ("draft", "acceptance", "window", "branches", "plan")


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="A model under load: rates, queues, pools, guesses.",
        epilog="Example: strata serving -m llama-3-70b -s 8xh200 -i 2048 -o 512 --ttft 1s --tpot 30ms --frontier frontier.html",
    )(serving)


@dataclass(frozen=True, eq=False)
class Served:
    """What was asked and found."""

    curve: Curve
    ttft: float
    tpot: float
    share: float | None  # of requests that keep ttft; None: their mean does
    rates: Any  # goodput of each plan
    order: list[int]  # plans, best first
    chosen: int
    load: Load | None  # at the rate or with the clients asked for
    clients: float | None
    splits: list[Disaggregation] | None
    speculation: Speculation | None
    frontier: Frontier | None

    @property
    def limits(self) -> str:
        limits = (
            ("TTFT", self.ttft, "" if self.share is None else f" for {self.share * 100:.4g} % of requests"),
            ("TPOT", self.tpot, ""),
        )
        return "".join(f", {k} at most {show(v, 's')}{of}" for k, v, of in limits if np.isfinite(v))

    @property
    def question(self) -> str:
        c = self.curve
        return f"{c.model.name} on {c.system.name}, input {c.requests.input:g}, output {c.requests.output:g}, engine {c.engine.name}{self.limits}"


def serving(
    model: Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="model name, or path of a Hugging Face config.json", autocompletion=names_of("models"))],
    system: Annotated[str, typer.Option("--system", "-s", metavar="NAME", help="system, like 8xh200, or a TOML path", autocompletion=systems)],
    input: Annotated[str, typer.Option("--input", "-i", metavar="N", help="prompt tokens of a request")] = "1024",
    output: Annotated[str, typer.Option("--output", "-o", metavar="N", help="tokens generated for a request")] = "1024",
    rate: Annotated[str, typer.Option(metavar="N/s", help="requests that arrive each second, at random: what they see")] = "",
    clients: Annotated[str, typer.Option(metavar="N", help="clients that each wait for their answer: what they see")] = "",
    ttft: Annotated[str, typer.Option(metavar="TIME", help="limit on the mean time to first token, waiting included, like 2s")] = "",
    tpot: Annotated[str, typer.Option(metavar="TIME", help="limit on the mean time per output token, like 40ms")] = "",
    share: Annotated[str, typer.Option(metavar="SHARE", help="of requests that keep the limit on TTFT, like 95%  [default: their mean does]")] = "",
    plan: Annotated[str, typer.Option("--plan", "-p", metavar="PLAN", help="parallel degrees, like tp=8  [default: the best legal plan]")] = "",
    engine: Annotated[str, typer.Option(metavar="NAME", help="software: ideal, vllm, sglang, trtllm, or a TOML path", autocompletion=names_of("engine"))] = "ideal",
    chunk: Annotated[str, typer.Option(metavar="N", help="prompt tokens a step reads at most  [default: the engine's]")] = "",
    sequences: Annotated[str, typer.Option(metavar="N", help="requests at once at most  [default: the engine's]")] = "",
    variation: Annotated[str, typer.Option(metavar="X", help="squared coefficient of variation of prompt lengths")] = "0",
    skew: Annotated[str, typer.Option(metavar="X", help="exponent of the experts' popularity: 0 is uniform")] = "0",
    routing: Annotated[str, typer.Option(metavar="FILE", help="picks of each expert, a line for each layer (CSV or JSON)  [default: by --skew]")] = "",
    disaggregated: Annotated[bool, typer.Option("--disaggregated", help="also devices apart for reading prompts and for generating")] = False,
    prefill_devices: Annotated[str, typer.Option(metavar="N", help="devices that read, with --disaggregated  [default: the best number]")] = "",
    speculative: Annotated[str, typer.Option(metavar="GUESS", help="draft=NAME,acceptance=0.7 and, if told, window=4 (or best), branches=1, plan=tp=8", autocompletion=choices("draft="))] = "",
    picture: Annotated[Path | None, typer.Option("--frontier", metavar="FILE", help="write throughput against interactivity, .html or .svg")] = None,
    weights: Annotated[str, typer.Option(metavar="FORMAT", help="precision of the weights  [default: as published]", autocompletion=precisions)] = "",
    kv: Annotated[str, typer.Option("--kv", metavar="FORMAT", help="precision of the KV cache  [default: bf16]", autocompletion=precisions)] = "",
    set: Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="change a number, as often as needed")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
) -> None:  # fmt: skip
    """A model under load: the rate of requests that keeps limits on latency, what requests see at a rate, and
    the frontier.
    """
    from strata.app.cli import say, wrote
    from strata.search.question import question, routing_of

    if picture is not None:
        require(picture.suffix in (".html", ".svg"), "--frontier writes .html or .svg", file=str(picture))
    where, what, by = question(model, system, engine, weights, kv, set or [])
    seen, uneven = routing_of(routing, what), amount(skew, "--skew")
    require(seen is None or uneven == 0, "--skew and --routing both say how experts are picked; give one")
    require(what.has_experts or uneven == 0, f"{what.name} has no experts to pick", skew=skew)
    asked = Requests(
        whole(input, "--input"), whole(output, "--output"), amount(variation, "--variation"), uneven, seen
    )
    found = answer(
        where,
        what,
        by,
        asked,
        plan=plan,
        rate=per_second(rate),
        clients=whole(clients, "--clients") if clients else None,
        ttft=limit(ttft, "--ttft"),
        tpot=limit(tpot, "--tpot"),
        share=share_of(share),
        chunk=whole(chunk, "--chunk") if chunk else None,
        sequences=whole(sequences, "--sequences") if sequences else None,
        disaggregated=disaggregated or bool(prefill_devices),
        prefill_devices=int(whole(prefill_devices, "--prefill-devices")) if prefill_devices else None,
        speculative=speculative,
        drawn=picture is not None,
    )
    if json:
        print_json(as_dict(found))
    why = why_not(found)
    if why:
        raise BadValue(why)
    if not json:
        say(*tables(found))
    if picture is not None:
        from strata.app.serving_picture import write

        wrote("frontier", write(found.frontier or Frontier(()), found.question, picture))


def per_second(text: str) -> float | None:
    """Requests a second, as typed: 10 or 10/s or 600/h."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = parse(text, "Hz", "--rate")
    require(value > 0, "--rate must be positive", rate=text)
    return value


def limit(text: str, option: str) -> float:
    """A positive time, or none."""
    value = parse(text, "s", option) if text else float("inf")
    require(value > 0, f"{option} must be a positive time", given=text)
    return value


def share_of(text: str) -> float | None:
    """A share of requests, as typed: 95% or 0.95."""
    value = parse(text, "1", "--share") if text else None
    require(value is None or 0.5 <= value < 1.0, "--share lies between 50% and 100%", given=text)
    return value


def amount(text: str, option: str) -> float:
    value = parse(text, "1", option)
    require(value >= 0, f"{option} must not be negative", given=text)
    return value


def guess_of(text: str) -> tuple[Drafting, bool] | None:
    """The guess that is typed, and whether its window is to be found."""
    if not text:
        return None
    given: dict[str, str] = {}
    key = ""
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if key == "plan" and name not in GUESS:
            given["plan"] += f",{item}"
            continue
        if not equals or not value:
            raise BadValue(
                f"--speculative is written like draft=llama-3.2-1b,acceptance=0.7,window=4, but got '{text}'"
            )
        if name not in GUESS:
            raise UnknownName("part of a guess", name, GUESS, ", ".join(GUESS))
        key, given[name] = name, value
    for name in ("draft", "acceptance"):
        require(
            name in given, f"--speculative needs {name}, like draft=llama-3.2-1b,acceptance=0.7", given=text
        )
    free = given.get("window") == "best"
    numbers: dict[str, float] = {
        k: parse(given[k], "1", k)
        for k in ("acceptance", "window", "branches")
        if k in given and not (k == "window" and free)
    }
    for name in ("window", "branches"):
        require(
            numbers.get(name, 1.0) % 1 == 0, f"{name} must be a whole number", **{name: numbers.get(name)}
        )
    return Drafting(
        make_model(given["draft"]), **numbers, plan=make_plan(given["plan"]) if "plan" in given else None
    ), free


def answer(
    where: System,
    what: Model,
    by: Engine,
    asked: Requests,
    *,
    plan: str,
    rate: float | None,
    clients: float | None,
    ttft: float,
    tpot: float,
    share: float | None,
    chunk: float | None,
    sequences: float | None,
    disaggregated: bool,
    prefill_devices: int | None,
    speculative: str,
    drawn: bool,
) -> Served:
    """Everything that was asked for."""
    require(rate is None or clients is None, "--rate and --clients are two kinds of load; give one")
    how = make_plan(plan) if plan else None
    typed = guess_of(speculative)
    every = curve(where, what, asked, how, by, chunk=chunk, sequences=sequences)
    plain = shortlist(every, ttft, tpot)
    rates = goodput(plain, ttft, tpot, share=share)
    speculation = None
    if typed is not None:
        guess, free = typed
        best = int(np.argmax(rates + 1e-12 * most_rate(plain)))
        size: dict[str, Any] = {
            "batch": clients or float(plain.plan.dp[best]),
            "context": asked.context,
            "acceptance": guess.acceptance,
            "branches": guess.branches,
            "engine": by,
            "draft_plan": guess.plan,
        }
        if free:
            guess = replace(
                guess, window=float(best_window(where, what, guess.draft, plain.plan_at(best), **size).window)
            )
        speculation = speculate(where, what, guess.draft, plain.plan_at(best), **size, window=guess.window)
        every = curve(where, what, asked, how, by, chunk=chunk, sequences=sequences, guess=guess)
        plain = shortlist(every, ttft, tpot)
        rates = goodput(plain, ttft, tpot, share=share)
    order = [int(i) for i in np.argsort(-(rates + 1e-12 * most_rate(plain)), kind="stable")]
    chosen, load = order[0], None
    if rate is not None:
        load = open_load(plain.at(chosen), rate).at(0)
    elif clients is not None:
        seen = closed_load(plain, clients)
        chosen = int(np.argmax(np.where(seen.within(ttft, tpot, share), seen.rate, seen.rate * 1e-12)[:, 0]))
        load = seen.at(chosen, 0)
    splits = (
        disaggregate(
            where,
            what,
            asked,
            by,
            prefill_devices=prefill_devices,
            ttft=ttft,
            tpot=tpot,
            share=share,
            sequences=sequences,
        )
        if disaggregated
        else None
    )
    line = frontier(every, splits) if drawn else None
    return Served(plain, ttft, tpot, share, rates, order, chosen, load, clients, splits, speculation, line)


def why_not(found: Served) -> str:
    """Why there is no answer, in one line with levers; empty where there is one."""
    c = found.curve
    if not np.any(c.slots >= 1):
        least = int(np.argmin(c.memory)) if c.memory is not None else 0
        need = show(float(c.memory[least]), "B") if c.memory is not None else "more"
        have = show(float(np.min(c.system.chip.memory.capacity * c.engine.memory_share)), "B")
        legal = "" if len(c.slots) > 1 else f" with plan {plan_text(c.plan_at(0))}"
        return f"{c.model.name} has no room for a request on {c.system.name}{legal}: a device needs {need} and may fill {have}, or the plan is not legal; levers: more devices, narrower weights, another plan"
    if found.load is not None and not np.isfinite(found.load.ttft):
        most = float(most_rate(c)[found.chosen])
        return f"{c.model.name} on {c.system.name} completes at most {most:.3g} requests/s with plan {plan_text(c.plan_at(found.chosen))}, but got {float(found.load.rate):.3g}; levers: {', '.join(LEVERS)}"
    if found.load is None and not np.any(found.rates > 0) and not any(s.rate > 0 for s in found.splits or []):
        alone = open_load(c, 0.0)
        quick = int(np.argmin(np.maximum(alone.ttft / found.ttft, alone.tpot / found.tpot)))
        got = f"the nearest has TTFT {show(float(alone.ttft[quick]), 's')} and TPOT {show(float(alone.tpot[quick]), 's')} without load ({plan_text(c.plan_at(quick))})"
        return f"no plan keeps the limits{found.limits}; {got}; levers: more devices, narrower weights, a smaller model, speculation"
    return ""


def tables(found: Served) -> list[Any]:
    """The answer for people."""
    parts: list[Any] = [_plans(found)]
    if found.load is not None:
        parts += ["", _loaded(found)]
    if found.speculation is not None:
        parts += ["", _guessed(found.speculation)]
    if found.splits is not None:
        parts += ["", _pools(found)]
    return parts


def _plans(found: Served) -> Any:
    c, table = found.curve, plain_table()
    table.add_column("plan", no_wrap=True)
    for name in ("requests/s", "tokens/s/device", "TTFT", "TPOT", "in flight", "slots", "most clients"):
        table.add_column(name, justify="right", no_wrap=True)
    limited = bool(found.limits)
    for i in [i for i in found.order if found.rates[i] > 0][:6]:
        rate, one = float(found.rates[i]) * (1.0 if limited else EASY), c.at(i)
        seen, most = open_load(one, rate).at(0), largest_batch(one, found.ttft, found.tpot, found.share)[0][0]
        cells = (
            f"{rate:.3g}",
            f"{rate * c.requests.output / c.devices:.4g}",
            show(float(seen.ttft), "s"),
            show(float(seen.tpot), "s"),
            f"{float(seen.active):.3g}",
        )
        table.add_row(plan_text(c.plan_at(i)), *cells, f"{c.slots[i]:g}", f"{most:g}")
    which = (
        "the most that keep the limits"
        if limited
        else f"{EASY:.0%} of the most it completes, as no limits are told"
    )
    below = f"requests/s: {which}, arriving at random; TTFT, TPOT, in flight: means at that rate;\nmost clients: that keep the limits and have a slot, each waiting for its answer"
    return titled(found.question, table, below)


def _loaded(found: Served) -> Any:
    load, table = found.load, plain_table(show_header=False)
    assert load is not None
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    parts = f"{show(float(load.waits), 's')} waiting, {show(float(load.reads), 's')} reading"
    table.add_row("time to first token", show(float(load.ttft), "s"), parts + _kept(load.ttft, found.ttft))
    if np.isfinite(load.ttft_at(0.95)):
        table.add_row("95 % of requests within", show(float(load.ttft_at(0.95)), "s"), "")
    table.add_row(
        "time per output token", show(float(load.tpot), "s"), _kept(load.tpot, found.tpot).removeprefix("; ")
    )
    table.add_row(
        "requests/s",
        f"{float(load.rate):.4g}",
        f"{float(load.tokens_per_s):.4g} tokens/s, {float(load.tokens_per_s) / found.curve.devices:.4g} tokens/s/device",
    )
    table.add_row("in flight", f"{float(load.active):.3g}", f"of {found.curve.slots[found.chosen]:g} slots")
    if found.clients is None:
        table.add_row("utilisation", f"{float(load.utilisation):.1%}", "")
    what = f"{found.clients:g} clients" if found.clients is not None else f"{float(load.rate):.4g} requests/s"
    return titled(f"{what} with plan {plan_text(found.curve.plan_at(found.chosen))}", table)


def _kept(value: Any, most: float) -> str:
    return (
        ""
        if not np.isfinite(most)
        else "; keeps its limit"
        if value <= most
        else f"; over its limit of {show(most, 's')}"
    )


def _guessed(s: Speculation) -> Any:
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    table.add_row(
        "speed-up",
        f"{float(s.speedup):.3g}x",
        f"{show(float(s.tpot), 's')} a token against {show(float(s.step), 's')}, batch {float(s.target.workload.batch):g}",
    )
    table.add_row(
        "tokens a round",
        f"{float(s.tokens):.3g}",
        f"of at most {float(s.window) + 1:g}; the target looks at {float(s.verified):g}",
    )
    table.add_row(
        "round",
        show(float(s.cycle), "s"),
        f"{show(float(s.guess), 's')} guessing, {show(float(s.verify), 's')} verifying",
    )
    even = float(s.break_even)
    table.add_row(
        "breaks even at",
        "never" if np.isnan(even) else f"{even:.3g}",
        f"acceptance asked for: {float(s.acceptance):g}",
    )
    shape = f"{float(s.window):g} deep" + (
        f", {float(s.branches):g} branches" if float(s.branches) > 1 else ""
    )
    return titled(f"guesses of {s.draft.model.name} ({plan_text(s.draft.plan)}), {shape}", table)


def _pools(found: Served) -> Any:
    table = plain_table()
    for name, side in (("read", "right"), ("plan", "left"), ("generate", "right"), ("plan", "left")):
        table.add_column(name, justify=side, no_wrap=True)
    for name in ("requests/s", "tokens/s/device", "readers take", "generators take", "reading", "sending"):
        table.add_column(name, justify="right", no_wrap=True)
    for s in (found.splits or [])[:6]:
        per = s.rate * found.curve.requests.output / found.curve.devices
        times = (show(s.read_time, "s"), show(s.send_time, "s"))
        table.add_row(
            str(s.prefill_devices),
            plan_text(s.prefill_plan),
            str(s.decode_devices),
            plan_text(s.decode_plan),
            f"{s.rate:.3g}",
            f"{per:.4g}",
            f"{s.reader_rate:.3g}",
            f"{s.writer_rate:.3g}",
            *times,
        )
    best = max(found.splits or [], key=lambda s: s.rate, default=None)
    together = float(np.max(found.rates))
    below = (
        ""
        if best is None or together <= 0
        else f"apart carries {best.rate / together:.2f} times what one kind of device does; a request sends {show(best.sent, 'B')} of cache"
    )
    return titled("devices apart for reading prompts and for generating", table, below)


def as_dict(found: Served) -> dict[str, Any]:
    """The answer for machines."""
    c = found.curve

    def load(one: Load) -> dict[str, float]:
        return {k: float(v) for k, v in vars(one).items()}

    def row(i: int) -> dict[str, Any]:
        one = c.at(i)
        most = float(largest_batch(one, found.ttft, found.tpot, found.share)[0][0])
        return {
            "plan": plan_text(c.plan_at(i)),
            "goodput": float(found.rates[i]),
            "most_rate": float(most_rate(one)[0]),
            "slots": float(c.slots[i]),
            "most_clients": most,
            "at_goodput": load(open_load(one, found.rates[i : i + 1]).at(0)),
        }

    s = found.speculation
    names = (
        "window",
        "branches",
        "acceptance",
        "step",
        "guess",
        "verify",
        "verified",
        "tokens",
        "cycle",
        "tpot",
        "speedup",
        "break_even",
    )
    return {
        "question": {
            "model": c.model.name,
            "system": c.system.name,
            "engine": c.engine.name,
            **vars(c.requests),
            "ttft": found.ttft,
            "tpot": found.tpot,
            "share": found.share,
        },
        "plans": [row(i) for i in found.order if c.slots[i] >= 1][:16],
        "load": None
        if found.load is None
        else {"plan": plan_text(c.plan_at(found.chosen)), "clients": found.clients, **load(found.load)},
        "speculation": None
        if s is None
        else {"draft": s.draft.model.name, "fits": bool(s.fits), **{k: float(getattr(s, k)) for k in names}},
        "pools": None
        if found.splits is None
        else [
            {
                "readers": p.prefill_devices,
                "reader_plan": plan_text(p.prefill_plan),
                "writers": p.decode_devices,
                "writer_plan": plan_text(p.decode_plan),
                "goodput": p.rate,
                "most_rate": pools_limit(p),
                "reader_rate": p.reader_rate,
                "writer_rate": p.writer_rate,
                "read_time": p.read_time,
                "send_time": p.send_time,
                "sent_bytes": p.sent,
                "at_goodput": load(p.load(p.rate)),
            }
            for p in found.splits
        ],
        "frontier": None if found.frontier is None else found.frontier.as_dict(),
        "units": {"rates": "1/s", "times": "s", "bytes": "B"},
    }
