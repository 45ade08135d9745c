// One collective: its time, its bus bandwidth over bytes, what links carry, and the collectives of the step.
import { accent, chart, colour } from "../charts.js";
import { fill, h, table } from "../dom.js";
import { digits, percent, show as text } from "../units.js";

export function drawCollective(part, { cost, found, step, set, names }) {
  if (!cost) {
    fill(part, h("p", { class: "dim" }, "One device alone talks with nobody: choose a plan with groups."));
    return;
  }
  const plot = h("div", {});
  const c = cost.cost;
  const ways = c.dimensions
    .filter((d) => d.algorithm)
    .map((d) => `${d.name}: ${d.algorithm} over ${digits(d.ranks)}`);
  fill(
    part,
    steps(step, found, set, names),
    h(
      "div",
      { class: "panel" },
      h(
        "h2",
        {},
        `${found.pattern.replaceAll("_", "-")} of ${names[found.group] ?? found.group}, ${digits(c.ranks)} ranks: bus bandwidth over bytes`,
      ),
      h(
        "p",
        {},
        `${text(found.bytes, "B")} take `,
        h(
          "b",
          { hover: [["bound", `${text(c.lower_s, "s")}: what must cross the links at their peak`]] },
          text(c.time_s, "s"),
        ),
        ` (at least ${text(c.lower_s, "s")}), ${ways.join(", ")}${c.joined ? ", one algorithm over all of them" : ""}; `,
        `${text(c.energy_J, "J")} of one rank's links.`,
      ),
      plot,
    ),
    loads(cost.loads, c),
  );
  curve(plot, cost, found);
}

function steps(step, found, set, names) {
  const rows = step.collectives;
  if (!rows.length)
    return step.why ? h("p", { class: "dim" }, `No collectives of the model's step here: ${step.why}`) : null;
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Collectives of the step: choose one"),
    !step.fits &&
      h(
        "p",
        { class: "warn" },
        `As it stands this step cannot run (${step.broken.join("; ")}); its collectives all the same:`,
      ),
    h(
      "div",
      { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
      table(
        ["collective", "group", "bytes of a rank", "times", "in all", "for"],
        rows.slice(0, 12).map((r) => {
          const mine =
            r.group === found.group &&
            r.pattern === found.pattern &&
            Math.round(r.bytes) === Math.round(found.bytes);
          return [
            h(
              "button",
              {
                class: "quiet tiny",
                type: "button",
                "aria-pressed": String(mine),
                onclick: () => set({ group: r.group, pattern: r.pattern, bytes: r.bytes, schedule: "" }),
              },
              r.pattern.replaceAll("_", "-"),
            ),
            names[r.group] ?? r.group,
            text(r.bytes, "B"),
            digits(r.count, 5),
            r.time === null ? "" : text(r.time, "s"),
            r.ops.join(", "),
          ];
        }),
        [0, 1, 5],
      ),
    ),
  );
}

function curve(node, cost, found) {
  const { bytes, bus, time, lower, ways } = cost.curve;
  const bound = bytes.map((b, i) => (lower[i] > 0 ? (bus[i] * time[i]) / lower[i] : null));
  chart(
    node,
    () => [
      [
        {
          type: "scatter",
          mode: "lines",
          name: "what the links allow",
          x: bytes,
          y: bound.map((b) => b && b / 1e9),
          line: { dash: "dot", color: colour("overhead"), width: 1.5 },
          hovertemplate: bytes.map(
            (b, i) => `${text(b, "B")}: at least ${text(lower[i], "s")}<extra></extra>`,
          ),
        },
        {
          type: "scatter",
          mode: "lines",
          name: "bus bandwidth",
          x: bytes,
          y: bus.map((b) => b / 1e9),
          line: { color: accent(), width: 2.5 },
          hovertemplate: bytes.map(
            (b, i) =>
              `${text(b, "B")}: ${text(time[i], "s")}, ${text(bus[i], "B/s")}<br>${ways[i]}<extra></extra>`,
          ),
        },
        {
          type: "scatter",
          mode: "markers",
          name: "these bytes",
          x: [found.bytes],
          y: [cost.cost.bus_B_per_s / 1e9],
          marker: { size: 11, color: accent() },
          hovertemplate: `${text(found.bytes, "B")}: ${text(cost.cost.time_s, "s")}<extra></extra>`,
        },
      ],
      {
        xaxis: { type: "log", title: "bytes of a rank's buffer", exponentformat: "SI" },
        yaxis: { title: "bus bandwidth [GB/s]", rangemode: "tozero" },
        hovermode: "closest",
        margin: { l: 8, r: 12, t: 30, b: 8 },
      },
    ],
    320,
  );
}

function loads(told, cost) {
  if (!told.levels) return h("p", { class: "dim" }, `Links: ${told.why}.`);
  const top = Math.max(...told.levels.map((l) => l.busy), 1e-30);
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Load of the links, all groups at once"),
    h(
      "p",
      {},
      `Counted for ${told.schedule.replaceAll("_", " ")}, ${told.groups} ${told.groups > 1 ? "groups" : "group"}. Busiest: `,
      h("b", {}, told.says),
      ".",
    ),
    h(
      "div",
      { class: "loads" },
      told.levels
        .filter((l) => l.links)
        .map((l) =>
          h(
            "div",
            {
              class: "load",
              hover: [
                ["busiest link", `${text(l.most, "B")}, ${l.way} at device ${l.device}`],
                ["mean of links in use", text(l.mean, "B")],
                ["busy for", `${text(l.busy, "s")} = bytes / ${text(l.bandwidth, "B/s")}`],
                ["of the collective's time", percent(l.busy / cost.time_s)],
              ],
            },
            h("span", { class: "what" }, `${l.name}: ${digits(l.links, 5)} links`),
            h(
              "span",
              { class: "barline small" },
              h("span", { style: { width: `${(100 * l.busy) / top}%`, background: "var(--c-network)" } }),
            ),
            h("span", { class: "n" }, `${text(l.most, "B")}, ${text(l.busy, "s")}`),
          ),
        ),
    ),
    h(
      "p",
      { class: "dim" },
      "Bytes are those of the named schedule over the shorter way in each dimension. The time above is of the cheapest algorithm, which may send otherwise, as where a switch adds up.",
    ),
  );
}
