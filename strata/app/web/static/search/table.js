// Points of a study as a table, to compare and to open; heat maps; why points are out.
import { choice, fill, h } from "../dom.js";
import { digits } from "../units.js";
import { drawMap } from "./maps.js";
import { label, MOST, openPoints, ROWS, said } from "./study.js";

export function mapPanel(page, panel) {
  const { maps } = page.found;
  const now = Math.min(page.view.map ?? 0, maps.length - 1);
  const pick = choice(
    "Two axes",
    String(now),
    maps.map((m, i) => [String(i), `${m.y} over ${m.x}`]),
    (v) => {
      page.view.map = Number(v);
      page.keep();
      drawMap(page.at.map, page, maps[Number(v)]);
    },
  );
  queueMicrotask(() => drawMap(page.at.map, page, maps[now]));
  return panel(`Best ${label(page, page.found.goals[0])} for each two choices`, pick, page.at.map);
}

export function outPanel(found) {
  return h(
    "details",
    { class: "panel" },
    h("summary", {}, "Why points are out"),
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "rule or limit"),
          h("th", { scope: "col", class: "n" }, "points"),
          h("th", { scope: "col", class: "n" }, "by this alone"),
        ),
      ),
      h(
        "tbody",
        {},
        found.out.map((o) =>
          h(
            "tr",
            {},
            h("td", {}, o.why),
            h("td", { class: "n" }, digits(o.points, 6)),
            h("td", { class: "n" }, digits(o.alone, 6)),
          ),
        ),
      ),
    ),
  );
}

export function drawTable(page) {
  const { found, kept, at } = page;
  const points = found.points;
  if (!points) return fill(at.table);
  const metrics = found.metrics.filter((m) => points.metrics[m].some((v) => v !== null)).slice(0, 5);
  const traits = points.traits.slice(0, 7);
  const rows = kept.slice(0, page.rows ?? ROWS);
  const pick = (index, on) => {
    on ? page.picked.add(index) : page.picked.delete(index);
    chosen(page);
  };
  fill(
    at.table,
    h(
      "p",
      { class: "dim" },
      `${digits(kept.length, 6)} points are in and kept, of ${digits(points.index.length, 6)} shown and ${digits(found.rows, 6)} evaluated.`,
    ),
    h(
      "div",
      {
        class: "scroll",
        tabindex: "0",
        role: "region",
        "aria-label": "Points of the study",
        style: { background: "var(--panel)" },
      },
      h(
        "table",
        { style: { background: "inherit" } },
        h(
          "thead",
          { style: { background: "inherit" } },
          h(
            "tr",
            { style: { background: "inherit" } },
            h("th", { scope: "col" }, "compare"),
            h("th", { scope: "col" }, "open"),
            metrics.map((m) => h("th", { scope: "col", class: "n" }, label(page, m))),
            traits.map((t) => h("th", { scope: "col" }, t.name)),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((p) =>
            h(
              "tr",
              {},
              h(
                "td",
                { style: { "white-space": "nowrap" } },
                h("input", {
                  type: "checkbox",
                  "aria-label": `Compare point ${points.index[p]}`,
                  checked: page.picked.has(points.index[p]),
                  onchange: (e) => pick(points.index[p], e.target.checked),
                }),
                points.frontier[p]
                  ? h(
                      "span",
                      { class: "mark given", style: { "margin-left": "6px" } },
                      found.goals.length > 1 ? "frontier" : "best",
                    )
                  : null,
              ),
              h(
                "td",
                {},
                h(
                  "button",
                  {
                    type: "button",
                    class: "quiet",
                    style: { padding: "0 8px", "white-space": "nowrap" },
                    "aria-label": `Open point ${points.index[p]} in What-if`,
                    onclick: () => openPoints(page, [points.index[p]]),
                  },
                  "What-if",
                ),
              ),
              metrics.map((m) => h("td", { class: "n" }, said(page, m, points.metrics[m][p]))),
              traits.map((t) => h("td", {}, t.labels[t.of[p]])),
            ),
          ),
        ),
      ),
    ),
    kept.length > rows.length &&
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          onclick: () => ((page.rows = (page.rows ?? ROWS) + 100), drawTable(page)),
        },
        "More",
      ),
  );
  chosen(page);
}

function chosen(page) {
  const count = page.picked.size + page.view.named.length;
  fill(
    page.at.chosen,
    count > 0 &&
      h(
        "div",
        { class: "row" },
        h(
          "button",
          { type: "button", onclick: () => openPoints(page, [...page.picked], page.view.named) },
          `Compare ${Math.min(count, MOST)} in What-if`,
        ),
        h(
          "span",
          { class: "dim" },
          `${page.picked.size} points and ${page.view.named.length} named designs${count > MOST ? `; the first ${MOST} are taken` : ""}`,
        ),
      ),
  );
}
