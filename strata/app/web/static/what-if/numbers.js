// Every number behind a design: searched, moved by a slider or typed, with its source and mark.
import { ask, given_up } from "../api.js";
import { failure, fill, h, setHover } from "../dom.js";
import { show as text } from "../units.js";
import { readable } from "./designs.js";
import { keepFocus } from "./focus.js";

const WIDE = 4; // a slider goes from a quarter of what is shipped to four times
const part = (path) =>
  path
    .split(".")
    .slice(0, path.startsWith("chip.") ? 2 : 1)
    .join(".");
const titles = {
  "chip.compute": "Compute",
  "chip.cache": "Cache",
  "chip.memory": "Memory",
  "chip.stack": "Stack",
  "chip.cooling": "Cooling",
  "chip.silicon": "Silicon",
  "chip.overhead": "Fixed times",
  "chip.energy": "Energy",
  "chip.package": "Package",
  fabric: "Fabric",
  engine: "Engine",
  economics: "Economics",
};
const title = (name) => titles[name] ?? name.replace("chip.", "").replace(/^./, (c) => c.toUpperCase());
const FIRST = [
  "chip.stack",
  "chip.compute",
  "chip.memory",
  "chip.cache",
  "chip.energy",
  "chip.package",
  "chip.cooling",
];

export const settled = (value, unit) => `${Number(value.toPrecision(6))}${unit === "1" ? "" : ` ${unit}`}`;

// Where a slider stands, and what a place on it means.
function scale(n) {
  const from = n.shipped;
  if (from === null || from === 0) return null;
  if (n.unit === "K" && from > 200)
    return { min: -40, max: 40, step: 1, place: (v) => v - from, value: (p) => from + p };
  if (n.whole && Math.abs(from) <= 64)
    return { min: 1, max: Math.max(WIDE * from, 4), step: 1, place: (v) => v, value: (p) => p };
  const turn = Math.log2(WIDE);
  return {
    min: -turn,
    max: turn,
    step: 0.02,
    place: (v) => Math.log2(v / from),
    value: (p) => (n.whole ? Math.max(1, Math.round(from * 2 ** p)) : from * 2 ** p),
  };
}
const shown = (n, value) => (n.unit === "1" ? String(Number(value.toPrecision(4))) : text(value, n.unit));

export class Numbers {
  // `onmove(path, value, moving)`: value null sets the shipped number again
  // `onnear(path, values)`: a slider of few values was touched, and these lie next to it
  constructor(node, onmove, onnear) {
    Object.assign(this, {
      node,
      onmove,
      onnear,
      told: null,
      about: "",
      rows: new Map(),
      opened: new Set(),
      sought: "",
    });
    this.changed = h("div", { class: "stackv" });
    this.list = h("div", {});
    this.search = h("input", {
      type: "search",
      placeholder: "bandwidth, layers, clock…",
      "aria-label": "Search the hardware's numbers",
      oninput: (e) => {
        this.sought = e.target.value.trim().toLowerCase();
        this.draw();
      },
    });
    fill(
      node,
      h("h2", {}, "Numbers"),
      this.changed,
      h("label", {}, "Search", this.search),
      h("p", { class: "dim small" }, "Each has its source: hover it."),
      this.list,
    );
  }

  async update(design) {
    this.design = design;
    const about = JSON.stringify([design.model, design.system, design.fabric, design.engine, design.set]);
    if (about === this.about) return;
    this.about = about;
    try {
      this.told = await ask("numbers", design);
      keepFocus(this.node, () => this.draw());
    } catch (error) {
      if (!given_up(error)) fill(this.list, failure(error));
    }
  }

