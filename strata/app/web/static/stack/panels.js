// Panels of the Stack page: headline numbers, the stack as it is built, and the temperatures of its dies.
import { card, swatch } from "../controls.js";
import { failure, fill, h, table } from "../dom.js";
import { legend, maps } from "./heat-maps.js";
import { joint, packaged, section, viasALine } from "./drawing.js";
import { digits, percent, show as text } from "../units.js";

const source = (told, path) => {
  const known = told.numbers?.[path];
  return known
    ? [
        [path, known.text],
        [known.mark, known.source],
      ]
    : null;
};
const fact = (told, what, said, path) =>
  h("p", { hover: path ? source(told, path) : null }, h("span", { class: "dim" }, `${what}: `), said);

const PART_COLOUR = {
  "core logic": "var(--c-compute)",
  "local memory": "var(--c-cache)",
  "memory ports": "var(--c-bubble)",
  network: "var(--c-network)",
  cache: "var(--c-memory)",
  vertical: "var(--warn)",
  interfaces: "var(--c-host)",
  fixed: "var(--c-overhead)",
  gaps: "var(--line)",
  unused: "var(--paper)",
};
function dieParts(told) {
  const parts = Object.entries(told.area.parts_m2).filter(([, v]) => v > 0);
  return [
    told.area.infeasible && h("p", { class: "bad" }, told.area.infeasible),
    h(
      "p",
      {},
      `${digits(told.cores)} cores fit ${digits(told.area.die_m2 * 1e6)} mm². `,
      `Vias and controllers of the stack take ${percent(told.area.parts_m2.vertical / told.area.die_m2)} of it.`,
    ),
    h(
      "div",
      { class: "barline" },
      parts.map(([name, v]) =>
        h("span", {
          style: {
            width: `${(100 * v) / told.area.die_m2}%`,
            background: PART_COLOUR[name] ?? "var(--faint)",
          },
          "aria-label": name,
          role: "img",
          hover: [
            [name, `${digits(v * 1e6)} mm²`],
            ["of the die", percent(v / told.area.die_m2)],
          ],
        }),
      ),
    ),
    h(
      "div",
      { class: "legend", style: { "margin-top": "6px" } },
      parts.map(([name]) => swatch(PART_COLOUR[name] ?? "var(--faint)", name)),
    ),
  ].filter(Boolean);
}

// The stack in section, one joint, what fits the die; or the package from above.
export function drawing(into, told, heat) {
  if (!told.stacked) {
    fill(
      into,
      h(
        "div",
        { class: "panel" },
        h("h2", {}, `${told.title}, from above`),
        packaged(told),
        h(
          "p",
          { class: "dim" },
          `To scale; dies drawn square. ${told.memory_kind} stands beside the logic on ${told.bonding.title}. Its layers and cooling are not described, so no temperatures are told.`,
        ),
      ),
    );
    return;
  }
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h(
        "h2",
        {},
        `${told.layers} layer${told.layers > 1 ? "s" : ""} on ${told.process.split(",")[0]}, in section`,
      ),
      h(
        "div",
        { class: "wide", tabindex: "0", role: "group", "aria-label": "Layers, to scale" },
        h("div", { style: { "min-width": "560px" } }, section(told, heat)),
      ),
      h(
        "div",
        { class: "legend" },
        swatch("var(--c-compute)", "logic die"),
        swatch("var(--c-memory)", "DRAM die"),
        swatch("var(--faint)", "bond"),
        swatch("var(--c-overhead)", "thermal interface"),
        swatch("var(--line)", "lid"),
        told.area?.vias > 0 &&
          h(
            "span",
            {},
            `a line stands for ${viasALine(told).toLocaleString("en")} of ${told.area.vias.toLocaleString("en")} vias`,
          ),
      ),
    ),
    h(
      "div",
      { class: "two", style: { "margin-top": "16px" } },
      h(
        "div",
        { class: "panel" },
        h("h2", {}, "One joint, magnified"),
        h(
          "div",
          { class: "row", style: { "align-items": "flex-start", gap: "18px" } },
          h("div", { style: { flex: "0 1 180px" } }, joint(told)),
          h(
            "div",
            { style: { flex: "1 1 150px" } },
            fact(told, "Joint", told.bonding.title, null),
            fact(told, "Bond pitch", `${digits(told.bonding.pitch * 1e6)} µm`, "silicon.bonding"),
            fact(
              told,
              "Data bonds a layer",
              `${told.data_bonds.toLocaleString("en")} of ${told.bonds_fit.toLocaleString("en")} that fit`,
            ),
            fact(
              told,
              "Via pitch",
              told.via_pitch ? `${digits(told.via_pitch * 1e6)} µm` : "–",
              "silicon.floorplan.via_pitch",
            ),
            fact(told, "Between dies", `${digits(told.bond_thickness * 1e6)} µm`, "cooling.bond_thickness"),
            fact(told, "A byte of DRAM", text(told.energy, "J"), "energy.memory"),
          ),
        ),
      ),
      h("div", { class: "panel" }, h("h2", {}, "What fits the logic die"), ...dieParts(told)),
    ),
  );
}

