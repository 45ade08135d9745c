// One measured file: predicted against measured, what a row says, its groups.
import { ask, given_up, job } from "../api.js";
import { accent, chart } from "../charts.js";
import { card, choice, failure, fill, folded, h, say } from "../dom.js";
import { digits, percent, show as text } from "../units.js";
import { cellTable } from "./worst.js";

export const PALETTE = [
  "#2f62c4",
  "#c96a1b",
  "#2b8a57",
  "#9a7bc4",
  "#3192a8",
  "#a3623f",
  "#b8487a",
  "#77808f",
  "#8a9a1b",
  "#5b4bd0",
];
const MOST_GROUPS = PALETTE.length;
let running = null;

const metricOf = (group) => group.split("/")[0];

function metricsOf(told) {
  const units = new Set(Object.values(told.units));
  if (!told.points || units.size < 2) return [];
  return [...new Set(told.points.groups.map(metricOf))];
}

// Names short enough to be told apart by colour: their last parts go where there are too many.
function shortened(groups, metric) {
  const parts = groups.map((g) => (metric ? g.split("/").slice(1) : g.split("/")));
  const longest = Math.max(...parts.map((p) => p.length), 1);
  for (let n = longest; n >= 1; n--) {
    const cut = parts.map((p) => p.slice(0, n).join("/") || "all");
    if (new Set(cut).size <= MOST_GROUPS || n === 1) return cut;
  }
  return groups;
}

function rowsOf(told, metric) {
  const p = told.points;
  if (!p) return [];
  const short = shortened(p.groups, metric);
  const rows = p.row.map((row, i) => ({
    row,
    group: p.groups[p.group[i]],
    short: short[p.group[i]],
    measured: p.measured[i],
    predicted: p.predicted[i],
    error: p.predicted[i] / p.measured[i] - 1,
    headline: p.headline[i],
    unit: told.units[p.groups[p.group[i]]] ?? "",
  }));
  const chosen = rows.filter(
    (r) => r.measured > 0 && r.predicted > 0 && (!metric || metricOf(r.group) === metric),
  );
  const main = chosen.filter((r) => r.headline);
  return main.length ? main : chosen;
}

export function drawFile(part, told, asked, set) {
  const metrics = metricsOf(told);
  const metric = metrics.length ? (metrics.includes(asked) ? asked : metrics[0]) : "";
  const rows = rowsOf(told, metric);
  const f = told.figures;
  const plot = h("div", {}),
    cells = h("div", { class: "panel", id: "row", "aria-live": "polite" });
  const progress = h("div", { class: "row", role: "status" });
  fill(
    part,
    h(
      "div",
      {},
      h("h1", {}, told.file),
      h(
        "p",
        { class: "lead dim" },
        `${told.kind}; error = predicted / measured − 1. `,
        {
          "held out": "Some rows of this file were fitted: only the third that no fit has seen counts here.",
          chosen: "Numbers were chosen with rows of this file in sight: only families left out judge it.",
        }[told.seen] ?? "No number was fitted or chosen by this file.",
      ),
    ),
    told.left_out.rows.length > 0 &&
      h("div", { class: "panel" }, h("h2", {}, "With families left out"), cellTable(told.left_out)),
    h(
      "div",
      { class: "cards" },
      card("Mean absolute error", percent(f.mape), "MAPE, every row equal"),
      card("Median", percent(f.median), "of the absolute errors"),
      card("90 % of rows within", percent(f.p90), "P90 of the absolute errors"),
      card("Bias", `${f.bias > 0 ? "+" : ""}${percent(f.bias)}`, "mean of predicted / measured − 1"),
      card(
        "Rows",
        digits(f.points, 6),
        f.failed ? `${f.failed} could not be predicted` : "all of them predicted",
      ),
    ),
    h(
      "div",
      { class: "panel" },
      h(
        "div",
        { class: "row spread" },
        h("h2", {}, "Predicted against measured"),
        told.now && h("span", { class: "mark given" }, "predicted just now"),
        metrics.length > 1 && choice("Metric", metric, metrics, (v) => set({ metric: v })),
        again(told, part, progress, asked, set),
      ),
      progress,
      rows.length
        ? plot
        : h("p", { class: "dim" }, "Its rows are not kept with the project: predict them anew to see them."),
      rows.length > 0 &&
        h("p", { class: "dim" }, "Bands are ±10 and ±25 %. Rest on a dot to see what was measured."),
    ),
    rows.length > 0 && cells,
    h("div", { class: "two" }, worst(told, rows, cells), groups(told)),
  );
  if (!rows.length) return;
  scatter(plot, rows, told, cells);
  describe(
    told,
    rows.toSorted((a, b) => Math.abs(b.error) - Math.abs(a.error))[0],
    cells,
    "the farthest row",
  );
}

