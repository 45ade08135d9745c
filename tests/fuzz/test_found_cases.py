"""Classes of bad inputs that runs of the fuzz harness found, each as one case."""

import json

import pytest
from mutations import bad_table

import strata as st
from strata.errors import StrataError
from strata.hardware.part_of_domain import SPARE, _shared_out
from strata.mapping.kernel_parallel import parse_strategy
from strata.optimise.joint import typed_degrees
from strata.studies import plain_numbers
from strata.validation.readers.routing import busiest_rank_counts, multinomial_counts
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
    from strata.workload.hub_names import find_config

    config, _ = find_config("deepseek-v4-flash")
    config = {**config, "compress_ratios": [ratio, *config["compress_ratios"][1:]]}
    path = tmp_path / "my.json"
    path.write_text(json.dumps(config))
    with pytest.raises(StrataError, match="compress_ratios"):
        st.model(str(path))


@pytest.mark.parametrize("word", [None, 1, ["mamba"], "none"])
def test_words_of_layers_are_words(tmp_path, word):
    from strata.workload.hub_names import find_config

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
    got = strata(*command, "--svg", "picture.png")
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
