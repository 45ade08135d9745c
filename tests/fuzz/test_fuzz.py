"""Half a minute of `make fuzz`: bad inputs end with exit code 0 or 2 and one line; and the harness sees what does not."""

from pathlib import Path

import found
import fuzz
import pytest
from fuzz import FuzzCase, make_case, run_case, run_cases, summary

SEED, CHUNKS, CASES = 20260, 4, 120


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_bad_inputs_end_in_one_line(chunk):
    numbers = list(range(chunk * CASES, (chunk + 1) * CASES))
    ended = run_cases(SEED, numbers, workers=1)
    failed = [f for f in ended if f["failure"]]
    assert not failed, summary(failed)
    assert sorted(f["number"] for f in ended) == numbers


def test_a_case_is_made_from_its_seed_and_number():
    assert make_case(1, 7) == make_case(1, 7) and make_case(1, 7) != make_case(2, 7)
    kinds = {make_case(1, n).kind.split()[0] for n in range(300)}
    assert {"command", "expression", "python", "chip", "space", "study", "measurements"} <= kinds


def test_every_command_option_and_public_function_is_found():
    from strata.app.cli import COMMANDS
    from strata.base.shipped import paper_offers

    assert {words[0] for words in found.commands()} == {*COMMANDS, *paper_offers("commands")}
    assert ("kernel", "gemm") in found.commands()
    assert {"--price", "--fabric", "--set"} <= {option[0] for option in found.commands()[("predict",)]}
    assert {"st.evaluate", "st.search.goal", "st.serving.Requests"} <= set(found.functions())


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
        ended = run_case(FuzzCase("python", text=text), tmp_path)
        assert ended == said if not said else said in ended, (text, ended)
    monkeypatch.chdir(here)
    assert fuzz.run_case(good, tmp_path) == ""
