// What a design does: headline numbers with trust and difference, memory, why it does not fit.
import { h } from "../dom.js";
import { wide } from "./focus.js";
import { difference, percent, show as text } from "../units.js";

const COLOURS = ["compute", "memory", "network", "cache", "bubble", "host", "overhead", "throttling"];
export const tint = (name, i) =>
  `var(--c-${COLOURS.includes(name) ? name : COLOURS[i % (COLOURS.length - 1)]})`;

const celsius = (words) => words.replace("degC", "°C");

// A difference in percent; of temperatures in kelvin; none where it is none.
function apart(c, now, then) {
  if (c.unit !== "K") return now === then ? "" : difference(now, then);
  const warmer = now - then;
  return Math.abs(warmer) < 0.05 ? "" : `${warmer > 0 ? "+" : "−"}${Math.abs(warmer).toFixed(1)} K`;
}

export function card(c, pinned, main) {
  const then = pinned?.cards?.find((p) => p.name === c.name);
  const up = then ? c.value > then.value : false;
  const kind = (c.better === "higher") === up ? "good" : "bad";
  const said = then ? apart(c, c.value, then.value) : "";
  return h(
    "div",
    {
      class: `card${main ? " main" : ""}`,
      "data-metric": c.name,
      hover: [
        ["what", `${c.label}: ${celsius(c.text)}`],
        ["unit", c.unit === "1" ? (c.name.includes("per_s") ? "1/s" : "a share") : c.unit],
        ["formula", c.formula],
        ["here", celsius(c.says)],
        [pinned?.called, then && said ? `${celsius(then.text)} (${said})` : ""],
        [
          "like cases measured",
          c.trust
            ? `${percent(c.trust.share, 0)} of ${c.trust.points} lay where ${c.trust.low_text} to ${c.trust.high_text} would: ${c.trust.like}${c.trust.inside ? "" : "; this one is outside of them"}`
            : "no time that was measured beside this one",
        ],
      ],
    },
    h("div", { class: "label" }, c.label),
    h("div", { class: "value" }, celsius(c.text)),
    h(
      "div",
      { class: "under" },
      said && h("span", { class: `delta ${kind}` }, `${said} `),
      c.trust ? `${c.trust.low_text} to ${c.trust.high_text} measured` : "",
    ),
  );
}

const MAIN = { serve: "tokens_per_s", decode: "tpot", prefill: "ttft", train: "tokens_per_s" };
export const cards = (told, pinned) =>
  h(
    "div",
    { class: "cards" },
    told.cards.map((c) => card(c, pinned, c.name === MAIN[told.phase])),
  );

export function memory(told) {
  const { used, limit, parts } = told.memory;
  const width = Math.max(used ?? 0, limit ?? 0) || 1;
  const names = Object.entries(parts).sort((a, b) => b[1] - a[1]);
  const over = used > limit;
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Memory of the fullest device"),
    h(
      "p",
      {},
      h("strong", { class: over ? "bad" : null }, text(used, "B")),
      ` of ${text(limit, "B")}`,
      over ? `: ${text(used - limit, "B")} too much` : `, ${percent(used / limit, 0)} full`,
    ),
    h(
      "div",
      {
        class: "barline fullness",
        role: "img",
        "aria-label": `memory: ${text(used, "B")} of ${text(limit, "B")}`,
      },
      names.map(([name, bytes], i) =>
        h("span", {
          style: { width: `${(100 * bytes) / width}%`, background: tint(`part ${i}`, i) },
          hover: [
            [name, text(bytes, "B")],
            ["share of what may be filled", percent(bytes / limit)],
          ],
        }),
      ),
      over && h("i", { class: "limit", style: { left: `${(100 * limit) / width}%` } }),
    ),
    h(
      "div",
      { class: "legend" },
      names.map(([name, bytes], i) =>
        h(
          "span",
          {},
          h("span", { class: "swatch", style: { background: tint(`part ${i}`, i) } }),
          `${name} ${text(bytes, "B")}`,
        ),
      ),
    ),
  );
}

