"""The quantities of a chip that kernels are priced with, gathered once for an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number, namespace
from strata.errors import MissingQuantity
from strata.hardware.chip import Chip, sustained_cache, sustained_memory
from strata.hardware.noc import access_energy
from strata.precision import ARITHMETIC, bytes_of, rate_of, supports
from strata.pricing.kernels.dram_access import Banks, banks_of, network_of
from strata.pricing.price import Price, roofline
from strata.workload.graph import Op
from strata.workload.ops import ExpertMatMul

WIDENED = "widened"  # products whose weights are stored narrower than they are computed
# vector operations to widen a weight: unpack, convert, scale; A100 kernels of ops/gemm.csv widen 3.8e12 a
# second
WIDEN_FLOP = 5.0


@dataclass(frozen=True, eq=False, slots=True)
class MatrixRate:
    """Sustained and peak rate of a product at the highest clock [FLOP/s], its energy [J/FLOP], and the bytes
    of an activation as it enters.
    """

    sustained: Number
    peak: Number
    energy: Number
    activation: Number
    step: Number  # least time of a tile's main loop for each unit of depth [s]
    split: Number  # adding up the parts of a product cut along its depth [s]
    widening: Number  # time one core takes to widen a weight to the arithmetic's format [s]


@dataclass(frozen=True, eq=False)
class Device:
    """Sustained rates of one chip.

    Rates are those at the highest clock; `boost` is that over the clock peaks are quoted at. What the power
    limit leaves of it is decided for whole loads (clock.py), not for a kernel. `grain`: the finer side of a
    matrix instruction, to which short extents are padded. `resident`: activations between kernels may stay in
    the cache. `weight_only`: narrow weights are widened before use. `served`: attention of serving
    frameworks, over pages. `separate_quantize_share`: share of narrow products whose activations are rounded
    by a kernel of its own. `fused`: 1 where vector ops are one kernel each. `pads_remote_experts`: 1 where
    ranks of experts have rows for the picks of the others too. `shared_expert_stream`: 1 where shared experts
    run beside routed ones.
    """

    chip: Chip
    boost: Number
    cores: Number
    bandwidth: Number
    cache_bandwidth: Number
    cache_capacity: Number
    core_bandwidth: Number
    floor: Number
    tile: Number
    launch: Number
    expert_launch: Number
    grain: Number
    resident: bool
    weight_only: bool
    served: bool
    separate_quantize_share: Number
    fused: Number
    pads_remote_experts: Number
    shared_expert_stream: Number
    banks: Banks | None  # of DRAM, where it is described by them
    byte_energy: Number  # from the shared cache to a core [J/B]: `on_chip`
    rates: dict[tuple[str, str], MatrixRate] = field(default_factory=dict)
    # of expert ranks, shared by the products of a layer
    loads: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    # products spend the energy of their thriftiest tiling, whichever is quickest (search/bounds.py)
    for_bounds: bool = False

    def launching(self, op: Op) -> Device:
        """The same with the host's time to launch this op: a product of experts brings kernels of its own
        with it.
        """
        return replace(self, launch=self.expert_launch) if isinstance(op, ExpertMatMul) else self

    def matrix(self, weight: str, activation: str) -> MatrixRate:
        """Rates of a product of these storage formats.

        A product runs in the weight's format where the chip has that arithmetic, else weights are widened to
        the activations' format (weight-only quantisation).
        """
        key = (weight, activation)
        if key not in self.rates:
            used = activation if self.weight_only else arithmetic(self.chip, weight, activation)
            peak = rate_of(self.chip.compute.matrix_rate, used, f"chip {self.chip.name}") * self.boost
            joule = rate_of(self.chip.energy.matrix, used, f"chip {self.chip.name} energy")
            widened = bytes_of(weight) < bytes_of(used)
            name = WIDENED if widened else used
            self.rates[key] = MatrixRate(
                peak * rate_of(self.chip.compute.matrix_efficiency, used),
                peak,
                joule,
                bytes_of(used),
                of_format(self.chip.overhead.step, name),
                of_format(self.chip.overhead.split, name),
                WIDEN_FLOP * self.cores / (self.chip.compute.vector_rate * self.boost) if widened else 0.0,
            )
        return self.rates[key]


def rounded_to(device: Device, weight: str, activation: str) -> str:
    """What happens beside a product: activations rounded to this format, weights widened inside, or nothing."""
    used = activation if device.weight_only else arithmetic(device.chip, weight, activation)
    if bytes_of(used) < bytes_of(activation):
        return used
    return WIDENED if bytes_of(weight) < bytes_of(used) else ""


def of_format(table: dict[str, Number], name: str) -> Number:
    """The entry of a table of times by format; formats nobody measured take that of 16 bits, which every GPU
    library has.
    """
    for known in (name, ARITHMETIC.get(name, name), "bf16"):
        if known in table:
            return table[known]
    raise MissingQuantity(f"no time for products in {name}; there: {', '.join(table)}")


def arithmetic(chip: Chip, weight: str, activation: str) -> str:
    """The format a product of stored weights and activations is computed in on a chip."""
    narrow = bytes_of(weight) < bytes_of(activation)
    return weight if narrow and supports(chip.compute.matrix_rate, weight) else activation


def on_chip(chip: Chip) -> Number:
    """Energy of a byte from the shared cache to a core [J/B]: through the cache and the network, into local
    memory and out of it again.
    """
    return chip.energy.cache + crossing_energy(chip) + 2.0 * chip.energy.sram


def crossing_energy(chip: Chip) -> Number:
    """Energy of a byte of the shared cache over the network inside the chip [J/B]; part of `energy.cache`
    where none is described.

    Slices of the cache belong to all cores, so that a byte is as likely in one as in another.
    """
    noc = network_of(chip)
    return 0.0 if noc is None else access_energy(noc, chip.compute.cores, 1.0 / chip.compute.cores)


def device(
    chip: Chip,
    *,
    resident: bool = True,
    weight_only: bool = False,
    launch: Number = 0.0,
    expert_launch: Number = 0.0,
    served: bool = False,
    separate_quantize_share: Number = 0.0,
    fused: Number = 1.0,
    pads_remote_experts: Number = 0.0,
    shared_expert_stream: Number = 0.0,
    for_bounds: bool = False,
) -> Device:
    """What kernels need of a chip and its software; `launch` is the host's time for each kernel where no
    graph replays them, `expert_launch` for products of experts.
    """
    banks = banks_of(chip)
    bandwidth = sustained_memory(chip)
    if banks is not None:
        bandwidth = namespace(bandwidth, banks.ceiling).minimum(bandwidth, banks.ceiling)
    return Device(
        chip,
        chip.compute.max_clock / chip.compute.clock,
        chip.compute.cores,
        bandwidth,
        sustained_cache(chip) * (chip.compute.max_clock / chip.compute.clock),
        chip.cache.capacity,
        chip.cache.core_bandwidth,
        chip.overhead.kernel,
        chip.overhead.tile,
        launch,
        expert_launch,
        namespace(chip.compute.tile_m, chip.compute.tile_n).minimum(chip.compute.tile_m, chip.compute.tile_n),
        resident,
        weight_only,
        served,
        separate_quantize_share,
        fused,
        pads_remote_experts,
        shared_expert_stream,
        banks,
        on_chip(chip),
        for_bounds=for_bounds,
    )


def close_price(
    device: Device,
    *,
    compute: Number,
    cache: Number,
    memory: Number,
    moved: Number,
    dram: Number,
    flop: Number,
    joule: Number,
    lower: Number,
    floor: Number,
    exposed: Number = 0.0,
) -> Price:
    """The price of a kernel from its parts: every kernel ends here.

    Times of the cores, the cache and DRAM side by side; bytes moved through the cache and to DRAM; useful
    operations; energy of its arithmetic [J]; the roofline bound; the fixed time of this kind of kernel; and
    the share of the shorter of core and DRAM time that the longer does not hide.
    """
    chip = device.chip
    if not (isinstance(exposed, float) and exposed == 0.0):
        xp = namespace(compute, cache, memory, exposed)
        core = xp.maximum(compute, cache)
        shown = 1.0 + exposed * xp.minimum(memory / xp.where(core > 0.0, core, 1.0), 1.0)
        compute, cache = compute * shown, cache * shown
    energy = joule + moved * device.byte_energy + dram * chip.energy.memory
    times = roofline(floor, device.launch, compute, cache, memory)
    return Price(**times, lower=lower, flop=flop, memory_bytes=dram, cache_bytes=moved, energy=energy)
