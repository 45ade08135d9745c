// page 7, Serving: Latency against load, the cheapest fleet for an SLO, a minute of requests.
// Serving: a service under load. Closed forms answer at once; a simulation of every request follows as a job.
import { ask, catalogue, given_up, job } from "../api.js";
import { choice, entry, failure, fill, h, say } from "../dom.js";
import { go, here } from "../state.js";
import { digits, percent, show as text } from "../units.js";
import { drawMinute } from "../serving/minute.js";
import { drawCurves, drawDistributions, drawFrontier } from "../serving/charts.js";
import { cards, launch, plans, rivals, stopRivals } from "../serving/panels.js";

const START = {
  model: "llama-3-70b",
  system: "8xh200",
  plan: "",
  engine: "vllm",
  weights: "",
  kv: "",
  set: {},
  load: "poisson",
  rate: 4,
  clients: 16,
  burstiness: 4,
  peak: 3,
  turns: 4,
  think: 10,
  input: 1024,
  output: 256,
  input_shape: "lognormal",
  output_shape: "fixed",
  spread: 0.5,
  ttft: 1,
  tpot: 0.04,
  share: 0.95,
  seed: 0,
};
const RIVALS = ["8xh200", "8xh100", "8xb200", "8xmi300x"];
const LOADS = [
  ["poisson", "Poisson arrivals"],
  ["even", "Even arrivals"],
  ["gamma", "Gamma: in clumps"],
  ["bursty", "Bursty: on and off"],
  ["closed", "Closed loop: clients that wait"],
  ["sessions", "Chat sessions of turns"],
  ["agents", "Agents that call tools"],
];
const SHAPES = [
  ["fixed", "all alike"],
  ["uniform", "uniform"],
  ["lognormal", "lognormal"],
  ["exponential", "exponential"],
];
let running = null,
  asked = 0;
const stopRuns = () => {
  running?.stop();
  stopRivals();
  running = null;
};
addEventListener("hashchange", () => here().page !== "serving" && stopRuns());

export async function show(main) {
  const { state } = here();
  const service = { ...START, ...state.service };
  const page = { service, rivals: state.rivals ?? RIVALS, known: await catalogue(), main };
  fill(
    main,
    h(
      "div",
      { class: "split" },
      h("form", { class: "side", "aria-label": "Service", onsubmit: (e) => e.preventDefault() }),
      h("div", { class: "stackv" }),
    ),
  );
  page.keep = () => go("serving", { service: changed(service), rivals: page.rivals });
  page.side = main.querySelector(".side");
  page.answer = main.querySelector(".stackv");
  form(page);
  await answer(page);
}

function form(page) {
  const { service, known } = page;
  const set = (name, value, again = false) => {
    service[name] = value;
    page.keep();
    if (again) form(page);
    answer(page);
  };
  const names = (kind) => known[kind].map((e) => e.name);
  const number = (label, name, attrs = {}, scale = 1) =>
    entry(
      label,
      service[name] === null ? "" : Number((service[name] * scale).toPrecision(6)),
      (v) => set(name, v === "" ? null : Number(v) / scale),
      { type: "number", step: "any", min: 0, ...attrs },
    );
  const closed = service.load === "closed";
  const sessions = ["sessions", "agents"].includes(service.load);
  const shapes = (label, name) => choice(label, service[name], SHAPES, (v) => set(name, v, true));
  const lognormal = [service.input_shape, service.output_shape].includes("lognormal");
  fill(
    page.side,
    h("h2", {}, "Deployment"),
    choice("Model", service.model, names("models"), (v) => set("model", v)),
    entry("System", service.system, (v) => set("system", v), { list: "serving-systems" }),
    h(
      "datalist",
      { id: "serving-systems" },
      names("systems").map((n) => h("option", { value: n })),
      names("chips").map((n) => h("option", { value: `8x${n}` })),
    ),
    h(
      "div",
      { class: "pair" },
      entry("Plan", service.plan, (v) => set("plan", v), { placeholder: "best" }),
      choice("Engine", service.engine, names("engines"), (v) => set("engine", v)),
      choice("Weights", service.weights, [["", "as published"], ...precisions(known)], (v) =>
        set("weights", v),
      ),
      choice("KV cache", service.kv, [["", "as published"], ...precisions(known)], (v) => set("kv", v)),
    ),
    h("h2", {}, "Load"),
    choice("Arrivals", service.load, LOADS, (v) => set("load", v, true)),
    closed
      ? number("Clients", "clients", { min: 1, max: 4096, step: 1 })
      : number(sessions ? "Sessions per second" : "Requests per second", "rate", { min: 0.002 }),
    service.load === "gamma" && number("Squared variation of gaps", "burstiness", { max: 50 }),
    service.load === "bursty" && number("Peak over mean rate", "peak", { min: 1, max: 100 }),
    sessions &&
      h(
        "div",
        { class: "pair" },
        number("Turns", "turns", { min: 1, max: 32, step: 1 }),
        number("Thinking, s", "think", { max: 3600 }),
      ),
    h(
      "div",
      { class: "pair" },
      number("Input tokens", "input", { min: 1, step: 1 }),
      shapes("Input lengths", "input_shape"),
      number("Output tokens", "output", { min: 2, step: 1 }),
      shapes("Output lengths", "output_shape"),
      lognormal && number("Spread (log)", "spread", { max: 2 }),
    ),
    h("h2", {}, "SLO"),
    h(
      "div",
      { class: "triple" },
      number("TTFT, ms", "ttft", {}, 1e3),
      number("TPOT, ms", "tpot", {}, 1e3),
      number("Share, %", "share", { min: 50, max: 99.9 }, 100),
    ),
  );
}
const precisions = (known) =>
  known.precisions.map((p) => (typeof p === "string" ? p : p.name)).map((n) => [n, n]);
