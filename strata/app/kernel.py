"""`strata kernel`: one kernel on one chip, or a table of them where a size is a list."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import numpy as np
import typer

from strata.app.words import choices, names_of, plain_table, precisions, print_json, titled, whole
from strata.errors import BadValue

kernels = typer.Typer(
    name="kernel",
    help="One kernel on one chip: its time and bounds, what binds it, what it moves, its clock and power. A size may be a list (1,16,256): every combination is shown.",
    short_help="One kernel on one chip.",
    epilog="Example: strata kernel gemm --chip h200 --m 4096 --n 4096 --k 4096 --precision fp8",
    no_args_is_help=True,
    rich_markup_mode=None,
)
MOST = 1000  # rows of a table of kernels

Chip = Annotated[
    str,
    typer.Option(
        "--chip", "-c", metavar="NAME", help="chip name, or a TOML path", autocompletion=names_of("chip")
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="precision of the arithmetic and the weights (strata list precisions)",
        autocompletion=precisions,
    ),
]
Activations = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="how activations are stored  [default: 16 bits or wider]",
        autocompletion=precisions,
    ),
]
WeightOnly = Annotated[
    bool,
    typer.Option(
        "--weight-only", help="narrow weights are widened before use: their format needs no arithmetic"
    ),
]
Changes = Annotated[
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
Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]
EXAMPLE = "Example: strata kernel {}"


def size(help: str, name: str = "") -> Any:
    """An option that takes a size or a list of sizes."""
    return typer.Option(*([name] if name else []), metavar="N", help=help)


@kernels.command(
    short_help="A matrix product.",
    epilog=EXAMPLE.format("gemm --chip h200 --m 1,64,4096 --n 8192 --k 8192 --precision fp8"),
)
def gemm(
    chip: Chip,
    m: Annotated[str, size("rows of the activations and the result")],
    n: Annotated[str, size("columns of the weights and the result")],
    k: Annotated[str, size("depth: columns of the activations, rows of the weights")],
    batch: Annotated[str, size("products at once, each with weights of its own")] = "1",
    precision: Precision = "bf16",
    activations: Activations = "",
    weight_only: WeightOnly = False,
    set: Changes = None,
    resident: Resident = False,
    once: Once = False,
    json: Json = False,
) -> None:
    """A matrix product: out[m, n] = in[m, k] weight[k, n]."""
    options = {"precision": precision, "activations": activations, "weight_only": weight_only}
    answer(chip, "gemm", {"m": m, "n": n, "k": k, "batch": batch}, set, resident, once, json, options)


@kernels.command(
    short_help="Products of routed experts.",
    epilog=EXAMPLE.format("grouped --chip h200 --tokens 4096 --experts 128 --top-k 8 --n 1536 --k 4096"),
)
def grouped(
    chip: Chip,
    tokens: Annotated[str, size("tokens, each of which goes to some experts")],
    experts: Annotated[str, size("experts, each with weights of its own")],
    n: Annotated[str, size("columns of one expert's weights")],
    k: Annotated[str, size("depth: rows of one expert's weights")],
    top_k: Annotated[str, size("experts of one token")] = "1",
    skew: Annotated[
        str, typer.Option(metavar="X", help="exponent of the experts' popularity: 0 is uniform")
    ] = "0",
    precision: Precision = "bf16",
    activations: Activations = "",
    weight_only: WeightOnly = False,
    set: Changes = None,
    resident: Resident = False,
    once: Once = False,
    json: Json = False,
) -> None:
    """One grouped product: every token through its experts' weights."""
    options = {
        "precision": precision,
        "activations": activations,
        "weight_only": weight_only,
        "skew": number(skew, "--skew"),
    }
    answer(
        chip,
        "grouped",
        {"tokens": tokens, "experts": experts, "n": n, "k": k, "top_k": top_k},
        set,
        resident,
        once,
        json,
        options,
    )


