// Charts of the Stack page: bounds on the bandwidth, and what the number of layers changes.
import { accent, chart, colour } from "../charts.js";
import { fill, h, table } from "../dom.js";
import { show as text } from "../units.js";

// Every bound on the bandwidth, the least in the accent's colour.
export function boundsChart(into, told) {
  const bounds = [...told.bounds].sort((a, b) => b.value - a.value),
    least = told.bounds.reduce((a, b) => (b.value < a.value ? b : a)),
    plot = h("div", {});
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, `What bounds the bandwidth: ${least.name}`),
      h(
        "p",
        { class: "dim" },
        `${least.words}. Cores that read long runs get ${text(told.sustained, "B/s")} of ${text(told.peak, "B/s")}.`,
      ),
      plot,
      h(
        "details",
        {},
        h("summary", {}, "As a table"),
        table(
          ["bound", "bandwidth", "what it is"],
          bounds.map((b) => [b.name, text(b.value, "B/s"), b.words]),
          [0, 2],
        ),
      ),
    ),
  );
  chart(
    plot,
    () => [
      [
        {
          type: "bar",
          orientation: "h",
          x: bounds.map((b) => b.value / 1e12),
          y: bounds.map((b) => b.name),
          text: bounds.map((b) => text(b.value, "B/s")),
          textposition: "outside",
          cliponaxis: false,
          customdata: bounds.map((b) => b.words),
          hovertemplate: "%{y}: %{text}<br>%{customdata}<extra></extra>",
          marker: { color: bounds.map((b) => (b === least ? accent() : colour("overhead"))) },
        },
      ],
      {
        xaxis: {
          title: "TB/s (log)",
          type: "log",
          range: [-1.2, Math.log10(bounds[0].value / 1e12) + 0.35],
          tickvals: [0.1, 1, 10, 100],
          fixedrange: true,
        },
        yaxis: { fixedrange: true },
      },
    ],
    320,
  );
}

// Time, bandwidth and temperature over the number of layers, the best marked; it grows as answers come.
export function curveChart(into, curve, design, most, limits, onpick) {
  const fits = curve.points.filter((p) => p.fits && p.time),
    best = fits.length ? fits.reduce((a, b) => (b.time < a.time ? b : a)) : null,
    done = curve.points.length === most;
  const out = curve.points.filter((p) => !p.fits).map((p) => p.layers);
  const what = design.phase === "prefill" ? "time to first token" : "time per token";
  let plot = into.querySelector(".chart"),
    said = into.querySelector(".said");
  if (!plot) {
    plot = h("div", { class: "chart" });
    said = h("div", { class: "said", "aria-live": "polite" });
    fill(into, h("div", { class: "panel" }, said, plot));
  }
  fill(
    said,
    h(
      "h2",
      {},
      best
        ? `${done ? "Best" : "Best so far"}: ${best.layers} layer${best.layers > 1 ? "s" : ""} for ${best.title}`
        : "How many layers are best",
    ),
    h(
      "p",
      { class: "dim" },
      best ? `${text(best.time, "s")} ${what} with plan ${best.plan}. ` : "",
      out.length ? `Does not fit with ${out.join(", ")}. ` : "",
      done
        ? design.plan
          ? ""
          : "Each number of layers has its best plan."
        : `${curve.points.length} of ${most} asked …`,
    ),
    best &&
      best.layers !== design.layers &&
      done &&
      h(
        "button",
        { type: "button", class: "quiet", onclick: () => onpick(best.layers) },
        `Show ${best.layers} layers`,
      ),
  );
  const x = fits.map((p) => p.layers),
    lines = (y, name, axis, hue, extra = {}) => ({
      x,
      y,
      name,
      yaxis: axis,
      mode: "lines+markers",
      line: { color: hue, width: 2 },
      marker: {
        size: x.map((n) => (n === best?.layers ? 13 : 6)),
        symbol: x.map((n) => (n === best?.layers ? "star" : "circle")),
        color: hue,
      },
      hovertemplate: `%{x} layers: %{y:.4g}<extra>${name}</extra>`,
      ...extra,
    });
  const limit = (limits?.dram ?? 358.15) - 273.15;
  chart(
    plot,
    () => [
      [
        lines(
          fits.map((p) => p.time * 1e3),
          `${what} (ms)`,
          "y3",
          accent(),
        ),
        lines(
          fits.map((p) => p.sustained / 1e12),
          "sustained (TB/s)",
          "y2",
          colour("memory"),
        ),
        lines(
          fits.map((p) => p.peak / 1e12),
          "peak (TB/s)",
          "y2",
          colour("memory"),
          {
            line: { color: colour("memory"), dash: "dot", width: 1.5 },
            marker: { size: 4, color: colour("memory") },
          },
        ),
        lines(
          fits.map(
            (p) =>
              Math.max(...(p.heat?.dies ?? []).map((d) => (d.name === "logic" ? -1e9 : d.max_K))) - 273.15,
          ),
          "hottest DRAM (°C)",
          "y",
          colour("throttling"),
        ),
      ],
      {
        xaxis: { title: "DRAM layers", anchor: "y", range: [0.5, most + 0.5], dtick: 1, fixedrange: true },
        yaxis: { title: "°C", domain: [0, 0.28], fixedrange: true },
        yaxis2: { title: "TB/s", domain: [0.36, 0.64], rangemode: "tozero", fixedrange: true },
        yaxis3: { title: "ms", domain: [0.72, 1], rangemode: "tozero", fixedrange: true },
        shapes: [
          {
            type: "line",
            xref: "paper",
            x0: 0,
            x1: 1,
            yref: "y",
            y0: limit,
            y1: limit,
            line: { color: colour("throttling"), dash: "dash", width: 1 },
          },
        ],
      },
    ],
    520,
  );
}
