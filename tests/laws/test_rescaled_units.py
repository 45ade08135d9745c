"""The unit a number is written in changes no metric."""

import re

import numpy as np
import pytest
from cases import CHIPS, FABRICS, METRICS, same, system

import strata as st
from strata.params import find, fitted_file, names

SMALLER = {
    "TB/s": "GB/s",
    "GB/s": "MB/s",
    "TFLOP/s": "GFLOP/s",
    "TOP/s": "GOP/s",
    "PFLOP/s": "TFLOP/s",
    "GHz": "MHz",
    "MHz": "kHz",
    "TB": "GB",
    "GB": "MB",
    "us": "ns",
    "ns": "ps",
    "ms": "us",
    "s": "ms",
    "pJ": "fJ",
    "pJ/FLOP": "fJ/FLOP",
    "pJ/OP": "fJ/OP",
    "J/B": "mJ/B",
    "pJ/B": "fJ/B",
    "pJ/bit": "fJ/bit",
    "W": "mW",
    "kW": "W",
    "USD": "mUSD",
    "USD/kWh": "mUSD/kWh",
    "USD*s/GB": "mUSD*s/GB",
    "MB": "kB",
    "B": "mB",
    "PB/s": "TB/s",
    "Tbit/s": "Gbit/s",
    "Gbit/s": "Mbit/s",
}
OTHERS = {
    "GiB": ("MiB", 1024.0),
    "MiB": ("KiB", 1024.0),
    "KiB": ("B", 1024.0),
    "mm2": ("um2", 1e6),
    "year": ("h", 8766.0),
    "ps": ("s", 1e-12),
    "fJ/FLOP": ("J/FLOP", 1e-15),
}


def rescaled(text):
    """A data file with every value in another unit, and how many were changed."""

    def change(match):
        number, unit = float(match.group(1)), match.group(2)
        new, scale = (SMALLER[unit], 1000.0) if unit in SMALLER else OTHERS[unit]
        return f'value = "{number * scale!r} {new}"'

    return re.subn(r'value = "([-+\d.eE]+) ?([^"]+)"', change, text)


def copied(kind, name, folder):
    """The rescaled copy of a shipped file; a base beside it is copied, too."""
    content = find(kind, name).read_text(encoding="utf-8")
    base = re.search(r'^base = "([^"]+)"', content, re.M)
    content, changed = rescaled(content)
    if base:
        copied(kind, base.group(1), folder)
        content = content.replace(base.group(), f'base = "{base.group(1)}.toml"')
    path = folder / f"{name}.toml"
    fitted = fitted_file(find(kind, name))
    if fitted.exists():  # what was fitted lies over the record's own file
        (folder / f"{name}-own.toml").write_text(content, encoding="utf-8")
        content = f'base = "{name}-own.toml"\n' + rescaled(fitted.read_text(encoding="utf-8"))[0]
    path.write_text(content, encoding="utf-8")
    like = re.search(r"^like = ", content, re.M)  # a chip that says only what differs
    assert changed >= (1 if like else 2) or base  # a file may change its base by plain numbers alone
    return str(path)


def metrics_of(result):
    return {name: float(np.asarray(getattr(result.metrics, name))) for name in METRICS}


def question(where, **more):
    """Metrics of a small model in a format the chip has."""
    rates = where.chip.compute.matrix_rate
    activations = next(p for p in ("bf16", "fp16", "fp32") if p in rates)
    small = st.model("llama-3-8b", weights=activations, activations=activations)
    return metrics_of(st.evaluate(where, small, st.serve(8, 512, 64), st.plan(tp=where.devices), **more))


def assert_same_metrics(one, other):
    assert {k: v for k, v in one.items() if not same(v, other[k], 1e-9)} == {}
    assert np.isfinite(one["step_time"]) or one["memory_used"] > one["memory_limit"]


@pytest.mark.parametrize("name", [name for name in CHIPS if st.chip(name).generated is None])
def test_rescaling_the_units_of_a_chip_changes_no_metric(name, tmp_path):
    chips = st.chip(name), st.chip(copied("chip", name, tmp_path))
    node = st.hardware.sized(st.fabric("hgx-h200"), (2.0, 1.0))
    assert_same_metrics(*(question(st.system(c, node)) for c in chips))


@pytest.mark.parametrize("name", FABRICS)
def test_rescaling_the_units_of_a_fabric_changes_no_metric(name, tmp_path):
    fabrics = st.fabric(name), st.fabric(copied("fabric", name, tmp_path))
    sizes = (2.0,) * len(fabrics[0].dimension)
    assert_same_metrics(*(question(st.system(st.chip("h200"), st.hardware.sized(f, sizes))) for f in fabrics))


@pytest.mark.parametrize("name", names("engine"))
def test_rescaling_the_units_of_an_engine_changes_no_metric(name, tmp_path):
    assert_same_metrics(
        *(question(system("2xh200"), engine=e) for e in (name, copied("engine", name, tmp_path)))
    )


def test_rescaling_the_units_of_prices_changes_no_metric(tmp_path):
    assert_same_metrics(
        *(
            question(system("2xh200"), economics=st.hardware.economics(e))
            for e in ("default", copied("economics", "default", tmp_path))
        )
    )
