"""How published runs were made, where their files do not say: TOML files by the name of the data, each number
with its source, and what they mean for the rows of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from strata.arrays import Array, Number
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


# ------------------------------------------------------------------------------------- serving


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchConditions:
    """Batches given to an engine in process."""

    title: str = text("what was run")
    version: str = text("the version of the engine, or when it ran")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")


@dataclass(frozen=True, eq=False, kw_only=True)
class ThroughputRun:
    """How many requests a run of such lengths had."""

    tokens: Number = quantity("1", "tokens of a request, read and generated", positive=True)
    requests: Number = quantity("1", "requests of the run", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class ThroughputConditions:
    """Runs without a limit on requests."""

    title: str = text("what was run")
    engine: str = text("the engine that served")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    run: tuple[ThroughputRun, ...] = part(ThroughputRun, "requests by tokens, in rising order", many=True)

    def requests(self, tokens: Array) -> Array:
        """Requests of runs with so many tokens in each."""
        return np.interp(tokens, [float(r.tokens) for r in self.run], [float(r.requests) for r in self.run])


@dataclass(frozen=True, eq=False, kw_only=True)
class SingleRequestConditions:
    """Requests one at a time."""

    title: str = text("what was run")
    engine: str = text("the engine that served")
    collectives: str = text("whose collectives it used")
    input: Number = quantity("1", "tokens read", positive=True)
    output: Number = quantity("1", "tokens generated", positive=True)
    graphs: Number = quantity("1", "1 where steps run from captured graphs")
    launches: Number = quantity("1", "launches a kernel takes")


@dataclass(frozen=True, eq=False, kw_only=True)
class ClientConditions:
    """A closed loop of clients of which little is known."""

    title: str = text("what was run")
    engine: str = text("the engine that served")
    rounds: Number = quantity("1", "requests of each client", positive=True)
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodeConditions:
    """Batches of which only the decoding was timed."""

    title: str = text("what was run")
    engine: str = text("the engine that served")
    left_out: str = text("the group of rows that is too noisy to be compared")


@dataclass(frozen=True, eq=False, kw_only=True)
class EnergyConditions:
    """Servers whose power was measured while clients kept them full: prompts by task, as an interval."""

    title: str = text("what was run")
    engine: str = text("the engine that served")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    tokens: Number = quantity("1", "tokens of one step at most", positive=True)
    asynchronous: Number = quantity("1", "1 where the host worked beside the device, a step ahead")
    sampling: Number = quantity("1", "share of the time a sequence adds to a step that is the device's own")
    prompt: dict[str, Number] = by_name("1", "likely tokens of a prompt, by task")
    shortest_prompt: dict[str, Number] = by_name("1", "tokens of a prompt at least, by task")
    longest_prompt: dict[str, Number] = by_name("1", "tokens of a prompt at most, by task")


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


# ---------------------------------------------------------------------------- rows of one table


def parallel_degree(rows: Table, column: str) -> Array:
    """A parallel degree; empty and 0 mean 1."""
    return np.maximum(rows.number(column, empty=1.0), 1.0)
