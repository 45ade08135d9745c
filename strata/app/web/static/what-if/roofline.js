// The roofline: roofs of memory levels, ceilings of arithmetic, each op a dot.
import { h, s } from "../dom.js";
import { digits, percent, show as text } from "../units.js";
import { tint } from "./answer.js";

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
