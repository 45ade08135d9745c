// What-if: designs side by side; every change is asked at once.
import { ask, catalogue, given_up } from "../api.js";
import { chart, colour } from "../charts.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { go, here } from "../state.js";
import { difference, percent, show as text } from "../units.js";

const START = {
  model: "llama-3-70b",
  system: "8xh200",
  phase: "serve",
  batch: 64,
  input: 1024,
  output: 1024,
  plan: "",
  engine: "ideal",
  weights: "",
  kv: "",
  set: {},
};

export async function show(main) {
  const { state } = here();
  const designs = (state.designs?.length ? state.designs : [{}]).slice(0, 4).map((d) => ({ ...START, ...d }));
  const open = Math.min(state.open ?? 0, designs.length - 1);
  const known = await catalogue();
  const change = (name, value) => {
    designs[open] = { ...designs[open], [name]: value };
    go("what-if", { designs, open });
    show(main);
  };
  const design = designs[open];
  if (!main.querySelector(".split"))
    fill(
      main,
      h(
        "div",
        { class: "split" },
        h("form", { class: "side", onsubmit: (e) => e.preventDefault() }),
        h("div", { class: "stackv", id: "answer" }),
      ),
    );
  const names = (kind) => known[kind].map((e) => e.name);
  fill(
    main.querySelector(".side"),
    choice("Model", design.model, names("models"), (v) => change("model", v)),
    entry("System", design.system, (v) => change("system", v), { list: "systems" }),
    choice("Phase", design.phase, ["serve", "prefill", "decode", "train"], (v) => change("phase", v)),
    h(
      "div",
      { class: "triple" },
      ["batch", "input", "output"].map((n) =>
        entry(n[0].toUpperCase() + n.slice(1), design[n], (v) => change(n, Number(v)), {
          type: "number",
          min: 1,
        }),
      ),
    ),
    entry("Plan (best where empty)", design.plan, (v) => change("plan", v), { placeholder: "tp=8,ep=8" }),
    choice("Engine", design.engine, names("engines"), (v) => change("engine", v)),
  );
  const answer = main.querySelector("#answer");
  answer.classList.add("busy");
  try {
    const told = await ask("predict", design);
    draw(answer, told);
  } catch (error) {
    if (!given_up(error)) fill(answer, failure(error));
  }
  answer.classList.remove("busy");
}

function draw(answer, told) {
  const cards = told.cards.map((c) =>
    h(
      "div",
      { class: "card", hover: [["unit", c.unit]] },
      h("div", { class: "label" }, c.label),
      h("div", { class: "value" }, c.text),
    ),
  );
  const bars = h("div", {});
  fill(
    answer,
    h("h1", {}, told.title),
    h("p", { class: "lead" }, `Bound by ${told.binds}. ${(told.sentence ?? []).join(" ")}`),
    h("div", { class: "cards" }, cards),
    h("div", { class: "panel" }, h("h2", {}, "Where a step's time goes"), bars),
  );
  const ops = (told.ops ?? []).slice(0, 12);
  chart(
    bars,
    () => [
      [
        {
          type: "bar",
          orientation: "h",
          x: ops.map((o) => o.time * 1e3),
          y: ops.map((o) => `${o.block}.${o.op}`),
          marker: { color: ops.map((o) => colour(o.bound_by)) },
        },
      ],
      { yaxis: { autorange: "reversed" }, xaxis: { title: "ms" } },
    ],
    60 + 26 * ops.length,
  );
}
