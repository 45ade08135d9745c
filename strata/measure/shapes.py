"""Which kernels `strata measure` times: products of real models and of random sizes, streams, attention,
experts, and sustained loads.

The lists need no GPU. Shapes come in a shuffled order that is the same everywhere: every third line of a file
is held out by `strata calibrate`, and a GPU that warms up while it measures must not tilt one size against
another.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

TIMES = ("median_s", "min_s", "max_s")
# Columns of what a kernel is, by the kind of file it goes to.
SIZES = {
    "gemm": "name dtype m n k",
    "stream": "op rows cols dtype bytes_read bytes_written",
    "attention": "phase backend batch q_heads kv_heads head_dim q_len kv_len causal",
    "grouped_gemm": "experts tokens_total n k routing",
}
BOARD = "load seconds calls work_per_call power_w sm_mhz mem_mhz temp_c mem_temp"
COLUMNS = {kind: (*sizes.split(), *TIMES) for kind, sizes in SIZES.items()} | {"power": tuple(BOARD.split())}
KINDS = tuple(COLUMNS)
# Shapes of a quick run: enough for a fit with a third held out, in about a minute.
QUICK = {"gemm": 30, "stream": 30, "attention": 30, "grouped_gemm": 24, "power": 8}
BYTES = {"bf16": 2, "fp8": 1, "u8": 1}

# Weights [n, k] of Llama 3 layers (arXiv 2407.21783, table 3), whole and divided over 8 GPUs.
LAYERS = {
    "llama8b.qkv": (6144, 4096),
    "llama8b.o": (4096, 4096),
    "llama8b.gateup": (28672, 4096),
    "llama8b.down": (4096, 14336),
    "llama8b.head": (128256, 4096),
    "llama70b.qkv": (10240, 8192),
    "llama70b.gateup": (57344, 8192),
    "llama70b.down": (8192, 28672),
    "llama70b.tp8.qkv": (1280, 8192),
    "llama70b.tp8.o": (8192, 1024),
    "llama70b.tp8.gateup": (7168, 8192),
    "llama70b.tp8.down": (8192, 3584),
    "llama405b.tp8.qkv": (2304, 16384),
    "llama405b.tp8.o": (16384, 2048),
    "llama405b.tp8.gateup": (13312, 16384),
    "llama405b.tp8.down": (16384, 6656),
}
TOKENS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SQUARES = (256, 512, 1024, 2048, 4096, 8192, 16384)
RANDOM_PRODUCTS = 64
# query and key/value heads: none shared, grouped, grouped, one GPU of eight
HEADS = ((32, 32), (32, 8), (64, 8), (8, 1))
HEAD_DIM = 128
PROMPTS = (
    *((1, length) for length in (128, 512, 1024, 2048, 4096, 8192, 16384, 32768)),
    *((4, 1024), (4, 4096), (16, 512), (16, 2048)),
)
DECODES = tuple(product((1, 4, 16, 64, 128, 256), (256, 1024, 4096, 16384, 65536)))
MOST_CACHED = 1 << 25  # tokens x key/value heads of a decode: longer ones repeat what shorter ones say
# Mixtral 8x7B and Qwen3-30B-A3B: up and down
EXPERTS = ((8, 28672, 4096), (8, 4096, 14336), (128, 1536, 2048), (128, 2048, 768))


@dataclass(frozen=True)
class KernelCase:
    """One kernel to time: its kind of file, its columns there, and the bytes one call reads and writes."""

    kind: str
    row: dict[str, str | int]
    touched: int

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other rows of its file."""
        return tuple(str(v) for v in self.row.values())


@dataclass(frozen=True)
class SustainedLoad:
    """A kernel repeated for seconds while power is read; none: idle. `sets`: 1 in the cache, 0 rotating."""

    name: str
    work: int  # FLOP of one call of a product, bytes of others
    kernel: KernelCase | None = None
    sets: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        return (self.name,)


def _case(kind: str, touched: int, sizes: tuple[str | int, ...]) -> KernelCase:
    return KernelCase(kind, dict(zip(SIZES[kind].split(), sizes, strict=True)), touched)


def gemm_case(name: str, dtype: str, m: int, n: int, k: int) -> KernelCase:
    """C[m, n] = A[m, k] B[n, k]^T; fp8 gives a bf16 result.

    >>> gemm_case("square", "fp8", 64, 64, 64).touched
    16384
    """
    touched = BYTES[dtype] * (m * k + n * k) + BYTES["bf16"] * m * n
    return _case("gemm", touched, (name, dtype, m, n, k))


def stream_case(op: str, rows: int, cols: int) -> KernelCase:
    """An element-wise or row-wise kernel; an add reads two tensors."""
    dtype = "u8" if op == "copy" else "bf16"
    written = rows * cols * BYTES[dtype]
    read = written * (2 if op == "add" else 1)
    return _case("stream", read + written, (op, rows, cols, dtype, read, written))


