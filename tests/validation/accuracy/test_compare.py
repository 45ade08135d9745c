"""Error statistics on numbers worked by hand."""

import numpy as np
import pytest

from strata.validation import validate
from strata.validation.accuracy.compare import file_entry, rank_correlation, statistics
from strata.validation.readers.comparison import ComparedPoints, Forecast, fastest_rows, forecast
from strata.validation.readers.tables import Table

KEYS = {"points", "failed", "mape", "median", "p90", "worst", "bias", "weighted"} | {"within_15", "within_30"}


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


def test_ranks_correlate_and_share_ties():
    rising = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(rising, rising**3) == pytest.approx(1.0)
    assert rank_correlation(rising, -rising) == pytest.approx(-1.0)
    assert rank_correlation(rising[:2], rising[:2]) is None
    assert rank_correlation(rising, np.ones(4)) is None
    # ranks 1.5, 0, 1.5, 3 against 0, 1, 2, 3, by hand
    assert rank_correlation(np.array([5.0, 1.0, 5.0, 9.0]), rising) == pytest.approx(0.632456, abs=1e-6)


def table(**columns):
    count = len(next(iter(columns.values())))
    made = {k: np.array([str(x) for x in v], dtype=object) for k, v in columns.items()}
    return Table("x.csv", None, made, np.arange(2, 2 + count))


def test_an_empty_cell_is_no_point_and_a_failed_row_is_named(tmp_path):
    (tmp_path / "h200").mkdir()
    cells = ("512,1e-5", "512,", ",1e-5", "1024,0", "2048,1e-5")
    rows = [f"a,bf16,{m},512,512,{time},1,1" for m, time in (cell.split(",") for cell in cells)]
    text = "\n".join(["name,dtype,m,n,k,median_s,min_s,max_s", *rows]) + "\n"
    (tmp_path / "h200/gemm.csv").write_text(text, encoding="utf-8")
    (said,) = validate(tmp_path, keep_points=True)["files"]
    assert (said["points"], said["failed"]) == (3, 1)
    assert said["failures"] == [
        {"row": 4, "why": "gemm needs m, n, k, but m is missing"},
        {"row": 5, "why": "what was measured must be positive, but got 0"},
    ]


def test_one_impossible_row_does_not_take_its_neighbours_along():
    from strata.base.errors import BadValue

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
    found = ComparedPoints(
        measured=ones,
        predicted=np.array([1.1, 0.9, 5.0]),
        group=np.array(["a", "a", "b"], dtype=object),
        line=np.arange(3),
        headline=head,
        rate=head,
        case=head.astype(object),
        why={},
    )
    said = file_entry("x.csv", found)
    assert (
        said["points"] == 2
        and said["mape"] == pytest.approx(0.1)
        and said["groups"]["b"]["mape"] == pytest.approx(4.0)
    )


def test_the_fastest_backend_counts():
    t = table(m=[1, 1, 2], backend=["a", "b", "a"], time=[3, 2, 7])
    assert t.keep(fastest_rows(t, ("m",), t.number("time"))).lines.tolist() == [3, 4]


def test_forecast_keeps_metrics_apart():
    made = Forecast(np.array([[1.0], [2.0]]))
    assert made[1].tolist() == [2.0]
