// A stack in section, drawn to scale: widths by one scale, heights by another, which the drawing says; and the package of a
// chip with DRAM beside its dies, from above.
import { s } from "../dom.js";
import { roundLength } from "../controls.js";
import { digits, show as text } from "../units.js";

const WIDE = 760,
  LEFT = 20,
  SECTION = 470, // widest sheet
  TALLEST = 330, // of dies, bonds and interface
  METAL = 34; // of lid and sink, which are cut

const kind = (name) => name.replace(/\d+$/, "");
const FILL = {
  logic: "var(--c-compute)",
  dram: "var(--c-memory)",
  bond: "var(--faint)",
  interface: "var(--c-overhead)",
  lid: "var(--line)",
  sink: "var(--line)",
};
const um = (m) => `${digits(m * 1e6)} µm`;
const mm = (m) => `${digits(m * 1e3)} mm`;
const label = (x, y, said, attrs = {}) => s("text", { x, y, ...attrs }, said);

export function section(told, heat) {
  const top = [...told.sheets].reverse(), // from the coolant down
    widest = Math.max(...told.sheets.map((l) => l.side)),
    across = SECTION / widest, // px a metre
    thin = told.sheets.filter((l) => !/^(lid|sink)$/.test(l.name)),
    up = Math.min(0.85e6, TALLEST / thin.reduce((sum, l) => sum + l.thickness, 0)); // px a metre
  const warm = new Map((heat?.dies ?? []).map((d) => [d.name, d]));
  const parts = [];
  let y = 46,
    dies = null;
  const silicon = [];
  for (const sheet of top) {
    const cut = /^(lid|sink)$/.test(sheet.name),
      high = cut ? METAL : sheet.thickness * up,
      wide = sheet.side * across,
      x = LEFT + (SECTION - wide) / 2,
      what = kind(sheet.name);
    const die = warm.get(sheet.name);
    parts.push(
      s("rect", {
        x,
        y,
        width: wide,
        height: Math.max(high, 0.8),
        fill: FILL[what] ?? "var(--line)",
        "fill-opacity": what === "dram" ? 0.75 : 1,
        stroke: what === "bond" ? "none" : "var(--paper)",
        "stroke-width": 0.6,
        hover: [
          [sheet.name, `${um(sheet.thickness)} thick, ${mm(sheet.side)} wide`],
          ["conductivity", `${digits(sheet.conductivity)} W/m/K`],
          ["hottest", die ? text(die.max_K, "K") : ""],
          ["power", die ? text(die.power_W, "W") : ""],
          ["thickness", told.numbers?.[`cooling.${what}_thickness`]?.source ?? ""],
        ],
      }),
    );
    if (cut) parts.push(broken(x, y + high / 2, wide));
    if (what === "logic" || what === "dram") silicon.push({ sheet, x, y, high, wide });
    if (what !== "bond" && (high >= 11 || what !== "dram")) {
      const said =
        what === "dram" || what === "logic"
          ? `${sheet.name}, ${um(sheet.thickness)}${die ? `: ${text(die.max_K, "K")}` : ""}`
          : `${sheet.name}, ${sheet.thickness > 9e-4 ? mm(sheet.thickness) : um(sheet.thickness)}${cut ? ", cut short" : ""}`;
      parts.push(label(LEFT + SECTION + 12, y + high / 2 + 4, said));
    }
    y += Math.max(high, 0.8);
  }
  parts.push(...vias(silicon, told));
  const base = y;
  dies = thin.length;
  parts.push(label(LEFT + SECTION / 2, base + 20, "board side", { "text-anchor": "middle" }));
  for (let i = 0; i < 7; i++) {
    const x = LEFT + (SECTION * (i + 0.5)) / 7;
    parts.push(
      s("path", {
        d: `M${x} 44 V28 m-4 6 l4 -6 l4 6`,
        fill: "none",
        stroke: "var(--accent)",
        "stroke-width": 1.6,
      }),
    );
  }
  parts.push(label(LEFT, 18, `heat leaves here: coolant at ${text(told.ambient, "K")}`));
  const bar = roundLength((SECTION * 0.3) / across),
    rise = roundLength(70 / up);
  parts.push(
    rule(LEFT, base + 34, bar * across, 0, mm(bar)),
    rule(LEFT + bar * across + 70, base + 34, 0, rise * up, um(rise)),
    label(LEFT + bar * across + 160, base + 50, `heights ×${digits(up / across, 2)} of widths`),
  );
  const high = base + 34 + Math.max(rise * up, 26) + 8;
  const named = `${told.name}: ${told.layers} DRAM layers on a logic die of ${mm(told.side_m)}, in section`;
  return s(
    "svg",
    {
      class: "drawing",
      viewBox: `0 0 ${WIDE} ${high}`,
      role: "img",
      "aria-label": `${named}; ${dies} sheets`,
    },
    parts,
  );
}

