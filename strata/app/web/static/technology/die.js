// A generated die to scale: interfaces along its edges, shared levels as bands, bundles of units as a grid; memory devices beside
// it at the same scale. Areas are those of the chip; where blocks stand is the drawing's own.
import { s } from "../dom.js";
import { roundLength } from "../controls.js";
import { digits } from "../units.js";

const ROOM = 430, // px of the die's side, or of the longer side of all dies
  MOST_CELLS = 420;
const HUES = {
  core: "var(--c-compute)",
  memory: "var(--c-memory)",
  rest: "var(--line)",
};
const LEVELS = [
  "var(--c-cache)",
  "var(--c-bubble)",
  "color-mix(in srgb, var(--c-cache) 45%, var(--ink))",
  "var(--c-host)",
];
const NETS = ["var(--c-network)", "var(--good)"];

// Component to colour: one for each level and each network of this chip.
export function hues(told) {
  const found = { ...HUES };
  told.levels.forEach((l, i) => (found[l.name] = LEVELS[i % LEVELS.length]));
  told.networks.forEach((n, i) => (found[n.name] = NETS[i % NETS.length]));
  return found;
}

const box = (x, y, width, height, fill, hover, extra = {}) =>
  s("rect", {
    x: x.toFixed(2),
    y: y.toFixed(2),
    width: Math.max(width, 0).toFixed(2),
    height: Math.max(height, 0).toFixed(2),
    fill,
    hover,
    ...extra,
  });

export function die(told) {
  const area = told.use.area_m2,
    colour = hues(told),
    dies = told.dies,
    side = Math.sqrt(area.total / dies), // m
    devices = told.device_mount === "beside" ? told.memory.devices : 0,
    stack = devices ? Math.sqrt(told.device_m2) : 0,
    gap = 0.04 * side,
    rows = Math.ceil(devices / 2),
    high = Math.max(side, rows * stack + Math.max(rows - 1, 0) * gap * 0.4),
    wide = dies * side + (dies - 1) * gap * 0.2 + (devices ? 2 * (stack + gap) : 0),
    scale = Math.min((ROOM * 1.6) / wide, ROOM / high),
    parts = [],
    left = 8,
    top = 8;
  for (let i = 0; i < dies; i++)
    parts.push(
      ...oneDie(
        told,
        colour,
        left + ((devices ? stack + gap : 0) + i * (side + gap * 0.2)) * scale,
        top + ((high - side) / 2) * scale,
        side * scale,
      ),
    );
  for (let i = 0; i < devices; i++) {
    const room = high / rows,
      x = i % 2 ? wide - stack : 0;
    parts.push(
      box(
        left + x * scale,
        top + (Math.floor(i / 2) * room + (room - stack) / 2) * scale,
        stack * scale,
        stack * scale,
        colour.memory,
        [
          [`${told.memory.device}, ${i + 1} of ${devices}`, `${digits(told.device_m2 * 1e6)} mm²`],
          ["binds", told.binds.memory],
        ],
        { rx: 3, "fill-opacity": 0.7 },
      ),
    );
  }
  const bar = roundLength(wide * 0.3),
    base = top + high * scale + 12;
  parts.push(
    s("path", {
      d: `M${left} ${base} v6 h${bar * scale} v-6`,
      fill: "none",
      stroke: "var(--ink)",
      "stroke-width": 1.4,
    }),
    s("text", { x: left + bar * scale + 8, y: base + 8 }, `${digits(bar * 1e3)} mm`),
    s(
      "text",
      { x: left + wide * scale, y: base + 8, "text-anchor": "end" },
      `${dies > 1 ? `${dies} dies, each ` : "side "}${digits(side * 1e3)} mm`,
    ),
  );
  return s(
    "svg",
    {
      class: "drawing",
      viewBox: `0 0 ${(wide * scale + 16).toFixed(0)} ${(base + 18).toFixed(0)}`,
      role: "img",
      "aria-label": `die of ${digits(area.total * 1e6)} mm² with ${devices} memory devices beside it, to scale`,
      style: { "max-width": `${Math.round(wide * scale + 16)}px` },
    },
    parts,
  );
}

