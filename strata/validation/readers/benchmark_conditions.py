"""How published runs were made, where their files do not say: TOML files by the name of the data, each number
with its source, and what they mean for the rows of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from strata.arrays import Number
from strata.hardware.chip import Chip
from strata.hardware.generate.generate import generate
from strata.params import build, by_name, data_folder, override, part, quantity, read_toml, text
from strata.pricing.kernels.recurrent import RecurrentLibrary
from strata.validation.readers.tables import Table

T = TypeVar("T")


def read_conditions(kind: type[T], table: Table, name: str) -> T:
    """The conditions of a table's runs: those of a file in the table's own folder, else those shipped for
    files of its name; with what the table tells otherwise.
    """
    own = table.folder / name
    path = own if own.exists() else data_folder("conditions") / name
    conditions: T = build(kind, read_toml(path), name)[0]
    return override(conditions, table.changes, "condition")[0] if table.changes else conditions


# ------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True, eq=False, kw_only=True)
class RegeneratedChip:
    """The files a chip is made from anew, to be judged beside the one its vendor states."""

    technology: str = text("a file of technology/")
    budget: str = text("a file of budgets/")
    template: str = text("a file of templates/")
    device: str = text("its DRAM: a file of devices/")

    def chip(self) -> Chip:
        return generate(self.technology, self.budget, self.template, device=self.device)


@dataclass(frozen=True, eq=False, kw_only=True)
class RepeatedConditions:
    """One kernel launched again and again, outside a graph."""

    title: str = text("what was run")
    call: Number = quantity("s", "time between the end of a kernel and the start of the next")
    regenerated: RegeneratedChip = part(RegeneratedChip, "the chip from its technology")


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedConditions:
    """The best kernels of a library, some of them for several products at once."""

    title: str = text("what was run")
    batched_format: str = text("format of the rows that name no library and are batches of products")
    batch: Number = quantity("1", "products of such a row", minimum=1)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecurrentConditions:
    """Recurrent layers, many calls of one layer after each other."""

    title: str = text("what was run")
    regenerated: RegeneratedChip = part(RegeneratedChip, "the chip from its technology")
    forward: RecurrentLibrary = part(RecurrentLibrary, "how the library runs a layer forward")
    backward: RecurrentLibrary = part(RecurrentLibrary, "how it runs a layer backward")


@dataclass(frozen=True, eq=False, kw_only=True)
class HostLaunchedConditions:
    """Kernels that the host launches one by one, waiting for each."""

    title: str = text("what was run")
    host: Number = quantity("s", "time of a call that is the host's: its kernel starts so much later")
    least: dict[str, Number] = by_name("s", "least time of a call, by kernel: the host prepares it so long")
    operands: Number = quantity("1", "tensors behind the two operands of a batched product", positive=True)
    forward: RecurrentLibrary = part(RecurrentLibrary, "how the library runs a recurrent layer forward")
    backward: RecurrentLibrary = part(RecurrentLibrary, "how it runs one backward")


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedConditions:
    """Passes of a training step, each timed on the device, the first of them from rest."""

    title: str = text("what was run")
    host: Number = quantity("1", "host time of a kernel over that of an engine's usual host", positive=True)
    start: Number = quantity("s", "time until the first kernel of a step reaches the device")


@dataclass(frozen=True, eq=False, kw_only=True)
class OptimiserConditions:
    """Steps of an optimiser called from Python."""

    title: str = text("what was run")
    host: Number = quantity("s", "time of a call that is the host's")
    rate: Number = quantity("1", "rate of its kernels over that of a stream", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class RooflineAssumptions:
    """What the roofline of all memory levels takes as given of a chip that nothing was fitted to."""

    matrix_efficiency: Number = quantity("1", "share of the matrix peak while no level binds", positive=True)
    cache_efficiency: Number = quantity("1", "sustained share of the cache's peak", positive=True)
    memory_efficiency: Number = quantity("1", "sustained share of DRAM's peak", positive=True)
    exposed: Number = quantity("1", "share of the shorter of core and DRAM time that shows")
    launch: Number = quantity("s", "start and end of one kernel by itself")


@dataclass(frozen=True, eq=False, kw_only=True)
class ProfiledConditions:
    """Kernels run one at a time under a profiler, at a clock so low that no power limit lowers it further."""

    title: str = text("what was run")
    efficiency: Number = quantity("1", "share of that clock's peak large products sustain", positive=True)
    roofline: RooflineAssumptions = part(RooflineAssumptions, "what an unfitted roofline takes as given")


# ------------------------------------------------------------------------------------ training


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedModel:
    """A model's shape, and the chunks of a pipeline stage where its schedule is interleaved."""

    name: str = text("the last word of its name in the file")
    layers: Number = quantity("1", "layers", positive=True)
    hidden: Number = quantity("1", "width", positive=True)
    heads: Number = quantity("1", "attention heads", positive=True)
    chunks: Number | None = quantity("1", "chunks of a stage", optional=True, minimum=1)


@dataclass(frozen=True, eq=False, kw_only=True)
class MegatronConditions:
    """Published training runs of GPT models."""

    title: str = text("what was run")
    engine: str = text("the trainer")
    earlier: str = text("how devices of runs are called that it made before it had async_tp")
    sequence: Number = quantity("1", "tokens of a sequence", positive=True)
    vocabulary: Number = quantity("1", "tokens of the vocabulary", positive=True)
    model: tuple[TrainedModel, ...] = part(TrainedModel, "the models by name", many=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class GptConditions:
    """Training runs whose files hold every size but the vocabulary."""

    title: str = text("what was run")
    engine: str = text("the trainer")
    vocabulary: Number = quantity("1", "tokens of the vocabulary", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class OneModelConditions:
    """Training runs of one model under several layouts."""

    title: str = text("what was run")
    engine: str = text("the trainer")
    model: str = text("the model's name")
    sequence: Number = quantity("1", "tokens of a sequence", positive=True)
    batch: Number = quantity("1", "sequences of a step", positive=True)
    fabric: str = text("the fabric of the node they ran on")
