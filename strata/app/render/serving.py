"""A model under load, and speculative decoding by drafts, for machines and for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render import ranking
from strata.app.render.figures import picture
from strata.app.render.tables import card, cells_of, floats, picked, table
from strata.base.units import show
from strata.mapping.plan import plan_text
from strata.serving.drafts import DraftComparison
from strata.serving.load import most_rate, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.pools import Disaggregation, pools_limit
from strata.serving.speculation import Speculation
from strata.serving.under_load import UnderLoad


def under_load_tables(answer: UnderLoad) -> list[Any]:
    """The answer for people."""
    parts: list[Any] = [_plans(answer) if answer.served.choices else answer.question]
    if answer.load is not None:
        parts += ["", _loaded(answer)]
    if answer.speculation is not None:
        parts += ["", _guessed(answer.speculation)]
    if answer.splits is not None:
        parts += ["", _pools(answer)]
    return parts


def _plans(answer: UnderLoad) -> Any:
    found, rows = answer.served, []
    for one in found.choices[:6]:
        load = one.load
        cells = [plan_text(one.plan), f"{one.clients:g}", f"{float(load.rate):.3g}"]
        cells += [show(float(load.tokens_per_s) / answer.curve.devices)]
        rows.append([*cells, *(text(load) for text in ranking.SEEN_COLUMNS.values()), f"{one.slots:g}"])
    below = ranking.device_hour_text(found)
    if found.limits.text:
        how = "simulated" if answer.at_rate is not None else "in closed form"
        rate = f"{float(answer.rates[0]):.3g} requests/s"
        below += f"\narriving at random, {rate} keep the limits with the first plan ({how})"
    trusted = ranking.trust_of(found)[1] if answer.load is None else []
    names = ("batch", "requests/s", "tokens/s/device", *ranking.SEEN_COLUMNS, "slots")
    head = ["<plan", *(f">{name}" for name in names)]
    return table(answer.question, head, rows, "\n".join([below, *trusted]))


def _loaded(answer: UnderLoad) -> Any:
    load, clients = answer.load, answer.clients
    assert load is not None
    waits, reads, ttft, tpot, rate, power = cells_of(
        load, "waits:s reads:s ttft:s tpot:s tokens_per_s:1 power:W"
    )
    parts = f"{waits} waiting, {reads} reading" + _kept(load.ttft, answer.limits.ttft)
    each = show(float(load.tokens_per_s) / answer.curve.devices)
    hourly = f"{ranking.dollars_text(load.cost_per_device_hour)} USD per device-hour"
    rows = [("time to first token", ttft, parts)]
    if np.isfinite(load.ttft_p95):
        rows.append(("95 % of requests within", show(float(load.ttft_p95), "s"), ""))
    rows += [
        ("time per output token", tpot, _kept(load.tpot, answer.limits.tpot).removeprefix("; ")),
        ("requests/s", f"{float(load.rate):.4g}", f"{rate} tokens/s, {each} tokens/s/device"),
        ("in flight", show(float(load.active)), f"of {answer.curve.slots[answer.chosen]:g} slots"),
        ("cost/Mtoken", f"{ranking.dollars_text(load.cost_per_mtoken)} USD", hourly),
        ("energy/Mtoken", ranking.joules_text(load.energy_per_mtoken), f"{power} in all"),
    ]
    rows += [("utilisation", f"{float(load.utilisation):.1%}", "")] if clients is None else []
    asked = f"{clients:g} clients" if clients is not None else f"{float(load.rate):.4g} requests/s"
    trusted = "\n".join(ranking.trust_of(answer.served, load)[1])
    return card(f"{asked} with plan {plan_text(answer.curve.plan_at(answer.chosen))}", rows, trusted)


def _kept(value: Any, most: float) -> str:
    if not np.isfinite(most):
        return ""
    return "; keeps its limit" if value <= most else f"; over its limit of {show(most, 's')}"


def _guessed(s: Speculation) -> Any:
    tpot, step, cycle, guess, verify = cells_of(s, "tpot:s step:s cycle:s guess:s verify:s")
    even, batch = float(s.break_even), f"batch {float(s.target.workload.batch):g}"
    most = f"of at most {float(s.window) + 1:g}; the target looks at {float(s.verified):g}"
    asked = f"acceptance asked for: {float(s.acceptance):g}"
    rows = [
        ("speed-up", f"{float(s.speedup):.3g}x", f"{tpot} a token against {step}, {batch}"),
        ("tokens a round", f"{float(s.tokens):.3g}", most),
        ("round", cycle, f"{guess} guessing, {verify} verifying"),
        ("breaks even at", "never" if np.isnan(even) else f"{even:.3g}", asked),
    ]
    shape = f"{float(s.window):g} deep"
    shape += f", {float(s.branches):g} branches" if float(s.branches) > 1 else ""
    return card(f"guesses of {s.draft.model.name} ({plan_text(s.draft.plan)}), {shape}", rows)


def _pools(answer: UnderLoad) -> Any:
    rows, splits = [], answer.splits or []
    for s in splits[:6]:
        per = s.rate * answer.curve.requests.output / answer.curve.devices
        readers = (str(s.prefill_devices), plan_text(s.prefill_plan))
        writers = (str(s.decode_devices), plan_text(s.decode_plan))
        times = cells_of(s, "prefill_rate:.3g decode_rate:.3g read_time:s send_time:s")
        rows.append((*readers, *writers, f"{s.rate:.3g}", f"{per:.4g}", *times))
    best = max(splits, key=lambda s: s.rate, default=None)
    together = float(answer.rates[0]) if answer.at_rate is not None else float(np.max(answer.rates))
    below = ""
    if best is not None and together > 0:
        below = f"apart carries {best.rate / together:.2f} times what one kind of device does; "
        below += f"a request sends {show(best.sent, 'B')} of cache"
    head = ">read|<plan|>generate|<plan|>requests/s|>tokens/s/device|>readers take|>generators take"
    title = "devices apart for reading prompts and for generating"
    return table(title, f"{head}|>reading|>sending", rows, below)


def under_load_dict(answer: UnderLoad) -> dict[str, Any]:
    """The answer for machines."""
    c, load = answer.curve, answer.load
    loaded = {"plan": plan_text(c.plan_at(answer.chosen)), "clients": answer.clients}
    question = {"model": c.model.name, "system": (c.within or c.system).name, "engine": c.engine.name}
    question |= {**vars(c.requests), **answer.limits.told, "goal": answer.served.goal.name}
    return {
        "question": question,
        "plans": [_plan_dict(answer, i) for i in range(len(answer.served.choices))],
        "interval": ranking.trust_of(answer.served, load)[0],
        "load": None if load is None else loaded | _load_dict(load),
        "speculation": answer.speculation and _speculation_dict(answer.speculation),
        "pools": None if answer.splits is None else [_pools_dict(split) for split in answer.splits],
        "frontier": None if answer.frontier is None else answer.frontier.as_dict(),
        "units": dict(ranking.SEEN_UNITS),
    }


def under_load_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The load asked for as one row, or else a row a plan, from what machines are told."""
    asked = {k: told["question"][k] for k in ("model", "system", "engine", "input", "output", "goal")}
    rows = [told["load"]] if told["load"] is not None else told["plans"]
    return [asked | row for row in rows]


