"""What there is, every number of it with its source, and how its files are written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from strata.adapters.huggingface.keys import FLAGS, WHOLE
from strata.adapters.huggingface.names import families, wrappers
from strata.adapters.post_training.recipe import PostTrainingRecipe, post_training_recipe
from strata.app import LISTED
from strata.app.render.program_graph import config_facts, layer_kinds, mixer_numbers, unread_text
from strata.app.render.tables import picked, rows_table, table
from strata.app.render.technology import PARTS, part_numbers
from strata.base.errors import UnknownName
from strata.base.precision import BYTES, SCALES
from strata.base.records import to_dict
from strata.base.units import show
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
from strata.mapping.plan import division_words
from strata.params import KINDS, MARKS, Param, file_model, names, read_toml, shipped_file, stated
from strata.search.space import Space, space
from strata.software.engine import Engine, engine
from strata.training.reliability import Reliability, reliability
from strata.workload.dataflow import Dataflow
from strata.workload.dataflow_file import dataflow_schema
from strata.workload.model import Model, model
from strata.workload.program import program, program_table
from strata.workload.tasks import decode

PLURAL = {"technology": "technologies"}  # where a kind's name and its folder's differ by more than an s
CALLED = {"post_training": "recipe", "post-training": "recipe"}  # as its function and its command are

PART_FILES = (Technology, MemoryDevice, LinkPhy, Bonding, Packaging)
# How each kind of thing is read by name, and the record that its files are of.
RECORDS: dict[str, tuple[Callable[[str], Any], type | None]] = {
    "chip": (chip, Chip),
    "model": (model, None),
    "program": (program, None),
    "fabric": (fabric, Fabric),
    "system": (system, SystemFile),
    "transport": (transport, Transport),
    "packets": (packets, Packets),
    "memory": (dram_channel, Dram),
    "engine": (engine, Engine),
    "economics": (economics, Economics),
    "reliability": (reliability, Reliability),
    "space": (space, None),
    **{kind: (read, of) for (kind, (_, read)), of in zip(PARTS.items(), PART_FILES, strict=True)},
    "template": (template, Template),
    "budget": (budget, Budget),
    "recipe": (post_training_recipe, PostTrainingRecipe),
}
SHOWN = {kind: read for kind, (read, _) in sorted(RECORDS.items(), key=lambda item: item[0] in PARTS)}
FILES = {kind: of for kind, (_, of) in RECORDS.items() if of is not None}
_WORKED_OUT = ("follows", "counted from")


def catalogue(kind: str = "", papers: bool = True) -> dict[str, list[dict[str, str]]]:
    """Names and titles by kind, with or without data of papers."""
    wanted = (_listed(CALLED.get(kind, kind)),) if kind else LISTED
    if wanted[0] not in LISTED:
        raise UnknownName("kind", kind, LISTED, ", ".join(LISTED))
    return {k: _entries(k, papers) for k in wanted}


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


def _entries(kind: str, papers: bool) -> list[dict[str, str]]:
    if kind == "precisions":
        listed = []
        for name, size in BYTES.items():
            block, scale = SCALES.get(name, (0, 0.0))  # that blocks of a format share
            shared = f", with a scale of {scale:g} B for each {block:,}" if block else ""
            title = f"{size:g} byte{'' if size == 1 else 's'} an element{shared}"
            listed.append({"name": name, "title": title})
        return listed
    if kind in ("models", "programs"):
        return [{"name": name, "title": str(_facts(name, kind)["title"])} for name in names(kind, papers)]
    listed = [
        {"name": name, "title": str(read_toml(shipped_file(kind, name)).get("title", ""))}
        for name in names(kind, papers)
    ]
    usual = "any chip on its usual fabric: 8xh200, 64xh200 (8 nodes of 8), 4x8xh100 (4 nodes of 8)"
    return listed + ([{"name": "COUNTxCHIP", "title": usual}] if kind == "systems" else [])


def catalogue_table(listed: dict[str, list[dict[str, str]]]) -> Any:
    rows = []
    for kind, entries in listed.items():
        rows += [("" if i else kind, entry["name"], entry["title"]) for i, entry in enumerate(entries)]
    made = rows_table("||", rows, headed=False)
    made.columns[0].style, made.columns[2].style = "bold", "dim"
    return made


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
        dimensions = record.fabric.dimension
        sizes = " x ".join(f"{d.size:g} {d.name}" for d in dimensions if d.size > 1) or "one device"
        parts = {"chip": record.chip, "fabric": record.fabric}
        numbers = {f"{p}.{path}": n for p, part in parts.items() for path, n in _numbers(part).items()}
        return _told(record.name, f"{record.chip.title}: {sizes}", record.chip.note, numbers)
    numbers = part_numbers(record) if kind in PARTS else _numbers(record)
    told = _told(record.name, getattr(record, "title", ""), getattr(record, "note", ""), numbers)
    return told | ({"versions": [vars(release) for release in record.versions]} if kind == "engine" else {})


def _told(name: str, title: str, note: str, numbers: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "title": title, "note": note, "numbers": numbers}


def _numbers(record: Any) -> dict[str, dict[str, Any]]:
    return {
        path: {**picked(p, "value unit"), "shown": show(p.value, p.unit), **picked(p, "source assumed")}
        for path, p in stated(record).items()
    }


def _describe_model(record: Model, name: str) -> dict[str, Any]:
    count = float(record.trace(decode(1.0, 1.0)).parameters())
    facts = _facts(record.name)
    config = str(facts.get("source", f"{name} (given by the caller)"))
    numbers = {"parameters": _entry(count, f"{count:,.0f}", "counted from the graph")}
    if record.published:
        numbers["published"] = _entry(record.published[0], f"{record.published[0]:,.0f}", record.published[1])
    for f in fields(Model):
        value = getattr(record, f.name)
        if f.name in ("name", "pattern", "published", "mixer") or value in (0.0, False, ""):
            continue
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        source = config if isinstance(value, (float, str)) else f"its family, by {config}"
        if f.name in ("activations", "kv", "embedding_dtype"):
            source = "how served unless told otherwise"
        numbers[f.name] = _entry(value, shown.lower() if isinstance(value, bool) else shown, source)
    pattern, (told, beside) = record.pattern, config_facts(name)
    numbers |= {path: _entry(*entry) for path, entry in (mixer_numbers(record, config) | beside).items()}
    first = f"{pattern.prefix_layers:g} x {'/'.join(pattern.prefix)}, then " if pattern.prefix else ""
    layers = f"{pattern.layers:g} layers: {first}{layer_kinds(pattern.period)} repeated"
    title = f"{facts['title']}, {layers}" if facts else layers
    notes = " ".join(part for part in (str(facts.get("notes", "")), told.pop("simplified")) if part)
    return _told(record.name, title, notes, numbers) | told


def _describe_space(record: Space) -> dict[str, Any]:
    """The axes of a space with their choices and what they stand on; what follows from them, and what a point
    must keep.
    """
    numbers = {}
    for a in record.axes:
        choices = " ".join(a.labels) if len(a) <= 20 else f"{a.labels[0]} ... {a.labels[-1]}"
        numbers[a.name] = _entry(len(a), f"{len(a)}: {choices}", f"{', '.join(a.fields)}. {a.source}")
    numbers |= {t.field: _entry(t.value, f"= {t.value}", t.source) for t in record.ties}
    numbers |= {f"only where {c.keep}": _entry(True, "", c.why) for c in record.constraints}
    return _told(record.name, f"{record.title}; {record.size:,} points", record.note, numbers)


def _entry(value: Any, shown: str, source: str) -> dict[str, Any]:
    told = {"value": value, "unit": "1", "shown": shown, "source": source}
    return told | {"assumed": source.startswith("assumed")}


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
    title = facts.get("title") or str(type(record).__doc__).partition("\n")[0]
    return _told(name, str(title), _divided(record), numbers)


def _divided(record: Any) -> str:
    return f"divided with --plan {division_words(record)}"


def _describe_dataflow(record: Dataflow) -> dict[str, Any]:
    """Sizes of a program of kernels, each with its source."""
    cited, whole = dict(record.cited), record.source or "no source stated"
    follows = dict.fromkeys(dict(record.derived), "follows from other sizes and the workload") | cited
    told = {**record.sizes, **dict(record.derived), "layers": record.layers}
    told |= {"precision": record.precision, "stream": record.stream}
    numbers = {key: _entry(to_dict(v), _plain(v), follows.get(key, whole)) for key, v in told.items()}
    return _told(record.name, record.title, _divided(record), numbers)


def _plain(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return value or "none"
    return ", ".join(f"{float(v):g}" for v in np.ravel(value))


def _facts(name: str, kind: str = "models") -> dict[str, Any]:
    """What the file of a shipped model or program says about itself; nothing for a user's own."""
    path = shipped_file(kind, name, ".json")
    if path.exists():
        return dict(json.loads(path.read_text(encoding="utf-8"))["_strata"])
    written = shipped_file(kind, name)
    return program_table(written) if written.exists() else {}


