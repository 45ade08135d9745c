"""The page of models, from the shipped files and the corpus of configs: `python docs/scripts/models_page.py
docs/models.md`.
"""

import json
import sys
from pathlib import Path

from strata.adapters.huggingface.config import reading
from strata.adapters.huggingface.names import NotModelled, families, refusals, wrappers
from strata.base.units import show
from strata.params import data_folder, names
from strata.workload.tasks import decode

CORPUS = Path(__file__).parents[2] / "tests" / "data" / "configs"
CONTEXT = 32768.0
HEAD = """# Models

Written by `python docs/scripts/models_page.py docs/models.md`; do not edit this page.

A model is a Hugging Face `config.json`: a shipped one by its name as on the Hub (`meta-llama/Llama-3.1-70B-Instruct`,
`Qwen/Qwen3-235B-A22B-FP8`; owner, case and endings such as `-Instruct` do not matter, `-FP8`, `-NVFP4`, `-AWQ` say how the
weights are stored), or any other by its path. Every key is read, known to say nothing of sizes, or listed as unread by
`strata show model`; sizes are checked for type, sign, wholeness and the relations between them. An architecture that is not
modelled is refused by name with what would be needed, never priced as something else; `"_strata": {"as": "llama"}` in the
file reads it as a family of your choice.

"""


def models_page() -> str:
    """The whole page."""
    shipped, kept = _shipped(), _kept()
    read = [(n, c, f) for n, c, f in (*shipped, *kept) if "refused" not in f]
    out = [(n, c, f) for n, c, f in kept if "refused" in f]
    kinds = {config["model_type"] for _, config, _ in (*read, *out)}
    counted = f"{len(read) + len(out)} configs of {len(kinds)} architectures, {len(out)} of them refused"
    return "".join([HEAD, _read_table(read, len(shipped), counted), _refused_table(out), _families()])


def _shipped() -> list[tuple[str, dict, dict]]:
    found = []
    for name in names("models"):
        config = json.loads((data_folder("models") / f"{name}.json").read_text(encoding="utf-8"))
        found.append((name, config, config["_strata"]))
    return found


def _kept() -> list[tuple[str, dict, dict]]:
    index = json.loads((CORPUS / "index.json").read_text(encoding="utf-8"))
    return [(n, json.loads((CORPUS / f"{n}.json").read_text(encoding="utf-8")), f) for n, f in index.items()]


def _read_table(read: list, shipped: int, counted: str) -> str:
    lines = [
        "## Parameters against what is published",
        "",
        f"{counted}. The first {shipped} are shipped: `strata predict -m NAME`. The others are kept as a test. Off is how",
        "far the parameters of our graph are from those published; sources stand in `strata show model NAME` and in",
        "`tests/data/configs/index.json`. The last column is what a sequence of 32,768 tokens keeps between steps, in",
        "16 bits (states in 32): full caches, caches no longer than a window, and states of fixed size.",
        "",
        "| model | architecture | layers | attention | published | counted | off | cache |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, config, facts in read:
        model = reading(config, name).model
        graph = model.trace(decode(1.0, CONTEXT))
        count, told = float(graph.parameters()), float(facts["parameters"])
        mixing = " + ".join(f"{model.pattern.total(0, k):g} {k}" for k in model.pattern.kinds(0))
        lines.append(
            f"| {name} | {config['model_type']} | {model.layers:g} | {mixing} | {told / 1e9:,.3f} B | "
            f"{count / 1e9:,.3f} B | {100 * (count / told - 1):+.2f} % | {show(_kept_bytes(graph), 'B')} |"
        )
    return "\n".join(lines) + "\n\n"


def _kept_bytes(graph) -> float:
    held = 0.0
    for block in graph.blocks:
        for op in block.ops:
            held += float(block.count * (op.cache_bytes(1.0) + (op.state_bytes() or 0.0)))
    return held


def _refused_table(out: list) -> str:
    lines = ["## Refused", "", "| model | said |", "| --- | --- |"]
    for name, config, _ in out:
        try:
            reading(config, name)
        except NotModelled as error:
            lines.append(f"| {name} | {str(error).partition(': ')[2]} |")
    return "\n".join(lines) + "\n\n"


def _families() -> str:
    notes = {n: f for n, f in families().items() if f.note}
    lines = [
        "## Architectures",
        "",
        f"Read ({len(families())}): " + ", ".join(f"`{n}`" for n in sorted(families())),
    ]
    lines += ["", "Simplified:", "", *(f"- `{n}`: {f.note}" for n, f in sorted(notes.items()))]
    lines += ["", "Read as the text decoder inside of: " + ", ".join(f"`{n}`" for n in sorted(wrappers()))]
    reasons: dict[str, list[str]] = {}
    for kind, why in refusals().items():
        reasons.setdefault(why, []).append(kind)
    lines += [
        "",
        "Refused:",
        "",
        *(f"- {why}: " + ", ".join(f"`{k}`" for k in sorted(v)) for why, v in reasons.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if sys.argv[1:] else "docs/models.md").write_text(models_page(), encoding="utf-8")
