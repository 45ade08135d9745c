// page 4, Fabric: The topology drawn, where TP, EP and PP lie, and how loaded each link is.
// Fabric: how devices are joined, which rank each one is, and what a collective puts on the links.
import { ask, catalogue, given_up } from "../api.js";
import { card, failure, fill, h, table } from "../dom.js";
import { fabricDrawing, ramp, shade } from "../fabric/drawing.js";
import { go, here } from "../state.js";
import { digits, percent, show as text } from "../units.js";
import { drawCollective } from "../fabric/collective.js";
import { GROUPS, fabricForm } from "../fabric/form.js";

const START = {
  system: "8x8xh200",
  fabric: "",
  plan: "tp=4,dp=16,ep=64,moe_tp=1",
  axis: "",
  mode: "group",
  device: "",
  model: "deepseek-v3",
  phase: "decode",
  batch: 256,
  engine: "ideal",
  group: "",
  pattern: "",
  bytes: 0,
  schedule: "",
};
const MOST = { switch: 32, grid: 8, cube: 4, circle: 16 };

export async function show(main) {
  const { state } = here();
  const design = { ...START, ...state };
  const known = await catalogue();
  if (!main.querySelector("#drawing"))
    fill(
      main,
      h(
        "div",
        { class: "split" },
        h("form", { class: "side", onsubmit: (e) => e.preventDefault() }),
        h(
          "div",
          { class: "stackv" },
          h("div", { class: "stackv", id: "drawing" }),
          h("div", { class: "stackv", id: "collective" }),
        ),
      ),
    );
  const set = (change) => {
    const next = { ...design, ...change };
    go("fabric", Object.fromEntries(Object.entries(next).filter(([k, v]) => v !== START[k])));
    show(main);
  };
  const part = main.querySelector("#drawing"),
    below = main.querySelector("#collective");
  const on = { system: design.system, fabric: design.fabric, plan: design.plan };
  part.classList.add("busy");
  try {
    const told = await ask("fabric", on);
    const groups = Object.keys(told.groups).filter((g) => GROUPS[g]);
    const step = groups.length ? await stepOf(design, on) : { collectives: [] };
    const found = choose(design, groups, step);
    const cost = found && (await ask("fabric/collective", { ...on, ...found, engine: design.engine }));
    fabricForm(main.querySelector(".side"), { design, known, told, found, cost, set });
    draw(part, told, design, cost, set);
    drawCollective(below, { cost, found, step, set, names: GROUPS });
  } catch (error) {
    if (given_up(error)) return;
    fabricForm(main.querySelector(".side"), { design, known, set });
    fill(part, failure(error));
    fill(below);
  }
  part.classList.remove("busy");
}

// Collectives of the model's step; a model that does not run there leaves the rest of the page as it is.
async function stepOf(design, on) {
  const { model, phase, batch, engine } = design;
  try {
    return await ask("fabric/step", { ...on, model, phase, batch, engine });
  } catch (error) {
    if (given_up(error)) throw error;
    return { collectives: [], why: error.message };
  }
}

function choose(design, groups, step) {
  if (!groups.length) return null;
  const known = step.collectives.find((c) => groups.includes(c.group));
  const group = groups.includes(design.group) ? design.group : (known?.group ?? groups[0]);
  const like = step.collectives.find(
    (c) => c.group === group && (!design.pattern || c.pattern === design.pattern),
  );
  return {
    group,
    pattern: design.pattern || like?.pattern || (group === "ep" ? "all_to_all" : "all_reduce"),
    bytes: design.bytes || like?.bytes || 64e6,
    schedule: design.schedule,
  };
}

