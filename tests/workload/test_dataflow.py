"""Programs of any dataflow graph: built in Python, read from files and written back, priced, divided, trained;
and what is wrong with one in a single line.
"""

import json

import numpy as np
import pytest
from cases import collectives

import strata as st
from strata.base.errors import BadFile, BadValue, StrataError, UnknownName
from strata.mapping.plan import division
from strata.mapping.shard import shard
from strata.params import data_folders
from strata.workload.dataflow_file import dataflow_schema, read_dataflow
from strata.workload.graph_walks import check_graph
from strata.workload.program import program

SHIPPED = sorted(path.stem for folder in data_folders("programs") for path in folder.glob("*.toml"))


def attention():
    g = st.dataflow(
        "attention", hidden=4096, heads=32, head=128, tokens="batch", keys="tokens", stream="tokens"
    )
    x = g.input("x", "tokens hidden")
    q, k, v = (g.gemm(n, x, weight="hidden heads head", writes="tokens heads head") for n in "qkv")
    scores = g.gemm("scores", q, k.under("keys heads head"), writes="heads tokens keys")
    soft = g.simd("softmax", scores, flop=4, special=1)
    mixed = g.gemm("mixed", soft, v.under("keys heads head"), writes="tokens heads head")
    out = g.gemm("out", mixed, weight="heads head hidden", writes="tokens hidden")
    g.layout("tp", "heads")
    return g.program(output=g.simd("add", out, x))


def sent(made, work, plan):
    graph, layout = made.trace(work), division(made, plan)
    part = shard(graph, layout.sharding(graph, work, layout.active()))
    return [(op.pattern, op.group, float(op.payload)) for op in collectives(op for _, op in part.ops())]


def one_kernel(kernel, **more):
    """A program of one kernel that reads x of 64 samples and 32 columns."""
    sizes = {"samples": 64, "columns": 32, "rows": 16} | more.pop("sizes", {})
    table = {"sizes": sizes, "inputs": {"x": "samples columns", "y": "samples rows"}} | more
    return read_dataflow("one", table | {"kernel": [{"name": "k", **kernel}]})


def only_op(made):
    return made.trace(st.forward(1.0)).blocks[0].ops[0]


def test_attention_in_a_few_lines():
    made = attention()
    n, h = 512.0, 4096.0
    graph = check_graph(made.trace(st.forward(n)))
    assert graph.flop() == 8 * n * h * h + 4 * n * n * h
    assert graph.parameters() == 4 * h * h
    assert sent(made, st.forward(n), "tp=8") == [("all_reduce", "tp", 2.0 * n * h)]
    training = check_graph(made.trace(st.train(n, 1.0)))
    assert training.flop() == 3 * graph.flop()
    assert [c[0] for c in sent(made, st.train(n, 1.0), "tp=8")] == ["all_reduce", "all_reduce"]


