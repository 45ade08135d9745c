"""What there is, every number of it with its source, and how its files are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from strata.adapters.huggingface.keys import FLAGS, WHOLE
from strata.adapters.huggingface.names import families, wrappers
from strata.app import LISTED
from strata.app.render.config_facts import config_facts, layer_kinds, mixer_numbers, unread_text
from strata.app.render.marks import legend, mark_text, marked, source_text, versions_text
from strata.app.render.technology import PARTS, part_numbers
from strata.app.terminal import plain_table, titled
from strata.errors import UnknownName
from strata.hardware.chip import Chip, chip
from strata.hardware.components import LinkPhy, MemoryDevice
from strata.hardware.dram.channel import Dram, dram_channel
from strata.hardware.fabric import Fabric, fabric
from strata.hardware.generate.budget import Budget, budget
from strata.hardware.generate.template import Template, template
from strata.hardware.money import Economics, economics
from strata.hardware.system import SystemFile, system
from strata.hardware.technology import Bonding, Packaging, Technology
from strata.hardware.transport import Packets, Transport, packets, transport
from strata.mapping.engine import Engine, engine
from strata.mapping.plan import division_words
from strata.params import KINDS, MARKS, data_folder, file_model, names, read_toml, stated
from strata.precision import BYTES, SCALES
from strata.records import to_dict
from strata.search.space import Space, space
from strata.training.post_training_recipe import PostTrainingRecipe, post_training_recipe
from strata.training.reliability import Reliability, reliability
from strata.units import show
from strata.workload.dataflow import Dataflow
from strata.workload.dataflow_file import dataflow_schema
from strata.workload.model import Model, model
from strata.workload.program import program, program_table
from strata.workload.tasks import decode

PLURAL = {"technology": "technologies"}  # where a kind's name and its folder's differ by more than an s
CALLED = {"post_training": "recipe", "post-training": "recipe"}  # as its function and its command are


SHOWN: dict[str, Callable[[str], Any]] = {
    "chip": chip,
    "model": model,
    "program": program,
    "fabric": fabric,
    "system": system,
    "transport": transport,
    "packets": packets,
    "memory": dram_channel,
    "engine": engine,
    "economics": economics,
    "reliability": reliability,
    "space": space,
    "template": template,
    "budget": budget,
    "recipe": post_training_recipe,
    **{kind: read for kind, (_, read) in PARTS.items()},
}


FILES: dict[str, type] = {
    "chip": Chip,
    "fabric": Fabric,
    "system": SystemFile,
    "transport": Transport,
    "packets": Packets,
    "memory": Dram,
    "engine": Engine,
    "economics": Economics,
    "reliability": Reliability,
    "technology": Technology,
    "device": MemoryDevice,
    "link": LinkPhy,
    "bonding": Bonding,
    "packaging": Packaging,
    "template": Template,
    "budget": Budget,
    "recipe": PostTrainingRecipe,
}


def catalogue(kind: str = "") -> dict[str, list[dict[str, str]]]:
    """Names and titles by kind."""
    wanted = (_listed(CALLED.get(kind, kind)),) if kind else LISTED
    if wanted[0] not in LISTED:
        raise UnknownName("kind", kind, LISTED, ", ".join(LISTED))
    return {k: _entries(k) for k in wanted}


def _listed(kind: str) -> str:
    """What a kind of thing is called where several are listed."""
    return PLURAL.get(kind, kind if kind in LISTED else KINDS.get(kind, f"{kind}s"))


def shown_kind(kind: str) -> str:
    """A kind of thing that can be shown, by its name, or as it is listed."""
    kind = CALLED.get(kind, kind)
    if kind in SHOWN:
        return kind
    by_list = {_listed(one): one for one in SHOWN}
    if kind not in by_list:
        raise UnknownName("kind", kind, SHOWN, ", ".join(SHOWN))
    return by_list[kind]


def _entries(kind: str) -> list[dict[str, str]]:
    if kind == "precisions":
        return [
            {"name": n, "title": f"{b:g} byte{'' if b == 1 else 's'} an element{_scale(n)}"}
            for n, b in BYTES.items()
        ]
    if kind in ("models", "programs"):
        return [{"name": name, "title": str(_facts(name, kind)["title"])} for name in names(kind)]
    listed = [
        {"name": n, "title": str(read_toml(data_folder(kind) / f"{n}.toml").get("title", ""))}
        for n in names(kind)
    ]
    if kind == "systems":
        listed.append(
            {
                "name": "COUNTxCHIP",
                "title": "any chip on its usual fabric: 8xh200, 64xh200 (8 nodes of 8), 4x8xh100 (4 nodes of "
                "8)",
            }
        )
    return listed


def _scale(name: str) -> str:
    """The scale that blocks of a format share, in words."""
    block, held = SCALES.get(name, (0, 0.0))
    return f", with a scale of {held:g} B for each {block:,}" if block else ""


def catalogue_table(listed: dict[str, list[dict[str, str]]]) -> Any:
    table = plain_table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_column(style="dim")
    for kind, entries in listed.items():
        for i, entry in enumerate(entries):
            table.add_row(kind if i == 0 else "", entry["name"], entry["title"])
    return table


def describe(kind: str, name: str) -> dict[str, Any]:
    """Every number of a thing with unit, source and mark; a model's sizes with its parameter count."""
    described = _described(shown_kind(kind), name)
    return {**described, "numbers": marked(described["numbers"]), "marks": MARKS}


