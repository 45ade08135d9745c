// Set before anything is drawn, so that a dark page does not flash white.
const kept = (() => {
  try {
    return localStorage.getItem("strata-theme");
  } catch {
    return null;
  }
})();
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
