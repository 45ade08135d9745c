"""Layers with a state in place of a cache: in-projection, short convolution, scan of the state, gate and
norm, out-projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata.base.arrays import Number
from strata.base.errors import BadValue
from strata.workload.attention_parts import LayerOps, Part, parts_of
from strata.workload.graph import Extent, Op
from strata.workload.mixer import DELTA, Mixer
from strata.workload.model import Model
from strata.workload.moe import NORM_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import OPERATIONS, MatMul, Vector
from strata.workload.scan_ops import STATE, ShortConvolution, StateScan
from strata.workload.tasks import Workload

MODULE = "mixer"
# heads that keep states, and heads of keys, which several of them share: divided alike by a layout
STATE_HEADS, KEY_HEADS = "state_heads", "state_groups"
SOFTPLUS = OPERATIONS["element"]["Softplus"]


def mixer_ops(model: Model, work: Workload, tokens: Extent, source: str) -> tuple[Op, ...]:
    """The ops of a layer with a state after its norm."""
    if model.mixer is None:
        raise BadValue(f"{model.name} has layers with a state, but its mixer is not said")
    return _MixerOps(
        MODULE, tokens, model.weights, model.activations, model=model, mixer=model.mixer, work=work
    ).ops(source)


@dataclass(frozen=True, kw_only=True)
class _MixerOps(LayerOps):
    """Ops of one layer, with the extents that they share."""

    mixer: Mixer
    work: Workload

    @property
    def values(self) -> Extent:
        return self._heads(self.mixer.value_dim)

    def _heads(self, unit: Number) -> Extent:
        return Extent(self.mixer.heads, unit, STATE_HEADS)

    @property
    def keys(self) -> Extent:
        """Queries and keys side by side."""
        return Extent(self.mixer.key_heads, 2.0 * self.mixer.key_dim, KEY_HEADS)

    def ops(self, source: str) -> tuple[Op, ...]:
        made: list[Op] = [self._project(source)]
        if self.mixer.convolves:
            made.append(self._convolve())
        tokens = made[-1].output
        extra, decays = self._decays(source, tokens)
        made += extra
        gate = self._gate(source)
        made += gate
        scans = [self._scan(part, (tokens, *decays)) for part in parts_of(self.work)]
        gated = self._gated(tuple(scan.output for scan in scans), gate[-1].output if gate else "projected")
        out = self._product("out_proj", gated.output, "mixer_out", Extent(self.model.hidden), self.values)
        return (*made, *scans, gated, out)

    def _product(self, *told: Any, bias: bool | None = None) -> MatMul:
        return self.product(*told, bias=self.mixer.bias if bias is None else bias)

    def _project(self, source: str) -> MatMul:
        """Values, queries and keys, the gate, and what decides the decay of each head, in one product."""
        mixer, wide = self.mixer, self.mixer.value_dim
        if mixer.kind == "mamba1":
            columns: tuple[Extent, ...] = (self._heads(2.0),)
        elif mixer.kind == "kda":  # with how much each head writes; gates of low rank come by themselves
            columns = (self._heads(wide * (2.0 if mixer.full_rank_gate else 1.0) + 1.0), self.keys)
        else:
            # one step a head, and how much it writes under the delta rule; lightning attention learns neither
            more = {"mamba2": 1.0, "gated_delta": 2.0, "lightning": 0.0}[mixer.kind]
            columns = (self._heads(2.0 * wide + more), self.keys)
        return self._product("in_proj", source, "projected", columns)

    def _convolve(self) -> Vector:
        """The last `conv` tokens of each channel added up, and SiLU; a step moves what it keeps too."""
        mixer, work = self.mixer, self.work
        kept = (mixer.conv - 1.0) / work.sequence
        channels = (self.values,) if mixer.kind == "mamba1" else (self.values, self.keys)
        return self.vector(
            "short_conv",
            "projected",
            "convolved",
            channels,
            ShortConvolution,
            reads=1.0 + kept,
            writes=1.0 + kept,
            flop_per_element=2.0 * mixer.conv + SILU_FLOP,
            special_per_element=SILU_SPECIAL,
            sequences=Extent(sum((p.work.batch for p in parts_of(work)), 0.0), 1.0, "sequences"),
            width=mixer.conv,
            taps=mixer.conv + (1.0 if mixer.conv_bias else 0.0),
        )

    def _decays(self, source: str, tokens: str) -> tuple[list[Op], tuple[str, ...]]:
        """How far the state decays at each token: ops that make it, and the tensors a scan reads beside the
        tokens.
        """
        mixer, rank = self.mixer, Extent(self.mixer.rank)
        if mixer.kind == "lightning":
            return [], ()
        ops: list[Op] = []
        columns, reads, others = self._heads(1.0), "projected", tuple[str, ...]()
        scales: Number = 2.0  # A and the bias of the step
        if mixer.kind == "mamba1":
            ops, others = self._selection(tokens)
            reads, scales = "steps", mixer.key_dim + 1.0  # A of every element of the state, and D
        elif mixer.kind == "mamba2":
            scales = 3.0  # A, D and the bias of the step
        elif mixer.kind == "kda":
            both = 1.0 if mixer.full_rank_gate else 2.0
            columns, scales, reads = self._heads(mixer.key_dim), mixer.key_dim + 1.0, "steps"
            down = Extent(mixer.rank, both)
            ops = [
                self._product("gates_down", source, "latent_gates", down, bias=False),
                self._product("decay_up", "latent_gates", "steps", columns, rank, bias=False),
            ]
        decay = self.vector(
            "decay",
            reads,
            "decays",
            columns,
            precision="fp32",
            flop_per_element=SOFTPLUS[0] + 2.0,
            special_per_element=SOFTPLUS[1],
            parameters=(self._heads(scales),),
        )
        return [*ops, decay], ("decays", *others)

    def _selection(self, tokens: str) -> tuple[list[Op], tuple[str, ...]]:
        """Mamba-1: step, B and C from the tokens themselves; all channels share them, so that a layout that
        divides channels adds them up.
        """
        mixer, width = self.mixer, Extent(self.mixer.rank + 2.0 * self.mixer.key_dim)
        ops: list[Op] = [self._product("x_proj", tokens, "selected", width, self.values, bias=False)]
        if mixer.inner_norms:
            normed = {"flop_per_element": NORM_FLOP, "parameters": (width,)}
            ops.append(self.vector("select_norm", "selected", "selected_n", width, **normed))
        last = ops[-1].output
        step = self._product("dt_proj", last, "steps", self.values, Extent(mixer.rank), bias=True)
        return [*ops, step], (last,)

    def _gate(self, source: str) -> list[Op]:
        """The output gate of low rank, where it does not come from the in-projection."""
        if self.mixer.kind != "kda" or self.mixer.full_rank_gate:
            return []
        rank = Extent(self.mixer.rank)
        return [self._product("gate_up", "latent_gates", "gate", self.values, rank, bias=False)]

    def _scan(self, part: Part, operands: tuple[str, ...]) -> StateScan:
        """The state passed from token to token: step by step where tokens are generated, else in chunks."""
        mixer, work = self.mixer, part.work
        queries = Extent(1.0, work.sequence, "queries")
        return StateScan(
            name=part.named("state_scan"),
            module=MODULE,
            inputs=(*operands, STATE),
            output=part.named("scanned"),
            rule=mixer.rule,
            sequences=Extent(work.batch, 1.0, "sequences"),
            queries=queries,
            share=Extent(1.0, 1.0, "queries"),
            heads=self._heads(1.0),
            key_heads=Extent(mixer.key_heads, 1.0, "" if mixer.kind == "mamba1" else KEY_HEADS),
            key_dim=mixer.key_dim,
            value_dim=mixer.value_dim,
            chunk=mixer.chunk,
            activation=self.model.activations,
            state=mixer.state,
            stepwise=work.phase == "decode",
            fine=mixer.kind == "kda",
            gradients=len(operands),
        )

    def _gated(self, scanned: tuple[str, ...], gate: str) -> Vector:
        """Results times their gate, normed; all heads share the norm under the delta rule."""
        mixer = self.mixer
        parameters: tuple[Extent, ...] = ()
        if mixer.norm:
            shared = mixer.head_norm or mixer.rule == DELTA
            parameters = (Extent(mixer.value_dim) if shared else self.values,)
        return self.vector(
            "gated_norm",
            (*scanned, gate),
            "gated",
            self.values,
            reads=2.0,
            flop_per_element=SILU_FLOP + (NORM_FLOP if mixer.norm else 0.0),
            special_per_element=SILU_SPECIAL,
            parameters=parameters,
        )
