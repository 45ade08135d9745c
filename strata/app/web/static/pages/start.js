// The start page: what can be looked at, and questions to begin with.
import { fill, h } from "../dom.js";
import { address } from "../state.js";
import { PAGES } from "../app.js";

// Questions that people come with; each opens a page that answers it.
const QUESTIONS = [
  [
    "How fast does DeepSeek-V3 answer on eight B200?",
    address("what-if", { designs: [{ model: "deepseek-v3", system: "8xb200", batch: 64 }] }),
  ],
];

export function show(main) {
  fill(
    main,
    h("h1", {}, "AI systems that do not exist yet"),
    h(
      "p",
      { class: "lead dim" },
      "How fast, how hot, how much energy, area and money, why, and what to build instead.",
    ),
    h("h2", {}, "Start with a question"),
    h(
      "div",
      { class: "tiles" },
      QUESTIONS.map(([text, to]) => h("a", { class: "tile", href: to }, h("strong", {}, text))),
    ),
    h("h2", { style: { "margin-top": "1.6rem" } }, "Or with a page"),
    h(
      "div",
      { class: "tiles" },
      PAGES.map(([name, title, line]) =>
        h("a", { class: "tile", href: `#${name}` }, h("strong", {}, title), h("p", { class: "dim" }, line)),
      ),
    ),
  );
}
