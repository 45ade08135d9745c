// Panels of the Technology page: headline numbers beside a named chip, the die, its budgets, and a model on it.
import { accent, chart, colour } from "../charts.js";
import { card, swatch } from "../controls.js";
import { bundlesACell, die, hues } from "./die.js";
import { fill, h, table } from "../dom.js";
import { difference, digits, percent, show as text } from "../units.js";

const mm2 = (m2) => `${digits(m2 * 1e6)} mm²`;

export function headline(into, told) {
  const { this: own, that } = told,
    beside = (key) => {
      const unlike = key === "peak" && own.format.slice(-2) !== that?.format.slice(-2); // other widths
      if (!that?.[key] || !own[key] || unlike) return "";
      return Math.abs(own[key] / that[key] - 1) < 5e-4
        ? `as ${that.name}`
        : `${difference(own[key], that[key])} to ${that.name}`;
    };
  const hover = (key, unit, words) => [
    [words, ""],
    [that?.name ?? "", that?.[key] ? text(that[key], unit) : ""],
  ];
  fill(
    into,
    !told.fits && h("p", { class: "error", role: "alert" }, `Cannot be built: ${told.infeasible[0]}`),
    h(
      "div",
      { class: "cards" },
      card(
        `Peak, ${own.format}`,
        text(own.peak, "FLOP/s"),
        beside("peak"),
        hover("peak", "FLOP/s", "matrix units at their clock, as data sheets quote it"),
        true,
      ),
      card(
        "DRAM bandwidth",
        text(told.memory.bandwidth_B_per_s, "B/s"),
        beside("bandwidth"),
        hover("bandwidth", "B/s", `${told.memory.devices} x ${told.memory.device}: pins x rate`),
      ),
      card(
        "DRAM capacity",
        text(own.capacity, "B"),
        beside("capacity"),
        hover("capacity", "B", "devices x capacity"),
      ),
      card(
        "SRAM on the die",
        text(own.sram, "B"),
        beside("sram"),
        hover("sram", "B", told.levels.map((l) => `${l.name} ${text(l.capacity_B, "B")}`).join(", ")),
      ),
      card("Clock", text(told.clock_Hz, "Hz"), `at ${digits(told.voltage_V * 1e3)} mV`, [
        ["binds", told.binds.core],
      ]),
      card("Power", text(own.power, "W"), beside("power"), [
        ...hover("power", "W", "the budget of chip and memory"),
        ["budget", told.sources.power ?? ""],
      ]),
      card("Die", mm2(told.use.area_m2.total), beside("area"), [
        [told.title, ""],
        ["budget", told.sources.die_area ?? ""],
      ]),
      card(
        "Costs to make",
        text(own.cost, "USD"),
        beside("cost"),
        hover("cost", "USD", "dies with yield, memory, package"),
      ),
    ),
  );
}

export function drawn(into, told) {
  const found = hues(told),
    each = bundlesACell(told),
    area = told.use.area_m2;
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, told.title),
      die(told),
      h(
        "div",
        { class: "legend", style: { "margin-top": "8px" } },
        swatch(found.core, "units"),
        told.levels.map((l) => swatch(found[l.name], `${l.name} ${text(l.capacity_B, "B")}`)),
        swatch(found.memory, told.device_mount === "beside" ? "memory: PHYs, and devices beside" : "memory"),
        told.networks.map((n) => swatch(found[n.name], `${n.name}: ${n.lanes} x ${n.link}`)),
        swatch("var(--line)", "left over"),
      ),
      h(
        "p",
        { class: "dim", style: { "font-size": "0.85rem" } },
        `Areas are to scale (${mm2(area.total)} in all); where blocks stand is the drawing's own. `,
        each > 1
          ? `A cell stands for ${each.toLocaleString("en")} bundles.`
          : `${told.bundles.toLocaleString("en")} bundles of ${digits(told.compute_units / told.bundles)} units.`,
      ),
    ),
  );
}

