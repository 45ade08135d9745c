"""Whole passes of programs, and ops of a model's block."""

import pytest

from strata.base.errors import UnknownName
from strata.validation.questions.question import question
from strata.validation.readers.labels import Catalogue

MODULE = {
    "model": "deepseek-v3.2",
    "chip": "h200",
    "block": "attention.sparse",
    "batch": 8.0,
    "cached": 8191.0,
}


def asked(name, **given):
    one = question(name)
    return one.ask(one.defaults | given, Catalogue())["time"]


def test_a_pass_of_a_program_and_its_command():
    given = {"program": "gpt2-large", "system": "1xa100-pcie", "batch": 4.0, "engine": "pytorch"}
    assert 0.4 < asked("program", **given) < 0.7
    assert asked("program", **given, set="act_reads=1,act_writes=1") < asked("program", **given)
    typed = question("program").command(question("program").defaults | given | {"set": "sequence=512"})
    assert typed.endswith("--phase forward --batch 4 --engine pytorch --set model.sequence=512")


def test_ops_of_a_block_add_up():
    some = asked("block", **MODULE, ops="index_score index_top")
    rest = asked("block", **MODULE, without="index_score index_top")
    assert some + rest == pytest.approx(asked("block", **MODULE), rel=0.01)
    with pytest.raises(UnknownName, match=r"op of attention\.sparse"):
        asked("block", **MODULE, ops="nothing")
