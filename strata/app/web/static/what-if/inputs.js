// What is asked: program, system, work, plan, precision, engine, price.
import { ask } from "../api.js";
import { choice, entry, failure, fill, h, table } from "../dom.js";
import { wide } from "./focus.js";

const grouped = (label, value, groups, onchange) => {
  const every = groups.flatMap(([, list]) => list.map((e) => e.name));
  return h(
    "label",
    {},
    label,
    h(
      "select",
      { onchange: (e) => onchange(e.target.value) },
      every.includes(value) ? null : h("option", { value, selected: true }, value),
      groups.map(([name, list]) =>
        h(
          "optgroup",
          { label: name },
          list.map((e) =>
            h("option", { value: e.name, selected: e.name === value ? true : null, title: e.title }, e.name),
          ),
        ),
      ),
    ),
  );
};

export const systemNames = (known) => [
  ...known.systems.map((e) => [e.name, e.title]),
  ...known.chips.flatMap((e) => [1, 8, 64, 256].map((n) => [`${n}x${e.name}`, `${n} of ${e.title}`])),
];
export const listed = (id, rows) =>
  h(
    "datalist",
    { id },
    rows.map(([value, title]) => h("option", { value }, title)),
  );

export function inputs(known, design, change) {
  const none = (kind, word) => [["", word], ...known[kind].map((e) => e.name)];
  const number = (name, label) =>
    entry(label, design[name], (v) => change({ [name]: Math.max(1, Math.round(Number(v)) || 1) }), {
      type: "number",
      min: 1,
      max: 1e9,
      step: 1,
    });
  return [
    grouped(
      "Program",
      design.model,
      [
        ["Language models", known.models],
        ["Other programs", known.programs],
      ],
      (v) => change({ model: v, plan: "" }),
    ),
    entry("System: how many x which chip, or a name", design.system, (v) => change({ system: v, plan: "" }), {
      list: "what-if-systems",
    }),
    listed("what-if-systems", systemNames(known)),
    h(
      "div",
      { class: "pair" },
      choice(
        "Phase",
        design.phase,
        [
          ["serve", "serve"],
          ["prefill", "prefill"],
          ["decode", "decode"],
          ["train", "train"],
        ],
        (v) => change({ phase: v, plan: "" }),
      ),
      number("batch", "Batch"),
    ),
    h("div", { class: "pair" }, number("input", "Input tokens"), number("output", "Output tokens")),
    entry("Plan (the best where empty)", design.plan, (v) => change({ plan: v }), {
      placeholder: "tp=8,ep=8",
    }),
    h(
      "div",
      { class: "pair" },
      choice(
        "Engine",
        design.engine,
        known.engines.map((e) => e.name),
        (v) => change({ engine: v }),
      ),
      entry("Rent, USD/h a device", design.price, (v) => change({ price: v }), { placeholder: "bought" }),
    ),
    h(
      "div",
      { class: "pair" },
      choice("Weights", design.weights, none("precisions", "as published"), (v) => change({ weights: v })),
      choice("KV cache", design.kv, none("precisions", "as published"), (v) => change({ kv: v })),
    ),
    choice("Fabric", design.fabric, none("fabrics", "the system's own"), (v) => change({ fabric: v })),
  ];
}

// Ranked plans, asked for when they are opened.
export function otherPlans(design, chosen, change) {
  const body = h("div", wide("Ranked plans"), h("p", { class: "dim" }, "Ranking every legal plan…"));
  const load = async () => {
    try {
      const told = await ask("plans", { ...design, plan: "" });
      if (!told.plans.length) return fill(body, h("p", {}, told.why_none || "There is no other plan."));
      const names = Object.keys(told.labels);
      fill(
        body,
        h("p", { class: "dim" }, `${told.feasible} of ${told.considered} legal plans fit; the best first.`),
        table(
          ["plan (take it by a click)", ...names.map((n) => told.labels[n]), "memory/device"],
          told.plans.map((p) => [
            p.plan === chosen
              ? `${p.plan} (shown)`
              : h(
                  "button",
                  {
                    class: "quiet small",
                    type: "button",
                    "aria-label": `Take ${p.plan}`,
                    onclick: () => change({ plan: p.plan }),
                  },
                  p.plan,
                ),
            ...names.map((n) => p.metrics[n] ?? ""),
            p.memory,
          ]),
        ),
      );
    } catch (error) {
      fill(body, failure(error));
    }
  };
  return h(
    "details",
    {
      class: "panel",
      ontoggle: (e) => {
        if (e.target.open && !body.dataset.asked) {
          body.dataset.asked = "yes";
          load();
        }
      },
    },
    h("summary", {}, "Other plans, ranked"),
    body,
  );
}
