"""Transports fitted to logs, and the files written with them."""

from functools import partial

import pytest
from collective_logs import POWERS, made_log

import strata as st
from strata.base.errors import BadFile, BadValue
from strata.hardware.transport import transport
from strata.measure import logged
from strata.measure.logged import calibrate_logs, write_fit
from strata.measure.nccl_logs import ToldRun, log_runs
from strata.params import override, value_at
from strata.pricing.network import collective
from strata.validation import validate
from strata.validation.readers.labels import Catalogue

# A node whose software starts slower and whose switches add slower than the shipped ones.
TRUTH = {"rings.start.in_switch": 1.5, "rings.share.in_switch": 0.7, "rings.start.flagged": 1.4}


def priced(changes, op, size):
    """Microseconds of a collective of eight H100 with another transport."""
    shipped = transport("nvlink4")
    values = {path: float(value_at(shipped, path)) * factor for path, factor in changes.items()}
    changed = Catalogue().with_transport(override(shipped, values, "transport")[0])
    return microseconds(changed.system("8xh100"), op, size)


def microseconds(on, op, size):
    return float(collective(on, op, bytes=float(size), ranks=8, engine="pytorch").time) * 1e6


@pytest.fixture(scope="module")
def fit():
    return calibrate_logs(
        log_runs(made_log(time=partial(priced, TRUTH, "all_reduce")), "mine.log"), date="2026-11-16"
    )


def test_a_fit_finds_the_node_behind_a_log(fit):
    ((found, (outcome,)),) = fit.fitted
    assert fit.files == {"ops/nccl.csv": 28} and not fit.notes and found.name == "nvlink4"
    assert outcome.before > 0.05 and outcome.after < 0.02 and outcome.held_out == 9
    shipped = transport("nvlink4")
    # what an all-reduce does not tell stays as it is, and nothing runs away
    assert not [
        path for path in outcome.values if path.startswith(("pairs", "direct", "rings.share.all_gather"))
    ]
    for path, value in outcome.values.items():
        assert 1 / 3.01 < value / float(value_at(shipped, path)) < 3.01, path


def test_files_of_a_fit_are_priced_with_and_validated(fit, tmp_path):
    made = {path.name for path in write_fit(fit, tmp_path)}
    assert made == {"nccl.csv", "nvlink4.toml", "hgx-h100.toml"}
    joined = st.system("8xh100", str(tmp_path / "hgx-h100.toml"))
    for size in (1 << 12, 1 << 20, 1 << 28):
        ours = microseconds(joined, "all_reduce", size)
        assert ours == pytest.approx(priced(TRUTH, "all_reduce", size), rel=0.03), size
    (file,) = validate(tmp_path, only=["ops/nccl.csv"])["files"]
    assert (file["points"], file["failed"]) == (28, 0)
    write_fit(fit, tmp_path)  # the same again
    with (tmp_path / "ops" / "nccl.csv").open("a") as rows:
        rows.write("h100,,all_reduce,float,8,1,4,1\n")
    with pytest.raises(BadFile, match="is there already, with other rows"):
        write_fit(fit, tmp_path)


def test_what_does_not_get_better_is_kept():
    same = calibrate_logs(log_runs(made_log(time=partial(priced, {}, "all_reduce")), "mine.log"))
    ((_, (outcome,)),) = same.fitted
    assert outcome.after <= outcome.before < 0.01
    assert outcome.values == {} or outcome.after < outcome.before


def test_few_rows_and_unknown_chips_are_said():
    few = calibrate_logs(log_runs(made_log(sizes=POWERS[10:20]), "mine.log"))
    assert few.fitted == () and few.notes == (
        "ops/nccl.csv: 10 rows are too few to fit; 18 are needed, a third of them held out",
    )
    with pytest.raises(
        BadValue, match=r"mine\.log: no shipped chip is called 'nvidia-h20': give the one it is"
    ):
        calibrate_logs(log_runs(made_log(gpu="NVIDIA H20"), "mine.log"))


def test_rows_between_nodes_are_fitted_or_said_to_wait():
    told = ToldRun(fabric="infiniband", links="8x400G")
    runs = log_runs(made_log(hosts=("a", "b"), time=lambda size: 40.0 + size / 200e3), "two.log", told)
    both = calibrate_logs(runs)
    assert both.files == {"network/multinode.csv": 28}
    assert both.fitted or len(both.notes) == 1


def test_runs_of_one_node_and_of_several_are_two_files(monkeypatch):
    monkeypatch.setattr(logged, "names", lambda kind: [])  # what is fitted does not matter here
    one = log_runs(made_log(), "one.log")
    two = log_runs(made_log(hosts=("a", "b")), "two.log", ToldRun(fabric="efa"))
    assert calibrate_logs([*one, *two]).files == {"ops/nccl.csv": 28, "network/multinode.csv": 28}
