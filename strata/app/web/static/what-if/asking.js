// Questions of one design: the newest wins. Where the best plan must be searched for, the plan of before answers
// at once, and the best one follows.
import { ask, given_up } from "../api.js";

const known = new Map(); // answers by question
const plans = new Map(); // the plan that was best for a program on a system
const KEPT = 300,
  CALM = 220; // ms without a change before plans are searched

const key = (design) => JSON.stringify(design);
const about = (d) => [d.model, d.system, d.fabric, d.phase, d.engine].join(" ");

async function answered(design, kind) {
  const text = key(design);
  if (known.has(text)) return known.get(text);
  const told = await ask("predict", design, kind);
  known.set(text, told);
  if (known.size > KEPT) known.delete(known.keys().next().value);
  return told;
}

export class Slot {
  constructor(name, ontold, onfail) {
    Object.assign(this, { name, ontold, onfail, next: null, busy: false, timer: 0, turn: 0 });
    this.own = new Map(); // its own best plans go before those of other designs
  }

  plan(design) {
    return this.own.get(about(design)) ?? plans.get(about(design));
  }
  keep(design, plan) {
    this.own.set(about(design), plan);
    plans.set(about(design), plan);
  }

  // `moving`: under the finger; the plan stays as it is until it is let go.
  want(design, moving = false) {
    this.turn += 1;
    clearTimeout(this.timer);
    this.next = { design, moving };
    if (!this.busy) this.run();
  }

  // Designs that may come next are asked for while nothing else is.
  async ahead(designs) {
    for (const design of designs) {
      const held = design.plan === "" ? this.plan(design) : undefined;
      if (this.busy || known.size >= KEPT) return;
      try {
        await answered(held === undefined ? design : { ...design, plan: held }, `ahead ${this.name}`);
      } catch {
        return; // it will be said when it is wanted
      }
    }
  }

  async run() {
    this.busy = true;
    while (this.next) {
      const { design, moving } = this.next,
        turn = this.turn,
        held = design.plan === "" ? this.plan(design) : undefined,
        sure = known.has(key(design)) || held === undefined;
      this.next = null;
      try {
        const told = await answered(sure ? design : { ...design, plan: held }, `predict ${this.name}`);
        if (this.next) continue;
        if (sure && design.plan === "" && told.fits) this.keep(design, told.plan);
        this.ontold(told, design, { held: !sure });
        if (!sure && !moving) this.timer = setTimeout(() => this.best(design, turn), CALM);
      } catch (error) {
        if (given_up(error) || this.next) continue;
        // the held plan may be no plan of the changed design: then the search says
        if (sure || moving) this.onfail(error, design);
        else this.best(design, turn);
      }
    }
    this.busy = false;
  }

  async best(design, turn) {
    try {
      const told = await answered(design, `best ${this.name}`);
      if (turn !== this.turn) return;
      if (told.fits) this.keep(design, told.plan);
      this.ontold(told, design, { held: false });
    } catch (error) {
      if (turn === this.turn && !given_up(error)) this.onfail(error, design);
    }
  }
}
