// A study on the page: where it stands, its frontier and bound, points to filter, compare and open.
import { ask } from "../api.js";
import { accent, chart } from "../charts.js";
import { entry, failure, fill, h } from "../dom.js";
import { address } from "../state.js";
import { STEPS, digits, percent, show as text } from "../units.js";

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const ROWS = 40,
  MOST = 4; // designs side by side

export const unitOf = (page, metric) => page.choices.metrics[metric]?.unit ?? "";
export const said = (page, metric, value) => text(value, unitOf(page, metric));
const label = (page, metric) => page.choices.metrics[metric]?.label ?? metric;

export const counted = (n) => (n < 1e9 ? digits(n, 9) : n.toExponential(2).replace("e+", "e"));

// A prefix for axes and entries: [factor, offset, unit].
function scaled(page, metric, values) {
  const unit = unitOf(page, metric);
  if (unit === "K") return [1, -273.15, "°C"];
  if (unit === "" || unit === "1" || unit === "USD") return [1, 0, unit === "USD" ? "USD" : ""];
  const most = Math.max(...values.filter((v) => v !== null && isFinite(v)).map(Math.abs), 0);
  const [factor, prefix] = STEPS.find(([s]) => most >= s) ?? [1, ""];
  return [factor, 0, `${prefix}${unit}`];
}
// Numbers over several decades stand on a logarithmic axis.
const logged = (values, offset) => {
  const known = values.filter((v) => v !== null && isFinite(v));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return !offset && low > 0 && high > 30 * low
    ? { type: "log", dtick: high > 300 * low ? 1 : "D2", tickformat: ",~g" }
    : {};
};
const named = (page, metric, unit) => `${label(page, metric)}${unit ? `, ${unit}` : ""}`;

// ------------------------------------------------------------------------------------------------ numbers
export function drawCards(node, page, live, found) {
  const at = live?.progress ?? found?.history?.at(-1) ?? {};
  const metric = (found ?? live).goals[0];
  const rows = live ? at.rows : found.rows;
  const frontier = (live ?? found).frontier ?? [];
  const best = frontier[0]?.metrics[metric];
  const several = (found ?? live).goals.length > 1;
  const card = (name, value, under, hover, main) =>
    h(
      "div",
      { class: main ? "card main" : "card", hover },
      h("div", { class: "label" }, name),
      h("div", { class: "value" }, value),
      h("div", { class: "under" }, under ?? ""),
    );
  fill(
    node,
    card(
      `Best ${label(page, metric)}`,
      best === undefined ? "–" : said(page, metric, best),
      "",
      [
        ["metric", metric],
        ["unit", unitOf(page, metric)],
      ],
      true,
    ),
    at.bound !== null &&
      at.bound !== undefined &&
      card("Proven bound", said(page, metric, at.bound), "no point is better", [
        ["formula", "the best that bounds allow in any region not ruled out"],
        ["source", "the exact sampler: branch and bound"],
      ]),
    at.gap !== null &&
      at.gap !== undefined &&
      card("Gap", percent(at.gap, 2), several ? "within which no design passes" : "bound against best", [
        ["formula", "(bound − best) / best"],
      ]),
    several && card("On the frontier", digits(frontier.length), "points that no other beats"),
    card("Points evaluated", digits(rows ?? 0, 6), `of ${counted((live ?? found).size)} in the space`),
    card(
      "Points per second",
      at.rate ? digits(at.rate) : "–",
      at.bounded ? `${digits(at.bounded, 5)} bounds priced` : "",
      [["formula", "points and bounds of this run / its time"]],
    ),
    card(
      "Time",
      text(at.seconds ?? found?.seconds ?? 0, "s"),
      at.open
        ? `${digits(at.open, 5)} regions open`
        : at.left
          ? `${text(at.left, "s")} left`
          : `${digits(at.rounds ?? 0, 5)} rounds`,
    ),
  );
}

