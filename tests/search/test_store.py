"""Studies on disk: whole files only, resumed without loss or repeats, never mixed with another study."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from strata.base.errors import BadFile, BadValue, StrataError
from strata.search.executors import PointsWork
from strata.search.points import evaluate_points
from strata.search.run import Search, search
from strata.search.samplers import PointSampler
from strata.search.space import space
from strata.search.store import Store, axis_columns, fingerprint, write_atomically

NODE = space("next-node")
HERE = Path(__file__).parent


def study(out, on=NODE, resume=False, **changes):
    told = {
        "goal": "tokens_per_s",
        "limits": ["tpot <= 20 ms"],
        "sampler": "random",
        "budget": 4000,
        "seed": 2,
        "out": out,
        "resume": resume,
    } | changes
    return Search(on, **told)


def run(looking, rounds=None):
    """Some rounds of a search, or all."""
    going = looking.rounds()
    for number, _ in enumerate(going, 1):
        if number == rounds:
            break
    going.close()
    return looking.outcome()


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def same_rows(left, right):
    mine, other = left.evaluated(), right.evaluated()
    np.testing.assert_array_equal(mine.digits, other.digits)
    np.testing.assert_array_equal(mine.reason, other.reason)
    for name, values in mine.columns.items():
        np.testing.assert_array_equal(values, other.columns[name], err_msg=name)
    np.testing.assert_array_equal(left.frontier.digits, right.frontier.digits)
    assert left.counts == right.counts and left.rows == right.rows and left.rounds == right.rounds


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that nobody disturbed."""
    return run(study(tmp_path_factory.mktemp("whole") / "out"))


# ------------------------------------------------------------------------------------------------ what is
# kept


def test_a_part_holds_points_as_they_were_evaluated(tmp_path):
    store = Store(tmp_path / "out")
    store.begin({"space": {"name": NODE.name, "hash": NODE.hash}}, resume=False)
    points = evaluate_points(NODE, NODE.random(np.random.default_rng(0), 50))
    store.write(7, NODE, points)
    again = store.read(7, NODE)
    np.testing.assert_array_equal(again.digits, points.digits)
    np.testing.assert_array_equal(again.reason, points.reason)
    assert list(again.columns) == list(points.columns) and any(np.isinf(points.columns["step_time"]))
    for name, values in points.columns.items():
        np.testing.assert_array_equal(values, again.columns[name], err_msg=name)


def test_duckdb_reads_a_study_as_a_table(whole):
    duckdb = pytest.importorskip("duckdb")
    parts = f"read_parquet('{whole.out}/parts/*.parquet')"
    rows, points = duckdb.sql(f'select count(*), count(distinct "index") from {parts}').fetchall()[0]
    assert rows == points == whole.rows == 4000
    best = "max(tokens_per_s), arg_max(plan, tokens_per_s)"
    found = duckdb.sql(f"select {best} from {parts} where reason = 0 and tpot <= 0.02").fetchall()[0]
    assert found == (whole.best["metrics"]["tokens_per_s"], whole.best["design"]["plan"])
    out = duckdb.sql(f"select count(*) from {parts} where reason != 0 or tpot > 0.02").fetchall()[0][0]
    assert out == sum(whole.counts.values()) > 0
    batch, power = duckdb.sql(f"select max(batch), max(power_cap) from {parts}").fetchall()[0]
    assert (batch, power) == (512.0, 700.0)


def test_an_axis_called_like_a_metric_has_a_column_of_its_own():
    stacks = space(str(HERE / "small.toml"))
    assert axis_columns(stacks)["layers"] == "layers"
    renamed = type("S", (), {"axes": [type("A", (), {"name": "power"})()]})
    assert axis_columns(renamed) == {"power": "axis_power"}
    several = type("S", (), {"axes": [type("A", (), {"name": n})() for n in ("axis_tpot", "tpot", "index")]})
    assert axis_columns(several) == {
        "axis_tpot": "axis_tpot",
        "tpot": "axis_axis_tpot",
        "index": "axis_index",
    }