// ------------------------------------------------------------------------------------------- the drawing
function draw(part, told, design, cost, set) {
  const axis = told.axes.find((a) => a.axis === design.axis)?.axis ?? told.axes[0]?.axis;
  const whole = told.whole;
  fill(
    part,
    h(
      "div",
      {},
      h("h1", {}, told.title),
      h("p", { class: "lead dim" }, `${told.fabric_title}. Plan ${told.plan}.`),
    ),
    h(
      "div",
      { class: "cards" },
      card(
        "Devices",
        digits(told.devices, 7),
        told.used < told.devices ? `${told.used} used by the plan` : "all used",
        "product of the dimensions",
      ),
      card(
        "Bisection",
        text(whole.bisection_B_per_s, "B/s"),
        "the least cut into halves",
        "one direction, over all networks of the narrowest dimension",
      ),
      card(
        "Diameter",
        `${digits(whole.diameter)} steps`,
        `${digits(whole.mean_hops)} on average`,
        "steps to the farthest device; to one drawn at random",
      ),
      card(
        "Port",
        text(whole.bandwidth_B_per_s, "B/s"),
        "a device, one direction",
        "ports into all dimensions together",
      ),
      cost &&
        card(
          "This collective",
          text(cost.cost.time_s, "s"),
          `${text(cost.cost.bus_B_per_s, "B/s")} bus bandwidth`,
          "the cheapest legal algorithm in each dimension",
        ),
    ),
    h(
      "div",
      { class: "panel" },
      h(
        "div",
        { class: "wide", tabindex: "0", role: "group", "aria-label": "The fabric, drawn" },
        told.drawn ? one(told, design, axis, cost) : each(told, cost),
      ),
      legend(told, axis, design, cost),
    ),
    deviceText(told, design),
    h(
      "details",
      { class: "panel" },
      h("summary", {}, "Every dimension in numbers"),
      h(
        "div",
        { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
        table(
          [
            "dimension",
            "kind",
            "members",
            "port",
            "step",
            "bisection",
            "links",
            "all-reduce bound",
            "all-to-all bound",
          ],
          told.dimensions.map((d) => [
            d.name,
            d.kind,
            digits(d.size, 6),
            text(d.port_B_per_s, "B/s"),
            text(d.step_s, "s"),
            text(d.bisection_B_per_s, "B/s"),
            digits(d.links, 7),
            text(d.all_reduce_B_per_s, "B/s"),
            text(d.all_to_all_B_per_s, "B/s"),
          ]),
          [0, 1],
        ),
      ),
      told.note && h("p", { class: "dim" }, told.note),
    ),
  );
  mates(part.querySelector("svg.fabric"), told, axis);
}

const dimensionsOf = (told, panel) => panel.dimensions.map((i) => ({ ...told.dimensions[i], index: i }));

// What links of a dimension carry, beside the busiest link of all.
function loader(cost, exact) {
  const loads = cost?.loads;
  if (!loads?.levels) return () => null;
  const top = Math.max(...loads.levels.map((l) => l.busy), 1e-30);
  return (index, way, first, many) => {
    const level = loads.levels[index];
    if (!exact) return { share: level.busy / top, most: level.most, mean: level.mean, busy: level.busy };
    const carried = level.bytes[way];
    if (!carried) return null;
    const mine = carried.slice(first, first + many);
    const most = Math.max(...mine);
    const busy = most / level.bandwidth;
    return { share: busy / top, most, mean: mine.reduce((a, b) => a + b, 0) / mine.length, busy, way };
  };
}

const linkHover = (dimension, load, many) => [
  [
    many > 1 ? `${many} links of ${dimension.name}` : `a link of ${dimension.name}`,
    text(dimension.port_B_per_s, "B/s") + " a device",
  ],
  ["carries", load ? (load.most ? text(load.most, "B") : "nothing") : ""],
  ["busy for", load?.most ? text(load.busy, "s") : ""],
  ["of the busiest link's time", load?.most ? percent(load.share) : ""],
];

function one(told, design, axis, cost) {
  const ranks = told.ranks[axis];
  const groups = ranks ? Math.max(...ranks.group) + 1 : 0;
  const svg = fabricDrawing(
    told.panels.map((p) => ({ dimensions: dimensionsOf(told, p), below: p.below })),
    {
      load: loader(cost, true),
      label: String,
      linkHover,
      look: (d) => {
        const k = ranks ? (design.mode === "number" ? ranks.number[d] : ranks.group[d]) : -1;
        return {
          fill: ranks ? shade(k, design.mode === "number" ? ranks.size : groups) : "var(--c-compute)",
          text: told.devices <= 128 && k >= 0 ? String(k) : "",
          hover: deviceRows(told, d),
        };
      },
    },
  );
  svg.setAttribute("aria-label", `${told.devices} devices and their links, coloured by ${axis ?? "nothing"}`);
  return svg;
}

// Larger fabrics: one network of each level, some of its members.
function each(told, cost) {
  return h(
    "div",
    { class: "panels" },
    told.panels.map((panel) => {
      const dims = dimensionsOf(told, panel);
      const most =
        dims.length > 2
          ? MOST.cube
          : dims.length > 1
            ? MOST.grid
            : (MOST[dims[0].kind === "full" ? "circle" : "switch"] ?? 32);
      const cut = dims.map((d) => ({ ...d, size: Math.min(d.size, most) }));
      const svg = fabricDrawing([{ dimensions: cut, below: panel.below }], {
        load: loader(cost, false),
        label: (n) => (n < 10000 ? String(n) : `${digits(n / 1000)}k`),
        linkHover,
        look: () => ({ fill: "var(--c-compute)", hover: "a device" }),
      });
      svg.setAttribute("aria-label", panel.caption[0]);
      const shown = cut.some((d, i) => d.size < dims[i].size);
      return h(
        "figure",
        {},
        svg,
        h(
          "figcaption",
          {},
          h("strong", {}, panel.caption[0]),
          panel.caption.slice(1).map((line) => h("div", { class: "dim" }, line)),
          shown &&
            h("div", { class: "dim" }, `${cut.map((d) => d.size).join(" × ")} of its members are drawn`),
        ),
      );
    }),
  );
}

function deviceRows(told, d) {
  let rest = d;
  const places = told.dimensions.map((dim) => {
    const at = rest % dim.size;
    rest = Math.floor(rest / dim.size);
    return dim.size > 1 ? `${dim.name} ${at}` : null;
  });
  return [
    [`device ${d}`, places.filter(Boolean).join(", ")],
    ...told.axes.map(({ axis }) => {
      const r = told.ranks[axis];
      return [
        axis.toUpperCase(),
        r.number[d] < 0 ? "left idle by the plan" : `rank ${r.number[d]} of ${r.size}, group ${r.group[d]}`,
      ];
    }),
  ];
}

function deviceText(told, design) {
  const d = Number(design.device);
  if (design.device === "" || !told.drawn || !(d >= 0 && d < told.devices)) return null;
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, `Device ${d}`),
    table(
      null,
      deviceRows(told, d).map(([what, said]) => [what, said]),
      [0, 1],
    ),
    told.axes.map(({ axis, says }) => {
      const r = told.ranks[axis];
      const same = r.group.flatMap((g, i) => (g === r.group[d] && g >= 0 ? [i] : []));
      return h(
        "p",
        { class: "dim" },
        `${axis.toUpperCase()} (${says}): talks with devices ${same.slice(0, 72).join(", ")}${same.length > 72 ? " …" : ""}`,
      );
    }),
  );
}

