// page 6, Mapping: A program's graph, fused into partitions, with what each one costs.
// Mapping: kernels of a program fused into partitions, drawn on its graph; a search of all mappings as a job.
import { ask, given_up, job } from "../api.js";
import { accent, chart, colour } from "../charts.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { drawn, headline } from "../mapping/panels.js";
import { go, here } from "../state.js";
import { percent, show as text } from "../units.js";

const START = {
  program: "gpt3-layer",
  system: "8xsn10",
  plan: "tp=8",
  phase: "forward",
  batch: 1,
  input: 2048,
  rules: "strata",
};
const TRIED = ["8xsn10", "16xsn40l", "8xsn30", "8xh200", "8xb200", "1xwse-2"];
let asked = { ...START },
  known = null,
  running = null,
  seconds = 60;

// A search that nobody looks at any more is given up.
addEventListener("hashchange", () => {
  if (here().page !== "mapping") running?.stop();
});

export async function show(main) {
  const { state } = here();
  asked = { ...START, ...Object.fromEntries(Object.entries(state).filter(([k]) => k in START)) };
  known = await ask("mapping-names");
  running?.stop();
  running = null;
  fill(
    main,
    h("h1", {}, "Mapping"),
    h(
      "p",
      { class: "lead dim" },
      "Which kernels to fuse: the best partitions of a program's graph, what they save, and the proof that none are better.",
    ),
    h(
      "div",
      { class: "split" },
      h("form", { class: "side", onsubmit: (e) => e.preventDefault(), "aria-label": "Program and system" }),
      h(
        "div",
        { class: "stackv" },
        h("div", { id: "ma-search", style: { "min-width": "0" } }),
        h("div", { id: "ma-cards", class: "cards" }),
        h("div", { id: "ma-drawn", style: { "min-width": "0" } }),
      ),
    ),
  );
  form(main.querySelector(".side"));
  await askFused();
}

const node = (id) => document.getElementById(`ma-${id}`);

function changed(name, value) {
  asked = { ...asked, [name]: value };
  if (name === "program") {
    const model = known.models.includes(value);
    asked.phase = model ? (asked.phase === "forward" ? "decode" : asked.phase) : "forward";
  }
  go("mapping", Object.fromEntries(Object.entries(asked).filter(([k, v]) => v !== START[k])));
  if (name === "program") form(document.querySelector("form.side"));
  askFused();
}

function form(side) {
  const model = known.models.includes(asked.program);
  fill(
    side,
    choice(
      "Program or model",
      asked.program,
      [...known.programs, ...known.models.map((m) => [m, `${m} (model)`])],
      (v) => changed("program", v),
    ),
    entry("System", asked.system, (v) => changed("system", v), { list: "ma-systems" }),
    h(
      "datalist",
      { id: "ma-systems" },
      [...TRIED, ...known.chips.map((c) => `8x${c}`)].map((v) => h("option", { value: v })),
    ),
    entry("Plan", asked.plan, (v) => changed("plan", v), {
      placeholder: model ? "best where empty" : "tp=8",
    }),
    model && choice("Phase", asked.phase, ["decode", "prefill"], (v) => changed("phase", v)),
    h(
      "div",
      { class: "pair" },
      entry("Batch", asked.batch, (v) => changed("batch", Number(v)), { type: "number", min: 1 }),
      entry("Input tokens", asked.input, (v) => changed("input", Number(v)), { type: "number", min: 1 }),
    ),
    choice(
      "Rules of fusion",
      asked.rules,
      [
        ["strata", "ours"],
        ["dfmodel-2024", "DFModel's program"],
      ],
      (v) => changed("rules", v),
    ),
    h("h2", { style: { margin: "8px 0 0" } }, "Search everything"),
    h(
      "p",
      { class: "dim", style: { "font-size": "0.85rem" } },
      "Above, layouts are those of the plan. A search also finds degrees and layouts, and proves them best or tells the gap.",
    ),
    entry("Seconds for the search", seconds, (v) => (seconds = Math.min(600, Math.max(1, Number(v) || 60))), {
      type: "number",
      min: 1,
      max: 600,
    }),
    h("button", { type: "button", onclick: () => search("") }, "Search degrees and layouts"),
    h(
      "button",
      { type: "button", class: "quiet", onclick: () => search(asked.plan) },
      "Search layouts of this plan",
    ),
  );
}

function draw(told) {
  headline(node("cards"), told);
  drawn(node("drawn"), told);
}

async function askFused() {
  node("drawn")?.classList.add("busy");
  try {
    const told = await ask("mapping", asked);
    if (node("cards")) draw(told);
  } catch (error) {
    if (given_up(error) || !node("drawn")) return;
    fill(node("cards"));
    fill(node("drawn"), failure(error));
  }
  node("drawn")?.classList.remove("busy");
}

// ------------------------------------------------------------------------------------------------ the search
async function search(plan) {
  running?.stop();
  const seen = [],
    plot = h("div", {}),
    said = h("p", { "aria-live": "polite" }, "Starting …"),
    stop = h("button", { type: "button", class: "quiet", onclick: () => mine.stop() }, "Cancel");
  fill(
    node("search"),
    h(
      "div",
      { class: "panel" },
      h("h2", {}, `Searching mappings of ${asked.program} on ${asked.system}`),
      said,
      stop,
      plot,
    ),
  );
  const mine = job("mapping-search", { ...asked, plan, seconds }, (news) => {
    for (const told of news.told) seen.push({ ...told, at: news.seconds });
    const last = seen.at(-1);
    if (last && node("search"))
      said.textContent = last.best
        ? `Layouts of the division that is looked at now: best step ${text(last.best, "s")}, none below ${text(last.bound, "s")}, gap ${percent(Math.max(0, 1 - last.bound / last.best), 2)}; ${news.seconds.toFixed(1)} s.`
        : `Layouts of the division that is looked at now: none below ${text(last.bound, "s")}; ${news.seconds.toFixed(1)} s.`;
    if (seen.length > 1 && node("search")) closing(plot, seen);
  });
  running = mine;
  try {
    const ended = await mine.done;
    stop.remove();
    if (!node("search")) return;
    if (ended.state === "cancelled") said.textContent = `Cancelled. ${said.textContent}`;
    else {
      said.textContent = `${ended.answer.optimal ? "Proved optimal" : `Within ${percent(ended.answer.gap, 2)} of the best there is`}: step ${text(ended.answer.step, "s")} after ${ended.seconds.toFixed(1)} s. It is drawn below.`;
      draw(ended.answer);
    }
  } catch (error) {
    stop.remove();
    if (node("search")) fill(node("search"), failure(error));
  }
}

function closing(plot, seen) {
  const x = seen.map((_, i) => i + 1);
  chart(
    plot,
    () => [
      [
        {
          x,
          y: seen.map((t) => (t.best ? t.best * 1e3 : null)),
          name: "best step (ms)",
          mode: "lines",
          line: { color: accent(), shape: "hv" },
        },
        {
          x,
          y: seen.map((t) => t.bound * 1e3),
          name: "bound (ms)",
          mode: "lines",
          line: { color: colour("memory"), shape: "hv" },
        },
      ],
      { xaxis: { title: "reports", fixedrange: true }, yaxis: { title: "ms", fixedrange: true } },
    ],
    220,
  );
}
