"""The quantities of a chip that kernels are priced with, gathered once for an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.errors import MissingQuantity
from strata.base.memo import Memo, is_settled, value_key
from strata.base.precision import ARITHMETIC, bytes_of, rate_of, supports
from strata.hardware.chip import Chip, sustained_cache, sustained_memory
from strata.hardware.chip_parts import MemoryLevel
from strata.hardware.noc import access_energy
from strata.pricing.kernels.traffic import Banks, banks_of, noc_of
from strata.pricing.price import Price, roofline_price
from strata.software.engine import Engine, KernelLibrary, trainer_of
from strata.software.trainer import ExpertBias

WIDENED = "widened"  # products whose weights are stored narrower than they are computed
# vector operations to widen a weight: unpack, convert, scale; A100 kernels of ops/gemm.csv widen 3.8e12 a
# second
WIDEN_FLOP = 5.0
BLOCK_DEPTH = 128.0  # of the blocks that share a scale, in formats whose sums are scaled outside matrix units


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class MatrixRate:
    """Rates of a product at the highest clock [FLOP/s], and what else its formats decide."""

    sustained: Number
    peak: Number
    energy: Number  # [J/FLOP]
    activation: Number  # bytes of one as it enters
    step: Number  # least time of a tile's main loop for each unit of depth [s]
    split: Number  # adding up the parts of a product cut along its depth [s]
    widening: Number  # time one core takes to widen a weight to the arithmetic's format [s]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class KernelSoftware:
    """How software runs a chip's kernels."""

    resident: bool = True  # activations between kernels may stay in the cache
    weight_only: bool = False  # narrow weights are widened before use
    served: bool = False  # kernels of serving frameworks: attention over pages, experts on two streams
    separate_quantize_share: Number = 0.0  # of narrow products whose activations a kernel of its own rounds
    fused: Number = 1.0  # 1 where vector ops are one kernel each
    shared_expert_stream: Number = 0.0  # 1 where shared experts run beside routed ones
    expert_inputs: str = ""  # what experts of a narrow microscaling format are given; "": as stored
    weight_only_experts: str = "measured"  # kernels for experts that a chip has no arithmetic for
    expert_block_rate: Number = 1.0  # of expert-parallel experts in scaled blocks, over tuned kernels
    routed_launches: Number = 1.0  # of an op on routed rows, over those of any other
    weight_only_rate: Number = 1.0  # arithmetic of fused ones over products of the activations' format
    fusion: str = "dataflow"  # kernels fused on chips that execute dataflow, or "none"
    trains: bool = False
    fused_loss: Number = 1.0  # 1 where the loss is one kernel over the logits
    loss_slots: Number | None = None  # of a vector lane for a logit; None: the loss's own operations
    main_gradients: str = ""  # format in which gradients of weights are added up, where it is said
    # bytes read of an operand to round it in training; None: it comes rounded
    quantize_bytes: Number | None = None
    fused_gradient_add: Number = 1.0  # 1 where their product does so
    expert_bias: ExpertBias | None = None  # kernels that add biases of experts; None: their product does
    # products spend the energy of their thriftiest tiling, whichever is quickest (search/bounds.py)
    for_bounds: bool = False
    unfused_attention: bool = False  # scores lie in DRAM between kernels


# what a library says of its kernels under the same names
OF_LIBRARY = (
    *("separate_quantize_share", "fused", "fusion", "shared_expert_stream", "expert_inputs"),
    *("expert_block_rate", "routed_launches", "weight_only_rate"),
)


def software_of(library: KernelLibrary, **more: Any) -> KernelSoftware:
    """Kernels of a library; `more` are the fields that depend on the model and the step."""
    same = {name: getattr(library, name) for name in OF_LIBRARY}
    return KernelSoftware(**same, served=library.measured == "served", weight_only_experts="fused", **more)


