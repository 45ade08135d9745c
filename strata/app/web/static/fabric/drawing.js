// A fabric drawn: devices inside boxes inside boxes, one level after the other, with their links. Rings and chains are
// grids, up to three dimensions of them in one level; switches are bars between two rows of members.
import { s } from "../dom.js";

const CELL = 20,
  DOT = 7,
  PAD = 9,
  BAR = 16,
  GAP = 12;

// The number of columns that makes a block about twice as wide as high, dividing the members if that is near.
function columns(count, wide, high) {
  const aim = Math.sqrt((1.7 * count * high) / wide);
  const divisors = Array.from({ length: count }, (_, i) => i + 1).filter((n) => count % n === 0);
  const near = divisors.reduce((a, b) => (Math.abs(Math.log(b / aim)) < Math.abs(Math.log(a / aim)) ? b : a));
  return Math.abs(Math.log(near / aim)) < 0.7 ? near : Math.min(Math.ceil(aim), count);
}

// One level: how large a block of it is, and where its members stand inside.
function arranged(sizes, kind, child, gap) {
  const w = child.w + gap,
    v = child.h + gap;
  const count = sizes.reduce((a, b) => a * b, 1);
  if (kind === "grid") {
    const [nx, ny, nz] = [sizes[0], sizes[1] ?? 1, sizes[2] ?? 1];
    const fold = sizes.length === 1 ? columns(nx, w, v) : nx; // a long line goes on in the next row
    const rows = sizes.length === 1 ? Math.ceil(nx / fold) : ny;
    const layer = { w: fold * w + GAP * 1.4, h: rows * v + GAP * 1.4 };
    const across = columns(nz, layer.w, layer.h);
    return {
      w: Math.min(across, nz) * layer.w,
      h: Math.ceil(nz / across) * layer.h,
      at: (m) => {
        const x = m % nx,
          y = Math.floor(m / nx) % ny,
          z = Math.floor(m / (nx * ny));
        return {
          x: (z % across) * layer.w + (sizes.length === 1 ? x % fold : x) * w + GAP * 0.7,
          y:
            Math.floor(z / across) * layer.h +
            (sizes.length === 1 ? Math.floor(x / fold) : y) * v +
            GAP * 0.7,
        };
      },
      bars: [],
    };
  }
  if (kind === "circle") {
    const radius = Math.max((count * Math.max(w, v)) / 6, w);
    return {
      w: 2 * radius + child.w,
      h: 2 * radius + child.h,
      at: (m) => {
        const turn = (2 * Math.PI * m) / count - Math.PI / 2;
        return { x: radius + radius * Math.cos(turn), y: radius + radius * Math.sin(turn) };
      },
      bars: [],
    };
  }
  // rows in pairs, a bar of the switch between the two of a pair
  const cols = columns(count, w, v + (BAR + GAP) / 2);
  const rows = Math.ceil(count / cols);
  const pair = 2 * v + BAR + GAP * 0.6;
  const top = (row) => Math.floor(row / 2) * (pair + gap * 0.4) + (row % 2) * (v + BAR + GAP * 0.6);
  return {
    w: cols * w - gap,
    h: top(rows - 1) + child.h + (rows % 2 ? BAR + GAP * 0.6 : 0),
    at: (m) => ({ x: (m % cols) * w, y: top(Math.floor(m / cols)) }),
    bars: Array.from(
      { length: Math.ceil(rows / 2) },
      (_, i) => top(2 * i) + child.h + (gap + GAP * 0.6 + 4) / 2,
    ),
    barOf: (m) => Math.floor(Math.floor(m / cols) / 2),
    above: (m) => Math.floor(m / cols) % 2 === 0,
  };
}

const kindOf = (dims) =>
  dims.length > 1 || ["ring", "chain"].includes(dims[0].kind)
    ? "grid"
    : dims[0].kind === "full" && dims[0].size <= 24
      ? "circle"
      : "switch";