  draw() {
    if (!this.told) return;
    const every = Object.values(this.told.owners).flatMap((o) => o.numbers);
    const set = this.design.set;
    const moved = every.filter((n) => n.path in set);
    const unknown = Object.keys(set).filter((path) => !every.some((n) => n.path === path));
    fill(
      this.changed,
      moved.map((n) => this.row(n, true)),
      unknown.map((path) =>
        h("div", { class: "number" }, `${path} = ${readable(set[path])} `, this.reset(path)),
      ),
      moved.length + unknown.length > 1 &&
        h(
          "button",
          { class: "quiet small", type: "button", onclick: () => this.onmove(null, null, false) },
          "Reset all",
        ),
      this.told.refused && h("p", { class: "error" }, this.told.refused),
    );
    const groups = new Map();
    for (const n of every) {
      if (this.sought && !`${n.path} ${n.says}`.toLowerCase().includes(this.sought)) continue;
      if (!groups.has(part(n.path))) groups.set(part(n.path), []);
      groups.get(part(n.path)).push(n);
    }
    const order = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
    const sorted = [...groups].sort((a, b) => order(a[0]) - order(b[0]));
    fill(
      this.list,
      sorted.map(([name, numbers]) => this.group(name, numbers)),
      !sorted.length && h("p", { class: "dim" }, "No number is called that."),
    );
  }

  group(name, numbers) {
    const body = h("div", { class: "stackv" });
    const open = this.opened.has(name) || (this.sought && numbers.length < 30);
    const put = () =>
      fill(
        body,
        numbers.map((n) => this.row(n)),
      );
    const details = h(
      "details",
      {
        ontoggle: (e) => {
          if (e.target.open) {
            if (!this.sought) this.opened.add(name);
            if (!body.childNodes.length) put();
          } else this.opened.delete(name);
        },
      },
      h("summary", {}, `${title(name)} `, h("span", { class: "dim" }, numbers.length)),
      body,
    );
    if (open) {
      details.open = true;
      put();
    }
    return details;
  }

  reset(path) {
    return h(
      "button",
      {
        class: "quiet small",
        type: "button",
        "aria-label": `Reset ${path}`,
        onclick: () => this.onmove(path, null, false),
      },
      "Reset",
    );
  }

  row(n, moved = false) {
    const name = n.path.replace(/^(chip|fabric|engine|economics)\./, "").replaceAll("_", " "),
      value = n.value ?? n.shipped ?? 0,
      on = scale(n);
    const typed = h("input", {
      value: shown(n, value),
      "aria-label": `${n.path}, value`,
      spellcheck: "false",
      autocomplete: "off",
      onchange: (e) => {
        const told = e.target.value.trim();
        this.onmove(
          n.path,
          told ? (/^[\d.eE+-]+$/.test(told) && n.unit !== "1" ? `${told} ${n.unit}` : told) : null,
          false,
        );
      },
    });
    const slide = (e, moving) => {
      const now = on.value(Number(e.target.value));
      typed.value = shown(n, now);
      this.onmove(n.path, settled(now, n.unit), moving);
    };
    const slider =
      on &&
      h("input", {
        type: "range",
        min: String(on.min),
        max: String(on.max),
        step: String(on.step),
        value: String(on.place(value)),
        "aria-label": `${n.path}, slider`,
        "aria-valuetext": shown(n, value),
        onfocus: () => {
          if (on.step !== 1 || n.unit === "K") return;
          const near = [1, -1, 2, -2].map((by) => value + by).filter((v) => v >= on.min && v <= on.max);
          this.onnear(
            n.path,
            near.map((v) => settled(v, n.unit)),
          );
        },
        oninput: (e) => slide(e, true),
        onchange: (e) => slide(e, false),
      });
    const label = h(
      "span",
      { class: "name" },
      name,
      " ",
      h("span", { class: `mark ${moved ? "given" : n.mark}` }, moved ? "changed" : n.mark),
    );
    setHover(label, [
      ["what", n.says],
      ["shipped", `${n.text}${n.follows ? ", follows from other numbers" : ""}`],
      ["unit", n.unit === "1" ? "a plain number" : n.unit],
      ["mark", `${n.mark}: ${this.told.marks[n.mark] ?? ""}`],
      ["source", n.source],
      ["set as", n.path],
    ]);
    return h(
      "div",
      { class: "number", "data-path": n.path },
      h("div", { class: "head" }, label, typed, moved && this.reset(n.path)),
      slider,
    );
  }
}
