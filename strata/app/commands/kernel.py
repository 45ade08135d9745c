"""`strata kernel`: one kernel on one chip, or a table of them where a size is a list."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from inspect import Signature, signature
from typing import Annotated, Any

import typer

from strata.app.commands.options import JsonFlag, TableFile, flag, typed
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
    one_of,
    precision_names,
    set_items,
    typed_number,
)
from strata.errors import BadValue
from strata.units import whole

kernels = typer.Typer(
    name="kernel",
    help="One kernel on one chip: its time and bounds, what binds it, what it moves, its clock and power. "
    "A size may be a list (1,16,256): every combination is shown.",
    short_help="One kernel on one chip.",
    epilog="Example: strata kernel gemm --chip h200 --m 4096 --n 4096 --k 4096 --precision fp8",
    no_args_is_help=True,
    rich_markup_mode=None,
)
MOST = 1000  # rows of a table of kernels
KernelChip = Annotated[str, typed("--chip -c", "NAME", "chip name, or a TOML path", names_of("chip"))]
ArithmeticFormat = Annotated[
    str,
    typed(
        "", "FORMAT", "precision of the arithmetic and the weights (strata list precisions)", precision_names
    ),
]
ActivationFormat = Annotated[
    str, typed("", "FORMAT", "how activations are stored  [default: 16 bits or wider]", precision_names)
]
WeightOnly = Annotated[
    bool, flag("--weight-only", "narrow weights are widened before use: their format needs no arithmetic")
]
ChipChanges = Annotated[
    list[str] | None,
    typed(
        "--set", "PATH=VALUE", "change a number of the chip, as often as needed: memory.bandwidth='6 TB/s'"
    ),
]
Resident = Annotated[bool, flag("--resident", "activations come from and go to the cache where they fit")]
Once = Annotated[
    bool,
    flag("--once", "run once at the highest clock  [default: repeated, at the clock the power limit allows]"),
]
Asked = tuple[dict[str, str], dict[str, Any]]  # sizes and options of a kernel, as typed


def register_kernel(app: typer.Typer) -> None:
    """Give an app the commands of all kernels."""
    app.add_typer(kernels)


def size_option(help: str) -> Any:
    """An option that takes a size or a list of sizes."""
    return typed("", "N", help)


def answer_kernel(
    chip: KernelChip,
    kind: str,
    sizes: dict[str, str],
    options: dict[str, Any],
    *,
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Price every combination of the sizes and print it."""
    import numpy as np

    from strata.app.render.accuracy import with_interval
    from strata.app.render.kernel import kernel_card, kernel_dicts, kernels_table
    from strata.app.render.prediction import dimmed
    from strata.hardware.chip import chip as make_chip
    from strata.pricing.kernel import kernel
    from strata.validation.accuracy.trust import trust_kernel

    lists = {
        name: [whole(item, "--" + name.replace("_", "-")) for item in text.split(",")]
        for name, text in sizes.items()
    }
    rows = list(itertools.product(*lists.values()))
    if len(rows) > MOST:
        raise BadValue(f"a table of kernels has at most {MOST} rows, but the lists make {len(rows)}")
    hardware = make_chip(chip, **set_items(set, "chip", "memory.bandwidth='6 TB/s'"))
    columns = dict(zip(lists, np.array(rows).T, strict=True))
    priced = kernel(hardware, kind, **columns, **options, resident=resident, repeated=not once)
    told = kernel_dicts(priced, len(rows))
    trusted = trust_kernel(hardware, kind, priced.price.time)
    varied = [name for name in lists if len(lists[name]) > 1]
    shown = kernel_card(told[0], once) if len(told) == 1 else kernels_table(told, varied, once)
    answer(
        lambda: each[0] if len(each := with_interval(told, trusted)) == 1 else each,
        lambda: [shown, *dimmed([trusted.text])],
        json,
        table,
    )


