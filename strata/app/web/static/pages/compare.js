// page 2, Compare: Which system serves a model cheapest, or best, under limits on latency.
// Compare: which system serves a model best under limits on latency.
import { catalogue, job } from "../api.js";
import { accent, chart } from "../charts.js";
import { choice, download, entry, failure, fill, h, say, table } from "../dom.js";
import { address, go, here } from "../state.js";
import { show as text } from "../units.js";
import { wide } from "../what-if/focus.js";
import { listed, systemNames } from "../what-if/inputs.js";

const START = {
  model: "llama-3-70b",
  systems: ["8xh100", "8xh200", "8xb200", "8xmi300x", "8xmi355x", "8xl40s"],
  engine: "vllm",
  input: 1024,
  output: 1024,
  ttft: 2,
  tpot: 0.05,
  goal: "cheapest",
  weights: "",
  kv: "",
  prices: {},
};
const GOALS = [
  ["cheapest", "cheapest: USD for a million tokens"],
  ["throughput", "most tokens/s"],
  ["efficient", "least energy a token"],
  ["fastest", "fastest for a user"],
];
const VALUE = {
  cheapest: ["cost_per_mtoken", "USD/Mtoken", "USD"],
  throughput: ["tokens_per_s", "tokens/s", ""],
  efficient: ["energy_per_mtoken", "J/Mtoken", "J"],
  fastest: ["tpot", "time per output token [s]", "s"],
};
const MOST = 16;
const kept = new Map(); // answers by question
let running = null;

const asked = () => {
  const { state } = here();
  const made = { ...START };
  for (const [key, value] of Object.entries(state))
    if (key in START && (typeof value === typeof START[key] || value === null)) made[key] = value;
  if (!Array.isArray(made.systems) || !made.systems.length) made.systems = START.systems;
  return made;
};

export async function show(main) {
  const known = await catalogue();
  const question = asked();
  const change = (more) => {
    const told = Object.fromEntries(
      Object.entries({ ...question, ...more }).filter(
        ([k, v]) => JSON.stringify(v) !== JSON.stringify(START[k]),
      ),
    );
    go("compare", told);
    show(main);
  };
  if (!main.querySelector(".comparing"))
    fill(
      main,
      h(
        "div",
        { class: "split comparing" },
        h("form", { class: "side", "aria-label": "What is compared", onsubmit: (e) => e.preventDefault() }),
        h("div", { class: "stackv", id: "compared" }),
      ),
    );
  fill(main.querySelector(".side"), form(known, question, change));
  await compare(main.querySelector("#compared"), question);
}

function form(known, question, change) {
  const number = (name, label) =>
    entry(label, question[name], (v) => change({ [name]: Math.max(1, Math.round(Number(v)) || 1) }), {
      type: "number",
      min: 1,
      max: 2000000,
    });
  const limit = (name, label) =>
    entry(
      label,
      question[name] === null ? "" : question[name] * 1000,
      (v) => change({ [name]: Number(v) > 0 ? Number(v) / 1000 : null }),
      { type: "number", min: 0, step: "any", placeholder: "none" },
    );
  const add = (name) => {
    if (name && !question.systems.includes(name) && question.systems.length < MOST)
      change({ systems: [...question.systems, name] });
  };
  const none = [["", "as published"], ...known.precisions.map((e) => e.name)];
  return [
    choice(
      "Model",
      question.model,
      known.models.map((e) => e.name),
      (v) => change({ model: v }),
    ),
    h(
      "div",
      {},
      h("p", { class: "dim" }, "Systems"),
      h(
        "div",
        { class: "chosen" },
        question.systems.map((name) =>
          h(
            "button",
            {
              class: "quiet",
              type: "button",
              "aria-label": `Remove ${name}`,
              onclick: () =>
                question.systems.length > 1 &&
                change({ systems: question.systems.filter((s) => s !== name) }),
            },
            `${name} ×`,
          ),
        ),
      ),
    ),
    entry("Add a system", "", add, { list: "compare-systems", placeholder: "8xb300" }),
    listed("compare-systems", systemNames(known)),
    h("div", { class: "pair" }, limit("ttft", "TTFT at most [ms]"), limit("tpot", "TPOT at most [ms]")),
    h("div", { class: "pair" }, number("input", "Input tokens"), number("output", "Output tokens")),
    choice("Best means", question.goal, GOALS, (v) => change({ goal: v })),
    choice(
      "Engine",
      question.engine,
      known.engines.map((e) => e.name),
      (v) => change({ engine: v }),
    ),
    h(
      "div",
      { class: "pair" },
      choice("Weights", question.weights, none, (v) => change({ weights: v })),
      choice("KV cache", question.kv, none, (v) => change({ kv: v })),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Prices of a device-hour as rented"),
      h("p", { class: "dim" }, "Bought, hosted and powered where empty."),
      question.systems.map((name) =>
        entry(`${name} [USD/h]`, question.prices[name] ?? "", (v) => {
          const prices = { ...question.prices, [name]: v };
          if (!v) delete prices[name];
          change({ prices });
        }),
      ),
    ),
  ];
}

