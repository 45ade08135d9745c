// A minute of a service: batches over time as bands, every request as a bar in a lane.
import { fill, folded, h, s, setHover } from "../dom.js";
import { digits, percent, show as text } from "../units.js";

const PHASES = [
  ["waiting", "overhead"],
  ["prefill", "memory"],
  ["decode", "compute"],
  ["decode of a preempted request", "throttling"],
];
const BANDS = [
  [2, "decoding", "compute", (v) => `${digits(v)} sequences`],
  [3, "prefill", "memory", (v) => `${digits(v)} tokens a step`],
  [4, "waiting", "overhead", (v) => `${digits(v)} requests`],
  [5, "KV cache", "network", (v) => percent(v)],
];
const LEFT = 138,
  BAND = 40,
  AXIS = 22;
const windows = new WeakMap();

export function drawMinute(node, run, state) {
  if (!run) return fill(node, h("p", { class: "dim" }, state || "Nothing was simulated."));
  const minute = run.minute;
  if (windows.get(node)?.minute === minute) return;
  if (!minute.requests.length)
    return fill(node, h("p", { class: "dim" }, "No request was served in this minute."));
  const span = minute.end - minute.begin;
  const view = { minute, from: minute.begin, long: span };
  windows.set(node, view);
  const plot = h("div", {});
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 1000,
    value: 0,
    disabled: true,
    oninput: (e) => {
      view.from = minute.begin + (Number(e.target.value) / 1000) * (span - view.long);
      draw();
    },
  });
  const draw = () => picture(plot, minute, view.from, view.from + view.long);
  const zoom = h(
    "select",
    {
      onchange: (e) => {
        view.long = Math.min(span, Number(e.target.value) || span);
        view.from = Math.min(view.from, minute.end - view.long);
        slider.disabled = view.long >= span;
        draw();
      },
    },
    [
      ["all of it", 0],
      ["20 s", 20],
      ["5 s", 5],
      ["1 s", 1],
    ].map(([name, value]) => h("option", { value: String(value) }, name)),
  );
  fill(
    node,
    h(
      "div",
      { class: "legend" },
      PHASES.map(([name, c]) =>
        h("span", {}, h("span", { class: "swatch", style: { background: `var(--c-${c})` } }), name),
      ),
      h(
        "span",
        {},
        `${digits(minute.requests.length)} of ${digits(minute.of)} requests, from ${text(minute.begin, "s")} on`,
      ),
    ),
    plot,
    h(
      "div",
      { class: "row" },
      h("label", { style: { width: "130px" } }, "Show", zoom),
      h("label", { style: { flex: "1 1 200px" } }, "from", slider),
    ),
    details(minute),
  );
  draw();
  new ResizeObserver(
    () =>
      plot.isConnected &&
      plot.clientWidth &&
      plot.clientWidth !== view.width &&
      ((view.width = plot.clientWidth), draw()),
  ).observe(plot);
}

function picture(plot, minute, from, until) {
  const wide = Math.max(plot.clientWidth || 900, 300);
  const left = wide < 560 ? 78 : LEFT;
  const scale = (wide - left - 8) / Math.max(until - from, 1e-9);
  const x = (t) => left + (Math.min(Math.max(t, from), until) - from) * scale;
  const lanes = 1 + Math.max(...minute.requests.map((r) => r[0]));
  const row = Math.min(9, Math.max(0.45, 380 / lanes));
  const top = BANDS.length * BAND + 12;
  const high = top + lanes * row + AXIS;
  const svg = s("svg", {
    class: "drawing",
    viewBox: `0 0 ${wide} ${high}`,
    role: "img",
    "aria-label": `${minute.requests.length} requests in ${lanes} lanes over ${digits(until - from)} s: waiting, prefill, decode`,
  });
  BANDS.forEach(([at, name, c, said], i) =>
    svg.append(...band(minute, at, name, c, said, i * BAND, x, from, until, left, wide)),
  );
  const paths = PHASES.map(() => []);
  const bar = (k, a, b, lane) => {
    if (b <= from || a >= until || b <= a) return;
    const x0 = x(a),
      w = Math.max(x(b) - x0, 0.4);
    paths[k].push(
      `M${x0.toFixed(1)} ${(top + lane * row).toFixed(2)}h${w.toFixed(1)}v${(row * 0.82).toFixed(2)}h${(-w).toFixed(1)}z`,
    );
  };
  for (const [lane, a, scheduled, first, last, , , , preempted] of minute.requests) {
    bar(0, a, scheduled, lane);
    bar(1, scheduled, first, lane);
    bar(preempted ? 3 : 2, first, last, lane);
  }
  paths.forEach(
    (d, k) =>
      d.length && svg.append(s("path", { d: d.join(""), style: { fill: `var(--c-${PHASES[k][1]})` } })),
  );
  svg.append(s("text", { x: 0, y: top + 12 }, "requests"));
  svg.append(...timeAxis(from, until, x, high - AXIS + 4, high));
  const sat = minute.saturated_from;
  if (sat !== null && sat > from && sat < until)
    svg.append(
      s("line", {
        x1: x(sat),
        x2: x(sat),
        y1: 0,
        y2: high - AXIS,
        "stroke-dasharray": "4 3",
        style: { stroke: "var(--bad)" },
      }),
      s("text", { x: x(sat) + 4, y: 10, style: { fill: "var(--bad)" } }, "saturated"),
    );
  const under = s("rect", {
    x: left,
    y: top,
    width: wide - left,
    height: lanes * row,
    style: { fill: "transparent" },
  });
  under.addEventListener("pointermove", (e) => {
    const box = svg.getBoundingClientRect();
    const t = from + ((e.clientX - box.left) * (wide / box.width) - left) / scale;
    const lane = Math.floor(((e.clientY - box.top) * (high / box.height) - top) / row);
    const r = minute.requests.find((q) => q[0] === lane && q[1] <= t && t <= q[4]);
    setHover(under, r ? told(r) : [["", "free"]]);
  });
  svg.append(under);
  fill(plot, svg);
}