def kernel_command(
    kind: str, short_help: str, example: str, *, resident: bool = False
) -> Callable[[Callable[..., Asked]], Callable[..., Asked]]:
    """Make a function that gives what was asked of a kernel a command, with the options of every kernel."""

    def register(asked: Callable[..., Asked]) -> Callable[..., Asked]:
        every = signature(answer_kernel, eval_str=True).parameters
        last = [p for p in every.values() if p.kind is p.KEYWORD_ONLY and (resident or p.name != "resident")]

        def command(chip: str, **given: Any) -> None:
            rest = {p.name: given.pop(p.name) for p in last}
            answer_kernel(chip, kind, *asked(**given), **rest)

        own = signature(asked, eval_str=True).parameters.values()
        command.__signature__ = Signature([every["chip"], *own, *last])  # type: ignore[attr-defined]
        command.__doc__, command.__annotations__ = asked.__doc__, {}
        epilog = f"Example: strata kernel {kind} --chip h200 {example}"
        kernels.command(kind, short_help=short_help, epilog=epilog)(command)
        return asked

    return register


@kernel_command("gemm", "A matrix product.", "--m 1,64,4096 --n 8192 --k 8192 --precision fp8", resident=True)
def gemm_asked(
    m: Annotated[str, size_option("rows of the activations and the result")],
    n: Annotated[str, size_option("columns of the weights and the result")],
    k: Annotated[str, size_option("depth: columns of the activations, rows of the weights")],
    batch: Annotated[str, size_option("products at once, each with weights of its own")] = "1",
    precision: ArithmeticFormat = "bf16",
    activations: ActivationFormat = "",
    weight_only: WeightOnly = False,
) -> Asked:
    """A matrix product: out[m, n] = in[m, k] weight[k, n]."""
    options = {"precision": precision, "activations": activations, "weight_only": weight_only}
    return {"m": m, "n": n, "k": k, "batch": batch}, options


@kernel_command(
    "grouped",
    "Products of routed experts.",
    "--tokens 4096 --experts 128 --top-k 8 --n 1536 --k 4096",
    resident=True,
)
def grouped_asked(
    tokens: Annotated[str, size_option("tokens, each of which goes to some experts")],
    experts: Annotated[str, size_option("experts, each with weights of its own")],
    n: Annotated[str, size_option("columns of one expert's weights")],
    k: Annotated[str, size_option("depth: rows of one expert's weights")],
    top_k: Annotated[str, size_option("experts of one token")] = "1",
    skew: Annotated[str, typed("", "X", "exponent of the experts' popularity: 0 is uniform")] = "0",
    precision: ArithmeticFormat = "bf16",
    activations: ActivationFormat = "",
    weight_only: WeightOnly = False,
) -> Asked:
    """One grouped product: every token through its experts' weights."""
    options = {"precision": precision, "activations": activations, "weight_only": weight_only}
    sizes = {"tokens": tokens, "experts": experts, "n": n, "k": k, "top_k": top_k}
    return sizes, options | {"skew": typed_number(skew, "--skew")}


@kernel_command(
    "attention",
    "Attention over a cache.",
    "--sequences 64 --queries 1 --context 8192 --heads 32 --kv-heads 8 --head-dim 128",
)
def attention_asked(
    context: Annotated[str, size_option("tokens of a sequence, the new ones included")],
    heads: Annotated[str, size_option("query heads")],
    head_dim: Annotated[str, size_option("width of a head")] = "128",
    kv_heads: Annotated[str, size_option("heads of keys and values  [default: as heads]")] = "",
    sequences: Annotated[str, size_option("sequences at once")] = "1",
    queries: Annotated[str, size_option("new tokens of a sequence: 1 is a decode step  [default: 1]")] = "1",
    precision: ArithmeticFormat = "bf16",
    kv: Annotated[
        str, typed("", "FORMAT", "how keys and values are stored  [default: as activations]", precision_names)
    ] = "",
    full: Annotated[
        bool, flag("--full", "each query attends to the whole context  [default: causal]")
    ] = False,
) -> Asked:
    """Softmax attention of new tokens over a cache, as one fused kernel."""
    sizes = {"sequences": sequences, "queries": queries, "context": context, "heads": heads}
    sizes |= {"head_dim": head_dim} | ({"kv_heads": kv_heads} if kv_heads else {})
    return sizes, {"precision": precision, "kv": kv, "causal": not full}


