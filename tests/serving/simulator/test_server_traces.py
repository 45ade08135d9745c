"""Traces: the usual public shapes, bad rows in one line, and writing back."""

import gzip
import json

import pytest

from strata.base.errors import BadFile, StrataError
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.trace import TraceLoad, trace_lengths, write_trace


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def rows(load):
    return [(r.arrival, r.input, r.output) for r in load.arrivals()]


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319569,3180,8
2023-11-16 18:17:05.9799600,110,27
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,276,693,Conversation log
"""
OWN = """request_id,arrival_s,input_tokens,output_tokens,queued_s
a,0.0,2358,531,0.0
b,0.2651,1034,769,0.3869
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,3\n1.5,20,4\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE, [(0.0, 4808, 10), (0.0519969, 3180, 8), (2.0, 110, 27)]),
        (BURST, [(0.0, 472, 18), (40.0, 1087, 230), (113.0, 417, 276)]),
        (OWN, [(0.0, 2358, 531), (0.2651, 1034, 769)]),
        (VIDUR, [(0.0, 10, 3), (1.0, 20, 4)]),
        ("\ufeffarrival_ms,input,output\n0,5,6\n1500,7,8\n\n", [(0.0, 5, 6), (1.5, 7, 8)]),
    ],
)
def test_public_tables_are_read(tmp_path, text, expected):
    found = rows(load_of(written(tmp_path, "trace.csv", text)))
    assert [r[1:] for r in found] == [e[1:] for e in expected]
    assert [r[0] for r in found] == pytest.approx([e[0] for e in expected], abs=2e-6)


def test_models_of_a_trace_are_kept(tmp_path):
    load = load_of(written(tmp_path, "t.csv", BURST))
    assert [r.model for r in load.arrivals()] == ["ChatGPT", "ChatGPT", "GPT-4"]


def test_mooncake_counts_milliseconds_and_blocks_of_512(tmp_path):
    text = (
        '{"timestamp": 1000, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 48]}\n'
        '{"timestamp": 4500, "input_length": 1024, "output_length": 26, "hash_ids": [46, 47]}\n'
    )
    first, second = TraceLoad(written(tmp_path, "m.jsonl", text)).arrivals()
    assert second.arrival == pytest.approx(3.5)
    assert first.prefix == (("46", 512), ("47", 1024), ("48", 1500))
    assert second.prefix == first.prefix[:2]


def test_bailian_counts_seconds_and_blocks_of_16(tmp_path):
    text = (
        '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.0, "input_length": 20, "output_length": 5,'
        ' "type": "text", "turn": 1, "hash_ids": [7, 8]}\n'
        '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 63.5, "input_length": 40, "output_length": 5,'
        ' "type": "text", "turn": 2, "hash_ids": [7, 8, 9]}\n'
    )
    first, second = TraceLoad(written(tmp_path, "b.jsonl", text)).arrivals()
    assert (first.prefix, second.arrival) == ((("7", 16), ("8", 20)), 2.5)


def test_named_beginnings_and_columns_that_first_rows_lack(tmp_path):
    text = (
        '{"arrival": 0, "input": 100, "output": 5}\n'
        '{"arrival": 1, "input": 100, "output": 5, "prefix": "a:10;b:50", "priority": 2}\n'
        '{"arrival": 2, "input": 100, "output": 5, "prefix": "sys", "prefix_tokens": 30}\n'
    )
    found = list(TraceLoad(written(tmp_path, "n.jsonl", text)).arrivals())
    assert [r.prefix for r in found] == [(), (("a", 10), ("b", 50)), (("sys", 30),)]
    assert found[1].priority == 2.0


def test_turns_of_a_session_share_what_was_said(tmp_path):
    text = "arrival,input,output,session\n0,100,10,a\n1,50,10,b\n5,150,10,a\n9,90,10,a\n12,120,10,a\n"
    found = list(TraceLoad(written(tmp_path, "s.csv", text)).arrivals())
    a = [r for r in found if r.session == "a"]
    assert a[1].prefix == ((a[0].keep, 109),)
    assert a[2].prefix == ()  # shorter than what was said: it begins anew
    assert a[3].prefix == ((a[2].keep, 99),)
    assert len({r.keep for r in a}) == 4
    assert found[1].prefix == ()


