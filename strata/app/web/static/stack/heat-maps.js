// Temperatures of dies as small maps on one scale of colours.
import { h, setHover } from "../dom.js";
import { show as text } from "../units.js";

const RAMP = [
  [255, 250, 222],
  [252, 212, 128],
  [245, 150, 82],
  [218, 82, 62],
  [160, 30, 60],
  [84, 14, 52],
];
const css = `linear-gradient(90deg, ${RAMP.map((c) => `rgb(${c.join(" ")})`).join(", ")})`;

function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1),
    i = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[i].map((c, k) => Math.round(c + (RAMP[i + 1][k] - c) * (at - i)));
}

// The scale that all maps of an answer share.
export function scaleOf(heat) {
  const low = Math.min(...heat.dies.map((d) => d.min_K)),
    high = Math.max(...heat.dies.map((d) => d.max_K));
  return [low, Math.max(high, low + 1)];
}

export function maps(heat, side) {
  const [low, high] = scaleOf(heat);
  const hottest = heat.dies.reduce((a, b) => (a.max_K >= b.max_K ? a : b));
  return h(
    "div",
    {
      style: {
        display: "grid",
        "grid-template-columns": "repeat(auto-fill, minmax(108px, 1fr))",
        gap: "12px",
      },
    },
    heat.dies.map((die) => map(die, low, high, side, die === hottest)),
  );
}

function map(die, low, high, side, hottest) {
  const count = die.cells_K.length;
  const canvas = h("canvas", {
    width: count,
    height: count,
    role: "img",
    "aria-label": `${die.name}: ${text(die.min_K, "K")} to ${text(die.max_K, "K")}`,
    style: {
      width: "100%",
      "aspect-ratio": "1",
      display: "block",
      "border-radius": "6px",
      border: hottest ? "2px solid var(--ink)" : "1px solid var(--line)",
    },
  });
  const paint = canvas.getContext("2d"),
    image = paint.createImageData(count, count);
  die.cells_K.flat().forEach((t, i) => {
    const [r, g, b] = shade((t - low) / (high - low));
    image.data.set([r, g, b, 255], 4 * i);
  });
  paint.putImageData(image, 0, 0);
  const whole = [
    [die.name, `hottest ${text(die.max_K, "K")}, mean ${text(die.mean_K, "K")}`],
    ["power", text(die.power_W, "W")],
    ["limit", `${text(die.limit_K, "K")}, ${(die.limit_K - die.max_K).toFixed(1)} K left`],
  ];
  setHover(canvas, whole);
  canvas.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect(),
      at = (v, from, size) => Math.min(count - 1, Math.max(0, Math.floor(((v - from) / size) * count)));
    const x = at(e.clientX, box.left, box.width),
      y = at(e.clientY, box.top, box.height),
      mm = (n) => (((n + 0.5) / count) * side * 1e3).toFixed(1);
    setHover(canvas, [[`${die.name} at ${mm(x)}, ${mm(y)} mm`, text(die.cells_K[y][x], "K")], ...whole]);
  });
  const over = die.max_K > die.limit_K;
  return h(
    "figure",
    { style: { margin: "0", "min-width": "0" } },
    canvas,
    h(
      "figcaption",
      { style: { "font-size": "0.8rem" } },
      h("strong", {}, die.name),
      h("span", { class: over ? "bad" : "dim" }, ` ${text(die.max_K, "K")}${over ? " too hot" : ""}`),
    ),
  );
}

export function legend(heat, limits) {
  const [low, high] = scaleOf(heat);
  const inside = Object.entries(limits ?? {}).filter(([, t]) => t > low && t < high);
  return h(
    "div",
    { style: { "max-width": "420px" } },
    h(
      "div",
      { style: { position: "relative", height: "14px", "border-radius": "7px", background: css } },
      inside.map(([name, t]) =>
        h("span", {
          hover: [[`limit of ${name}`, text(t, "K")]],
          style: {
            position: "absolute",
            left: `${(100 * (t - low)) / (high - low)}%`,
            top: "-3px",
            width: "2px",
            height: "20px",
            background: "var(--ink)",
          },
        }),
      ),
    ),
    h(
      "div",
      { class: "dim", style: { display: "flex", "justify-content": "space-between", "font-size": "0.8rem" } },
      [0, 0.5, 1].map((share) => h("span", {}, text(low + share * (high - low), "K"))),
    ),
  );
}