function scatter(node, rows, told, cells) {
  const every = rows.flatMap((r) => [r.measured, r.predicted]);
  const low = Math.min(...every) / 1.3,
    high = Math.max(...every) * 1.3;
  const names = [...new Set(rows.map((r) => r.short))];
  const unit = rows[0].unit;
  const band = (share, alpha) => ({
    x: [low, high, high, low],
    y: [low * (1 + share), high * (1 + share), high * (1 - share), low * (1 - share)],
    fill: "toself",
    mode: "lines",
    line: { width: 0 },
    fillcolor: `rgba(128,140,160,${alpha})`,
    hoverinfo: "skip",
    showlegend: false,
  });
  const axis = (title) => ({
    type: "log",
    title: `${title}${unit ? ` [${unit}]` : ""}`,
    range: [Math.log10(low), Math.log10(high)],
    exponentformat: "SI",
  });
  const kind = rows.length > 1500 ? "scattergl" : "scatter";
  const done = chart(
    node,
    () => [
      [
        band(0.25, 0.1),
        band(0.1, 0.16),
        {
          x: [low, high],
          y: [low, high],
          mode: "lines",
          line: { color: accent(), width: 1 },
          hoverinfo: "skip",
          showlegend: false,
        },
        ...names.map((name, i) => {
          const mine = rows.filter((r) => r.short === name);
          return {
            type: kind,
            mode: "markers",
            name: `${name} (${mine.length})`,
            x: mine.map((r) => r.measured),
            y: mine.map((r) => r.predicted),
            customdata: mine,
            marker: { size: rows.length > 800 ? 5 : 7, opacity: 0.75, color: PALETTE[i % PALETTE.length] },
            hovertemplate: mine.map(
              (r) =>
                `${r.group}<br>line ${r.row}<br>measured ${text(r.measured, r.unit)}<br>` +
                `predicted ${text(r.predicted, r.unit)}<br>error ${signed(r.error)}<extra></extra>`,
            ),
          };
        }),
      ],
      {
        xaxis: axis("measured"),
        yaxis: axis("predicted"),
        hovermode: "closest",
        margin: { l: 8, r: 12, t: 30, b: 8 },
      },
    ],
    520,
  );
  let wait = 0;
  done.then(() =>
    node.on("plotly_hover", (event) => {
      const row = event.points[0]?.customdata;
      clearTimeout(wait);
      if (row?.row) wait = setTimeout(() => describe(told, row, cells, "the row under the pointer"), 120);
    }),
  );
}

const signed = (x) => `${x >= 0 ? "+" : "−"}${percent(Math.abs(x))}`;

// What one measured row says, cell by cell.
async function describe(told, row, part, why) {
  const head = [
    h("h2", {}, `Line ${row.row}: ${signed(row.error)}`),
    h(
      "p",
      {},
      `${row.group}; measured ${text(row.measured, row.unit)}, predicted ${text(row.predicted, row.unit)} (${why})`,
    ),
  ];
  try {
    const { cells, command } = await ask("validation/row", { file: told.file, row: row.row });
    fill(
      part,
      head,
      h(
        "dl",
        { class: "cells" },
        Object.entries(cells).map(([column, value]) => h("div", {}, h("dt", {}, column), h("dd", {}, value))),
      ),
      command && h("code", { class: "command" }, command),
    );
  } catch (error) {
    if (!given_up(error)) fill(part, head, failure(error));
  }
}

function worst(told, rows, cells) {
  const far = rows.toSorted((a, b) => Math.abs(b.error) - Math.abs(a.error)).slice(0, 12);
  const line = (r) => ({
    class: "quiet tiny",
    type: "button",
    "aria-label": `What line ${r.row} says`,
    onclick: () => describe(told, r, cells, "one of the farthest rows"),
  });
  return folded(
    "The farthest rows",
    ["group", "line", "measured", "predicted", "error"],
    far.map((r) => [
      r.group,
      h("button", line(r), String(r.row)),
      text(r.measured, r.unit),
      text(r.predicted, r.unit),
      signed(r.error),
    ]),
  );
}

const groups = (told) =>
  folded(
    `${told.groups.length} groups of rows`,
    ["group", "rows", "MAPE", "median", "P90", "bias"],
    told.groups.map((g) => [
      g.group,
      String(g.points),
      ...[g.mape, g.median, g.p90, g.bias].map((x) => (x === null ? "" : percent(x))),
    ]),
  );

function again(told, part, progress, asked, set) {
  const start = () => {
    running?.stop();
    const line = h("span", { class: "dim" }, "waiting for a free place…");
    fill(
      progress,
      h("progress", { "aria-label": "Rows are being predicted" }),
      line,
      h("button", { class: "quiet", type: "button", onclick: () => running?.stop() }, "Cancel"),
    );
    running = job("validation/run", { file: told.file }, (news) => {
      if (news.state === "running")
        line.textContent = `predicting ${told.file} for ${news.seconds.toFixed(0)} s`;
    });
    running.done
      .then((done) => {
        if (!progress.isConnected) return;
        if (done.state === "cancelled") fill(progress, h("span", { class: "dim" }, "cancelled"));
        else {
          drawFile(part, done.answer, asked, set);
          say(`${told.file} was predicted anew in ${done.seconds.toFixed(1)} s`);
        }
      })
      .catch((error) => progress.isConnected && fill(progress, failure(error)));
  };
  return h(
    "button",
    {
      class: "quiet",
      type: "button",
      onclick: start,
      hover: "Every row again, with the model as it is now; large files take minutes.",
    },
    "Predict it anew",
  );
}
