// page 8, Training: Stages, memory and the timeline of one optimiser step.
// Training: one optimiser step under a plan, its stages, memory and timeline; the run it makes.
import { ask, catalogue, given_up } from "../api.js";
import { chart, colour } from "../charts.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { gantt } from "../training/gantt.js";
import { go, here } from "../state.js";
import { digits, percent, show as text } from "../units.js";
import { memoryBars } from "../training/memory.js";
import { findPlans } from "../training/plans.js";

const START = {
  model: "llama-3-70b",
  system: "512xh100",
  tokens: "2T",
  batch: 0,
  length: 4096,
  plan: "tp=4,pp=8,dp=16,sp=1,zero=1,microbatches=64,recompute=selective",
  engine: "megatron",
  goal: "throughput",
};

// ------------------------------------------------------------------------------------------- the plan
const degrees = (plan) =>
  Object.fromEntries(
    plan
      .split(/[,\s]+/)
      .filter(Boolean)
      .map((item) => item.split("=")),
  );
const typed = (of) =>
  Object.entries(of)
    .filter(([, value]) => value !== "" && value !== undefined)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
const withDegree = (plan, key, value) => typed({ ...degrees(plan), [key]: value });

export async function show(main) {
  const { state } = here();
  const design = { ...START, ...state };
  const known = await catalogue();
  if (!main.querySelector("#run"))
    fill(
      main,
      h(
        "div",
        { class: "split" },
        h("form", { class: "side", onsubmit: (e) => e.preventDefault() }),
        h(
          "div",
          { class: "stackv" },
          h("div", { class: "stackv", id: "run" }),
          h("div", { class: "panel", id: "when" }),
          h("div", { class: "stackv", id: "where" }),
          h("div", { id: "plans" }),
        ),
      ),
    );
  const set = (change) => {
    const next = { ...design, ...change };
    go("training", Object.fromEntries(Object.entries(next).filter(([k, v]) => v !== START[k])));
    show(main);
  };
  side(main.querySelector(".side"), design, known, set, main);
  const question = (({ goal, ...rest }) => rest)(design);
  const part = main.querySelector("#run"),
    when = main.querySelector("#when");
  part.classList.add("busy");
  when.classList.add("busy");
  const events = ask("training/timeline", question).catch((error) => error);
  try {
    const told = await ask("training", question);
    draw(part, told, design, set);
    where(main.querySelector("#where"), told);
    timeline(when, await events);
    when.hidden = !told.fits;
  } catch (error) {
    if (given_up(error)) return;
    fill(part, failure(error), hint());
    fill(main.querySelector("#where"));
    when.hidden = true;
  }
  part.classList.remove("busy");
  when.classList.remove("busy");
}

const hint = () =>
  h("p", { class: "dim" }, "Change the plan, or let the best one be found with the button on the side.");

function side(part, design, known, set, main) {
  const names = (kind) => known[kind].map((e) => e.name);
  const own = degrees(design.plan);
  const pick = (label, key, options, usual) => {
    const now = own[key] ?? usual;
    const told = options.some((o) => [o].flat()[0] === now) ? options : [...options, now];
    return choice(label, now, told, (v) => set({ plan: withDegree(design.plan, key, v === usual ? "" : v) }));
  };
  fill(
    part,
    choice("Model", design.model, names("models"), (v) => set({ model: v })),
    entry("System", design.system, (v) => set({ system: v }), { placeholder: "512xh100" }),
    h(
      "div",
      { class: "triple" },
      entry("Tokens", design.tokens, (v) => set({ tokens: v }), { placeholder: "2T" }),
      entry("Batch", design.batch || "", (v) => set({ batch: Number(v) || 0 }), {
        type: "number",
        min: 0,
        placeholder: "4M tok.",
      }),
      entry("Length", design.length, (v) => set({ length: Number(v) }), { type: "number", min: 1 }),
    ),
    entry("Plan", design.plan, (v) => set({ plan: v }), { placeholder: "tp=8,pp=4,dp=16" }),
    h(
      "div",
      { class: "triple" },
      ["tp", "pp", "dp", "cp", "ep"].map((key) =>
        entry(
          key.toUpperCase(),
          own[key] ?? 1,
          (v) => set({ plan: withDegree(design.plan, key, v === "1" ? "" : v) }),
          { type: "number", min: 1 },
        ),
      ),
      entry(
        "Micro-batches",
        own.microbatches ?? "",
        (v) => set({ plan: withDegree(design.plan, "microbatches", v) }),
        { type: "number", min: 1 },
      ),
    ),
    h(
      "div",
      { class: "pair" },
      pick("Recompute", "recompute", ["none", "selective", "full"], "none"),
      pick(
        "ZeRO",
        "zero",
        [
          ["0", "0: nothing sharded"],
          ["1", "1: optimiser"],
          ["2", "2: and gradients"],
          ["3", "3: and weights"],
        ],
        "0",
      ),
      pick("Schedule", "schedule", ["1f1b", "gpipe", "zero-bubble", "dualpipe"], "1f1b"),
      pick("Chunks a stage", "virtual_stages", ["1", "2", "4", "5", "10"], "1"),
    ),
    choice(
      "Engine",
      design.engine,
      names("engines").filter((n) => /megatron|nano|torch|ideal|deepflow/.test(n)),
      (v) => set({ engine: v }),
    ),
    h("hr", {}),
    choice(
      "Best plan by",
      design.goal,
      [
        ["throughput", "tokens/s"],
        ["cheapest", "USD a token"],
        ["efficient", "joules a token"],
      ],
      (v) => set({ goal: v }),
    ),
    h(
      "button",
      { type: "button", onclick: () => findPlans(main.querySelector("#plans"), design, set) },
      "Find the best plan",
    ),
  );
}

