"""Speculative decoding by drafts, for people, for machines, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import picture
from strata.app.render.tables import picked, table
from strata.mapping.plan import plan_text
from strata.serving.drafts import DraftComparison
from strata.units import show


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
    return {
        "question": {
            **picked(found, "target=target.name system=system.name"),
            "plan": plan_text(found.plan),
            **picked(found, "engine=engine.name batch context branches counting"),
        },
        "tokens_per_s_without": found.plain,
        "window": found.windows,
        "acceptance": found.acceptances,
        "drafts": [
            {
                "draft": name,
                "parameters": found.sizes[name],
                "plan": plan_text(s.draft.plan),
                **picked(s, "guess verify verified", lambda value: _by_window(found, value)),
                "fits": _by_window(found, s.fits, bool),
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
    axes.set_xlabel("acceptance")
    axes.set_title(f"{name} guesses")
    axes.grid(visible=False)
    return shown
