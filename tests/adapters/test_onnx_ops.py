"""Single ONNX ops and small graphs made by hand: shapes, operations, what is told of those without a price."""

import numpy as np
import pytest

import strata as st
from strata.adapters.onnx.graph import onnx_program
from strata.base.errors import BadValue, UnknownName
from strata.workload.graph_walks import check_graph

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, getattr(onnx, "numpy_helper", None)


def model(nodes, inputs, outputs, weights=(), opset=20):
    """A model of nodes; weights by shape, or by value where they are arrays."""
    held = []
    for name, value in dict(weights).items():
        if isinstance(value, np.ndarray):
            held.append(numpy_helper.from_array(value, name))
        else:
            held.append(onnx.TensorProto(name=name, data_type=1, dims=value, data_location=1))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "small",
        [value(n, t, s) for n, t, s in inputs],
        [value(n, 1, None) for n in outputs],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def graph_of(*nodes, x=("n", 8), weights=(), batch=4.0, **more):
    made = onnx_program(model(nodes, [("x", 1, list(x))], ["y"], weights), **more)
    return made, check_graph(made.trace(st.forward(batch)))


def last(graph):
    return list(graph.ops())[-1][1]


def test_a_grouped_and_a_depthwise_convolution():
    for groups, flop in ((1, 16 * 32 * 9), (4, 16 * 32 * 9 / 4), (16, 16 * 2 * 9)):
        _, graph = graph_of(
            node("Conv", "x w", group=groups, pads=[1, 1, 1, 1]),
            x=("n", 16, 10, 10),
            weights={"w": (32, 16 // groups, 3, 3)},
        )
        assert graph.flop() == 2 * 4 * 100 * flop
        assert graph.parameters() == 32 * 16 // groups * 9


def test_a_convolution_of_open_height():
    made, _ = graph_of(
        node("Conv", "x w", strides=[2, 2], pads=[1, 1, 1, 1]),
        x=("n", 3, "high", 64),
        weights={"w": (8, 3, 3, 3)},
        sizes={"high": 50},
    )
    assert made.trace(st.forward(1.0)).flop() == 2 * 25 * 32 * 8 * 3 * 9


def test_a_transposed_convolution():
    _, graph = graph_of(
        node("ConvTranspose", "x w b", strides=[2, 2]),
        x=("n", 16, 10, 10),
        weights={"w": (16, 8, 2, 2), "b": (8,)},
    )
    assert graph.flop() == 2 * 4 * 100 * 16 * 8 * 4 and graph.parameters() == 16 * 8 * 4 + 8
    assert last(graph).elements() == 4 * 8 * 20 * 20


def test_a_batch_norm_has_four_weights_a_channel():
    names = {n: (16,) for n in ("scale", "bias", "mean", "variance")}
    _, graph = graph_of(
        node("BatchNormalization", "x scale bias mean variance"), x=("n", 16, 5, 5), weights=names
    )
    assert graph.parameters() == 64 and last(graph).vector_flop() == 2 * 4 * 16 * 25


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "elements"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, (6, 9, 9), 6 * 5 * 5),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, (6, 9, 9), 6 * 4 * 4),
        ("GlobalAveragePool", {}, (6, 9, 9), 6),
        ("Softmax", {}, (6, 9), 54),
        ("Gelu", {}, (6, 9), 54),
        ("LpNormalization", {}, (6, 9), 54),
        ("ArgMax", {"axis": 1}, (6, 9), 9),
        ("DepthToSpace", {"blocksize": 2}, (8, 3, 3), 72),
    ],
)
def test_elements_of_one_op(op, attributes, shape, elements):
    _, graph = graph_of(node(op, "x", **attributes), x=("n", *shape))
    assert last(graph).elements() == 4 * elements
    bare = model([node(op, "x", **attributes)], [("x", 1, [4, *shape])], [])
    inferred = onnx.shape_inference.infer_shapes(bare, strict_mode=True).graph.value_info[0]
    dims = [d.dim_value for d in inferred.type.tensor_type.shape.dim]
    assert np.prod(dims) == 4 * elements


def test_reductions_read_what_they_sum():
    _, graph = graph_of(
        node("ReduceMean", "x axes", keepdims=0), x=("n", 6, 9), weights={"axes": np.array([1, 2])}
    )
    op = last(graph)
    assert (op.elements(), op.vector_flop(), op.reads) == (4, 4 * 54, 54)