def attention_case(
    phase: str, backend: str, batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int
) -> KernelCase:
    """Scaled dot product attention in bf16, causal where a prompt is read."""
    touched = BYTES["bf16"] * HEAD_DIM * batch * 2 * (heads * q_len + kv_heads * kv_len)
    sizes = (phase, backend, batch, heads, kv_heads, HEAD_DIM, q_len, kv_len, int(phase == "prefill"))
    return _case("attention", touched, sizes)


def grouped_case(experts: int, tokens: int, n: int, k: int, routing: str) -> KernelCase:
    """A grouped product: each token to one expert."""
    touched = BYTES["bf16"] * (tokens * k + experts * n * k + tokens * n)
    return _case("grouped_gemm", touched, (experts, tokens, n, k, routing))


def gemm_shapes() -> Iterator[list[KernelCase]]:
    """Products in bf16 and fp8: layers of models at every number of tokens, squares, and random sizes."""
    rng = random.Random(1)
    shapes = [(name, m, n, k) for (name, (n, k)), m in product(LAYERS.items(), TOKENS)]
    shapes += [("square", size, size, size) for size in SQUARES]
    # fp8 needs n and k in whole 16; m is free.
    wide = [tuple(16 * round(2 ** rng.uniform(4, 10)) for _ in range(2)) for _ in range(RANDOM_PRODUCTS)]
    shapes += [(f"random{i}", round(2 ** rng.uniform(0, 14)), n, k) for i, (n, k) in enumerate(wide)]
    for name, m, n, k in shapes:
        yield [gemm_case(name, dtype, m, n, k) for dtype in ("bf16", "fp8")]


def stream_shapes() -> Iterator[list[KernelCase]]:
    """Copies from what a launch costs to what DRAM delivers; ops of a layer over rows of three widths."""
    for power in range(15, 29):
        yield [stream_case("copy", 1, 1 << power)]
    for op, rows, cols in product(
        ("add", "rms_norm", "softmax", "gelu"), (1, 8, 64, 512, 2048, 8192, 32768), (4096, 8192, 16384)
    ):
        yield [stream_case(op, rows, cols)]


def attention_shapes() -> Iterator[list[KernelCase]]:
    """Causal passes over prompts and single steps over a cache, on two backends."""
    for (heads, kv_heads), (batch, length) in product(HEADS, PROMPTS):
        yield [
            attention_case("prefill", backend, batch, heads, kv_heads, length, length)
            for backend in ("flash", "cudnn")
        ]
    for (heads, kv_heads), (batch, cached) in product(HEADS, DECODES):
        if batch * cached * kv_heads <= MOST_CACHED:
            yield [
                attention_case("decode", backend, batch, heads, kv_heads, 1, cached)
                for backend in ("flash", "cudnn")
            ]


def expert_shapes() -> Iterator[list[KernelCase]]:
    """Grouped products with even and with uneven experts."""
    for (count, n, k), tokens, routing in product(
        EXPERTS, (16, 64, 256, 1024, 4096, 16384, 65536), ("uniform", "zipf")
    ):
        yield [grouped_case(count, tokens, n, k, routing)]


def load_cases() -> list[SustainedLoad]:
    """Idle first, then what draws the most from the matrix units, the memory and the cache."""
    squares = [
        SustainedLoad(f"gemm_{dtype}_{size}", 2 * size**3, gemm_case("square", dtype, size, size, size))
        for dtype, size in (("bf16", 2048), ("bf16", 4096), ("bf16", 8192), ("fp8", 8192))
    ]
    return [
        SustainedLoad("idle", 0),
        *squares,
        SustainedLoad("copy_hbm_256MiB", 2 << 28, stream_case("copy", 1, 1 << 28)),
        SustainedLoad("copy_l2_8MiB", 2 << 23, stream_case("copy", 1, 1 << 23), sets=1),
        SustainedLoad("gemv_m1", 57344 * 8192 * BYTES["bf16"], gemm_case("gemv", "bf16", 1, 57344, 8192)),
    ]


SHAPES = {
    "gemm": gemm_shapes,
    "stream": stream_shapes,
    "attention": attention_shapes,
    "grouped_gemm": expert_shapes,
}


def kernel_cases(kind: str, quick: bool = False) -> list[KernelCase]:
    """The kernels of one kind in shuffled order; variants of a shape (formats, backends) stay together.

    >>> [c.row["dtype"] for c in kernel_cases("gemm")[:2]], len(kernel_cases("stream", quick=True))
    (['bf16', 'fp8'], 30)
    """
    shapes = list(SHAPES[kind]())
    random.Random(2).shuffle(shapes)
    return [case for variants in (shapes[: QUICK[kind]] if quick else shapes) for case in variants]


def tokens_of_experts(count: int, tokens: int, routing: str) -> list[int]:
    """How many tokens each expert gets: drawn one by one, evenly or with shares 1/rank (zipf), always alike.

    >>> sum(tokens_of_experts(8, 1024, "zipf")), tokens_of_experts(8, 1024, "zipf")[0] > 1024 // 4
    (1024, True)
    """
    shares = [1.0 / (rank + 1) if routing == "zipf" else 1.0 for rank in range(count)]
    drawn = random.Random(3).choices(range(count), shares, k=tokens)
    counts = Counter(drawn)
    return [counts[expert] for expert in range(count)]