// ------------------------------------------------------------------------------------------------ growth
export function drawGrowth(node, page, history, goals) {
  const rows = history.filter((r) => r.best !== null || r.bound !== null);
  const metric = goals[0];
  const [f, o, unit] = scaled(
    page,
    metric,
    rows.flatMap((r) => [r.best, r.bound]),
  );
  const line = (name, key, c, dash) => ({
    mode: "lines",
    name,
    x: rows.map((r) => r.seconds),
    y: rows.map((r) => (r[key] === null ? null : r[key] / f + o)),
    line: { color: c, width: 2, shape: "hv", dash },
  });
  const bounded = rows.some((r) => r.bound !== null);
  chart(
    node,
    () => [
      [
        line("best found", "best", accent()),
        bounded && line("proven bound", "bound", ink("--dim"), "dash"),
      ].filter(Boolean),
      {
        xaxis: { title: "s", rangemode: "tozero" },
        yaxis: { title: named(page, metric, unit) },
        margin: { l: 8, r: 12, t: 26, b: 8 },
      },
    ],
    300,
  );
}

// ------------------------------------------------------------------------------------------------ the cloud
export function drawCloud(node, page, study, live) {
  const [mx, my] = [page.view.x ?? study.trade[1] ?? study.trade[0], page.view.y ?? study.trade[0]];
  const kept = live ? [] : page.kept;
  const points = study.points;
  const pick = (m) => (kept.length ? kept.map((p) => points.metrics[m]?.[p] ?? null) : []);
  const front = study.frontier.filter((p) => p.metrics[mx] !== null && p.metrics[my] !== null);
  const old = live ? live.seen.filter((p) => p.metrics[mx] !== null) : [];
  const others = page.named.filter((n) => n.metrics[mx] !== undefined);
  const every = (m) => [...pick(m), ...front.map((p) => p.metrics[m]), ...old.map((p) => p.metrics[m])];
  const [fx, ox, ux] = scaled(page, mx, every(mx)),
    [fy, oy, uy] = scaled(page, my, every(my));
  const X = (v) => (v === null ? null : v / fx + ox),
    Y = (v) => (v === null ? null : v / fy + oy);
  const hover = `%{x:.4g} ${ux}, %{y:.4g} ${uy}<br>%{text}<extra>%{fullData.name}</extra>`;
  const words = (p) =>
    Object.entries(p.design)
      .map(([k, v]) => `${k} ${v}`)
      .join("<br>");
  const sorted = [...front].sort((a, b) => a.metrics[mx] - b.metrics[mx]);
  return Promise.resolve(
    chart(
      node,
      () => [
        [
          kept.length && {
            mode: "markers",
            name: "evaluated",
            x: pick(mx).map(X),
            y: pick(my).map(Y),
            customdata: kept.map((p) => points.index[p]),
            marker: { color: ink("--faint"), size: 5, opacity: 0.5 },
            text: kept.map((p) =>
              points.traits
                .slice(0, 6)
                .map((t) => `${t.name} ${t.labels[t.of[p]]}`)
                .join("<br>"),
            ),
            hovertemplate: hover,
          },
          old.length && {
            mode: "markers",
            name: "was on it",
            x: old.map((p) => X(p.metrics[mx])),
            y: old.map((p) => Y(p.metrics[my])),
            customdata: old.map((p) => p.index),
            marker: { color: ink("--faint"), size: 6 },
            text: old.map(words),
            hovertemplate: hover,
          },
          {
            mode: study.goals.length > 1 ? "lines+markers" : "markers",
            name: study.goals.length > 1 ? "frontier" : "best",
            x: sorted.map((p) => X(p.metrics[mx])),
            y: sorted.map((p) => Y(p.metrics[my])),
            customdata: sorted.map((p) => p.index),
            line: { color: accent(), width: 1 },
            marker: { color: accent(), size: study.goals.length > 1 ? 8 : 12 },
            text: sorted.map(words),
            hovertemplate: hover,
          },
          others.length && {
            mode: "markers+text",
            name: "named designs",
            x: others.map((n) => X(n.metrics[mx])),
            y: others.map((n) => Y(n.metrics[my])),
            text: others.map((n) => n.system),
            textposition: "top center",
            marker: { symbol: "diamond", size: 11, color: ink("--c-memory") },
            hovertemplate: `%{text}: %{x:.4g} ${ux}, %{y:.4g} ${uy}<extra></extra>`,
            cliponaxis: false,
          },
        ].filter(Boolean),
        {
          xaxis: { title: named(page, mx, ux), ...logged(every(mx), ox) },
          yaxis: { title: named(page, my, uy), ...logged(every(my), oy) },
          margin: { l: 8, r: 16, t: 30, b: 8 },
          hovermode: "closest",
        },
      ],
      420,
    ),
  ).then(() => {
    if (node.dataset.opens || !node.on) return;
    node.dataset.opens = "yes";
    node.on("plotly_click", (e) => {
      const index = e.points[0]?.customdata;
      if (index !== undefined) openPoints(page, [index]);
    });
  });
}

