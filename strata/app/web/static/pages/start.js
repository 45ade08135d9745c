// The start page: questions that people come with, each opens the page that answers it; then every page.
import { fill, h } from "../dom.js";
import { address } from "../state.js";
import { PAGES } from "../pages.js";

const QUESTIONS = [
  [
    "How many DRAM layers are best for decode at batch 4?",
    "DeepSeek-V3 on 256 stacked chips, from 1 layer to 16, each with its best plan.",
    address("what-if", {
      designs: [{ model: "deepseek-v3", system: "256xstack-ref", phase: "decode", batch: 4 }],
      sweep: { path: "chip.stack.layers", from: 1, to: 16, metric: "tpot" },
    }),
  ],
  [
    "Which GPU serves a model cheapest under an SLO?",
    "Llama 3 70B with TTFT below 2 s and TPOT below 50 ms: USD for a million tokens, system by system.",
    "#compare",
  ],
  [
    "How fast does DeepSeek-V3 answer on eight B200?",
    "Latency, throughput, memory, energy and money, and what binds them.",
    address("what-if", { designs: [{ model: "deepseek-v3", system: "8xb200", batch: 64 }] }),
  ],
  [
    "What would twice the memory bandwidth buy an H200?",
    "Two designs side by side, with their differences.",
    address("what-if", {
      designs: [
        { phase: "decode" },
        { phase: "decode", set: { "chip.memory.bandwidth": "9600000000000 B/s" } },
      ],
      open: 1,
    }),
  ],
  ["How hot does a stack of DRAM on logic become?", "Layers drawn to scale, temperatures of each.", "#stack"],
  [
    "How long does it take to train a model, and for how much?",
    "Stages, memory, the timeline of a step, days and money.",
    "#training",
  ],
  [
    "What is the best system that could be built?",
    "A search over chips, stacks, fabrics and plans, with a bound on what is left to find.",
    "#search",
  ],
  [
    "How far can these numbers be trusted?",
    "Predictions beside what was measured, row by row.",
    "#validation",
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
      QUESTIONS.map(([question, line, to]) =>
        h("a", { class: "tile", href: to }, h("strong", {}, question), h("p", { class: "dim" }, line)),
      ),
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