def _described(kind: str, name: str) -> dict[str, Any]:
    record = SHOWN[kind](name)
    if kind == "model" or (kind == "program" and isinstance(record, Model)):
        return _describe_model(record, name)
    if kind == "program":
        return _describe_program(record, name)
    if kind == "space":
        return _describe_space(record)
    if kind == "system":
        parts = {f"chip.{k}": v for k, v in _numbers(record.chip).items()} | {
            f"fabric.{k}": v for k, v in _numbers(record.fabric).items()
        }
        sizes = (
            " x ".join(f"{d.size:g} {d.name}" for d in record.fabric.dimension if d.size > 1) or "one device"
        )
        return {
            "name": record.name,
            "title": f"{record.chip.title}: {sizes}",
            "note": record.chip.note,
            "numbers": parts,
        }
    return {
        "name": record.name,
        "title": getattr(record, "title", ""),
        "note": getattr(record, "note", ""),
        "numbers": part_numbers(record) if kind in PARTS else _numbers(record),
        **({"versions": [vars(release) for release in record.versions]} if kind == "engine" else {}),
    }


def _numbers(record: Any) -> dict[str, dict[str, Any]]:
    return {
        path: {
            "value": p.value,
            "unit": p.unit,
            "shown": show(p.value, p.unit),
            "source": p.source,
            "assumed": p.assumed,
        }
        for path, p in stated(record).items()
    }


def _describe_model(record: Model, name: str) -> dict[str, Any]:
    count = float(record.trace(decode(1.0, 1.0)).parameters())
    facts = _facts(record.name)
    config = str(facts.get("source", f"{name} (given by the caller)"))
    numbers: dict[str, dict[str, Any]] = {
        "parameters": _entry(count, f"{count:,.0f}", "counted from the graph")
    }
    if record.published:
        numbers["published"] = _entry(record.published[0], f"{record.published[0]:,.0f}", record.published[1])
    for f in fields(Model):
        value = getattr(record, f.name)
        if f.name in ("name", "pattern", "published", "mixer") or value in (0.0, False, ""):
            continue
        shown = (
            f"{value:g}"
            if isinstance(value, float)
            else str(value).lower()
            if isinstance(value, bool)
            else str(value)
        )
        default = f.name in ("activations", "kv", "embedding_dtype")
        source = (
            "how served unless told otherwise"
            if default
            else config
            if isinstance(value, (float, str))
            else f"its family, by {config}"
        )
        numbers[f.name] = _entry(value, shown, source)
    numbers |= {path: _entry(*told) for path, told in mixer_numbers(record, config).items()}
    kinds = layer_kinds(record.pattern.period)
    prefix = (
        f"{record.pattern.prefix_layers:g} x {'/'.join(record.pattern.prefix)}, then "
        if record.pattern.prefix
        else ""
    )
    layers = f"{record.pattern.layers:g} layers: {prefix}{kinds} repeated"
    told, beside = config_facts(name)
    numbers |= {path: _entry(*entry) for path, entry in beside.items()}
    return {
        "name": record.name,
        "title": f"{facts['title']}, {layers}" if facts else layers,
        "note": " ".join(part for part in (str(facts.get("notes", "")), told.pop("simplified")) if part),
        "numbers": numbers,
        **told,
    }


def _describe_space(record: Space) -> dict[str, Any]:
    """The axes of a space with their choices and what they stand on; what follows from them, and what a point
    must keep.
    """
    numbers = {
        a.name: _entry(len(a), f"{len(a)}: {_choices(a.labels)}", f"{', '.join(a.fields)}. {a.source}")
        for a in record.axes
    }
    numbers |= {t.field: _entry(t.value, f"= {t.value}", t.source) for t in record.ties}
    numbers |= {f"only where {c.keep}": _entry(True, "", c.why) for c in record.constraints}
    return {
        "name": record.name,
        "title": f"{record.title}; {record.size:,} points",
        "note": record.note,
        "numbers": numbers,
    }