// Headline numbers.
export function headline(into, told, load, wrong, design) {
  const heat = load?.heat;
  const binding = told.bounds.length ? told.bounds.reduce((a, b) => (b.value < a.value ? b : a)) : null;
  const dram = heat?.dies.filter((d) => d.name !== "logic") ?? [];
  const hot = heat?.dies.reduce((a, b) => (a.max_K >= b.max_K ? a : b));
  const near = heat?.dies.find((d) => d.name === heat.binding);
  const time = design.phase === "prefill" ? "time to first token" : "time per output token";
  fill(
    into,
    load?.fits &&
      card(
        time,
        text(load.time, "s"),
        `bound by ${load.binds}`,
        [
          [load.title, `plan ${load.plan} on ${design.devices} devices`],
          ["power of a device", text(load.power, "W")],
        ],
        true,
      ),
    load && !load.fits && card(time, "does not fit", load.why.split(";")[0], [["why", load.why]], true),
    !load && wrong && card(time, "no answer", wrong.message, null, true),
    card(
      "DRAM bandwidth",
      text(told.sustained, "B/s"),
      binding
        ? `${percent(told.sustained / told.peak, 0)} of ${text(told.peak, "B/s")}; ${binding.name} binds`
        : `of ${text(told.peak, "B/s")}`,
      [["sustained", "cores reading long runs"], ...(binding ? [[binding.name, binding.words]] : [])],
    ),
    card(
      "Capacity",
      text(told.capacity, "B"),
      `${text(told.capacity * design.devices, "B")} on ${design.devices} devices`,
      source(told, "memory.capacity"),
    ),
    heat &&
      card("Hottest place", text(hot.max_K, "K"), `${hot.name}, limit ${text(hot.limit_K, "K")}`, [
        ["DRAM", text(Math.max(...dram.map((d) => d.max_K)), "K")],
      ]),
    heat &&
      card(
        "Margin",
        `${(near.limit_K - near.max_K).toFixed(1)} K`,
        `${near.name} reaches ${text(near.limit_K, "K")} at ${text(heat.highest_power_W, "W")}`,
        [["binds", `${near.name}: nearest to its limit for the rise it has`]],
      ),
    load?.fits &&
      card("Power of a device", text(load.power, "W"), `clock ${text(load.clock, "Hz")}`, [
        ["energy", `${text(load.energy, "J")} a token`],
      ]),
    card("Cores", digits(told.cores), told.area ? `on ${digits(told.area.die_m2 * 1e6)} mm²` : "", [
      ["each layer's vias take room from cores", ""],
    ]),
    card("Made for", text(told.cost, "USD"), "dies, DRAM, bonding, package, test"),
  );
}

// Maps of all dies under a load.
export function warmth(into, load, built, wrong) {
  if (!load) return fill(into, wrong && failure(wrong));
  if (!load.fits) return fill(into, h("p", { class: "error" }, `${load.title} does not fit: ${load.why}`));
  if (!load.heat) return fill(into);
  const heat = load.heat;
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, `Temperature of each die: ${load.title}`),
      h(
        "p",
        { class: "dim" },
        `${text(load.power, "W")} a device, from the coolant down, one scale of colours; the hottest is framed. `,
        heat.fits ? `${heat.binding} is nearest to its limit.` : heat.why,
      ),
      maps(heat, built?.side_m ?? 0.01),
      h("div", { style: { "margin-top": "12px" } }, legend(heat, built?.limits)),
      h(
        "details",
        {},
        h("summary", {}, "The way of the heat, and the dies, as tables"),
        table(
          ["die", "power", "hottest", "mean", "coolest", "limit"],
          heat.dies.map((d) => [
            d.name,
            text(d.power_W, "W"),
            ...["max_K", "mean_K", "min_K", "limit_K"].map((k) => text(d[k], "K")),
          ]),
        ),
        table(
          ["way to the coolant", "resistance", "power", "rise"],
          heat.path.map((p) => [
            p.name,
            `${p.resistance_K_per_W.toFixed(4)} K/W`,
            text(p.power_W, "W"),
            `${p.rise_K.toFixed(1)} K`,
          ]),
        ),
      ),
    ),
  );
}
