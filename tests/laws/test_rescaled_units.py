"""The unit a number is written in changes no metric."""

import re

import numpy as np
import pytest
from cases import METRICS, WIDE_CHIPS, same, system

import strata as st
from strata.app.render.catalogue import FILES, SHOWN
from strata.base.arrays import leaves
from strata.params import find, fitted_file, names


def rescaled(text):
    """A data file with every value in another unit; temperatures alone have none that a factor leads to."""

    def change(match):
        number, unit = float(match.group(1)), match.group(2)
        return f'value = "{number * 1000.0!r} {unit}*mB/B"'

    return re.sub(r'value = "([-+\d.eE]+\d) ?((?!degC)[A-Za-z1/%][^"]*)"', change, text)


def copied(kind, name, folder):
    """The rescaled copy of a shipped file; a base beside it is copied, too."""
    content = find(kind, name).read_text(encoding="utf-8")
    base = re.search(r'^base = "([^"]+)"', content, re.M)
    content = rescaled(content)
    if base:
        copied(kind, base.group(1), folder)
        content = content.replace(base.group(), f'base = "{base.group(1)}.toml"')
    path = folder / f"{name}.toml"
    fitted = fitted_file(find(kind, name))
    if fitted.exists():  # what was fitted lies over the record's own file
        (folder / f"{name}-own.toml").write_text(content, encoding="utf-8")
        content = f'base = "{name}-own.toml"\n' + rescaled(fitted.read_text(encoding="utf-8"))
    path.write_text(content, encoding="utf-8")
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


@pytest.mark.parametrize("kind", FILES)
def test_a_file_in_other_units_is_the_same_record(kind, tmp_path):
    """Of every kind of file, every one that is shipped."""
    different, written = [], 0
    for name in names(kind):
        own, other = (leaves(SHOWN[kind](n)) for n in (name, copied(kind, name, tmp_path)))
        different += [name] if len(own) != len(other) else []
        different += [f"{name}: {a} {b}" for a, b in zip(own, other, strict=False) if not same(a, b, 1e-12)]
        written += (tmp_path / f"{name}.toml").read_text(encoding="utf-8").count("*mB/B")
    assert different == [] and (written or kind in ("system", "template"))  # names and shares alone


@pytest.mark.parametrize("name", [name for name in WIDE_CHIPS if st.chip(name).generated is None])
def test_rescaling_the_units_of_a_chip_changes_no_metric(name, tmp_path):
    chips = st.chip(name), st.chip(copied("chip", name, tmp_path))
    node = st.hardware.sized(st.fabric("hgx-h200"), (2.0, 1.0))
    assert_same_metrics(*(question(st.system(c, node)) for c in chips))


@pytest.mark.parametrize("kind", ["fabric", "engine", "economics"])
def test_rescaling_what_stands_around_a_chip_changes_no_metric(kind, tmp_path):
    name = {"fabric": "hgx-h200", "engine": "vllm", "economics": "default"}[kind]
    read = {
        "fabric": lambda n: question(st.system(st.chip("h200"), st.hardware.sized(st.fabric(n), (2.0, 1.0)))),
        "engine": lambda n: question(system("2xh200"), engine=n),
        "economics": lambda n: question(system("2xh200"), economics=st.hardware.economics(n)),
    }[kind]
    assert_same_metrics(read(name), read(copied(kind, name, tmp_path)))
