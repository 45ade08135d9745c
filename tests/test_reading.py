"""The one door for files: what is wrong with a file is one line with its name and key."""

import os

import pytest

from strata.base.errors import BadFile, StrataError
from strata.base.reading import MOST_BYTES, csv_file, file_text, json_file, toml_file
from strata.search.space import space
from strata.studies import study
from strata.workload.program import program

TOML = {
    "an infinite number": (b"a = {b = inf}", "my.toml: 'a.b' must be a finite number, but got inf"),
    "no number": (b"[[a]]\nb = nan", "'a.0.b' must be a finite number"),
    "past the largest float": (b"a = 1e999", "'a' must be a finite number"),
    "a huge whole number": (b"a = 1" + b"0" * 500, "'a' must be a number below 1e+40"),
    "a key twice": (b"a = 1\na = 2", "is not TOML"),
    "nested without end": (b"a = " + b"[" * 100_000, "is not TOML"),
    "nested deep": (b"a = " + b"[" * 90 + b"]" * 90, "nested deeper than 64 tables"),
    "bytes": (b"\xff\xfe\x00", "my.toml is not TOML: byte 0 is not UTF-8"),
    "a zero byte": (b"a = 1\x00", "is not TOML: byte 5 is zero"),
}
JSON = {
    "an infinite number": (b'{"a": Infinity}', "my.json: Infinity is not a finite number"),
    "no number": (b'{"a": NaN}', "NaN is not a finite number"),
    "past the largest float": (b'{"a": [1e999]}', "'a.0' must be a finite number"),
    "a key twice": (b'{"a": 1, "a": 2}', "names key 'a' twice"),
    "nested without end": (b"[" * 100_000, "is not JSON: it is nested too deep"),
    "nothing": (b"", "is not JSON"),
}


@pytest.mark.parametrize(("content", "said"), TOML.values(), ids=TOML)
def test_a_wrong_toml_file_is_one_line(tmp_path, content, said):
    (tmp_path / "my.toml").write_bytes(content)
    with pytest.raises(BadFile) as error:
        toml_file(tmp_path / "my.toml")
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("content", "said"), JSON.values(), ids=JSON)
def test_a_wrong_json_file_is_one_line(tmp_path, content, said):
    (tmp_path / "my.json").write_bytes(content)
    with pytest.raises(BadFile) as error:
        json_file(tmp_path / "my.json")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_what_is_no_file_is_one_line(tmp_path):
    with pytest.raises(BadFile, match="is a folder"):
        file_text(tmp_path)
    with pytest.raises(BadFile, match="no chip file at"):
        file_text(tmp_path / "absent", "chip file")
    with pytest.raises(BadFile, match="cannot be read"):
        file_text(tmp_path / ("x" * 5000))
    large = tmp_path / "large"
    with large.open("wb") as file:
        os.truncate(file.fileno(), MOST_BYTES + 1)  # takes no room
    with pytest.raises(BadFile, match="at most 64 MiB"):
        file_text(large)


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa, b\n1, 2\n\n3,4\n")
    assert toml_file(tmp_path / "a.toml") == {"a": 1}
    assert csv_file(tmp_path / "a.csv") == [(1, ["a", "b"]), (2, ["1", "2"]), (4, ["3", "4"])]


QUESTION = '[question]\nmodel = "llama-3-8b"\nsystem = "8xh200"\n'
AXIS = '[[axis]]\nname = "batch"\nfield = "batch"\nvalues = [1, 2]\nsource = "a test"\n'
SPACES = {
    "an axis as a table": ("[axis.batch]\nvalues = [1]\n", "'axis' is a list of tables, each under [[axis]]"),
    "values in words": (AXIS.replace("[1, 2]", '"many"'), "axis batch lists its values"),
    "values that are tables": (
        AXIS.replace("[1, 2]", "[{a = 1}]"),
        "axis batch is a number, or text with a unit",
    ),
    "a range without end": (
        AXIS.replace("values = [1, 2]", "range = [1, 2, 1e12]"),
        "has at most 100000 values",
    ),
    "a range of a part": (AXIS.replace("values = [1, 2]", "range = [1, 2, 1.5]"), "how many values it has"),
    "a mistyped key": (AXIS.replace("source", "soruce"), "unknown key 'soruce'; nearest: source"),
    "an axis without a name": (AXIS.replace('name = "batch"\n', ""), "an axis needs a name"),
    "a name that is a number": (AXIS.replace('"batch"\nfield', "3\nfield"), "'name' is text, but got 3"),
    "variants in a list": (
        '[[axis]]\nname = "v"\nsource = "a test"\nvariants = [1]\n',
        "[variants] is a table",
    ),
    "a constraint without keep": (AXIS + "[[constraint]]\nwhy = 'so'\n", "a constraint: missing key 'keep'"),
    "a tie that is a list": (
        AXIS + "[[tie]]\nfield = 'input'\nvalue = [1]\nsource = 'a'\n",
        "'value' is text",
    ),
}


@pytest.mark.parametrize(("text", "said"), SPACES.values(), ids=SPACES)
def test_a_wrong_space_is_one_line(tmp_path, text, said):
    (tmp_path / "mine.toml").write_text(f'name = "mine"\n{QUESTION}{text}')
    with pytest.raises(StrataError) as error:
        space(str(tmp_path / "mine.toml"))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('batch = "many"', "", ""),
        ("", 'batch = "many"', "'batch' is a positive number, but got 'many'"),
        ("", "phase = 3", "'phase' is text, but got 3"),
        ("", "input = -5", "'input' is a positive number"),
    ][1:],
)
def test_a_wrong_question_is_one_line(tmp_path, old, new, said):
    (tmp_path / "mine.toml").write_text(f'name = "mine"\n{QUESTION}{new}\n{AXIS}')
    with pytest.raises(StrataError) as error:
        space(str(tmp_path / "mine.toml"))
    assert said in str(error.value)


STUDY = 'title = "t"\npaper = "p"\n[[run]]\nname = "r"\nmodel = "llama-3-8b"\nsystem = "h200"\nvary = ["batch=1"]\n'
CLAIM = '[[claim]]\nid = "c"\nsays = "s"\nours = "1"\nholds = "ours == 1"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STUDY.replace('"t"', "[1]") + CLAIM, "'title' is text, but got [1]"),
        (STUDY.replace('["batch=1"]', '"batch=1"') + CLAIM, "run r: 'vary' is a list of texts"),
        (STUDY + "batch = 'x'\n" + CLAIM, "run r: 'batch' is a positive number"),
        (STUDY + CLAIM.replace('"1"', "1"), "claim c: 'ours' is text"),
        ("title = 't'\npaper = 'p'\nrun = 3\nclaim = 4\n", "'run' is a list of tables"),
    ],
)
def test_a_wrong_study_is_one_line(tmp_path, text, said):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(StrataError) as error:
        study(tmp_path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_program_file_is_read_by_its_types(tmp_path):
    path = tmp_path / "mine.json"
    for value, said in (
        ('"many"', "is a number"),
        ("-1", "negative"),
        ("{}", "is a number"),
        ("[]", "is a number"),
    ):
        path.write_text(f'{{"kind": "gemm", "m": {value}}}')
        with pytest.raises(StrataError, match=said):
            program(path)


def test_a_record_that_is_no_table_is_one_line(tmp_path):
    from strata.hardware.chip import chip

    (tmp_path / "my.toml").write_text("generated = 3\n")
    with pytest.raises(StrataError) as error:
        chip(str(tmp_path / "my.toml"))
    assert "\n" not in str(error.value)
