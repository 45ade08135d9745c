"""Speculative decoding by drafts, for people, for machines, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.drawing import STYLE, pyplot_of, save
from strata.mapping.plan import plan_text
from strata.serving.drafts import DraftComparison
from strata.units import show


def draft_comparison_tables(found: DraftComparison) -> list[Any]:
    """A heading, a table of tokens/s for each draft, and what is best."""
    shape = f"trees of {found.branches:g} branches" if found.branches > 1 else "sequences"
    parts: list[Any] = [
        f"{found.target.name} on {found.system.name}, {plan_text(found.plan)}, batch {found.batch:g}, "
        f"context {found.context:g}, engine {found.engine.name}: {found.plain:.4g} tokens/s without guesses",
        f"guesses: {shape}; tokens of a round: {found.counting}",
        "",
    ]
    for name in found.drafts:
        parts += [_draft_table(found, name), ""]
    return [*parts, _best_table(found), *_remarks(found)]


def _draft_table(found: DraftComparison, name: str) -> Any:
    s = found.drafts[name]
    table = plain_table(">window", ">verifies", ">guessing", ">verifying")
    for chance in found.acceptances:
        table.add_column(f"a = {chance:g}", justify="right", no_wrap=True)
    rates, gains = found.tokens_per_s(name), found.speedup(name)
    best = np.argmax(rates, axis=0)
    rows = (len(found.windows), 1)
    guess, verify, seen = (
        np.broadcast_to(np.asarray(v, float), rows)[:, 0] for v in (s.guess, s.verify, s.verified)
    )
    for i, window in enumerate(found.windows):
        cells = [
            f"{rates[i, j]:.4g} ({gains[i, j]:.2f}x){'*' if best[j] == i and rates[i, j] > 0 else ' '}"
            if rates[i, j] > 0
            else "does not fit "
            for j in range(len(found.acceptances))
        ]
        table.add_row(f"{window:g}", f"{seen[i]:g}", show(guess[i], "s"), show(verify[i], "s"), *cells)
    title = f"{name} guesses ({_count(found.sizes[name])}, {plan_text(s.draft.plan)}): tokens/s (speed-up)"
    return titled(title, table)


def _best_table(found: DraftComparison) -> Any:
    table = plain_table(">acceptance", "<draft", ">window", ">tokens/s", ">speed-up")
    for j, (chance, name) in enumerate(zip(found.acceptances, found.best_drafts(), strict=True)):
        rate = float(np.max(found.tokens_per_s(name)[:, j]))
        if rate > 0:
            window = found.best_windows(name)[j]
            table.add_row(f"{chance:g}", name, f"{window:g}", f"{rate:.4g}", f"{rate / found.plain:.2f}x")
        else:
            table.add_row(f"{chance:g}", "none fits", "", "", "")
    return titled("best", table)


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
    windows = (len(found.windows), 1)
    return {
        "question": {
            "target": found.target.name,
            "system": found.system.name,
            "plan": plan_text(found.plan),
            "engine": found.engine.name,
            "batch": found.batch,
            "context": found.context,
            "branches": found.branches,
            "counting": found.counting,
        },
        "tokens_per_s_without": found.plain,
        "window": found.windows,
        "acceptance": found.acceptances,
        "drafts": [
            {
                "draft": name,
                "parameters": found.sizes[name],
                "plan": plan_text(s.draft.plan),
                "guess": np.broadcast_to(np.asarray(s.guess, float), windows)[:, 0],
                "verify": np.broadcast_to(np.asarray(s.verify, float), windows)[:, 0],
                "verified": np.broadcast_to(np.asarray(s.verified, float), windows)[:, 0],
                "fits": np.broadcast_to(np.asarray(s.fits, bool), windows)[:, 0],
                "tokens": np.broadcast_to(np.asarray(s.tokens, float), found.tokens_per_s(name).shape),
                "tokens_per_s": found.tokens_per_s(name),
                "speedup": found.speedup(name),
                "best_window": found.best_windows(name),
                "same_vocabulary": name not in found.other_vocabularies,
            }
            for name, s in found.drafts.items()
        ],
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
    pyplot = pyplot_of()
    high = max(float(np.max(found.tokens_per_s(name))) for name in found.drafts)
    with pyplot.rc_context(STYLE):
        count = len(found.drafts)
        size = (1.6 + 2.6 * count, 1.3 + 0.3 * max(5, len(found.windows)))
        figure, drawn = pyplot.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
        for axes, name in zip(drawn[0], found.drafts, strict=True):
            shown = _heat_map(axes, found, name, high)
        drawn[0][0].set_ylabel("window")
        figure.colorbar(shown, ax=list(drawn[0]), label="tokens/s", shrink=0.9)
        shape = f"trees of {found.branches:g} branches" if found.branches > 1 else "sequences"
        figure.suptitle(
            f"{found.target.name} on {found.system.name}, {plan_text(found.plan)}, {shape}: tokens/s, "
            f"{found.plain:.4g} without guesses",
            fontsize=9,
        )
        return save(pyplot, figure, path)


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
    axes.set_xlabel("acceptance")
    axes.set_title(f"{name} guesses")
    axes.grid(visible=False)
    return shown
