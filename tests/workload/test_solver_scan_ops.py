"""Factorisations, prefix sums and sorts as ops of a graph."""

import numpy as np
import pytest

from strata.workload.graph import Extent
from strata.workload.scan_ops import LuFactor, Scan, Sort

ALONE = {"name": "op", "module": "m", "inputs": ("a",), "output": "b"}


def test_work_of_a_factorisation():
    op = LuFactor(
        **ALONE, order=Extent(np.array([3.0, 300.0]), 1.0, "n"), batch=Extent(2.0, 1.0, "b"), precision="fp64"
    )
    # 2/3 n^3 is the leading term of the multiplications and subtractions: sum over k of 2 (n - k)^2
    exact = 2 * 2 * sum((300 - k) ** 2 for k in range(1, 301))
    assert op.flop()[1] == pytest.approx(exact, rel=0.01)
    np.testing.assert_allclose(op.output_bytes(), 2 * 8 * np.array([9.0, 90000.0]))
    assert op.operand_axes(0) == op.result_axes() == ("b", "n") and op.whole_axes() == ("n",)
    assert op.gradient() == ()


def test_prefix_sums_go_back_from_the_other_end():
    op = Scan(**ALONE, length=Extent(8.0, 1.0, "t"), inner=Extent(4.0, 1.0, "c"), precision="fp32")
    (back,) = op.gradient()
    assert (back.inputs, back.output, back.backward) == (("d_b",), "d_a@op", True)
    assert back.output_bytes() == op.output_bytes() == 8 * 4 * 4 and op.vector_flop() == 32
    assert op.whole_axes() == ("t",) and op.flop() == 0.0


def test_gradients_of_a_sort_go_where_their_keys_came_from():
    op = Sort(**ALONE, length=Extent(1000.0, 1.0, "t"), lines=Extent(4.0), precision="fp32")
    (back,) = op.gradient()
    assert back.kind == "gather" and back.elements() == 4000 and back.row_bytes() == 4
    assert op.output_bytes() == 4000 * 12
