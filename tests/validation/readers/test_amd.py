"""Kernels of AMD's library: what rows mean that do not say it, chips that were not fitted, and rows nobody
can read.
"""

from pathlib import Path

import numpy as np
import pytest

from strata.base.shipped import shipped_folder
from strata.hardware.chip import chip
from strata.pricing.kernel import kernel
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.validation.measured.reader import reader_of
from strata.validation.readers.comparison import HELD_OUT
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

AMD_GEMM, AMD_MOE = (reader_of(f"ops/{name}.csv", Catalogue()) for name in ("amd_gemm", "amd_moe"))
GEMM = "chip,format,out_dtype,m,n,k,us,library"
MOE = "chip,tokens,model_dim,inter_dim,experts,topk,dtype,q_dtype_a,q_dtype_w,q_type,gated,us"


def table_of(folder: Path, name: str, *lines: str):
    (folder / "ops").mkdir(exist_ok=True)
    (folder / "ops" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_table(folder, f"ops/{name}")


def errors(name: str, reader):
    table = read_table(shipped_folder("validation"), name)
    points = reader(table, Catalogue())
    assert not points.why and len(points) == len(table)
    return points, np.abs(points.predicted / points.measured - 1.0)


def test_held_out_products_of_the_fitted_chip():
    points, error = errors("ops/amd_gemm.csv", AMD_GEMM)
    held = points.line % HELD_OUT == 0
    assert error[held].mean() < 0.07
    for group in set(points.group):
        assert error[held & (points.group == group)].mean() < 0.18  # four products of bf16


def test_experts_of_a_chip_that_was_not_fitted():
    points, error = errors("ops/amd_moe.csv", AMD_MOE)
    fitted = np.array([str(group).startswith("mi300x/") for group in points.group])
    assert error[fitted & (points.line % HELD_OUT == 0)].mean() < 0.08
    assert error[~fitted].mean() < 0.18
    for group in {g for g in points.group if g.startswith("mi355x/")}:
        assert error[points.group == group].mean() < 0.2


def test_rows_of_batches_are_sixteen_products(tmp_path):
    rows = ("mi300x,bf16,,1,8192,1024,75.979,", "mi300x,bf16,,1,8192,1024,75.979,hipblaslt")
    points = AMD_GEMM(table_of(tmp_path, "amd_gemm.csv", GEMM, *rows), Catalogue())
    batch, one = points.predicted
    assert 6.0 < batch / one < 16.0  # a start is paid once
    weights = 16 * 8192 * 1024 * 2.0 / chip("mi300x").memory.bandwidth
    assert batch > weights > one


@pytest.mark.parametrize("name", ["mi308x", "MI325X", "mi350x", "mi355x"])
def test_other_chips_and_formats_are_priced(tmp_path, name):
    rows = [f"{name},{f},bf16,128,4096,4096,20.0,ck" for f in ("bf16", "fp8", "fp8_block", "int8")]
    points = AMD_GEMM(table_of(tmp_path, "amd_gemm.csv", GEMM, *rows), Catalogue())
    assert not points.why and points.group.tolist() == [
        f"{name}/{f}" for f in ("bf16", "fp8", "fp8_block", "int8")
    ]
    assert np.all((points.predicted > 2e-6) & (points.predicted < 1e-3))


def test_rows_that_cannot_be_read_are_named_and_the_others_stay(tmp_path):
    rows = (
        "mi300x,fp8_block,,128,4096,4096,20.0,ck",
        "mi999z,fp8_block,,128,4096,4096,20.0,ck",
        "mi300x,fp3,,128,4096,4096,20.0,ck",
        "mi300x,fp8_block,,,4096,4096,20.0,ck",
        "mi355x,mxfp4,,128,4096,4096,20.0,asm",
    )
    points = AMD_GEMM(table_of(tmp_path, "amd_gemm.csv", GEMM, *rows), Catalogue())
    assert sorted(points.why) == [3, 4, 5]
    assert "mi999z" in points.why[3] and "fp3" in points.why[4] and "m is missing" in points.why[5]
    assert points.predicted[0] > 0 and points.predicted[4] > 0


def test_one_measurement_under_several_numbers_of_picks(tmp_path):
    like = "bfloat16,float8_e4m3fn,float4_e2m1fn_x2,QuantType.per_1x32,1"
    rows = [f"mi355x,512,7168,3072,96,{k},{like},468.0" for k in (-1, 1, 6)]
    alone = f"mi355x,512,7168,3072,96,-1,{like},400.0"
    table = table_of(tmp_path, "amd_moe.csv", MOE, *rows, alone)
    points = AMD_MOE(table, Catalogue())
    assert len(set(points.predicted[:3])) == 1 and list(points.why) == [5]
    assert "top_k must be a positive whole number, but got -1" in points.why[5]


def test_formats_of_experts(tmp_path):
    """Weights in blocks with scales of their own, and narrow weights that are widened to what they meet."""
    sizes = "mi355x,512,7168,256,256,8,bfloat16"
    formats = {
        "bfloat16,bfloat16,QuantType.No": {},
        "float8_e4m3fn,float8_e4m3fn,QuantType.per_1x128": {"precision": "fp8_block"},
        "float8_e4m3fn,float8_e4m3fn,QuantType.per_1x32": {"precision": "mxfp8"},
        "bfloat16,int4,QuantType.per_1x32": {"precision": "int4", "weight_only": True},
        "float8_e4m3fn,float4_e2m1fn_x2,QuantType.per_1x32": {
            "precision": "mxfp4", "activations": "fp8", "weight_only": True,
        },
    }  # fmt: skip
    table = table_of(tmp_path, "amd_moe.csv", MOE, *(f"{sizes},{name},1,100.0" for name in formats))
    layer = {"tokens": 512, "hidden": 7168, "inner": 256, "experts": 256, "top_k": 8}
    stored = {"activations": "bf16", "briefly": True}
    found = [
        kernel("mi355x", "sorted_experts", **layer, **stored | options).time for options in formats.values()
    ]
    assert AMD_MOE(table, Catalogue()).predicted == pytest.approx(found)


def test_large_products_as_amd_publishes_them():
    """AMD, Measuring Max-Achievable FLOPs, part 2: hipBLASLt in bf16 and fp8, TFLOP/s held."""
    from strata.pricing.power_cap import power_capped

    published = {"mi300x": (708e12, 1273e12), "mi325x": (843e12, 1519e12)}
    for name, rates in published.items():
        bare = chip(name)
        for precision, rate in zip(("bf16", "fp8"), rates, strict=True):
            price = matmul(8192.0, 8192.0, 8192.0, device(bare, resident=False), precision, "bf16")
            held = power_capped(price, bare).price
            assert float(price.flop / held.time) == pytest.approx(rate, rel=0.1)
