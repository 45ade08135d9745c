"""A deployment as the commands that start it: flags of the engine's version, and what they cannot say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strata.adapters.launchers.rules import Launcher, LaunchRules, whole_number
from strata.base.errors import BadValue, StrataError, require
from strata.hardware.system import System
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.serving.priced_service import PricedService
from strata.serving.requests import Requests, check_context, shipped_config
from strata.serving.served_plans import served_plans
from strata.serving.speculation import check_drafting
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.model import model as make_model

CONFIG = "config.yaml"
LIMITS = {"sequences": "max_num_seqs", "tokens": "max_num_batched_tokens", "page": "kv_block_size"}
OWN_GUESSES = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "mtp_num_layers")
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
        return vars(self) | {"notes": list(self.notes)}


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

    def say(self, key: str) -> None:
        """A thing by its flag or its line of configuration."""
        if key in self.by.flags:
            self.flags.append(self.by.flags[key].format(**self.numbers))
        if key in self.by.config:
            self.lines.append(self.by.config[key].format(**self.numbers))

    def put(self, text: str) -> None:
        """What is a flag where it begins like one, else a line of the configuration."""
        if text:
            (self.flags if text.startswith("-") else self.lines).append(text)


def launch_command(
    model: Model | str,
    plan: Plan | str,
    engine: Engine | str = USUAL_SERVER,
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
    """The command that starts a deployment with the version that the engine's file names; a plan that it does
    not run as priced is refused, with the nearest that it does.

    `draft` guesses `window` tokens ahead ("mtp": the model's own module); `role`: prefill or decode of a
    disaggregated service; `replicas` of it; `per_node`: devices of a machine, where they lie in several.

    >>> print(launch_command("llama-3-70b", "tp=8", "vllm").command[:68])
    vllm serve meta-llama/Meta-Llama-3-70B --tensor-parallel-size 8 --ma
    """
    software, served = as_engine(engine), make_model(model) if isinstance(model, str) else model
    degrees = make_plan(plan) if isinstance(plan, str) else plan
    require(per_node >= 0, "devices of a machine are counted", per_node=per_node)
    check_drafting(window or 1.0, 1.0, 0.5)
    check_context(served, context)
    own, config = draft in ("", "mtp") and bool(window), shipped_config(served.name)
    if own and not any((config.get("text_config", {}) | config).get(name) for name in OWN_GUESSES):
        raise BadValue(
            f"{served.name} has no module that guesses tokens: name a draft model, like NAME:{window}"
        )
    asked = LaunchRules(software, served, per_node, window)
    asked.check(degrees)
    text = _Wording(asked.by, {k: whole_number(v) for k, v in asked.servers(degrees).items()})
    text.numbers |= _numbers(served, software, text.numbers, window)
    text.numbers |= {"context": context, "draft": draft, "blocks": kv_blocks}
    text.numbers["block_tokens"] = kv_blocks * text.numbers["page"]
    _parallel(text, served)
    _limits(text, software, context, kv_blocks, prefix_caching)
    _formats(text, served)
    if window or draft:
        text.say("mtp" if own else "draft")
    if role != "both":
        text.say(f"{role}_role")
        text.notes.append("a router of the engine's own that hands requests from prefill to decode")
    servers = text.numbers["servers"] * replicas
    return _command(text, software, checkpoint or checkpoint_of(served), servers)


def launched_plan(system: System, model: Model, engine: Engine, window: int = 0) -> Plan:
    """The plan that serves most usual requests on a system, of those that the engine runs as priced."""
    asked = LaunchRules(engine, model, devices_per_machine(system), window)
    found = served_plans(system, model, Requests(1024.0, 256.0), None, engine, top=512, places=False)
    if not found.choices:
        raise BadValue(f"no plan has room for {model.name} on {system.name}: name one, like --plan tp=8")
    runs = (one.plan for one in found.choices if not asked.why_not(one.plan))
    return next(runs, found.choices[0].plan)


def _numbers(model: Model, engine: Engine, degrees: dict[str, Any], window: int) -> dict[str, Any]:
    limits: dict[str, Any] = {n: whole_number(getattr(engine, field)) for n, field in LIMITS.items()}
    limits["expert_slots"] = whole_number(model.experts) + degrees["redundant_experts"]
    # requests of a rank in all stages of a pipeline, and of all ranks whose attention is data parallel
    limits["rank_sequences"] = limits["sequences"] * degrees["pp"]
    limits["all_sequences"] = limits["rank_sequences"] * (degrees["dp"] if model.has_experts else 1)
    limits["memory"] = f"{float(np.asarray(engine.gpu_memory_utilization)):g}"
    return limits | {"window": window, "verified": window + 1}


def _parallel(text: _Wording, model: Model) -> None:
    """Flags of the degrees, and of machines after the first."""
    n, flags = text.numbers, text.by.flags
    alone = ["tp", "dp"] if n["dp"] > 1 else ["tp"]
    shared = ["attention_dp" if text.knows("attention_dp") else "attention_dp_whole"]
    more = {"pp": n["pp"] > 1, "ep" if "ep" in flags else "ep_all": n["ep"] > 1}
    more["redundant_experts"] = n["redundant_experts"] > 0
    degrees = shared if model.has_experts and n["dp"] > 1 else alone
    for key in (*degrees, *(key for key, wanted in more.items() if wanted)):
        text.say(key)
    if n["nodes"] == 1:
        return
    kind = "dp_nodes" if n["dp"] > 1 and text.knows("dp_nodes") else "nodes"
    n["local_ranks"] = n["per_node"] // n["rank_devices"]
    for key, lines in ((kind, text.flags), (f"other_{kind}", text.rest)):
        if key in flags:
            lines.append(flags[key].format(**n))


def _limits(text: _Wording, engine: Engine, context: int, kv_blocks: int, prefix_caching: bool) -> None:
    stated, page = _shipped(as_engine, engine.name), LIMITS["page"]
    for key, wanted in (
        ("sequences", True),
        ("tokens", True),
        ("memory", True),
        # an engine knows which blocks its kernels take
        ("page", stated is None or float(getattr(stated, page)) != float(getattr(engine, page))),
        ("context", context),
        ("blocks", kv_blocks),
        ("prefix_caching_off", not prefix_caching),
        ("mixed_on" if bool(np.asarray(engine.chunked_prefill) > 0) else "mixed_off", True),
    ):
        if wanted:
            text.say(key)


def _shipped(make: Callable[[str], Any], name: str) -> Any:
    """A record as its file has it; None where there is none."""
    try:
        return make(name)
    except StrataError:
        return None


def _formats(text: _Wording, model: Model) -> None:
    """Formats of weights, where they are not those of the checkpoint, and of the cache."""
    published, by = _shipped(make_model, model.name), text.by
    kinds = ("weights", "expert_weights") if model.has_experts else ("weights",)
    wanted = {str(getattr(model, k)) for k in kinds}
    if published is None or any(str(getattr(model, k)) != str(getattr(published, k)) for k in kinds):
        for name in sorted(wanted):
            if name in by.weights:
                text.put(by.weights[name])
            elif name in by.checkpoints:
                text.notes.append(f"weights in {name}: {by.checkpoints[name]}")
            else:
                known = ", ".join(sorted({*by.weights, *by.checkpoints}))
                raise BadValue(f"{by.version} has no weights in {name}; it has {known}")
    kv = str(model.kv)
    if kv not in by.cache:
        raise BadValue(f"{by.version} has no KV cache in {kv}; it has {', '.join(by.cache)}")
    text.put(by.cache[kv])


def checkpoint_of(model: Model) -> str:
    """Where the weights of a shipped model lie on Hugging Face; else its name.

    >>> checkpoint_of(make_model("gpt-oss-120b"))
    'openai/gpt-oss-120b'
    """
    found = HUB.search(str(shipped_config(model.name).get("_strata", {}).get("source", "")))
    return found.group(1) if found else model.name


def _command(said: _Wording, engine: Engine, checkpoint: str, servers: int) -> LaunchCommand:
    by = said.by
    if said.lines:
        said.flags.append(by.config_file.format(file=CONFIG))
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
        config=_yaml(said.lines),
        config_name=CONFIG if said.lines else "",
        notes=tuple(said.notes),
    )


def _yaml(lines: list[str], depth: int = 0) -> str:
    """Lines with keys within keys, as YAML.

    >>> print(_yaml(["a.b: 1", "c: 2", "a.d: 3"]), end="")
    a:
      b: 1
      d: 3
    c: 2
    """
    inside: dict[str, list[str]] = {}
    for line in "\n".join(lines).splitlines():
        path, _, value = line.partition(": ")
        head, dot, rest = path.partition(".")
        inside.setdefault(head, []).append(f"{rest}: {value}" if dot else f": {value}")
    text = ""
    for head, below in inside.items():
        last = below[-1]  # of a key that is said twice the later value counts
        text += "  " * depth + head
        text += f"{last}\n" if last.startswith(": ") else f":\n{_yaml(below, depth + 1)}"
    return text


def _guessed(service: Any) -> dict[str, Any]:
    """The draft of a deployment, where it has one."""
    guess = service.drafting
    if guess is None:
        return {}
    in_a_row = "engines are started with guesses in a row: branches=1"
    require(guess.branches == 1, in_a_row, branches=guess.branches)
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

    if not isinstance(services, Sequence) or not all(isinstance(s, PricedService) for s in services):
        raise BadValue("launch_commands takes deployments, as Deployment.priced makes them")
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
