// What the page shows stands in its address: page, designs, which one is open. So an address can be shared, and the browser's
// back button is the undo.
const PACK = (value) =>
  btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value))))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
const UNPACK = (text) =>
  JSON.parse(
    new TextDecoder().decode(
      Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)),
    ),
  );

export function here() {
  const [page, packed] = location.hash.replace(/^#/, "").split("/");
  let state = {};
  if (packed) {
    try {
      state = UNPACK(packed);
    } catch {
      state = {};
    }
  }
  return {
    page: page || "start",
    state: state && typeof state === "object" && !Array.isArray(state) ? state : {},
  };
}

const empty = (state) => !state || Object.keys(state).length === 0;
export const address = (page, state) => `#${page}${empty(state) ? "" : `/${PACK(state)}`}`;

// A change worth undoing makes an entry of the browser's history; a slider under the finger replaces the last one.
export function go(page, state, { replace = false } = {}) {
  const to = address(page, state);
  if (to === location.hash) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
}
