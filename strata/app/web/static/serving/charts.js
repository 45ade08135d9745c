// Charts of a service: latency over load, distributions, cost against latency, throughput against interactivity.
import { accent, chart, colour } from "../charts.js";
import { digits, show as text } from "../units.js";

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const TICKS = (ratio) => ({ dtick: ratio > 300 ? 1 : "D2", tickformat: ",~g" });
const dashed = (at, where, c) => ({
  type: "line",
  [`${where}0`]: at,
  [`${where}1`]: at,
  [where === "x" ? "y0" : "x0"]: 0,
  [where === "x" ? "y1" : "x1"]: 1,
  [where === "x" ? "yref" : "xref"]: "paper",
  line: { color: c, width: 1, dash: "dot" },
});
const noted = (at, where, words, c) => ({
  text: words,
  showarrow: false,
  font: { size: 11, color: c },
  ...(where === "y"
    ? { x: 0, xref: "paper", xanchor: "left", y: at, yanchor: "bottom" }
    : { x: at, xanchor: "right", y: 0, yref: "paper", yanchor: "bottom" }),
});

export function drawCurves(at, page) {
  const { told, points, service, largest } = page;
  const closed = service.load === "closed";
  const over = (row) => (closed ? row.clients : row.rate);
  const mark = closed ? service.clients : service.rate;
  for (const [name, title] of [
    ["ttft", "TTFT"],
    ["tpot", "TPOT"],
  ]) {
    const lines = told.curve;
    const highest = Math.max(
      ...points.map((p) => p[`${name}_p99`] ?? 0),
      ...lines.map((r) => r[name]),
      service[name] ?? 0,
    );
    const lowest = Math.min(...lines.map((r) => r[name]), ...points.map((p) => p[`${name}_p50`] ?? Infinity));
    const log = highest > 20 * lowest;
    const unit = log || highest < 1 ? 1e3 : 1;
    chart(
      at[name],
      () => {
        const base = { mode: "lines", x: lines.map(over) };
        const dot = (p, c) => ({
          mode: "lines+markers",
          name: `${p}, simulated`,
          x: points.map((q) => q.rate),
          y: points.map((q) => q[`${name}_${p}`] * unit),
          line: { color: c, width: 1 },
          marker: {
            size: 7,
            color: points.map((q) => (q.saturated ? "rgba(0,0,0,0)" : c)),
            line: { color: c, width: 1.5 },
          },
          text: points.map(
            (q) => `${digits(100 * q.kept)} % within limits${q.saturated ? ", saturated" : ""}`,
          ),
          hovertemplate: `%{x:.3g}: %{y:.4g} ${unit === 1 ? "s" : "ms"}<br>%{text}<extra>${p}</extra>`,
        });
        const traces = [
          {
            ...base,
            name: "mean, closed form",
            y: lines.map((r) => r[name] * unit),
            line: { color: ink("--dim"), width: 2 },
          },
          name === "ttft" && {
            ...base,
            name: "p95, closed form",
            y: lines.map((r) => r.ttft_p95 * unit),
            line: { color: ink("--dim"), width: 1.5, dash: "dash" },
          },
          ...(points.length
            ? [dot("p50", colour("compute")), dot("p95", colour("memory")), dot("p99", colour("throttling"))]
            : []),
        ].filter(Boolean);
        const limit = service[name];
        const at_y = log ? Math.log10(limit * unit) : limit * unit;
        return [
          traces,
          {
            title: { text: title, font: { size: 14 }, x: 0, xanchor: "left", y: 0.99, yanchor: "top" },
            margin: { l: 8, r: 12, t: 76, b: 8 },
            xaxis: {
              title: closed
                ? "clients"
                : service.load === "sessions" || service.load === "agents"
                  ? "sessions/s"
                  : "requests/s",
              rangemode: "tozero",
            },
            yaxis: {
              title: unit === 1 ? "s" : "ms",
              type: log ? "log" : "linear",
              rangemode: log ? "normal" : "tozero",
              ...(log ? TICKS(highest / lowest) : {}),
            },
            legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0, font: { size: 11 } },
            shapes: [
              limit !== null && dashed(limit * unit, "y", ink("--bad")),
              dashed(mark, "x", accent()),
              largest?.rate > 0 && dashed(largest.rate, "x", ink("--good")),
            ].filter(Boolean),
            annotations: [
              limit !== null && noted(at_y, "y", `limit ${text(limit, "s")}`, ink("--bad")),
              noted(mark, "x", "asked", accent()),
              largest?.rate > 0 &&
                Math.abs(largest.rate - mark) > 0.12 * largest.rate &&
                noted(largest.rate, "x", "within SLO", ink("--good")),
            ].filter(Boolean),
          },
        ];
      },
      380,
    );
  }
}