def _load_dict(load: LoadMetrics) -> dict[str, float]:
    return floats(load, "rate waits reads active utilisation queued") | ranking.seen_dict(load)


def _plan_dict(answer: UnderLoad, i: int) -> dict[str, Any]:
    """What one plan carries."""
    served = answer.served.choices[i]
    row, one = served.row, answer.curve.at(served.row)
    own = answer.at_rate if i == 0 else None
    return {
        **ranking.served_dict(served),
        "goodput": float(answer.rates[row]),
        "most_rate": float(most_rate(one)[0]),
        "most_clients": served.clients,
        "goodput_simulated": own is not None,
        "at_goodput": _load_dict(own or open_load(one, answer.rates[row]).at(0)),
    }


def _speculation_dict(s: Speculation) -> dict[str, Any]:
    names = "window branches acceptance step guess verify verified tokens cycle tpot speedup break_even"
    return {"draft": s.draft.model.name, "fits": bool(s.fits), **floats(s, names)}


def _pools_dict(split: Disaggregation) -> dict[str, Any]:
    """What devices apart for reading prompts and for generating carry."""
    return {
        "readers": split.prefill_devices,
        "reader_plan": plan_text(split.prefill_plan),
        "writers": split.decode_devices,
        "writer_plan": plan_text(split.decode_plan),
        "goodput": split.rate,
        "most_rate": pools_limit(split),
        **picked(split, "reader_rate=prefill_rate writer_rate=decode_rate"),
        **picked(split, "read_time send_time sent_bytes=sent"),
        "simulated": split.simulated is not None,
        "at_goodput": _load_dict(split.simulated or split.load(split.rate)),
    }


