// Drawn from an answer: where time goes, the step, what more would buy.
import { h, s, table } from "../dom.js";
import { percent, show as text } from "../units.js";
import { tint } from "./answer.js";
import { wide } from "./focus.js";

const WORDS = {
  network: "network (exposed communication)",
  overhead: "fixed times of kernels",
  bubble: "pipeline bubble",
  host: "the engine's host",
  throttling: "throttling (power and heat)",
};

function shares(label, parts, unit, colour) {
  const rows = Object.entries(parts)
    .filter(([, v]) => v > 0)
    .sort((a, b) => b[1] - a[1]);
  const sum = rows.reduce((t, [, v]) => t + v, 0) || 1;
  return h(
    "div",
    {},
    h("h3", {}, label),
    h(
      "div",
      {
        class: "barline",
        role: "img",
        "aria-label": `${label}: ${rows.map(([n, v]) => `${n} ${percent(v / sum, 0)}`).join(", ")}`,
      },
      rows.map(([name, v], i) =>
        h("span", {
          style: { width: `${(100 * v) / sum}%`, background: colour(name, i) },
          hover: [
            [WORDS[name] ?? name, text(v, unit)],
            ["share", percent(v / sum)],
          ],
        }),
      ),
    ),
    h(
      "div",
      { class: "legend" },
      rows
        .filter(([, v]) => v / sum >= 0.005)
        .map(([name, v], i) =>
          h(
            "span",
            {},
            h("span", { class: "swatch", style: { background: colour(name, i) } }),
            `${WORDS[name] ?? name} ${percent(v / sum, 0)}`,
          ),
        ),
    ),
  );
}

export const breakdown = (told) =>
  h(
    "section",
    { class: "panel stackv" },
    h("h2", {}, "Where it goes"),
    shares("time by what binds it", told.resources, "s", tint),
    shares("time by kind of op", told.kinds, "s", (_, i) => tint("", i)),
    shares("energy by what takes it", told.energy, "J", (_, i) => tint("", i)),
  );

// ------------------------------------------------------------------------------------------------ the step
const opRows = (ops) => [
  ["op", "starts", "takes", "bound by"],
  ops.map((o) => [`${o.block}.${o.op}`, text(o.start, "s"), text(o.time, "s"), o.bound_by]),
];

export function step(told) {
  const { layers, kinds } = told.timeline;
  const names = Object.keys(kinds);
  const spent = (name) => layers.filter((l) => l.kind === name).reduce((t, l) => t + l.time, 0);
  const most = names.reduce((a, b) => (spent(b) > spent(a) ? b : a), names[0]);
  const holder = h("div", {});
  const draw = (name) => holder.replaceChildren(...layer(name, kinds[name], spent(name), told.step));
  const whole = told.step || 1;
  const strip = s("svg", {
    class: "drawing",
    viewBox: "0 0 1000 44",
    role: "img",
    "aria-label": `${layers.length} layers of a step of ${text(told.step, "s")}`,
  });
  layers.forEach((l) => {
    const i = names.indexOf(l.kind);
    const bar = s("rect", {
      x: (1000 * l.start) / whole,
      y: 4,
      width: Math.max(0.6, (1000 * l.time) / whole - 0.8),
      height: 24,
      fill: tint("", i),
      hover: [
        [
          l.layer < 0 ? "before the layers" : l.kind === "head" ? "after the layers" : `layer ${l.layer}`,
          l.kind,
        ],
        ["takes", text(l.time, "s")],
        ["starts at", text(l.start, "s")],
      ],
      onclick: () => draw(l.kind),
    });
    strip.append(bar);
  });
  strip.append(
    s("text", { x: 0, y: 42 }, "0"),
    s("text", { x: 1000, y: 42, "text-anchor": "end" }, text(told.step, "s")),
  );
  draw(most);
  return h(
    "section",
    { class: "panel stackv" },
    h("h2", {}, "The step, layer by layer"),
    h(
      "p",
      { class: "dim" },
      `One micro-batch through ${layers.filter((l) => l.layer >= 0).length} layers on one device. Choose a kind of layer to see its ops.`,
    ),
    strip,
    h(
      "div",
      { class: "row" },
      names.map((name, i) =>
        h(
          "button",
          { class: "quiet small", type: "button", onclick: () => draw(name) },
          h("span", { class: "swatch", style: { background: tint("", i) } }),
          `${name} x ${layers.filter((l) => l.kind === name).length}`,
        ),
      ),
    ),
    holder,
  );
}