const told = ([, a, scheduled, first, last, input, output, cached, preempted]) => [
  ["arrives at", text(a, "s")],
  ["tokens", `${input} in${cached ? `, ${cached} of them cached` : ""}, ${output} out`],
  ["waits", text(scheduled - a, "s")],
  ["TTFT", text(first - a, "s")],
  ["TPOT", output > 1 ? text((last - first) / (output - 1), "s") : ""],
  ["end to end", text(last - a, "s")],
  ["preempted", preempted ? `${preempted} times` : ""],
];

function band(minute, at, name, c, said, y, x, from, until, left, wide) {
  const most = Math.max(...minute.steps.flat().map((r) => r[at]), 0);
  const base = y + BAND - 6,
    tall = BAND - 14;
  const areas = minute.steps.map((steps) => {
    const d = steps
      .filter((r) => r[1] > from && r[0] < until && r[at] > 0)
      .map(
        (r) =>
          `M${x(r[0]).toFixed(1)} ${base}V${(base - (tall * r[at]) / (most || 1)).toFixed(1)}H${Math.max(x(r[1]), x(r[0]) + 0.5).toFixed(1)}V${base}z`,
      )
      .join("");
    return (
      d && s("path", { d, style: { fill: `var(--c-${c})`, opacity: minute.steps.length > 1 ? 0.55 : 0.8 } })
    );
  });
  const label = s("text", { x: 0, y: y + 16 }, name);
  const upto = s(
    "text",
    { x: 0, y: y + 30, style: { fill: "var(--dim)", "font-size": "10.5px" } },
    `≤ ${left < 100 ? said(most).split(" ")[0] : said(most)}`,
  );
  const line = s("line", { x1: left, x2: wide, y1: base, y2: base, style: { stroke: "var(--line)" } });
  return [line, ...areas.filter(Boolean), label, upto];
}

function timeAxis(from, until, x, y, high) {
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20];
  const room = Math.max(3, Math.floor((x(until) - x(from)) / 70));
  const by = steps.find((b) => (until - from) / b <= room) ?? 60;
  const ticks = [];
  for (let t = Math.ceil(from / by) * by; t <= until + 1e-9; t += by) ticks.push(t);
  return ticks.flatMap((t) => [
    s("line", { x1: x(t), x2: x(t), y1: 0, y2: y, style: { stroke: "var(--line)", opacity: 0.6 } }),
    s(
      "text",
      {
        x: x(t),
        y: high - 4,
        "text-anchor": t > until - by / 3 ? "end" : "middle",
        style: { fill: "var(--dim)" },
      },
      `${Number(t.toPrecision(6))} s`,
    ),
  ]);
}

function details(minute) {
  const head = ["arrives", "in", "out", "waits", "TTFT", "TPOT", "end to end", "preempted"];
  const rows = minute.requests
    .slice(0, 60)
    .map(([, a, scheduled, first, last, input, output, , preempted]) => [
      text(a, "s"),
      input,
      output,
      text(scheduled - a, "s"),
      text(first - a, "s"),
      output > 1 ? text((last - first) / (output - 1), "s") : "–",
      text(last - a, "s"),
      preempted,
    ]);
  return folded("The first requests as a table", head, rows, [], {});
}