def test_the_manifest_has_all_that_makes_the_study(whole):
    manifest = json.loads((whole.out / "manifest.json").read_text())
    assert (
        manifest["space"]["hash"] == NODE.hash and manifest["seed"] == 2 and manifest["sampler"] == "random"
    )
    assert manifest["goal"] == {"metrics": ["tokens_per_s"], "limits": ["tpot <= 0.02 s"]}
    assert set(manifest["files"]) == {"model", "system", "engine"}


def test_a_fingerprint_tells_numbers_apart_and_not_their_sources():
    import strata as st

    usual, other = st.system("8xh200"), st.system("8xh200", memory__bandwidth="4.9 TB/s")
    assert fingerprint(usual) == fingerprint(st.system("8xh200")) != fingerprint(other)


def test_without_a_folder_a_study_has_the_same_rows(whole):
    same_rows(whole, run(study(None)))


# ------------------------------------------------------------------------------------------------ taking up
# again


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_stopped_study_goes_on_where_it_was(tmp_path, whole, rounds):
    stopped = run(study(tmp_path / "out"), rounds)
    assert stopped.ended == "stopped" and stopped.rounds == rounds
    parts = content(tmp_path / "out" / "parts")
    again = run(study(tmp_path / "out", resume=True))
    assert again.ended == "finished"
    same_rows(whole, again)
    now = content(tmp_path / "out" / "parts")
    assert {k: now[k] for k in parts} == parts
    before = content(tmp_path / "out")
    same_rows(whole, run(study(tmp_path / "out", resume=True)))  # a finished one has nothing left to do
    assert content(tmp_path / "out") == before


def test_leftovers_of_a_killed_write_are_removed(tmp_path, whole):
    run(study(tmp_path / "out"), 2)
    for name in ("manifest.json.partial", "parts/00002.parquet.partial", "state/00001.npz.partial"):
        (tmp_path / "out" / name).write_bytes(b"half")
    same_rows(whole, run(study(tmp_path / "out", resume=True)))
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_a_kill_before_the_manifest_leaves_nothing_in_the_way(tmp_path, whole):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json.partial").write_bytes(b"half")
    same_rows(whole, run(study(tmp_path / "out", resume=True)))


def test_a_round_that_is_gone_is_done_again_with_all_after_it(tmp_path, whole):
    run(study(tmp_path / "out"))
    Store(tmp_path / "out").part(1).unlink()
    same_rows(whole, run(study(tmp_path / "out", resume=True)))


def test_a_part_that_cannot_be_read_is_named_and_done_again(tmp_path, whole):
    looking = study(tmp_path / "out")
    run(looking, 2)
    Store(tmp_path / "out").part(1).write_bytes(b"PAR1 and no more")
    with pytest.raises(BadFile, match=r"00001\.parquet cannot be read .*resume the study"):
        Store(tmp_path / "out").read(1, NODE)
    again = study(tmp_path / "out", resume=True)
    same_rows(run(again), whole)
    assert again.notes == ["rounds from 1 on were not whole and are done again"]


SMALL = space(str(HERE / "small.toml"))
KEPT = {"goal": "tokens_per_s", "limits": (), "budget": None}  # an exact search of the small space


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proved") / "out"
    looking = study(folder, SMALL, sampler="exact", **KEPT)
    looking.checkpoint = 0.0  # a state after every round
    return run(looking)