def draft_comparison_tables(found: DraftComparison) -> list[Any]:
    """A heading, a table of tokens/s for each draft, and what is best."""
    parts: list[Any] = [
        f"{_asked(found)}, batch {found.batch:g}, context {found.context:g}, engine {found.engine.name}: "
        f"{found.plain:.4g} tokens/s without guesses",
        f"guesses: {_shape(found)}; tokens of a round: {found.counting}",
        "",
    ]
    for name in found.drafts:
        parts += [_draft_table(found, name), ""]
    return [*parts, _best_table(found), *_remarks(found)]


def _asked(found: DraftComparison) -> str:
    return f"{found.target.name} on {found.system.name}, {plan_text(found.plan)}"


def _shape(found: DraftComparison) -> str:
    return f"trees of {found.branches:g} branches" if found.branches > 1 else "sequences"


def _by_window(found: DraftComparison, value: Any, of: type = float) -> Any:
    """A number for each window."""
    return np.broadcast_to(np.asarray(value, of), (len(found.windows), 1))[:, 0]


def _draft_table(found: DraftComparison, name: str) -> Any:
    s = found.drafts[name]
    rates, gains = found.tokens_per_s(name), found.speedup(name)
    best = np.argmax(rates, axis=0)
    guess, verify, seen = (_by_window(found, v) for v in (s.guess, s.verify, s.verified))
    rows = []
    for i, window in enumerate(found.windows):
        cells = [f"{window:g}", f"{seen[i]:g}", show(guess[i], "s"), show(verify[i], "s")]
        for j in range(len(found.acceptances)):
            mark = "*" if best[j] == i and rates[i, j] > 0 else " "
            fits = f"{rates[i, j]:.4g} ({gains[i, j]:.2f}x){mark}"
            cells.append(fits if rates[i, j] > 0 else "does not fit ")
        rows.append(cells)
    title = f"{name} guesses ({_count(found.sizes[name])}, {plan_text(s.draft.plan)}): tokens/s (speed-up)"
    chances = (f">a = {chance:g}" for chance in found.acceptances)
    return table(title, [">window", ">verifies", ">guessing", ">verifying", *chances], rows)


def _best_table(found: DraftComparison) -> Any:
    rows = []
    for j, (chance, name) in enumerate(zip(found.acceptances, found.best_drafts(), strict=True)):
        rate, window = float(np.max(found.tokens_per_s(name)[:, j])), found.best_windows(name)[j]
        cells = (name, f"{window:g}", f"{rate:.4g}", f"{rate / found.plain:.2f}x")
        rows.append((f"{chance:g}", *(cells if rate > 0 else ("none fits", "", "", ""))))
    return table("best", ">acceptance|<draft|>window|>tokens/s|>speed-up", rows)


def _remarks(found: DraftComparison) -> list[str]:
    return [
        f"{name} has another vocabulary than {found.target.name}: its guesses must be translated, "
        "which costs time and acceptance that are not counted here"
        for name in found.other_vocabularies
    ]