// Two short waves across a sheet that is drawn less thick than it is.
const broken = (x, y, wide) => {
  const waves = Math.round(wide / 24),
    one = wide / waves;
  const line = (dy) => `M${x} ${y + dy}` + ` q${one / 4} -5 ${one / 2} 0 t${one / 2} 0`.repeat(waves);
  return s("path", {
    d: line(-2) + line(3),
    fill: "none",
    stroke: "var(--paper)",
    "stroke-width": 1.4,
    "pointer-events": "none",
  });
};

const rule = (x, y, wide, high, said) =>
  s(
    "g",
    {},
    s("path", {
      d: wide ? `M${x} ${y} v6 h${wide} v-6` : `M${x} ${y} h6 v${high} h-6`,
      fill: "none",
      stroke: "var(--ink)",
      "stroke-width": 1.4,
    }),
    label(wide ? x + wide / 2 : x + 12, wide ? y + 20 : y + Math.min(high, 24) / 2 + 4, said, {
      "text-anchor": wide ? "middle" : "start",
    }),
  );

// Vias and bonds as lines: a line stands for many, its caption says how many.
export const viasALine = (told) => Math.max(1, Math.round((told.area?.vias ?? 0) / 40));
function vias(silicon, told) {
  const count = told.area?.vias ? 40 : 0;
  if (!count || silicon.length < 2) return [];
  const { x, wide } = silicon[0],
    first = silicon[0].y,
    last = silicon.at(-1);
  const lines = [];
  for (let i = 0; i < count; i++) {
    const at = x + (wide * (i + 0.5)) / count;
    lines.push(`M${at.toFixed(1)} ${first + 2} V${last.y + last.high - 2}`);
  }
  return [
    s("path", {
      d: lines.join(""),
      stroke: "var(--paper)",
      "stroke-width": 1,
      "stroke-opacity": 0.75,
      fill: "none",
      "pointer-events": "none",
    }),
  ];
}

