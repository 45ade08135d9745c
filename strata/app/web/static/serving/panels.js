// Parts of the serving page: headline numbers, the cheapest of several systems, how to start it, plans.
import { job } from "../api.js";
import { choice, entry, failure, fill, folded, h } from "../dom.js";
import { digits, percent, show as text } from "../units.js";
import { drawCost } from "./charts.js";

let rivalsRun = null;
export const stopRivals = () => {
  rivalsRun?.stop();
  rivalsRun = null;
};

export function cards(page) {
  const { told, run, largest, service } = page;
  const load = told.load;
  const sure = largest?.confidence;
  const how = run ? "simulated, request by request (strata simulate)" : "closed forms (strata serving)";
  const card = (label, value, under, hover, main) =>
    h(
      "div",
      { class: main ? "card main" : "card", hover: [["how", how], ...(hover ?? [])] },
      h("div", { class: "label" }, label),
      h("div", { class: "value" }, value),
      h("div", { class: "under" }, under ?? ""),
    );
  const ps = (t) => (t ? `p50 ${text(t.p50, "s")} · p95 ${text(t.p95, "s")} · p99 ${text(t.p99, "s")}` : "");
  const perM = run ? run.energy_per_token * 1e6 : load?.energy_per_mtoken;
  const usd = run ? run.cost_per_mtoken : load?.cost_per_mtoken;
  const tokens = run ? run.tokens_per_s : load?.tokens_per_s;
  const closed = service.load === "closed";
  return [
    !closed &&
      card(
        "Largest rate within the SLO",
        largest ? `${digits(largest.rate)}/s` : `≈ ${digits(told.goodput ?? 0)}/s`,
        largest ? `closed form ${digits(told.goodput ?? 0)}/s` : "closed form; simulated follows",
        [
          ["formula", "the largest rate at which the share keeps all limits once the service is steady"],
          ["within limits there", sure ? `${percent(sure.kept)} (${percent(sure.kept_low)} to ${percent(sure.kept_high)}, 99 %)` : ""],
          ["requests simulated there", sure ? `${digits(sure.requests)} after ${digits(sure.warm_up)} of warm-up` : ""],
          ["next rate that does not", largest?.above ? `${digits(largest.above)}/s` : ""],
          ["highest rate served at all (closed form)", `${digits(told.most_rate)}/s`],
        ],
        true,
      ),
    card(
      "TTFT, mean",
      text(run ? run.ttft.mean : load?.ttft, "s"),
      run ? ps(run.ttft) : load ? `p95 ${text(load.ttft_p95, "s")}` : "",
      [["unit", "s, from arrival to the first token"]],
    ),
    card("TPOT, mean", text(run ? run.tpot.mean : load?.tpot, "s"), run ? ps(run.tpot) : "", [
      ["unit", "s per output token after the first"],
    ]),
    run &&
      card("Within the limits", percent(run.kept), `${digits(run.goodput)} requests/s of goodput`, [
        ["formula", "requests that keep all limits / all requests; refused ones keep none"],
      ]),
    card(
      "Tokens/s",
      text(tokens),
      `${text(tokens === undefined ? undefined : tokens / (run?.devices ?? 1), "")} ${run ? "per device" : ""}`,
      [["unit", "tokens generated per second"]],
    ),
    card("Energy per million tokens", text(perM, "J"), run ? `${text(run.power, "W")} in all` : "", [
      ["formula", "mean power of all devices and hosts / tokens generated per second"],
    ]),
    card("USD per million tokens", usd === null || usd === undefined ? "–" : digits(usd), "", [
      ["formula", "price of the fleet per second, bought over its life plus power / tokens per second"],
      ["source", "prices of the chip's file and strata's economics"],
    ]),
    run &&
      card("KV cache in use", percent(run.kv_use), `at most ${percent(run.kv_highest)}`, [
        ["formula", "blocks held by requests / blocks there are, mean over time"],
      ]),
    run &&
      card("Preemptions", digits(run.preemptions), `${digits(run.completed)} requests completed`, [
        ["unit", "times a request lost its cache for want of room"],
      ]),
  ];
}

