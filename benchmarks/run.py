"""`make bench`: measure, print a table, and write benchmarks/latest.json."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import strata as st
from benchmarks.designs import (
    box,
    collective_list,
    every_plan,
    flat,
    generated,
    language_model,
    product_box,
    product_list,
    single,
)
from benchmarks.fusion import add_fusion
from benchmarks.packets import add_packets
from benchmarks.page import add_page
from benchmarks.requests import add_requests
from benchmarks.training import add_training
from strata.hardware.dram.stack import Stack
from strata.hardware.thermal.compact import heat_of, junction
from strata.hardware.thermal.cooling import assembly, cooling
from strata.hardware.thermal.solve import steady
from strata.pricing.kernels import matmul as products
from strata.pricing.network.collectives import price_collective

OUT = Path(__file__).parent / "latest.json"
ENGINE, MONEY = st.engine("ideal"), st.hardware.economics()
# Full evaluations a second on one core that other tools' authors or runs report; none of them was run beside
# ours.
PUBLISHED = {
    "DeepStack": (
        1 / 3.5,
        "3 to 4 core-seconds a design point (our study of it, sec. 0: 313,409 rows of its recorded searches on 32 workers)",
    ),
    "DeepFlow": (1 / 1.5, "1.5 s an evaluation (our study of it, sec. 1)"),
    "Calculon": (
        400.0,
        "389 to 418 training configurations a CPU-second with its debug log silenced, 48 as shipped (our study of peers, sec. 3)",
    ),
}


def yardstick() -> float:
    """The baseline: points a second of 53 element-wise float64 NumPy operations on 16,384 points, on one
    core.
    """
    x, y = np.random.default_rng(0).random((2, 16384))

    def once() -> None:
        z = x
        for _ in range(53):
            z = z * y + x if _ % 2 else np.maximum(z, y)

    return 16384 / best(once, 20)


def best(function: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs: on a shared machine the rest is other people's work."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def fresh(
    make: Callable[[int], tuple[Any, ...]], repeats: int, backend: str = "numpy", calls: int = 1
) -> tuple[float, int]:
    """Shortest time of evaluating designs drawn anew for each run, and how many there were. Drawing is not
    timed.
    """
    times, points = [], 0
    for seed in range(repeats):
        inputs = [make(seed * calls + i) for i in range(calls)]
        start = time.perf_counter()
        for system, model, work, plan in inputs:
            result = st.evaluate(system, model, work, plan, ENGINE, economics=MONEY, backend=backend)
        times.append((time.perf_counter() - start) / calls)
        points = int(np.prod(result.shape)) if result.shape else 1
    return min(times), points


def priced(
    make: Callable[..., tuple[Any, ...]], calls: int, repeats: int, **how: Any
) -> tuple[float, int, tuple[int, ...]]:
    """Shortest time of one call that prices products drawn anew, how many those are, and the axes they lie
    on.
    """
    times = []
    for repeat in range(repeats):
        inputs = [make(repeat * calls + i, **how) for i in range(calls)]
        start = time.perf_counter()
        for m, n, k, device in inputs:
            found = products.matmul(m, n, k, device, "bf16", "bf16").time
        times.append((time.perf_counter() - start) / calls)
    return min(times), int(np.size(found)), np.shape(found)


def cold(command: list[str], repeats: int = 7) -> float:
    return best(lambda: subprocess.run(command, check=True, capture_output=True), repeats)


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def add(
        name: str,
        value: float,
        unit: str,
        baseline: str,
        reference: float,
        *,
        smaller: bool = False,
        **how: Any,
    ) -> None:
        ratio = reference / value if smaller else value / reference
        found.append(
            {"name": name, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio, **how}
        )

    stick = yardstick()
    named = "53 element-wise NumPy operations on 16k points, points/s"
    seconds, _ = fresh(single, 20, calls=10)
    add(
        "decode_single",
        seconds * 1e3,
        "ms",
        f"{named}: its time for 16k points over ours for one",
        16384 / stick * 1e3,
        smaller=True,
    )
    for count in (1024, 4096, 16384, 65536):
        took, points = fresh(lambda seed, n=count: flat(n, seed), 4)  # type: ignore[misc]
        add(f"decode_batch_numpy_{count}", points / took, "evaluations/s", named, stick)
    add("decode_batch_numpy", points / took, "evaluations/s", "decode_single, one after another", 1 / seconds)
    for tool, (rate, said) in PUBLISHED.items():
        add(f"decode_batch_over_{tool.lower()}", points / took, "evaluations/s", f"{tool}: {said}", rate)
    for links in (2, 8, 32):
        took, points = fresh(lambda seed, n=links: box(seed, links=n), 3)  # type: ignore[misc]
        add(f"decode_box_numpy_{points}", points / took, "evaluations/s", named, stick)
    add("decode_box_numpy", points / took, "evaluations/s", "decode_single, one after another", 1 / seconds)
    fresh(lambda seed: flat(65536, seed), 1, "jax")  # compiles
    took, points = fresh(lambda seed: flat(65536, seed), 4, "jax")
    add("decode_batch_jax", points / took, "evaluations/s", "decode_single, one after another", 1 / seconds)
    fresh(lambda seed: box(seed, links=32), 1, "jax")
    took, points = fresh(lambda seed: box(seed, links=32), 4, "jax")
    add("decode_box_jax", points / took, "evaluations/s", "decode_single, one after another", 1 / seconds)
    add_plans(add)
    add_products(add)
    add_collectives(add)
    if skipped := add_packets(add):
        print(skipped)
    add_heat(add)
    add_technology(add)
    add_fusion(add)
    add_training(add)
    add_requests(add)
    if skipped := add_page(add):
        print(skipped)
    numpy_import = cold([sys.executable, "-c", "import numpy"])
    words = [
        "-m",
        "strata.app.cli",
        "predict",
        "--model",
        "llama-3-70b",
        "--system",
        "8xh200",
        "--batch",
        "64",
    ]
    for name, more in (("cli_cold", ["--plan", "tp=8"]), ("cli_cold_best_plan", [])):
        strata = cold([sys.executable, *words, *more])
        add(name, strata, "s", "python -c 'import numpy', a new process", numpy_import, smaller=True)
    return found


def add_plans(add: Callable[..., None]) -> None:
    """Every legal plan of 256 devices, weights sharded and not, at 12 batches in one call; and the search,
    orders included.
    """
    took, points = fresh(every_plan, 3)
    add("plans_256", took, "s", "the target: 1 s on one core", 1.0, smaller=True, points=points)
    system, model, work, _ = every_plan(0)
    listed = replace(work, batch=work.batch[:, 0])
    add(
        "best_plan_256",
        best(lambda: st.search.best_plans(system, model, listed), 2),
        "s",
        "plans_256",
        took,
        smaller=True,
    )


def add_collectives(add: Callable[..., None]) -> None:
    """Prices of collectives a second on one core, the cheapest algorithm chosen for each: of one node, and of
    512.
    """
    few = collective_list(0, 1)
    alone = best(lambda: price_collective(*few), 200)
    for name, nodes in (("collective_batch", 1), ("collective_batch_4096_devices", 512)):
        inputs = [collective_list(seed, nodes=nodes) for seed in range(7)]
        took = min(best(lambda one=one: price_collective(*one), 3) for one in inputs)  # type: ignore[misc]
        add(
            name,
            16384 / took,
            "prices/s",
            "one collective after another, each an array of one",
            1 / alone,
            points=16384,
        )


def add_heat(add: Callable[..., None]) -> None:
    """Temperatures of 100,000 stacks a second on one core, geometries known: rows gathered, hottest cells of
    logic and DRAM found.
    """
    made, count = cooling("liquid"), 100_000
    rng = np.random.default_rng(0)
    layers = rng.integers(1, 17, count) * 1.0
    stack = Stack(
        layers=layers,
        channels_per_layer=16.0,
        channel_width=32.0,
        transfer_rate=1e9,
        capacity_per_layer=1e9,
        connected_layers=np.minimum(rng.integers(1, 17, count) * 1.0, layers),
    )
    heat_of(stack, made, 1e-4)  # solves each of the 136 geometries

    def once() -> None:
        junction(heat_of(stack, made, 1e-4), *powers)

    times = []
    for _ in range(5):
        powers = rng.uniform(1.0, 60.0, (3, count))
        times.append(best(once, 3))
    one = assembly(made, 8, 1e-4)
    alone = best(lambda: steady(one, {"logic": 50.0, "dram0": 5.0}), 5)
    add(
        "thermal_batch",
        count / min(times),
        "stacks/s",
        "one steady solution of an 8-layer stack after another, 16 x 16 cells a die",
        1 / alone,
        points=count,
    )


def add_technology(add: Callable[..., None]) -> None:
    """Chips made from technology a second; DeepFlow's language model on 512 of them, one design after another
    and as a list of designs that are generated and evaluated in one go.
    """
    count = 20_000
    took = min(best(lambda seed=seed: generated(count, seed), 1) for seed in range(5))  # type: ignore[misc]
    add("generate_batch", count / took, "chips/s", "the target: 100,000 chips a second", 1e5, points=count)
    alone, _ = fresh(lambda seed: language_model(generated(1, seed)), 20, calls=5)
    add("lm_512_single", alone * 1e3, "ms", "the target: 5 ms", 5.0, smaller=True)
    add(
        "lm_512_over_deepflow",
        1 / alone,
        "evaluations/s",
        f"DeepFlow: {PUBLISHED['DeepFlow'][1]}",
        PUBLISHED["DeepFlow"][0],
    )
    for backend in ("numpy", "jax"):
        times = []
        for seed in range(4):  # the first compiles
            start = time.perf_counter()
            system, program, work, plan = language_model(generated(2000, seed))
            st.evaluate(system, program, work, plan, ENGINE, economics=MONEY, backend=backend)
            times.append(time.perf_counter() - start)
        name, target = f"lm_512_generated_{backend}", "the target: 10,000 evaluations a second"
        add(name, 2000 / min(times), "evaluations/s", target, 1e4, points=2000)


def add_products(add: Callable[..., None]) -> None:
    """Kernel prices a second on one core, the search for the best tile included: as a box, as a list, and one
    by one.
    """
    alone, _, _ = priced(product_list, 200, 5, count=1)
    baseline = "one product after another, each an array of one"
    candidates = len(products.TILES)
    boxes = (
        ("matmul_batch", product_box, "m x n x k x cores x DRAM bandwidths", {}),
        (
            "matmul_batch_chips",
            product_box,
            "m x n x k x cores x 1: tiles tried at every point",
            {"cores": 8, "bandwidths": 1},
        ),
        ("matmul_batch_flat", product_list, "a list: tiles tried at every point", {}),
    )
    for name, make, axes, how in boxes:
        took, points, shape = priced(make, 20, 7, **how)
        add(
            name,
            points / took,
            "prices/s",
            baseline,
            1 / alone,
            points=points,
            candidates=candidates,
            axes=axes,
            shape=list(shape),
        )


def main() -> None:
    found = rows()
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    for row in found:
        beside = (
            f" ({row['points']} points, {' x '.join(map(str, row['shape']))}: {row['axes']}; {row['candidates']} tiles each)"
            if "axes" in row
            else ""
        )
        print(
            f"{row['name']:26s} {row['value']:14,.3f} {row['unit']:14s} x{row['ratio']:<10.4g} of {row['baseline']}{beside}"
        )
    print(f"written: {OUT.relative_to(Path.cwd()) if OUT.is_relative_to(Path.cwd()) else OUT}")


if __name__ == "__main__":
    main()
