// Handing on: a link, the command, files.
import { download, h, say } from "../dom.js";
import { LETTERS } from "./designs.js";

export async function copy(words, done) {
  try {
    await navigator.clipboard.writeText(words);
    say(done);
  } catch {
    say("The browser did not let this be copied.");
  }
}
export const button = (words, onclick, attrs = {}) =>
  h("button", { class: "quiet small", type: "button", onclick, ...attrs }, words);

const toml = (designs) =>
  designs
    .map((d) => {
      const text = (v) => (typeof v === "number" ? String(v) : JSON.stringify(v));
      const rows = Object.entries(d).filter(([k, v]) => k !== "set" && v !== "");
      const set = Object.entries(d.set).map(([k, v]) => `${JSON.stringify(k)} = ${JSON.stringify(v)}`);
      return [
        "[[design]]",
        ...rows.map(([k, v]) => `${k} = ${text(v)}`),
        ...(set.length ? ["[design.set]", ...set] : []),
      ].join("\n");
    })
    .join("\n\n");

const cell = (v) => (/[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
function csv(designs, answers) {
  const rows = [["design", "model", "system", "plan", "metric", "value", "unit", "low", "high"]];
  designs.forEach((d, i) =>
    (answers[i]?.cards ?? []).forEach((c) =>
      rows.push([
        LETTERS[i],
        d.model,
        d.system,
        answers[i].plan,
        c.name,
        c.value,
        c.unit,
        c.trust?.low ?? "",
        c.trust?.high ?? "",
      ]),
    ),
  );
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

export function handing(designs, answers, open) {
  const told = answers[open];
  const commands = answers.map((a) => a?.command).filter(Boolean);
  return h(
    "details",
    { class: "panel" },
    h("summary", {}, "Take it along: command, TOML, JSON, CSV"),
    told &&
      h(
        "div",
        { class: "stackv" },
        h("p", { class: "dim" }, "The same question on the command line:"),
        h("pre", { class: "command", tabindex: "0" }, told.command),
        h(
          "div",
          { class: "row" },
          button("Copy the command", () => copy(told.command, "The command is copied.")),
          button("Download TOML", () =>
            download(
              "designs.toml",
              `${commands.map((c) => `# ${c}`).join("\n")}\n\n${toml(designs)}\n`,
              "application/toml",
            ),
          ),
          button("Download JSON", () =>
            download("designs.json", JSON.stringify({ designs, answers }, null, 1)),
          ),
          button("Download CSV", () => download("designs.csv", csv(designs, answers), "text/csv")),
        ),
      ),
  );
}