// One joint, magnified alike in both directions: bonds at their pitch, vias at theirs.
export function joint(told) {
  const window = Math.max(60e-6, 2.4 * told.bonding.pitch, 2.6 * (told.via_pitch ?? 0)),
    side = 220,
    scale = side / window,
    bond = told.bond_thickness * scale,
    middle = side / 2;
  const upper = told.sheets.find((l) => l.name === "dram0"),
    die = (upper?.thickness ?? 3e-5) * scale;
  const parts = [
    s("rect", { x: 0, y: 0, width: side, height: side, fill: "var(--panel)" }),
    s("rect", {
      x: 0,
      y: Math.max(0, middle - bond / 2 - die),
      width: side,
      height: Math.min(die, middle - bond / 2),
      fill: "var(--c-memory)",
      "fill-opacity": 0.75,
      hover: [["dram0", um(upper?.thickness ?? 3e-5)]],
    }),
    s("rect", {
      x: 0,
      y: middle - bond / 2,
      width: side,
      height: Math.max(bond, 1),
      fill: "var(--faint)",
      hover: [["bond and wires", um(told.bond_thickness)]],
    }),
    s("rect", {
      x: 0,
      y: middle + bond / 2,
      width: side,
      height: middle - bond / 2,
      fill: "var(--c-compute)",
      hover: [["logic", "its vias pass through it"]],
    }),
  ];
  const pitch = told.bonding.pitch * scale;
  for (let x = pitch / 2; x < side; x += pitch)
    parts.push(
      s("rect", {
        x: x - pitch / 4,
        y: middle - Math.max(bond, 1) / 2,
        width: pitch / 2,
        height: Math.max(bond, 1),
        fill: "var(--warn)",
        hover: [[told.bonding.name, `pitch ${um(told.bonding.pitch)}`]],
      }),
    );
  const via = (told.via_pitch ?? 0) * scale;
  if (via)
    for (let x = via / 2; x < side; x += via)
      parts.push(
        s("rect", {
          x: x - via / 6,
          y: middle + bond / 2,
          width: via / 3,
          height: middle - bond / 2,
          fill: "var(--warn)",
          "fill-opacity": 0.85,
          hover: [["via with its keep-out", `one in a square of ${um(told.via_pitch)}`]],
        }),
      );
  const bar = roundLength(window * 0.4);
  parts.push(rule(4, side + 6, bar * scale, 0, um(bar)));
  return s(
    "svg",
    {
      class: "drawing",
      viewBox: `0 0 ${side} ${side + 34}`,
      role: "img",
      "aria-label": `one joint magnified: bonds ${um(told.bonding.pitch)} apart`,
      style: { "max-width": "260px" },
    },
    parts,
  );
}

// Dies and stacks of DRAM beside them, from above.
export function packaged(told) {
  const stack = Math.sqrt(told.beside_m2),
    gap = 1e-3,
    rows = Math.ceil(told.beside / 2),
    dies = told.dies * told.side_m + (told.dies - 1) * 1e-4,
    high = Math.max(told.side_m, rows * stack + (rows - 1) * gap),
    wide = dies + 2 * (stack + gap);
  const scale = Math.min(560 / wide, 380 / high),
    parts = [];
  const top = 12,
    left = 12;
  for (let i = 0; i < told.dies; i++)
    parts.push(
      s("rect", {
        x: left + (stack + gap + i * (told.side_m + 1e-4)) * scale,
        y: top + ((high - told.side_m) / 2) * scale,
        width: told.side_m * scale,
        height: told.side_m * scale,
        rx: 3,
        fill: "var(--c-compute)",
        hover: [
          ["logic die", `${digits((told.side_m * 1e3) ** 2)} mm², drawn square`],
          ["process", told.process],
        ],
      }),
    );
  for (let i = 0; i < told.beside; i++) {
    const right = i % 2,
      row = Math.floor(i / 2),
      room = high / rows;
    parts.push(
      s("rect", {
        x: left + (right ? stack + 2 * gap + dies : 0) * scale,
        y: top + (row * room + (room - stack) / 2) * scale,
        width: stack * scale,
        height: stack * scale,
        rx: 3,
        fill: "var(--c-memory)",
        hover: [
          [told.memory_kind, `${digits(told.beside_m2 * 1e6)} mm²`],
          ["holds", text(told.capacity / told.beside, "B")],
          ["carries", text(told.peak / told.beside, "B/s")],
        ],
      }),
    );
  }
  parts.push(rule(left, top + high * scale + 10, 1e-2 * scale, 0, "10 mm"));
  return s(
    "svg",
    {
      class: "drawing",
      viewBox: `0 0 ${wide * scale + 24} ${high * scale + 56}`,
      role: "img",
      "aria-label": `${told.title}: ${told.dies} dies and ${told.beside} stacks of ${told.memory_kind}, from above`,
      style: { "max-width": "640px" },
    },
    parts,
  );
}