def _broken(path, how):
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "flipped":
        path.write_bytes(
            whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 255]) + whole[len(whole) // 2 + 1 :]
        )
    else:
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"PK and no more"}[how])


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "other", "flipped"])
@pytest.mark.parametrize("what", ["first part", "last part", "last state", "every state"])
def test_exact_finds_the_same_optimum_whatever_is_lost(tmp_path, proved, how, what):
    folder = shutil.copytree(proved.out, tmp_path / "out")
    parts, states = sorted((folder / "parts").iterdir()), sorted((folder / "state").iterdir())
    lost = {
        "first part": parts[:1],
        "last part": parts[-1:],
        "last state": states[-1:],
        "every state": states,
    }
    for path in lost[what]:
        _broken(path, how)
    again = run(study(folder, SMALL, sampler="exact", resume=True, **KEPT))
    assert again.best == proved.best and again.bound == proved.bound
    assert len(np.unique(SMALL.index(again.evaluated().digits))) == again.rows == proved.rows


def test_a_folder_left_by_a_failed_start_blocks_nothing(tmp_path):
    folder = tmp_path / "out"
    for place in ("parts", "state"):
        (folder / place).mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "manifest.json.partial").write_bytes(b"{")
    (folder / "manifest.json").write_bytes(b"")
    assert run(study(folder), 1).rows > 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(BadValue, match="is not empty and has no study"):
        run(study(tmp_path / "other"))


def test_a_manifest_of_something_else_is_one_line(tmp_path):
    run(study(tmp_path / "out"), 1)
    for text in ("[]", "{", "7", '{"space": 3}', '{"files": []}', '"x"', "null", "[" * 100_000):
        (tmp_path / "out" / "manifest.json").write_text(text)
        with pytest.raises(StrataError, match=r"manifest"):
            run(study(tmp_path / "out", resume=True))


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("strata.search.store.os.fsync", full)
    with pytest.raises(BadFile, match=r"manifest\.json cannot be written: No space left on device"):
        run(study(tmp_path / "out"))
    monkeypatch.undo()
    assert run(study(tmp_path / "out"), 1).rows > 0


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    write_atomically(tmp_path / "a", lambda f: f.write(b"old"))

    def failing(file):
        file.write(b"ne")
        raise OSError("disk full")

    with pytest.raises(BadFile, match="a cannot be written: disk full"):
        write_atomically(tmp_path / "a", failing)
    assert not list(tmp_path.glob("*.partial"))
    assert (tmp_path / "a").read_bytes() == b"old"


# ------------------------------------------------------------------------------------------------ samplers
# with a state


class Counting(PointSampler):
    """Points in order, with a state: how far it is. It forgets on purpose what it was told before."""

    restored = 0
    size = 125

    def propose(self):
        return self.space.digits(np.arange(self.asked, min(self.asked + self.size, self.budget)))

    def save(self):
        return {"asked": np.array(self.asked)}

    def restore(self, state):
        self.asked, self.restored = int(state["asked"]), int(state["asked"])


def counting(out, resume=False):
    looking = study(out, resume=resume)
    looking.sampler = Counting(NODE, looking.goal, budget=1000)
    looking.checkpoint = 0.0
    return looking


def test_a_state_is_taken_up_and_rounds_after_it_are_done_again(tmp_path):
    undisturbed = run(counting(tmp_path / "whole"))
    run(counting(tmp_path / "out"), 5)
    store = Store(tmp_path / "out")
    assert [p.name for p in sorted((store.folder / "state").iterdir())] == ["00003.npz", "00004.npz"]
    (store.folder / "state" / "00004.npz").unlink()  # killed between part and state
    looking = counting(tmp_path / "out", resume=True)
    same_rows(undisturbed, run(looking))
    assert looking.sampler.restored == 500
    last = counting(tmp_path / "out", resume=True)
    same_rows(undisturbed, run(last))
    assert last.sampler.restored == 1000


def test_without_any_state_such_a_study_starts_again(tmp_path):
    undisturbed = run(counting(tmp_path / "whole"))
    run(counting(tmp_path / "out"), 3)
    for path in (tmp_path / "out" / "state").iterdir():
        path.unlink()
    same_rows(undisturbed, run(counting(tmp_path / "out", resume=True)))