// One die in a square of `size` px; every area is its share of that square.
function oneDie(told, colour, x0, y0, size) {
  const area = told.use.area_m2,
    px = (name) => ((area[name] ?? 0) / area.total) * size * size,
    said = (name, more = []) => [
      [
        name,
        `${digits((area[name] ?? 0) * 1e6)} mm², ${((100 * (area[name] ?? 0)) / area.total).toFixed(1)} % of the die`,
      ],
      ["binds", told.binds[name]],
      ...more,
    ];
  const parts = [
    box(x0, y0, size, size, "var(--line)", [
      ["left over", `${digits(leftOver(area) * 1e6)} mm²: what no component takes`],
    ]),
  ];
  // interfaces to memory on the left and right, of other chips along the top
  const strip = px("memory") / 2 / size;
  if (strip > 0)
    for (const x of [x0, x0 + size - strip])
      parts.push(
        box(x, y0, strip, size, colour.memory, said("memory", [["what", "controllers and PHYs of DRAM"]])),
      );
  const inner = size - 2 * strip,
    left = x0 + strip;
  let top = y0,
    bottom = y0 + size;
  for (const net of told.networks) {
    const deep = px(net.name) / inner;
    parts.push(
      box(
        left,
        top,
        inner,
        deep,
        colour[net.name],
        said(net.name, [["lanes", `${net.lanes} x ${net.link}`]]),
      ),
    );
    top += deep;
  }
  const rest = (leftOver(area) / area.total) * size * size;
  bottom -= rest / inner;
  const shared = told.levels.filter((l) => l.scope === "global"),
    own = told.levels.filter((l) => l.scope !== "global"),
    bands = shared.reduce((sum, l) => sum + px(l.name) / inner, 0),
    grid = bottom - top - bands; // px of height for bundles
  let y = top + grid / 2;
  for (const level of shared) {
    const deep = px(level.name) / inner;
    parts.push(
      box(
        left,
        y,
        inner,
        deep,
        colour[level.name],
        said(level.name, [["capacity", `${digits(level.capacity_B / 1e6)} MB in ${level.banks} banks`]]),
      ),
    );
    y += deep;
  }
  for (const [from, tall] of [
    [top, grid / 2],
    [top + grid / 2 + bands, grid / 2],
  ])
    parts.push(...bundles(told, colour, said, own, left, from, inner, tall, px));
  return parts;
}

const leftOver = (area) =>
  area.total - Object.entries(area).reduce((sum, [k, v]) => sum + (k === "total" ? 0 : v), 0);

// Half of the bundles: each a cell of units, with the memories that are theirs below.
function bundles(told, colour, said, own, x0, y0, wide, tall, px) {
  const all = `${told.compute_units.toLocaleString("en")} units in ${told.bundles.toLocaleString("en")} bundles`;
  const whole = px("core") + own.reduce((sum, l) => sum + px(l.name), 0);
  const count = Math.max(1, Math.round(told.bundles / told.dies / 2)),
    drawn = Math.min(count, MOST_CELLS / 2),
    rows = Math.max(1, Math.round(Math.sqrt((drawn * tall) / Math.max(wide, 1)))),
    h = tall / rows;
  const cells = [["core", px("core")], ...own.map((l) => [l.name, px(l.name)])],
    parts = [];
  for (let row = 0; row < rows; row++) {
    const here = Math.floor(((row + 1) * drawn) / rows) - Math.floor((row * drawn) / rows),
      w = wide / Math.max(here, 1),
      thin = Math.min(w, h) * 0.05;
    for (let i = 0; i < here; i++) {
      const x = x0 + i * w;
      let y = y0 + row * h;
      for (const [name, size] of cells) {
        const deep = (h * size) / whole;
        parts.push(
          box(
            x + thin / 2,
            y + thin / 2,
            w - thin,
            Math.max(deep - (name === "core" ? thin : thin / 2), 0.3),
            colour[name],
            said(name, [["in all", name === "core" ? all : ""]]),
          ),
        );
        y += deep;
      }
    }
  }
  return parts;
}

export const bundlesACell = (told) =>
  Math.max(
    1,
    Math.round(told.bundles / told.dies / 2 / Math.min(told.bundles / told.dies / 2, MOST_CELLS / 2)),
  );
