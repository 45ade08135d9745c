// The form of the fabric page: what is joined, the plan, and the collective.
import { choice, entry, fill, h } from "../dom.js";
import { show as text } from "../units.js";

export const GROUPS = {
  tp: "TP",
  cp: "CP",
  dp: "DP",
  pp: "PP",
  ep: "EP",
  dp_cp: "DP × CP: copies of weights",
  dp_shard: "DP: shards of ZeRO",
  expert_tp: "parts of an expert",
  expert_dp: "copies of experts",
};

export function fabricForm(part, { design, known, told, found, cost, set }) {
  const names = (kind) => known[kind].map((e) => e.name);
  const axes = told?.axes ?? [];
  const axis = axes.find((a) => a.axis === design.axis)?.axis ?? axes[0]?.axis ?? "";
  const none = { group: "", pattern: "", bytes: 0, schedule: "" };
  fill(
    part,
    entry("System", design.system, (v) => set({ system: v, device: "", ...none }), {
      list: "systems",
      placeholder: "8x8xh200",
    }),
    h(
      "datalist",
      { id: "systems" },
      [...names("systems"), "8x8xh200", "32x8xh100", "256xtpu-v5p", "72xb200", "8xmi325x"].map((n) =>
        h("option", { value: n }),
      ),
    ),
    choice("Fabric", design.fabric, [["", "its own"], ...known.fabrics.map((f) => [f.name, f.name])], (v) =>
      set({ fabric: v, device: "", ...none }),
    ),
    entry("Plan", design.plan, (v) => set({ plan: v, ...none }), { placeholder: told?.plan ?? "tp=8,dp=8" }),
    axes.length > 0 &&
      h(
        "div",
        { class: "pair" },
        choice(
          "Colours by",
          axis,
          axes.map((a) => [a.axis, `${a.axis.toUpperCase()} of ${a.size}`]),
          (v) => set({ axis: v }),
        ),
        choice(
          "A colour is",
          design.mode,
          [
            ["group", "a group that talks"],
            ["number", "a rank's number"],
          ],
          (v) => set({ mode: v }),
        ),
      ),
    told?.drawn &&
      entry("Show device", design.device, (v) => set({ device: v }), {
        type: "number",
        min: 0,
        max: told.devices - 1,
        placeholder: "rest on one, or type",
      }),
    h("hr", {}),
    choice("Model, for its collectives", design.model, names("models"), (v) => set({ model: v, ...none })),
    h(
      "div",
      { class: "pair" },
      choice("Phase", design.phase, ["prefill", "decode", "train"], (v) => set({ phase: v, ...none })),
      entry("Batch", design.batch, (v) => set({ batch: Number(v), ...none }), { type: "number", min: 1 }),
    ),
    found && [
      h(
        "div",
        { class: "pair" },
        choice(
          "Group",
          found.group,
          Object.keys(told.groups)
            .filter((g) => GROUPS[g])
            .map((g) => [g, `${GROUPS[g]} (${told.groups[g]})`]),
          (v) => set({ ...none, group: v }),
        ),
        choice(
          "Collective",
          found.pattern,
          ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"].map((p) => [
            p,
            p.replaceAll("_", "-"),
          ]),
          (v) => set({ group: found.group, pattern: v, schedule: "" }),
        ),
      ),
      h(
        "label",
        {},
        `Bytes of a rank: ${text(found.bytes, "B")}`,
        h("input", {
          type: "range",
          min: 3,
          max: 33,
          step: 0.25,
          value: String(Math.log2(found.bytes)),
          onchange: (e) => set({ ...found, bytes: Math.round(2 ** Number(e.target.value)) }),
        }),
      ),
      h(
        "div",
        { class: "pair" },
        choice(
          "Links carry",
          cost?.loads?.schedule ?? "",
          (cost?.loads?.schedules ?? [""]).map((n) => [n, n.replaceAll("_", " ")]),
          (v) => set({ ...found, schedule: v }),
        ),
        choice("Library", design.engine, names("engines"), (v) => set({ engine: v })),
      ),
    ],
  );
}
