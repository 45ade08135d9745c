// One number over a range: a metric at each value, the best marked.
import { ask, given_up } from "../api.js";
import { accent, chart } from "../charts.js";
import { choice, entry, failure, fill, h, table } from "../dom.js";
import { keepFocus, wide } from "./focus.js";

const SIZES = ["batch", "input", "output"];
const METRICS = [
  ["", "the usual one of the phase"],
  ["tpot", "time per output token"],
  ["ttft", "time to first token"],
  ["step_time", "time of a step"],
  ["tokens_per_s", "tokens/s"],
  ["tokens_per_s_per_device", "tokens/s/device"],
  ["energy_per_token", "energy/token"],
  ["cost_per_mtoken", "cost/Mtoken"],
  ["temperature", "temperature"],
  ["power", "power"],
  ["mfu", "MFU"],
];

// So many values from one to another: whole numbers one by one where they are few, else by equal factors.
export function spread(from, to, whole, count = 13) {
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  if (whole && high - low <= 20)
    return Array.from({ length: Math.round(high - low) + 1 }, (_, i) => Math.round(low) + i);
  if (low <= 0) return Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
  const made = Array.from({ length: count }, (_, i) => low * (high / low) ** (i / (count - 1)));
  return [...new Set(made.map((v) => (whole ? Math.round(v) : Number(v.toPrecision(6)))))];
}

export class Sweeping {
  constructor(node, onchange) {
    Object.assign(this, { node, onchange, numbers: [], about: "" });
    this.form = h("form", { class: "sweepform", onsubmit: (e) => e.preventDefault() });
    this.found = h("div", { class: "stackv", "aria-live": "polite" });
    this.plot = h("div", {});
    fill(
      node,
      h("h2", {}, "Sweep one number"),
      h(
        "p",
        { class: "dim" },
        "Pick a number and a range: each value gets its answer, and the best is marked.",
      ),
      this.form,
      this.found,
    );
  }

  // numbers come later than the design; ranges begin around what is shipped
  update(design, told, numbers) {
    this.design = design;
    this.numbers = numbers ?? this.numbers;
    const n = this.numbers.find((one) => one.path === told?.path);
    const size = SIZES.includes(told?.path);
    const stack = this.numbers.some((one) => one.path === "chip.stack.layers");
    const path = told?.path ?? (stack ? "chip.stack.layers" : "batch");
    const set = (more) => this.onchange({ path, ...told, ...more });
    keepFocus(this.form, () => this.controls(told, path, n, set));
    if (told && (size || n)) this.ask(told, n);
    else if (!told) {
      this.about = "";
      fill(this.found);
    }
  }

  controls(told, path, n, set) {
    const list = [
      ...SIZES,
      ...this.numbers
        .filter((one) => one.shipped && !one.path.startsWith("economics."))
        .map((one) => one.path),
    ];
    fill(
      this.form,
      entry(
        "Number",
        path,
        (v) => list.includes(v) && this.onchange({ path: v, ...this.range(v), metric: told?.metric }),
        {
          list: "sweep-numbers",
        },
      ),
      h(
        "datalist",
        { id: "sweep-numbers" },
        list.map((name) => h("option", { value: name })),
      ),
      ["from", "to"].map((end) =>
        entry(
          `${end === "from" ? "From" : "To"}${n && n.unit !== "1" ? ` (${n.unit})` : ""}`,
          told?.[end] ?? this.range(path)[end],
          (v) => Number(v) > 0 && set({ ...this.range(path), ...told, [end]: Number(v) }),
          { inputmode: "decimal" },
        ),
      ),
      choice("Metric", told?.metric ?? "", METRICS, (v) => set({ ...this.range(path), ...told, metric: v })),
      choice(
        "Plan",
        told?.plans ?? "each",
        [
          ["each", "the best for each value"],
          ["same", "one for all"],
        ],
        (v) => set({ ...this.range(path), ...told, plans: v }),
      ),
      h(
        "button",
        { type: "button", onclick: () => this.onchange({ path, ...this.range(path), ...told }) },
        "Sweep",
      ),
    );
  }

