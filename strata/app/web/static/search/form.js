// The form of a new study: a shipped space with some choices kept, or one that is built here.
import { ask, given_up } from "../api.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { digits } from "../units.js";
import { counted } from "./study.js";

export const FORM = {
  name: "",
  space: "next-node",
  keep: {},
  goals: ["tokens_per_s", "", ""],
  limits: "tpot <= 20 ms",
  sampler: "exact",
  budget: "",
  gap: "",
  built: {
    model: "llama-3-70b",
    system: "8xh200",
    engine: "ideal",
    phase: "decode",
    batch: 16,
    input: 2048,
    output: 512,
    axes: [
      { name: "bandwidth", field: "chip.memory.bandwidth", kind: "times", choices: "1, 1.5, 2, 3" },
      { name: "batch", field: "batch", kind: "values", choices: "1, 4, 16, 64, 256" },
      { name: "plan", field: "plan", kind: "plans", choices: "" },
    ],
  },
};
const KINDS = [
  ["values", "values"],
  ["times", "times what it is"],
  ["range", "from, to, how many"],
];
const listed = (words) =>
  words
    .split(",")
    .map((w) => w.trim())
    .filter(Boolean);

// What the server is asked for.
export function studyOf(form) {
  const asked = {
    study: form.name,
    space: form.space,
    goal: form.goals.filter(Boolean),
    limits: listed(form.limits),
    sampler: form.sampler,
    budget: form.budget === "" ? null : Number(form.budget),
    gap: form.gap === "" ? null : Number(form.gap) / 100,
  };
  return { ...asked, ...spaceOf(form) };
}
export function spaceOf(form) {
  if (form.space !== "") {
    const keep = Object.entries(form.keep).filter(([, words]) => words.trim());
    return {
      space: form.space,
      keep: Object.fromEntries(
        keep.map(([k, w]) => [
          k,
          w.includes("=") || w.includes(";")
            ? w
                .split(";")
                .map((x) => x.trim())
                .filter(Boolean)
            : listed(w),
        ]),
      ),
    };
  }
  const axes = form.built.axes.map((a) => ({
    ...a,
    choices: a.kind === "plans" ? [a.choices].filter(Boolean) : listed(a.choices),
  }));
  return { space: "", built: { ...form.built, axes } };
}

export function drawForm(side, page) {
  const { form, choices } = page;
  const again = () => drawForm(side, page);
  const set = (name, value, redraw = false) => {
    form[name] = value;
    page.keep();
    if (redraw) again();
  };
  const spaces = [...choices.spaces.map((e) => [e.name, e.name]), ["", "one built here…"]];
  const phase = page.phase ?? "decode";
  const metrics = Object.entries(choices.metrics)
    .filter(([, m]) => m.phases.includes(phase))
    .map(([name, m]) => [name, `${m.better} ${m.label}`]);
  const goal = (i, label) =>
    choice(label, form.goals[i], i ? [["", "none"], ...metrics] : metrics, (v) =>
      set(
        "goals",
        form.goals.map((g, k) => (k === i ? v : g)),
      ),
    );
  const inside = h("div", { class: "stackv" });
  fill(
    side,
    h("h2", {}, "New study"),
    entry("Name", form.name, (v) => set("name", v), {
      pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]*",
      maxlength: "60",
      placeholder: page.nextName(),
      title: "letters, digits, - and _",
    }),
    choice("Space", form.space, spaces, (v) => set("space", v, true)),
    inside,
    goal(0, "Objective"),
    goal(1, "Second objective: a frontier"),
    form.goals[1] !== "" && goal(2, "Third objective"),
    entry("Limits, with commas", form.limits, (v) => set("limits", v), {
      placeholder: "tpot <= 20 ms, temperature <= 85 degC",
    }),
    h(
      "div",
      { class: "triple" },
      choice("Sampler", form.sampler, choices.samplers, (v) => set("sampler", v)),
      entry("Points", form.budget, (v) => set("budget", v), {
        type: "number",
        min: 1,
        max: 500000,
        placeholder: "auto",
      }),
      entry("Gap, %", form.gap, (v) => set("gap", v), {
        type: "number",
        min: 0,
        max: 100,
        step: "any",
        placeholder: "auto",
      }),
    ),
    h("button", { type: "submit" }, "Start the study"),
    page.list,
  );
  if (form.space === "") builder(inside, page, again);
  describe(inside, page);
}

