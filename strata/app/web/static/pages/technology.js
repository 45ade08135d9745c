// page 5, Technology: From budgets to a die drawn to scale, and which budget binds.
// Technology: budgets and a node become a chip, drawn to scale, with what binds it and what a model does on it.
import { ask, catalogue, given_up } from "../api.js";
import { rested, slider } from "../controls.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { go, here } from "../state.js";
import { budgets, drawn, headline, predicted, worth } from "../technology/panels.js";

const START = {
  technology: "n5",
  budget: "h100",
  template: "gpu",
  device: "",
  die_mm2: null,
  package_mm2: null,
  power_W: null,
  edge_mm: null,
  devices: null,
  against: "h100",
  count: 8,
  model: "llama-3-70b",
  phase: "decode",
  batch: 64,
  input: 1024,
  output: 1024,
};
const WORK = ["count", "model", "phase", "batch", "input", "output"];
const OWN = { die_mm2: null, package_mm2: null, power_W: null, edge_mm: null, devices: null };
let asked = { ...START },
  known = null,
  usual = null; // the budget's own numbers, where sliders begin

export async function show(main) {
  const { state } = here();
  asked = { ...START, ...Object.fromEntries(Object.entries(state).filter(([k]) => k in START)) };
  const [names, all] = await Promise.all([ask("technology-names"), catalogue()]);
  known = { ...names, models: all.models.map((m) => m.name) };
  fill(
    main,
    h("h1", {}, "Technology"),
    h(
      "p",
      { class: "lead dim" },
      "A node and budgets of area, power and edge become a chip: what fits, how fast it runs, which budget binds.",
    ),
    h(
      "div",
      { class: "split" },
      h("form", { class: "side", onsubmit: (e) => e.preventDefault(), "aria-label": "Budgets" }),
      h(
        "div",
        { class: "stackv" },
        ["cards", "drawn", "budgets", "work", "worth"].map((id) =>
          h("div", { id: `te-${id}`, style: { "min-width": "0" } }),
        ),
      ),
    ),
  );
  await askUsual();
  form(main.querySelector(".side"));
  await Promise.all([askChip(), askWork()]);
}

const chip = (over = {}) =>
  Object.fromEntries(Object.entries({ ...asked, ...over }).filter(([k]) => !WORK.includes(k)));
const node = (id) => document.getElementById(`te-${id}`);

async function askUsual() {
  try {
    usual = (await ask("technology", chip(OWN), "technology-usual")).budget;
  } catch (error) {
    if (!given_up(error)) usual = null;
  }
}

async function changed(name, value, { replace = false, again = false } = {}) {
  asked = { ...asked, [name]: value };
  if (again) asked = { ...asked, ...OWN };
  const said = Object.fromEntries(Object.entries(asked).filter(([k, v]) => v !== START[k]));
  go("technology", said, { replace });
  if (again) {
    await askUsual();
    form(document.querySelector("form.side"));
  }
  askChip();
  askWorkLater();
}

function form(side) {
  const from = usual ?? { die_mm2: 800, package_mm2: 1500, power_W: 700, edge_mm: 114, devices: 5 };
  const slide = (label, name, most, step, unit) => {
    const value = asked[name] ?? from[name] ?? 1;
    return slider(
      label,
      Math.round(value / step) * step,
      { min: step, max: most, step, text: (v) => `${v.toLocaleString("en")} ${unit}` },
      (v) => changed(name, v, { replace: true }),
    );
  };
  const step = (v) => 10 ** Math.max(0, Math.floor(Math.log10(v)) - 2);
  fill(
    side,
    choice("Node", asked.technology, known.technologies, (v) => changed("technology", v)),
    choice("Template", asked.template, known.templates, (v) => changed("template", v)),
    choice("Budget of", asked.budget, known.budgets, (v) => changed("budget", v, { again: true })),
    choice("Memory", asked.device, [["", "the budget's own"], ...known.devices], (v) => changed("device", v)),
    slide("Die area", "die_mm2", 2.2 * from.die_mm2, step(from.die_mm2), "mm²"),
    slide("Package area", "package_mm2", 3 * from.package_mm2, step(from.package_mm2), "mm²"),
    slide("Power", "power_W", 3 * from.power_W, step(from.power_W), "W"),
    slide("Die edge", "edge_mm", 2.5 * from.edge_mm, step(from.edge_mm), "mm"),
    slide("Most memory devices", "devices", 24, 1, ""),
    h(
      "button",
      { type: "button", class: "quiet", onclick: () => changed("budget", asked.budget, { again: true }) },
      "Back to the budget's own",
    ),
    choice("Compare with", asked.against, known.chips, (v) => changed("against", v)),
    h("h2", { style: { margin: "8px 0 0" } }, "A model on it"),
    choice("Model", asked.model, known.models, (v) => changed("model", v)),
    h(
      "div",
      { class: "pair" },
      choice("Phase", asked.phase, ["decode", "prefill", "serve"], (v) => changed("phase", v)),
      entry("Chips", asked.count, (v) => changed("count", Number(v)), { type: "number", min: 1, max: 64 }),
    ),
    h(
      "div",
      { class: "triple" },
      ["batch", "input", "output"].map((n) =>
        entry(n[0].toUpperCase() + n.slice(1), asked[n], (v) => changed(n, Number(v)), {
          type: "number",
          min: 1,
        }),
      ),
    ),
  );
}

async function askChip() {
  try {
    const told = await ask("technology", chip());
    if (!node("cards")) return;
    headline(node("cards"), told);
    drawn(node("drawn"), told);
    budgets(node("budgets"), told);
    worth(node("worth"), told);
  } catch (error) {
    if (given_up(error) || !node("drawn")) return;
    for (const id of ["cards", "budgets", "worth", "work"]) fill(node(id));
    fill(node("drawn"), failure(error));
  }
}

async function askWork() {
  node("work")?.classList.add("busy");
  try {
    const told = await ask("technology-predict", asked);
    if (node("work")) predicted(node("work"), told, asked);
  } catch (error) {
    if (given_up(error)) return;
    if (node("work")) fill(node("work"), failure(error));
  }
  node("work")?.classList.remove("busy");
}
const askWorkLater = rested(askWork, 120);