def test_a_batch_of_sizes_is_as_many_single_ones():
    made = attention()
    heads = np.array([8.0, 16.0, 32.0])
    many = st.evaluate("1xh200", made.with_changes(heads=heads), st.forward(512.0))
    for i, one in enumerate(heads):
        alone = st.evaluate("1xh200", made.with_changes(heads=one), st.forward(512.0))
        assert many.metrics.items_per_s[i] == pytest.approx(alone.metrics.items_per_s, rel=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
def test_files_round_trip(name, tmp_path):
    made, path = program(name), tmp_path / f"{name}.toml"
    path.write_text(made.to_toml())
    again = program(path)
    assert again.to_toml() == made.to_toml()
    before, after = (p.trace(st.forward(4.0)) for p in (made, again))
    assert before.flop() == after.flop() and before.parameters() == after.parameters()
    assert [op.name for _, op in before.ops()] == [op.name for _, op in after.ops()]


def test_json_and_a_base_are_read(tmp_path):
    table = {
        "kind": "dataflow",
        "sizes": {"wide": "2*narrow", "narrow": 8, "n": "batch"},
        "inputs": {"x": "n narrow"},
        "kernel": [
            {"name": "y", "kind": "gemm", "reads": ["x"], "weight": "narrow wide", "writes": "n wide"}
        ],
    }
    path = tmp_path / "small.json"
    path.write_text(json.dumps(table))
    made = program(path)
    assert made.trace(st.forward(4.0)).flop() == 2 * 4 * 8 * 16
    assert program(path, narrow=16).trace(st.forward(4.0)).flop() == 2 * 4 * 16 * 32
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(made.to_toml())
    second.write_text('base = "first"\n[sizes]\nnarrow = 4\n')
    assert program(second).trace(st.forward(1.0)).flop() == 2 * 4 * 8


def test_the_schema_knows_every_key_of_the_shipped_files():
    schema = dataflow_schema()
    for name in SHIPPED:
        table = program(name).to_toml()
        keys = {line.strip("[]").split(".")[0] for line in table.splitlines() if line.startswith("[")}
        assert keys <= set(schema["properties"]), name


# ------------------------------------------------------------------------------------------ kinds of kernels


def test_kinds_of_own_state_their_work():
    kind = {"name": "stencil", "flop": "points*elements", "reads": "2*inputs", "written_bytes": "elements"}
    made = one_kernel(
        {"kind": "stencil", "reads": "x", "points": 7}, kinds=[kind], layout={"dp": {"*": "samples"}}
    )
    op = only_op(made)
    elements = 64 * 32
    assert op.work() == 7 * elements and op.flop() == 0.0  # of vector units: no useful operations
    assert op.elements() * op.bytes_read == 2 * elements * 2 and op.elements() * op.bytes_written == elements
    half = shard(made.trace(st.forward(1.0)), division(made, "dp=2").sharding(
        made.trace(st.forward(1.0)), st.forward(1.0), frozenset({"dp"}))).blocks[0].ops[0]  # fmt: skip
    assert half.work() == op.work() / 2
    training = made.trace(st.train(1.0, 1.0))
    assert [o.work() for _, o in training.ops()] == [op.work(), 2 * op.work()]
    assert st.evaluate("1xh200", made, st.train(1.0, 1.0)).fits


def test_a_kind_on_matrix_units_is_useful_work_and_a_roofline():
    kind = {
        "name": "solve",
        "unit": "matrix",
        "flop": "1e6*elements",
        "read_bytes": "8",
        "written_bytes": "8",
    }
    made = one_kernel({"kind": "solve", "reads": "x"}, kinds=[kind])
    assert only_op(made).flop() == 1e6 * 64 * 32
    result = st.evaluate("1xh200", made, st.forward(1.0))
    rate = only_op(made).flop() / result.steps[0].time
    assert 0.4 < rate / 989e12 < 1.0


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ({"kind": "fft", "reads": "x", "along": "columns"}, "fft"),
        ({"kind": "scan", "reads": "x", "along": "samples"}, "scan"),
        ({"kind": "sort", "reads": "x"}, "sort"),
        ({"kind": "gather", "reads": "x", "weight": "rows columns", "row": "columns"}, "gather"),
        ({"kind": "all_to_all", "reads": "x", "over": "dp"}, "collective"),
        ({"kind": "broadcast", "reads": "x", "over": "dp"}, "collective"),
        ({"kind": "gemm", "reads": "x, y", "writes": "rows columns"}, "matmul"),
        ({"kind": "gemm", "reads": "x", "weight": "columns rows", "writes": "samples rows"}, "matmul"),
    ],
)
def test_every_kind_is_priced_divided_and_trained(kernel, kind):
    made = one_kernel(kernel, layout={"dp": {"*": "samples"}})
    assert only_op(made).kind == kind
    for work in (st.forward(1.0), st.train(1.0, 1.0)):
        check_graph(made.trace(work))
        # one rank alone has nothing to send
        for system, plan in (("2xh200", "dp=2"), ("1xh200", ""))[: 1 if kind == "collective" else 2]:
            result = st.evaluate(system, made, work, plan)
            assert result.fits and result.steps[0].time > 0


def test_communication_stands_only_where_the_mesh_has_its_dimension():
    g = st.dataflow("exchange", rows="batch", columns=1024)
    x = g.input("x", "rows columns")
    swapped = g.kernel("all_to_all", "swap", g.simd("first", x), over="tp")
    g.layout("tp")
    g.layout("dp", "rows")
    made = g.program(output=g.simd("second", swapped))
    assert sent(made, st.forward(64.0), "tp=4") == [("all_to_all", "tp", 2.0 * 64 * 1024)]
    assert sent(made, st.forward(64.0), "dp=4") == []
    assert ("all_to_all", "tp", 2.0 * 32 * 1024) in sent(made, st.forward(64.0), "tp=4,dp=2")
    alone = made.trace(st.forward(64.0))
    layout = division(made, "")
    check_graph(shard(alone, layout.sharding(alone, st.forward(64.0), layout.active())))
    training = sent(made, st.train(64.0, 1.0), "tp=4")
    assert [c[0] for c in training] == ["all_to_all", "all_to_all"]


