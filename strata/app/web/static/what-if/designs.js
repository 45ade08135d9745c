// Designs as the page's address holds them; what was done can be undone.
import { go, here } from "../state.js";

export const START = {
  model: "llama-3-70b",
  system: "8xh200",
  phase: "serve",
  batch: 64,
  input: 1024,
  output: 1024,
  plan: "",
  engine: "ideal",
  fabric: "",
  weights: "",
  kv: "",
  price: "",
  set: {},
};
export const MOST = 4;
export const LETTERS = ["A", "B", "C", "D"];
const TEXTS = ["model", "system", "phase", "plan", "engine", "fabric", "weights", "kv", "price"];

// Whatever an address says, a design is whole: its keys, of their kinds.
export function whole(told) {
  const made = { ...START, set: {} };
  if (!told || typeof told !== "object") return made;
  for (const key of TEXTS) if (typeof told[key] === "string") made[key] = told[key];
  for (const key of ["batch", "input", "output"])
    if (Number.isFinite(told[key])) made[key] = Math.max(1, Math.round(told[key]));
  for (const [path, value] of Object.entries(told.set ?? {}))
    if (typeof value === "string") made.set[path] = value;
  return made;
}
// The address says what differs from the start.
const short = (design) => {
  const told = {};
  for (const key of Object.keys(START))
    if (key === "set" ? Object.keys(design.set).length : design[key] !== START[key]) told[key] = design[key];
  return told;
};

export function read() {
  const { state } = here();
  const told = Array.isArray(state.designs) && state.designs.length ? state.designs : [{}];
  const designs = told.slice(0, MOST).map(whole);
  const place = (n) => (Number.isInteger(n) ? Math.min(Math.max(n, 0), designs.length - 1) : 0);
  return { designs, open: place(state.open), pin: place(state.pin), sweep: state.sweep ?? null };
}

const past = [],
  future = [];
let shown = null;
export const can = { undo: () => past.length > 0, redo: () => future.length > 0 };

// A step worth undoing makes an entry of the history; a slider under the finger (`replace`) waits for its release.
export function write(state, { replace = false } = {}) {
  const told = { designs: state.designs.map(short) };
  if (state.open) told.open = state.open;
  if (state.pin) told.pin = state.pin;
  if (state.sweep) told.sweep = state.sweep;
  const before = shown ?? location.hash;
  go("what-if", told, { replace });
  if (replace || location.hash === before) return;
  past.push(before);
  future.length = 0;
  shown = location.hash;
}
// What the browser's own buttons did, seen from here.
export function arrived() {
  if (shown !== null && location.hash !== shown) {
    if (past.at(-1) === location.hash) {
      future.push(shown);
      past.pop();
    } else if (future.at(-1) === location.hash) {
      past.push(shown);
      future.pop();
    }
  }
  shown = location.hash;
}
export function step(back) {
  const from = back ? past : future,
    to = back ? future : past;
  if (!from.length) return false;
  to.push(location.hash);
  shown = from.pop();
  history.pushState(null, "", shown);
  return true;
}

// What a design changes against another, in words.
export function differences(design, other) {
  const said = [];
  for (const key of Object.keys(START))
    if (key !== "set" && design[key] !== other[key]) said.push(`${key} ${design[key] || "as usual"}`);
  const paths = new Set([...Object.keys(design.set), ...Object.keys(other.set)]);
  for (const path of paths)
    if (design.set[path] !== other.set[path])
      said.push(`${path} ${readable(design.set[path]) || "as shipped"}`);
  return said;
}
// Numbers that sliders set have many digits.
export const readable = (value) =>
  value?.replace(/-?\d+(\.\d+)?(e[+-]?\d+)?/i, (n) => String(Number(Number(n).toPrecision(3))));
