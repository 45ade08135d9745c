// What tells the points of a study apart: parallel coordinates, heat maps of two axes, what matters.
import { accent, chart } from "../charts.js";
import { fill, h } from "../dom.js";
import { drawParallel } from "./parallel.js";
import { ink, label, said, scaled } from "./study.js";

const LINES = 240; // designs that are drawn

// -------------------------------------------------------------------------------------------- parallel, maps
export function drawThreads(node, page) {
  const { found, view, kept } = page;
  if (!found.points || kept.length < 2)
    return fill(node, h("p", { class: "dim" }, "Too few points to draw."));
  const some = kept.slice(0, LINES);
  const traits = found.points.traits.slice(0, 9);
  const column = (m) => {
    const values = found.points.metrics[m];
    const known = some.map((p) => values[p]).filter((v) => v !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const ticks = low === high ? [low] : [low, (low + high) / 2, high];
    return {
      name: label(page, m),
      values: some.map((p) => values[p]),
      ticks: ticks.map((v) => [v, said(page, m, v)]),
    };
  };
  const columns = [
    ...traits.map((t) => ({
      name: t.name,
      labels: t.labels,
      of: some.map((p) => t.of[p]),
      chosen: view.keep[t.name]?.length ? new Set(view.keep[t.name]) : null,
    })),
    ...found.goals.slice(0, 2).map(column),
  ];
  const order = some.map((_, i) => i).reverse();
  drawParallel(
    node,
    columns,
    order,
    (i) => 1 - i / some.length,
    (name, words) => {
      const now = new Set(view.keep[name] ?? []);
      now.has(words) ? now.delete(words) : now.add(words);
      view.keep = { ...view.keep, [name]: [...now] };
      if (!now.size) delete view.keep[name];
      page.keep();
      page.redraw();
    },
  );
}

export function drawMap(node, page, map) {
  const metric = page.found.goals[0];
  const [f, o, unit] = scaled(page, metric, map.best.flat());
  chart(
    node,
    () => [
      [
        {
          type: "heatmap",
          x: map.x_labels,
          y: map.y_labels,
          z: map.best.map((row) => row.map((v) => (v === null ? null : v / f + o))),
          colorscale: [
            [0, ink("--accent-soft")],
            [1, ink("--accent")],
          ],
          colorbar: { title: { text: unit, side: "right" }, thickness: 12, outlinewidth: 0 },
          xgap: 2,
          ygap: 2,
          hovertemplate: `${map.x} %{x}, ${map.y} %{y}<br>best %{z:.4g} ${unit}<extra></extra>`,
        },
      ],
      { xaxis: { title: map.x, type: "category" }, yaxis: { title: map.y, type: "category" } },
    ],
    Math.min(560, 150 + 26 * map.y_labels.length),
  );
}

export function drawMatters(node, page) {
  const rows = page.found.matters.filter((m) => m.share > 0.001).slice(0, 12);
  if (!rows.length) return fill(node, h("p", { class: "dim" }, "Too few points to tell."));
  chart(
    node,
    () => [
      [
        {
          type: "bar",
          orientation: "h",
          x: rows.map((r) => r.share * 100),
          y: rows.map((r) => r.name),
          marker: { color: accent() },
          hovertemplate: "%{y}: %{x:.1f} % of the variance<extra></extra>",
        },
      ],
      { yaxis: { autorange: "reversed" }, xaxis: { title: "% of the variance", rangemode: "tozero" } },
    ],
    70 + 26 * rows.length,
  );
}
