"""How an engine is started: the command lines of a version, as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from strata.arrays import register_pytree
from strata.params import Sources, read_record, remembered, text, texts
from strata.records import readable


@register_pytree
@readable("name", "version")
@dataclass(frozen=True, eq=False, kw_only=True)
class Launcher:
    """Flags of one version of an engine by what they say; {braces} hold numbers of the deployment.

    `attention_dp`: data parallel attention whose ranks share experts, with the flag of the tensor degree in
    it (`attention_dp_whole`: only where each such rank is one device). `ep`: any number of parts of the
    experts; `ep_all`: over all ranks or not at all. `mixed_on` and `mixed_off`: prompts in the steps that
    generate, where that is not, or is, what the engine does unasked. `config`: the same for lines of a
    configuration file, keys within keys joined by dots. `nodes`: a server in several machines, and
    `other_nodes` of those after the first beside it; `dp_nodes` and `other_dp_nodes`: where each has whole
    data parallel ranks.
    """

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    version: str = text("the engine and the version whose flags these are")
    command: str = text("what is called, with the {checkpoint}")
    several_nodes: str = text(
        "what calls the command where a server lies in several machines, if something must", default=""
    )
    config_file: str = text("flag of a configuration file, where there is one", default="")
    flags: dict[str, str] = texts("flags of the command line, by what they say")
    config: dict[str, str] = texts("lines of the configuration file, by what they say")
    weights: dict[str, str] = texts("flags of weight formats that any checkpoint can be loaded in")
    checkpoints: dict[str, str] = texts("weight formats that a checkpoint must have itself: which that is")
    cache: dict[str, str] = texts("flags, or lines of the configuration, of formats of the KV cache")
    sources: Sources = field(default_factory=Sources)


@remembered
def launcher(name: str) -> Launcher:
    """A launcher by name or TOML path.

    >>> launcher("vllm-0.19").flags["tp"]
    '--tensor-parallel-size {tp}'
    """
    stated, params, _ = read_record(Launcher, "launchers", name)
    return replace(stated, sources=Sources(params))