def training_software(engine: Engine) -> dict[str, Any]:
    """What an engine's kernels do in training, as fields of `KernelSoftware`."""
    trainer = trainer_of(engine)
    rounded, fused_add = trainer.quantize_bytes, trainer.fused_gradient_add
    same = ("fused_loss", "loss_slots", "main_gradients", "expert_bias")
    return {name: getattr(trainer, name) for name in same} | {
        "trains": True,
        "unfused_attention": trainer.attention == "unfused",
        "quantize_bytes": None if rounded.__class__ is float and rounded == 0.0 else rounded,
        "fused_gradient_add": 1.0 if fused_add is None else fused_add,
    }


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Device:
    """Sustained rates of one chip, and the software that runs on it.

    Rates are those at the highest clock; `boost` is that over the clock peaks are quoted at. What the power
    limit leaves of it is decided for whole loads (power_cap.py), not for a kernel. `grain`: the finer side of
    a matrix instruction, to which short extents are padded.
    """

    chip: Chip
    software: KernelSoftware
    boost: Number
    cores: Number
    bandwidth: Number
    cache_bandwidth: Number
    cache_capacity: Number
    core_bandwidth: Number
    floor: Number
    tile: Number
    grain: Number
    banks: Banks | None  # of DRAM, where it is described by them
    byte_energy: Number  # from the shared cache to a core [J/B]: `cache_byte_energy`
    # of the shared level behind the cache [B/s], where there is one: then `cache_capacity` is that level's
    far_bandwidth: Number | None = None
    rates: dict[tuple[str, str], MatrixRate] = field(default_factory=dict)
    # of expert ranks, shared by the products of a layer; and, of a shared device, prices of kernels by their
    # sizes: of this device and no other, so that one made of it has none
    loads: Memo = field(init=False, default_factory=lambda: Memo(64))
    prices: Memo | None = field(init=False, default=None)

    @property
    def fuses(self) -> bool:
        """Whether kernels run fused: the chip executes dataflow, and the software leaves it to."""
        return self.chip.execution == "dataflow" and self.software.fusion != "none"

    @property
    def stream_bandwidth(self) -> Number:
        """What tensors that pass once get of the shared memories on the die [B/s]: the last one's."""
        return self.cache_bandwidth if self.far_bandwidth is None else self.far_bandwidth

    def matrix(self, weight: str, activation: str) -> MatrixRate:
        """Rates of a product of these storage formats.

        A product runs in the weight's format where the chip has that arithmetic, else weights are widened to
        the activations' format (weight-only quantisation).
        """
        key = (weight, activation)
        if key not in self.rates:
            used = (
                activation if self.software.weight_only else arithmetic_format(self.chip, weight, activation)
            )
            peak = rate_of(self.chip.compute.matrix_rate, used, f"chip {self.chip.name}") * self.boost
            joule = rate_of(self.chip.energy.matrix, used, f"chip {self.chip.name} energy")
            widened = bytes_of(weight) < bytes_of(used)
            name = WIDENED if widened else used
            widening = WIDEN_FLOP * self.cores / (self.chip.compute.vector_rate * self.boost)
            self.rates[key] = MatrixRate(
                sustained=rescaled_rate(
                    peak * rate_of(self.chip.compute.matrix_efficiency, used), used, self.chip, self.boost
                ),
                peak=peak,
                energy=joule,
                activation=bytes_of(used),
                step=by_format(self.chip.overhead.step, name),
                split=by_format(self.chip.overhead.split, name),
                widening=widening if widened else 0.0,
            )
        return self.rates[key]


def rescaled_rate(rate: Number, name: str, chip: Chip, boost: Number = 1.0) -> Number:
    r"""Rate of products whose sums over blocks of depth are scaled by the vector units [FLOP/s].

    .. math:: R' = \left(\frac{1}{R} + \frac{q}{2 d V}\right)^{-1}

    rate R of the matrix units; q vector operations for each result and block of d = 128 deep
    (`compute.rescale` of the format, else none) at the vector peak V: sums wait for them.

    DeepSeek-V3, arXiv 2412.19437, sec. 3.3.2: partial sums of 128 deep are scaled and added in CUDA cores.

    >>> from strata.hardware.chip import chip
    >>> slow = chip("mi300x", **{"compute.rescale.fp8_block": 16.0, "compute.vector_rate": 1e14})
    >>> [rescaled_rate(1.6e15, name, slow) / 1e15 for name in ("fp8_block", "fp8")]
    [0.8, 1.6]
    """
    table = chip.compute.rescale
    if table is None or name not in table:
        return rate
    return 1.0 / (1.0 / rate + table[name] / (2.0 * BLOCK_DEPTH * chip.compute.vector_rate * boost))


def quantized_format(device: Device, weight: str, activation: str) -> str:
    """The format activations are rounded to before a product, `WIDENED` where it widens weights, else ""."""
    used = activation if device.software.weight_only else arithmetic_format(device.chip, weight, activation)
    if bytes_of(used) < bytes_of(activation):
        return used
    return WIDENED if bytes_of(weight) < bytes_of(used) else ""


def by_format(table: dict[str, Number], name: str) -> Number:
    """The entry of a table by format; of formats nobody measured that of 16 bits, which every library has."""
    for known in (name, ARITHMETIC.get(name, name), "bf16"):
        if known in table:
            return table[known]
    raise MissingQuantity(f"no time for products in {name}; there: {', '.join(table)}")


