// Validation: predicted against measured, row by row.
import { ask, given_up } from "../api.js";
import { chart } from "../charts.js";
import { choice, failure, fill, h, table } from "../dom.js";
import { address, go, here } from "../state.js";
import { percent } from "../units.js";
import { PALETTE, drawFile } from "../validation/file.js";

const KINDS = ["kernels", "network", "serving", "training", "hardware"];
let listed = null;

export async function show(main) {
  const { state } = here();
  listed ??= (await ask("validation")).files;
  const kind = KINDS.includes(state.kind) ? state.kind : "all";
  const file = listed.some((f) => f.file === state.file) ? state.file : "h200/gemm.csv";
  if (!main.querySelector("#file"))
    fill(
      main,
      h(
        "div",
        { class: "split" },
        h("div", { class: "side" }),
        h("div", { class: "stackv" }, h("div", { class: "stackv", id: "file" }), h("div", { id: "files" })),
      ),
    );
  const set = (change) => {
    go("validation", { kind, file, metric: state.metric, ...change });
    show(main);
  };
  side(main.querySelector(".side"), kind, file, set);
  overview(main.querySelector("#files"), kind, file, set);
  const part = main.querySelector("#file");
  part.classList.add("busy");
  try {
    drawFile(part, await ask("validation/points", { file }), state.metric, set);
  } catch (error) {
    if (!given_up(error)) fill(part, failure(error));
  }
  part.classList.remove("busy");
}

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
                ["", f.held_out ? "only rows that no fit has seen" : ""],
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
        `${files.length} files, ${rows.toLocaleString("en")} rows. The dot is a file's median absolute error, the line reaches to its P90. Filled: only rows that no fit has seen; open: nothing was fitted to the file.`,
      ),
      plot,
      h(
        "details",
        {},
        h("summary", {}, "As a table"),
        h(
          "div",
          { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
          table(
            ["file", "kind", "rows", "MAPE", "median", "P90", "within 15 %", "within 30 %", ""],
            files.map((f) => [
              h("a", { href: address("validation", { kind, file: f.file }) }, f.file),
              f.kind,
              f.points.toLocaleString("en"),
              ...["mape", "median", "p90", "within_15", "within_30"].map((k) => percent(f[k])),
              f.held_out ? "held out" : "",
            ]),
            [0, 1, 8],
          ),
        ),
      ),
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
            symbol: mine.map((f) => (f.held_out ? "circle" : "circle-open")),
            color: PALETTE[KINDS.indexOf(k)],
          },
          hovertemplate: mine.map(
            (f) =>
              `${f.file}<br>${f.points} rows${f.held_out ? ", held out" : ", nothing fitted"}<br>median ${percent(f.median)}` +
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
