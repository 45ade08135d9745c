"""Processes, joints and packages: every file is read, with its sources."""

import pytest

import strata as st
from strata.hardware.technology import bonding, packaging, technology
from strata.params import names


@pytest.mark.parametrize(
    "kind, read", [("technology", technology), ("bonding", bonding), ("packaging", packaging)]
)
def test_every_file_is_read_and_names_its_sources(kind, read):
    for name in names(kind):
        found = read(name)
        assert found.name == name and len(found.sources) >= 4
    with pytest.raises(st.StrataError, match=f"no {kind} called 'x'; all: "):
        read("x")
