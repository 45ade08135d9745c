"""`strata map`: what it prints, draws, and says of bad input."""

from xml.etree import ElementTree

import pytest

ASK = (
    "map",
    "--program",
    "gpt3-layer",
    "--system",
    "8xsn10",
    "--plan",
    "tp=8",
    "--layouts",
    "given",
    "--tiles",
    "1,32",
)


def test_a_mapping_is_printed_and_drawn(answer, tmp_path):
    picture, roofline = tmp_path / "map.svg", tmp_path / "roof.svg"
    text = answer(*ASK, "--next", "1", "--svg", picture, "--roofline", roofline)
    for said in ("optimal", "norm_1 q k v", "kernel by kernel", "number 2", "layouts on tp", "space:"):
        assert said in text
    for path in (picture, roofline):
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
    assert "binds" in picture.read_text()


def test_machines_get_the_same(answer):
    got = answer(*ASK, "--json")
    assert got["optimal"] and got["bound"] <= got["step"] * (1 + 1e-9)
    assert sum(p["time"] for p in got["partitions"]) == got["stage"]
    assert got["compared"][1]["loss"] > 0.5 and int(got["space"]["mappings"]) > 1e6


def test_bad_input_is_one_line(strata, tmp_path):
    pin = tmp_path / "pin.toml"
    pin.write_text('[[partition]]\nkernels = ["up"]\n[[partition]]\nkernels = ["q"]\n')
    for words, said in (
        (("--rule", "overlap"), "SWITCH=WORD"),
        (("--rule", "speed=high"), "switch of fusion"),
        (("--pin", str(tmp_path / "none.toml")), "no TOML file"),
        (("--pin", str(pin)), "break the order"),
        (("--plan", "tp=3"), "use all devices"),
        (("--layouts", "mine"), "free or given"),
        (("--program", "nobody"), "called 'nobody'"),
        (("--system", "8xnobody"), "no chip called"),
        (("--rules", "nobody"), "no fusion called"),
        (("--rule", "overlap=half"), "network apart"),
        (("--seconds", "0"), "--seconds must be positive"),
        (("--seconds", "-1"), "--seconds must be positive"),
        (("--next", "-1"), "--next must not be negative"),
        (("--tiles", "0"), "--tiles must be a positive whole number"),
        (("--plan", "tp=16"), "use all devices"),
        (("--phase", "decode"), "no language model"),
        (("--precision", "fp7"), "no precision called"),
        (("--precision", "fp64"), "--precision computes in another"),
        (("--roofline", "roof.gif"), "ends in .svg"),
        (("--tiles", "1"), "softmax: needs 403 MB of SRAM, has 336 MB (1.2 times)"),
    ):
        one_line(strata(*ASK, *words), said)
    pin.write_text('[[partition]]\nkernels = ["nobody"]\n')
    one_line(strata(*ASK, "--pin", str(pin)), "pinned kernel")
    one_line(strata(*(ASK[:5]), "--layouts", "given"), "needs a --plan")


def one_line(got, said):
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1, got.err


def test_programs_that_cannot_be_mapped_say_why(strata, tmp_path):
    """A circle of kernels, an ONNX op without a price, tables larger than all DRAM, training of experts."""
    kernel = '[[kernel]]\nname = "{}"\nkind = "gemm"\nreads = "{}: tokens d"\nweight = "d w"\nwrites = "tokens w"\n'
    circle = tmp_path / "circle.toml"
    circle.write_text(
        'kind = "dataflow"\ntitle = "circle"\nsource = "assumed: a test"\nprecision = "bf16"\n'
        'stream = "tokens"\nitems = "tokens"\nitem = "token"\noutput = "b"\n[sizes]\ntokens = "batch"\n'
        'w = { value = 64, source = "assumed: a test" }\nd = "w"\n[inputs]\nx = "tokens w"\n'
        + kernel.format("a", "b")
        + kernel.format("b", "a")
    )
    one_line(strata("map", "--program", str(circle), "--system", "8xsn10"), "wait for each other in a cycle")
    onnx = pytest.importorskip("onnx")
    made = onnx.helper
    ends = [made.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [8, 8]) for n in ("x", "y")]
    graph = made.make_graph([made.make_node("Det", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(made.make_model(graph), tmp_path / "det.onnx")
    one_line(strata("map", "--program", str(tmp_path / "det.onnx"), "--system", "8xh200"), "Det")
    one_line(
        strata("map", "--program", "dfmodel-dlrm", "--system", "8xh200"), "needs at least 1.8 TB of DRAM"
    )
    one_line(strata("map", "--program", "hpl-65536", "--system", "8xh200"), "update: needs 8.32 GB of SRAM")
    experts = ("map", "--model", "mixtral-8x7b", "--system", "8xsn10")
    one_line(strata(*experts, "--phase", "train", "--batch", "8"), "strata predict")
    one_line(strata(*experts, "--phase", "decode", "--plan", "tp=16"), "is not legal")
    one_line(strata(*experts, "--phase", "decode", "--microbatch", "1"), "microbatches=N")


def test_experts_are_fused_under_the_layouts_of_a_plan(answer, tmp_path):
    ask = ("map", "--model", "mixtral-8x7b", "--system", "8xsn10", "--phase", "decode", "--plan", "tp=8,ep=8")
    text = answer(*ask, "--svg", tmp_path / "map.svg", "--roofline", tmp_path / "roof.svg")
    assert "layouts are those of the plan tp=8,ep=8" in text and "tp=8,ep=8, 1 micro-batch" in text
    got = answer(*ask, "--json")
    assert got["optimal"] and got["plan"] == "tp=8,ep=8" and got["notes"]
    assert sum(p["times"] * p["time"] for p in got["partitions"]) == pytest.approx(got["stage"])


def test_grouped_heads_are_divided_with_their_keys(answer):
    """The plan every server uses is one of the layouts that are searched: nothing given is quicker."""
    ask = (
        "map",
        "--model",
        "llama-3-8b",
        "--system",
        "8xsn10",
        "--phase",
        "decode",
        "--plan",
        "tp=8",
        "--json",
    )
    free, given = answer(*ask), answer(*ask, "--layouts", "given")
    assert free["layouts"]["attention"] == ["heads+kv_heads"]
    assert free["optimal"] and free["step"] <= given["step"] * (1 + 1e-9)


def test_a_plan_that_divides_unevenly_is_taken_where_it_is_quicker(answer):
    """Sixteen ranks, eight heads of keys: each is held twice."""
    ask = ("map", "--model", "llama-3-70b", "--system", "16xsn40l", "--phase", "decode", "--plan", "tp=16")
    got = answer(*ask, "--json")
    assert got["plan"] == "tp=16" and got["step"] == answer(*ask, "--layouts", "given", "--json")["step"]
    assert "uneven divisions are not searched" in got["notes"][0]


def test_kernels_without_a_stream_run_alone_in_pieces(answer):
    """A GPU that multiplies matrices larger than its cache; transforms that each need another axis whole."""
    got = answer("map", "--program", "gemm-8192", "--system", "8xh200")
    assert "runs kernels one by one" in got
    for name in ("fft-1024", "fft-1d-2e30"):
        got = answer("map", "--program", name, "--system", "8xh200", "--json")
        assert got["optimal"] and max(p["sram"] for p in got["partitions"]) < 50e6


def test_onnx_in_another_precision(answer):
    path = "tests/data/onnx/resnet.onnx"
    assert answer("map", "--program", path, "--system", "8xsn10", "--precision", "bf16", "--json")["optimal"]
