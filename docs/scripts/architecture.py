"""The one screen as a picture: `python docs/scripts/architecture.py docs/architecture.svg`.

Boxes are records, round ones are verbs; dashed ones are not built yet. The same code gives the same bytes.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1080, 620
INK, PALE, LINE = "#1f2933", "#52606d", "#7b8794"
GIVEN, VERB, MADE, OUTER = "#e3ecf8", "#fbe9d8", "#e2f2e7", "#efeaf7"


class Picture:
    """Shapes in the order they are drawn."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def box(self, x: int, y: int, w: int, h: int, lines: list[str], fill: str, **style: bool) -> None:
        """A box with a title and smaller lines below it."""
        dash = ' stroke-dasharray="5 4"' if style.get("later") else ""
        radius = h // 2 if style.get("verb") else 6
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="{radius}" fill="{fill}" stroke="{LINE}"{dash}/>'
        )
        top = y + h / 2 + 5 - 8 * (len(lines) - 1)
        for place, line in enumerate(lines):
            size, weight = (15, "bold") if place == 0 else (12, "normal")
            self.text(x + w / 2, top + 17 * place, line, size=size, weight=weight)

    def frame(self, x: int, y: int, w: int, h: int) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="10" fill="none" stroke="{LINE}" '
            'stroke-dasharray="2 3"/>'
        )

    def text(
        self, x: float, y: float, line: str, *, size: int = 12, weight: str = "normal", anchor: str = "middle"
    ) -> None:
        colour = INK if size > 12 else PALE
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
            f'text-anchor="{anchor}">{escape(line)}</text>'
        )

    def arrow(self, *points: tuple[int, int], later: bool = False) -> None:
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if later else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.6"{dash} marker-end="url(#tip)"/>'
        )

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif" role="img" aria-label="From inputs to metrics">'
        )
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>'
        )
        ground = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>'
        return "\n".join([head, tip, ground, *self.parts, "</svg>", ""])


def architecture() -> str:
    """Inputs above, the passes of `evaluate.py` in the middle, what asks for evaluations below."""
    made = Picture()
    _inputs(made)
    _passes(made)
    _callers(made)
    return made.svg()


def _inputs(made: Picture) -> None:
    made.box(20, 34, 122, 34, ["Technology"], GIVEN)
    made.box(20, 76, 122, 34, ["Budget"], GIVEN, later=True)
    made.box(20, 118, 122, 34, ["Fabric"], GIVEN)
    made.box(188, 34, 84, 40, ["Chip"], GIVEN)
    made.arrow((142, 51), (186, 51))
    made.arrow((142, 93), (165, 93), (165, 60), (186, 60), later=True)
    made.frame(316, 14, 744, 160)
    made.text(330, 34, "Case: all inputs of an evaluation in one frozen record", anchor="start")
    given = [
        ("System", "devices and", "the links between"),
        ("Program", "a language model,", "an FFT, your own"),
        ("Workload", "prefill, decode,", "serve, train"),
        ("Plan or Layout", "which axis lies", "on which ranks"),
        ("Engine", "what software", "adds"),
        ("Economics", "prices, power,", "lifetime"),
    ]
    for place, lines in enumerate(given):
        made.box(330 + 120 * place, 48, 112, 72, list(lines), GIVEN)
    made.arrow((272, 54), (300, 54), (300, 75), (328, 75))
    made.arrow((142, 135), (300, 135), (300, 95), (328, 95))
    for place, line in enumerate(
        (
            "Any number may be an array. Structure (which ops, which collectives) is fixed;",
            "sizes broadcast, so one design and a box of a million run the same lines.",
        )
    ):
        made.text(330, 144 + 17 * place, line, anchor="start")


def _passes(made: Picture) -> None:
    verbs = [("trace", 54), ("shard", 252), ("place", 450), ("price", 648), ("summarise", 846)]
    results = [
        ("Graph", "tensors with named axes,", "ops, blocks, sequence"),
        ("Graph of one rank", "collectives follow", "from layouts"),
        ("Placement", "mesh dimensions on", "fabric dimensions"),
        ("Step", "one table of pricers;", "stages, overlap, clock"),
        ("Metrics", "time, energy, power, heat,", "memory, cost, bounds"),
    ]
    made.arrow((688, 174), (688, 194), (119, 194), (119, 211))
    made.text(700, 195, "evaluate.py, line for line", anchor="start")
    for (verb, x), lines in zip(verbs, results, strict=True):
        made.box(x, 214, 130, 38, [verb], VERB, verb=True)
        made.arrow((x + 65, 252), (x + 65, 284))
        made.box(x - 22, 290, 174, 82, list(lines), MADE)
        if x != verbs[-1][1]:
            made.arrow((x + 152, 331), (x + 164, 331), (x + 164, 233), (x + 196, 233))
    made.box(285, 398, 106, 32, ["fuse"], VERB, verb=True, later=True)
    made.arrow((338, 398), (338, 376), later=True)


def _callers(made: Picture) -> None:
    made.text(896, 412, "Result: metrics, why (bound_by, reason, timeline), inputs", anchor="end")
    made.arrow((911, 372), (911, 440))
    made.frame(20, 444, 1040, 122)
    made.text(34, 464, "They ask for evaluations; none has a model of its own", anchor="start")
    callers = [
        ("search", "a Space, samplers that", "ask and are told, proofs"),
        ("serving", "curves, queues, pools,", "goodput, speculation"),
        ("sweeps, plans", "every legal plan, what", "10 % more would buy"),
        ("validation", "readers of measured", "files, fits, accuracy"),
        ("studies", "published findings,", "claim by claim"),
        ("app", "commands, tables,", "reports, pictures"),
    ]
    for place, lines in enumerate(callers):
        made.box(34 + 170 * place, 476, 160, 76, list(lines), OUTER)
    made.arrow((8, 505), (8, 164), (314, 164))
    made.parts.append(f'<path d="M20 505 L8 505" stroke="{LINE}" stroke-width="1.6"/>')
    made.text(16, 180, "the next cases", anchor="start")
    made.text(540, 596, "Boxes are frozen records, round ones pure functions; dashed ones are not built yet.")


if __name__ == "__main__":
    Path(sys.argv[1] if sys.argv[1:] else "docs/architecture.svg").write_text(
        architecture(), encoding="utf-8"
    )
