// Parts that pages with drawings share: sliders, cards, and questions that wait until the hand rests.
import { h } from "./dom.js";

// A slider with its value beside its name. `text(value)` says it; `oninput(value)` hears every move.
export function slider(label, value, { min, max, step = 1, text = String }, oninput) {
  const out = h("span", { style: { color: "var(--ink)", "font-weight": "600" } }, text(value));
  const input = h("input", {
    type: "range",
    min: String(min),
    max: String(max),
    step: String(step),
    value: String(value),
    "aria-label": label,
    "aria-valuetext": text(value),
    oninput: (e) => {
      const now = Number(e.target.value);
      out.textContent = text(now);
      e.target.setAttribute("aria-valuetext", text(now));
      oninput(now);
    },
  });
  return h(
    "label",
    {},
    h(
      "span",
      { style: { display: "flex", "justify-content": "space-between", gap: "8px" } },
      h("span", {}, label),
      out,
    ),
    input,
  );
}

export const card = (label, value, under = "", hover = null, main = false) =>
  h(
    "div",
    { class: main ? "card main" : "card", hover },
    h("div", { class: "label" }, label),
    h("div", { class: "value" }, value),
    h("div", { class: "under" }, under),
  );

export const swatch = (colour, text) =>
  h("span", {}, h("span", { class: "swatch", style: { background: colour } }), text);

// Calls `act` once the last call is `ms` ago.
export function rested(act, ms) {
  let timer = 0;
  return (...words) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...words), ms);
  };
}

// A round length for a scale bar of at most `most`: 1, 2 or 5 times a power of ten.
export function roundLength(most) {
  const ten = 10 ** Math.floor(Math.log10(most));
  return [5, 2, 1].map((n) => n * ten).find((n) => n <= most * 1.0001) ?? ten;
}