@kernels.command(
    short_help="Attention over a cache.",
    epilog=EXAMPLE.format(
        "attention --chip h200 --sequences 64 --queries 1 --context 8192 --heads 32 --kv-heads 8 --head-dim 128"
    ),
)
def attention(
    chip: Chip,
    context: Annotated[str, size("tokens of a sequence, the new ones included")],
    heads: Annotated[str, size("query heads")],
    head_dim: Annotated[str, size("width of a head")] = "128",
    kv_heads: Annotated[str, size("heads of keys and values  [default: as heads]")] = "",
    sequences: Annotated[str, size("sequences at once")] = "1",
    queries: Annotated[str, size("new tokens of a sequence: 1 is a decode step  [default: 1]")] = "1",
    precision: Precision = "bf16",
    kv: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="how keys and values are stored  [default: as activations]",
            autocompletion=precisions,
        ),
    ] = "",
    full: Annotated[
        bool, typer.Option("--full", help="each query attends to the whole context  [default: causal]")
    ] = False,
    set: Changes = None,
    once: Once = False,
    json: Json = False,
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
    answer(
        chip,
        "attention",
        sizes,
        set,
        False,
        once,
        json,
        {"precision": precision, "kv": kv, "causal": not full},
    )


@kernels.command(
    short_help="A pass over memory.",
    epilog=EXAMPLE.format("stream --chip h200 --op softmax --rows 8192 --columns 1024,8192"),
)
def stream(
    chip: Chip,
    rows: Annotated[str, size("rows of the result")],
    columns: Annotated[str, size("columns of the result")],
    op: Annotated[
        str,
        typer.Option(
            metavar="OP",
            help="copy, add, rms_norm, softmax, gelu or silu",
            autocompletion=choices("copy", "add", "rms_norm", "softmax", "gelu", "silu"),
        ),
    ] = "copy",
    precision: Precision = "bf16",
    set: Changes = None,
    resident: Resident = False,
    once: Once = False,
    json: Json = False,
) -> None:
    """An element-wise or row-wise kernel: copy, add, norm, softmax, gelu, gated silu."""
    answer(
        chip,
        "stream",
        {"rows": rows, "columns": columns},
        set,
        resident,
        once,
        json,
        {"precision": precision, "op": op},
    )


def number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValue(f"{what} must be a number, but got '{text}'") from None


def answer(
    chip: str,
    kind: str,
    sizes: dict[str, str],
    changes: list[str] | None,
    resident: bool,
    once: bool,
    json: bool,
    options: dict[str, Any],
) -> None:
    """Price every combination of the sizes and print it."""
    from strata.app.cli import say
    from strata.hardware.chip import chip as make_chip
    from strata.pricing.kernels.kernel import kernel

    lists = {
        name: [whole(item, "--" + name.replace("_", "-")) for item in text.split(",")]
        for name, text in sizes.items()
    }
    rows = list(itertools.product(*lists.values()))
    if len(rows) > MOST:
        raise BadValue(f"a table of kernels has at most {MOST} rows, but the lists make {len(rows)}")
    made = make_chip(chip, **dict(change(item) for item in changes or []))
    columns = dict(zip(lists, np.array(rows).T, strict=True))
    found = as_dicts(
        kernel(made, kind, **columns, **options, resident=resident, repeated=not once), len(rows)
    )
    if json:
        print_json(found[0] if len(found) == 1 else found)
    else:
        say(
            card(found[0], once)
            if len(found) == 1
            else table(found, [n for n in lists if len(lists[n]) > 1], once)
        )


def change(item: str) -> tuple[str, str]:
    """A `--set` item: a quantity of the chip and its new value."""
    path, equals, value = item.partition("=")
    if not (equals and path.strip() and value.strip()):
        raise BadValue(f"--set takes PATH=VALUE, like memory.bandwidth='6 TB/s', but got '{item}'")
    return path.strip().removeprefix("chip."), value.strip()


