"""Names in data sets: what a catalogue resolves, and what another version of a record changes."""

from dataclasses import replace

import pytest

from strata.base.errors import UnknownName
from strata.hardware.transport import transport
from strata.validation.readers.labels import Catalogue


def test_records_are_read_once_by_any_of_their_names():
    catalogue = Catalogue()
    assert catalogue.chip("h200_sxm") is catalogue.chip("H200_SXM ")
    assert catalogue.system("8xH200") is catalogue.system("8xh200")
    assert catalogue.model("llama-3-70b", kv="fp8") is not catalogue.model("llama-3-70b")
    assert catalogue.has_chip("b200") and not catalogue.has_chip("z900")
    with pytest.raises(UnknownName):
        catalogue.engine("no-such-engine")


def test_another_version_of_a_chip_is_priced_wherever_its_name_stands():
    catalogue = Catalogue()
    version = replace(catalogue.chip("h200"), title="a trial")
    other = catalogue.with_chip(version)
    assert other.chip("h200_sxm") is version and other.system("8xh200").chip is version
    assert catalogue.chip("h200").title != "a trial" and other.chip("b200") is catalogue.chip("b200")
    own = replace(version, name="mygpu")
    assert catalogue.with_chip(own).has_chip("MyGPU") and not catalogue.has_chip("mygpu")


def test_other_versions_of_engines_and_transports():
    catalogue = Catalogue()
    engine = replace(catalogue.engine("vllm"), step_gap=1.0)
    assert replace(catalogue, engines={"vllm": engine}).engine("vllm") is engine
    moved = transport("nvlink4")
    fabric = catalogue.with_transport(moved).system("8xh200").fabric
    shipped = catalogue.system("8xh200").fabric
    assert fabric.dimension[0].transport == "nvlink4" and fabric.dimension[0].transport_model is not None
    assert fabric.dimension[0].transport_model is not shipped.dimension[0].transport_model
