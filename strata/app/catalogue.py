"""What there is, every number of it with its source, and how its files are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from rich.table import Table

from strata.errors import UnknownName
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, fabric
from strata.hardware.system import Economics, SystemFile, economics, system
from strata.mapping.engine import Engine, engine
from strata.params import data_folder, file_model, names, read_toml, stated
from strata.precision import BYTES
from strata.units import show
from strata.workload.model import Model, model
from strata.workload.tasks import decode
from strata.workload.transformer import trace

LISTED = ("chips", "models", "systems", "fabrics", "engines", "precisions")
SHOWN: dict[str, Callable[[str], Any]] = {"chip": chip, "fabric": fabric, "engine": engine, "economics": economics, "system": system, "model": model}
FILES: dict[str, type] = {"chip": Chip, "fabric": Fabric, "engine": Engine, "system": SystemFile, "economics": Economics}


def catalogue(kind: str = "") -> dict[str, list[dict[str, str]]]:
    """Names and titles by kind."""
    wanted = LISTED if not kind else (kind if kind in LISTED else f"{kind}s",)
    if wanted[0] not in LISTED:
        raise UnknownName("kind", kind, LISTED, ", ".join(LISTED))
    return {k: _entries(k) for k in wanted}


def _entries(kind: str) -> list[dict[str, str]]:
    if kind == "precisions":
        return [{"name": n, "title": f"{b:g} bytes an element"} for n, b in BYTES.items()]
    if kind == "models":
        import json

        found = []
        for name in names("models"):
            config = json.loads((data_folder("models") / f"{name}.json").read_text())
            found.append({"name": name, "title": config["_strata"]["title"]})
        return found
    listed = [{"name": n, "title": str(read_toml(data_folder(kind) / f"{n}.toml").get("title", ""))} for n in names(kind)]
    if kind == "systems":
        listed.append({"name": "COUNTxCHIP", "title": "any chip on its usual fabric: 8xh200, 64xh200 (8 nodes of 8), 4x8xh100 (4 nodes of 8)"})
    return listed


def catalogue_table(found: dict[str, list[dict[str, str]]]) -> Table:
    table = Table(box=None, padding=(0, 2), show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_column(style="dim")
    for kind, entries in found.items():
        for i, entry in enumerate(entries):
            table.add_row(kind if i == 0 else "", entry["name"], entry["title"])
    return table


def describe(kind: str, name: str) -> dict[str, Any]:
    """Every number of a thing with unit and source; a model's sizes with its parameter count."""
    if kind not in SHOWN:
        raise UnknownName("kind", kind, SHOWN, ", ".join(SHOWN))
    made = SHOWN[kind](name)
    if kind == "model":
        return _describe_model(made)
    if kind == "system":
        parts = {f"chip.{k}": v for k, v in _numbers(made.chip).items()} | {f"fabric.{k}": v for k, v in _numbers(made.fabric).items()}
        sizes = " x ".join(f"{d.size:g} {d.name}" for d in made.fabric.dimension if d.size > 1) or "one device"
        return {"name": made.name, "title": f"{made.chip.title}: {sizes}", "note": made.chip.note, "numbers": parts}
    return {"name": made.name, "title": getattr(made, "title", ""), "note": getattr(made, "note", ""), "numbers": _numbers(made)}


def _numbers(record: Any) -> dict[str, dict[str, Any]]:
    return {
        path: {"value": p.value, "unit": p.unit, "shown": show(p.value, p.unit), "source": p.source, "assumed": p.assumed}
        for path, p in stated(record).items()
    }


def _describe_model(made: Model) -> dict[str, Any]:
    count = float(trace(made, decode(1.0, 1.0)).parameters())
    numbers: dict[str, dict[str, Any]] = {
        "parameters": {"value": count, "unit": "1", "shown": f"{count:,.0f}", "source": "counted from the graph", "assumed": False}
    }
    if made.published:
        numbers["published"] = {
            "value": made.published[0],
            "unit": "1",
            "shown": f"{made.published[0]:,.0f}",
            "source": made.published[1],
            "assumed": False,
        }
    for f in fields(Model):
        value = getattr(made, f.name)
        if f.name not in ("name", "pattern", "published") and value not in (0.0, False, ""):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            numbers[f.name] = {"value": value, "unit": "1", "shown": shown, "source": "config.json", "assumed": False}
    kinds = " ".join("/".join(k) for k in made.pattern.period)
    prefix = f"{made.pattern.prefix_layers:g} x {'/'.join(made.pattern.prefix)}, then " if made.pattern.prefix else ""
    return {"name": made.name, "title": f"{made.pattern.layers:g} layers: {prefix}{kinds} repeated", "note": "", "numbers": numbers}


def description_table(described: dict[str, Any]) -> Table:
    heading = f"{described['name']}: {described['title']}" + (f"\n{described['note']}" if described["note"] else "")
    table = Table(title=heading, title_justify="left", title_style="bold", box=None, padding=(0, 2))
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("source", overflow="fold")
    for path, entry in described["numbers"].items():
        table.add_row(path, entry["shown"], entry["source"], style="yellow" if entry["assumed"] else "")
    return table


def file_schema(kind: str) -> dict[str, Any]:
    """The JSON schema of a kind of file."""
    if kind == "model":
        return _model_schema()
    if kind not in FILES:
        raise UnknownName("kind of file", kind, [*FILES, "model"], ", ".join([*FILES, "model"]))
    made: dict[str, Any] = file_model(FILES[kind]).model_json_schema()
    return made


def _model_schema() -> dict[str, Any]:
    """A model is a Hugging Face config.json; these are the keys that are read."""
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    more = (
        "num_key_value_heads", "head_dim", "intermediate_size", "num_local_experts", "n_routed_experts", "num_experts", "num_experts_per_tok",
        "moe_intermediate_size", "n_shared_experts", "shared_expert_intermediate_size", "first_k_dense_replace", "interleave_moe_layer_step",
        "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "sliding_window", "index_topk", "index_n_heads", "index_head_dim",
    )  # fmt: skip
    number = {"type": "number", "exclusiveMinimum": 0}
    return {
        "title": "Model (config.json)",
        "type": "object",
        "required": list(sizes),
        "properties": {k: number for k in (*sizes, *more)},
        "additionalProperties": True,
    }