export function rivals(page, panel) {
  const entries = () => page.rivals.join(", ");
  const list = entry("Systems to compare", entries(), (v) => {
    page.rivals = v
      .split(/[\s,]+/)
      .filter(Boolean)
      .slice(0, 6);
    page.keep();
  });
  const button = h("button", { type: "button" }, "Find the cheapest");
  const status = h("p", { class: "dim", role: "status" });
  button.addEventListener("click", () => compareSystems(page, button, status));
  return panel(
    "Which system serves this cheapest under the SLO",
    h(
      "p",
      { class: "dim" },
      "Promising plans of each system at several rates, every request simulated; only what holds the SLO counts.",
    ),
    h("div", { class: "row" }, h("div", { style: { flex: "1 1 260px" } }, list), button),
    status,
    page.at.costs,
  );
}

function compareSystems(page, button, status) {
  rivalsRun?.stop();
  const points = [];
  button.disabled = true;
  const { at } = page;
  fill(at.costs, at.cost);
  const mine = (rivalsRun = job(
    "serving/cost",
    { ...page.service, plan: "", systems: page.rivals },
    (told) => {
      if (!at.costs.isConnected) return mine.stop();
      for (const news of told.told) {
        if (news.priced) status.textContent = `Priced ${news.priced}: ${news.plans.join("; ")}`;
        else points.push(news);
      }
      if (points.length) {
        status.textContent = `${points.length} runs simulated…`;
        drawCost(at.cost, { points, best: [], latency: "tpot", share: page.service.share });
      }
    },
  ));
  mine.done
    .then(({ answer: found }) => {
      if (!found || !at.costs.isConnected) return;
      status.textContent = "";
      drawCost(at.cost, found);
      const first = found.cheapest[0];
      fill(
        at.costs,
        h(
          "p",
          { class: "lead" },
          first
            ? `Cheapest under this SLO: ${first.fleet}, ${digits(first.cost)} USD per million tokens at ${digits(first.rate)} requests/s.`
            : "None of these holds the SLO at any rate.",
        ),
        at.cost,
        costTable(found),
      );
    })
    .catch((error) => at.costs.isConnected && fill(at.costs, failure(error)))
    .finally(() => {
      button.disabled = false;
    });
}

function costTable(found) {
  const row = (p) => [
    p.fleet,
    `${digits(p.cost)} USD`,
    `${digits(p.rate)}/s`,
    text(p.seen, "s"),
    text(p.energy * 1e6, "J"),
  ];
  const head = [
    "System and plan",
    "per million tokens",
    "at",
    `${found.latency.toUpperCase()} p${digits(found.share * 100)}`,
    "J per million",
  ];
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((c, i) => h("th", { scope: "col", class: i ? "n" : null }, c)),
        ),
      ),
      h(
        "tbody",
        {},
        found.cheapest.map((p) =>
          h(
            "tr",
            {},
            row(p).map((c, i) => h("td", { class: i ? "n" : null }, c)),
          ),
        ),
      ),
    ),
    found.missed.length > 0 && h("p", { class: "dim" }, `Never within the SLO: ${found.missed.join(", ")}.`),
    found.left_out.map((o) => h("p", { class: "dim" }, `${o.system} is left out: ${o.why}`)),
  );
}

export function launch(page, panel) {
  const box = h("pre", {
    class: "wide",
    tabindex: "0",
    "aria-label": "Launch command",
    style: { margin: "8px 0" },
  });
  const note = h("span", { class: "dim", role: "status" });
  const copy = h("button", { type: "button", class: "quiet" }, "Copy");
  let now = page.told.launch[0];
  const open = (engine) => {
    now = page.told.launch.find((l) => l.engine === engine);
    fill(box, now.text || now.why);
    copy.disabled = !now.text;
    note.textContent = "";
  };
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(now.text);
      note.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(box);
      note.textContent = "selected: copy it with the keyboard";
    }
  });
  const pick = choice(
    "Engine to start",
    now.engine,
    page.told.launch.map((l) => l.engine),
    open,
  );
  open(now.engine);
  return panel(
    "Start it",
    h("div", { class: "row" }, h("div", { style: { width: "180px" } }, pick), copy, note),
    box,
  );
}

export const plans = (page) =>
  folded(
    "Plans, best first",
    ["Plan", "at once", "requests/s", "TTFT", "TPOT", "USD per million", "limited by"],
    page.told.plans.map((p) => [
      p.plan,
      digits(p.batch),
      digits(p.requests_per_s),
      text(p.ttft, "s"),
      text(p.tpot, "s"),
      p.cost_per_mtoken ? digits(p.cost_per_mtoken) : "–",
      p.limited_by ?? "",
    ]),
    [0, 6],
  );
