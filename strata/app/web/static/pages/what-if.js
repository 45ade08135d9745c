// page 1, What-if: Move a number and see time, heat, memory and cost answer at once.
// What-if: designs side by side; every change is asked at once.
import { ask, catalogue, given_up } from "../api.js";
import { failure, fill, h, say } from "../dom.js";
import { keepFocus } from "../what-if/focus.js";
import { beside, cards, memory, misfit, trusted } from "../what-if/answer.js";
import { Slot } from "../what-if/asking.js";
import {
  arrived,
  can,
  differences,
  LETTERS,
  MOST,
  read,
  step as stepped,
  write,
} from "../what-if/designs.js";
import { inputs, otherPlans } from "../what-if/inputs.js";
import { Numbers } from "../what-if/numbers.js";
import { breakdown, gained, operations, step } from "../what-if/pictures.js";
import { roofline } from "../what-if/roofline.js";
import { button, copy, handing } from "../what-if/share.js";
import { Sweeping } from "../what-if/sweep.js";

let page = null; // what stands in the document

export async function show(main) {
  arrived();
  const known = await catalogue();
  if (!page || !main.contains(page.root)) page = new Page(main, known);
  page.update(read());
}

class Page {
  constructor(main, known) {
    this.known = known;
    this.answers = [];
    this.held = [];
    this.errors = [];
    this.slots = LETTERS.map(
      (letter, i) =>
        new Slot(
          letter,
          (...t) => this.told(i, ...t),
          (e) => this.failed(i, e),
        ),
    );
    this.form = h("form", {
      class: "stackv",
      onsubmit: (e) => e.preventDefault(),
      "aria-label": "The design",
    });
    const figures = h("div", { class: "numbers" });
    this.numbers = new Numbers(
      figures,
      (...moved) => this.move(...moved),
      (path, values) => {
        const design = this.state.designs[this.state.open];
        const slot = this.slots[this.state.open];
        slot.ahead(values.map((value) => ({ ...design, set: { ...design.set, [path]: value } })));
      },
    );
    this.bar = h("div", { class: "row toolbar", role: "toolbar", "aria-label": "Designs" });
    this.head = h("div", { class: "stackv" });
    this.top = h("div", { class: "stackv" });
    this.base = new Slot(
      "shipped",
      (told) => {
        this.shipped = told;
        this.draw(null, -1);
      },
      () => {},
    );
    this.pictures = h("div", { class: "stackv" });
    this.gains = h("section", { class: "panel", hidden: true });
    this.below = h("div", { class: "stackv" });
    const swept = h("section", { class: "panel stackv", id: "sweep" });
    this.sweep = new Sweeping(swept, (asked) => {
      this.state.sweep = asked;
      write(this.state);
      this.update(this.state);
    });
    this.swept = swept;
    this.root = h(
      "div",
      { class: "split whatif" },
      h("div", { class: "side" }, this.form, figures),
      h(
        "div",
        { class: "stackv", id: "answer" },
        this.bar,
        this.head,
        this.top,
        swept,
        this.pictures,
        this.gains,
        this.below,
      ),
    );
    fill(main, this.root);
    this.root.ownerDocument.addEventListener("keydown", (e) => this.key(e));
  }