def description_table(described: dict[str, Any]) -> Any:
    note = f"\n{described['note']}" if described["note"] else ""
    entries = described["numbers"]
    sources = {path: Param(0.0, "1", str(e["source"])).stated_source for path, e in entries.items()}
    rows = ((path, e["shown"], mark_text(e), sources[path]) for path, e in entries.items())
    styles = ["yellow" if e["assumed"] else "" for e in entries.values()]
    below = (legend(entries), versions_text(described), unread_text(described))
    title = f"{described['name']}: {described['title']}{note}"
    head = "<quantity|>value|<mark|source~"
    return table(title, head, rows, "\n".join(line for line in below if line), styles)


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
    numbers: dict[str, Any] = {}
    for key, (low, high, others) in WHOLE.items():
        whole = {"type": ["integer", "null"], "minimum": low, "maximum": high}
        numbers |= dict.fromkeys((key, *others), whole)
    flags = {name: {"type": ["boolean", "null"]} for name in FLAGS}
    return {
        "title": "Model (config.json)",
        "type": "object",
        "required": ["model_type"],
        "properties": {"model_type": {"enum": sorted((*families(), *wrappers()))}, **numbers, **flags},
        "additionalProperties": True,
    }


def marked(numbers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers with the mark of each (`strata.params.MARKS`), whom it is inherited from and what it is there.

    >>> found = marked({"a": {"value": 1, "source": "inherited from h200: fitted: gemm.csv"}})["a"]
    >>> found["mark"], found["from"], found["there"]
    ('inherited', 'h200', 'fitted')
    """
    found = {}
    for path, entry in numbers.items():
        known = Param(0.0, str(entry.get("unit", "1")), str(entry["source"]))
        mark = "derived" if known.stated_source.startswith(_WORKED_OUT) else known.mark
        found[path] = {**entry, "mark": mark, "from": known.inherited_from, "there": known.mark_there}
    return found


def mark_text(entry: dict[str, Any]) -> str:
    """A mark as a table has it.

    >>> mark_text({"mark": "inherited", "from": "h200"}), mark_text({"mark": "fitted", "from": ""})
    ('inherited (h200)', 'fitted')
    """
    return f"{entry['mark']} ({entry['from']})" if entry["from"] else str(entry["mark"])


def legend(numbers: dict[str, dict[str, Any]]) -> str:
    """How many numbers have which mark, and what the marks mean."""
    count = Counter(entry["mark"] for entry in numbers.values())
    if not count:
        return ""
    kinds = [mark for mark in MARKS if count[mark]]
    told = ", ".join(f"{count[mark]} {mark}" for mark in kinds)
    meaning = "; ".join(f"{mark}: {MARKS[mark]}" for mark in kinds)
    return f"{len(numbers)} numbers: {told}\n{meaning}"


def versions_text(described: dict[str, Any]) -> str:
    """The releases that `name@version` takes, and those in which something changed."""
    versions = described.get("versions")
    if not versions:
        return ""
    first, last = versions[0], versions[-1]
    changed = [f"{', '.join(v['changes'])} up to {v['version']}" for v in versions if v["changes"]]
    span = f"versions {first['version']} ({first['date']}) to {last['version']} ({last['date']})"
    return f"{span}, as {described['name']}@{last['version']}" + (
        f"; other: {'; '.join(changed)}" if changed else ""
    )
