"""Names in measured files as labels and as the catalogue's: chips, engines and formats, however a file spells
them. A catalogue is handed to every reader, and a fit hands in one with its own versions of some records.
What makes two predictions alike is the key metric|chip|kind|family|engine, under which whole-model points are
counted for intervals. Metrics are `prefill` and `decode` (a prompt's time, a token's time), `request` (time
to first token in a loaded server), `throughput` (tokens/s of such a server), `train` (an optimiser step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strata.base.errors import BadValue, UnknownName
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, fabric
from strata.hardware.system import System, counted_chip, system
from strata.hardware.transport import Transport, transport
from strata.params import dashed, meant, names
from strata.software.engine import Engine, engine
from strata.workload.model import Model, model


@dataclass(frozen=True, eq=False, kw_only=True)
class Catalogue:
    """Chips, systems, engines, models and transports by the names data sets give them.

    Records are read from the shipped files, each once for a catalogue and those made from it. `chips`,
    `engines` and `transports` hold, by their own names, versions priced in place of the shipped ones; such a
    chip need not be shipped at all. `one_in`: of long files of served runs only one row in so many is read.
    """

    chips: Mapping[str, Chip] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    transports: Mapping[str, Transport] = field(default_factory=dict)
    one_in: int = 1
    _read: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    def with_chip(self, version: Chip) -> Catalogue:
        """The same with another version of a chip."""
        return replace(self, chips={**self.chips, version.name: version})

    def with_transport(self, version: Transport) -> Catalogue:
        """The same with another version of a transport, wherever a fabric uses it."""
        return replace(self, transports={**self.transports, version.name: version})

    def chip(self, name: str) -> Chip:
        """A chip by any of its names.

        >>> catalogue = Catalogue()
        >>> catalogue.chip("H200_SXM").name
        'h200'
        >>> from dataclasses import replace
        >>> other = replace(catalogue.chip("h200"), title="a trial")
        >>> catalogue.with_chip(other).chip("h200_sxm").title
        'a trial'
        """
        wanted = name.strip().lower()
        for version in self.chips.values():
            if version.name.lower() == wanted:
                return version
        shipped = self._once(chip, wanted)
        return self.chips.get(shipped.name, shipped)

    def has_chip(self, name: str) -> bool:
        """Whether there is such a chip."""
        try:
            return bool(self.chip(name).name)
        except UnknownName:
            return False

    def system(self, name: str) -> System:
        """A system by name, with the catalogue's versions of its chip and of its fabric's transports."""
        shipped: System = self._once(system, name.strip().lower())
        if not self.chips and not self.transports:
            return shipped
        return replace(
            shipped,
            chip=self.chips.get(shipped.chip.name, shipped.chip),
            fabric=self._with_transports(shipped.fabric),
        )

    def usual_fabric(self, chip_name: str) -> Fabric:
        """The fabric that joins chips of this name unless one says otherwise."""
        return self.fabric(self.chip(chip_name).fabric)

    def fabric(self, name: str) -> Fabric:
        """A fabric by name, with the catalogue's versions of its transports."""
        return self._with_transports(self._once(fabric, name))

    def transport(self, name: str) -> Transport:
        """A transport by name."""
        version: Transport = self.transports.get(name) or self._once(transport, name)
        return version

    def engine(self, name: str) -> Engine:
        """An engine by name, as of the version or date after an @ (`vllm@0.11`); the newest without."""
        version: Engine = self.engines.get(name) or self._once(engine, name)
        return version

    def model(self, name: str, **changes: Any) -> Model:
        """A model by the name a data set gives it."""
        named: Model = self._once(model, name.strip().lower(), **changes)
        return named

    def _with_transports(self, joined: Fabric) -> Fabric:
        if not any(d.transport in self.transports for d in joined.dimension):
            return joined
        dimension = tuple(
            replace(d, transport_model=self.transports[d.transport]) if d.transport in self.transports else d
            for d in joined.dimension
        )
        return replace(joined, dimension=dimension)

    def _once(self, read: Callable[..., Any], name: str, **changes: Any) -> Any:
        key = (read.__name__, name, *sorted(changes.items()))
        if key not in self._read:
            self._read[key] = read(name, **changes)
        return self._read[key]


@dataclass(frozen=True)
class KernelFormat:
    """What a kernel multiplies: formats of weights and activations, and whether narrow weights are widened
    before the product.
    """

    weight: str
    activation: str = "bf16"
    weight_only: bool = False


KERNEL_FORMATS = {
    **{name: KernelFormat(name, name) for name in ("fp64", "fp32", "tf32")},
    **dict.fromkeys(("bf16", "bfloat16", "float16", "fp16", "half"), KernelFormat("bf16")),
    **dict.fromkeys(("fp8", "fp8_static"), KernelFormat("fp8")),
    "fp8_block": KernelFormat("fp8_block"),
    "nvfp4": KernelFormat("fp4"),
    **{name: KernelFormat(name) for name in ("mxfp4", "mxfp6", "mxfp8")},
    **dict.fromkeys(("sq", "int8"), KernelFormat("int8")),
    "int8_wo": KernelFormat("int8", weight_only=True),
    "int4_wo": KernelFormat("int4", weight_only=True),
    "w4afp8": KernelFormat("int4", "fp8", weight_only=True),
    "w4a16_mxfp4": KernelFormat("mxfp4", weight_only=True),
    "w4a8_mxfp4_mxfp8": KernelFormat("mxfp4", "fp8", weight_only=True),
}
# Weights as served: those of kernels, and narrow ones of which no more is said.
WEIGHT_FORMATS = {name: known.weight for name, known in KERNEL_FORMATS.items()}
WEIGHT_FORMATS |= {name: name for name in ("fp4", "int4")}
# Formats of one width that differ in how elements share their scales: a chip multiplies one of them.
FOUR_BITS = ("fp4", "mxfp4")


