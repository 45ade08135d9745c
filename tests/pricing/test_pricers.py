"""One table of pricers: every kind of op has one, a second is refused, a new kind is one line."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from cases import MODELS, model, rank_graph, roomy
from programs import GraphProgram, elementwise, extent, one_block

import strata as st
from strata.base.errors import BadValue
from strata.mapping.place import Placement
from strata.pricing import pricers
from strata.pricing.kernels.device import device
from strata.pricing.price import Price
from strata.pricing.pricers import PRICERS, Rank, price_op, register_pricer, takes_tiles, tile_pieces
from strata.workload.graph import Op

SYSTEM = roomy("1xh200")
ALONE = Rank(device=device(SYSTEM.chip), placement=Placement({}), fabric=SYSTEM.fabric)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Nap(Op):
    """A kind of op that nothing shipped has: it waits."""

    kind: ClassVar[str] = "nap"
    category: ClassVar[str] = "vector"

    seconds: float


def napping(**more):
    nap = Nap(name="nap", module="g", inputs=("x",), output="y", seconds=2.0, **more)
    return one_block(nap, elementwise("use", "y", "z", m=extent(64), n=extent(64)))


@pytest.mark.parametrize("kind", PRICERS)
def test_a_second_pricer_of_a_kind_is_refused(kind):
    before = PRICERS[kind]
    with pytest.raises(BadValue, match=f"ops of kind '{kind}' have a pricer already") as raised:
        register_pricer(kind, lambda op, rank: Price())
    assert "\n" not in str(raised.value) and PRICERS[kind] is before


def test_an_op_of_an_unknown_kind_is_named_in_one_line():
    with pytest.raises(BadValue, match="no pricer for ops of kind 'nap'; there: matmul, ") as raised:
        price_op(napping().blocks[0].ops[0], ALONE)
    assert "\n" not in str(raised.value)
    with pytest.raises(BadValue, match="no pricer for ops of kind 'nap'"):
        st.evaluate(SYSTEM, GraphProgram(napping()), st.forward(1.0))


def test_a_new_kind_of_op_is_one_line(monkeypatch):
    monkeypatch.setattr(pricers, "PRICERS", dict(PRICERS))
    register_pricer("nap", lambda op, rank: Price(time=op.seconds, overhead=op.seconds, upper=op.seconds))
    r = st.evaluate(SYSTEM, GraphProgram(napping()), st.forward(1.0))
    rest = price_op(napping().blocks[0].ops[1], ALONE).time
    assert r.metrics.step_time == pytest.approx(2.0 + rest, rel=1e-12)
    assert r.bound_by == "overhead" and "nap" not in PRICERS


@pytest.mark.parametrize("name", MODELS)
def test_every_op_of_every_model_has_a_pricer(name):
    for work in (st.decode(64.0, 256.0), st.train(64.0, 256.0)):
        kinds = {op.kind for _, op in rank_graph(model(name), work, "dp=16").ops()}
        assert kinds <= set(PRICERS)


def test_products_and_attention_take_tiles_and_nothing_else_does():
    ops = {op.kind: op for _, op in rank_graph("deepseek-v3", st.prefill(64.0, 256.0), "dp=16,ep=16").ops()}
    assert {kind for kind, op in ops.items() if takes_tiles(op)} == {"matmul", "experts", "attention"}
    for op in ops.values():
        assert float(tile_pieces(op, ALONE.device, 8.0)) >= 1.0
