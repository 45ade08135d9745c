"""Classes of bad inputs that runs of the fuzz harness found, each as one case."""

import json
import re

import numpy as np
import pyarrow.parquet
import pytest
from bases import SPACE
from mutations import bad_table

import strata as st
from deepflow.tiling_spread import run_tilings
from strata.base.drawing import MOST_SHAPES, Canvas
from strata.base.errors import StrataError, Unforeseen
from strata.base.expression import calculate
from strata.hardware.part_of_domain import SPARE, _shared_out
from strata.mapping.kernel_parallel import parse_strategy
from strata.optimise.joint import typed_degrees
from strata.params import data_folder
from strata.params.paths import leaf_paths, value_at, with_value
from strata.pricing.kernels.expert_load import _most_popular, busiest_rank_counts, multinomial_counts
from strata.studies import plain_numbers
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Extent
from strata.workload.moe import chance, expert_load_of, expert_shares
from strata.workload.program import program

LONG = "9" * 5000


@pytest.mark.parametrize("count", [99_999_999_999, 10**15 + 37, 10**300 + 1])
def test_devices_of_a_large_system_are_shared_out_at_once(count):
    with pytest.raises(StrataError):
        st.system(f"{count}xh200")


def test_shares_are_the_fewest_domains_of_equal_parts():
    """As trying every number of domains in turn finds them."""
    for whole in (8, 64, 72, 256):
        for count in range(whole + 1, 12 * whole, 7):
            tried = range(-(-count // whole), int(count / (whole * (1 - SPARE))) + 1)
            right = next(((d, count // d) for d in tried if count % d == 0), None)
            try:
                assert _shared_out(count, whole, "x") == right
            except StrataError:
                assert right is None


@pytest.mark.parametrize("text", [f"RC-{LONG}-2", f"d{LONG}", "RC-0-2", "d0"])
def test_degrees_of_a_strategy_are_numbers(text):
    with pytest.raises(StrataError):
        parse_strategy(text)


def test_degrees_of_a_mesh_are_numbers():
    for text in (f"tp={LONG}", "tp=0", "tp=٠"):
        with pytest.raises(StrataError):
            typed_degrees(text)


@pytest.mark.parametrize("widths", [{"bottom": [13]}, {"bottom": []}, {"top": []}])
def test_networks_of_a_recommender_have_layers(widths):
    with pytest.raises(StrataError, match=r"has (two widths|one width) or more"):
        program("dlrm-mlperf", **widths).trace(st.prefill(1.0, 1.0))


def test_numbers_of_a_claim_fit_a_float():
    with pytest.raises(StrataError, match=r"1\.8e308"):
        plain_numbers(10**400)


@pytest.mark.parametrize("ratio", [[1, "a"], {"a": 1}, None, "4", True, 7])
def test_ratios_of_compressed_layers_are_numbers(tmp_path, ratio):
    from strata.adapters.huggingface.names import find_config

    config, _ = find_config("deepseek-v4-flash")
    config = {**config, "compress_ratios": [ratio, *config["compress_ratios"][1:]]}
    path = tmp_path / "my.json"
    path.write_text(json.dumps(config))
    with pytest.raises(StrataError, match="compress_ratios"):
        st.model(str(path))


@pytest.mark.parametrize("word", [None, 1, ["mamba"], "none"])
def test_words_of_layers_are_words(tmp_path, word):
    from strata.adapters.huggingface.names import find_config

    config, _ = find_config("qwen3-next-80b-a3b")
    path = tmp_path / "my.json"
    path.write_text(json.dumps({**config, "layer_types": [word] * int(config["num_hidden_layers"])}))
    with pytest.raises(StrataError, match="layer_types"):
        st.model(str(path))


@pytest.mark.parametrize("sizes", [(16, 128, 10**12), (10**12, 128, 8), (16, 10**12, 8)])
def test_measured_experts_and_their_tokens_fit_memory(sizes):
    with pytest.raises(StrataError):
        busiest_rank_counts(*sizes, 1, 0.0)
    with pytest.raises(StrataError):
        multinomial_counts(16, 10**12, 1.0)


@pytest.mark.parametrize("command", [("area", "stack-ref"), ("fabric", "hgx-h200"), ("heat", "stack-ref")])
def test_a_picture_is_named_before_the_work(command, strata):
    got = strata(*command, "--svg", "picture.gif")
    assert got.code == 2 and got.out == "" and "ends in .svg" in got.err


def test_the_harness_breaks_integers_that_no_float_holds():
    import random

    for seed in range(200):
        bad_table(random.Random(seed), {"a": 10**400, "b": -(10**400)})


@pytest.mark.parametrize("order", [[1, "a"], [None], (["tp"],), {"tp": 1}, None, "tp-tp"])
def test_an_order_of_a_plan_names_its_dimensions(order):
    with pytest.raises(StrataError):
        st.plan(tp=2, order=order)


def test_a_size_in_a_programs_file_is_one_number(tmp_path, strata):
    path = tmp_path / "my.json"
    path.write_text(json.dumps({"kind": "dlrm", "width": [1, 2]}))
    got = strata("show", "program", path)
    assert got.code == 2 and "width of my is a number" in got.err


def test_nothing_is_written_before_a_picture_is_refused(tmp_path, strata):
    got = strata("list", "models", "--svg", tmp_path / "x.svg", "--table", tmp_path / "t.csv")
    assert got.code == 2 and "--svg draws technologies" in got.err and not list(tmp_path.iterdir())


def test_a_mistake_after_a_file_was_written_is_one_line_that_names_it(tmp_path, strata):
    (tmp_path / "taken").write_text("")
    sweep = ["sweep", "--model", "llama-3-8b", "--system", "8xh200", "--plan", "tp=8", "--vary", "batch=1,8"]
    got = strata(*sweep, "--table", tmp_path / "t.csv", "--report", tmp_path / "taken" / "r.html")
    assert got.code == 2 and len(got.err.strip().splitlines()) == 1 and "written before: t.csv" in got.err


@pytest.mark.parametrize("name", [".rocm", "rocm.", "a.b", ".", "", "..x"])
def test_names_of_a_table_may_hold_dots(tmp_path, name, strata):
    """They stand in paths, which are cut at dots."""
    text = (data_folder("economics") / "default.toml").read_text()
    path = tmp_path / "my.toml"
    path.write_text(text.replace("\nnetwork =", f'\n"{name}" =', 1))
    assert path.read_text() != text and strata("show", "economics", path).code == 0
    record = {"rates": {name: 2.0, "other": 3.0}, "part": {"x": (1.0, {name: 4.0})}}
    assert value_at(record, f"rates.{name}") == 2.0 and value_at(record, f"part.x.1.{name}") == 4.0
    assert with_value(record, f"part.x.1.{name}", 5.0)["part"]["x"][1] == {name: 5.0}


@pytest.mark.parametrize("line", ["matrix_rate = -2.5", "matrix_rate = 7", "matrix_efficiency = 1e9"])
def test_a_number_where_a_chip_has_a_table_is_refused(tmp_path, line, strata):
    path = tmp_path / "my.toml"
    path.write_text(f'like = "h200"\nsource = "a drawing of ours"\n[compute]\n{line}\n')
    got = strata("show", "chip", path)
    assert got.code == 2 and line.split()[0] in got.err and "fault" not in got.err


@pytest.mark.parametrize("name", ["gemm-8192", "fft-1024", "hpl-65536", "dlrm-mlperf"])
def test_what_has_no_layers_has_one_stage(name):
    """More are an answer, of a plan and of a layout, alone and in a box."""
    for given in (st.plan(pp=8), st.layout({"pp": 8})):
        assert not st.evaluate("8xh200", name, st.prefill(8.0, 128.0), given).fits
    both = st.evaluate("8xh200", name, st.prefill(8.0, 128.0), st.layout({"pp": np.array([1.0, 8.0])}))
    assert both.reason[0] & 64 == 0 and both.reason[1] & 64


@pytest.mark.parametrize("value", ["Infinity", "inf", "nan", "1e300", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["hidden", "layers", "ffn", "window"])
def test_sizes_of_a_model_are_finite(field, value, strata):
    got = strata(
        "predict", "-m", "llama-3-8b", "-s", "8xh200", "--plan", "tp=8", "--set", f"model.{field}={value}"
    )
    assert got.code == 2 and f"model.{field}" in got.err and "fault" not in got.err
    with pytest.raises(StrataError):
        st.model("llama-3-8b", **{field: np.array([1.0, float(value)])})


@pytest.mark.parametrize("text", ["tp=1e300", "dp=1e12", "tp=8,microbatches=1e30", "ep=1e200"])
def test_degrees_beyond_any_system_are_refused_before_pricing(text, strata):
    with pytest.raises(StrataError, match="at most 1,000,000,000"):
        st.plan(text)
    asked = ["-m", "llama-3-8b", "-s", "8xh200", "--plan", text]
    for command in (["predict"], ["serving", "-i", "128", "-o", "32", "--clients", "8"]):
        got = strata(*command, *asked)
        assert got.code == 2 and "at most 1,000,000,000" in got.err
    for given in (f"RC-1{'0' * 12}-2", "p1000000000000", "d1000000000000"):
        with pytest.raises(StrataError, match="at most"):
            parse_strategy(given)
    with pytest.raises(StrataError, match="at most"):
        st.layout({"p": np.array([2.0, 1e12])})


@pytest.mark.parametrize(
    "plan", [[1, "a"], 3, {"tp": 8}, st.Plan(tp="x"), st.Plan(tp=None), st.Plan(dp=np.nan)]
)
def test_a_plan_is_one(plan):
    asked = ("8xh200", "gemm-8192", st.decode(8, 128), plan)
    for call in (st.evaluate, st.search.power_caps):
        with pytest.raises(StrataError) as raised:
            call(*asked)
        assert not isinstance(raised.value, Unforeseen)


@pytest.mark.parametrize("grid", [("8x8", "65537"), ("8x8", "1e12"), ("1x1", "2000"), ("1e6x1e6", "1")])
def test_a_picture_of_a_grid_is_refused_before_it_is_drawn(tmp_path, grid, strata):
    asked = ["RC-1-1", "--package", grid[0], "--packages", grid[1], "--table", tmp_path / "t.csv"]
    got = strata("mapping", *asked, "--svg", tmp_path / "m.svg")
    assert got.code == 2 and "a picture shows" in got.err and not list(tmp_path.iterdir())


def test_a_drawing_has_so_many_shapes():
    canvas = Canvas(10.0, 10.0)
    canvas._drawn = MOST_SHAPES - 1
    canvas.line((0.0, 0.0), (1.0, 1.0), "#000")
    with pytest.raises(StrataError, match="a picture has at most"):
        canvas.box((0.0, 0.0), (1.0, 1.0), fill="#fff")


ARGUMENTS = ("name", "what", "on", "chip", "given", "self", "changes", "power", "map", "layers", "cooled")


@pytest.mark.parametrize(
    "asked",
    [
        ("fabric", "hgx-h200"),
        ("heat", "stack-ref"),
        ("dram", "hbm3e"),
        ("cost", "h200"),
        ("kernel", "gemm", "--chip", "h200", "--m", "8", "--n", "8", "--k", "8"),
        ("generate", "deepflow-v100", "deepflow-v100", "deepflow-2021"),
        ("predict", "-m", "gpt3-layer", "-s", "8xh200"),
    ],
)
def test_what_is_set_is_no_argument_of_ours(asked, strata):
    """A quantity that bears the name of an argument of the function behind a command."""
    owners = ("chip.", "engine.", "model.", "fabric.", "economics.") if asked[0] == "predict" else ("",)
    for name in ARGUMENTS:
        for owner in owners:
            got = strata(*asked, "--set", f"{owner}{name}=500W")
            assert "fault" not in got.err and len(got.err.splitlines()) <= 1, (name, owner, got.err)


def test_arguments_that_stand_before_changes_may_be_named():
    assert st.chip(name="h200").name == "h200" and st.engine(name="vllm").name == "vllm"
    assert st.system(what="8xh200", on="nvl72").name == st.system("8xh200", "nvl72").name
    for wrong in ({"name": "x"}, {"on": 1}):
        with pytest.raises(StrataError, match="no chip quantity called"):
            st.chip("h200", **wrong)
    with pytest.raises(StrataError, match="missing"):
        st.system(on="nvl72")


@pytest.mark.parametrize("skew", [30.0, 200.0, 65537.0, 1e10, 1e39])
def test_no_skew_overflows(skew):
    """All picks go to as many experts as a token picks."""
    shares = expert_shares(16.0, skew)
    with np.errstate(all="raise", under="ignore"):
        load, touched = expert_load_of(512.0, chance(shares, 16.0, 2.0))
        assert np.all(np.isfinite(load)) and np.all(np.isfinite(touched))
        op = expert_op(16.0, skew)
        assert _most_popular(op, None, shares) == pytest.approx(8.0)


def expert_op(experts, skew):
    one = Extent(1.0)
    sizes = {"n": (one,), "k": one, "tokens": Extent(512.0), "experts": Extent(experts)}
    formats = {"weight": "bf16", "activation": "bf16", "inputs": (), "output": ""}
    routing = {"top_k": 2.0, "all_experts": experts, "skew": skew}
    return ExpertMatMul(name="up", module="moe", **sizes, **routing, **formats)


def test_whole_numbers_of_expressions_fit_arrays():
    assert isinstance(calculate("10**30", {}, "here"), float) and calculate("7", {}, "here") == 7
    for text in ("9" * 400, "-" + "9" * 400, f"[1, {'9' * 400}]"):
        with pytest.raises(StrataError):
            calculate(text, {}, "here")


@pytest.mark.parametrize("told", ["'10**30'", f"'{'9' * 400}'", "'[1, 2]'", "'-1'", "[1]", "'samples > 1'"])
def test_settings_of_a_kernel_are_numbers(tmp_path, told, strata):
    text = (data_folder("programs") / "dlrm-dcnv2.toml").read_text()
    (tmp_path / "my.toml").write_text(re.sub(r"elements_read = .*", f"elements_read = {told}", text, count=1))
    got = strata("predict", "-m", tmp_path / "my.toml", "-s", "8xh200", "--batch", "8")
    assert got.code in (0, 2) and "fault" not in got.err


@pytest.mark.parametrize("name", ["8xh200", "8xmi325x", "8xtpu-v5p"])
def test_every_quantity_of_a_chip_may_be_a_box_or_nothing(name):
    """Two equal values give what one gives; 0 is an answer, or refused, where a quantity may be 0."""
    asked = ("deepseek-v3", st.decode(64.0, 1024.0), "tp=8,ep=8")
    chip = st.system(name).chip
    for path, meta in leaf_paths(chip).items():
        value = value_at(chip, path)
        try:
            one = st.evaluate(st.system(name, **{path: value}), *asked)
        except StrataError as error:  # what follows from others
            assert not isinstance(error, Unforeseen), path
            continue
        both = st.evaluate(st.system(name, **{path: np.array([value, value])}), *asked)
        assert both.metrics.step_time == pytest.approx(one.metrics.step_time, rel=1e-9), path
        if not meta["positive"]:
            try:
                st.evaluate(st.system(name, **{path: 0.0}), *asked)
            except StrataError as error:
                assert not isinstance(error, Unforeseen), path


def test_a_table_that_a_chip_lacks_is_no_number():
    assert st.chip("h200").compute.rescale is None
    with pytest.raises(StrataError, match="no chip quantity"):
        st.chip("h200", **{"compute.rescale": 1.0})


def test_curves_of_very_many_sequences_have_few_nodes():
    """They had as many as memory held, and more."""
    made = st.serving.curve("100000x8xh200", "llama-3-8b", st.serving.Requests(input=128, output=32))
    assert made.step.shape[1] < 30 and made.slots.max() > 1e8


@pytest.mark.parametrize("size", [-65536, 0, "many", [1], True])
def test_sides_of_a_studied_product_are_positive(size):
    entry = {"chip": "h200", "tilings": [1, 4], "gemm": {"m": 64, "n": size, "k": 64}}
    with pytest.raises(StrataError, match="'n' is a positive number"):
        run_tilings(entry, "run one")


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: st.mixed(batch=a, context=128, prompts=8, chunk=b),
        lambda a, b: st.mixed(batch=8, context=128, prompts=8, chunk=b, cached=a),
        lambda a, b: st.prefill(a, 128, cached=b),
        st.decode,
        lambda a, b: st.serve(a, 128, b),
        st.train,
    ],
)
def test_arrays_of_a_workload_broadcast(make):
    with pytest.raises(StrataError, match="must broadcast together"):
        make([1.0, 8.0], [1.0] * 10)
    make([1.0, 8.0], [1.0])


@pytest.mark.parametrize("top", [[1024, [1, 1]], [[1024], 1], [[]]])
def test_a_programs_file_has_no_boxes_inside_of_lists(tmp_path, top, strata):
    path = tmp_path / "my.json"
    path.write_text(json.dumps({"kind": "dlrm", "top": top}))
    got = strata("show", "program", path)
    assert got.code == 2 and "top of my is a list of numbers" in got.err


def test_a_mistake_in_a_function_of_the_users_is_theirs(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    with pytest.raises(StrataError, match="the function len that was given failed") as raised:
        st.search.search(str(tmp_path / "space.toml"), sampler="random", budget=8, on_progress=len)
    assert not isinstance(raised.value, Unforeseen)


def test_a_part_whose_columns_changed_places_is_done_again(tmp_path):
    """Checksums of pages do not tell one column from another: names in the footer do."""
    (tmp_path / "space.toml").write_text(SPACE)
    asked = {"sampler": "random", "budget": 24, "seed": 1, "out": tmp_path / "kept"}
    whole = st.search.search(str(tmp_path / "space.toml"), **asked)
    part = tmp_path / "kept" / "parts" / "00000.parquet"
    table = pyarrow.parquet.read_table(part)
    names = ["upper" if n == "lower" else "lower" if n == "upper" else n for n in table.column_names]
    swapped = table.rename_columns(names).replace_schema_metadata(table.schema.metadata)
    pyarrow.parquet.write_table(swapped, part, compression="zstd", write_page_checksum=True)
    again = st.search.search(str(tmp_path / "space.toml"), **asked, resume=True)
    assert str(again.best) == str(whole.best)
    assert str(pyarrow.parquet.read_table(part)["lower"]) == str(table["lower"])