// `panels`: [{dimensions: [{name, kind, size, index}], below}], innermost first. `load(dimension, way, first, count)` tells
// what links carry that leave `count` devices from `first` on; `look(device)` how a device looks. Where the innermost
// member stands for several devices it is a box with their number.
export function fabricDrawing(panels, { load, look, label, linkHover }) {
  const levels = [];
  let child = panels[0].below > 1 ? { w: 34, h: 26 } : { w: CELL - 4, h: CELL - 4 };
  panels.forEach((panel, i) => {
    const sizes = panel.dimensions.map((d) => d.size),
      kind = kindOf(panel.dimensions);
    const inner = arranged(sizes, kind, child, i ? GAP + 4 : kind === "grid" ? 8 : 5);
    const count = sizes.reduce((a, b) => a * b, 1);
    const level = { panel, kind, sizes, count, child, ...inner, below: panel.below };
    levels.push(level);
    child = { w: inner.w + 2 * PAD, h: inner.h + 2 * PAD };
  });
  const boxes = s("g", {}),
    wires = s("g", {}),
    tops = s("g", {});
  const walk = (depth, first, x, y) => {
    const level = levels[depth];
    boxes.append(
      s("rect", {
        x,
        y,
        width: level.w + 2 * PAD,
        height: level.h + 2 * PAD,
        rx: 7,
        class: `box d${depth % 2}`,
      }),
    );
    const ox = x + PAD,
      oy = y + PAD;
    const places = Array.from({ length: level.count }, (_, m) => {
      const p = level.at(m);
      return { x: ox + p.x, y: oy + p.y, first: first + m * level.below };
    });
    draw(level, places, ox, oy);
    for (const p of places)
      if (depth) walk(depth - 1, p.first, p.x, p.y);
      else if (level.below > 1) tops.append(...block(p, level));
      else tops.append(...dot(p));
  };
  const dot = (p) => {
    const seen = look(p.first),
      cx = p.x + (CELL - 4) / 2,
      cy = p.y + (CELL - 4) / 2;
    return [
      s("circle", {
        cx,
        cy,
        r: DOT,
        class: "device",
        fill: seen.fill,
        "data-device": p.first,
        hover: seen.hover,
      }),
      ...(seen.text ? [s("text", { x: cx, y: cy + 2.8, class: "number" }, seen.text)] : []),
    ];
  };
  const block = (p, level) => [
    s("rect", { x: p.x, y: p.y, width: level.child.w, height: level.child.h, rx: 5, class: "member" }),
    s(
      "text",
      { x: p.x + level.child.w / 2, y: p.y + level.child.h / 2 + 4, class: "many" },
      label(level.below),
    ),
  ];
  const wire = (x1, y1, x2, y2, dimension, ways, many, extra = "") => {
    const loads = ways.map(([way, first]) => load(dimension.index, way, first, many)).filter(Boolean);
    const most = loads.reduce((a, b) => (b.share > (a?.share ?? -1) ? b : a), null);
    wires.append(
      s("line", {
        x1,
        y1,
        x2,
        y2,
        class: `wire ${extra}`,
        style: most ? { stroke: ramp(most.share), "stroke-width": 1.3 + 2.6 * most.share } : {},
        hover: linkHover(dimension, most, many),
      }),
    );
  };
  const middle = (p, level) => ({ x: p.x + level.child.w / 2, y: p.y + level.child.h / 2 });
  const draw = (level, places, ox, oy) => {
    const dims = level.panel.dimensions;
    if (level.kind === "switch") {
      level.bars.forEach((bar, i) => {
        const mine = places.filter((_, m) => level.barOf(m) === i);
        const right = Math.max(...mine.map((p) => p.x + level.child.w));
        tops.append(
          s("rect", { x: ox, y: oy + bar, width: right - ox, height: BAR - 4, rx: 4, class: "switch" }),
        );
        tops.append(
          s(
            "text",
            { x: ox + (right - ox) / 2, y: oy + bar + 9.5, class: "name" },
            short(dims[0], right - ox),
          ),
        );
        if (i)
          wires.append(
            s("line", {
              x1: ox + 4,
              x2: ox + 4,
              y1: oy + level.bars[i - 1] + BAR - 4,
              y2: oy + bar,
              class: "trunk",
            }),
          );
      });
      places.forEach((p, m) => {
        const c = middle(p, level),
          bar = oy + level.bars[level.barOf(m)];
        const [from, to] = level.above(m) ? [p.y + level.child.h, bar] : [p.y, bar + BAR - 4];
        wire(
          c.x,
          from,
          c.x,
          to,
          dims[0],
          [
            ["up", p.first],
            ["down", p.first],
          ],
          level.below,
        );
      });
      return;
    }
    if (level.kind === "circle") {
      for (let a = 0; a < level.count; a++)
        for (let b = a + 1; b < level.count; b++) {
          const p = middle(places[a], level),
            q = middle(places[b], level);
          const ways = [
            [`to ${b}`, places[a].first],
            [`to ${a}`, places[b].first],
          ];
          wire(p.x, p.y, q.x, q.y, dims[0], ways, level.below);
        }
      return;
    }
    grid(level, places, dims);
  };
  const grid = (level, places, dims) => {
    let stride = 1;
    dims.forEach((dimension, axis) => {
      const size = dimension.size;
      places.forEach((p, m) => {
        const c = Math.floor(m / stride) % size,
          here = middle(p, level);
        const end = c === size - 1;
        if (end && (dimension.kind !== "ring" || size < 3)) return;
        const other = places[end ? m - (size - 1) * stride : m + stride],
          there = middle(other, level);
        const ways = [
          ["+1", p.first],
          ["-1", other.first],
        ];
        const near =
          Math.hypot(there.x - here.x, there.y - here.y) < 1.6 * Math.max(level.child.w, level.child.h) + 20;
        if (near && axis < 2) return wire(here.x, here.y, there.x, there.y, dimension, ways, level.below);
        // a link that closes a ring, or that goes to the next layer, leaves at both of its ends
        const out = axis === 2 ? [0.72, -0.72] : axis === 1 ? [0, 1] : [1, 0];
        const reach =
          Math.max(level.child.w, level.child.h) * (axis === 2 ? 0.62 : 0.5) + (axis === 2 ? 3 : GAP * 0.6);
        wire(
          here.x,
          here.y,
          here.x + out[0] * reach,
          here.y + out[1] * reach,
          dimension,
          ways,
          level.below,
          "stub",
        );
        wire(
          there.x,
          there.y,
          there.x - out[0] * reach,
          there.y - out[1] * reach,
          dimension,
          ways,
          level.below,
          "stub",
        );
      });
      stride *= size;
    });
  };
  const last = levels.length - 1;
  walk(last, 0, 2, 2);
  const width = levels[last].w + 2 * PAD + 4,
    height = levels[last].h + 2 * PAD + 4;
  const svg = s(
    "svg",
    { class: "drawing fabric", viewBox: `0 0 ${width} ${height}`, role: "img" },
    boxes,
    wires,
    tops,
  );
  svg.style.setProperty("max-width", `${Math.max(width * 2.1, 340)}px`);
  svg.style.setProperty("min-width", `${Math.min(width * 0.8, 900)}px`);
  return svg;
}

const short = (dimension, width) => {
  const name = dimension.kind === "switch" ? dimension.name : `${dimension.name} (${dimension.kind})`;
  return name.length * 5.4 < width ? name : "";
};

// Idle links are the colour of lines; the busiest is that of a warning.
export const ramp = (share) =>
  share <= 0
    ? "var(--line)"
    : `color-mix(in oklab, var(--c-cache) ${Math.round(100 * (1 - share))}%, var(--bad) ${Math.round(100 * share)}%)`;

const PALETTE = ["compute", "memory", "network", "bubble", "cache", "host", "throttling", "overhead"];
export const shade = (k, of) =>
  k < 0
    ? "var(--line)"
    : of <= PALETTE.length
      ? `var(--c-${PALETTE[k]})`
      : `hsl(${Math.round((k * 137.508) % 360)} 52% var(--tone))`;
