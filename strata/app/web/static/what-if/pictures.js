// Drawn from an answer: where time goes, the roofline, the step.
import { h, s, table } from "../dom.js";
import { digits, percent, show as text } from "../units.js";
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

// ------------------------------------------------------------------------------------------------ the roofline
export function roofline(told) {
  const { roofs, ceilings, points, hidden } = told.roofline;
  const usable = points.filter((p) => p.intensity > 0 && p.rate > 0);
  const top = Math.max(...ceilings.map((c) => c.peak)),
    slowest = Math.min(...roofs.map((r) => r.peak));
  const xs = usable.map((p) => p.intensity);
  const lo = Math.floor(Math.log10(Math.min(0.1, ...xs))),
    hi = Math.ceil(Math.log10(Math.max((3 * top) / slowest, ...xs)));
  const bottom = Math.floor(Math.log10(Math.min(top / 1e4, ...usable.map((p) => p.rate)))),
    roof = Math.log10(top) + 0.25;
  const W = 460,
    H = 350,
    L = 52,
    R = 10,
    T = 24,
    B = 40;
  const x = (v) => L + ((W - L - R) * (Math.log10(v) - lo)) / (hi - lo);
  const y = (v) => H - B - ((H - B - T) * (Math.log10(v) - bottom)) / (roof - bottom);
  const svg = s("svg", {
    class: "drawing",
    viewBox: `0 0 ${W} ${H}`,
    role: "img",
    "aria-label": `roofline with ${usable.length} ops`,
  });
  for (let e = lo; e <= hi; e++)
    svg.append(
      s("line", { x1: x(10 ** e), x2: x(10 ** e), y1: T, y2: H - B, class: "grid" }),
      s(
        "text",
        { x: x(10 ** e), y: H - B + 16, "text-anchor": e === hi ? "end" : "middle" },
        e < 0 ? String(10 ** e) : digits(10 ** e),
      ),
    );
  for (let e = Math.ceil(bottom); e <= Math.floor(roof); e++)
    svg.append(
      s("line", { x1: L, x2: W - R, y1: y(10 ** e), y2: y(10 ** e), class: "grid" }),
      s("text", { x: L - 6, y: y(10 ** e) + 4, "text-anchor": "end" }, tick(e)),
    );
  svg.append(
    s("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, "FLOP for each byte of DRAM"),
    s("text", { x: 2, y: 12, class: "dimmed" }, "FLOP/s"),
  );
  roofs.forEach((r, i) => {
    const cut = Math.min(10 ** hi, top / r.peak);
    const from = Math.max(10 ** lo, 10 ** bottom / r.peak);
    svg.append(
      s("line", {
        x1: x(from),
        y1: y(from * r.peak),
        x2: x(cut),
        y2: y(cut * r.peak),
        class: "roof",
        stroke: tint(i === roofs.length - 1 ? "memory" : "cache", 0),
        hover: [
          [r.name, `${text(r.peak, "B/s")} peak`],
          ["sustained", text(r.bandwidth, "B/s")],
        ],
      }),
    );
    const [ax, ay, bx, by] = [x(from), y(from * r.peak), x(cut), y(cut * r.peak)];
    const angle = (Math.atan2(by - ay, bx - ax) * 180) / Math.PI;
    const px = bx + (ax - bx) * (0.1 + 0.2 * i),
      py = by + (ay - by) * (0.1 + 0.2 * i);
    svg.append(
      s(
        "text",
        {
          x: px,
          y: py - 4,
          transform: `rotate(${angle} ${px} ${py})`,
          "text-anchor": "end",
          class: "dimmed",
        },
        r.name,
      ),
    );
  });
  ceilings.forEach((c) =>
    svg.append(
      s("line", {
        x1: x(Math.min(10 ** hi, c.peak / Math.max(...roofs.map((r) => r.peak)))),
        x2: W - R,
        y1: y(c.peak),
        y2: y(c.peak),
        class: "roof",
        stroke: tint("compute", 0),
        hover: [
          [c.name, `${text(c.peak, "FLOP/s")} peak`],
          ["sustained", text(c.rate, "FLOP/s")],
        ],
      }),
      s("text", { x: W - R - 2, y: y(c.peak) - 4, "text-anchor": "end", class: "dimmed" }, c.name),
    ),
  );
  usable.forEach((p) =>
    svg.append(
      s("circle", {
        cx: x(p.intensity),
        cy: y(p.rate),
        r: 4 + 14 * Math.sqrt(p.share),
        class: "dot",
        fill: `var(--c-${p.bound_by}, var(--accent))`,
        hover: [
          [p.op, `bound by ${p.bound_by}`],
          ["share of the step", percent(p.share)],
          ["rate", text(p.rate, "FLOP/s")],
          ["intensity", `${digits(p.intensity)} FLOP/B`],
        ],
      }),
    ),
  );
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Roofline of one device"),
    svg,
    h(
      "p",
      { class: "dim small" },
      `Each dot is an op, as large as its share of the step.${hidden ? ` ${percent(hidden, 0)} of the time has no FLOP and is not drawn.` : ""}`,
    ),
  );
}
// 13 as "10 T"
function tick(e) {
  const at = Math.max(0, Math.floor(e / 3));
  return `${10 ** (e - 3 * at)} ${["", "k", "M", "G", "T", "P", "E"][at] ?? ""}`;
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
