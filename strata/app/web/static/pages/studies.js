// page 11, Studies: Claims of the papers, each with what this model finds.
// Studies: what papers claim, what is found here, and the pictures behind it.
import { ask, given_up, job } from "../api.js";
import { failure, fill, h, say } from "../dom.js";
import { address, go, here } from "../state.js";

let listed = null,
  running = null; // the job of the study that is run again

export async function show(main) {
  const { state } = here();
  listed ??= (await ask("studies")).studies;
  const name = state.study ?? listed.find((s) => s.study === "deepstack-layers")?.study ?? listed[0].study;
  if (!main.querySelector("#study"))
    fill(
      main,
      h(
        "div",
        { class: "split" },
        h("nav", { class: "side list", "aria-label": "Studies" }),
        h("div", { class: "stackv", id: "study" }),
      ),
    );
  fill(main.querySelector(".side"), list(name));
  const part = main.querySelector("#study");
  part.classList.add("busy");
  try {
    draw(part, await ask("studies/one", { study: name }));
  } catch (error) {
    if (!given_up(error)) fill(part, failure(error));
  }
  part.classList.remove("busy");
}

const paperOf = (study) => study.paper.split(/[ (,:;]/)[0];

function list(name) {
  const papers = new Map();
  for (const one of listed) papers.set(paperOf(one), [...(papers.get(paperOf(one)) ?? []), one]);
  return [...papers].map(([paper, studies]) =>
    h(
      "div",
      {},
      h("p", { class: "listed" }, paper),
      studies.map((one) =>
        h(
          "a",
          {
            class: "entry",
            href: address("studies", { study: one.study }),
            "aria-current": one.study === name ? "page" : null,
          },
          h("span", {}, one.title),
          h(
            "span",
            { class: "count", hover: `${one.hold} of ${one.claims} claims hold, ${one.pictures} pictures` },
            `${one.hold}/${one.claims}`,
          ),
        ),
      ),
    ),
  );
}

function draw(part, told, now = "") {
  const held = told.claims.filter((c) => c.holds).length;
  fill(
    part,
    h(
      "div",
      {},
      h("h1", {}, told.title),
      h("p", { class: "dim" }, told.paper),
      told.about && h("p", { class: "lead" }, told.about),
    ),
    h(
      "div",
      { class: "row" },
      verdict(held, told.claims.length),
      now && h("span", { class: "mark given" }, now),
      ...again(part, told),
    ),
    h("div", { class: "row", id: "progress", role: "status" }),
    told.pictures.length > 0 &&
      h(
        "div",
        { class: "two" },
        told.pictures.map((p) => picture(p)),
      ),
    h(
      "section",
      { "aria-label": "Claims" },
      h("h2", {}, "Claim by claim"),
      h(
        "ul",
        { class: "claims" },
        told.claims.map((c) => claim(c)),
      ),
    ),
  );
}

const verdict = (held, of) =>
  h(
    "div",
    { class: "verdict" },
    h("strong", {}, `${held} of ${of}`),
    " claims hold",
    h(
      "span",
      { class: "barline small", "aria-hidden": "true" },
      h("span", { style: { width: `${(100 * held) / Math.max(of, 1)}%`, background: "var(--good)" } }),
    ),
  );

// A picture is shown as an image: nothing inside it can run or reach the page.
function picture(p) {
  const address = URL.createObjectURL(new Blob([p.svg], { type: "image/svg+xml" }));
  const image = h("img", { src: address, alt: p.title, loading: "lazy" });
  image.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
  return h("figure", { class: "panel sheet" }, image, h("figcaption", {}, p.title));
}

const claim = (c) =>
  h(
    "li",
    { class: c.holds ? "claim" : "claim out" },
    h(
      "span",
      { class: c.holds ? "tick good" : "tick bad", hover: [["judged by", c.rule]] },
      c.holds ? "✓ holds" : "✗ does not",
    ),
    h(
      "div",
      {},
      h("p", { class: "says" }, c.says),
      h(
        "p",
        {},
        c.paper && ["paper ", h("b", {}, c.paper), " · "],
        "found here ",
        h(
          "b",
          {
            hover: [
              ["how it is worked out", c.formula],
              ["holds where", c.rule],
            ],
          },
          c.ours || "–",
        ),
      ),
      c.note && h("p", { class: "dim" }, c.note),
    ),
  );

function again(part, told) {
  const start = (search) => {
    running?.stop();
    const line = part.querySelector("#progress");
    const stop = h("button", { class: "quiet", type: "button", onclick: () => running?.stop() }, "Cancel");
    const text = h("span", { class: "dim" }, "waiting for a free place…");
    const bar = h("progress", { max: 1, value: 0, "aria-label": "Runs of the study done" });
    fill(line, bar, text, stop);
    running = job("studies/run", { study: told.study, search }, (news) => {
      const last = news.told.at(-1);
      if (!last) return;
      bar.value = last.done / Math.max(last.of, 1);
      text.textContent =
        last.run === "pictures" ? "drawing pictures" : `run ${last.done + 1} of ${last.of}: ${last.run}`;
    });
    running.done
      .then((done) => {
        if (!line.isConnected) return;
        if (done.state === "cancelled") fill(line, h("span", { class: "dim" }, "cancelled"));
        else {
          draw(part, done.answer, `found anew in ${done.seconds.toFixed(0)} s`);
          say("the study was run again");
        }
      })
      .catch((error) => line.isConnected && fill(line, failure(error)));
  };
  return [
    h(
      "button",
      {
        class: "quiet",
        type: "button",
        onclick: () => start(false),
        hover: told.searches
          ? "Every run again; where it searched, the designs found before are evaluated anew."
          : "Every run again, from the shipped data.",
      },
      "Run it again",
    ),
    told.searches &&
      h(
        "button",
        {
          class: "quiet",
          type: "button",
          onclick: () => start(true),
          hover: "Searches from the start; this can take many minutes.",
        },
        "Search anew",
      ),
  ].filter(Boolean);
}
