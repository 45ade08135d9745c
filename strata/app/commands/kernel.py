"""`strata kernel`: one kernel on one chip, or a table of them where a size is a list."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from strata.app.commands.options import JsonFlag, TableFile
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
    one_of,
    precision_names,
    set_items,
    typed_number,
    whole,
)
from strata.errors import BadValue

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


KernelChip = Annotated[
    str,
    typer.Option(
        "--chip", "-c", metavar="NAME", help="chip name, or a TOML path", autocompletion=names_of("chip")
    ),
]


ArithmeticFormat = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="precision of the arithmetic and the weights (strata list precisions)",
        autocompletion=precision_names,
    ),
]


ActivationFormat = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="how activations are stored  [default: 16 bits or wider]",
        autocompletion=precision_names,
    ),
]


WeightOnly = Annotated[
    bool,
    typer.Option(
        "--weight-only", help="narrow weights are widened before use: their format needs no arithmetic"
    ),
]


ChipChanges = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="change a number of the chip, as often as needed: memory.bandwidth='6 TB/s'",
    ),
]


Resident = Annotated[
    bool, typer.Option("--resident", help="activations come from and go to the cache where they fit")
]


Once = Annotated[
    bool,
    typer.Option(
        "--once",
        help="run once at the highest clock  [default: repeated, at the clock the power limit allows]",
    ),
]


EXAMPLE = "Example: strata kernel {}"


def size_option(help: str, name: str = "") -> Any:
    """An option that takes a size or a list of sizes."""
    return typer.Option(*([name] if name else []), metavar="N", help=help)


@kernels.command(
    "gemm",
    short_help="A matrix product.",
    epilog=EXAMPLE.format("gemm --chip h200 --m 1,64,4096 --n 8192 --k 8192 --precision fp8"),
)
def gemm_command(
    chip: KernelChip,
    m: Annotated[str, size_option("rows of the activations and the result")],
    n: Annotated[str, size_option("columns of the weights and the result")],
    k: Annotated[str, size_option("depth: columns of the activations, rows of the weights")],
    batch: Annotated[str, size_option("products at once, each with weights of its own")] = "1",
    precision: ArithmeticFormat = "bf16",
    activations: ActivationFormat = "",
    weight_only: WeightOnly = False,
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """A matrix product: out[m, n] = in[m, k] weight[k, n]."""
    options = {"precision": precision, "activations": activations, "weight_only": weight_only}
    sizes = {"m": m, "n": n, "k": k, "batch": batch}
    answer_kernel(
        chip, "gemm", sizes, options, changes=set, once=once, json=json, table=table, resident=resident
    )


@kernels.command(
    "grouped",
    short_help="Products of routed experts.",
    epilog=EXAMPLE.format("grouped --chip h200 --tokens 4096 --experts 128 --top-k 8 --n 1536 --k 4096"),
)
def grouped_command(
    chip: KernelChip,
    tokens: Annotated[str, size_option("tokens, each of which goes to some experts")],
    experts: Annotated[str, size_option("experts, each with weights of its own")],
    n: Annotated[str, size_option("columns of one expert's weights")],
    k: Annotated[str, size_option("depth: rows of one expert's weights")],
    top_k: Annotated[str, size_option("experts of one token")] = "1",
    skew: Annotated[
        str, typer.Option(metavar="X", help="exponent of the experts' popularity: 0 is uniform")
    ] = "0",
    precision: ArithmeticFormat = "bf16",
    activations: ActivationFormat = "",
    weight_only: WeightOnly = False,
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """One grouped product: every token through its experts' weights."""
    options = {
        "precision": precision,
        "activations": activations,
        "weight_only": weight_only,
        "skew": typed_number(skew, "--skew"),
    }
    sizes = {"tokens": tokens, "experts": experts, "n": n, "k": k, "top_k": top_k}
    answer_kernel(
        chip, "grouped", sizes, options, changes=set, once=once, json=json, table=table, resident=resident
    )


@kernels.command(
    "attention",
    short_help="Attention over a cache.",
    epilog=EXAMPLE.format(
        "attention --chip h200 --sequences 64 --queries 1 --context 8192 --heads 32 --kv-heads 8 --head-dim "
        "128"
    ),
)
def attention_command(
    chip: KernelChip,
    context: Annotated[str, size_option("tokens of a sequence, the new ones included")],
    heads: Annotated[str, size_option("query heads")],
    head_dim: Annotated[str, size_option("width of a head")] = "128",
    kv_heads: Annotated[str, size_option("heads of keys and values  [default: as heads]")] = "",
    sequences: Annotated[str, size_option("sequences at once")] = "1",
    queries: Annotated[str, size_option("new tokens of a sequence: 1 is a decode step  [default: 1]")] = "1",
    precision: ArithmeticFormat = "bf16",
    kv: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="how keys and values are stored  [default: as activations]",
            autocompletion=precision_names,
        ),
    ] = "",
    full: Annotated[
        bool, typer.Option("--full", help="each query attends to the whole context  [default: causal]")
    ] = False,
    set: ChipChanges = None,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Softmax attention of new tokens over a cache, as one fused kernel."""
    sizes = {
        "sequences": sequences,
        "queries": queries,
        "context": context,
        "heads": heads,
        "head_dim": head_dim,
    }
    sizes |= {"kv_heads": kv_heads} if kv_heads else {}
    options = {"precision": precision, "kv": kv, "causal": not full}
    answer_kernel(chip, "attention", sizes, options, changes=set, once=once, json=json, table=table)


@kernels.command(
    "stream",
    short_help="A pass over memory.",
    epilog=EXAMPLE.format("stream --chip h200 --op softmax --rows 8192 --columns 1024,8192"),
)
def stream_command(
    chip: KernelChip,
    rows: Annotated[str, size_option("rows of the result")],
    columns: Annotated[str, size_option("columns of the result")],
    op: Annotated[
        str,
        typer.Option(
            metavar="OP",
            help="copy, add, rms_norm, softmax, gelu or silu",
            autocompletion=one_of("copy", "add", "rms_norm", "softmax", "gelu", "silu"),
        ),
    ] = "copy",
    precision: ArithmeticFormat = "bf16",
    set: ChipChanges = None,
    resident: Resident = False,
    once: Once = False,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """An element-wise or row-wise kernel: copy, add, norm, softmax, gelu, gated silu."""
    sizes, options = {"rows": rows, "columns": columns}, {"precision": precision, "op": op}
    answer_kernel(
        chip, "stream", sizes, options, changes=set, once=once, json=json, table=table, resident=resident
    )


def answer_kernel(
    chip: str,
    kind: str,
    sizes: dict[str, str],
    options: dict[str, Any],
    *,
    changes: list[str] | None,
    once: bool,
    json: bool,
    table: Path | None = None,
    resident: bool = False,
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
    hardware = make_chip(chip, **set_items(changes, "chip", "memory.bandwidth='6 TB/s'"))
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
