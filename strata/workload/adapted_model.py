"""A language model served with low-rank adapters beside its products, other ones for other requests."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from strata.base.arrays import Number, namespace, register_pytree
from strata.base.errors import require
from strata.workload.graph import Graph, checked
from strata.workload.lora import ADAPTER, Lora, adapted_graph
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode


@register_pytree
@dataclass(frozen=True, eq=False)
class AdaptedModel(Model):
    """A model whose steps also run adapters, unmerged. A step that only generates reads the weights of as
    many as its sequences ask for, at most `active`, as products of so many times the rank; of steps that read
    prompts, whose products are bound by operations, one.
    """

    lora: Lora | None = None
    active: Number = 1.0  # adapters that the sequences of a step have between them, at most

    def trace(self, work: Workload) -> Graph:
        graph = super().trace(work)
        if self.lora is None or work.phase == "train":
            return graph
        xp = namespace(work.batch, self.active)
        reads = work.phase != "decode" or work.prompts is not None
        many = 1.0 if reads else xp.minimum(self.active, work.batch)
        return checked(adapted_graph(graph, replace(self.lora, rank=self.lora.rank * many)))


def adapted_model(model: Model, lora: Lora, active: float = 1.0) -> AdaptedModel:
    """A model with adapters of one kind, up to `active` of them in a step."""
    require(active >= 1, "a step has at least one adapter", active=active)
    return AdaptedModel(**{f.name: getattr(model, f.name) for f in fields(Model)}, lora=lora, active=active)


def adapter_bytes(model: Model, lora: Lora) -> float:
    """Weights of one adapter of a model, in all its layers [B].

    >>> from strata.workload.model import model
    >>> # 32 layers, rank 16, 2 bytes: qkv 4096 + 6144, output 4096 + 4096, gate and up 4096 + 28672, down
    >>> # 14336 + 4096
    >>> adapter_bytes(model("llama-3-8b"), Lora(rank=16.0)) / (32 * 16 * 2)
    69632.0
    """
    graph = adapted_model(model, lora).trace(decode(1.0, 1.0))
    sizes = (block.count * op.weight_bytes() for block, op in graph.ops() if op.role == ADAPTER)
    return float(sum(sizes, 0.0))
