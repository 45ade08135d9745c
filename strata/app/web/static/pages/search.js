// page 9, Search: Start a study, watch its frontier and its bound grow, open any point.
// Search: start a study, watch it, filter what it found, open any point in What-if.
import { ask, catalogue, given_up, job } from "../api.js";
import { choice, entry, failure, fill, h } from "../dom.js";
import { go, here } from "../state.js";
import { percent } from "../units.js";
import { drawForm, FORM, studyOf } from "../search/form.js";
import { drawMatters, drawThreads } from "../search/maps.js";
import {
  addNamed,
  drawCards,
  drawCloud,
  drawFilters,
  drawGrowth,
  keptPoints,
  label,
} from "../search/study.js";
import { drawTable, mapPanel, outPanel } from "../search/table.js";

let running = null; // the study under way: its job and what it has told; it goes on while other pages are open
let known = null; // spaces, samplers and metrics: asked for once
const choices = () =>
  (known ??= ask("search/choices").catch((error) => {
    known = null;
    throw error;
  }));
const VIEW = { filters: {}, keep: {}, named: [] };

let shown = 0; // a newer call takes over from one that still waits
export async function show(main) {
  const turn = ++shown;
  const { state } = here();
  const page = {
    main,
    study: state.study ?? "",
    form: { ...structuredClone(FORM), ...state.form },
    view: { ...structuredClone(VIEW), ...state.view },
    named: [],
    picked: new Set(),
    studies: [],
    list: h("section", { class: "stackv", "aria-label": "Studies" }),
  };
  page.keep = () =>
    go("search", { study: page.study || undefined, form: changed(page.form), view: used(page.view) });
  page.nextName = () => {
    const base = (page.form.space || "built").replace(/[^A-Za-z0-9_-]/g, "-");
    for (let k = 1; ; k++) if (!page.studies.some((s) => s.name === `${base}-${k}`)) return `${base}-${k}`;
  };
  if (!main.querySelector("[data-page=search]"))
    fill(
      main,
      h(
        "div",
        { class: "split", "data-page": "search" },
        h("form", { class: "side", "aria-label": "New study" }),
        h("div", { class: "stackv" }),
      ),
    );
  page.side = main.querySelector("form");
  page.answer = main.querySelector("form + .stackv");
  page.side.onsubmit = (e) => {
    e.preventDefault();
    page.form.name ||= page.nextName();
    start(page, studyOf(page.form));
  };
  [page.choices, page.known] = await Promise.all([choices(), catalogue()]);
  await listStudies(page);
  if (turn !== shown) return;
  drawForm(page.side, page);
  if (page.study && running?.study === page.study && running.state === "running") watch(page);
  else if (page.study) await open(page);
  else welcome(page);
}
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const changed = (form) =>
  Object.fromEntries(Object.entries(form).filter(([k, v]) => !same(v, FORM[k]) && k !== "name"));
const used = (view) => {
  const kept = Object.fromEntries(Object.entries(view).filter(([k, v]) => !same(v, VIEW[k])));
  return Object.keys(kept).length ? kept : undefined;
};

async function listStudies(page) {
  try {
    page.studies = (await ask("search/studies", { at: Date.now() })).studies;
  } catch (error) {
    if (given_up(error)) return;
    page.studies = [];
  }
  fill(
    page.list,
    h("h2", {}, "Studies in the folder"),
    page.studies.length
      ? h(
          "ul",
          { style: { margin: 0, padding: 0, "list-style": "none", display: "grid", gap: "4px" } },
          page.studies.map((s) =>
            h(
              "li",
              {},
              h(
                "button",
                {
                  type: "button",
                  class: "quiet",
                  style: { width: "100%", "text-align": "left", "overflow-wrap": "anywhere" },
                  "aria-current": s.name === page.study ? "true" : null,
                  onclick: () => choose(page, s.name),
                },
                h("strong", {}, s.name),
                h(
                  "span",
                  { class: "dim", style: { display: "block", "font-size": "0.82rem" } },
                  `${s.space}: ${s.goal.join(", ")}${s.limits.length ? ` with ${s.limits.join(", ")}` : ""}, ${s.sampler}`,
                ),
              ),
            ),
          ),
        )
      : h("p", { class: "dim" }, "None yet."),
  );
}

