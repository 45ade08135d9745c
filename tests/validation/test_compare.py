"""Error statistics on numbers worked by hand."""

import numpy as np
import pytest

from strata.validation.compare import entry, ranks, spearman, statistics
from strata.validation.datasets import Forecast, Points, Table, fastest, forecast, labels, points

KEYS = {"points", "failed", "mape", "median", "p90", "worst", "bias", "weighted"}


def test_statistics_by_hand():
    # errors: +10 %, -20 %, +50 %, 0
    s = statistics(np.array([10.0, 10.0, 2.0, 5.0]), np.array([11.0, 8.0, 3.0, 5.0]))
    assert set(s) == KEYS
    assert (s["points"], s["failed"]) == (4, 0)
    assert s["mape"] == pytest.approx(0.2)
    assert s["median"] == pytest.approx(0.15)
    assert s["p90"] == pytest.approx(0.2 + 0.7 * 0.3)  # between the third and fourth of four
    assert s["worst"] == pytest.approx(0.5)
    assert s["bias"] == pytest.approx(0.1)
    assert s["weighted"] == pytest.approx((1 + 2 + 1 + 0) / 27)


def test_a_failed_point_is_an_error_of_one():
    s = statistics(np.array([2.0, 4.0]), np.array([2.0, 0.0]))
    assert (s["failed"], s["mape"], s["worst"], s["bias"]) == (1, 0.5, 1.0, -0.5)
    assert s["weighted"] == pytest.approx(4 / 6)


def test_no_points_gives_no_numbers():
    s = statistics(np.array([]), np.array([]))
    assert s["points"] == 0 and all(s[k] is None for k in KEYS - {"points", "failed"})


def test_ranks_share_ties_and_correlate():
    assert ranks(np.array([5.0, 1.0, 5.0, 9.0])).tolist() == [1.5, 0.0, 1.5, 3.0]
    rising = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(rising, rising**3) == pytest.approx(1.0)
    assert spearman(rising, -rising) == pytest.approx(-1.0)
    assert spearman(rising[:2], rising[:2]) is None
    assert spearman(rising, np.ones(4)) is None


def test_spearman_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, 9, 40).astype(float), generator.normal(size=40)
    assert spearman(a, b) == pytest.approx(float(stats.spearmanr(a, b).statistic))


def table(**columns):
    count = len(next(iter(columns.values())))
    made = {k: np.array([str(x) for x in v], dtype=object) for k, v in columns.items()}
    return Table("x.csv", None, made, np.arange(2, 2 + count))


def test_an_empty_cell_is_no_point_and_a_failed_row_is_named():
    t = table(size=[1, 2, "", 4], time=[1, "", 3, 4])
    made = forecast(t, [], lambda key, rows: t.number("size")[rows], ("size",))
    found = points(t, t.number("time"), made, labels("all", count=4))
    assert found.line.tolist() == [2, 4, 5]
    assert found.predicted.tolist() == [1.0, 0.0, 4.0]
    assert found.why == {4: "column 'size' is empty"}
    said = entry("x.csv", found)
    assert said["failed"] == 1 and said["failures"] == [{"row": 4, "why": "column 'size' is empty"}]


def test_one_impossible_row_does_not_take_its_neighbours_along():
    from strata.errors import BadValue

    t = table(size=[1, -1, 3])

    def price(key, rows):
        if np.any(t.number("size")[rows] < 0):
            raise BadValue("size must be positive")
        return t.number("size")[rows]

    made = forecast(t, [], price)
    assert np.isnan(made[0]).tolist() == [False, True, False] and made.why == {1: "size must be positive"}


def test_the_headline_leaves_other_metrics_out():
    ones = np.ones(3)
    head = np.array([True, True, False])
    found = Points(
        ones,
        np.array([1.1, 0.9, 5.0]),
        np.array(["a", "a", "b"], dtype=object),
        np.arange(3),
        head,
        head,
        head.astype(object),
        {},
    )
    said = entry("x.csv", found)
    assert (
        said["points"] == 2
        and said["mape"] == pytest.approx(0.1)
        and said["groups"]["b"]["mape"] == pytest.approx(4.0)
    )


def test_the_fastest_backend_counts():
    t = table(m=[1, 1, 2], backend=["a", "b", "a"], time=[3, 2, 7])
    assert fastest(t, ("m",), "time").lines.tolist() == [3, 4]


def test_forecast_keeps_metrics_apart():
    made = Forecast(np.array([[1.0], [2.0]]))
    assert made[1].tolist() == [2.0]
