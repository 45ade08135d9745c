"""Units: what is printed can be read again, and a wrong unit says what is right."""

import cases  # noqa: F401  (the hypothesis profile)
import pytest
from hypothesis import given
from hypothesis import strategies as hy

from strata.base.errors import BadUnit
from strata.base.units import factor, parse, show

UNITS = ["B", "B/s", "FLOP/s", "s", "Hz", "W", "J/B", "J/FLOP", "m", "V", "1"]
NUMBERS = hy.floats(min_value=1e-12, max_value=1e17)


@given(NUMBERS, hy.sampled_from(UNITS))
def test_what_is_shown_can_be_parsed_again(value, unit):
    value = max(value, 1e-3) if unit == "1" else value
    digits = 9
    text = show(value, unit, digits).replace(",", "")
    assert parse(text if unit != "1" else float(text), unit) == pytest.approx(
        value, rel=1e-3 if unit == "1" else 1e-8
    )


@given(NUMBERS)
def test_areas_dollars_and_temperatures_round_trip(value):
    assert parse(show(value, "m2", 9), "m2") == pytest.approx(value, rel=1e-8)
    dollars = max(value, 1e-3)
    assert parse(show(dollars, "USD", 9).replace(",", ""), "USD") == pytest.approx(dollars, rel=1e-3)
    kelvin = 200 + value % 300
    assert parse(show(kelvin, "K", 9), "K") == pytest.approx(kelvin, rel=1e-7)


@given(
    hy.floats(min_value=1e-3, max_value=1e3),
    hy.sampled_from(
        [("T", "G"), ("G", "M"), ("M", "k"), ("k", ""), ("", "m"), ("m", "u"), ("u", "n"), ("n", "p")]
    ),
)
def test_a_thousand_of_the_smaller_prefix_is_one_of_the_larger(value, prefixes):
    large, small = prefixes
    assert parse(f"{value!r} {large}B/s", "B/s") == pytest.approx(
        parse(f"{value * 1000!r} {small}B/s", "B/s"), rel=1e-12
    )


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("4.8 TB/s", "B/s", 4.8e12),
        ("4.8TB/s", "B/s", 4.8e12),
        ("400 Gbit/s", "B/s", 50e9),
        ("80 GB", "B", 80e9),
        ("80 GiB", "B", 80 * 2**30),
        ("40ms", "s", 0.04),
        ("1.5e3 us", "s", 1.5e-3),
        ("2 µs", "s", 2e-6),
        ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
        ("120 TOP/s", "FLOP/s", 120e12),
        ("7 pJ/bit", "J/B", 56e-12),
        ("814 mm2", "m2", 814e-6),
        ("0.08 USD/kWh", "USD/J", 0.08 / 3.6e6),
        ("0.08 $/kWh", "USD/J", 0.08 / 3.6e6),
        ("4 year", "s", 4 * 31557600.0),
        ("2 h", "s", 7200.0),
        ("85 degC", "K", 358.15),
        ("85 °C", "K", 358.15),
        ("300 K", "K", 300.0),
        ("25 %", "1", 0.25),
        ("1.83 GHz", "Hz", 1.83e9),
        ("700 W", "J/s", 700.0),
        (132, "1", 132.0),
    ],
)
def test_known_quantities(text, unit, value):
    assert parse(text, unit) == pytest.approx(value, rel=1e-12)


def test_hertz_is_one_over_a_second_and_a_watt_a_joule_a_second():
    assert factor("Hz") == factor("1/s")
    assert factor("W") == factor("J/s")


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        ("4.8 TB", "B/s", "x is measured in B/s, but got '4.8 TB'"),
        ("4.8", "B/s", "without a unit"),
        (4.8, "B/s", "needs its unit written out"),
        ("fast", "B/s", "is a number with a unit"),
        ("3 parsec", "m", "unknown unit 'parsec'"),
        ("3 s", "1", "x is a plain number"),
        (True, "1", "is a number, but got True"),
        ("", "s", "is a number with a unit"),
    ],
)
def test_a_wrong_unit_is_said_in_one_line(text, unit, said):
    with pytest.raises(BadUnit) as error:
        parse(text, unit, "x")
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9996, "s", "1 s"),
        (999.6, "s", "1 ks"),
        (0.0, "B", "0 B"),
        (float("inf"), "s", "inf"),
        (12345.6, "1", "12,346"),
        (2e21, "B", "2e+03 EB"),
    ],
)
def test_printing_at_the_edges(value, unit, text):
    assert show(value, unit) == text