function legend(told, axis, design, cost) {
  const ranks = told.ranks[axis];
  const of = ranks ? (design.mode === "number" ? ranks.size : Math.max(...ranks.group) + 1) : 0;
  return h(
    "div",
    { class: "legend" },
    of > 0 &&
      Array.from({ length: Math.min(of, 8) }, (_, k) =>
        h(
          "span",
          {},
          h("span", { class: "swatch", style: { background: shade(k, of) } }),
          `${axis.toUpperCase()} ${design.mode === "number" ? "rank" : "group"} ${k}`,
        ),
      ),
    of > 8 && h("span", {}, `… ${of} in all`),
    cost?.loads?.levels && [
      h(
        "span",
        { class: "scale" },
        "links: idle ",
        h("span", {
          class: "ramp",
          style: { background: `linear-gradient(90deg, ${[0.02, 0.25, 0.5, 0.75, 1].map(ramp).join(", ")})` },
        }),
        ` busiest: ${cost.loads.says}`,
      ),
    ],
  );
}

// The devices of a group stand out while the pointer rests on one of them.
function mates(svg, told, axis) {
  const ranks = told.ranks[axis];
  if (!svg || !ranks) return;
  const dots = [...svg.querySelectorAll("[data-device]")];
  const mark = (device) => {
    const group = device === null ? -2 : ranks.group[device];
    svg.classList.toggle("marked", group >= 0);
    for (const dot of dots) dot.classList.toggle("mate", ranks.group[Number(dot.dataset.device)] === group);
  };
  svg.addEventListener("pointerover", (event) =>
    mark(event.target.dataset?.device === undefined ? null : Number(event.target.dataset.device)),
  );
  svg.addEventListener("pointerleave", () => mark(null));
}
