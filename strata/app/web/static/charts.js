// Charts in the page's own type and colours, full width, redrawn when the theme turns.
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const colour = (name) => style(`--c-${name}`) || style("--accent");
export const accent = () => style("--accent");

function layout(extra) {
  const axis = {
    gridcolor: style("--line"),
    zerolinecolor: style("--line"),
    linecolor: style("--line"),
    automargin: true,
    title: { standoff: 8 },
  };
  const own = {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: style("--ink") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 12, t: 8, b: 8, pad: 4 },
    hoverlabel: { bgcolor: style("--raised"), bordercolor: style("--line"), font: { color: style("--ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    colorway: ["#2f62c4", "#c96a1b", "#2b8a57", "#9a7bc4", "#3192a8", "#a3623f"],
  };
  const merged = { ...own, ...extra };
  for (const key of Object.keys(extra ?? {}))
    if (/^[xyz]axis/.test(key))
      merged[key] = {
        ...axis,
        ...extra[key],
        title: {
          ...axis.title,
          ...(typeof extra[key].title === "string" ? { text: extra[key].title } : extra[key].title),
        },
      };
  for (const key of ["xaxis", "yaxis"]) merged[key] ??= axis;
  return merged;
}

const drawn = new Map();
// `what(colours)` gives [traces, layout]: asked again when the theme turns, so that colours are the theme's.
export function chart(node, what, height = 300) {
  const [traces, extra] = what();
  const made = layout({ height, ...extra });
  node.style.height = `${made.height}px`; // when the window changes, a chart takes the room of its element
  const done = globalThis.Plotly.react(node, traces, made, {
    displaylogo: false,
    responsive: true,
    displayModeBar: false,
  });
  node.classList.add("chart");
  drawn.set(node, [what, height, done]);
  for (const [other, [, , drawing]] of drawn)
    if (other !== node && !other.isConnected) {
      drawn.delete(other);
      // not while it is being drawn
      Promise.resolve(drawing).finally(() => other.isConnected || globalThis.Plotly.purge(other));
    }
  return done;
}
export function themeTurned() {
  for (const [node, [what, height]] of drawn) if (node.isConnected) chart(node, what, height);
}