@kernel_command(
    "stream", "A pass over memory.", "--op softmax --rows 8192 --columns 1024,8192", resident=True
)
def stream_asked(
    rows: Annotated[str, size_option("rows of the result")],
    columns: Annotated[str, size_option("columns of the result")],
    op: Annotated[
        str,
        typed(
            "",
            "OP",
            "copy, add, rms_norm, softmax, gelu or silu",
            one_of("copy", "add", "rms_norm", "softmax", "gelu", "silu"),
        ),
    ] = "copy",
    precision: ArithmeticFormat = "bf16",
) -> Asked:
    """An element-wise or row-wise kernel: copy, add, norm, softmax, gelu, gated silu."""
    return {"rows": rows, "columns": columns}, {"precision": precision, "op": op}


@kernel_command("lu", "An LU factorisation.", "--order 1024,8192 --precision fp64")
def lu_asked(
    order: Annotated[str, size_option("rows and columns of a matrix")],
    batch: Annotated[str, size_option("matrices, one after the other")] = "1",
    precision: ArithmeticFormat = "fp32",
) -> Asked:
    """P A = L U of a square matrix with partial pivoting, in blocks."""
    return {"order": order, "batch": batch}, {"precision": precision}


@kernel_command("fft", "Fourier transforms of lines.", "--points 4096 --lines 1024,32768", resident=True)
def fft_asked(
    points: Annotated[str, size_option("complex points of a line")],
    lines: Annotated[str, size_option("lines at once")] = "1",
    precision: ArithmeticFormat = "fp32",
) -> Asked:
    """Complex transforms along one axis; the precision is that of a real or imaginary part."""
    return {"points": points, "lines": lines}, {"precision": precision}


@kernel_command("scan", "Prefix sums along an axis.", "--length 8192 --inner 1,1024,8192", resident=True)
def scan_asked(
    length: Annotated[str, size_option("elements along the axis")],
    outer: Annotated[str, size_option("lines whose elements follow those of other lines")] = "1",
    inner: Annotated[str, size_option("neighbours in memory along other axes: 1 is the last axis")] = "1",
    precision: ArithmeticFormat = "fp32",
) -> Asked:
    """Prefix sums along the middle axis of [outer, length, inner]."""
    return {"length": length, "outer": outer, "inner": inner}, {"precision": precision}


@kernel_command("sort", "A radix sort.", "--length 1000000,100000000", resident=True)
def sort_asked(
    length: Annotated[str, size_option("keys of a line, each with an index of 8 bytes")],
    lines: Annotated[str, size_option("lines, each sorted by itself")] = "1",
    precision: ArithmeticFormat = "fp32",
) -> Asked:
    """Keys and their indices brought into order, digit by digit."""
    return {"length": length, "lines": lines}, {"precision": precision}


@kernel_command(
    "embedding_bag",
    "Rows of a table added up by bag.",
    "--bags 65536 --per-bag 1,20,100 --width 128",
)
def embedding_bag_asked(
    bags: Annotated[str, size_option("bags: rows of the result")],
    per_bag: Annotated[str, size_option("rows of the table added up for a bag")],
    width: Annotated[str, size_option("elements of a row")],
    precision: ArithmeticFormat = "fp32",
) -> Asked:
    """Rows at random addresses of a table, added up bag by bag, as PyTorch does it."""
    return {"bags": bags, "per_bag": per_bag, "width": width}, {"precision": precision}
