"""Of mappings that take equally long the one that sends less is taken."""

import time

import pytest

import strata as st
from strata.hardware.system import as_system
from strata.optimise.joint import map_candidates, map_settings
from strata.optimise.layouts.layout_degrees import DegreeSearch
from strata.optimise.layouts.layout_options import layout_rules
from strata.optimise.mappings.joint_problem import RankRoom
from strata.optimise.mappings.joint_search import CandidateSearch, quieter, sent_seconds
from strata.pricing.fusion_rules import fusion_rules
from strata.workload.program import program


def layer_of(name, system, tiles):
    code, work = program(name), st.prefill(batch=1.0, length=2048.0)
    search = DegreeSearch(
        system=as_system(system),
        program=code,
        workload=work,
        engine="ideal",
        rules=layout_rules(),
    )
    told = map_settings(code, work, fusion_rules(), tiles, (), 1.0)
    outer = CandidateSearch(search, told, None, time.perf_counter() + 60.0, None)
    candidate = map_candidates(search, "tp=8", 1.0)[0]
    found = outer.layer_search(candidate)
    return found, RankRoom(search.room, search.keeps(candidate, found.setting))


def test_exchanges_that_hide_behind_compute_are_dropped():
    found, room = layer_of("gpt3-1t-layer", "8xdfmodel-sn30", (1, 32))
    deadline = time.perf_counter() + 60.0
    first = found.first(room, deadline)
    options = {m: own.choices.index(first.options[m]) for m, own in found.layer.options.items()}
    at = found.layer.options["gelu"].choices.index(("sequence",))
    noisy = found.price({**options, "gelu": at}, room, float("inf"))
    assert sent_seconds(noisy.blocks) > sent_seconds(first.blocks)
    calm = quieter(found, noisy, room, deadline)
    assert calm.time <= noisy.time * (1 + 1e-12)
    assert sent_seconds(calm.blocks) < sent_seconds(noisy.blocks)


def test_a_mapping_that_cannot_send_less_stays():
    found, room = layer_of("gpt3-layer", "8xsn10", (8,))
    deadline = time.perf_counter() + 60.0
    first = found.first(room, deadline)
    calm = quieter(found, first, room, deadline)
    again = quieter(found, calm, room, deadline)
    assert again is calm
    assert calm.time <= first.time * (1 + 1e-12)
    assert sent_seconds(calm.blocks) <= sent_seconds(first.blocks)
    assert calm.time == pytest.approx(sum(b.times * b.fusion.time for b in calm.blocks))