def test_a_replay_that_asks_for_other_points_is_refused(tmp_path):
    run(study(tmp_path / "out"), 3)
    before = content(tmp_path / "out")
    looking = study(tmp_path / "out", resume=True)
    looking.sampler.ask = lambda: [PointsWork(NODE.digits(np.arange(10)))]
    with pytest.raises(StrataError, match="round 0 of the study holds other points"):
        run(looking)
    assert content(tmp_path / "out") == before


# ------------------------------------------------------------------------------------------------ other
# studies


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 3}, "seed was 2, now 3"),
        ({"budget": 5000}, "budget was 4000, now 5000"),
        ({"limits": ["tpot <= 25 ms"]}, r'goal was .*0\.02 s.*, now .*0\.025 s'),
        ({"sampler": "hierarchical"}, 'sampler was "random", now "hierarchical"'),
        ({"on": space("next-node", batch=[8, 16])}, f"space was next-node {NODE.hash}, now next-node "),
    ],
)  # fmt: skip
def test_a_changed_study_is_refused_and_nothing_is_overwritten(tmp_path, change, said):
    run(study(tmp_path / "out"), 1)
    before = content(tmp_path / "out")
    with pytest.raises(BadValue, match=f"was started with something else, nothing was changed: .*{said}"):
        run(study(tmp_path / "out", resume=True, **change))
    assert content(tmp_path / "out") == before


def test_a_changed_model_file_is_refused(tmp_path):
    run(study(tmp_path / "out"), 1)
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["system"] = "0123456789ab"
    path.write_text(json.dumps(manifest))
    with pytest.raises(BadValue, match="hash of system was 0123456789ab, now "):
        run(study(tmp_path / "out", resume=True))


def test_a_study_that_is_there_is_not_begun_anew(tmp_path):
    run(study(tmp_path / "out"), 1)
    with pytest.raises(BadValue, match="has this study already; go on with it by --resume"):
        run(study(tmp_path / "out"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(BadValue, match="is not empty and has no study"):
        run(study(tmp_path / "mine"))
    with pytest.raises(BadValue, match="say where it is"):
        study(None, resume=True)
    with pytest.raises(BadFile, match="no study in"):
        Store(tmp_path / "nowhere").manifest  # noqa: B018


def test_two_searches_do_not_write_to_one_folder(tmp_path):
    going = study(tmp_path / "out").rounds()
    next(going)
    with pytest.raises(BadValue, match="another search is writing"):
        run(study(tmp_path / "out", resume=True))
    going.close()
    assert run(study(tmp_path / "out", resume=True)).ended == "finished"


# ------------------------------------------------------------------------------------------------ kills


def test_killed_at_random_moments_a_study_ends_with_the_same_rows():
    said = subprocess.run(
        [sys.executable, str(HERE / "kills.py"), "6", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("random: 6 kills in ") and "same rows and frontier" in said.stdout


def test_the_frontier_of_two_metrics_is_that_of_all_rows_at_once():
    found = search(NODE, "tokens_per_s, tpot, energy_per_token", sampler="random", budget=5000)
    rows = found.evaluated()
    mask = found.goal.frontier(rows)
    assert len(found.frontier) == mask.sum() > 3
    assert set(map(tuple, found.frontier.digits.tolist())) == set(map(tuple, rows.digits[mask].tolist()))
    rates = found.frontier.columns["tokens_per_s"]
    assert (np.diff(rates) <= 0).all() and np.isnan(found.gap)


def test_points_that_are_out_are_counted_by_each_reason():
    found = search(NODE, "tokens_per_s", limits=["tpot <= 20 ms"], sampler="random", budget=3000)
    rows = found.evaluated()
    memory = "what a device holds must fit its memory"
    assert found.reasons[memory] == ((rows.reason & 1 == 1).sum(), (rows.reason == 1).sum())
    assert (
        found.reasons["tpot above 20 ms"] == (((rows.reason == 0) & (rows.columns["tpot"] > 0.02)).sum(),) * 2
    )
    assert sum(found.counts.values()) == ((rows.reason != 0) | (rows.columns["tpot"] > 0.02)).sum()
