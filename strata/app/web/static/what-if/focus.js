// A part that is drawn anew keeps the keyboard's focus: on the control of the same label, or in the same place.
const controls = (node) => [...node.querySelectorAll("input, select, button, summary, a[href]")];

export function keepFocus(node, draw) {
  const now = document.activeElement;
  const inside = node.contains(now);
  const place = inside ? controls(node).indexOf(now) : -1,
    label = inside ? now.getAttribute("aria-label") : null;
  draw();
  if (!inside) return;
  const all = controls(node);
  const found = all.find((one) => label && one.getAttribute("aria-label") === label) ?? all[place];
  found?.focus({ preventScroll: true });
}

// What may be wider than the page scrolls by itself, also by keyboard.
export const wide = (label) => ({ class: "wide", tabindex: "0", role: "region", "aria-label": label });
