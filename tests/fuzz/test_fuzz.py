"""A minute of `make fuzz`: bad inputs end with exit code 0 or 2 and one line; and the harness sees what does not."""

from pathlib import Path

import fuzz
from fuzz import FuzzCase, make_case, run_case, run_cases, summary

SEED, CASES, SECONDS = 20260, 1200, 40.0


def test_bad_inputs_end_in_one_line():
    found = run_cases(SEED, list(range(CASES)), workers=1, until=SECONDS)
    failed = [f for f in found if f["failure"]]
    assert not failed, summary(found)
    assert len(found) > 50


def test_a_case_is_made_from_its_seed_and_number():
    assert make_case(1, 7) == make_case(1, 7) and make_case(1, 7) != make_case(2, 7)
    kinds = {make_case(1, n).kind.split()[0] for n in range(300)}
    assert {"command", "expression", "python", "chip", "space", "study", "measurements"} <= kinds


def test_the_harness_sees_what_breaks_the_contract(tmp_path, monkeypatch):
    here = Path.cwd()
    good = FuzzCase("python", text="st.decode(None, 1)")
    cases = {
        "st.decode(1, 1)": "",
        "st.decode(None, 1)": "",
        "1 / 0": "ZeroDivisionError",
        "np.log(np.array([-1.0]))": "a warning",
        "(_ for _ in ()).throw(MemoryError())": "took over 4 GiB",
        "(_ for _ in ()).throw(SystemExit(3))": "exit code 3",
    }
    for text, said in cases.items():
        found = run_case(FuzzCase("python", text=text), tmp_path)
        assert found == said if not said else said in found, (text, found)
    monkeypatch.chdir(here)
    assert fuzz.run_case(good, tmp_path) == ""