// ------------------------------------------------------------------------------------------- the run
function draw(part, told, design, set) {
  fill(
    part,
    h(
      "div",
      {},
      h("h1", {}, told.title),
      h(
        "p",
        { class: "lead dim" },
        told.fits
          ? `${told.plan_words}. ${digits(told.batch, 6)} sequences a step, ${digits(told.step_tokens / 1e6)}M tokens.`
          : `Under ${told.plan} a step does not fit.`,
      ),
    ),
    told.fits && h("div", { class: "cards" }, told.cards.map(card)),
    told.infeasible.map((i) => levers(i, design, set)),
  );
}

const card = (c, i) =>
  h(
    "div",
    { class: i === 0 ? "card main" : "card", hover: [[c.label, c.formula]] },
    h("div", { class: "label" }, c.label),
    h("div", { class: "value" }, c.text),
    h("div", { class: "under" }, c.under),
  );

// What would make it fit: a lever that is a change of the plan can be pulled here.
function levers(found, design, set) {
  return h(
    "div",
    { class: "panel" },
    h("h2", { class: "bad" }, `${found.what}: it needs ${found.need} and has ${found.have}`),
    h(
      "ul",
      { class: "levers" },
      found.levers.map((lever) => {
        const [change, rest] = lever.split(/: (.*)/);
        const [key, value] = change.split("=");
        if (!/^[a-z_]+=[\w+-]+$/.test(change) || rest === undefined) return h("li", { class: "dim" }, lever);
        return h(
          "li",
          {},
          h(
            "button",
            {
              class: "quiet",
              type: "button",
              onclick: () => set({ plan: withDegree(design.plan, key, value) }),
            },
            change,
          ),
          h("span", { class: rest.includes("too much") ? "dim" : "good" }, rest),
        );
      }),
    ),
  );
}

function where(part, told) {
  const drawn = told.fits ? parts(told) : null;
  fill(
    part,
    h("div", { class: "panel" }, h("h2", {}, "Memory of a device, stage by stage"), memoryBars(told.memory)),
    drawn?.node,
    told.trust?.length > 0 && h("p", { class: "dim" }, told.trust.join(" ")),
  );
  drawn?.charts();
}

function parts(told) {
  const left = h("div", {}),
    right = h("div", {});
  const rows = told.parts.filter((p) => p.time > 1e-3 * told.step);
  const lost = Object.entries(told.lost);
  const charts = () => {
    chart(
      left,
      () => [
        [
          {
            type: "bar",
            orientation: "h",
            y: rows.map((p) => p.label),
            x: rows.map((p) => p.time),
            text: rows.map((p) => `${text(p.time, "s")}, ${percent(p.time / told.step)}`),
            textposition: "auto",
            marker: { color: rows.map((p) => (p.wait ? colour("bubble") : colour(p.name))) },
            hovertemplate: rows.map(
              (p) => `${p.label}: ${text(p.time, "s")}, ${percent(p.time / told.step)}<extra></extra>`,
            ),
          },
        ],
        { yaxis: { autorange: "reversed" }, xaxis: { title: "s of a step, mean device" } },
      ],
      70 + 30 * rows.length,
    );
    chart(
      right,
      () => [
        [
          {
            type: "bar",
            orientation: "h",
            y: lost.map(([name]) => name),
            x: lost.map(([, share]) => share * 720),
            marker: { color: colour("overhead") },
            hovertemplate: lost.map(([name, share]) => `${name}: ${percent(share, 2)}<extra></extra>`),
          },
        ],
        { yaxis: { autorange: "reversed" }, xaxis: { title: "hours lost in a month of 30 days" } },
      ],
      70 + 30 * lost.length,
    );
  };
  const node = h(
    "div",
    { class: "two" },
    h("div", { class: "panel" }, h("h2", {}, `Where ${text(told.step, "s")} of a step go`), left),
    h(
      "div",
      { class: "panel" },
      h("h2", {}, `Goodput ${percent(told.goodput)}: what the rest goes to`),
      right,
    ),
  );
  return { node, charts };
}

// ------------------------------------------------------------------------------------------- the timeline
function timeline(part, told) {
  if (told instanceof Error) {
    if (!given_up(told)) fill(part, failure(told));
    return;
  }
  if (!told.tasks.length) {
    fill(part, h("h2", {}, "Timeline"), h("p", { class: "dim" }, `No timeline: ${told.why}.`));
    return;
  }
  fill(
    part,
    h("h2", {}, `Timeline: ${told.stages} stages, ${told.microbatches} micro-batches, ${told.schedule}`),
    h(
      "p",
      {},
      `${text(told.time, "s")} event by event, of which the mean stage waits `,
      h("b", {}, percent(told.bubble)),
      `; the closed form says ${text(told.step_time, "s")}. Numbers are micro-batches; wheel with Ctrl to look closer.`,
    ),
    gantt(told.tasks, told.time, told.utilisation),
  );
}
