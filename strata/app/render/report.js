// Draws a report's charts after its words have been painted; follows the theme, and prints in light.
const named = (value) => {
  if (typeof value === "string") return value.replace(/var\((--[\w-]+)\)/g, (_, name) => style(name));
  if (Array.isArray(value)) return value.map(named);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, named(one)]));
  return value;
};

function drawFigure(node) {
  const told = JSON.parse(node.querySelector("script").textContent);
  const place = node.querySelector("div");
  const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, ...told.layout.legend };
  chart(place, () => [named(told.data), { ...named(told.layout), legend }], told.layout.height);
  const button = document.createElement("button");
  button.textContent = "SVG";
  button.title = "Save this chart as SVG";
  button.onclick = () =>
    globalThis.Plotly.downloadImage(place, {
      format: "svg",
      width: place.clientWidth,
      height: told.layout.height,
      filename: node.dataset.name,
    });
  node.prepend(button);
}

function drawFigures() {
  const library = document.getElementById("plotly");
  const run = document.createElement("script");
  run.textContent = library.textContent;
  document.head.append(run);
  const waiting = [...document.querySelectorAll(".figure")];
  const next = () => {
    if (!waiting.length) return void (document.documentElement.dataset.drawn = "all");
    drawFigure(waiting.shift());
    setTimeout(next);
  };
  next();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", themeTurned);
  addEventListener("beforeprint", () => {
    while (waiting.length) drawFigure(waiting.shift());
    document.documentElement.dataset.theme = "light";
    themeTurned();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.theme;
    themeTurned();
  });
}
requestAnimationFrame(() => setTimeout(drawFigures));