def test_turns_with_a_time_to_think_follow_the_answer(tmp_path):
    text = (
        "arrival,input,output,session,turn,think\n0,100,10,a,0,\n2,5,5,b,0,\n,150,10,a,1,3\n,200,10,a,2,4\n"
    )
    load = TraceLoad(written(tmp_path, "s.csv", text))
    first, other = load.arrivals()
    assert (first.session, other.arrival) == ("a", 2.0)
    (second,) = load.after(first, 10.0)
    assert (second.arrival, second.input, second.prefix) == (13.0, 150, ((first.keep, 109),))
    (third,) = load.after(second, 20.0)
    assert (third.arrival, third.turn) == (24.0, 2)
    assert not list(load.after(third, 30.0)) and not list(load.after(other, 30.0))


def test_rows_out_of_order_are_sorted_and_told(tmp_path):
    text = "arrival,input,output\n3,30,1\n1,10,1\n2,20,1\n5,50,1\n"
    load = TraceLoad(written(tmp_path, "u.csv", text), speed=2.0)
    assert rows(load) == rows(load) == [(0.0, 10, 1), (0.5, 20, 1), (1.0, 30, 1), (2.0, 50, 1)]
    assert load.notes == ["2 rows arrive before the row above them: sorted by arrival"]


def test_only_so_many_rows_and_the_clock_of_the_file(tmp_path):
    path = written(tmp_path, "t.csv", BURST)
    assert [r[0] for r in rows(TraceLoad(path, count=2, from_first=False))] == [5.0, 45.0]
    assert [r[0] for r in rows(TraceLoad(path, unit="ms"))] == pytest.approx([0.0, 0.04, 0.113])


BAD = [
    ("arrival,input,output\n0,5,5\n1,5,x\n", "row 2, column 'output': a number is needed, but got 'x'"),
    ("arrival,input,output\n0,5,5\n1,0,5\n", "row 2, column 'input': a whole number of at least 1 token"),
    ("arrival,input,output\n0,5,5\n1,5,0\n", "row 2, column 'output': a whole number of at least 1 token"),
    ("arrival,input,output\n0,5,2.5\n", "row 1, column 'output': a whole number"),
    ("arrival,input,output\n0,5,-5\n", "row 1, column 'output'"),
    ("arrival,input,output\n0,5,inf\n", "row 1, column 'output': a number is needed"),
    ("arrival,input,output\n-1,5,5\n", "row 1, column 'arrival': a time is not negative, but got -1"),
    ("arrival,input,output\nnan,5,5\n", "row 1, column 'arrival': a number is needed"),
    ("arrival,input,output\n,5,5\n", "row 1, column 'arrival': no time of arrival"),
    ("arrival,input,output\n2023-99-16 18:17:03,5,5\n", "row 1, column 'arrival': a date or a number"),
    ("arrival,input,output\n1\n", "row 1, column 'input': no number of tokens"),
    ("arrival,input,output\n0,5,5\n0,5000,5\n", "row 2, column 'input': 5000 + 5 tokens pass the context"),
    (
        "arrival,input,output,prefix\n0,5,5,a\n",
        "row 1, column 'prefix': a beginning is told as 'name:tokens'",
    ),
    ("arrival,input,output,prefix\n0,5,5,a:9\n", "row 1, column 'prefix': beginnings grow"),
    ("arrival,input,output,prefix\n0,50,5,a:9;b:3\n", "row 1, column 'prefix': beginnings grow"),
    ("arrival,input\n0,5\n", "has no column for output (such as output, outputtokens, outputlength)"),
    ("a,b\n0,5\n", "has no column for arrival (such as arrival, arrivaltime, arrivedat), input"),
    ("", "is empty"),
    ("arrival,input,output\n", "no row that can be served"),
    ("arrival,input,output,think\n,5,5,1\n3,4,5,\n", "row 1, column 'arrival': no time of arrival"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_bad_tables_are_told_in_one_line(tmp_path, text, said):
    path = written(tmp_path, "bad.csv", text)
    with pytest.raises(BadFile) as told:
        TraceLoad(path, context=4096)
    assert said in str(told.value) and "\n" not in str(told.value) and path in str(told.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "row 2: not JSON"),
        ("[1]", "row 2: not a JSON object"),
        ('{"timestamp": 0, "input_length": true, "output_length": 2}', "column 'input_length': a number"),
        ('{"timestamp": 0, "input_length": 2}', "column 'output_length': no number of tokens"),
        ('{"timestamp": 0, "input_length": 2, "output_length": 3, "hash_ids": 4}', "a list of blocks"),
        ('{"timestamp": [], "input_length": 2, "output_length": 3}', "column 'timestamp': a number"),
    ],
)
def test_bad_lines_are_told_in_one_line(tmp_path, line, said):
    good = '{"timestamp": 0, "input_length": 2, "output_length": 3, "hash_ids": [1]}\n'
    with pytest.raises(BadFile) as told:
        TraceLoad(written(tmp_path, "bad.jsonl", good + line + "\n" + good))
    assert said in str(told.value)
    load = TraceLoad(written(tmp_path, "bad.jsonl", good + line + "\n" + good), bad="skip")
    assert load.rows == len(list(load.arrivals())) == 2
    assert load.notes[0].startswith("1 rows left out, first row 2")


