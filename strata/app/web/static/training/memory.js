// Memory of a device, stage by stage, by purpose, with the limit.
import { h, s } from "../dom.js";
import { percent, show as text } from "../units.js";

const PURPOSES = {
  parameters: "--c-compute",
  gradients: "--c-memory",
  optimizer: "--c-network",
  activations: "--c-bubble",
  logits: "--c-cache",
  communication: "--c-host",
  workspace: "--c-overhead",
  communicators: "--c-overhead",
  allocator: "--faint",
  reserve: "--line",
};
const paint = (purpose) => `var(${PURPOSES[purpose] ?? "--c-overhead"})`;

export function memoryBars(told) {
  const names = Object.keys(told.purposes);
  const stages = Math.max(...names.map((n) => told.purposes[n].length), 1);
  const full = Array.from({ length: stages }, (_, i) =>
    names.reduce((sum, n) => sum + (told.purposes[n][i] ?? 0), 0),
  );
  const most = Math.max(told.limit, ...full) * 1.06;
  const ROW = stages > 24 ? 14 : 26,
    LABEL = 104,
    WIDTH = 1000,
    TOP = 20;
  const at = (bytes) => (bytes / most) * (WIDTH - LABEL - 74);
  const drawing = s(
    "svg",
    {
      class: "drawing stages",
      viewBox: `0 0 ${WIDTH} ${TOP + ROW * stages + 6}`,
      role: "img",
      "aria-label": `Memory of ${stages} stages; a device holds ${text(told.limit, "B")}`,
    },
    full.map((sum, i) => {
      let x = LABEL;
      const y = TOP + i * ROW;
      return s(
        "g",
        {},
        (ROW > 20 || i % 4 === 0) &&
          s("text", { x: 2, y: y + ROW * 0.68 }, stages > 1 ? `stage ${i}` : "fullest device"),
        names.map((name) => {
          const size = told.purposes[name][i] ?? 0;
          const bar = s("rect", {
            x,
            y: y + 2,
            width: at(size),
            height: ROW - 4,
            fill: paint(name),
            class: "cell",
            hover: [
              [`stage ${i}: ${name}`, text(size, "B")],
              ["of all it holds", percent(size / sum)],
              ["of its memory", percent(size / told.limit)],
            ],
          });
          x += at(size);
          return bar;
        }),
        ROW > 20 &&
          s(
            "text",
            { x: x + 6, y: y + ROW * 0.68, class: sum > told.limit ? "over" : "faint" },
            text(sum, "B"),
          ),
      );
    }),
    s("line", {
      x1: LABEL + at(told.limit),
      x2: LABEL + at(told.limit),
      y1: TOP - 4,
      y2: TOP + ROW * stages + 4,
      class: "limit",
    }),
    s(
      "text",
      { x: LABEL + at(told.limit), y: 11, "text-anchor": "end", class: "faint" },
      `a device holds ${text(told.limit, "B")}`,
    ),
  );
  const fullest = full.indexOf(Math.max(...full));
  return [
    h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Memory by stage" }, drawing),
    h(
      "div",
      { class: "legend" },
      names.map((name) =>
        h(
          "span",
          {},
          h("span", { class: "swatch", style: { background: paint(name) } }),
          `${name} ${text(told.purposes[name][fullest] ?? told.purposes[name][0], "B")}`,
        ),
      ),
    ),
  ];
}