def kernel_format(name: str) -> KernelFormat:
    """What a data set's name of a kernel's format means for pricing."""
    if name not in KERNEL_FORMATS:
        raise BadValue(f"a format must be one of {', '.join(KERNEL_FORMATS)}, but got '{name}'")
    return KERNEL_FORMATS[name]


def weight_format(name: str) -> str:
    """Strata's name of a weight format."""
    if name.lower() not in WEIGHT_FORMATS:
        raise BadValue(f"a weight format must be one of {', '.join(WEIGHT_FORMATS)}, but got '{name}'")
    return WEIGHT_FORMATS[name.lower()]


def multiplied_format(name: str, chip: Chip) -> str:
    """The format of weights that a chip multiplies, of a run that says no more than how wide they are: 'fp4'
    is that of its matrix units.

    >>> from strata.hardware.chip import chip
    >>> [multiplied_format("fp4", chip(name)) for name in ("b200", "mi355x", "h200")]
    ['fp4', 'mxfp4', 'fp4']
    """
    rates = chip.compute.matrix_rate
    if name.lower() != "fp4" or "fp4" in rates:
        return name
    return next((f for f in FOUR_BITS if f in rates), name)


# What a trainer multiplies in: weights and activations, gradients alike.
TRAINED_FORMATS = {
    **dict.fromkeys(("bf16", "fp16"), "bf16"),
    **dict.fromkeys(("fp8", "fp8-cs", "fp8-ds", "fp8-mx", "mxfp8"), "fp8"),
    **{name: name for name in ("fp4", "nvfp4")},
}


def runs_of(label: str) -> Iterator[str]:
    """Runs of a label's words, the longest first and of those as long the last."""
    words = dashed(label).split("-")
    for length in range(len(words), 0, -1):
        for start in reversed(range(len(words) - length + 1)):
            yield "-".join(words[start : start + length])


def chip_called(catalogue: Catalogue, name: str) -> str:
    """The shipped chip that a run's name of its devices means: the longest run of its words that is one.

    >>> chip_called(Catalogue(), "NVIDIA A100-SXM4-80GB"), chip_called(Catalogue(), "h100 nvl")
    ('a100-80', 'h100-nvl')
    """
    called = (said for said in (name, *runs_of(name)) if catalogue.has_chip(said))
    return catalogue.chip(next(called, name)).name  # one that is unknown is refused, with the chips there are


def server_of(label: str) -> str:
    """The catalogue's name of a serving engine by its label; a router or harness around it, named before or
    after it, does not change it.

    >>> [server_of(n) for n in ("TensorRT-LLM (Dynamo)", "vLLM (AMD harness)", "MoRI-SGLang", "trt")]
    ['trtllm', 'vllm', 'sglang', 'trtllm']
    """
    for run in runs_of(label):
        if engine_name := meant("engine", run):
            return engine_name
    raise UnknownName("serving engine", label, names("engine"), "strata list engines")


def server_label(label: str) -> str:
    """The engine that a label means; a label that nobody knows stays."""
    try:
        return server_of(label)
    except UnknownName:
        return label


def machine_of(label: str) -> tuple[str, int]:
    """The chip and how many of them the label of a system says; ("", 0) where it does not say both.

    >>> machine_of("DGX-H100_H100-SXM-80GBx8_TRT_MaxQ"), machine_of("G894-SD1")
    (('h100', 8), ('', 0))
    >>> machine_of("SYS-521GE-TNRT (8x H100-NVL-94GB, TensorRT)")
    ('h100-nvl', 8)
    """
    return next((machine for run in runs_of(label) if (machine := counted_chip(run))[1]), ("", 0))


def trained_format(name: str) -> str:
    """Strata's name of the format that a trainer multiplies in.

    >>> trained_format("MXFP8"), trained_format("NVFP4")
    ('fp8', 'nvfp4')
    """
    if dashed(name) not in TRAINED_FORMATS:
        raise BadValue(f"precision must be one of {', '.join(TRAINED_FORMATS)}, but got '{name}'")
    return TRAINED_FORMATS[dashed(name)]


# Families that models' names are known by, the longer ones first.
MODEL_FAMILIES = ("llama", "deepseek", "gpt-oss", "qwen", "mixtral", "kimi", "gpt")
ATTENDING = ("full", "window", "sparse")  # layers that attend to a cache; others keep a state


def model_kind(model: Model) -> str:
    """Dense, moe, or hybrid where some layers keep a state in place of a cache: models of one kind are alike
    in how far predictions are off.
    """
    if not set(model.pattern.kinds(0)) <= set(ATTENDING):
        return "hybrid"
    return "moe" if model.has_experts else "dense"


def model_family(name: str) -> str:
    """The family of a model's name: its letters before the first digit.

    >>> [model_family(n) for n in ("llama-3.1-70b", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-30B")]
    ['llama', 'deepseek', 'gpt-oss', 'qwen']
    """
    lower = name.strip().lower().replace("_", "-").replace(" ", "-").replace("meta-llama/", "")
    return next((k for k in MODEL_FAMILIES if k in lower), lower.split("-")[0])


def case_key_of(catalogue: Catalogue, metric: str, chip_name: str, model_name: str, engine: str) -> str:
    """The key of a point by its chip (by its own name), model ("" of a kernel or a collective) and engine; ""
    where a name is unknown.
    """
    try:
        kind = model_kind(catalogue.model(model_name)) if model_name else ""
        family = model_family(model_name) if model_name else ""
        return "|".join((metric, catalogue.chip(chip_name).name, kind, family, engine))
    except ValueError:
        return ""