function choose(page, name) {
  page.study = name;
  page.view = structuredClone(VIEW);
  page.named = [];
  page.picked = new Set();
  page.keep();
  if (running?.study === name && running.state === "running") watch(page);
  else open(page);
}

function welcome(page) {
  fill(
    page.answer,
    h("h1", {}, "Search a space of designs"),
    h(
      "p",
      { class: "lead" },
      "Choose a space and what to make best, then start: the frontier and, with the exact sampler, the proven bound grow as you watch.",
    ),
    h(
      "p",
      {},
      "Every point is kept in the server's study folder: a study can be stopped, resumed, filtered, and any point opened in What-if.",
    ),
  );
}

// ------------------------------------------------------------------------------------------------ running
function start(page, asked) {
  if (running?.state === "running") running.job.stop();
  const live = {
    study: asked.study,
    state: "running",
    frontier: [],
    seen: [],
    history: [],
    goals: asked.goal ?? [],
    size: 0,
    trade: [],
  };
  live.job = job("search/run", asked, (told) => {
    for (const news of told.told) {
      if (news.goals) Object.assign(live, news);
      if (news.progress) {
        live.progress = news.progress;
        live.history.push(news.progress);
      }
      if (news.frontier) {
        const now = new Set(news.frontier.map((p) => p.index));
        live.seen = [...live.seen, ...live.frontier.filter((p) => !now.has(p.index))].slice(-400);
        live.frontier = news.frontier;
      }
    }
    live.seconds = told.seconds;
    live.onnews?.();
  });
  live.job.done
    .then((told) => {
      live.state = told.state;
      live.found = told.answer;
      live.onend?.();
    })
    .catch((error) => {
      live.state = "failed";
      live.error = error;
      live.onend?.();
    });
  running = live;
  page.study = asked.study;
  page.view = structuredClone(VIEW);
  page.named = [];
  page.picked = new Set();
  page.form.name = "";
  page.keep();
  watch(page);
}

function watch(page) {
  const live = running;
  const at = (page.at = {
    head: h("div", {}),
    cards: h("div", { class: "cards" }),
    cloud: h("div", {}),
    growth: h("div", {}),
    notes: h("div", {}),
  });
  page.found = null;
  const stop = h(
    "button",
    { type: "button", class: "quiet", onclick: () => live.job.stop() },
    "Stop, keep what is known",
  );
  fill(
    page.answer,
    at.head,
    h("div", { class: "row" }, stop),
    at.notes,
    at.cards,
    h("section", { class: "panel" }, h("h2", {}, "Frontier, as it grows"), at.cloud),
    h("section", { class: "panel" }, h("h2", {}, "Best and bound over time"), at.growth),
  );
  const here = () => at.head.isConnected && page.study === live.study;
  live.onnews = () => {
    if (!here()) return;
    fill(
      at.head,
      h("h1", {}, live.study),
      h(
        "p",
        { class: "lead", role: "status" },
        live.progress ? `Searching: ${live.goal}.` : "Reading the space…",
      ),
    );
    if (!live.progress) return;
    drawCards(at.cards, page, live, null);
    drawCloud(at.cloud, page, live, live);
    drawGrowth(at.growth, page, live.history, live.goals);
  };
  live.onend = async () => {
    if (!here()) return;
    await listStudies(page);
    if (!page.side.contains(document.activeElement)) drawForm(page.side, page);
    if (live.state === "done") finished(page, live.found);
    else if (live.state === "cancelled") open(page);
    else fill(page.answer, h("h1", {}, live.study), failure(live.error));
  };
  live.onnews();
  if (live.state !== "running") live.onend();
}

// ------------------------------------------------------------------------------------------------ a study
async function open(page) {
  page.answer.classList.add("busy");
  try {
    const found = await ask("search/open", { study: page.study, at: Date.now() });
    if (page.study === found.study && page.side.isConnected) finished(page, found);
  } catch (error) {
    if (!given_up(error)) fill(page.answer, h("h1", {}, page.study), failure(error));
  }
  page.answer.classList.remove("busy");
}