  key(e) {
    if (!this.root.isConnected || !(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== "z") return;
    if (/^(text|search|number|)$/.test(e.target.type ?? "x") && e.target.tagName === "INPUT") return;
    e.preventDefault();
    this.turn(!e.shiftKey);
  }
  turn(back) {
    if (stepped(back)) this.update(read());
    say(back ? "Undone." : "Redone.");
  }

  // ------------------------------------------------------------------------------------------ changes
  change(changes, moving = false) {
    const { designs, open } = this.state;
    designs[open] = { ...designs[open], ...changes };
    if (moving) return this.slots[open].want(designs[open], true);
    write(this.state);
    this.update(this.state);
  }
  move(path, value, moving) {
    const design = this.state.designs[this.state.open];
    const set = path === null ? {} : { ...design.set };
    if (path !== null && value === null) delete set[path];
    else if (path !== null) set[path] = value;
    this.change({ set }, moving);
  }
  arrange(designs, open, pin) {
    this.state = { ...this.state, designs, open, pin };
    this.answers = [];
    write(this.state);
    this.update(this.state);
  }

  // ------------------------------------------------------------------------------------------ drawing
  update(state) {
    this.state = state;
    const { designs, open } = state;
    keepFocus(this.form, () =>
      fill(
        this.form,
        inputs(this.known, designs[open], (c) => this.change(c)),
      ),
    );
    this.tools();
    this.numbers.update(designs[open]).then(() => this.sweeping());
    this.sweeping();
    this.root.querySelector("#answer").classList.add("busy");
    designs.forEach((design, i) => this.slots[i].want(design));
    if (designs.length === 1 && Object.keys(designs[0].set).length)
      this.base.want({ ...designs[0], set: {} });
  }
  sweeping() {
    const { designs, open, sweep } = this.state;
    const every = this.numbers.told && Object.values(this.numbers.told.owners).flatMap((o) => o.numbers);
    this.sweep.update(designs[open], sweep, every);
    // a sweep that was asked for stands first; else it waits below the pictures
    const answer = this.root.querySelector("#answer");
    if (sweep && this.swept.previousSibling !== this.head) this.head.after(this.swept);
    if (!sweep && answer.lastChild !== this.swept) answer.append(this.swept);
  }

  tools() {
    const { designs, open, pin } = this.state;
    fill(
      this.bar,
      designs.map((_, i) =>
        button(`Design ${LETTERS[i]}`, () => this.arrange(designs, i, pin), {
          "aria-pressed": String(i === open),
        }),
      ),
      designs.length < MOST &&
        button("+ Duplicate", () =>
          this.arrange([...designs, structuredClone(designs[open])], designs.length, pin),
        ),
      designs.length > 1 && open !== pin && button("Pin this", () => this.arrange(designs, open, open)),
      designs.length > 1 &&
        button("Remove this", () => {
          const left = designs.filter((_, i) => i !== open);
          this.arrange(left, Math.max(0, open - 1), pin > open ? pin - 1 : Math.min(pin, left.length - 1));
        }),
      h("span", { class: "grow" }),
      button("Undo", () => this.turn(true), { disabled: !can.undo() }),
      button("Redo", () => this.turn(false), { disabled: !can.redo() }),
      button("Copy link", () => copy(location.href, "The link is copied: it opens this very page.")),
    );
  }

  told(i, told, design, { held }) {
    this.answers[i] = told;
    this.held[i] = held;
    this.errors[i] = null;
    this.draw(design, i);
  }
  failed(i, error) {
    this.errors[i] = error;
    this.answers[i] = null;
    this.draw(this.state.designs[i], i);
  }

  draw(design, changed) {
    const { designs, open, pin } = this.state;
    const told = this.answers[open];
    const many = designs.length > 1;
    const answer = this.root.querySelector("#answer");
    if (this.errors[open]) {
      answer.classList.remove("busy");
      fill(this.head, h("h1", {}, "What if"), failure(this.errors[open]));
      fill(this.top);
      fill(this.pictures);
      fill(this.below);
      this.gains.hidden = true;
      return;
    }
    if (!told) return;
    answer.classList.remove("busy");
    const moved = !many && Object.keys(designs[open].set).length > 0;
    const other = many && pin !== open ? this.answers[pin] : moved ? this.shipped : null;
    const pinned = other && { ...other, called: many ? `pinned design ${LETTERS[pin]}` : "as shipped" };
    const words = (d, i) =>
      i === pin ? `${d.model} on ${d.system}` : differences(d, designs[pin]).join("; ") || "nothing";
    fill(
      this.head,
      h("h1", {}, told.title),
      told.fits
        ? h("p", { class: "lead" }, h("strong", {}, `Bound by ${told.binds}.`), ` ${told.sentence.join(" ")}`)
        : misfit(told, designs[open], (c) => this.change(c)),
      h(
        "p",
        { class: "dim planline" },
        this.held[open]
          ? `Plan ${told.plan} of before; looking for the best one…`
          : told.plan_text && `${told.plan_text.replace("plan", "Plan")}; others are ranked below.`,
      ),
    );
    fill(
      this.top,
      told.fits && cards(told, pinned),
      many && beside(LETTERS, designs, this.answers, { open, pin }, { words }),
      memory(told),
    );
    if (changed !== open) return;
    // numbers first, pictures in the next frame
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.drawn(told, designs[open]));
  }

  drawn(told, design) {
    if (told.fits)
      fill(
        this.pictures,
        step(told),
        h("div", { class: "two" }, roofline(told), breakdown(told)),
        trusted(told),
      );
    else fill(this.pictures);
    fill(
      this.below,
      told.fits && operations(told),
      otherPlans(design, told.plan, (c) => this.change(c)),
      handing(this.state.designs, this.answers, this.state.open),
    );
    this.gain(told, design);
  }

  // What more would buy takes longer than an answer: it comes when nothing has moved for a while.
  gain(told, design) {
    clearTimeout(this.later);
    this.gains.classList.add("busy");
    if (!told.fits) {
      this.gains.hidden = true;
      return;
    }
    this.later = setTimeout(async () => {
      try {
        const found = await ask("gains", { ...design, plan: told.plan });
        fill(this.gains, gained(found));
        this.gains.hidden = false;
        this.gains.classList.remove("busy");
      } catch (error) {
        if (!given_up(error)) this.gains.hidden = true;
      }
    }, 700);
  }
}
