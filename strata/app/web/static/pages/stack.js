// page 3, Stack: Layers drawn to scale, what bounds their bandwidth, and how hot each one gets.
// Stack: layers drawn to scale, what bounds their bandwidth, how warm a load makes each die, and how many layers are best.
import { ask, catalogue, given_up } from "../api.js";
import { rested, slider } from "../controls.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { boundsChart, curveChart } from "../stack/charts.js";
import { drawing, headline, warmth } from "../stack/panels.js";
import { go, here } from "../state.js";

const START = {
  chip: "stack-ref",
  layers: 4,
  bonding: "",
  via_um: null,
  bond_um: null,
  cooling: "",
  arrangement: "",
  ambient_C: null,
  devices: 256,
  model: "deepseek-v3",
  phase: "decode",
  batch: 4,
  input: 1024,
  output: 1024,
  plan: "",
};
const BUILT = ["chip", "layers", "bonding", "via_um", "bond_um", "cooling", "arrangement", "ambient_C"];
const MOST = 16;
let design = { ...START },
  known = null,
  last = { built: null, load: null },
  curve = { key: "", points: [] };

export async function show(main) {
  const { state } = here();
  design = { ...START, ...Object.fromEntries(Object.entries(state).filter(([k]) => k in START)) };
  const [names, chips] = await Promise.all([catalogue(), ask("stack-chips")]);
  known = { ...chips, models: names.models.map((m) => m.name) };
  fill(
    main,
    h("h1", {}, "Stack"),
    h(
      "p",
      { class: "lead dim" },
      "DRAM layers on a logic die: drawn to scale, with what bounds their bandwidth and how warm they get.",
    ),
    h(
      "div",
      { class: "split" },
      h("form", { class: "side", onsubmit: (e) => e.preventDefault(), "aria-label": "Design" }),
      h(
        "div",
        { class: "stackv" },
        h("div", { id: "st-cards", class: "cards" }),
        h("div", { id: "st-drawn", style: { "min-width": "0" } }),
        h("div", { id: "st-heat", style: { "min-width": "0" } }),
        h("div", { id: "st-curve", style: { "min-width": "0" } }),
        h("div", { id: "st-bounds", style: { "min-width": "0" } }),
      ),
    ),
  );
  curve = { key: "", points: [] };
  last = { built: null, load: null };
  form(main.querySelector(".side"));
  await Promise.all([askBuilt(), askLoad()]);
  askCurve();
}

const changed = (name, value, { replace = false, again = false } = {}) => {
  design = { ...design, [name]: value };
  const said = Object.fromEntries(Object.entries(design).filter(([k, v]) => v !== START[k]));
  go("stack", said, { replace });
  if (again) form(document.querySelector("form.side"));
  askBuilt();
  askLoadLater();
  askCurveLater();
};

