"""A deployment as the commands that start it: flags of the version that an engine's file names, and what they
cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from strata.errors import BadValue, StrataError, require
from strata.hardware.system import System
from strata.mapping.engine import Engine, as_engine
from strata.mapping.launcher import Launcher, launcher
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.serving.priced_service import shipped_config
from strata.workload.model import Model
from strata.workload.model import model as make_model

CONFIG = "config.yaml"
HUB = re.compile(r"huggingface\.co/([\w.-]+/[\w.-]+?)(?:/(?:blob|resolve|raw|tree)/|$)")


@dataclass(frozen=True, kw_only=True)
class LaunchCommand:
    """A command that starts a server, what else it needs, and what it cannot say."""

    engine: str
    version: str
    command: str
    servers: int = 1  # of them, behind a router
    nodes: int = 1  # machines of each; NODE_RANK counts them from 0, HEAD is the address of the first
    others: str = ""  # what is called on machines after the first, where that is not the command itself
    config: str = ""  # what its configuration file holds
    config_name: str = ""
    notes: tuple[str, ...] = ()  # what the flags cannot say

    @property
    def text(self) -> str:
        """All of it as a shell would read it."""
        parts = [f"# {self.version}"]
        if self.config:
            parts.append(f"cat > {self.config_name} <<'END'\n{self.config}END")
        parts.append(_broken(self.command))
        if self.others:
            parts += [f"# on the {_after(self.nodes)}", _broken(self.others)]
        elif self.nodes > 1 and "$NODE_RANK" in self.command:
            parts.append(f"# the same on the {_after(self.nodes)}")
        if "$HEAD" in self.command:
            parts.append("# HEAD: the address of the first machine")
        if self.servers > 1:
            parts.append(f"# {self.servers} such servers, behind a router")
        parts += [f"# not said by flags: {note}" for note in self.notes]
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        names = ("engine", "version", "command", "servers", "nodes", "others", "config", "config_name")
        return {name: getattr(self, name) for name in names} | {"notes": list(self.notes)}


def _after(nodes: int) -> str:
    """Machines after the first, in words."""
    return "second machine (NODE_RANK=1)" if nodes == 2 else f"other machines (NODE_RANK=1 to {nodes - 1})"


def _broken(command: str) -> str:
    """A command with a line for each flag."""
    return " \\\n  --".join(command.split(" --"))


@dataclass(eq=False)
class _Wording:
    """Flags and lines of configuration as they come together."""

    by: Launcher
    numbers: dict[str, Any]
    flags: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)  # of machines after the first
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def knows(self, key: str) -> bool:
        return key in self.by.flags or key in self.by.config

    def say(self, key: str, otherwise: str = "") -> None:
        """A thing by its flag or line; where there is neither, what that means."""
        if key in self.by.flags:
            self.flags.append(self.by.flags[key].format(**self.numbers))
        if key in self.by.config:
            self.lines.append(self.by.config[key].format(**self.numbers))
        if not self.knows(key) and otherwise:
            self.notes.append(otherwise)

    def put(self, said: str) -> None:
        """What is a flag where it begins like one, else a line of the configuration."""
        if said:
            (self.flags if said.startswith("-") else self.lines).append(said)


def launch_command(
    model: Model | str,
    plan: Plan | str,
    engine: Engine | str = "vllm",
    *,
    checkpoint: str = "",
    context: int = 0,
    kv_blocks: int = 0,
    prefix_caching: bool = True,
    role: str = "both",
    draft: str = "",
    window: int = 0,
    replicas: int = 1,
    per_node: int = 0,
) -> LaunchCommand:
    """The command that starts a deployment with the version that the engine's file names.

    `draft` guesses `window` tokens ahead ("mtp": the model's own module); `role`: prefill or decode of a
    disaggregated service; `replicas` of it; `per_node`: devices of a machine, where they lie in several.

    >>> print(launch_command("llama-3-70b", "tp=8", "vllm").command[:68])
    vllm serve meta-llama/Meta-Llama-3-70B --tensor-parallel-size 8 --ma
    """
    software, served = as_engine(engine), make_model(model) if isinstance(model, str) else model
    degrees = make_plan(plan) if isinstance(plan, str) else plan
    if not software.launcher:
        raise BadValue(f"the file of engine {software.name} names no launcher: no command starts it")
    said = _Wording(launcher(software.launcher), _numbers(served, degrees, software, window))
    said.numbers |= {"context": context, "draft": draft, "blocks": kv_blocks}
    said.numbers["block_tokens"] = kv_blocks * said.numbers["page"]
    servers = _parallel(said, served, degrees)
    _nodes(said, float(degrees.devices) / servers, per_node)
    _limits(said, software, context, kv_blocks, prefix_caching)
    _formats(said, served)
    if window or draft:
        key = "mtp" if draft in ("", "mtp") else "draft"
        said.say(key, f"{window} tokens guessed ahead by {draft or 'the model itself'}")
    if role != "both":
        said.say(f"{role}_role", f"the role of a server that does only {role}")
        said.notes.append("a router of the engine's own that hands requests from prefill to decode")
    return _command(said, software, checkpoint or checkpoint_of(served), servers * replicas)


def _numbers(model: Model, plan: Plan, engine: Engine, window: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        n: int(np.asarray(getattr(plan, n))) for n in ("tp", "cp", "dp", "pp", "ep", "moe_tp")
    }
    told["ranks"] = told["tp"] * told["dp"]
    told["redundant_experts"] = int(np.asarray(plan.redundant_experts))
    told["expert_slots"] = int(np.asarray(model.experts)) + told["redundant_experts"]
    told |= {n: int(np.asarray(getattr(engine, n))) for n in ("sequences", "tokens", "page")}
    told["all_sequences"] = told["sequences"] * told["dp"]
    told["memory"] = f"{float(np.asarray(engine.memory_share)):g}"
    return told | {"window": window, "verified": window + 1}


def _parallel(said: _Wording, model: Model, plan: Plan) -> int:
    """Flags of the degrees; how many servers of that kind there are."""
    n, servers, ranks = said.numbers, 1, said.numbers["ranks"]
    shared = model.has_experts and n["dp"] > 1 and float(np.asarray(plan.moe_groups)) < n["dp"]
    if shared and said.knows("attention_dp"):
        said.say("attention_dp")
    elif shared and said.knows("attention_dp_whole"):
        if n["tp"] > 1:
            said.notes.append(f"attention ranks of {n['tp']} devices each: here each is one device")
        said.say("attention_dp_whole")
    else:
        said.say("tp")
        if n["dp"] > 1 and said.knows("dp") and not model.has_experts:
            said.say("dp")
        elif n["dp"] > 1:  # engines of their own, each with all experts
            servers, ranks = n["dp"], n["tp"]
            n["all_sequences"] = n["sequences"]
    if n["pp"] > 1:
        said.say("pp", f"a pipeline of {n['pp']} stages")
    if model.has_experts:
        _experts(said, ranks)
    for name, about in (
        ("cp", f"tokens of a sequence over {n['cp']} devices (cp={n['cp']})"),
        ("order", "the order of the dimensions on the fabric"),
    ):
        if int(np.asarray(getattr(plan, name))) > (1 if name == "cp" else 0):
            said.notes.append(about)
    return servers


def _nodes(said: _Wording, devices: float, per_node: int) -> None:
    """Flags of a server that lies in several machines."""
    require(per_node >= 0, "devices of a machine are counted", per_node=per_node)
    nodes = ceil(devices / per_node) if per_node else 1
    said.numbers |= {"nodes": nodes, "devices": round(devices), "per_node": per_node}
    if nodes == 1:
        return
    if devices % per_node:
        said.notes.append(f"{devices:g} devices in machines of {per_node}: the last has fewer")
    each = said.numbers["tp"] * said.numbers["cp"] * said.numbers["pp"]  # devices of a rank
    ranks = devices / each
    if ranks > 1 and said.knows("dp_nodes") and each > per_node:
        said.notes.append(f"data parallel ranks of {each} devices each, which span machines of {per_node}")
    elif ranks > 1 and said.knows("dp_nodes"):
        said.numbers["local_ranks"] = per_node // each
        if per_node % each:
            said.notes.append(f"ranks of {each} devices each in machines of {per_node}: whole ranks in each")
        said.flags.append(said.by.flags["dp_nodes"].format(**said.numbers))
        said.rest.append(said.by.flags["other_dp_nodes"].format(**said.numbers))
    elif said.knows("nodes"):
        said.flags.append(said.by.flags["nodes"].format(**said.numbers))
        if "other_nodes" in said.by.flags:
            said.rest.append(said.by.flags["other_nodes"].format(**said.numbers))
    elif not said.by.several_nodes:
        said.notes.append(f"{nodes} machines of {per_node} devices")


def _experts(said: _Wording, ranks: int) -> None:
    ep, moe_tp = said.numbers["ep"], said.numbers["moe_tp"]
    if ep > 1 and "ep" in said.by.flags:
        said.say("ep")
    elif ep > 1:
        said.say("ep_all", f"experts over {ep} devices (ep={ep})")
        if ep != ranks:
            said.notes.append(f"experts over {ep} of {ranks} ranks (ep={ep}, moe_tp={moe_tp}): here over all")
    if said.numbers["redundant_experts"]:
        said.say("redundant_experts", f"{said.numbers['redundant_experts']} copies of popular experts")


def _limits(said: _Wording, engine: Engine, context: int, kv_blocks: int, prefix_caching: bool) -> None:
    for key in ("sequences", "tokens", "memory"):
        said.say(key, f"{key} = {said.numbers[key]}" if key != "memory" else "")
    if not _as_stated(engine, "page"):  # an engine knows best which blocks its kernels take
        said.say("page", f"blocks of {said.numbers['page']} tokens")
    if context:
        said.say("context", f"a context of {context} tokens")
    if kv_blocks:
        said.say("blocks", f"{kv_blocks} blocks of the KV cache")
    if not prefix_caching:
        said.say("prefix_caching_off", "no prefix caching")
    mixed = bool(np.asarray(engine.mixed) > 0)
    said.say("mixed_on" if mixed else "mixed_off")


def _as_stated(engine: Engine, name: str) -> bool:
    """Whether a number of an engine is that of its file."""
    try:
        stated = as_engine(engine.name)
    except StrataError:
        return False
    return float(np.asarray(getattr(stated, name))) == float(np.asarray(getattr(engine, name)))


def _formats(said: _Wording, model: Model) -> None:
    """Formats of weights, where they are not those of the checkpoint, and of the cache."""
    published = _published(model)
    kinds = ("weights", "expert_weights") if model.has_experts else ("weights",)
    wanted = {str(getattr(model, k)) for k in kinds}
    if published is None or any(str(getattr(model, k)) != str(getattr(published, k)) for k in kinds):
        for name in sorted(wanted):
            if name in said.by.weights:
                said.put(said.by.weights[name])
            else:
                said.notes.append(f"weights in {name}: {said.by.checkpoints.get(name, 'no such format')}")
    kv = str(model.kv)
    if kv in said.by.cache:
        said.put(said.by.cache[kv])
    else:
        said.notes.append(f"a KV cache in {kv}")


def _published(model: Model) -> Model | None:
    """The model as shipped, where there is one."""
    try:
        return make_model(model.name)
    except StrataError:
        return None


def checkpoint_of(model: Model) -> str:
    """Where the weights of a shipped model lie on Hugging Face; else its name.

    >>> checkpoint_of(make_model("gpt-oss-120b"))
    'openai/gpt-oss-120b'
    """
    found = HUB.search(str(shipped_config(model.name).get("_strata", {}).get("source", "")))
    return found.group(1) if found else model.name


def _command(said: _Wording, engine: Engine, checkpoint: str, servers: int) -> LaunchCommand:
    by, config, name = said.by, _yaml(said.lines), ""
    if said.lines:
        name = CONFIG
        said.flags.append(by.config_file.format(file=name))
    command = " ".join(filter(None, [by.command.format(checkpoint=checkpoint), *said.flags]))
    nodes = said.numbers["nodes"]
    if nodes > 1 and by.several_nodes:
        command = f"{by.several_nodes.format(**said.numbers)} {command}"
    return LaunchCommand(
        engine=engine.name,
        version=by.version,
        command=command,
        servers=servers,
        nodes=nodes,
        others=" ".join([command, *said.rest]) if said.rest else "",
        config=config,
        config_name=name,
        notes=tuple(said.notes),
    )


def _yaml(lines: list[str]) -> str:
    """Lines with keys within keys, as YAML.

    >>> print(_yaml(["a.b: 1", "c: 2", "a.d: 3"]), end="")
    a:
      b: 1
      d: 3
    c: 2
    """
    tree: dict[str, Any] = {}
    for line in "\n".join(lines).splitlines():
        path, _, value = line.partition(": ")
        *above, last = path.split(".")
        at = tree
        for key in above:
            at = at.setdefault(key, {})
        at[last] = value

    def written(node: dict[str, Any], depth: int) -> list[str]:
        found = []
        for key, value in node.items():
            inside = isinstance(value, dict)
            found.append(f"{'  ' * depth}{key}:{'' if inside else f' {value}'}")
            found += written(value, depth + 1) if inside else []
        return found

    return "".join(f"{line}\n" for line in written(tree, 0))


def _guessed(service: Any) -> dict[str, Any]:
    """The draft of a deployment, where it has one."""
    guess = service.drafting
    if guess is None:
        return {}
    own = guess.draft.name == service.model.name
    return {"draft": "mtp" if own else checkpoint_of(guess.draft), "window": int(guess.window)}


def devices_per_machine(system: System) -> int:
    """Devices that one operating system has: as the fabric's host says, else those of its innermost
    dimension.

    >>> from strata.hardware.system import system
    >>> [devices_per_machine(system(name)) for name in ("16xh200", "72xgb200")]
    [8, 4]
    """
    host = system.fabric.host
    told = None if host is None else host.machine
    return int(np.max(np.asarray(system.fabric.dimension[0].size if told is None else told)))


def launch_commands(services: Any, **told: Any) -> list[LaunchCommand]:
    """The commands that start the deployments of a simulated service (`PricedService`), one for each."""
    if not isinstance(services, Sequence) or not all(hasattr(s, "drafting") for s in services):
        raise BadValue("launch_commands takes deployments, as price_service makes them")
    return [
        launch_command(
            s.model,
            s.plan,
            s.engine,
            prefix_caching=s.prefix_caching,
            replicas=s.copies,
            per_node=devices_per_machine(s.within or s.system),
            role=s.rules.role,
            **_guessed(s),
            **told,
        )
        for s in services
    ]
