"""A user's own file: columns by their names and units, questions of several kinds, and what is wrong in a line."""

import pytest

from strata.validation.accuracy.run import validate

GEMM = "question,chip,m,n,k,time [ms]\n"
ROW = "gemm,h200,4096,4096,4096,0.21\n"


def scored(tmp_path, text, name="mine.csv"):
    (tmp_path / name).write_text(text)
    return validate(tmp_path / name, keep_points=True)


def test_units_of_a_header_and_defaults_of_empty_cells(tmp_path):
    plain = scored(tmp_path, "question,chip,m,n,k,time\ngemm,h200,4096,4096,4096,2.1e-4\n")
    other = scored(tmp_path, GEMM.replace("m,n", "precision,m,n") + ROW.replace("h200,", "h200,,"))
    assert other["points"][0]["predicted"] == plain["points"][0]["predicted"]
    assert other["points"][0]["measured"] == pytest.approx(plain["points"][0]["measured"])
    assert list(other["files"][0]["groups"]) == ["gemm/time"] and other["unread"] == []


def test_questions_of_several_kinds_and_kinds_of_kernels_stand_in_one_file(tmp_path):
    text = (
        "question,chip,system,m,n,k,op,rows,columns,pattern,ranks,bytes [MiB],time [ms]\n"
        "gemm,h200,,4096,4096,4096,,,,,,,0.21\n"
        "stream,h200,,,,,copy,4096,8192,,,,0.04\n"
        "collective,,8xh200,,,,,,,all_reduce,8,64,0.36\n"
    )
    made = scored(tmp_path, text)
    assert set(made["files"][0]["groups"]) == {"gemm/time", "stream/time", "collective/time"}
    assert made["files"][0]["mape"] < 0.5
    assert [p["families"]["chip"] for p in made["points"]].count("h200") == 2


WRONG_HEADERS = {
    "question,chip,m,n,kk,time [ms]": "no column 'kk' is known (is it 'k'?); gemm needs k",
    "question,chip,m,n,k,time [GB]": "'time [GB]' of gemm has a wrong unit: write 'time [s]'",
    "question,chip [s],m,n,k,time": "'chip' of gemm is a text and has no unit: write 'chip'",
    "question,chip,m,n,k,note": "gemm takes chip, m, n, k, [precision], [batch]",
    "kind,chip,m,n,k,time": "has no column 'question', which says what a row asks",
}


@pytest.mark.parametrize(("header", "said"), WRONG_HEADERS.items())
def test_a_wrong_header_is_one_line_that_says_what_to_write(strata, tmp_path, header, said):
    (tmp_path / "mine.csv").write_text(f"{header}\n{ROW}")
    got = strata("validate", tmp_path / "mine.csv", "--json")
    assert got.code == 2 and got.err.count("\n") == 1 and said in got.err


def test_rows_that_fail_are_named_and_the_others_scored(tmp_path):
    wrong = (
        "gemm,h2000,1,1,1,1",
        "gemm,h200,1,1,,1",
        "gem,h200,1,1,1,1",
        "gemm,h200,1,1,x,1",
        "gemm,h200,1,1,1,",
    )
    made = scored(tmp_path, GEMM + ROW + "\n".join(wrong) + "\n")
    assert made["files"][0]["points"] == 1 and made["files"][0]["failed"] == 0
    said = [row["why"] for row in made["unread"]]
    assert [row["row"] for row in made["unread"]] == [3, 4, 5, 6, 7]
    for why, part in zip(
        said, ("no chip", "'k' is empty", "no question", "must be a number", "nothing"), strict=True
    ):
        assert part in why


TOML = """
title = "Products"
question = "gemm"
[ask]
chip = "h200"
m = "side"
n = "side"
k = "side"
[[metric]]
answer = "time"
measured = "us"
unit = "us"
group = "square"
rivals = { theirs = "theirs_us" }
"""


def test_a_toml_beside_a_file_describes_it_in_any_folder(tmp_path):
    (tmp_path / "squares.toml").write_text(TOML)
    made = scored(tmp_path, "side,us,theirs_us\n4096,210,189\n8192,1500,\n", "squares.csv")
    (arena,) = made["arena"]
    assert (arena["rival"], arena["points"], arena["mape"]) == ("theirs", 1, pytest.approx(0.1))
    assert arena["ours"] == pytest.approx(abs(made["points"][0]["predicted"] / 210e-6 - 1))
    assert validate(tmp_path)["files"] == made["files"]


def test_one_row_and_the_worst_rows_have_commands(answer, tmp_path):
    text = "question,system,pattern,ranks,bytes [MiB],time [ms]\n"
    (tmp_path / "mine.csv").write_text(
        text + "collective,8xh200,all_reduce,8,64,0.36\ncollective,8xh200,all_gather,8,64,1\n"
    )
    (row,) = answer("validate", tmp_path / "mine.csv", "--row", "2", "--json")
    typed = row["command"].split()[1:]
    assert answer(*typed, "--json")["time_s"] == row["predicted"]
    told = answer("validate", tmp_path / "mine.csv", "--worst", "1", "--by", "chip,file", "--json")["worst"]
    assert told["families"][0]["chip"] == "h200" and told["families"][0]["share"] == 1.0
    assert [(one["row"], "all_gather" in one["command"]) for one in told["rows"]] == [(3, True)]


def test_another_predictor_is_scored_on_the_same_rows(strata, answer, tmp_path):
    (tmp_path / "theirs.csv").write_text("file,row,predicted [us]\nh200/gemm.csv,3,9\nh200/gemm.csv,4,9\n")
    got = answer("validate", "--predictions", tmp_path / "theirs.csv", "--json")
    (arena,) = [one for one in got["arena"] if one["rival"] == "theirs"]
    assert (arena["points"], arena["left_out"]) == (1, 1) and 0 < arena["ours"] < 0.5
    (tmp_path / "theirs.csv").write_text("file,line,time\nh200/gemm.csv,3,9\n")
    got = strata("validate", "--predictions", tmp_path / "theirs.csv")
    assert got.code == 2 and "has no column predicted" in got.err
