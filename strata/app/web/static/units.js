// Numbers as people read them: the same rules as the command line's.
export const STEPS = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
  [1e-3, "m"],
  [1e-6, "µ"],
  [1e-9, "n"],
  [1e-12, "p"],
];
export const digits = (x, n = 3) => {
  if (x === 0) return "0";
  const places = Math.max(0, n - 1 - Math.floor(Math.log10(Math.abs(x))));
  return x.toLocaleString("en", { maximumFractionDigits: Math.min(places, 12), minimumFractionDigits: 0 });
};
export function show(x, unit = "") {
  if (x === null || x === undefined || !isFinite(x)) return "–";
  if (unit === "K") return `${digits(x - 273.15)} °C`;
  if (unit === "USD") return `${digits(x)} USD`;
  if (unit === "" || unit === "1")
    return Math.abs(x) >= 1e6 ? `${digits(x / 1e6)} M` : digits(x, Math.abs(x) >= 1000 ? 6 : 3);
  const [size, prefix] = STEPS.find(([step]) => Math.abs(x) >= step * 0.9995) ?? [1, ""];
  return `${digits(x / size)} ${prefix}${unit}`;
}
export const percent = (x, n = 1) => `${(100 * x).toFixed(n)} %`;
export const difference = (now, then) =>
  then ? `${now >= then ? "+" : "−"}${Math.abs(100 * (now / then - 1)).toFixed(1)} %` : "";
