"""Ranks of devices: every group is one of the plan's, and lies where pricing places it."""

import numpy as np
import pytest

from strata.base.errors import BadValue, UnknownName
from strata.hardware.fabric import fabric, sized
from strata.mapping.place import IDLE, place, rank_numbers
from strata.mapping.plan import plan

PLANS = (
    "tp=4,dp=16,ep=64",
    "tp=8,pp=2,dp=4",
    "tp=2,cp=2,dp=8,pp=2,ep=16",
    "tp=4,dp=16,order=dp-tp",
    "tp=2,dp=8,pp=4,order=pp-tp-dp",
)


@pytest.mark.parametrize("text", PLANS)
def test_groups_divide_the_devices(text):
    chosen = plan(text)
    for name, (_, size, _) in chosen.group_ranks(chosen.active()).items():
        if float(size) <= 1 or name.endswith(("copies", "shard")) or name == "pp_ends":
            continue
        members = rank_numbers(chosen, 64, name).members()
        assert members.shape[1] == float(size)
        assert sorted(members.ravel().tolist()) == list(range(int(float(chosen.devices))))


@pytest.mark.parametrize("text", PLANS)
@pytest.mark.parametrize("name", ["tp", "dp", "pp", "ep"])
def test_they_lie_where_they_are_priced(text, name):
    """How many places of each dimension a group takes is what `place` prices it by."""
    chosen, joined = plan(text), sized(fabric("hgx-h200"), (8, 8))
    found = rank_numbers(chosen, 64, name)
    if found.size == 1:
        return
    layouts = place(chosen, joined, chosen.active() | {name}).groups[name]
    for members in found.members():
        assert len(set((members % 8).tolist())) == float(layouts[0].size)
        assert len(set((members // 8).tolist())) == float(layouts[1].size)


def test_devices_left_over_are_idle():
    found = rank_numbers(plan("tp=4"), 6, "tp")
    assert found.group.tolist() == [0, 0, 0, 0, IDLE, IDLE]
    assert np.array_equal(found.members(), [[0, 1, 2, 3]])


def test_groups_that_do_not_divide_the_ranks_are_one_line():
    with pytest.raises(BadValue, match="groups of ep must divide the 8 ranks of the plan"):
        rank_numbers(plan("dp=8,ep=3"), 8, "ep")


def test_a_wrong_name_is_one_line():
    with pytest.raises(UnknownName, match="no group of ranks called 'xp'"):
        rank_numbers(plan("tp=4"), 4, "xp")