def test_files_that_are_none(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "packed.csv.gz").write_bytes(b"not packed at all")
    for name in ("folder.csv", "packed.csv.gz", "missing.csv"):
        with pytest.raises(BadFile):
            TraceLoad(tmp_path / name)
    with pytest.raises(StrataError):
        TraceLoad(tmp_path / "missing.csv", unit="weeks")
    with pytest.raises(StrataError):
        write_trace(tmp_path / "trace.xls", [])
    with pytest.raises(BadFile):
        write_trace(tmp_path / "nowhere" / "trace.csv", [])


def test_packed_traces_are_read(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(BURST.encode()))
    assert len(rows(load_of(path))) == 3


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
@pytest.mark.parametrize(
    "text",
    [
        "poisson:rate=8,input=lognormal:1024:0.5,output=exponential:99,count=300,seed=1",
        "sessions:rate=2,turns=3,input=50,output=20,count=30,system=200,groups=2,models=a:1/b:1,priorities=0:1/3:1",
    ],
)
def test_a_trace_goes_round(tmp_path, name, text):
    def all_of(load):
        return [
            (r.arrival, r.input, r.output, r.prefix, r.session, r.turn, r.priority, r.model, r.keep)
            for r in load.arrivals()
        ]

    one, two = tmp_path / name, tmp_path / f"again-{name}"
    load = load_of(text)
    assert write_trace(one, load.arrivals()) == len(all_of(load))
    first = TraceLoad(one, from_first=False)
    assert [r[:3] for r in all_of(first)] == [r[:3] for r in all_of(load)]
    assert [r[5:8] for r in all_of(first)] == [r[5:8] for r in all_of(load)]
    assert [tuple(n for _, n in r[3]) for r in all_of(first)] == [
        tuple(n for _, n in r[3]) for r in all_of(load)
    ]
    write_trace(two, first.arrivals())
    assert all_of(TraceLoad(two, from_first=False)) == all_of(first)


def test_lengths_of_a_trace_are_a_distribution_of_pairs(tmp_path):
    path = written(tmp_path, "t.csv", BURST)
    read, wrote = trace_lengths(path)
    assert (read.values, wrote.values) == ((472, 1087, 417), (18, 230, 276))
    load = load_of(f"poisson:rate=3,lengths={path},count=200")
    assert {(r.input, r.output) for r in load.arrivals()} == {(472, 18), (1087, 230), (417, 276)}


def test_a_long_trace_is_not_held(tmp_path):
    import tracemalloc

    path = tmp_path / "long.jsonl"
    with open(path, "w") as file:
        for i in range(20000):
            row = {
                "timestamp": i,
                "input_length": 5000,
                "output_length": 5,
                "hash_ids": list(range(i, i + 10)),
            }
            file.write(json.dumps(row) + "\n")
    tracemalloc.start()
    assert sum(1 for _ in TraceLoad(path).arrivals()) == 20000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6
