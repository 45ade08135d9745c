// Panels of the Mapping page: fused against kernel by kernel, the graph, and what each partition takes.
import { card } from "../controls.js";
import { fill, h, table } from "../dom.js";
import { graph, ground, onlyPartition, takes } from "./graph.js";
import { difference, digits, percent, show as text } from "../units.js";

export function headline(into, told) {
  const [best, apart] = told.totals,
    faster = apart && !apart.reason ? apart.time / best.time : null;
  const under = (key) =>
    apart && !apart.reason ? `${difference(best[key], apart[key])} to kernel by kernel` : "";
  fill(
    into,
    card(
      "Step, fused",
      text(told.step, "s"),
      faster ? `${digits(faster)} x as fast as kernel by kernel` : "",
      [
        ["one rank, one step", `stage ${text(told.stage, "s")}`],
        [
          "degrees",
          Object.entries(told.mesh)
            .filter(([, n]) => n > 1)
            .map(([d, n]) => `${d}=${n}`)
            .join(",") ||
            told.plan ||
            "one device",
        ],
      ],
      true,
    ),
    card(
      "Kernel by kernel",
      apart ? (apart.reason ? "does not fit" : text(apart.time, "s")) : "–",
      apart ? `${apart.partitions} kernels` : "",
      [["why", apart?.reason ?? ""]],
    ),
    card("DRAM traffic", text(best.traffic, "B"), under("traffic"), [
      ["unfused", apart ? text(apart.traffic, "B") : ""],
    ]),
    card("Partitions", String(best.partitions), apart ? `of ${apart.partitions} kernels` : ""),
    card(
      "Most SRAM",
      text(best.sram, "B"),
      `${percent(best.sram / told.sram_limit, 0)} of ${text(told.sram_limit, "B")}`,
      [["what", "buffers and weights of the largest partition"]],
    ),
    card(
      "Proof",
      told.optimal ? "optimal" : `gap ${percent(told.gap, 2)}`,
      told.given_layouts ? "of partitions, under these layouts" : "of degrees, layouts and partitions",
      [
        ["no mapping is below", text(told.bound, "s")],
        ["how", told.proof],
        ["space", told.space ? `${Number(told.space.mappings).toExponential(2)} mappings` : ""],
      ],
    ),
    card("Memory of a device", text(told.memory, "B")),
  );
}

const PARTS = [
  ["compute", "var(--c-compute)"],
  ["memory", "var(--c-memory)"],
  ["network", "var(--c-network)"],
];
export function drawn(into, told) {
  const picture = graph(told),
    longest = Math.max(...told.partitions.flatMap((p) => PARTS.map(([k]) => p[k])), 1e-30);
  const rows = told.partitions.map((p, i) =>
    h(
      "div",
      {
        hover: takes(p, i),
        tabindex: "0",
        style: { "border-left": `6px solid ${ground(i)}`, padding: "2px 0 6px 10px", "margin-bottom": "8px" },
        onpointerenter: () => onlyPartition(picture, i),
        onpointerleave: () => onlyPartition(picture, null),
        onfocus: () => onlyPartition(picture, i),
        onblur: () => onlyPartition(picture, null),
      },
      h(
        "div",
        { style: { "font-size": "0.88rem" } },
        h("strong", {}, `${i + 1}: ${text(p.time, "s")}`),
        h(
          "span",
          { class: "dim" },
          ` ${p.tiles} tile${p.tiles > 1 ? "s" : ""}, ${text(p.sram, "B")} SRAM, ${text(p.traffic, "B")} DRAM${p.times !== 1 ? `, x ${p.times}` : ""}`,
        ),
      ),
      h("div", { style: { "font-size": "0.82rem" } }, p.kernels.join(" ")),
      PARTS.map(([k, hue]) =>
        h("div", {
          style: {
            height: "7px",
            width: `${Math.max((100 * p[k]) / longest, 0.4)}%`,
            background: hue,
            opacity: k === p.binds ? "1" : "0.45",
            "margin-top": "2px",
            "border-radius": "3px",
          },
        }),
      ),
    ),
  );
  const several = told.graph.length > 1, // blocks side by side need the whole width
    shown = h(
      "div",
      { class: "panel" },
      h("h2", {}, told.title),
      h(
        "p",
        { class: "dim", style: { "font-size": "0.85rem" } },
        "Ops from top to bottom. Ground of one colour is one partition: what flows inside it never leaves the chip; dashed edges go through DRAM or come from outside.",
      ),
      picture,
    ),
    list = h(
      "div",
      { class: "panel" },
      h("h2", {}, "Partitions, one after the other"),
      h(
        "div",
        { class: "legend", style: { "margin-bottom": "8px" } },
        PARTS.map(([k, hue]) => h("span", {}, h("span", { class: "swatch", style: { background: hue } }), k)),
        h("span", {}, "the strong bar binds"),
      ),
      ...rows,
    ),
    rest = h("div", { class: "stackv" }, against(told), proof(told));
  const columns = { "grid-template-columns": "repeat(auto-fit, minmax(min(330px, 100%), 1fr))" };
  const side = (...parts) =>
    h("div", { style: { display: "grid", gap: "16px", "align-items": "start", ...columns } }, parts);
  fill(
    into,
    several
      ? h("div", { class: "stackv" }, shown, side(list, rest))
      : side(shown, h("div", { class: "stackv" }, list, rest)),
  );
}

