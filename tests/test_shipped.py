"""What a wheel carries beside the package, and packages that are not there."""

import sys
import tomllib
from pathlib import Path

import pytest

import strata as st
from strata import shipped, studies
from strata.errors import StrataError

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKED = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]


def test_a_wheel_carries_every_measurement_and_study_and_no_simulator():
    assert PACKED["studies"] == "strata/packed/studies"
    for path in (ROOT / "validation").iterdir():
        if path.name != "ns3":
            assert PACKED[f"validation/{path.name}"] == f"strata/packed/validation/{path.name}"
    there = {p.name for p in (ROOT / "validation" / "ns3").glob("*.csv")}
    assert {Path(k).name for k in PACKED if k.startswith("validation/ns3/")} == there


def test_core_needs_no_large_package():
    # pyarrow and ortools (with pandas) were 340 MB of 590
    core = {d.split(">")[0] for d in PROJECT["project"]["dependencies"]}
    assert core == {"numpy", "pydantic", "typer", "rich", "array-api-compat", "scipy", "tomlkit", "simpy"}


def test_installed_folders_are_found_and_not_written(monkeypatch, tmp_path):
    packed = tmp_path / "packed"
    folder = packed / "studies" / "deepstack-layers"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(
        (ROOT / "studies" / "deepstack-layers" / "study.toml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    monkeypatch.setattr(shipped, "PACKED", packed)
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "lib" / "strata" / "shipped.py"))
    monkeypatch.chdir(tmp_path)
    assert studies.study_names() == ["deepstack-layers"]
    outcome = studies.StudyOutcome(study=studies.study("deepstack-layers"), claims=[], runs={})
    with pytest.raises(StrataError, match="read only: copy its folder"):
        studies.store_result(outcome)
    with pytest.raises(StrataError, match="no folder of validation"):
        shipped.shipped_folder("validation")


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    r = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=8, context=2048), "tp=8")
    with pytest.raises(StrataError, match=r"needs pyarrow: pip install 'strata\[search\]'"):
        r.to_table()