def test_two_axes_of_one_extent_are_divided_together():
    made = program("gpt3-layer")
    work = st.forward(8.0)
    graph, layout = made.trace(work), division(made, "tp=4,dp=2")
    part = shard(graph, layout.sharding(graph, work, layout.active()))
    whole, half = ({op.name: op for _, op in g.ops()} for g in (graph, part))
    assert half["scores"].flop() == whole["scores"].flop() / 8
    assert half["norm_1"].elements() == whole["norm_1"].elements() / 2
    assert {c[0] for c in sent(made, work, "tp=4,dp=2")} == {"all_reduce"}


# ------------------------------------------------------------------------------------------ bad input

PLAIN = {"sizes": {"n": 8, "m": 4}, "inputs": {"x": "n m"}}
WRONG = [
    ([{"name": "a", "kind": "simd", "reads": "b"}, {"name": "b", "kind": "simd", "reads": "a"}],
     "wait for each other in a cycle: a, b"),
    ([{"name": "a", "kind": "simd", "reads": "xx"}], "no tensor that a reads called 'xx'; nearest: x"),
    ([{"name": "a", "kind": "simd", "reads": "x", "writes": "n mm"}], "no size of an axis of kernel a called 'mm'; nearest: m"),
    ([{"name": "a", "kind": "gemm", "reads": "x", "weight": "n m", "writes": "n m"}],
     "kernel a: a gemm sums over an axis"),
    ([{"name": "a", "kind": "gemm", "reads": "x", "writes": "n"}], "a kernel of one tensor is a simd"),
    ([{"name": "a", "kind": "gem", "reads": "x"}], "no kind of kernel a called 'gem'; nearest: gemm"),
    ([{"name": "a", "kind": "simd", "reads": "x"}] * 2, "two tensors are called a"),
    ([{"name": "a", "kind": "simd", "reads": "x", "flops": 3}], "called 'flops'; nearest: flop"),
    ([{"name": "a", "kind": "simd"}], "kernel a has no reads"),
    ([{"name": "a", "kind": "all_to_all", "reads": "x"}], "needs the dimension of the mesh"),
    ([{"name": "a", "kind": "fft", "reads": "x", "along": "k"}], "no axis of fft kernel a called 'k'"),
    ([{"name": "a", "kind": "simd", "reads": "x: n"}], "under as many axes as it has"),
    ([], "has no kernels"),
]  # fmt: skip


@pytest.mark.parametrize(("kernels", "said"), WRONG)
def test_what_is_wrong_is_one_line(kernels, said):
    with pytest.raises(StrataError) as told:
        read_dataflow("p", PLAIN | {"kernel": kernels})
    assert said in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"sizes": {"n": 0, "m": 4}}, BadValue, "p: a size is positive, but got (n=0.0)"),
        ({"sizes": {"n": "m - 4", "m": 4}}, BadValue, "a size is positive"),
        ({"sizes": {"n": float("inf"), "m": 4}}, BadValue, "p: size n must be a finite number, but got 'inf'"),
        ({"sizes": {"n": "m/0", "m": 4}}, BadValue, "size n of p: 'm/0' has no value: float division by zero"),
        ({"sizes": {"n": "", "m": 4}}, BadValue, "size n of p: cannot read the expression ''"),
        ({"sizes": "n"}, BadFile, "p: [sizes] is a table, but got 'n'"),
        ({"kernel": {"name": "a"}}, BadFile, "a table under [[kernel]]"),
        ({"kernel": ["a"]}, BadFile, "a table under [[kernel]]"),
        ({"sizes": {"n": "m", "m": "n"}}, BadValue, "sizes follow from each other in a circle: n, m"),
        ({"sizes": {"n": "2*mm", "m": 4}}, UnknownName, "no name in size n of p called 'mm'; nearest: m"),
        ({"size": {}}, UnknownName, "called 'size'; nearest: sizes"),
        ({"layout": {"tp": {"*": "k"}}}, UnknownName, "no axis in layout tp of p called 'k'"),
        ({"layout": {"tp": {"aa": "n"}}}, UnknownName, "no kernel in layout tp of p called 'aa'"),
        ({"output": "y"}, UnknownName, "no output of p called 'y'"),
        ({"stream": "t"}, UnknownName, "no stream of p called 't'"),
        ({"inputs": {}}, BadFile, "[inputs] names tensors from outside"),
        ({"kinds": [{"name": "simd"}]}, BadValue, "is one of the house"),
        ({"kinds": [{"name": "own", "unit": "tensor"}]}, UnknownName, "no unit of kind own called 'tensor'"),
    ],
)  # fmt: skip
def test_what_is_wrong_beside_kernels(changes, error, said):
    with pytest.raises(error) as told:
        read_dataflow("p", PLAIN | {"kernel": [{"name": "a", "kind": "simd", "reads": "x"}]} | changes)
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("elements/0", "flop of kind own, kernel a: 'elements/0' has no value: float division by zero"),
        ("-elements", "flop of kind own, kernel a: '-elements' is a number from 0, but got -"),
        ("1e308*10*elements", "is a number from 0, but got inf"),
    ],
)
def test_formulas_without_a_price(formula, said):
    kernel = {"name": "a", "kind": "own", "reads": "x"}
    with pytest.raises(BadValue) as told:
        read_dataflow("p", PLAIN | {"kernel": [kernel], "kinds": [{"name": "own", "flop": formula}]})
    assert said in str(told.value)


