// Where the error is: families left out first, then families of the rows, then the worst rows with their commands.
import { ask, given_up } from "../api.js";
import { choice, failure, fill, h, scrolled, table } from "../dom.js";
import { address } from "../state.js";
import { percent } from "../units.js";

const BY = ["chip", "model", "engine", "network", "file"];
const link = (file) => h("a", { href: address("validation", { file }) }, file);

// A table that the server has as cells of text.
export const cellTable = ({ columns, rows }) => scrolled(table(columns, rows, [0, 1]));

const titled = (title, columns, rows, words) =>
  rows.length ? [h("h3", {}, title), scrolled(table(columns, rows, words))] : [];

export async function worstPanel(part, kind, by = BY[0]) {
  const inside = h("div", {});
  const again = choice("By", by, BY, (value) => worstPanel(part, kind, value));
  const head = h("div", { class: "row spread" }, h("h2", {}, "Where the error is"), again);
  fill(part, h("div", { class: "panel" }, head, inside));
  try {
    fill(inside, tables(await ask("validation/worst", { by, kind }), by));
  } catch (error) {
    if (!given_up(error)) fill(inside, failure(error));
  }
}

const tables = (told, by) => [
  ...titled(
    "Families left out",
    ["left out", "file", "metric", "rows", "MAPE", "as shipped"],
    told.left_out.map((f) => [
      f.family,
      link(f.file),
      f.metric,
      String(f.rows),
      ...[f.mape, f.shown].map((x) => percent(x)),
    ]),
    [0, 1, 2],
  ),
  ...titled(
    "Families of all rows",
    [by, "rows", "MAPE", "median", "bias", "share of the error"],
    told.families.map((f) => [
      f[by] || "none",
      String(f.points),
      ...[f.mape, f.median, f.bias, f.share].map((x) => percent(x)),
    ]),
  ),
  ...titled(
    "Rows off by the largest factors",
    ["row", "group", "error", "command"],
    told.rows.map((r) => [[link(r.file), ` line ${r.row}`], r.group, percent(r.error), h("code", {}, r.command)]),
    [0, 1, 3],
  ),
];