const BUDGETS = [
  ["area_m2", "Die area", "m2"],
  ["power_W", "Power in a large product", "W"],
  ["streaming_W", "Power, memory and networks at full rate", "W"],
  ["edge_m", "Die edge", "m"],
];
export function budgets(into, told) {
  const found = { ...hues(told), rest: "var(--faint)", regulators: "var(--c-overhead)" },
    say = (v, unit) => (unit === "m2" ? mm2(v) : unit === "m" ? `${digits(v * 1e3)} mm` : text(v, unit));
  const bars = BUDGETS.filter(([key]) => told.use[key]).map(([key, name, unit]) => {
    const parts = told.use[key],
      spent = Object.entries(parts).filter(([k, v]) => k !== "total" && v > 0),
      sum = spent.reduce((a, [, v]) => a + v, 0),
      full = Math.max(parts.total, sum),
      tight = sum / parts.total > 0.985;
    return h(
      "div",
      { style: { "margin-bottom": "12px" } },
      h(
        "div",
        { class: "row", style: { "justify-content": "space-between", "font-size": "0.9rem" } },
        h("span", {}, h("strong", {}, name), tight ? h("span", { class: "warn" }, " spent to the end") : ""),
        h(
          "span",
          { class: "dim" },
          `${say(sum, unit)} of ${say(parts.total, unit)}, ${percent(sum / parts.total, 0)}`,
        ),
      ),
      h(
        "div",
        { class: "barline" },
        spent.map(([k, v]) =>
          h("span", {
            role: "img",
            "aria-label": `${k} ${percent(v / parts.total)}`,
            style: { width: `${(100 * v) / full}%`, background: found[k] ?? "var(--faint)" },
            hover: [
              [
                k === "rest" ? "leakage of the die around" : k,
                `${say(v, unit)}, ${percent(v / parts.total)}`,
              ],
              ["binds", told.binds[k] ?? ""],
            ],
          }),
        ),
      ),
    );
  });
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, "What binds"),
      ...bars,
      h(
        "ul",
        { style: { margin: "4px 0 0", "padding-left": "18px" } },
        Object.entries(told.binds).map(([k, v]) => h("li", {}, h("strong", {}, k), `: ${v}`)),
      ),
    ),
  );
}

const WORDS = {
  die_area: "die area",
  node_area: "package area",
  power: "power",
  perimeter: "die edge",
  height: "height",
};
export function worth(into, told) {
  const rows = Object.entries(told.worth_of_one_percent),
    keys = Object.keys(rows[0][1]).filter((k) => rows.some(([, gain]) => Math.abs(gain[k]) > 5e-5)),
    plot = h("div", {});
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, "What one more percent of a budget buys"),
      keys.length ? plot : h("p", {}, "Nothing: no budget by itself binds anything by a little more."),
      keys.length > 0 &&
        h(
          "details",
          {},
          h("summary", {}, "As a table"),
          h(
            "div",
            { class: "wide", tabindex: "0", role: "group", "aria-label": "What 1 % more buys" },
            table(
              ["1 % more", ...keys],
              rows.map(([name, gain]) => [
                WORDS[name] ?? name,
                ...keys.map((k) => (Math.abs(gain[k]) > 5e-5 ? `${(100 * gain[k]).toFixed(2)} %` : "–")),
              ]),
            ),
          ),
        ),
    ),
  );
  if (!keys.length) return;
  const hue = [
    accent,
    () => colour("memory"),
    () => colour("network"),
    () => colour("bubble"),
    () => colour("host"),
  ];
  chart(
    plot,
    () => [
      rows.map(([name, gain], i) => ({
        type: "bar",
        name: WORDS[name] ?? name,
        x: keys,
        y: keys.map((k) => 100 * gain[k]),
        marker: { color: hue[i % hue.length]() },
        hovertemplate: "%{x}: %{y:+.2f} %<extra>1 % more %{fullData.name}</extra>",
      })),
      { barmode: "group", yaxis: { title: "%", fixedrange: true }, xaxis: { fixedrange: true } },
    ],
    280,
  );
}

export function predicted(into, told, asked) {
  if (told.why) return fill(into, h("p", { class: "error" }, told.why));
  const { this: own, that } = told,
    rows = [
      ["tokens_per_s", "tokens/s", "1"],
      ["tpot", "time per output token", "s"],
      ["ttft", "time to first token", "s"],
      ["energy", "energy a token", "J"],
      ["power", "power of a chip", "W"],
    ].filter(([key]) => own[key]);
  fill(
    into,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, `${asked.model} ${asked.phase} on ${asked.count} of them`),
      own.fits
        ? h(
            "div",
            { class: "cards" },
            rows.map(([key, name, unit]) =>
              card(
                name,
                unit === "1" ? digits(own[key], 4) : text(own[key], unit),
                that.fits && that[key] ? `${difference(own[key], that[key])} to ${that.name}` : "",
                [
                  ["plan", own.plan],
                  ["bound by", own.binds],
                  [that.name, that.fits ? text(that[key], unit) : "does not fit"],
                ],
              ),
            ),
          )
        : h("p", { class: "bad" }, `Does not fit: ${own.why}`),
      h(
        "p",
        { class: "dim", style: { "font-size": "0.85rem" } },
        `Best plan ${own.plan ?? "–"}, bound by ${own.binds ?? "–"}; both joined by ${told.fabric}, as systems of ${that.name} are.`,
      ),
    ),
  );
}
