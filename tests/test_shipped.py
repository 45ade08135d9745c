"""What a wheel carries beside the package, and packages that are not there."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import strata as st
from strata import studies
from strata.base import shipped
from strata.base.errors import StrataError

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
    shutil.copy(ROOT / "studies" / "deepstack-layers" / "study.toml", folder)
    monkeypatch.setattr(shipped, "PACKED", packed)
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "lib" / "strata" / "base" / "shipped.py"))
    monkeypatch.chdir(tmp_path)
    assert studies.study_names() == ["deepstack-layers"]
    outcome = studies.StudyOutcome(study=studies.study("deepstack-layers"), claims=[], runs={})
    with pytest.raises(StrataError, match="read only: copy its folder"):
        studies.store_result(outcome)
    with pytest.raises(StrataError, match="no folder of validation"):
        shipped.shipped_folder("validation")


def test_papers_are_packages_of_the_packed_studies_too(tmp_path):
    """As from a wheel: the package and its packed studies alone, in another process and folder."""
    (tmp_path / "strata").symlink_to(ROOT / "strata", target_is_directory=True)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "studies").symlink_to(ROOT / "studies", target_is_directory=True)
    code = (
        "from pathlib import Path; from strata import studies; from strata.base import shipped;"
        f"shipped.PACKED, shipped.__file__ = Path('{tmp_path}/packed'), '{tmp_path}/lib/strata/base/shipped.py';"
        "assert studies.studies_folder() == shipped.PACKED / 'studies';"
        "print(all(c['holds'] for c in studies.run_study('deepflow-intensity').claims[:1]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout.split() == ["True"], run.stderr


def test_a_study_brings_runs_of_its_own(tmp_path):
    folder = tmp_path / "twice-as-much"
    folder.mkdir()
    (folder / "study.toml").write_text(
        'title = "t"\npaper = "p"\n[[run]]\nname = "a"\ndoubled = 3\n'
        '[[claim]]\nid = "c"\nsays = "s"\nours = "a.whole"\nholds = "ours == 6"\n'
    )
    with pytest.raises(StrataError, match="must have a model and a system"):
        studies.run_study(folder)
    (folder / "__init__.py").write_text('OFFERS = {"study runs": {"doubled": "runs:run_doubled"}}\n')
    (folder / "runs.py").write_text(
        'def run_doubled(entry, where, folder, runs, known):\n    return {"whole": 2 * entry["doubled"]}\n'
    )
    assert studies.run_study(folder).claims[0]["holds"]


def test_models_that_no_paper_has_are_named():
    with pytest.raises(StrataError, match="nearest: deepflow-2021"):
        shipped.needed_model("product models", "deepflow-2012")
    with pytest.raises(StrataError, match="no paper called 'dfmodl'; nearest: dfmodel"):
        shipped.paper("dfmodl")


def test_the_core_imports_no_paper_by_name():
    names = [init.parent.name for init in (ROOT / "studies").glob("*/__init__.py")]
    asked = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(names)})\b", re.M)
    code = {
        p: re.sub(r'"""(.*?)"""', "", p.read_text(encoding="utf-8"), flags=re.S)
        for p in (ROOT / "strata").rglob("*.py")
    }
    assert names and [str(p) for p, text in code.items() if asked.search(text)] == []


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    r = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=8, context=2048), "tp=8")
    with pytest.raises(StrataError, match=r"needs pyarrow: pip install 'strata\[search\]'"):
        r.to_table()
