"""What `strata calibrate` fits to what: families of kernels, the files that measure them and the quantities
they determine.
"""

from __future__ import annotations

from dataclasses import dataclass

MICRO, NANO = 1e-6, 1e-9


@dataclass(frozen=True)
class Quantity:
    """A quantity that may be fitted, the range it must stay in, and the format whose rows tell it, if it
    belongs to one.
    """

    path: str
    low: float
    high: float
    format: str = ""


@dataclass(frozen=True)
class Family:
    """Kernels that are fitted together: their files, the columns and values of them that count, and what they
    determine.

    Families are fitted in order, and a quantity that one has told stays for those after it.
    """

    name: str
    files: tuple[str, ...]
    column: tuple[str, ...]
    values: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    skips: tuple[str, ...] = ()  # metrics of its files that do not count, as their groups begin
    even: str = ""  # a column of sizes, each doubling of which counts the same in every group


# What the data sets call formats whose products differ.
FORMAT_OF = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "fp4",
    "sq": "int8",
    "int8": "int8",
    "QuantType.No": "bf16",
    "QuantType.per_1x128": "fp8_block",
    "int8_wo": "widened",
    "int4_wo": "widened",
    "w4a16_mxfp4": "mxfp4",
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "tf32",
}


def products_in(name: str, efficiency: bool = True) -> tuple[Quantity, ...]:
    """What belongs to one format of products: its rate, the steps of its main loop, and how it is cut and
    rounded.
    """
    quantities = [
        Quantity(f"overhead.step.{name}", 0.005 * NANO, 8 * NANO, name),
        Quantity(f"overhead.split.{name}", 0.2 * MICRO, 400 * MICRO, name),
    ]
    if efficiency:
        quantities.append(Quantity(f"compute.matrix_efficiency.{name}", 0.2, 0.92, name))
    if name != "bf16":
        quantities.append(Quantity(f"overhead.quantise.{name}", 0.01 * MICRO, 30 * MICRO, name))
    if name not in ("bf16", "widened"):
        quantities.append(Quantity(f"overhead.quantise_bytes.{name}", 1.0, 20.0, name))
    return tuple(quantities)


def one_format(name: str, values: tuple[str, ...], efficiency: bool = True) -> Family:
    return Family(
        f"products in {name}", ("ops/gemm.csv",), ("gemm_dtype",), values, products_in(name, efficiency)
    )


# solved, not searched: see power.py
POWER = Family("power", ("*/power.csv", "ops/gemm_power.csv"), (), (), ())
# Whole steps, at the times that are predicted for them: last, from the energies that `POWER` found. Clocks
# and times at the power limit follow from energies too, so that these rows must agree with the power's.
STEP_POWER = Family(
    "power of steps",
    ("*/power.csv", "*/step_power.csv"),
    (),
    (),
    (
        Quantity("energy.matrix.bf16", 0.05e-12, 3e-12),
        Quantity("energy.cache", 5e-12, 200e-12),
        Quantity("energy.memory", 5e-12, 200e-12),
    ),
    skips=("energy",),  # of a step: its power and its time once more
)
PRODUCTS = Family(
    "products",
    ("*/gemm.csv", "*/power.csv", "ops/gemm.csv"),  # the clocks of sustained loads tell rates from energies
    ("dtype", "gemm_dtype"),
    ("bf16", "fp8", "bfloat16"),
    (
        Quantity("overhead.kernel", 0.5 * MICRO, 8 * MICRO),
        Quantity("overhead.tile", 0.01 * MICRO, 4 * MICRO),
        Quantity("cache.core_bandwidth", 10e9, 500e9),
        Quantity("cache.efficiency", 0.2, 1.0),
        Quantity("memory.efficiency", 0.4, 0.98),
        Quantity("memory.exposed", 0.001, 1.0),
        *products_in("bf16"),
        *products_in("fp8"),
    ),
)
# the only kernels of such files that tell a chip's own quantities: these, transforms and factorisations
WIDE = Family(
    "wide products",
    ("*/other.csv",),
    ("kernel", "precision"),
    ("gemm", "fp64", "fp32", "tf32"),
    tuple(
        Quantity(f"compute.matrix_efficiency.{name}", 0.2, 0.98, name) for name in ("fp64", "fp32", "tf32")
    ),
)
TRANSFORMS = Family(
    "transforms",
    ("*/other.csv",),
    ("kernel", "precision"),
    ("fft1d", "fft3d", "fp64", "fp32"),
    (Quantity("compute.fft_efficiency", 0.02, 0.9),),
)
FACTORISATIONS = Family(
    "factorisations",
    ("*/other.csv",),
    ("kernel", "precision"),
    ("lu", "fp64", "fp32"),
    (
        Quantity("overhead.column", 0.1 * MICRO, 20 * MICRO),
        Quantity("overhead.pivot", 0.01 * MICRO, 5 * MICRO),
    ),
)
ATTENTION = (
    Quantity("overhead.attention", 0.5 * MICRO, 20 * MICRO),
    Quantity("overhead.merge", 0.01 * MICRO, 20 * MICRO),
    Quantity("overhead.query_block", 0.01 * MICRO, 20 * MICRO),
    Quantity("memory.attention_efficiency", 0.3, 0.98),
    Quantity("compute.attention_efficiency", 0.2, 1.0),
    Quantity("compute.softmax_exposed", 0.01, 4.0),
)


