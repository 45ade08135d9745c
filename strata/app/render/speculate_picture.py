"""Heat maps of tokens/s over window and acceptance, one for each draft, on one scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.drawing import STYLE, pyplot_of, save
from strata.mapping.plan import plan_text
from strata.serving.drafts import DraftComparison


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
