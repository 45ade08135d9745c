// Elements from text and children. Text stays text: nothing here ever parses HTML.
const SVG = "http://www.w3.org/2000/svg";

function put(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "hover") setHover(node, value);
    else if (key === "style") Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else if (key in node && typeof value !== "string" && !(node instanceof SVGElement)) node[key] = value;
    else node.setAttribute(key === "class" ? "class" : key, value === true ? "" : String(value));
  }
  node.append(
    ...children
      .flat(3)
      .filter((c) => c !== null && c !== undefined && c !== false)
      .map((c) => (c instanceof Node ? c : String(c))),
  );
  return node;
}

export const h = (tag, attrs, ...children) => put(document.createElement(tag), attrs, children);
export const s = (tag, attrs, ...children) => put(document.createElementNS(SVG, tag), attrs, children);
export const fill = (node, ...children) => {
  node.replaceChildren(...children.flat(3).filter(Boolean));
  return node;
};

// ------------------------------------------------------------------------------------------------ hovers
// A hover is a list of [what, text]; it shows under the pointer, and below an element that has the keyboard's focus.
const hovers = new WeakMap();
export function setHover(node, rows) {
  if (!rows) return node;
  hovers.set(node, rows);
  node.setAttribute("data-hover", "");
  if (
    !node.hasAttribute("tabindex") &&
    !(node instanceof SVGElement) &&
    !/^(A|BUTTON|INPUT|SELECT)$/.test(node.tagName)
  )
    node.setAttribute("tabindex", "0");
  return node;
}

export function startHovers() {
  const box = document.getElementById("hover");
  const close = () => {
    box.hidden = true;
  };
  const open = (event, x, y) => {
    const owner = event.target.closest?.("[data-hover]");
    const rows = owner && hovers.get(owner);
    if (!rows) return close();
    const list = typeof rows === "string" ? [["", rows]] : rows;
    fill(
      box,
      h(
        "dl",
        {},
        list.filter(([, text]) => text).map(([what, text]) => [what && h("dt", {}, what), h("dd", {}, text)]),
      ),
    );
    box.hidden = false;
    const wide = box.offsetWidth,
      high = box.offsetHeight;
    box.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - wide - 8))}px`;
    box.style.top = `${y + 18 + high > innerHeight ? Math.max(6, y - high - 12) : y + 18}px`;
  };
  document.addEventListener("pointermove", (e) => open(e, e.clientX, e.clientY));
  document.addEventListener("focusin", (e) => {
    const r = e.target.getBoundingClientRect();
    open(e, r.left, r.bottom - 12);
  });
  document.addEventListener("focusout", close);
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") close();
  });
  document.addEventListener("scroll", close, true);
}

// ------------------------------------------------------------------------------------------------ parts
export const table = (header, rows, words = [0]) =>
  h(
    "table",
    {},
    header &&
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          header.map((c, i) => h("th", { class: words.includes(i) ? null : "n", scope: "col" }, c)),
        ),
      ),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          {},
          row.map((c, i) => h("td", { class: words.includes(i) ? null : "n" }, c)),
        ),
      ),
    ),
  );

export const scrolled = (inside) =>
  h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, inside);

// A table that opens on a click.
export const folded = (title, header, rows, words, attrs = { class: "panel" }) =>
  h("details", attrs, h("summary", {}, title), scrolled(table(header, rows, words)));

// A number with its name above, what it is of below, and a hover.
export const card = (label, value, under, formula = under) =>
  h(
    "div",
    { class: "card", hover: [[label, formula]] },
    h("div", { class: "label" }, label),
    h("div", { class: "value" }, value),
    h("div", { class: "under" }, under),
  );

export const choice = (label, value, options, onchange) =>
  h(
    "label",
    {},
    label,
    h(
      "select",
      { onchange: (e) => onchange(e.target.value) },
      options.map((o) => {
        const [v, text] = Array.isArray(o) ? o : [o, o];
        return h("option", { value: v, selected: v === value ? true : null }, text);
      }),
    ),
  );

export const entry = (label, value, onchange, attrs = {}) =>
  h(
    "label",
    {},
    label,
    h("input", {
      value: String(value ?? ""),
      onchange: (e) => onchange(e.target.value.trim()),
      spellcheck: "false",
      autocomplete: "off",
      ...attrs,
    }),
  );

export const failure = (error) => h("p", { class: "error", role: "alert" }, error.message ?? String(error));
export const say = (text) => {
  document.getElementById("status").textContent = text;
};

export function download(name, text, kind = "application/json") {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