EXPERTS = ("ops/moe.csv",)


def experts_in(name: str) -> tuple[Quantity, ...]:
    """What belongs to one format of the weights of experts."""
    quantities = [
        Quantity(f"experts.efficiency.{name}", 0.1, 1.0, name),
        Quantity(f"experts.floor.{name}", 1 * MICRO, 100 * MICRO, name),
    ]
    return (
        tuple(quantities)
        if name == "bf16"
        else (*quantities, Quantity(f"experts.passes.{name}", 0.01, 30.0, name))
    )


def served_attention(kind: str) -> tuple[Quantity, ...]:
    """What attention inside a serving framework tells, heads in groups (`paged`) or latent."""
    return (
        Quantity(f"{kind}.efficiency", 0.2, 1.0),
        Quantity(f"{kind}.softmax_exposed", 0.01, 4.0),
        Quantity(f"{kind}.query_block", 0.01 * MICRO, 20 * MICRO),
        Quantity(f"{kind}.memory_efficiency", 0.3, 0.98),
        Quantity(f"{kind}.cache_efficiency", 0.02, 1.0),
        Quantity(f"{kind}.ramp", 0.01 * MICRO, 60 * MICRO),
        Quantity(f"{kind}.merge", 0.01 * MICRO, 20 * MICRO),
        Quantity(f"{kind}.prompt", 1 * MICRO, 30 * MICRO),
        Quantity(f"{kind}.floor.bf16", 1 * MICRO, 30 * MICRO, "bf16"),
        Quantity(f"{kind}.floor.fp8", 1 * MICRO, 30 * MICRO, "fp8"),
    )