// Bars of the time of all partitions, fused and one kernel after the other.
function against(told) {
  const shown = told.totals.filter((t) => !t.reason),
    longest = Math.max(...shown.map((t) => t.time));
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Fused against kernel by kernel"),
    shown.map((t, i) =>
      h(
        "div",
        {
          style: { "margin-bottom": "8px" },
          hover: [
            [t.name, `${t.partitions} partitions, ${text(t.time, "s")}`],
            ["compute, memory, network", PARTS.map(([k]) => text(t[k], "s")).join(", ")],
            ["DRAM traffic", text(t.traffic, "B")],
          ],
        },
        h(
          "div",
          { style: { "font-size": "0.88rem" } },
          h("strong", {}, i ? t.name : "fused"),
          h("span", { class: "dim" }, ` ${text(t.time, "s")}, ${text(t.traffic, "B")} through DRAM`),
        ),
        h("div", {
          style: {
            height: "16px",
            "border-radius": "4px",
            width: `${(100 * t.time) / longest}%`,
            background: i ? "var(--faint)" : "var(--accent)",
          },
        }),
      ),
    ),
  );
}

function proof(told) {
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Layouts and proof"),
    told.notes.map((n) => h("p", {}, n)),
    h(
      "p",
      {},
      `No mapping is below ${text(told.bound, "s")}: ${told.proof}. It took ${told.seconds.toFixed(2)} s${told.stopped && !told.optimal ? "; the search ended early" : ""}.`,
    ),
    told.collectives.length > 0 &&
      h(
        "p",
        { class: "dim" },
        `Collectives: ${told.collectives.map((c) => `${c.tensor} ${c.pattern.replaceAll("_", "-")}`).join(", ")}.`,
      ),
    h(
      "details",
      {},
      h("summary", {}, "Partitions as a table"),
      h(
        "div",
        { class: "wide", tabindex: "0", role: "group", "aria-label": "Partitions" },
        table(
          [
            "",
            "block",
            "kernels",
            "tiles",
            "compute",
            "memory",
            "network",
            "time",
            "SRAM",
            "DRAM",
            "bound by",
          ],
          told.partitions.map((p, i) => [
            String(i + 1),
            p.block,
            p.kernels.join(" "),
            p.tiles,
            ...[p.compute, p.memory, p.network, p.time].map((v) => text(v, "s")),
            text(p.sram, "B"),
            text(p.traffic, "B"),
            p.binds,
          ]),
          [0, 1, 2, 10],
        ),
      ),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Layouts: which axis of each module lies on which ranks"),
      table(
        ["module", "divided along"],
        Object.entries(told.layouts).map(([m, axes]) => [m, axes.filter(Boolean).join(", ") || "whole"]),
        [0, 1],
      ),
    ),
  );
}
