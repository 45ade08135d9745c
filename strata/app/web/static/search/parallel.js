// Parallel coordinates: a line a design, a column an axis. Labels are thinned so that none lies on another.
import { fill, s, setHover } from "../dom.js";

const LINE = 15, // points between labels
  TOP = 44,
  HIGH = 340,
  LEAST = 78; // of a column

const cut = (words, wide) => {
  const most = Math.max(3, Math.floor(wide / 6.6));
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
};

// columns: [{name, labels, of, chosen:Set|null}] or [{name, values, ticks:[[value, text]]}]; order: places of points, best last
export function drawParallel(node, columns, order, shade, pick) {
  const wide = Math.max(node.clientWidth || 900, columns.length * LEAST);
  const step = wide / columns.length;
  const x = (i) => i * step + 10;
  const high = TOP + HIGH + 16;
  const svg = s("svg", {
    class: "drawing",
    viewBox: `0 0 ${wide} ${high}`,
    width: wide,
    height: high,
    role: "group",
    "aria-label": "Designs as lines over axes",
  });
  svg.style.width = `${wide}px`;
  svg.style.maxWidth = "none";
  const places = columns.map((c) => {
    if (c.labels)
      return c.of.map((k) => TOP + (c.labels.length > 1 ? HIGH * (1 - k / (c.labels.length - 1)) : HIGH / 2));
    const known = c.values.filter((v) => v !== null);
    const low = Math.min(...known),
      span = Math.max(...known) - low || 1;
    c.at = (v) => TOP + HIGH * (1 - (v - low) / span);
    return c.values.map((v) => (v === null ? null : c.at(v)));
  });
  for (const p of order) {
    const d = places
      .map((ys, i) => (ys[p] === null ? "" : `${x(i).toFixed(1)} ${ys[p].toFixed(1)}`))
      .filter(Boolean);
    const worth = shade(p);
    svg.append(
      s("path", {
        d: `M${d.join("L")}`,
        style: {
          fill: "none",
          stroke: "var(--accent)",
          "stroke-width": worth === 1 ? 2.4 : 1,
          opacity: (0.06 + 0.8 * worth ** 5).toFixed(3),
        },
      }),
    );
  }
  columns.forEach((c, i) => {
    const room = step - 16;
    const head = s(
      "text",
      { x: x(i) - 4, y: 16, style: { "font-weight": 600 } },
      cut(c.name, 0.84 * step - 8),
    );
    svg.append(setHover(head, [["axis", c.name]]));
    svg.append(s("line", { x1: x(i), x2: x(i), y1: TOP, y2: TOP + HIGH, style: { stroke: "var(--faint)" } }));
    if (!c.labels) {
      for (const [value, words] of c.ticks)
        svg.append(label(x(i) + 5, c.at(value) + 4, cut(words, room), null, words));
      return;
    }
    const by = Math.max(1, Math.ceil((c.labels.length * LINE) / (HIGH + LINE)));
    c.labels.forEach((words, k) => {
      const last = k === c.labels.length - 1;
      const crowded = k % by !== 0 || (!last && by > 1 && c.labels.length - 1 - k < by);
      if (crowded && !(last && by > 1)) return;
      const y = TOP + (c.labels.length > 1 ? HIGH * (1 - k / (c.labels.length - 1)) : HIGH / 2) + 4;
      const t = label(
        x(i) + 5,
        y,
        cut(words, room),
        c.chosen && !c.chosen.has(words) ? "var(--dim)" : c.chosen ? "var(--accent)" : null,
        words,
      );
      t.setAttribute("tabindex", "0");
      t.setAttribute("role", "button");
      t.setAttribute("aria-pressed", c.chosen?.has(words) ? "true" : "false");
      t.setAttribute("aria-label", `${c.name} ${words}: keep only this`);
      t.style.cursor = "pointer";
      t.addEventListener("click", () => pick(c.name, words));
      t.addEventListener("keydown", (e) => {
        if (e.key === "Enter" || e.key === " ") {
          e.preventDefault();
          pick(c.name, words);
        }
      });
      svg.append(t);
    });
  });
  fill(node, svg);
}

function label(x, y, words, c, whole) {
  const t = s(
    "text",
    {
      x,
      y,
      style: {
        fill: c ?? "var(--ink)",
        "paint-order": "stroke",
        stroke: "var(--panel)",
        "stroke-width": "3px",
        "font-size": "11px",
      },
    },
    words,
  );
  return words === whole ? t : setHover(t, whole);
}