const changed = (service) =>
  Object.fromEntries(
    Object.entries(service).filter(([k, v]) => JSON.stringify(v) !== JSON.stringify(START[k])),
  );

async function answer(page) {
  const turn = ++asked;
  running?.stop();
  running = null;
  page.answer.classList.add("busy");
  say("");
  try {
    const told = await ask("serving", page.service);
    if (turn !== asked || !page.answer.isConnected) return;
    page.told = told;
    page.run = null;
    page.points = [];
    page.largest = null;
    layout(page);
    refresh(page);
    simulate(page, turn);
  } catch (error) {
    if (given_up(error) || turn !== asked) return;
    fill(page.answer, h("h1", {}, "Serving"), failure(error));
  } finally {
    if (turn === asked) page.answer.classList.remove("busy");
  }
}

function simulate(page, turn) {
  page.state = "Simulating every request…";
  // under the plan that closed forms found best, so that both speak of one deployment
  const mine = job("serving/simulated", { ...page.service, plan: page.told.plan }, (told) => {
    if (turn !== asked) return;
    if (!page.answer.isConnected) return mine.stop();
    for (const news of told.told) {
      if (news.run) page.run = news.run;
      if (news.point) page.points.push(news.point);
      if (news.tried)
        page.state = `Looking for the largest rate: ${digits(news.tried)}/s, ${percent(news.kept)} within limits`;
    }
    if (told.answer?.largest) page.largest = told.answer.largest;
    if (told.state === "done") page.state = "";
    refresh(page);
  });
  running = mine;
  mine.done.catch((error) => {
    if (turn === asked && page.answer.isConnected) {
      page.state = "";
      page.failed = error;
      refresh(page);
    }
  });
}

function layout(page) {
  page.failed = null;
  const panel = (title, ...inside) => h("section", { class: "panel" }, h("h2", {}, title), ...inside);
  const at = (page.at = {
    lead: h("div", {}),
    cards: h("div", { class: "cards" }),
    minute: h("div", {}),
    ttft: h("div", {}),
    tpot: h("div", {}),
    ttftWithin: h("div", {}),
    tpotWithin: h("div", {}),
    frontier: h("div", {}),
    cost: h("div", {}),
    costs: h("div", { class: "stackv" }),
  });
  const closed = page.service.load === "closed";
  fill(
    page.answer,
    h("div", {}, h("h1", {}, page.told.title), at.lead),
    at.cards,
    panel("A simulated minute of requests", at.minute),
    panel(
      `Latency against ${closed ? "clients" : "load"}`,
      h(
        "p",
        { class: "dim" },
        `Lines: closed forms, at once. Dots: simulated, hollow where saturated. ${page.told.note}`,
      ),
      h("div", { class: "two" }, at.ttft, at.tpot),
    ),
    panel("Share of requests within a time", h("div", { class: "two" }, at.ttftWithin, at.tpotWithin)),
    closed ? null : rivals(page, panel),
    panel(
      "Throughput against interactivity",
      h(
        "p",
        { class: "dim" },
        "Each point is a plan with so many requests at once, within the limits; no other is better for users and for devices.",
      ),
      at.frontier,
    ),
    launch(page, panel),
    plans(page),
  );
  drawFrontier(at.frontier, page.told.frontier);
}

function refresh(page) {
  const { told, run, at, service } = page;
  const line = (kind, words) =>
    words && h("p", { class: kind, role: kind === "error" ? "alert" : null }, words);
  const from = run?.saturated_from;
  fill(
    at.lead,
    h("p", { class: "lead" }, sentence(page)),
    line("error", told.saturated && `Saturated: ${told.saturated}.`),
    line("error", told.missed && `${told.missed[0].toUpperCase()}${told.missed.slice(1)}.`),
    line(
      "error",
      from !== null &&
        from !== undefined &&
        `Saturated from ${text(from, "s")} on: requests come faster than they are served, and the queue grows until the last.`,
    ),
    page.failed && failure(page.failed),
    page.state && h("p", { class: "dim", role: "status" }, page.state),
  );
  fill(at.cards, cards(page));
  drawMinute(at.minute, run, page.state);
  drawCurves(at, page);
  drawDistributions(at, run, service);
}

function sentence(page) {
  const { told, service, largest } = page;
  const limits = ["ttft", "tpot"]
    .filter((n) => service[n] !== null)
    .map((n) => `${n.toUpperCase()} within ${text(service[n], "s")}`);
  if (!limits.length) return `Plan ${told.plan} completes at most ${digits(told.most_rate)} requests/s.`;
  if (service.load === "closed")
    return `${digits(service.clients)} clients on plan ${told.plan}${page.run ? `: ${percent(page.run.kept)} of requests have ${limits.join(" and ")}` : ""}.`;
  const slo = `${percent(service.share, 0)} of requests with ${limits.join(" and ")}`;
  if (largest && largest.rate > 0)
    return `Plan ${told.plan} holds the SLO (${slo}) up to ${digits(largest.rate)} requests/s.`;
  if (largest) return `Even one request at a time does not hold the SLO (${slo}).`;
  return `Plan ${told.plan} holds the SLO (${slo}) up to about ${digits(told.goodput ?? 0)} requests/s by closed forms.`;
}
