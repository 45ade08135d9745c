"""The order of levels in recursive doubling: outer first while messages are small, or inner first."""

import json
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from typer.testing import CliRunner

from benchmarks.packets import RUNS, SKIPPED, add_packets, form_time
from strata.app.cli import commands_app
from strata.hardware.transport import packets as network
from strata.measure.ns3 import simulated
from strata.pricing.network import packets
from strata.pricing.network.collective_schedules import schedule
from strata.pricing.network.packets import SwitchTree
from strata.pricing.network.routes import RouteLevel, route_steps

OWN, PUBLISHED = network("ns3"), network("astra-sim")
HEADER = (
    "topology,nodes_inner,nodes_outer,nodes_third,link_GBps_inner,link_GBps_outer,hop_ns_inner,hop_ns_outer,"
    "case,collective,algorithm,bytes,ns3_ns"
)
LEVELS = (RouteLevel("switch", 4, 256e9, 128e-9), RouteLevel("tree", 4, 32e9, 512e-9))
TREE = SwitchTree(4.0, 4.0, 256e9, 128e-9, 32e9, 512e-9)


@pytest.mark.parametrize(
    ("pattern", "name", "first"),
    [
        ("all_gather", "halving_doubling", "outer"),
        ("all_gather", "halving_doubling_inner_first", "inner"),
        ("reduce_scatter", "halving_doubling", "inner"),
        ("reduce_scatter", "halving_doubling_outer_first", "outer"),
    ],
)
def test_both_orders_have_names_and_move_the_same_bytes(pattern, name, first):
    steps = schedule(pattern, name, (4, 4), 1600.0)
    far = [bool(np.all(step.source // 4 != step.target // 4)) for step in steps]
    assert far == ([True, True, False, False] if first == "outer" else [False, False, True, True])
    sizes = [float(step.bytes[0]) for step in steps]
    assert sizes == (
        [100.0, 200.0, 400.0, 800.0] if pattern == "all_gather" else [800.0, 400.0, 200.0, 100.0]
    )


@pytest.mark.parametrize("ranks", [2, 8, 16])
@pytest.mark.parametrize("name", ["halving_doubling", "halving_doubling_inner_first"])
def test_everybody_ends_up_with_everything(name, ranks):
    held = [{rank} for rank in range(ranks)]
    for step in schedule("all_gather", name, (ranks,), 1.0 * ranks):
        sent = [set(map(int, pieces)) for pieces in step.pieces]
        for source, pieces in zip(step.source.tolist(), sent, strict=True):
            assert pieces <= held[source]  # nobody sends what it has not
        for target, pieces in zip(step.target.tolist(), sent, strict=True):
            held[target] |= pieces
    assert all(one == set(range(ranks)) for one in held)


@settings(max_examples=40, deadline=None)
@given(
    size=some.floats(1.0, 1e6),
    inner=some.sampled_from([2.0, 4.0, 8.0]),
    outer=some.sampled_from([2.0, 4.0, 8.0]),
    slower=some.floats(1.0, 16.0),
)
def test_outer_first_is_never_slower_where_the_link_upwards_is_not_faster(size, inner, outer, slower):
    tree = SwitchTree(inner, outer, 256e9, 128e-9, 256e9 / slower, 512e-9)
    small, large = (packets.tree_all_gather(size, tree, PUBLISHED, first) for first in (True, False))
    assert small <= large * 1.02
    # one level knows no order
    one = SwitchTree(inner, 1.0, 256e9, 128e-9, 256e9, 512e-9)
    same = [float(packets.tree_all_gather(size, one, PUBLISHED, first)) for first in (True, False)]
    assert same[0] == pytest.approx(same[1], rel=1e-12)


def test_a_batch_of_groups_equals_singles():
    inner, outer, size = np.array([2.0, 4.0, 8.0]), np.array([8.0, 1.0, 4.0]), np.array([100.0, 5e4, 1e6])
    many = packets.tree_all_gather(size, SwitchTree(inner, outer, 256e9, 128e-9, 32e9, 512e-9), OWN)
    ones = [
        packets.tree_all_gather(float(n), SwitchTree(float(g), float(o), 256e9, 128e-9, 32e9, 512e-9), OWN)
        for n, g, o in zip(size, inner, outer, strict=True)
    ]
    np.testing.assert_allclose(many, ones, rtol=1e-12)


@pytest.mark.parametrize("name", ["halving_doubling", "halving_doubling_inner_first"])
def test_the_form_is_what_the_router_and_ns3_find(name, simulator):
    steps = schedule("all_gather", name, (4, 4), 16 * 131072.0)
    routed = route_steps(steps, LEVELS, OWN).time
    form = packets.tree_all_gather(131072.0, TREE, OWN, name == "halving_doubling")
    assert form == pytest.approx(routed, rel=0.03)
    assert simulated([((steps,), LEVELS)], OWN, simulator)[0][0] == pytest.approx(routed, rel=1e-6)
    asked = f"switch 4x4 256x32 128x512 all_gather {name} 131072\n"
    told = subprocess.run(
        [str(simulator), "--batch=1"], input=asked, capture_output=True, text=True, check=True
    )
    assert int(told.stdout) * 1e-9 == pytest.approx(routed, rel=1e-6)


def test_published_files_go_outer_first(tmp_path):
    """Rows of ns-3 on two levels, outer first (validation/ns3/runs.csv): the form that began inside was four
    to six times too slow there.
    """
    rows = [
        "switch,8,8,1,256,32,128,512,a,all_gather,halving_doubling,16384,43510",
        "switch,8,8,1,400,50,250,700,b,all_gather,halving_doubling,16384,34865",
        "switch,8,8,1,128,128,128,128,c,all_gather,halving_doubling,3000,7120",
        "switch,4,4,1,256,32,128,512,d,all_gather,halving_doubling_inner_first,16384,28000",
    ]
    (tmp_path / "ns3").mkdir()
    (tmp_path / "ns3" / "collectives.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    told = CliRunner().invoke(commands_app(), ["validate", "--data", str(tmp_path), "--json"])
    assert told.exit_code == 0, told.output
    (file,) = json.loads(told.stdout)["files"]
    assert file["failed"] == 0 and file["groups"]["switch-8x8/all_gather"]["worst"] < 0.1


def test_the_command_names_both_orders():
    packed = (
        "collective",
        "all_gather",
        "--fabric",
        "deepstack-switch-64",
        "--bytes",
        "8MB",
        "--packets",
        "ns3",
    )
    times = {}
    for name in ("halving_doubling", "halving_doubling_inner_first"):
        told = CliRunner().invoke(commands_app(), [*packed, "--algorithm", name, "--json"])
        assert told.exit_code == 0, told.output
        data = json.loads(told.stdout)
        times[name] = data["time_s"]
        assert {d["algorithm"] for d in data["dimensions"]} == {
            name.replace("halving_", "halving-").replace("doubling_inner_first", "doubling inner first")
        }
    assert times["halving_doubling"] < times["halving_doubling_inner_first"]


def test_closed_forms_are_timed_against_ns3(simulator):
    found = []
    run = RUNS[1]
    small = type(run)(run.name, run.topology, run.sizes, run.collective, run.algorithm, 4000)
    spent, _ = form_time(small, 0, 2048)
    assert spent < 1e-2

    def add(name, value, unit, baseline, reference, **how):
        found.append((name, value / reference))

    assert add_packets(add, "no/such/program") == SKIPPED.format("no/such/program") and not found
    assert add_packets(add, str(simulator), (small,)) == ""
    assert found[0][0] == "ns3_all_gather_64" and found[0][1] > 1000.0
