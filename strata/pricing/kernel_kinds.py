"""Every kind of kernel that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strata.base.arrays import Number
from strata.pricing import kernel_ops, served_kernels
from strata.pricing.kernel_request import KernelKind, Sizes
from strata.pricing.price import ZERO, Price
from strata.workload.lstm import CELLS

_MATRICES, _ROUTED = ("activations", "weight_only", "resident"), ("activations", "weight_only")
_LATENT = ("context", "heads", "head_dim", "v_head_dim", "kv_rank", "rope_dim")
_QUERIES: Sizes = {"sequences": 1.0, "queries": 1.0}


def _fused(
    title: str, needed: tuple[str, ...], price: Callable[..., Price], example: str, **usual: Number
) -> KernelKind:
    """A collective and the kernels that feed it or that it feeds, as one kernel."""
    return KernelKind(
        title=title,
        needed=("ranks", *needed),
        price=price,
        usual=usual,
        options=("fabric",),
        example=f"--ranks 8 {example} --once",
    )


KINDS: dict[str, KernelKind] = {
    "gemm": KernelKind(
        title="A matrix product: out[m, n] = in[m, k] weight[k, n].",
        needed=("m", "n", "k"),
        price=kernel_ops.gemm_price,
        usual={"batch": 1.0, "operands": 2.0},
        options=(*_MATRICES, "kept", "served", "unaligned"),
        example="--m 1,64,4096 --n 8192 --k 8192 --precision fp8",
    ),
    "grouped": KernelKind(
        title="Products of routed experts: every token through its experts' weights.",
        needed=("tokens", "experts", "n", "k"),
        price=kernel_ops.grouped_price,
        usual={"top_k": 1.0, "skew": 0.0},
        options=_MATRICES,
        example="--tokens 4096 --experts 128 --top-k 8 --n 1536 --k 4096",
    ),
    "attention": KernelKind(
        title="Softmax attention of new tokens over a cache, as one fused kernel.",
        needed=("context", "heads"),
        price=kernel_ops.attention_price,
        usual={"head_dim": 128.0, "kv_heads": 0.0, **_QUERIES},
        options=("activations", "kv", "causal", "served", "phase"),
        phases=("", "prefill", "decode"),
        example="--sequences 64 --queries 1 --context 8192 --heads 32 --kv-heads 8 --head-dim 128",
    ),
    "stream": KernelKind(
        title="A pass over memory, element by element or row by row.",
        needed=("rows", "columns"),
        price=kernel_ops.stream_price,
        usual={"turns": 0.0},
        options=("op", "resident", "eager"),
        ops=tuple(kernel_ops.STREAMS),
        example="--op softmax --rows 8192 --columns 1024,8192",
        products=False,
    ),
    "mla": KernelKind(
        title="Latent attention as a serving framework calls it.",
        needed=_LATENT,
        price=served_kernels.latent_attention,
        usual=_QUERIES,
        options=("activations", "kv", "phase"),
        phases=("", "prefill", "decode"),
        example="--context 8192 --heads 128 --head-dim 192 --v-head-dim 128 --kv-rank 512 --rope-dim 64",
        warm=True,
    ),
    "experts": KernelKind(
        title="A layer of routed experts behind its router, on the busiest rank.",
        needed=("tokens", "experts", "hidden", "inner"),
        price=served_kernels.expert_layer,
        usual={"top_k": 1.0, "ranks": 1.0},
        options=(*_ROUTED, "routing"),
        example="--tokens 4096 --experts 128 --top-k 8 --hidden 4096 --inner 1536",
        drawn=True,
        warm=True,
    ),
    "sorted_experts": KernelKind(
        title="Both products of a layer of experts whose tokens are sorted; the second adds results up.",
        needed=("tokens", "experts", "hidden", "inner"),
        price=served_kernels.sorted_experts,
        usual={"top_k": 1.0, "gated": 1.0},
        options=_ROUTED,
        example="--tokens 4096 --experts 128 --top-k 8 --hidden 4096 --inner 1536",
    ),
    "grouped_mm": KernelKind(
        title="PyTorch's grouped product of tokens that go to one expert each.",
        needed=("tokens", "experts", "n", "k"),
        price=served_kernels.torch_grouped_product,
        options=(*_ROUTED, "routing"),
        example="--tokens 4096 --experts 16 --n 1536 --k 4096",
        drawn=True,
    ),
    "batched": KernelKind(
        title="A batch of products by kernels made for many small ones.",
        needed=("batch", "m", "n", "k"),
        price=kernel_ops.batched_price,
        options=(*_MATRICES, "kept"),
        example="--batch 16 --m 128 --n 8192 --k 1024",
    ),
    "ag_gemm": _fused(
        "Activations gathered from the ranks, tile by tile beside the product that takes them in.",
        ("m", "n", "k"),
        partial(kernel_ops.product_beside, "all_gather"),
        "--m 8192 --n 4096 --k 8192",
        sent=0.0,
    ),
    "gemm_rs": _fused(
        "A product over a rank's own depth, its sums scattered over the ranks tile by tile.",
        ("m", "n", "k"),
        partial(kernel_ops.product_beside, "reduce_scatter"),
        "--m 8192 --n 4096 --k 2048",
        sent=0.0,
    ),
    "a2a_gemm": _fused(
        "An exchange of heads for tokens, tile by tile beside the product that takes them in.",
        ("m", "n", "k"),
        partial(kernel_ops.product_beside, "all_to_all"),
        "--m 1024 --n 8192 --k 8192",
        sent=0.0,
    ),
    "ep_dispatch": _fused(
        "Tokens on their way to the ranks of their experts, a message for each pick.",
        ("tokens", "hidden", "experts", "top_k"),
        kernel_ops.dispatched_tokens,
        "--tokens 4096 --hidden 7168 --experts 256 --top-k 8",
    ),
    "moe_ar": _fused(
        "The experts' second product, picks added up and summed over ranks that cut the experts.",
        ("tokens", "n", "k", "experts", "top_k"),
        kernel_ops.summed_experts,
        "--tokens 1024 --n 4096 --k 1536 --experts 128 --top-k 8",
        sent=0.0,
    ),
    "recurrent": KernelKind(
        title="Layers of a recurrent network, time steps one after the other.",
        needed=("hidden", "batch", "steps"),
        price=kernel_ops.recurrent_price,
        usual={"layers": 1.0, "inputs": 0.0}
        | {
            prefix + name: value
            for prefix in ("", "back_")
            for name, value in kernel_ops.LIBRARY_DEFAULTS.items()
        },
        options=("op", "phase"),
        ops=tuple(CELLS),
        phases=("forward", "backward", "train"),
        example="--hidden 1024,2048 --batch 64 --steps 25 --op gru",
    ),
    "adam": KernelKind(
        title="One fused update of parameters by Adam.",
        needed=("parameters",),
        price=kernel_ops.adam_price,
        usual={"gradient": 4.0, "state": 12.0, "copy": 0.0, "rate": 1.0},
        precision="fp32",
        example="--parameters 1e9",
        products=False,
    ),
    "lu": KernelKind(
        title="P A = L U of a square matrix with partial pivoting, in blocks.",
        needed=("order",),
        price=kernel_ops.lu_price,
        usual={"batch": 1.0, "turned": 0.0},
        precision="fp32",
        options=("resident",),
        example="--order 1024,8192 --precision fp64",
    ),
    "fft": KernelKind(
        title="Complex Fourier transforms of lines; the precision is that of a real or imaginary part.",
        needed=("points",),
        price=kernel_ops.fft_price,
        usual={"lines": 1.0, "axes": 1.0},
        precision="fp32",
        options=("resident",),
        example="--points 4096 --lines 1024,32768",
        products=False,
        launched="axes",
    ),
    "scan": KernelKind(
        title="Prefix sums along the middle axis of [outer, length, inner].",
        needed=("length",),
        price=kernel_ops.scan_price,
        usual={"outer": 1.0, "inner": 1.0},
        precision="fp32",
        options=("resident",),
        example="--length 8192 --inner 1,1024,8192",
        products=False,
    ),
    "sort": KernelKind(
        title="A radix sort: keys and their indices of 8 bytes brought into order, digit by digit.",
        needed=("length",),
        price=kernel_ops.sort_price,
        usual={"lines": 1.0},
        precision="fp32",
        options=("resident",),
        example="--length 1000000,100000000",
        products=False,
    ),
    "embedding_bag": KernelKind(
        title="Rows at random addresses of a table, added up bag by bag, as PyTorch does it.",
        needed=("bags", "per_bag", "width"),
        price=kernel_ops.bags_price,
        precision="fp32",
        options=("resident",),
        example="--bags 65536 --per-bag 1,20,100 --width 128",
        products=False,
    ),
    "idle": KernelKind(
        title="A chip without work.", needed=(), price=lambda sizes, dev, run: ZERO, products=False
    ),
}
