// A timeline: tracks with bars, looked into with the wheel, by dragging, or with buttons.
import { fill, h, s } from "../dom.js";
import { percent, show as text } from "../units.js";

const ROW = 26,
  LABEL = 104,
  FOOT = 26,
  WIDTH = 1000;
export const KINDS = {
  forward: ["forward", "--c-compute"],
  backward: ["backward", "--c-memory"],
  weight: ["gradients of weights", "--c-network"],
  both: ["forward beside backward", "--c-bubble"],
  send: ["hand-over", "--c-overhead"],
  collective: ["collective", "--c-cache"],
  recompute: ["recompute", "--c-host"],
  update: ["update, host", "--c-throttling"],
};
const paint = (kind) => `var(${KINDS[kind]?.[1] ?? "--c-overhead"})`;

// `tasks`: [track, start, end, kind, name]; `busy`: share of the time that each track works
export function gantt(every, whole, busy = {}) {
  const links = every.filter(([track]) => track.startsWith("link"));
  const own = every.filter(([track]) => !track.startsWith("link"));
  const holder = h("div", { class: "stackv" });
  const turn = (all) => fill(holder, drawn(all ? [...own, ...links] : own, whole, busy, toggle));
  const box = h("input", { type: "checkbox", onchange: () => turn(box.checked) });
  const toggle = links.length > 0 && h("label", { class: "check" }, box, " links between stages");
  turn(false);
  return holder;
}

function drawn(tasks, whole, busy, toggle) {
  const order = (track) =>
    (track.startsWith("link") ? "z" : "a") + track.replace(/\d+/g, (n) => n.padStart(5, "0"));
  const tracks = [...new Set(tasks.map((t) => t[0]))].sort((a, b) => order(a).localeCompare(order(b)));
  const high = ROW * tracks.length + FOOT;
  let left = 0,
    wide = whole;
  const bars = s("g", {}),
    ticks = s("g", {});
  const drawing = s(
    "svg",
    {
      class: "drawing gantt",
      viewBox: `0 0 ${WIDTH} ${high}`,
      role: "img",
      "aria-label": `Timeline of ${tracks.length} stages over ${text(whole, "s")}`,
    },
    tracks.map((track, i) => [
      s("line", { x1: 0, x2: WIDTH, y1: (i + 1) * ROW, y2: (i + 1) * ROW, class: "rule" }),
      s("text", { x: 2, y: i * ROW + 17 }, track),
      busy[track] !== undefined &&
        s(
          "text",
          { x: LABEL - 8, y: i * ROW + 17, class: "faint", "text-anchor": "end" },
          percent(busy[track], 0),
        ),
    ]),
    ticks,
    bars,
  );
  const draw = () => {
    wide = Math.min(Math.max(wide, whole / 2000), whole);
    left = Math.min(Math.max(left, 0), whole - wide);
    const scale = (WIDTH - LABEL) / wide;
    const at = (t) => LABEL + (t - left) * scale;
    const seen = tasks.filter(([, start, end]) => end > left && start < left + wide);
    fill(
      bars,
      seen.map(([track, start, end, kind, name]) => {
        const x = Math.max(at(start), LABEL),
          w = Math.max(Math.min(at(end), WIDTH) - x, 0.4);
        const y = tracks.indexOf(track) * ROW + 3;
        return [
          s("rect", {
            x,
            y,
            width: w,
            height: ROW - 6,
            rx: w > 6 ? 2 : 0,
            fill: paint(kind),
            class: "pass",
            hover: [
              [`${track}, ${KINDS[kind]?.[0] ?? kind}`, passName(name)],
              ["takes", text(end - start, "s")],
              ["from", text(start, "s")],
              ["to", text(end, "s")],
            ],
          }),
          w > 22 && s("text", { x: x + w / 2, y: y + 14, class: "inside" }, number(name)),
        ];
      }),
    );
    const step = nice(wide / 6);
    const marks = [];
    for (let t = Math.ceil(left / step) * step; t <= left + wide * 1.0001; t += step) marks.push(t);
    fill(
      ticks,
      marks.map((t) => [
        s("line", { x1: at(t), x2: at(t), y1: 0, y2: ROW * tracks.length, class: "rule" }),
        s("text", { x: at(t), y: high - 8, class: "faint", "text-anchor": "middle" }, text(t, "s")),
      ]),
    );
  };
  const zoom = (by, where = 0.5) => {
    const next = Math.min(wide * by, whole);
    left += (wide - next) * where;
    wide = next;
    draw();
  };
  const move = (by) => {
    left += by * wide;
    draw();
  };
  let held = null;
  const place = (event) => {
    const box = drawing.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width - LABEL / WIDTH) / (1 - LABEL / WIDTH);
  };
  drawing.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      zoom(Math.exp((event.deltaY || event.deltaX) / 300), Math.min(Math.max(place(event), 0), 1));
    },
    { passive: false },
  );
  drawing.addEventListener("pointerdown", (event) => {
    held = { at: place(event), left };
  });
  drawing.addEventListener("pointermove", (event) => {
    if (!held || event.buttons !== 1) return;
    left = held.left - (place(event) - held.at) * wide;
    draw();
  });
  draw();
  const button = (label, name, onclick) =>
    h("button", { class: "quiet", type: "button", "aria-label": name, onclick }, label);
  const used = [...new Set(tasks.map((t) => t[3]))];
  return [
    h(
      "div",
      { class: "row" },
      h(
        "div",
        { class: "legend" },
        used.map((kind) =>
          h(
            "span",
            {},
            h("span", { class: "swatch", style: { background: paint(kind) } }),
            KINDS[kind]?.[0] ?? kind,
          ),
        ),
      ),
      h(
        "div",
        { class: "row tools" },
        toggle,
        button("+", "Look closer", () => zoom(0.5)),
        button("−", "Look from farther away", () => zoom(2)),
        button("←", "Earlier", () => move(-0.3)),
        button("→", "Later", () => move(0.3)),
        button("Whole", "The whole step", () => zoom(2000)),
      ),
    ),
    h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Timeline of the step" }, drawing),
  ];
}

// "F3.1" is the forward pass of micro-batch 3 through chunk 1
function passName(name) {
  const found = /^([A-Z]+)(\d+)\.(\d+)/.exec(name);
  return found ? `micro-batch ${Number(found[2]) + 1}, stage chunk ${found[3]}` : name;
}
const number = (name) => {
  const found = /^[A-Z]+(\d+)\./.exec(name);
  return found ? String(Number(found[1]) + 1) : "";
};
function nice(x) {
  const unit = 10 ** Math.floor(Math.log10(x));
  return unit * [1, 2, 5, 10].find((n) => n * unit >= x);
}