def test_views_cost_nothing_and_keep_their_axes():
    shape = np.array([0, 2, 4])
    made, graph = graph_of(
        node("Reshape", "x shape", "a"),
        node("Transpose", "a", "b", perm=[0, 2, 1]),
        node("Unsqueeze", "b one", "c"),
        node("Squeeze", "c one", "d"),
        node("Relu", "d", "y"),
        weights={"shape": shape, "one": np.array([1])},
    )
    assert [k.kind for k in made.kernels] == ["simd"] and made.kernels[0].reads == ("x",)
    assert made.kernels[0].writes == ("n", "d4", "d2") and graph.flop() == 0


def test_parts_of_a_dimension_share_its_inner_axis():
    made, _ = graph_of(node("Split", "x", "a b", axis=1, num_outputs=2), node("Mul", "a b", "y"), x=("n", 8))
    assert made.kernels[0].reads == ("x: n - d4", "x: n - d4") and made.kernels[0].writes == ("n", "d4")


def test_unequal_parts_have_an_axis_of_their_own():
    _, graph = graph_of(
        node("Split", "x sizes", "a b", axis=1),
        node("MatMul", "a v", "y"),
        x=("n", 8),
        weights={"sizes": np.array([6, 2]), "v": (6, 5)},
    )
    assert graph.flop() == 2 * 4 * 6 * 5


def test_a_reshape_that_no_axes_nest_with_is_a_copy():
    made, graph = graph_of(
        node("Reshape", "x shape", "a"),
        node("MatMul", "a w", "y"),
        x=("n", 2, 3),
        weights={"shape": np.array([0, 3, 2]), "w": (2, 5)},
    )
    assert [k.kind for k in made.kernels] == ["simd", "gemm"] and graph.flop() == 2 * 4 * 3 * 2 * 5


def test_a_weight_read_twice_is_stored_once():
    _, graph = graph_of(
        node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b w", "y"), weights={"w": (8, 8)}
    )
    assert graph.parameters() == 64
    assert graph.flop() == 2 * 2 * 4 * 64


def test_residuals_over_square_weights_keep_rows_and_columns_apart():
    made, graph = graph_of(node("MatMul", "x w", "a"), node("Add", "x a", "y"), weights={"w": (8, 8)})
    assert graph.flop() == 2 * 4 * 64 and made.kernels[-1].writes == ("n", "d8")


def test_attention_of_the_standard_with_fewer_heads_of_keys():
    nodes = [
        node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v"),
        node("Attention", "q k v", "y", q_num_heads=4, kv_num_heads=2),
    ]  # fmt: skip
    made, graph = graph_of(*nodes, x=("n", 10, 32), weights={"wq": (32, 32), "wk": (32, 16), "wv": (32, 16)})
    assert graph.flop() == 2 * 4 * 10 * 32 * 64 + 2 * 2 * 4 * 10 * 10 * 32
    assert dict(made.layouts)["tp"] == (("*", "heads"),) or ("*", "heads") in dict(made.layouts)["tp"]


def test_constants_and_shapes_are_folded():
    made, _ = graph_of(
        node("Shape", "x", "s"),
        node("ConstantOfShape", "s", "zeros"),
        node("Exp", "zeros", "ones"),
        node("Add", "x ones", "y"),
    )
    assert [k.name for k in made.kernels] == ["y"]
    assert dict(made.kernels[0].settings)["elements_read"] == 2.0  # the constant lies in memory, too


def test_ops_without_a_price_are_named_all_at_once_with_the_nearest():
    nodes = [
        node("Det", "x", "a"), node("Det", "a", "b"), node("GridSample", "a b", "c"), node("Softmaxx", "c", "y"),
    ]  # fmt: skip
    with pytest.raises(BadValue) as told:
        graph_of(*nodes, x=("n", 4, 4))
    said = str(told.value)
    assert "no price for Det (2x), GridSample (1x), Softmaxx (1x); nearest: " in said and "Softmax" in said
    assert "--set model.Det='flop=" in said and "\n" not in said


def test_a_price_may_be_given_by_formulas():
    nodes = [node("Relu", "x", "a"), node("Det", "a", "y")]
    _, graph = graph_of(*nodes, x=("n", 4, 4), kinds={"Det": {"flop": "2/3*d4**3", "reads": "d4*d4_2"}})
    assert last(graph).vector_flop() == pytest.approx(4 * 2 / 3 * 64) and last(graph).reads == 16
    with pytest.raises(UnknownName, match="no formula of kind Det called 'flops'"):
        graph_of(*nodes, x=("n", 4, 4), kinds={"Det": {"flops": 3}})


def test_einsums_of_more_than_two_operands_are_told():
    with pytest.raises(BadValue, match="an einsum of one or two operands"):
        graph_of(node("Einsum", "x x x", equation="ab,ab,ab->a"))