function form(side) {
  const stacked = known.chips.find((c) => c.name === design.chip)?.stacked;
  const slide = (label, name, value, opts) =>
    slider(label, value, opts, (v) => changed(name, v, { replace: true }));
  fill(
    side,
    choice(
      "Chip",
      design.chip,
      known.chips.map((c) => [c.name, `${c.name}: ${c.stacked ? "DRAM on top" : "DRAM beside"}`]),
      (v) => {
        const is = known.chips.find((c) => c.name === v)?.stacked;
        design = {
          ...design,
          layers: is ? (design.layers ?? 4) : null,
          bonding: "",
          via_um: null,
          bond_um: null,
        };
        design = { ...design, cooling: "", arrangement: "", ambient_C: null, devices: is ? 256 : 16 };
        changed("chip", v, { again: true });
      },
    ),
    stacked && [
      slide("DRAM layers", "layers", design.layers ?? 4, { min: 1, max: MOST }),
      slide("Bond thickness", "bond_um", design.bond_um ?? 3, {
        min: 1,
        max: 40,
        text: (v) => `${v} µm`,
      }),
      slide("Via pitch with keep-out", "via_um", design.via_um ?? 14, {
        min: 4,
        max: 40,
        text: (v) => `${v} µm`,
      }),
      choice("Joints", design.bonding, [["", "the chip's own"], ...known.bonding], (v) =>
        changed("bonding", v),
      ),
      choice("Cooling", design.cooling, [["", "the chip's own"], ...known.cooling], (v) =>
        changed("cooling", v),
      ),
      slide("Coolant", "ambient_C", design.ambient_C ?? 35, { min: 10, max: 60, text: (v) => `${v} °C` }),
      choice(
        "Logic die",
        design.arrangement,
        [
          ["", "as the cooling has it"],
          ["logic_bottom", "at the board: its heat passes the DRAM"],
          ["logic_top", "at the coolant"],
        ],
        (v) => changed("arrangement", v),
      ),
    ],
    h("h2", { style: { margin: "8px 0 0" } }, "Load"),
    choice("Model", design.model, known.models, (v) => changed("model", v)),
    h(
      "div",
      { class: "pair" },
      choice("Phase", design.phase, ["decode", "prefill"], (v) => changed("phase", v)),
      entry("Devices", design.devices, (v) => changed("devices", Number(v)), {
        type: "number",
        min: 1,
        max: 4096,
      }),
    ),
    slider(
      "Batch",
      Math.round(Math.log2(design.batch)),
      { min: 0, max: 13, text: (v) => String(2 ** v) },
      (v) => changed("batch", 2 ** v, { replace: true }),
    ),
    h(
      "div",
      { class: "pair" },
      ["input", "output"].map((n) =>
        entry(`${n[0].toUpperCase()}${n.slice(1)} tokens`, design[n], (v) => changed(n, Number(v)), {
          type: "number",
          min: 1,
        }),
      ),
    ),
    entry("Plan (best where empty)", design.plan, (v) => changed("plan", v), { placeholder: "tp=64,pp=4" }),
    h(
      "p",
      { class: "dim", style: { "font-size": "0.8rem" } },
      "Drawing and bounds follow at once. Time and temperatures wait until the hand rests: without a plan all of them are tried.",
    ),
  );
}

const built = () => Object.fromEntries(BUILT.map((k) => [k, design[k]]));
const node = (id) => document.getElementById(id);

async function askBuilt() {
  try {
    last.built = await ask("stack", built());
    drawBuilt();
  } catch (error) {
    if (!given_up(error) && node("st-drawn")) fill(node("st-drawn"), failure(error));
  }
}
async function askLoad() {
  node("st-heat")?.classList.add("busy");
  try {
    last.load = await ask("stack-load", design);
    last.wrong = null;
  } catch (error) {
    if (given_up(error)) return;
    last.load = null;
    last.wrong = error;
  }
  if (!node("st-heat")) return;
  node("st-heat").classList.remove("busy");
  warmth(node("st-heat"), last.load, last.built, last.wrong);
  drawBuilt();
}
const askLoadLater = rested(askLoad, 160);

// One question a number of layers, one after the other, so that no other question waits for them.
async function askCurve() {
  if (!node("st-curve")) return;
  const whole = { ...design },
    keyOf = (d) => JSON.stringify({ ...d, layers: d.layers === null ? null : 0 }),
    key = keyOf(whole);
  if (whole.layers === null) {
    curve = { key, points: [] };
    return fill(node("st-curve"));
  }
  if (curve.key === key) return drawCurve();
  curve = { key, points: [] };
  const mine = curve;
  drawCurve();
  for (let n = 1; n <= MOST; n++) {
    let told = null;
    try {
      told = await ask("stack-load", { ...whole, layers: n }, "stack-curve");
    } catch (error) {
      if (given_up(error)) return;
      told = { layers: n, fits: false, why: error.message };
    }
    if (curve !== mine || !node("st-curve")) return;
    if (keyOf(design) !== key) {
      curve = { key: "", points: [] };
      return;
    } // the hand has moved on: the next curve is asked once it rests
    curve.points.push(told);
    drawCurve();
  }
}
const askCurveLater = rested(askCurve, 700);

function drawBuilt() {
  const told = last.built;
  if (!told || !node("st-drawn")) return;
  headline(node("st-cards"), told, last.load, last.wrong, design);
  drawing(
    node("st-drawn"),
    told,
    last.load?.heat && last.load.layers === told.layers ? last.load.heat : null,
  );
  if (told.bounds.length) boundsChart(node("st-bounds"), told);
  else fill(node("st-bounds"));
}

const drawCurve = () =>
  curveChart(node("st-curve"), curve, design, MOST, last.built?.limits, (n) =>
    changed("layers", n, { again: true }),
  );