  range(path) {
    const n = this.numbers.find((one) => one.path === path);
    if (SIZES.includes(path)) return { from: 1, to: path === "batch" ? 1024 : 32768 };
    if (!n) return { from: 1, to: 16 };
    if (n.whole && n.shipped <= 64) return { from: 1, to: Math.max(16, 4 * n.shipped) };
    return { from: Number((n.shipped / 4).toPrecision(4)), to: Number((n.shipped * 4).toPrecision(4)) };
  }

  async ask(told, n) {
    const { from, to } = { ...this.range(told.path), ...told };
    const question = {
      ...this.design,
      path: told.path,
      values: spread(Number(from), Number(to), n ? n.whole : true),
      metric: told.metric ?? "",
      plans: told.plans ?? "each",
    };
    const about = JSON.stringify(question);
    if (about === this.about) return;
    this.about = about;
    this.found.classList.add("busy");
    try {
      this.draw(await ask("sweep", question), n);
    } catch (error) {
      if (!given_up(error)) fill(this.found, failure(error));
    }
    this.found.classList.remove("busy");
  }

  draw(told, n) {
    const label = told.metrics.find((m) => m.name === told.metric)?.label ?? told.metric;
    const what = n?.says || told.path;
    const best = told.best === null ? null : told.best;
    fill(
      this.found,
      h(
        "p",
        { class: "lead", id: "sweep-best" },
        best === null
          ? "No value fits."
          : [
              "Best: ",
              h("strong", {}, `${told.path.split(".").at(-1).replaceAll("_", " ")} ${told.labels[best]}`),
              ` with ${label} ${told.texts[best]}`,
              told.plans[best] ? `, plan ${told.plans[best]}.` : ".",
            ],
      ),
      this.plot,
      told.remarks.map((line) => h("p", { class: "dim small" }, line.replace(/^- : /, ""))),
      h("p", { class: "dim small" }, told.question),
      h(
        "details",
        {},
        h("summary", {}, "The same as a table"),
        h(
          "div",
          wide("The sweep as a table"),
          table(
            [what, label, "bound by", "plan"],
            told.labels.map((v, i) => [v, told.texts[i] || "does not fit", told.binds[i], told.plans[i]]),
            [2, 3],
          ),
        ),
      ),
    );
    const offset = told.metric_unit === "K" ? 273.15 : 0;
    const largest = Math.max(...told.results.filter((v) => v !== null).map(Math.abs), 1e-30);
    const size =
      told.metric_unit === "s" ? (largest < 1e-3 ? [1e6, "µs"] : largest < 1 ? [1e3, "ms"] : [1, "s"]) : null;
    const units = { K: "°C", 1: "", USD: "USD" };
    const shown = told.results.map((v) => (v === null ? null : size ? v * size[0] : v - offset));
    const far = told.values.at(-1) / told.values[0] > 30;
    chart(
      this.plot,
      () => [
        [
          {
            type: "scatter",
            mode: "lines+markers",
            x: told.values,
            y: shown,
            text: told.texts.map(
              (t, i) => `${told.labels[i]}: ${t}<br>bound by ${told.binds[i]}<br>${told.plans[i]}`,
            ),
            hoverinfo: "text",
            line: { color: accent(), width: 2 },
            marker: { size: 7, color: accent() },
            showlegend: false,
          },
          ...(best === null
            ? []
            : [
                {
                  type: "scatter",
                  mode: "markers+text",
                  x: [told.values[best]],
                  y: [shown[best]],
                  text: [`best: ${told.labels[best]}`],
                  textposition: told.better === "lower" ? "bottom center" : "top center",
                  cliponaxis: false,
                  marker: { size: 15, color: accent(), symbol: "circle-open", line: { width: 3 } },
                  hoverinfo: "skip",
                  showlegend: false,
                },
              ]),
        ],
        {
          xaxis: {
            title: `${what}${told.unit === "1" ? "" : ` [${told.unit}]`}`,
            type: far ? "log" : "linear",
          },
          yaxis: {
            title: `${label}${size ? ` [${size[1]}]` : units[told.metric_unit] === "" ? "" : ` [${units[told.metric_unit] ?? told.metric_unit}]`}`,
            rangemode: told.metric_unit === "K" ? "normal" : "tozero",
          },
        },
      ],
      340,
    );
  }
}