def test_without_a_layout_every_axis_can_be_typed():
    """Sizes that follow from others too, and none that is no axis."""
    g = st.dataflow("p", tokens="batch", hidden=64, ffn="4*hidden", unused=3)
    up = g.gemm("up", g.input("x", "tokens hidden"), weight="hidden ffn", writes="tokens ffn")
    made = g.program(output=g.gemm("down", up, weight="ffn hidden", writes="tokens hidden"))
    assert made.mesh_dimensions == ("tokens", "hidden", "ffn")
    assert made.division_over(8.0) == "tokens=8"
    for plan in ("tokens=8", "ffn=8", "tokens=2,ffn=4"):
        assert st.evaluate("8xh200", made, st.forward(64), plan).steps[0].time > 0
    with pytest.raises(BadValue, match=r"divided like tokens=2,hidden=2,ffn=2 \(its axes"):
        st.evaluate("8xh200", made, st.forward(64), "tp=8")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda g: g.simd("a", "x", flop=-1.0), "flop of kernel a is a number from 0, but got -1.0"),
        (lambda g: g.simd("a", "x", flop=float("nan")), "flop of kernel a is a number from 0, but got nan"),
        (
            lambda g: g.gemm("a", "x", weight="m r", writes="n"),
            "r is in one operand alone, but got n m x m r",
        ),
        (lambda g: g.simd("a", "x", writes=["n"]), "kernel a: axes are names with spaces between them"),
        (
            lambda g: st.dataflow("q", n=None),
            "dataflow: n is a number, an array or list of numbers or text, but got None",
        ),
        (lambda g: st.program("gpt3-layer", hidden=None), "size hidden is a number or an expression"),
        (lambda g: st.forward("x"), "batch is a number or an array"),
    ],
)
def test_values_of_a_wrong_kind(make, said):
    g = st.dataflow("p", n=8, m=4, r=3)
    g.input("x", "n m")
    with pytest.raises(BadValue, match=said):
        g.program(output=str(make(g)))


def test_a_convolution_reads_its_image_under_the_axes_of_its_window():
    g = st.dataflow("p", n="batch", y=8, c=4, k=16, r=3)
    image = g.input("image", "n y c")
    made = g.program(output=g.gemm("conv", image.under("n y c r"), weight="c r k", writes="n y k"))
    assert float(made.trace(st.forward(2.0)).flop()) == 2 * 2 * 8 * 4 * 3 * 16
    assert made.mesh_dimensions == ("n", "c", "k")  # y lies within n, r within c: layouts name them


def test_files_that_hold_no_program(tmp_path):
    for name, text, said in (
        ("a.toml", "", "a.toml says no kind of program"),
        ("b.json", "null", "b.json must hold an object"),
        ("c.json", "[]", "c.json must hold an object"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadFile, match=said):
            st.program(tmp_path / name)


def test_the_builder_says_at_once_what_is_wrong():
    g = st.dataflow("p", n=8, m=4)
    x = g.input("x", "n m")
    with pytest.raises(UnknownName, match="size of an axis of kernel a called 'k'"):
        g.gemm("a", x, weight="m k", writes="n k")
    with pytest.raises(UnknownName, match="tensor that a reads called 'xx'; nearest: x"):
        g.simd("a", "xx")
    with pytest.raises(UnknownName, match="kind of kernel a called 'sims'; nearest: simd"):
        g.kernel("sims", "a", x)
    with pytest.raises(BadValue, match="two tensors are called x"):
        g.simd("x", x)
    with pytest.raises(UnknownName, match="no size or field of gpt3-layer called 'hiden'; nearest: hidden"):
        program("gpt3-layer", hiden=3)


def test_compiled_code_prices_a_program_alike():
    made = attention()
    for heads in (np.array([8.0, 16.0]), 32.0):
        plain, compiled = (
            st.evaluate("8xh200", made.with_changes(heads=heads), st.train(512.0, 1.0), "tp=8", backend=b)
            for b in ("numpy", "jax")
        )
        assert compiled.metrics.items_per_s == pytest.approx(plain.metrics.items_per_s, rel=1e-9)