def arithmetic_format(chip: Chip, weight: str, activation: str) -> str:
    """The format a product of stored weights and activations is computed in on a chip."""
    narrow = bytes_of(weight) < bytes_of(activation)
    return weight if narrow and supports(chip.compute.matrix_rate, weight) else activation


def cache_byte_energy(chip: Chip) -> Number:
    """Energy of a byte from the shared cache over the network to a core's memory and out of it [J/B]."""
    return chip.energy.cache + noc_byte_energy(chip) + 2.0 * chip.energy.sram


def noc_byte_energy(chip: Chip) -> Number:
    """Energy of a byte of the shared cache over the network inside the chip [J/B]; part of `energy.cache`
    where none is described.

    Slices of the cache belong to all cores, so that a byte is as likely in one as in another.
    """
    noc = noc_of(chip)
    return 0.0 if noc is None else access_energy(noc, chip.compute.cores, 1.0 / chip.compute.cores)


def device(chip: Chip, software: KernelSoftware | None = None, **changes: Any) -> Device:
    """What kernels need of a chip and its software; `changes` are fields of the software, or of the default.

    >>> from strata.hardware.chip import chip
    >>> device(chip("h200"), resident=False).software.resident
    False
    """
    if changes:
        software = KernelSoftware(**changes) if software is None else replace(software, **changes)
    banks = banks_of(chip)
    bandwidth = sustained_memory(chip)
    if banks is not None:
        bandwidth = namespace(bandwidth, banks.ceiling).minimum(bandwidth, banks.ceiling)
    boost = chip.compute.max_clock / chip.compute.clock
    rows, columns = chip.compute.tile_m, chip.compute.tile_n
    far = far_level(chip)
    return Device(
        chip=chip,
        software=KernelSoftware() if software is None else software,
        boost=boost,
        cores=chip.compute.cores,
        bandwidth=bandwidth,
        cache_bandwidth=sustained_cache(chip) * boost,
        cache_capacity=chip.cache.capacity if far is None else far.capacity,
        core_bandwidth=chip.cache.core_bandwidth,
        floor=chip.overhead.kernel,
        tile=chip.overhead.tile,
        grain=namespace(rows, columns).minimum(rows, columns),
        banks=banks,
        byte_energy=cache_byte_energy(chip),
        far_bandwidth=None if far is None else far.bandwidth * far.efficiency,
    )


_DEVICES = Memo(128)


def shared_device(chip: Chip, software: KernelSoftware) -> Device:
    """`device` of single numbers, one for all who ask: what it prices once is priced."""
    key = value_key(software) if is_settled(chip) else None
    if key is None:
        return device(chip, software)

    def made() -> Device:
        found = device(chip, software)
        object.__setattr__(found, "prices", Memo(2048))
        return found

    return _DEVICES.of((chip, key), made)


def kernel_price(
    device: Device,
    *,
    compute: Number,
    cache: Number = 0.0,
    memory: Number = 0.0,
    moved: Number = 0.0,
    dram: Number = 0.0,
    flop: Number = 0.0,
    joule: Number = 0.0,
    lower: Number = 0.0,
    floor: Number = 0.0,
    exposed: Number = 0.0,
) -> Price:
    """The price of a kernel from its parts: every kernel ends here.

    Times of the cores, the cache and DRAM side by side; bytes moved through the cache and to DRAM; useful
    operations; energy of its arithmetic [J]; the roofline bound; the fixed time of this kind of kernel; and
    the share of the shorter of core and DRAM time that the longer does not hide.
    """
    if exposed.__class__ is not float or exposed != 0.0:
        xp = namespace(compute, cache, memory, exposed)
        core = xp.maximum(compute, cache)
        shown = 1.0 + exposed * xp.minimum(memory / xp.where(core > 0.0, core, 1.0), 1.0)
        compute, cache = compute * shown, cache * shown
    return roofline_price(
        floor=floor,
        compute=compute,
        cache=cache,
        memory=memory,
        lower=lower,
        flop=flop,
        memory_bytes=dram,
        cache_bytes=moved,
        energy=joule + moved * device.byte_energy + dram * device.chip.energy.memory,
    )


def far_level(chip: Chip) -> MemoryLevel | None:
    """The shared level of memory behind the cache, the last before DRAM; None where DRAM follows.

    >>> from strata.hardware.chip import chip
    >>> far_level(chip("mi300x")).name, far_level(chip("h200"))
    ('Infinity Cache', None)
    """
    shared = [level for level in chip.levels or () if level.scope == "global"]
    return shared[-1] if shared else None