# Products and experts of AMD's library, each row the best of its tuned kernels. Kernels of many products (16
# bits here) and those scaled by blocks have rates of their own; the rest is what all formats share. What DRAM
# and cache sustain these rows do not tell: from 0.66 to 0.81 of DRAM's peak the held-out third stays as good.
TUNED = (
    Family(
        "tuned products",
        ("ops/amd_gemm.csv",),
        ("format",),
        ("bf16", "fp8_block", "int8"),
        (
            Quantity("overhead.kernel", 0.5 * MICRO, 8 * MICRO),
            Quantity("overhead.tile", 0.01 * MICRO, 4 * MICRO),
            Quantity("cache.core_bandwidth", 5e9, 134e9),
            Quantity("memory.exposed", 0.001, 1.0),
            Quantity("compute.grouped_efficiency", 0.2, 1.0, "bf16"),
            Quantity("overhead.step.fp8_block", 0.005 * NANO, 8 * NANO, "fp8_block"),
            Quantity("overhead.split.fp8_block", 0.2 * MICRO, 400 * MICRO, "fp8_block"),
            Quantity("compute.rescale.fp8_block", 0.1, 100.0, "fp8_block"),
            Quantity("compute.matrix_efficiency.int8", 0.2, 0.98, "int8"),
        ),
        even="m",
    ),
    Family(
        "tuned experts",
        ("ops/amd_moe.csv",),
        ("q_type",),
        ("QuantType.No", "QuantType.per_1x128"),
        (
            Quantity("experts.memory_efficiency", 0.3, 1.0),
            Quantity("experts.gather_efficiency", 0.05, 1.0),
            Quantity("experts.core_bandwidth", 5e9, 134e9),
            Quantity("experts.efficiency.bf16", 0.1, 1.0, "bf16"),
            Quantity("experts.floor.bf16", 1 * MICRO, 60 * MICRO),
            Quantity("experts.efficiency.fp8_block", 0.1, 1.0, "fp8_block"),
        ),
    ),
)
STREAMS = Family(
    "streams",
    ("*/stream.csv",),
    (),
    (),
    (
        Quantity("overhead.stream", 0.2 * MICRO, 5 * MICRO),
        Quantity("overhead.cold", 0.01 * MICRO, 5 * MICRO),
        Quantity("memory.stream_efficiency", 0.4, 0.98),
        Quantity("cache.latency", 20 * NANO, 1 * MICRO),
        Quantity("memory.latency", 50 * NANO, 2 * MICRO),
    ),
)
FAMILIES = (
    STREAMS,  # first: rounding activations for a product is a stream
    PRODUCTS,
    WIDE,
    TRANSFORMS,
    FACTORISATIONS,
    one_format("fp8_block", ("fp8_block",)),
    one_format("fp4", ("nvfp4",)),
    one_format("int8", ("sq",)),
    one_format("widened", ("int8_wo", "int4_wo"), efficiency=False),
    Family(
        "grouped products",
        ("*/grouped_gemm.csv",),
        (),
        (),
        (
            Quantity("overhead.grouped", 0.5 * MICRO, 40 * MICRO),
            Quantity("compute.grouped_efficiency", 0.2, 1.0),
            Quantity("memory.grouped_efficiency", 0.3, 0.98),
        ),
    ),
    Family(
        "experts",
        EXPERTS,
        ("moe_dtype",),
        ("bfloat16", "fp8"),
        (
            Quantity("experts.memory_efficiency", 0.3, 1.0),
            Quantity("experts.gather_efficiency", 0.05, 1.0),
            Quantity("experts.sort", 0.1 * MICRO, 30 * MICRO),
            Quantity("experts.tile", 0.05 * MICRO, 10 * MICRO),
            *experts_in("bf16"),
            *experts_in("fp8"),
        ),
    ),
    Family("experts in fp8_block", EXPERTS, ("moe_dtype",), ("fp8_block",), experts_in("fp8_block")),
    Family("experts in fp4", EXPERTS, ("moe_dtype",), ("nvfp4",), experts_in("fp4")),
    Family("experts in mxfp4", EXPERTS, ("moe_dtype",), ("w4a16_mxfp4",), experts_in("mxfp4")),
    *TUNED,
    Family("attention", ("*/attention.csv",), (), (), ATTENTION),
    Family(
        "served attention",
        ("ops/context_attention.csv", "ops/generation_attention.csv"),
        ("kv_cache_dtype",),
        ("bfloat16", "fp8"),
        served_attention("paged"),
    ),
    Family(
        "latent attention",
        ("ops/context_mla.csv", "ops/generation_mla.csv"),
        ("kv_cache_dtype",),
        ("bfloat16", "fp8"),
        (
            *served_attention("latent"),
            Quantity("latent.step_efficiency.bf16", 0.1, 1.0, "bf16"),
            Quantity("latent.step_efficiency.fp8", 0.1, 1.0, "fp8"),
        ),
    ),
)

# Transports are fitted like chips; a name with * stands for every quantity of a transport that fits it.
NETWORK = (
    Family(
        "library collectives",
        ("ops/nccl.csv",),
        (),
        (),
        (
            Quantity("rings.start.flagged", 1 * MICRO, 30 * MICRO),
            Quantity("rings.start.simple", 1 * MICRO, 60 * MICRO),
            Quantity("rings.start.in_switch", 1 * MICRO, 200 * MICRO),
            Quantity("rings.step.*", 0.05, 30.0),
            Quantity("rings.share.*", 0.001, 0.98),
            Quantity("rings.own", 50e9, 5e12),
            Quantity("pairs.start.*", 1 * MICRO, 60 * MICRO),
            Quantity("pairs.peer", 0.01 * MICRO, 3 * MICRO),
            Quantity("pairs.channel", 0.001, 0.5),
            Quantity("pairs.share", 0.1, 0.98),
            Quantity("pairs.own", 50e9, 5e12),
        ),
    ),
    Family(
        "direct all-reduce",
        ("ops/custom_allreduce.csv",),
        (),
        (),
        (
            Quantity("direct.start.*", 0.5 * MICRO, 30 * MICRO),
            Quantity("direct.peer.*", 0.005 * MICRO, 3 * MICRO),
            Quantity("direct.share.*", 0.1, 0.98),
            Quantity("direct.second.*", 0.05 * MICRO, 30 * MICRO),
        ),
    ),
    Family(
        "expert exchange",
        ("ops/deepep_low_latency.csv",),
        (),
        (),
        (
            Quantity("experts.start.*", 1 * MICRO, 60 * MICRO),
            Quantity("experts.expert.*", 0.1 * NANO, 300 * NANO),
            Quantity("experts.share.*", 0.05, 0.98),
            Quantity("experts.lane", 0.1e9, 100e9),
        ),
    ),
    Family(
        "tiles",
        ("h100/overlap.csv",),
        (),
        (),
        (
            Quantity("tiles.start", 1 * MICRO, 300 * MICRO),
            Quantity("tiles.share", 0.1, 0.98),
            Quantity("tiles.cores", 0.001, 0.6),
        ),
    ),
)