async function compare(node, question) {
  const key = JSON.stringify(question);
  if (running && running.key !== key) running.stop();
  if (kept.has(key)) return draw(node, question, kept.get(key));
  if (running?.key === key) return;
  const done = h("div", { class: "dim", role: "status" }, "Each system's best plan and load is searched…");
  const rows = h("div", {});
  fill(
    node,
    h("h1", {}, heading(question)),
    done,
    rows,
    h(
      "div",
      { class: "row" },
      h("button", { class: "quiet", type: "button", onclick: () => running?.stop() }, "Stop"),
    ),
  );
  const found = [];
  const started = job("compare", question, (told) => {
    for (const one of told.told) found.push(one);
    if (!done.isConnected || !found.length) return;
    done.textContent = `${found.length} of ${question.systems.length} systems so far`;
    fill(
      rows,
      table(
        ["system", VALUE[question.goal][1]],
        found.map((r) => [r.system, r.value === null ? r.why_none : text(r.value, VALUE[question.goal][2])]),
      ),
    );
  });
  running = { key, stop: started.stop };
  try {
    const told = await started.done;
    if (told.state === "done") {
      kept.set(key, told.answer);
      if (running?.key === key && node.isConnected) draw(node, question, told.answer);
    } else if (running?.key === key) fill(node, h("p", { class: "dim" }, "Stopped."));
  } catch (error) {
    if (running?.key === key) fill(node, h("h1", {}, heading(question)), failure(error));
  }
  if (running?.key === key) running = null;
}

const said = (s) => (s < 1 ? `${Number((s * 1000).toPrecision(4))} ms` : `${s} s`);
function heading(q) {
  const limits = [
    q.ttft !== null && `TTFT ${said(q.ttft)}`,
    q.tpot !== null && `TPOT ${said(q.tpot)}`,
  ].filter(Boolean);
  const best = {
    cheapest: "cheapest",
    throughput: "fastest in all",
    efficient: "with the least energy",
    fastest: "fastest for each user",
  };
  return `Which system serves ${q.model} ${best[q.goal]}${limits.length ? ` under ${limits.join(", ")}` : ""}?`;
}