def _choices(labels: Sequence[str]) -> str:
    return " ".join(labels) if len(labels) <= 20 else f"{labels[0]} ... {labels[-1]}"


def _entry(value: Any, shown: str, source: str) -> dict[str, Any]:
    return {
        "value": value,
        "unit": "1",
        "shown": shown,
        "source": source,
        "assumed": source.startswith("assumed"),
    }


def _describe_program(record: Any, name: str) -> dict[str, Any]:
    """Sizes of a program that is no language model, and how it is divided."""
    if isinstance(record, Dataflow):
        return _describe_dataflow(record)
    facts = _facts(name, "programs")
    source = str(facts.get("source", "given by the caller"))
    numbers = {}
    for f in fields(record):
        value = getattr(record, f.name)
        if f.name != "name":
            listed = value if isinstance(value, tuple) else (value,)
            numbers[f.name] = _entry(to_dict(value), ", ".join(_plain(v) for v in listed), source)
    note = f"divided with --plan {division_words(record)}"
    return {"name": name, "title": str(facts.get("title", "")), "note": note, "numbers": numbers}


def _describe_dataflow(record: Dataflow) -> dict[str, Any]:
    """Sizes of a program of kernels, each with its source."""
    cited, whole = dict(record.cited), record.source or "no source stated"
    follows = dict.fromkeys(dict(record.derived), "follows from other sizes and the workload") | cited
    told = {**record.sizes, **dict(record.derived), "layers": record.layers}
    told |= {"precision": record.precision, "stream": record.stream}
    numbers = {key: _entry(to_dict(v), _plain(v), follows.get(key, whole)) for key, v in told.items()}
    note = f"divided with --plan {division_words(record)}"
    return {"name": record.name, "title": record.title, "note": note, "numbers": numbers}


def _plain(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return value or "none"
    return ", ".join(f"{float(v):g}" for v in np.ravel(value))


def _facts(name: str, kind: str = "models") -> dict[str, Any]:
    """What the file of a shipped model or program says about itself; nothing for a user's own."""
    path = data_folder(kind) / f"{name}.json"
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8"))["_strata"])
    written = path.with_suffix(".toml")
    return program_table(written) if written.exists() else {}


def description_table(described: dict[str, Any]) -> Any:
    heading = f"{described['name']}: {described['title']}" + (
        f"\n{described['note']}" if described["note"] else ""
    )
    table = plain_table("<quantity", ">value", "<mark")
    table.add_column("source", overflow="fold")
    for path, entry in described["numbers"].items():
        table.add_row(
            path,
            entry["shown"],
            mark_text(entry),
            source_text(entry),
            style="yellow" if entry["assumed"] else "",
        )
    below = (legend(described["numbers"]), versions_text(described), unread_text(described))
    return titled(heading, table, "\n".join(line for line in below if line))


def file_schema(kind: str) -> dict[str, Any]:
    """The JSON schema of a kind of file."""
    own = {"model": _model_schema, "program": dataflow_schema}
    by_list = {_listed(one): one for one in (*FILES, *own)}
    kind = CALLED.get(kind, by_list.get(kind, kind))
    if kind in own:
        return own[kind]()
    if kind not in FILES:
        raise UnknownName("kind of file", kind, [*FILES, *own], ", ".join([*FILES, *own]))
    record: dict[str, Any] = file_model(FILES[kind]).model_json_schema()
    if kind == "chip":  # that of a whole file; most are short
        from strata.hardware.short_chip import EXAMPLE, SHORT_FORM

        record |= {"$comment": SHORT_FORM, "examples": [EXAMPLE]}
    return record


def _model_schema() -> dict[str, Any]:
    """A model is a Hugging Face config.json; these are the keys that are read."""
    numbers = {
        name: {"type": ["integer", "null"], "minimum": low, "maximum": high}
        for key, (low, high, others) in WHOLE.items()
        for name in (key, *others)
    }
    flags = {name: {"type": ["boolean", "null"]} for name in FLAGS}
    return {
        "title": "Model (config.json)",
        "type": "object",
        "required": ["model_type"],
        "properties": {"model_type": {"enum": sorted((*families(), *wrappers()))}, **numbers, **flags},
        "additionalProperties": True,
    }