// ------------------------------------------------------------------------------------- points as designs
export async function openPoints(page, indices, systems = []) {
  try {
    const told = await ask("search/designs", {
      study: page.study,
      points: indices.slice(0, MOST),
      like: page.found?.frontier[0]?.index ?? indices[0] ?? "0",
      systems,
      at: Date.now(),
    });
    const designs = [...told.designs, ...told.named.map((n) => n.design)].slice(0, MOST);
    location.hash = address("what-if", { designs, open: 0 });
  } catch (error) {
    fill(page.at.notes, failure(error));
  }
}

export async function addNamed(page, words) {
  const systems = words
    .split(/[\s,]+/)
    .filter(Boolean)
    .slice(0, MOST);
  page.view.named = systems;
  page.keep();
  page.named = [];
  if (!systems.length || !page.found) return page.redraw();
  try {
    const first = page.found.frontier[0];
    const told = await ask("search/designs", {
      study: page.study,
      like: first?.index ?? "0",
      systems,
      at: Date.now(),
    });
    page.named = told.named;
    const out = told.named.filter((n) => n.why);
    fill(
      page.at.notes,
      out.map((n) => h("p", { class: "dim" }, `${n.system}: ${n.why}`)),
    );
  } catch (error) {
    fill(page.at.notes, failure(error));
  }
  page.redraw();
}

// ------------------------------------------------------------------------------------------------ filters
export function keptPoints(page) {
  const { points } = page.found;
  if (!points) return [];
  const kept = [];
  const ranges = Object.entries(page.view.filters);
  const traits = Object.entries(page.view.keep).map(([name, words]) => [
    points.traits.find((t) => t.name === name),
    new Set(words),
  ]);
  for (let p = 0; p < points.index.length; p++) {
    if (!points.in[p]) continue;
    const inside = ranges.every(([m, [low, high]]) => {
      const v = points.metrics[m]?.[p];
      return v !== null && v !== undefined && (low === null || v >= low) && (high === null || v <= high);
    });
    if (inside && traits.every(([t, words]) => !t || !words.size || words.has(t.labels[t.of[p]])))
      kept.push(p);
  }
  return kept.sort((a, b) => points.worth[b] - points.worth[a]);
}

export function drawFilters(node, page) {
  const { found, view } = page;
  const metrics = found.metrics.filter((m) => found.points?.metrics[m]?.some((v) => v !== null)).slice(0, 6);
  fill(
    node,
    metrics.map((m) => {
      const [f, o, unit] = scaled(page, m, found.points.metrics[m]);
      const now = view.filters[m] ?? [null, null];
      const change = (i) => (v) => {
        const pair = [...(view.filters[m] ?? [null, null])];
        pair[i] = v === "" ? null : (Number(v) - o) * f;
        view.filters = { ...view.filters, [m]: pair };
        if (pair[0] === null && pair[1] === null) delete view.filters[m];
        page.keep();
        page.redraw();
      };
      const shown = (v) => (v === null ? "" : Number((v / f + o).toPrecision(6)));
      return h(
        "div",
        { class: "pair" },
        entry(`${named(page, m, unit)}, from`, shown(now[0]), change(0), { type: "number", step: "any" }),
        entry(`${label(page, m)}, to`, shown(now[1]), change(1), { type: "number", step: "any" }),
      );
    }),
  );
}

export { ink, label, MOST, named, ROWS, scaled };
