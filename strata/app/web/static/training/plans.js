// The best plans of a training run, found in a job.
import { job } from "../api.js";
import { failure, fill, h, say, table } from "../dom.js";
import { digits, percent, show as text } from "../units.js";

let running = null;

export function findPlans(part, design, set) {
  running?.stop();
  const line = h("span", { class: "dim" }, "waiting for a free place…");
  fill(
    part,
    h(
      "div",
      { class: "panel row", role: "status" },
      h("progress", { "aria-label": "Plans are being priced" }),
      line,
      h("button", { class: "quiet", type: "button", onclick: () => running?.stop() }, "Cancel"),
    ),
  );
  part.scrollIntoView({ block: "nearest" });
  running = job("training/plans", design, (news) => {
    const last = news.told.at(-1);
    if (last) line.textContent = last.said;
  });
  running.done
    .then((done) => {
      if (!part.isConnected) return;
      if (done.state === "cancelled") return fill(part);
      plans(part, done.answer, set);
      say(`best plan: ${done.answer.plan}`);
    })
    .catch((error) => part.isConnected && fill(part, failure(error)));
}

function plans(part, told, set) {
  const first = told.plans[0].tokens_per_s_per_device;
  const by = new Map();
  for (const one of told.levers) by.set(one.lever, [...(by.get(one.lever) ?? []), one]);
  fill(
    part,
    h(
      "div",
      { class: "panel" },
      h("h2", {}, "The best plans, one for each division of the devices"),
      h(
        "p",
        { class: "dim" },
        `${(told.considered + told.refined).toLocaleString("en")} plans priced, ${told.feasible.toLocaleString("en")} fit.`,
      ),
      h(
        "div",
        { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
        table(
          ["plan", "tokens/s/device", "MFU", "memory", "days", "behind"],
          told.plans.map((p) => [
            h(
              "button",
              { class: "quiet tiny", type: "button", onclick: () => set({ plan: p.plan }) },
              p.plan,
            ),
            digits(p.tokens_per_s_per_device, 4),
            percent(p.mfu),
            text(p.memory_B, "B"),
            digits(p.days),
            p.tokens_per_s_per_device === first ? "" : percent(1 - p.tokens_per_s_per_device / first),
          ]),
        ),
      ),
      h(
        "details",
        {},
        h("summary", {}, "What each lever is worth, all others at their best"),
        h(
          "div",
          { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
          table(
            ["lever", "value: what is lost by it"],
            [...by].map(([lever, tried]) => [
              lever,
              tried
                .map((one) => `${one.value}: ${one.loss === null ? "none fits" : `−${percent(one.loss)}`}`)
                .join("  ·  "),
            ]),
            [0, 1],
          ),
        ),
      ),
    ),
  );
}