function proof(found) {
  if (found.gap === null) return "Nothing is proven: there may be better points than those found.";
  if (found.goals.length > 1)
    return found.gap > 0
      ? `Proven: one of these is at least as good as any other point, to ${percent(found.gap, 2)} in each.`
      : "Proven: no other point belongs here.";
  return found.gap > 0
    ? `Proven: no point of the space is more than ${percent(found.gap, 2)} better.`
    : "Proven: no point of the space is better.";
}

function finished(page, found) {
  page.found = found;
  const at = (page.at = Object.fromEntries(
    ["cards", "cloud", "growth", "notes", "filters", "table", "threads", "map", "matters", "chosen"].map(
      (n) => [n, h("div", {})],
    ),
  ));
  at.cards.className = "cards";
  at.filters.className = "two";
  at.threads.className = "wide";
  at.threads.tabIndex = 0;
  const panel = (title, ...inside) => h("section", { class: "panel" }, h("h2", {}, title), ...inside);
  const whole = ["finished", "within the gap"].includes(found.ended);
  const metrics = found.metrics
    .filter((m) => found.points?.metrics[m]?.some((v) => v !== null))
    .map((m) => [m, label(page, m)]);
  const axis = (name, which, i) =>
    choice(name, page.view[which] ?? found.trade[i] ?? found.trade[0], metrics, (v) => {
      page.view[which] = v;
      page.keep();
      page.redraw();
    });
  const names = entry("Named designs beside it", page.view.named.join(", "), (v) => addNamed(page, v), {
    placeholder: "8xh100, 8xb200",
    list: "search-systems",
  });
  fill(
    page.answer,
    h(
      "div",
      {},
      h("h1", {}, found.study),
      h("p", { class: "lead" }, `${found.words[0].toUpperCase()}${found.words.slice(1)}: ${found.title}.`),
      h(
        "p",
        {},
        `${whole ? "Ended" : "Stopped before its end"}${found.ended && whole ? ` (${found.ended})` : ""}. ${found.frontier.length ? proof(found) : ""} ${found.notes.join(". ")}`,
      ),
      found.why_none && h("p", { class: "error", role: "alert" }, found.why_none),
    ),
    !whole &&
      h(
        "div",
        { class: "row" },
        h(
          "button",
          { type: "button", onclick: () => start(page, { study: found.study, resume: true }) },
          "Resume",
        ),
      ),
    at.cards,
    at.notes,
    panel(
      found.goals.length > 1 ? "Frontier" : "The best and what it is paid with",
      h("p", { class: "dim" }, "Click a point to open it in What-if."),
      h(
        "div",
        { class: "row" },
        h("div", { style: { flex: "1 1 150px" } }, axis("Across", "x", 1)),
        h("div", { style: { flex: "1 1 150px" } }, axis("Up", "y", 0)),
        h("div", { style: { flex: "2 1 220px" } }, names),
      ),
      at.cloud,
    ),
    found.history.length > 1 && panel("Best and bound over time", at.growth),
    panel(
      "Designs",
      h(
        "p",
        { class: "dim" },
        `A line a design, stronger is better; the axes that matter most first. Choose labels to keep only those designs.`,
      ),
      at.threads,
    ),
    panel(
      "Points",
      h(
        "details",
        { open: Object.keys(page.view.filters).length > 0 },
        h("summary", {}, "Filter by metric"),
        at.filters,
      ),
      at.chosen,
      at.table,
    ),
    h(
      "div",
      { class: "two" },
      found.maps.length > 0 && mapPanel(page, panel),
      panel(
        "What matters",
        h(
          "p",
          { class: "dim" },
          "How much of the variance of the objective (its logarithm) the choice of one axis alone explains.",
        ),
        at.matters,
      ),
    ),
    found.out.length > 0 && outPanel(found),
  );
  page.redraw = () => {
    page.kept = keptPoints(page);
    drawCloud(at.cloud, page, found, null);
    drawThreads(at.threads, page);
    drawTable(page);
  };
  drawCards(at.cards, page, null, found);
  if (found.points) drawFilters(at.filters, page);
  page.redraw();
  if (found.history.length > 1) drawGrowth(at.growth, page, found.history, found.goals);
  drawMatters(at.matters, page);
  if (page.view.named.length) addNamed(page, page.view.named.join(","));
}
