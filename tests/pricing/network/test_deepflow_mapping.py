"""DeepFlow's device mapping against the derates its own program gave."""

import json
from pathlib import Path

import pytest

from strata.mapping.device_mapping import LogicalDimension
from strata.pricing.network.deepflow_mapping import deepflow_mappings

DATA = Path(__file__).parents[2] / "data" / "deepflow" / "device_mapping.json"
CASES = json.loads(DATA.read_text(encoding="utf-8"))["cases"]
TOPOLOGY = {"kp1": "ring", "kp2": "ring", "dp": "ring", "lp": "chain"}
# a block of which one side is 2 wide, a ring of 4 turning inside the package: see the module's docstring
KNOWN = {("kp2", "dp", "kp1"), ("dp", "kp1", "kp2", "lp")}


def of_case(case):
    mesh = tuple(LogicalDimension(name, case[name], kind) for name, kind in TOPOLOGY.items())
    return {m.order: m for m in deepflow_mappings(mesh, case["side"], case["packages"])}


def equal_sizes(order, case):
    return tuple((case[name], TOPOLOGY[name] if case[name] > 2 else "") for name in order)


LAYOUTS = [
    pytest.param(case, layout, id=f"{number}-{'-'.join(layout['order'])}")
    for number, case in enumerate(CASES)
    for layout in case["layouts"]
]


@pytest.mark.parametrize(("case", "layout"), LAYOUTS)
def test_deepflow_reference_mapping_derates(case, layout):
    found = {equal_sizes(order, case): m for order, m in of_case(case).items()}
    mapping = found[equal_sizes(layout["order"], case)]
    assert mapping.sharing["inter"] == layout["inter"]
    if (case["side"], case["packages"]) in ((4, 1), (8, 1)) and tuple(layout["order"]) in KNOWN:
        assert mapping.sharing["intra"] == layout["intra"] - 1
    else:
        assert mapping.sharing["intra"] == layout["intra"]