function layer(name, ops, all, whole) {
  const span = ops.at(-1).start + ops.at(-1).time || 1;
  const across = 1000,
    high = 30;
  const drawing = s("svg", {
    class: "drawing",
    viewBox: `0 0 ${across} ${high + 96}`,
    role: "img",
    "aria-label": `ops of one ${name}, ${text(span, "s")}`,
  });
  let taken = -Infinity;
  ops.forEach((o) => {
    const x = (across * o.start) / span,
      w = (across * o.time) / span;
    drawing.append(
      s("rect", {
        x,
        y: 6,
        width: Math.max(0.8, w - 0.8),
        height: high,
        rx: 2,
        fill: `var(--c-${o.bound_by}, var(--accent))`,
        hover: [
          [`${o.block}.${o.op}`, o.kind],
          ["takes", `${text(o.time, "s")}, ${percent(o.time / span)} of the layer`],
          ["bound by", o.bound_by],
        ],
      }),
    );
    const middle = x + w / 2;
    if (w > 12 && middle - taken > 13) {
      taken = middle;
      drawing.append(
        s(
          "text",
          { x: middle, y: high + 14, transform: `rotate(40 ${middle} ${high + 14})`, class: "op" },
          o.op,
        ),
      );
    }
  });
  const bounds = [...new Set(ops.map((o) => o.bound_by))];
  const [head, rows] = opRows(ops);
  return [
    h("h3", {}, `One ${name}: ${text(span, "s")}; all of them ${text(all, "s")}, ${percent(all / whole, 0)}`),
    drawing,
    h(
      "div",
      { class: "legend" },
      "bound by:",
      bounds.map((b) =>
        h(
          "span",
          {},
          h("span", { class: "swatch", style: { background: `var(--c-${b}, var(--accent))` } }),
          b,
        ),
      ),
    ),
    h(
      "details",
      {},
      h("summary", {}, "These ops as a table"),
      h("div", wide(`Ops of one ${name}`), table(head, rows, [0, 3])),
    ),
  ];
}

export function operations(told) {
  const whole = told.step || 1;
  return h(
    "details",
    { class: "panel" },
    h("summary", {}, "Ops of the step, longest first"),
    h(
      "div",
      wide("Ops of the step"),
      table(
        ["op", "times", "in all", "share", "of peak", "bound by"],
        told.ops.map((o) => [
          `${o.block}.${o.op}`,
          o.count,
          text(o.time, "s"),
          percent(o.time / whole),
          percent(o.time ? o.lower / o.time : 0, 0),
          o.bound_by,
        ]),
        [0, 5],
      ),
    ),
  );
}

export function gained(told, move) {
  const rows = told.gains.filter((g) => g.gain !== null && Math.abs(g.gain) >= 0.0005);
  const small = told.gains.filter((g) => !g.note && g.gain !== null && Math.abs(g.gain) < 0.0005);
  const most = Math.max(0.001, ...rows.map((g) => Math.abs(g.gain)));
  return [
    h("h2", {}, "What 10 % more would buy"),
    !rows.length && h("p", {}, "Nothing by itself."),
    h(
      "div",
      { class: "gains" },
      rows.map((g) =>
        h(
          "div",
          {
            class: "gain",
            hover: [
              [g.resource, `10 % more makes the step ${percent(g.gain)} faster`],
              ["moved", g.moved],
              ["note", g.note],
            ],
          },
          h("span", {}, g.resource),
          h(
            "span",
            { class: "track" },
            h("i", {
              style: {
                width: `${(100 * Math.abs(g.gain)) / most}%`,
                background: g.gain > 0 ? "var(--accent)" : "var(--bad)",
              },
            }),
          ),
          h("strong", {}, `${g.gain >= 0 ? "+" : "−"}${percent(Math.abs(g.gain))}`),
        ),
      ),
    ),
    small.length > 0 &&
      h("p", { class: "dim small" }, `Less than 0.05 % each: ${small.map((g) => g.resource).join(", ")}.`),
  ];
}