def as_dicts(found: Any, count: int) -> list[dict[str, Any]]:
    """Kernels for machines: what was asked and what each costs, in SI units."""
    from strata.pricing.price import RESOURCES

    def each(values: dict[str, Any]) -> list[dict[str, float]]:
        spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in values.items()}
        return [{name: float(value[i]) for name, value in spread.items()} for i in range(count)]

    price, chip = found.price, found.chip
    asked = (
        {"chip": chip.name, "kernel": found.kind}
        | ({"op": found.op} if found.op else {})
        | {"precision": found.precision}
    )
    sizes, shares = (
        each(found.sizes),
        each({name: getattr(price, name) for name in RESOURCES if name != "network"}),
    )
    times = each({"time_s": price.time, "lower_s": price.lower, "upper_s": price.upper})
    spent = each(
        {
            "flop": price.flop,
            "flop_per_s": found.flop_per_s,
            "memory_B": price.memory_bytes,
            "memory_B_per_s": found.memory_bandwidth,
            "memory_share": found.memory_bandwidth / chip.memory.bandwidth,
            "cache_B": price.cache_bytes,
            "energy_J": price.energy + chip.energy.static_power * price.time,
            "clock_Hz": found.clock,
            "max_clock_Hz": chip.compute.max_clock,
            "power_W": found.power,
            "power_limit_W": chip.energy.power_limit,
        }
    )
    bound = np.broadcast_to(np.asarray(found.bound_by), (count,))
    return [
        {
            **asked,
            "sizes": sizes[i],
            **times[i],
            "bound_by": str(bound[i]),
            "resources_s": shares[i],
            **spent[i],
        }
        for i in range(count)
    ]


def asked_text(row: dict[str, Any], varied: list[str], once: bool) -> str:
    """What was asked, in words."""
    sizes = " ".join(f"{name}={value:g}" for name, value in row["sizes"].items() if name not in varied)
    return f"{row['kernel']} {row.get('op', '')} {sizes}, {row['precision']} on {row['chip']}, {'once' if once else 'repeated'}".replace(
        "  ", " "
    )


def card(row: dict[str, Any], once: bool) -> Any:
    """One kernel for people."""
    from strata.units import show

    shown = plain_table(show_header=False)
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column(justify="right", style="bold", no_wrap=True)
    shown.add_column(style="dim")
    shares = ", ".join(f"{k} {show(v, 's')}" for k, v in row["resources_s"].items() if v > 0)
    shown.add_row(
        "time",
        show(row["time_s"], "s"),
        f"bounds {show(row['lower_s'], 's')} to {show(row['upper_s'], 's')}; {shares}",
    )
    if row["flop"]:
        shown.add_row(
            "rate", show(row["flop_per_s"], "FLOP/s"), f"{show(row['flop'], 'FLOP')} of useful work"
        )
    shown.add_row(
        "DRAM",
        show(row["memory_B"], "B"),
        f"{show(row['memory_B_per_s'], 'B/s')}, {row['memory_share']:.0%} of the peak",
    )
    shown.add_row("cache", show(row["cache_B"], "B"), "between the shared cache and the cores")
    slowed = row["clock_Hz"] < row["max_clock_Hz"]
    beside = f"of {show(row['max_clock_Hz'], 'Hz')}: what the power limit allows" if slowed else "the highest"
    shown.add_row("clock", show(row["clock_Hz"], "Hz"), beside)
    shown.add_row(
        "power",
        show(row["power_W"], "W"),
        f"limit {show(row['power_limit_W'], 'W')}" + (" (a short burst may exceed it)" if once else ""),
    )
    shown.add_row("energy", show(row["energy_J"], "J"), "static power included")
    return titled(f"{asked_text(row, [], once)}: bound by {row['bound_by']}", shown)


def table(rows: list[dict[str, Any]], varied: list[str], once: bool) -> Any:
    """Several kernels for people, one a line."""
    from strata.units import show

    shown = plain_table()
    for name in (*varied, "time", "lower", "rate", "DRAM", "of peak", "cache", "clock", "power"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("bound by")
    for row in rows:
        shown.add_row(
            *(f"{row['sizes'][name]:g}" for name in varied),
            show(row["time_s"], "s"),
            show(row["lower_s"], "s"),
            show(row["flop_per_s"], "FLOP/s") if row["flop"] else "-",
            show(row["memory_B"], "B"),
            f"{row['memory_share']:.0%}",
            show(row["cache_B"], "B"),
            show(row["clock_Hz"], "Hz"),
            show(row["power_W"], "W"),
            row["bound_by"],
        )
    return titled(asked_text(rows[0], varied, once), shown, "of peak: DRAM traffic of the DRAM peak")
