// page 10, Validation: Predicted against measured, row by row.
// Validation: predicted against measured, row by row.
import { ask, given_up } from "../api.js";
import { chart } from "../charts.js";
import { choice, failure, fill, h } from "../dom.js";
import { address, go, here } from "../state.js";
import { percent } from "../units.js";
import { PALETTE, drawFile } from "../validation/file.js";
import { cellTable, worstPanel } from "../validation/worst.js";

const KINDS = ["serving", "training", "steps", "kernels", "network", "hardware"];
const SEEN = { "held out": "only rows that no fit has seen", chosen: "numbers were chosen with its rows in sight" };
let listed = null,
  headline = null;

export async function show(main) {
  const { state } = here();
  if (!listed) ({ files: listed, headline } = await ask("validation"));
  const kind = KINDS.includes(state.kind) ? state.kind : "all";
  const file = listed.some((f) => f.file === state.file) ? state.file : "h200/gemm.csv";
  if (!main.querySelector("#file"))
    fill(
      main,
      h(
        "div",
        { class: "split" },
        h("div", { class: "side" }),
        h(
          "div",
          { class: "stackv" },
          h("div", { class: "panel", id: "headline" }),
          h("div", { class: "stackv", id: "file" }),
          h("div", { id: "files" }),
          h("div", { id: "worst" }),
        ),
      ),
    );
  const set = (change) => {
    go("validation", { kind, file, metric: state.metric, ...change });
    show(main);
  };
  side(main.querySelector(".side"), kind, file, set);
  fill(main.querySelector("#headline"), summary());
  overview(main.querySelector("#files"), kind, file, set);
  worstPanel(main.querySelector("#worst"), kind);
  const part = main.querySelector("#file");
  part.classList.add("busy");
  try {
    drawFile(part, await ask("validation/points", { file }), state.metric, set);
  } catch (error) {
    if (!given_up(error)) fill(part, failure(error));
  }
  part.classList.remove("busy");
}

// How wrong predictions are on something new, before how wrong they are on files that were seen.
const summary = () => [
  h("h2", {}, "On something new"),
  h(
    "p",
    { class: "dim" },
    "Each family (a chip, a model, an engine, a network) left out in turn, with every fitted number refitted to the others. As shipped: the same rows by the numbers that saw them. Held out: rows that no fit has seen, of families that it has.",
  ),
  cellTable(headline),
];

const kept = (kind) => listed.filter((f) => kind === "all" || f.kind === kind);

function side(part, kind, file, set) {
  fill(
    part,
    choice(
      "Measurements of",
      kind,
      [["all", `everything (${listed.length} files)`], ...KINDS.map((k) => [k, k])],
      (v) => {
        const first = listed.find((f) => v === "all" || f.kind === v);
        const own = listed.find((f) => f.file === file);
        set({ kind: v, file: v === "all" || own?.kind === v ? file : first.file, metric: undefined });
      },
    ),
    h(
      "nav",
      { class: "files", "aria-label": "Measured files" },
      kept(kind).map((f) =>
        h(
          "a",
          {
            class: "entry",
            href: address("validation", { kind, file: f.file }),
            "aria-current": f.file === file ? "page" : null,
          },
          h("span", {}, f.file),
          h(
            "span",
            {
              class: "count",
              hover: [
                ["MAPE", percent(f.mape)],
                ["median", percent(f.median)],
                ["rows", String(f.points)],
                ["", SEEN[f.seen] ?? "nobody looked"],
              ],
            },
            percent(f.mape),
          ),
        ),
      ),
    ),
  );
}

function overview(part, kind, file, set) {
  const files = kept(kind).toSorted((a, b) => a.median - b.median);
  const rows = files.reduce((sum, f) => sum + f.points, 0);
  const plot = h("div", {});
  fill(
    part,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, kind === "all" ? "All files" : `All files of ${kind}`),
      h(
        "p",
        { class: "dim" },
        `${files.length} files, ${rows.toLocaleString("en")} rows. The dot is a file's median absolute error, the line reaches to its P90. Filled: some number was fitted or chosen by the file, of fitted ones only rows that no fit has seen count; open: nobody looked.`,
      ),
      plot,
    ),
  );
  const places = files.map((f) => f.file);
  const done = chart(
    plot,
    () => [
      KINDS.filter((k) => kind === "all" || k === kind).map((k, i) => {
        const mine = files.filter((f) => f.kind === k);
        return {
          type: "scatter",
          mode: "markers",
          name: k,
          y: mine.map((f) => f.file),
          x: mine.map((f) => 100 * Math.max(f.median, 2e-4)),
          error_x: {
            type: "data",
            symmetric: false,
            array: mine.map((f) => 100 * Math.max(f.p90 - f.median, 0)),
            arrayminus: mine.map(() => 0),
            thickness: 1.5,
            width: 0,
            color: PALETTE[KINDS.indexOf(k)],
          },
          marker: {
            size: mine.map((f) => (f.file === file ? 13 : 8)),
            symbol: mine.map((f) => (f.seen ? "circle" : "circle-open")),
            color: PALETTE[KINDS.indexOf(k)],
          },
          hovertemplate: mine.map(
            (f) =>
              `${f.file}<br>${f.points} rows${f.seen ? `, ${f.seen}` : ", nobody looked"}<br>median ${percent(f.median)}` +
              `<br>MAPE ${percent(f.mape)}<br>P90 ${percent(f.p90)}<extra></extra>`,
          ),
        };
      }),
      {
        xaxis: { title: "absolute error [%]", type: "log" },
        yaxis: {
          categoryorder: "array",
          categoryarray: places,
          tickfont: { size: 11 },
          range: [-0.8, places.length - 0.2],
        },
        hovermode: "closest",
        margin: { l: 8, r: 12, t: 30, b: 8 },
      },
    ],
    90 + 17 * files.length,
  );
  done.then(() => {
    plot.removeAllListeners?.("plotly_click");
    plot.on("plotly_click", (event) => {
      set({ file: event.points[0].y, metric: undefined });
      scrollTo(0, 0);
    });
  });
}
