"""Operations of the vector units an element: one table, `data/onnx/operations.toml`, for models, kernels and
ONNX graphs.
"""

from __future__ import annotations

from strata.params import load_table


def _operations() -> dict[str, dict[str, tuple[float, float]]]:
    none = {"value": 0.0}
    return {
        kind: {
            op: (float(told.get("flop", none)["value"]), float(told.get("special", none)["value"]))
            for op, told in ops.items()
        }
        for kind, ops in load_table("onnx", "operations").items()
    }


OPERATIONS = _operations()  # by kind and op: sums, products and comparisons; roots, divisions and functions