function draw(node, question, told) {
  const [name, label, unit] = VALUE[question.goal];
  const fitting = told.ranking.map((row) => told.rows.find((r) => r.row === row));
  const best = fitting[0];
  const plot = h("div", {});
  const value = (r) => r.metrics[name];
  fill(
    node,
    h("h1", {}, heading(question)),
    best
      ? h(
          "p",
          { class: "answerline" },
          h("strong", {}, best.system),
          `: ${text(value(best), unit)}${question.goal === "cheapest" ? " for a million tokens" : ""}, plan ${best.plan}, ${best.batch} requests at once`,
          best.limited_by ? ` (one more would break ${best.limited_by})` : "",
          ".",
        )
      : h("p", { class: "answerline" }, "None of these systems keeps the limits."),
    best && h("section", { class: "panel" }, h("h2", {}, `${told.means}, the best first`), plot),
    h(
      "section",
      { class: "panel" },
      h("h2", {}, "Every system"),
      h("p", { class: "dim" }, "A name opens the system in What-if."),
      rowsTable(question, told),
    ),
    h(
      "section",
      { class: "panel" },
      h("h2", {}, "Why they differ"),
      h(
        "ul",
        { class: "reasons" },
        told.reasons.map((line) => h("li", {}, line)),
      ),
      told.remark.split("\n").map((line) => h("p", { class: "dim" }, line)),
    ),
    h(
      "div",
      { class: "row" },
      h(
        "button",
        {
          class: "quiet small",
          type: "button",
          onclick: async () => {
            try {
              await navigator.clipboard.writeText(location.href);
              say("The link is copied.");
            } catch {
              say("The browser did not let this be copied.");
            }
          },
        },
        "Copy link",
      ),
      h(
        "button",
        {
          class: "quiet small",
          type: "button",
          onclick: () => download("compared.json", JSON.stringify(told, null, 1)),
        },
        "Download JSON",
      ),
      h(
        "button",
        {
          class: "quiet small",
          type: "button",
          onclick: () => download("compared.csv", csv(told), "text/csv"),
        },
        "Download CSV",
      ),
    ),
  );
  if (!best) return;
  const ends = fitting.map((r) => r.goal_interval);
  chart(
    plot,
    () => [
      [
        {
          type: "bar",
          orientation: "h",
          y: fitting.map((r) => r.row),
          x: fitting.map(value),
          text: fitting.map((r) => text(value(r), unit)),
          textposition: "inside",
          insidetextanchor: "start",
          marker: { color: fitting.map((_, i) => (i ? "rgba(128,138,155,.55)" : accent())) },
          error_x: {
            type: "data",
            symmetric: false,
            array: ends.map((e, i) => (e ? Math.max(0, e.high - value(fitting[i])) : 0)),
            arrayminus: ends.map((e, i) => (e ? Math.max(0, value(fitting[i]) - e.low) : 0)),
            thickness: 1.4,
            width: 5,
            color: "rgba(128,138,155,1)",
          },
          hovertext: fitting.map(
            (r) =>
              `${r.row}, plan ${r.plan}, ${r.batch} at once${r.goal_interval ? "<br>line: where 80 % of like cases measured would lie" : ""}`,
          ),
          hoverinfo: "text",
        },
      ],
      { yaxis: { autorange: "reversed" }, xaxis: { title: label, rangemode: "tozero" }, bargap: 0.3 },
    ],
    70 + 44 * fitting.length,
  );
}

function rowsTable(question, told) {
  const rank = (r) => r.rank ?? 99;
  const open = (r) =>
    h(
      "a",
      {
        href: address("what-if", {
          designs: [
            {
              model: question.model,
              system: r.system,
              phase: "serve",
              batch: Math.max(1, Math.round(r.batch)),
              input: question.input,
              output: question.output,
              plan: r.plan,
              engine: question.engine,
              weights: question.weights,
              kv: question.kv,
              price: question.prices[r.system] ?? "",
            },
          ],
        }),
      },
      r.row,
    );
  return h(
    "div",
    wide("Every system"),
    table(
      ["system", "plan", "at once", "tokens/s", "TTFT", "TPOT", "USD/Mtoken", "J/Mtoken", "USD/device-h"],
      [...told.rows]
        .sort((a, b) => rank(a) - rank(b))
        .map((r) =>
          r.fits
            ? [
                open(r),
                r.plan,
                text(r.batch),
                text(r.metrics.tokens_per_s),
                text(r.metrics.ttft, "s"),
                text(r.metrics.tpot, "s"),
                text(r.metrics.cost_per_mtoken),
                text(r.metrics.energy_per_mtoken, "J"),
                text(r.metrics.cost_per_device_hour),
              ]
            : [r.row, r.why_none, "", "", "", "", "", "", ""],
        ),
      [0, 1],
    ),
  );
}

function csv(told) {
  const rows = told.rows.map((r) => [
    r.row,
    r.plan ?? "",
    r.batch ?? "",
    ...Object.keys(told.units).map((m) => r.metrics?.[m] ?? ""),
  ]);
  const cell = (v) => (/[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
  return (
    [["system", "plan", "batch", ...Object.keys(told.units)], ...rows]
      .map((r) => r.map(cell).join(","))
      .join("\n") + "\n"
  );
}
