// A program's graph, block by block: ops as boxes from top to bottom, partitions as coloured ground behind them.
import { h, s } from "../dom.js";
import { show as text } from "../units.js";

const HIGH = 44,
  MARGIN = 16,
  TITLE = 30;
const GROUNDS = ["compute", "memory", "network", "bubble", "cache", "host", "throttling", "overhead"];
export const ground = (number) => `var(--c-${GROUNDS[number % GROUNDS.length]})`;

const smooth = (points) =>
  points
    .map(([x, y], i) => {
      if (!i) return `M${x.toFixed(1)} ${y.toFixed(1)}`;
      const [ax, ay] = points[i - 1],
        middle = ((ay + y) / 2).toFixed(1);
      return `C${ax.toFixed(1)} ${middle} ${x.toFixed(1)} ${middle} ${x.toFixed(1)} ${y.toFixed(1)}`;
    })
    .join(" ");
const short = (said, most) => (said.length > most ? `${said.slice(0, most - 1)}…` : said);

// What a partition takes, for hovers.
export const takes = (p, number) => [
  [
    `partition ${number + 1}`,
    `${p.kernels.length} kernel${p.kernels.length > 1 ? "s" : ""}, ${p.tiles} tile${p.tiles > 1 ? "s" : ""}`,
  ],
  ["time", `${text(p.time, "s")}${p.times !== 1 ? `, runs ${p.times} times` : ""}; ${p.binds} binds`],
  ["compute, memory, network", [p.compute, p.memory, p.network].map((v) => text(v, "s")).join(", ")],
  ["DRAM traffic", text(p.traffic, "B")],
  ["SRAM", text(p.sram, "B")],
];

export function graph(told) {
  return h(
    "div",
    { style: { display: "flex", "flex-wrap": "wrap", gap: "12px", "align-items": "flex-start" } },
    told.graph.map((block) => drawnBlock(block, told.partitions)),
  );
}

function drawnBlock(block, partitions) {
  const wide = Math.max(block.width, block.box) + 2 * MARGIN,
    high = block.height + HIGH + TITLE + 2 * MARGIN,
    at = ([x, y]) => [x + MARGIN, y + TITLE + MARGIN + HIGH / 2];
  const inside = new Map(
    block.nodes.filter((n) => n.partition !== undefined).map((n) => [n.name, n.partition]),
  );
  const numbers = [...new Set(inside.values())];
  const read = new Map(block.nodes.map((n) => [n.name, n]));
  const parts = [
    s(
      "text",
      { x: MARGIN, y: 20, style: { "font-weight": "650" } },
      `${block.block}${block.times !== 1 ? `, runs ${block.times} times` : ""}`,
    ),
  ];
  for (const number of numbers) {
    const hue = ground(number),
      own = (name) => inside.get(name) === number;
    parts.push(
      s(
        "g",
        { opacity: 0.3, "data-partition": number, hover: takes(partitions[number], number) },
        block.edges
          .filter((e) => own(e.from) && own(e.to))
          .map((e) =>
            s("path", { d: smooth(e.points.map(at)), fill: "none", stroke: hue, "stroke-width": 20 }),
          ),
        block.nodes
          .filter((n) => own(n.name))
          .map((n) => {
            const [x, y] = at([n.x, n.y]);
            return s("rect", {
              x: x - block.box / 2 - 9,
              y: y - HIGH / 2 - 9,
              width: block.box + 18,
              height: HIGH + 18,
              rx: 12,
              fill: hue,
            });
          }),
      ),
    );
  }
  for (const edge of block.edges) {
    const made = read.get(edge.from),
      kept = inside.has(edge.from) && inside.get(edge.from) === inside.get(edge.to);
    parts.push(
      s("path", {
        d: smooth(edge.points.map(at)),
        fill: "none",
        stroke: "var(--dim)",
        "stroke-width": 1 + 0.35 * Math.max(Math.log10(Math.max(made?.bytes ?? 1, 1)) - 4, 0),
        "stroke-dasharray": kept ? null : "5 3",
        hover: [
          [`${edge.from} → ${edge.to}`, made?.bytes ? text(made.bytes, "B") : ""],
          ["", made?.kind ? (kept ? "stays on the chip" : "goes through DRAM") : "comes from outside"],
        ],
      }),
    );
  }
  for (const node of block.nodes) parts.push(...drawnNode(node, at([node.x, node.y]), block.box, partitions));
  return s(
    "svg",
    {
      class: "drawing",
      viewBox: `0 0 ${wide.toFixed(0)} ${high.toFixed(0)}`,
      role: "img",
      "aria-label": `graph of ${block.block}: ${block.nodes.length} nodes in ${numbers.length} partitions`,
      style: { "max-width": `${Math.round(wide)}px`, flex: `0 1 ${Math.round(wide)}px` },
    },
    parts,
  );
}

function drawnNode(node, [x, y], box, partitions) {
  if (!node.kind)
    return [
      s("rect", {
        x: x - box / 2 + 14,
        y: y - 12,
        width: box - 28,
        height: 24,
        rx: 12,
        fill: "var(--paper)",
        stroke: "var(--faint)",
        "stroke-dasharray": "3 3",
      }),
      s("text", { x, y: y + 4, "text-anchor": "middle" }, short(node.name, 18)),
    ];
  const number = node.partition,
    hue = number === undefined ? "var(--faint)" : ground(number);
  const said = [
    node.flop ? text(node.flop, "FLOP") : node.kind,
    node.weights ? `w ${text(node.weights, "B")}` : "",
  ];
  return [
    s(
      "g",
      {
        "data-partition": number,
        hover: [
          [node.name, node.kind],
          ["work", text(node.flop, "FLOP")],
          ["weights", node.weights ? text(node.weights, "B") : ""],
          ["writes", text(node.bytes, "B")],
          ...(number === undefined ? [] : takes(partitions[number], number)),
        ],
      },
      s("rect", {
        x: x - box / 2,
        y: y - HIGH / 2,
        width: box,
        height: HIGH,
        rx: 6,
        fill: "var(--raised)",
        stroke: hue,
        "stroke-width": 1.4,
      }),
      s(
        "text",
        { x, y: y - 3, "text-anchor": "middle", style: { "font-weight": "650" } },
        short(node.name, 24),
      ),
      s("text", { x, y: y + 13, "text-anchor": "middle" }, said.filter(Boolean).join(" · ")),
    ),
  ];
}

// Everything but one partition steps back; null brings all of it forward again.
export function onlyPartition(root, number) {
  for (const part of root.querySelectorAll("[data-partition]")) {
    const ground = part.hasAttribute("opacity"),
      mine = number === null || part.getAttribute("data-partition") === String(number);
    part.style.opacity = mine ? (ground && number !== null ? "0.6" : "") : ground ? "0.06" : "0.25";
  }
}
