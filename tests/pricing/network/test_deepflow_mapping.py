"""DeepFlow's device mapping against the derates its own program gave."""

import json
from pathlib import Path

import pytest

from strata.mapping.device_mapping import LogicalDimension
from strata.pricing.network.deepflow_mapping import deepflow_mappings

DATA = Path(__file__).parents[2] / "data" / "deepflow" / "device_mapping.json"
CASES = json.loads(DATA.read_text(encoding="utf-8"))["cases"]
TOPOLOGY = {"kp1": "ring", "kp2": "ring", "dp": "ring", "lp": "chain"}


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
    named = dict(zip(mapping.order, layout["order"], strict=True))
    crossing = {named[name] for name, used in mapping.networks_used.items() if "inter" in used}
    assert crossing == set(layout["crosses"])
    assert mapping.sharing == {"intra": layout["intra"], "inter": layout["inter"]}


def test_every_order_of_the_reference_is_among_ours():
    # DeepFlow takes dimensions of equal size for one another, chains and rings alike; we keep those apart
    for case in CASES:
        found = {equal_sizes(order, case) for order in of_case(case)}
        assert {equal_sizes(layout["order"], case) for layout in case["layouts"]} <= found


@pytest.mark.parametrize("case", CASES)
def test_every_device_holds_one_shard(case):
    for mapping in of_case(case).values():
        assert len(set(mapping.places.values())) == len(mapping.places)
