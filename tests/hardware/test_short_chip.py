"""A chip in ten lines: words of data sheets, one source, the rest inherited and marked; what is missing, all of it."""

import pytest

import strata as st
from strata.base.errors import StrataError

TEN = """name = "ten"
like = "h200"
source = "Vendor's brief, June 2026, page 2"
bf16 = "1.8 PFLOP/s"
fp8 = 3.6e15
fp4 = "7.2 PFLOP/s"
memory_bandwidth = "8 TB/s"
memory_capacity = "192 GiB"
power = "1000 W"
link_bandwidth = "900 GB/s"
"""


@pytest.fixture
def write(tmp_path):
    def made(text, name="ten.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return made


def test_ten_lines_make_a_chip(write):
    path = write(TEN)
    chip = st.chip(path)
    assert chip.name == chip.title == "ten"
    assert chip.compute.matrix_rate["bf16"] == 1.8e15
    assert chip.compute.matrix_rate["fp8"] == 3.6e15
    assert chip.memory.bandwidth == 8e12
    assert chip.energy.power_limit == 1000
    assert chip.aliases == chip.note == ""
    where = st.system(f"8x{path}")
    assert where.fabric.dimension[0].bandwidth == 900e9
    got = st.evaluate(where, "llama-3-8b", st.decode(batch=8, context=512), "tp=8")
    assert float(got.metrics.tokens_per_s) > float(
        st.evaluate("8xh200", "llama-3-8b", st.decode(batch=8, context=512), "tp=8").metrics.tokens_per_s
    )


def test_what_is_not_stated_says_whom_it_is_from(write):
    sources = st.chip(write(TEN)).sources
    assert sources["memory.bandwidth"].mark == "own"
    assert (sources["compute.cores"].mark, sources["compute.cores"].inherited_from) == ("inherited", "h200")
    assert sources["cache.efficiency"].mark_there == "fitted"
    assert sources["compute.matrix_efficiency.fp4"].mark == "assumed"  # h200 has no such format
    assert sources["silicon.spare_cores"].inherited_from == "h200"
    again = st.chip(
        write(f'like = "{write(TEN)}"\nsource = "our own drawing"\npower = "900 W"\n', "next.toml")
    )
    assert again.name == "next"
    assert again.sources["memory.bandwidth"].inherited_from == "ten"
    assert again.sources["compute.cores"].inherited_from == "h200"


def test_the_same_with_dotted_keys_and_tables(write):
    dotted = TEN.replace("memory_bandwidth", "memory.bandwidth").replace(
        "bf16 =", "compute.matrix_rate.bf16 ="
    )
    assert st.chip(write(dotted)).memory.bandwidth == 8e12
    table = (
        TEN.replace("memory_bandwidth", "# ").replace("memory_capacity", "# ")
        + '[memory]\nbandwidth = "8 TB/s"\n'
    )
    assert st.chip(write(table)).memory.bandwidth == 8e12


def test_a_format_that_does_not_hold_is_taken_away(write):
    assert "int8" not in st.chip(write(TEN + 'int8 = "none"\n')).compute.matrix_rate


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('like = "h200"\nbf16 = "1 PFLOP/s"\n', r"bf16 = '1 PFLOP/s' has no source"),
        ('like = "h200"\nsource = "a brief of 2026"\nmemory_bandwidth = 8\n', "write the unit"),
        ('like = "h200"\nbase = "h100"\n', "say the same"),
        ('like = "h20o"\n', "no chip called 'h20o'"),
        ("like = 3\n", "base is the name of a chip"),
        ('like = "h200"\nsource = "a brief of 2026"\nmemory_bandwith = "8 TB/s"\n', "nearest"),
        ('like = "h200"\nsource = "a brief of 2026"\nmemory_bandwidth = true\n', "memory.bandwidth"),
        ('like = "h200"\nsource = "a brief of 2026"\nfp8 = []\n', "fp8"),
    ],
)
def test_wrong_lines_are_one_line(write, text, said):
    with pytest.raises(StrataError, match=said) as error:
        st.chip(write(text))
    assert "\n" not in str(error.value)


def test_all_that_is_missing_is_named(write):
    few = 'name = "few"\nkind = "gpu"\nfabric = "hgx-h200"\nsource = "a brief of 2026"\nbf16 = "1 PFLOP/s"\n'
    with pytest.raises(StrataError) as error:
        st.chip(write(few))
    said = str(error.value)
    for path in ("title", "compute.clock", "compute.cores", "memory.bandwidth", "memory.capacity", "energy.memory",
                 "cache.bandwidth", "package.die_area", "overhead.launch"):  # fmt: skip
        assert f"'{path}'" in said
    assert 'like = "h200"' in said
    # what is stated, and what is assumed of every chip of the kind, is not missing
    assert "compute.matrix_rate" not in said
    assert "paged" not in said