def _count(parameters: float) -> str:
    """Parameters as people say them.

    >>> _count(8.03e9), _count(68e6)
    ('8.03B', '68M')
    """
    return f"{parameters / 1e9:.3g}B" if parameters >= 1e9 else f"{parameters / 1e6:.3g}M"


def draft_comparison_dict(found: DraftComparison) -> dict[str, Any]:
    """Every number, SI units; tables are by window, then acceptance."""
    question = picked(found, "target=target.name system=system.name") | {"plan": plan_text(found.plan)}
    drafts = []
    for name, s in found.drafts.items():
        rates = found.tokens_per_s(name)
        draft = {"draft": name, "parameters": found.sizes[name], "plan": plan_text(s.draft.plan)}
        draft |= picked(s, "guess verify verified", lambda value: _by_window(found, value))
        draft |= {"fits": _by_window(found, s.fits, bool)}
        draft |= {"tokens": np.broadcast_to(np.asarray(s.tokens, float), rates.shape), "tokens_per_s": rates}
        draft |= {"speedup": found.speedup(name), "best_window": found.best_windows(name)}
        drafts.append(draft | {"same_vocabulary": name not in found.other_vocabularies})
    return {
        "question": question | picked(found, "engine=engine.name batch context branches counting"),
        **picked(found, "tokens_per_s_without=plain window=windows acceptance=acceptances"),
        "drafts": drafts,
        "best_draft": found.best_drafts(),
    }


def draft_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """A comparison of drafts as rows, one for each draft, window and acceptance."""
    found = []
    for draft in told["drafts"]:
        one = {k: draft[k] for k in ("draft", "parameters", "plan", "same_vocabulary")}
        for i, window in enumerate(told["window"]):
            at = {k: draft[k][i] for k in ("guess", "verify", "verified", "fits")}
            for j, acceptance in enumerate(told["acceptance"]):
                gained = {k: draft[k][i][j] for k in ("tokens", "tokens_per_s", "speedup")}
                found.append({**one, "window": window, "acceptance": acceptance, **at, **gained})
    return found


def draw_comparison(found: DraftComparison, path: Path) -> Path:
    """Write the maps as SVG; the best window at each acceptance is framed."""
    high, count = max(float(np.max(found.tokens_per_s(name))) for name in found.drafts), len(found.drafts)
    size = (1.6 + 2.6 * count, 1.3 + 0.3 * max(5, len(found.windows)))
    with picture(path, size, 1, count, squeeze=False) as (figure, drawn):
        for axes, name in zip(drawn[0], found.drafts, strict=True):
            shown = _heat_map(axes, found, name, high)
        drawn[0][0].set_ylabel("window")
        figure.colorbar(shown, ax=list(drawn[0]), label="tokens/s", shrink=0.9)
        said = f"{_asked(found)}, {_shape(found)}: tokens/s, {found.plain:.4g} without guesses"
        figure.suptitle(said, fontsize=9)
    return path


def _heat_map(axes: Any, found: DraftComparison, name: str, high: float) -> Any:
    rates = found.tokens_per_s(name)
    shown = axes.pcolormesh(rates, cmap="viridis", vmin=0.0, vmax=high, edgecolors="white", linewidth=0.6)
    best = np.argmax(rates, axis=0)
    for (i, j), rate in np.ndenumerate(rates):
        ink = "#222222" if rate > 0.62 * high else "white"
        text = f"{rate:.3g}" if rate > 0 else "no fit"
        weight = "bold" if best[j] == i else "normal"
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=ink, fontsize=7, fontweight=weight)
    for j, i in enumerate(best):
        corners = ([j, j + 1, j + 1, j, j], [i, i, i + 1, i + 1, i])
        axes.plot(*corners, color="#c44e52", linewidth=1.4, clip_on=False)
    axes.set_xticks(np.arange(len(found.acceptances)) + 0.5, [f"{a:g}" for a in found.acceptances])
    axes.set_yticks(np.arange(len(found.windows)) + 0.5, [f"{w:g}" for w in found.windows])
    axes.set(xlabel="acceptance", title=f"{name} guesses")
    axes.grid(visible=False)
    return shown
