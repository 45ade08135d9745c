// The frame: pages by name, the theme, errors.
import { given_up } from "./api.js";
import { failure, fill, h, startHovers } from "./dom.js";
import { themeTurned } from "./charts.js";
import { PAGES } from "./pages.js"; // by the server, from the first line of each file of pages/
import { here } from "./state.js";

const main = document.getElementById("main"),
  nav = document.getElementById("nav");
let shown = null;
// Each page that is opened gets a room of its own: what comes late for one that was left is seen by nobody.
let room = null;

// A page may have rules of its own, in a file beside it.
function styled([name, , , rules]) {
  if (!rules || document.querySelector(`link[href$="/pages/${name}.css"]`)) return;
  document.head.append(h("link", { rel: "stylesheet", href: `/static/pages/${name}.css` }));
}

async function open() {
  const { page } = here();
  const known = PAGES.find(([name]) => name === page);
  fill(
    nav,
    PAGES.map(([name, title]) =>
      h("a", { href: `#${name}`, "aria-current": name === page ? "page" : null }, title),
    ),
  );
  const now = nav.querySelector("[aria-current]");
  if (now) nav.scrollLeft = now.offsetLeft - nav.offsetLeft - (nav.clientWidth - now.clientWidth) / 2;
  document.title = known ? `${known[1]} · Strata` : "Strata";
  let mine = main;
  try {
    if (known) styled(known);
    const module = await import(`./pages/${known ? known[0] : "start"}.js`);
    if (here().page !== page) return;
    if (shown !== page) {
      room = h("div", {});
      fill(main, room);
      scrollTo(0, 0);
    }
    shown = page;
    mine = room;
    await module.show(mine);
  } catch (error) {
    if (!given_up(error)) fill(mine, failure(error));
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("strata-theme", document.documentElement.dataset.theme);
  } catch {
    /* private windows keep nothing */
  }
  themeTurned();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeTurned);
// Both come of one step back: the page is opened once.
let coming = 0;
for (const moved of ["popstate", "hashchange"])
  addEventListener(moved, () => {
    clearTimeout(coming);
    coming = setTimeout(open, 0);
  });
startHovers();
// A token has done its work once the cookie is set: it does not stay in the address.
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname + location.hash);
open();