async function describe(node, page) {
  const { form } = page;
  const out = h("div", { class: "dim" });
  node.append(out);
  try {
    const told = await ask("search/space", spaceOf(form), "space of the form");
    if (page.phase !== told.question.phase) {
      page.phase = told.question.phase;
      return drawForm(page.side, page);
    }
    const q = told.question;
    fill(
      out,
      h("p", {}, `${told.title}. ${counted(told.size)} points: ${q.model} on ${q.system}, ${q.phase}.`),
      form.space !== "" &&
        h(
          "details",
          {},
          h("summary", {}, `${told.axes.length} axes: keep some choices`),
          told.axes.map((a) =>
            h(
              "div",
              {
                hover: [
                  ["field", a.fields.join(", ")],
                  ["source", a.source],
                  [
                    "choices",
                    a.choices.join(", ") + (a.count > a.choices.length ? ` … (${digits(a.count)})` : ""),
                  ],
                ],
              },
              entry(
                `${a.name} (${digits(a.count)})`,
                form.keep[a.name] ?? "",
                (v) => {
                  form.keep = { ...form.keep, [a.name]: v };
                  page.keep();
                  describeSize(out, page);
                },
                { placeholder: a.choices.slice(0, 6).join(a.kind === "plan" ? "; " : ", ") },
              ),
            ),
          ),
        ),
    );
  } catch (error) {
    if (!given_up(error)) fill(out, failure(error));
  }
}
async function describeSize(out, page) {
  const line = out.querySelector("p");
  try {
    const told = await ask("search/space", spaceOf(page.form), "space of the form");
    fill(line, `${told.title}. ${counted(told.size)} points.`);
  } catch (error) {
    if (!given_up(error)) fill(line, error.message);
  }
}

// ------------------------------------------------------------------------------------------------ builder
function builder(node, page, again) {
  const { form, known } = page;
  const built = form.built;
  const set = (name, value) => {
    form.built = { ...form.built, [name]: value };
    page.keep();
    again();
  };
  const change = (i, name, value) =>
    set(
      "axes",
      built.axes.map((a, k) => (k === i ? renamed({ ...a, [name]: value }, name, built.axes, i) : a)),
    );
  const names = (kind) => known[kind].map((e) => e.name);
  const fields = h("datalist", { id: "search-fields" });
  fill(
    node,
    choice("Model", built.model, names("models"), (v) => set("model", v)),
    entry("Base system", built.system, (v) => set("system", v), { list: "search-systems" }),
    h(
      "datalist",
      { id: "search-systems" },
      names("systems").map((n) => h("option", { value: n })),
      names("chips").map((n) => h("option", { value: `8x${n}` })),
    ),
    h(
      "div",
      { class: "pair" },
      choice("Phase", built.phase, ["decode", "prefill", "serve", "train"], (v) => set("phase", v)),
      ...["batch", "input", "output"].map((n) =>
        entry(
          n[0].toUpperCase() + n.slice(1),
          built[n],
          (v) => set(n, Math.max(1, Math.round(Number(v) || 1))),
          { type: "number", min: 1 },
        ),
      ),
    ),
    fields,
    built.axes.map((a, i) =>
      h(
        "fieldset",
        {
          style: {
            border: "1px solid var(--line)",
            "border-radius": "8px",
            padding: "8px 10px",
            margin: 0,
            "min-width": 0,
          },
        },
        h("legend", { class: "dim" }, `Axis ${i + 1}: ${a.name}`),
        a.kind === "plans"
          ? entry("Every legal plan where", a.choices, (v) => change(i, "choices", v), {
              placeholder: "(cp == 1) & (zero == 0)",
            })
          : [
              entry("Number", a.field, (v) => change(i, "field", v), { list: "search-fields" }),
              h(
                "div",
                { class: "pair" },
                choice("Choices are", a.kind, KINDS, (v) => change(i, "kind", v)),
                entry("Choices", a.choices, (v) => change(i, "choices", v), {
                  placeholder: a.kind === "range" ? "96 GB, 288 GB, 5" : "1, 2, 4",
                }),
              ),
            ],
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            "aria-label": `Remove axis ${a.name}`,
            onclick: () =>
              set(
                "axes",
                built.axes.filter((_, k) => k !== i),
              ),
          },
          "Remove",
        ),
      ),
    ),
    h(
      "div",
      { class: "row" },
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          disabled: built.axes.length >= 8,
          onclick: () =>
            set("axes", [
              ...built.axes,
              renamed(
                { name: "", field: "chip.memory.capacity", kind: "times", choices: "1, 2" },
                "field",
                built.axes,
                -1,
              ),
            ]),
        },
        "Add an axis",
      ),
      !built.axes.some((a) => a.kind === "plans") &&
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: () =>
              set("axes", [...built.axes, { name: "plan", field: "plan", kind: "plans", choices: "" }]),
          },
          "Add plans",
        ),
    ),
  );
  numbersOf(fields, page);
}

// An axis is called like the last word of its field, once.
function renamed(axis, what, all, place) {
  if (what !== "field") return axis;
  const last =
    axis.field
      .split(".")
      .pop()
      .replace(/[^A-Za-z0-9_]/g, "_")
      .replace(/^[^A-Za-z]+/, "") || "axis";
  const taken = new Set(all.filter((_, k) => k !== place).map((a) => a.name));
  let name = last;
  for (let k = 2; taken.has(name); k++) name = `${last}_${k}`;
  return { ...axis, name };
}

async function numbersOf(fields, page) {
  const { model, system, engine } = page.form.built;
  try {
    const told = await ask("numbers", { model, system, engine, phase: "decode" }, "numbers of the form");
    const every = ["chip", "fabric", "engine"].flatMap((o) =>
      told.owners[o].numbers.filter((n) => n.value !== null && !n.follows),
    );
    fill(
      fields,
      ["batch", "input", "output"].map((n) => h("option", { value: n })),
      every.map((n) => h("option", { value: n.path, label: `${n.path} (${n.text})` })),
    );
  } catch {
    /* the space's own line says what is wrong */
  }
}