// What a lever says, as a change of the design, where it is a setting.
const doubled = (system) => {
  const found = /^(\d+)x(.+)$/.exec(system);
  return found ? `${2 * Number(found[1])}x${found[2]}` : null;
};
function settings(lever, design, plan) {
  const found = [];
  const put = (words, changes) => found.push([words, changes]);
  const degree = /^([a-z_]+)=(\S+)$/.exec(lever);
  if (/batch/.test(lever) && design.batch > 1)
    put(`batch ${Math.max(1, design.batch >> 1)}`, { batch: Math.max(1, design.batch >> 1) });
  if (/context/.test(lever) && design.input > 1)
    put(`input ${Math.max(1, design.input >> 1)}`, { input: Math.max(1, design.input >> 1) });
  if (/weights|fewer bits/.test(lever) && design.weights !== "fp8") put("weights in fp8", { weights: "fp8" });
  if (/weights/.test(lever) && design.weights !== "fp4") put("weights in fp4", { weights: "fp4" });
  if (/kv/.test(lever) && design.kv !== "fp8") put("KV cache in fp8", { kv: "fp8" });
  if (/more devices/.test(lever) && doubled(design.system))
    put(doubled(design.system), { system: doubled(design.system), plan: "" });
  if (/raise tp|pp or ep/.test(lever) && design.plan) put("the best plan", { plan: "" });
  if (degree && !plan.split(",").includes(lever))
    put(lever, { plan: [design.plan, lever].filter(Boolean).join(",") });
  return found;
}

export function misfit(told, design, change) {
  return h(
    "section",
    { class: "panel", role: "status" },
    h("h2", {}, "This does not fit"),
    told.infeasible.map((i) => h("p", {}, `${i.what}: ${i.demand} against ${i.limit}.`)),
    !told.infeasible.length && h("p", {}, told.why_none),
    h("h3", {}, "What would help"),
    h(
      "ul",
      { class: "levers" },
      [...new Set(told.infeasible.flatMap((i) => i.levers))].map((lever) =>
        h(
          "li",
          {},
          lever,
          " ",
          settings(lever, design, told.plan).map(([words, changes]) =>
            h("button", { class: "quiet small", type: "button", onclick: () => change(changes) }, words),
          ),
        ),
      ),
    ),
  );
}

export function trusted(told) {
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "How far to trust it"),
    told.trust.map((line) => h("p", {}, line)),
    told.notes.map((line) => h("p", { class: "dim" }, line)),
  );
}

// Designs in columns, the pinned one first to compare with.
export function beside(letters, designs, answers, { open, pin }, act) {
  const names = [...new Map(answers.flatMap((a) => a?.cards ?? []).map((c) => [c.name, c])).values()];
  const of = (i, name) => answers[i]?.cards?.find((c) => c.name === name);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Side by side"),
    h(
      "div",
      wide("Designs side by side"),
      h(
        "table",
        { class: "beside" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "metric"),
            designs.map((_, i) =>
              h(
                "th",
                { class: "n", scope: "col" },
                letters[i],
                i === pin ? " (pinned)" : "",
                i === open ? " (open)" : "",
              ),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          h(
            "tr",
            {},
            h("td", {}, "what differs"),
            designs.map((d, i) => h("td", { class: "differs" }, act.words(d, i))),
          ),
          names.map((c) =>
            h(
              "tr",
              {},
              h("td", { hover: [["formula", c.formula]] }, c.label),
              designs.map((_, i) => {
                const now = of(i, c.name),
                  then = of(pin, c.name);
                if (!now) return h("td", { class: "n" }, answers[i]?.fits === false ? "does not fit" : "…");
                const said = i !== pin && then ? apart(c, now.value, then.value) : "";
                const better = (c.better === "higher") === now.value > then?.value;
                return h(
                  "td",
                  { class: "n" },
                  celsius(now.text),
                  said && h("span", { class: `delta ${better ? "good" : "bad"}` }, ` ${said}`),
                );
              }),
            ),
          ),
        ),
      ),
    ),
  );
}