export function drawDistributions(at, run, service) {
  if (!run) return;
  const panel = (node, title, limit, lines) => {
    const every = lines.flatMap(([d]) => d.within);
    const low = Math.min(...every.filter((v) => v > 0)),
      high = Math.max(...every);
    const log = high > 8 * low;
    const unit = high < 2 ? 1e3 : 1;
    chart(
      node,
      () => [
        lines.map(([d, name, c]) => ({
          mode: "lines",
          name,
          x: d.within.map((v) => v * unit),
          y: d.share.map((v) => v * 100),
          line: { color: colour(c), width: 2, shape: "hv" },
          hovertemplate: `%{y:.1f} % within %{x:.4g} ${unit === 1 ? "s" : "ms"}<extra>${name}</extra>`,
        })),
        {
          title: { text: title, font: { size: 14 }, x: 0, xanchor: "left", y: 0.99, yanchor: "top" },
          margin: { l: 8, r: 12, t: 56, b: 8 },
          xaxis: {
            title: unit === 1 ? "s" : "ms",
            type: log ? "log" : "linear",
            ...(log ? TICKS(high / low) : {}),
          },
          yaxis: { title: "% of requests", range: [0, 102] },
          shapes: limit !== null ? [dashed(limit * unit, "x", ink("--bad"))] : [],
          annotations:
            limit !== null
              ? [
                  {
                    ...noted(log ? Math.log10(limit * unit) : limit * unit, "x", "limit ", ink("--bad")),
                    y: 0.06,
                  },
                ]
              : [],
        },
      ],
      300,
    );
  };
  const d = run.distributions;
  panel(at.ttftWithin, "First token", service.ttft, [
    [d.ttft, "TTFT", "compute"],
    [d.queued, "of it, waiting", "overhead"],
  ]);
  panel(at.tpotWithin, "Later tokens", service.tpot, [
    [d.tpot, "TPOT of a request", "memory"],
    [d.inter_token, "between any two tokens", "network"],
  ]);
}

export function drawFrontier(node, points) {
  chart(
    node,
    () => {
      const plans = [...new Set(points.map((p) => p.plan))];
      return [
        [
          {
            mode: "lines",
            x: points.map((p) => p.per_user),
            y: points.map((p) => p.per_device),
            line: { color: ink("--dim"), width: 1 },
            hoverinfo: "skip",
            showlegend: false,
          },
          ...plans.map((plan) => {
            const own = points.filter((p) => p.plan === plan);
            return {
              mode: "markers",
              name: plan,
              x: own.map((p) => p.per_user),
              y: own.map((p) => p.per_device),
              marker: { size: 8 },
              text: own.map(
                (p) => `${digits(p.clients)} at once, TTFT ${text(p.ttft, "s")}, TPOT ${text(p.tpot, "s")}`,
              ),
              hovertemplate:
                "%{x:.4g} tokens/s a user, %{y:.4g} a device<br>%{text}<extra>%{fullData.name}</extra>",
            };
          }),
        ],
        {
          xaxis: { title: "tokens/s a user sees", rangemode: "tozero" },
          yaxis: { title: "tokens/s of a device", rangemode: "tozero" },
          margin: { l: 8, r: 12, t: 30, b: 8 },
        },
      ];
    },
    340,
  );
}

export function drawCost(node, found) {
  chart(
    node,
    () => {
      const fleets = [...new Set(found.points.map((p) => p.fleet))];
      const traces = fleets.map((fleet) => {
        const own = found.points.filter((p) => p.fleet === fleet && p.cost !== null);
        return {
          mode: "lines+markers",
          name: fleet,
          x: own.map((p) => p.seen * 1e3),
          y: own.map((p) => p.cost),
          line: { width: 1 },
          marker: { size: 7, symbol: own.map((p) => (p.saturated ? "circle-open" : "circle")) },
          text: own.map((p) => `${digits(p.rate)} requests/s`),
          hovertemplate: "%{x:.4g} ms, %{y:.3g} USD<br>%{text}<extra>%{fullData.name}</extra>",
        };
      });
      if (found.best.length)
        traces.push({
          mode: "lines",
          name: "frontier",
          x: found.best.map((p) => p.seen * 1e3),
          y: found.best.map((p) => p.cost),
          line: { color: ink("--ink"), width: 2, shape: "hv" },
          hoverinfo: "skip",
        });
      return [
        traces,
        {
          xaxis: {
            title: `${found.latency.toUpperCase()} of ${digits(100 * found.share)} % of requests, ms`,
          },
          yaxis: { title: "USD per million tokens", rangemode: "tozero" },
          legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0, font: { size: 11 } },
        },
      ];
    },
    440,
  );
}
