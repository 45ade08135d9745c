"""Logs of nccl-tests and rccl-tests as they are printed: old and new, whole and broken."""

import random
import re

import pytest
from collective_logs import POWERS, made_log, made_time, row_of

from strata.base.drawing import keep
from strata.base.errors import BadFile, StrataError
from strata.measure.nccl_logs import (
    ToldRun,
    chip_of_gpu,
    log_runs,
    logged_op,
    plain_line,
    read_logs,
)
from strata.validation.readers.collective_files import (
    COLLECTIVE_COLUMNS,
    file_of_run,
    rows_of_run,
    runs_of_csv,
    tables_of_runs,
    texts_of_runs,
)
from strata.validation.readers.tables import read_table

TWO = {"hosts": ("node1", "node2")}
IB = ToldRun(fabric="infiniband", links="8x400G")


def one_run(text, told=None, name="my.log"):
    (run,) = log_runs(text, name, told)
    return run


def test_a_new_log_of_one_node_tells_all_of_itself():
    run = one_run(made_log(before=["NCCL version 2.26.2+cuda12.8"]))
    assert (run.op, run.gpu, run.nodes, run.gpus) == ("all_reduce", "h100", 1, 8)
    assert (run.library, run.setting, run.fabric) == ("2.26.2", "default", "")
    assert [row.bytes for row in run.rows] == list(POWERS) and {row.dtype for row in run.rows} == {"float"}
    # the lower of both times, in microseconds, as it was printed
    assert [row.time_us for row in run.rows] == pytest.approx([made_time(s) for s in POWERS], rel=1e-3)
    assert file_of_run(run) == "ops/nccl.csv"


def test_an_old_log_has_no_root_and_no_title_and_an_error_in_place_of_wrong_values():
    text = made_log(old=True, gpu="NVIDIA A100-SXM4-80GB")
    assert " error " in text and "Group" not in text
    with pytest.raises(BadFile, match=r"my.log does not say which collective .* --op, one of all_reduce"):
        one_run(text)
    assert one_run(text, ToldRun(op="all_reduce")).gpu == "a100-80"
    assert one_run(text, name="AllReduce-8gpu.txt").op == "all_reduce"
    assert one_run("$ mpirun -np 8 ./build/all_reduce_perf -b 8 -e 1G -f 2\n" + text).op == "all_reduce"


def test_several_nodes_are_rows_of_the_file_between_nodes():
    run = one_run(made_log(**TWO), IB)
    assert (run.nodes, run.gpus, run.fabric, run.links) == (2, 16, "infiniband", "8x400G")
    first = rows_of_run(run)[0]
    assert tuple(first) == COLLECTIVE_COLUMNS["network/multinode.csv"]
    assert (first["gpus_per_node"], first["bytes"], first["time_us"]) == ("8", "8", "20")
    with pytest.raises(BadFile, match=r"2 nodes and does not say what joins them: give --fabric"):
        one_run(made_log(**TWO))


@pytest.mark.parametrize(
    ("said", "fabric"),
    [
        ("node1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>", "infiniband"),
        ("node1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0", "roce"),
        ("node1:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)", "efa"),
        ("node1:1:2 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)", "slingshot"),
    ],
)  # fmt: skip
def test_a_verbose_log_names_the_network_and_what_was_set(said, fabric):
    set_by = "node1:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring."
    run = one_run(made_log(**TWO, before=[said, set_by, "# nccl-tests version 2.17.1 nccl-library=22706"]))
    assert (run.fabric, run.setting, run.library) == (fabric, "NCCL_ALGO=Ring", "2.27.6")


@pytest.mark.parametrize(
    ("op", "name"),
    [("all_gather", "all_gather"), ("reduce_scatter", "reduce_scatter"), ("all_to_all", "alltoall")],
)
def test_sizes_are_whole_buffers_and_rows_of_no_bytes_are_counted(op, name):
    run = one_run(made_log(op=op))
    assert run.op == op and run.empty == 2 and run.rows[0].bytes == 32  # 8 and 16 B are less than 8 floats
    assert rows_of_run(run)[0]["op_name"] == name


def test_in_place_may_be_missing_and_results_unchecked():
    whole = one_run(made_log())
    alone = one_run(made_log(in_place=False, checked=False))
    assert [r.time_us for r in alone.rows] == [r.time_us for r in whole.rows]
    # where the columns in place are not there at all
    lines = made_log().splitlines()
    cut = [
        " ".join(x.split()[:9]) if re.match(r"\s*\d", x) else x.replace(" time ", " time ", 1) for x in lines
    ]
    head = next(i for i, x in enumerate(cut) if " size " in x)
    cut[head] = "# " + " ".join(cut[head].split()[1:10])
    assert [r.time_us for r in one_run("\n".join(cut)).rows] == [r.time_us for r in whole.rows]


def test_the_faster_of_both_counts():
    text = made_log(sizes=(1 << 20, 1 << 21))
    words = row_of(1 << 20)
    words[9:12] = row_of(1 << 20, time=lambda size: 10.0)[5:8]
    swapped = text.replace("  ".join(f"{w:>10}" for w in row_of(1 << 20)), " ".join(words))
    assert one_run(swapped).rows[0].time_us == 10.0


def test_formats_and_sizes_with_letters():
    run = one_run(made_log(dtype="bfloat16", gpu="AMD Instinct MI300X"))
    assert run.gpu == "mi300x" and run.rows[0].dtype == "bfloat16"
    assert rows_of_run(run)[0]["message_elements"] == "4"
    lettered = made_log().replace(f"{1 << 20:>10} ", f"{'1M':>10} ", 1)
    assert one_run(lettered).rows[17].bytes == 1 << 20


def test_prefixes_of_launchers_colours_and_line_ends_do_not_matter():
    plain = made_log(**TWO)
    rows = one_run(plain, IB).rows
    lines = plain.splitlines()
    dressed = {
        "mpirun --tag-output": [f"[1,0]<stdout>:{x}" for x in lines],
        "prterun": [f"[prterun-node1-77@1,0]<stdout>: {x}" for x in lines],
        "srun --label": [f" 0: {x}" for x in lines],
        "kubectl --timestamps": [f"2026-03-01T10:11:12.345Z {x}" for x in lines],
        "colours": [f"\x1b[1;32m{x}\x1b[0m" for x in lines],
    }
    for name, made in dressed.items():
        assert one_run("\n".join(made), IB).rows == rows, name
    for end in ("\r\n", "\r"):
        assert one_run(plain.replace("\n", end), IB).rows == rows
    mixed = "".join(x + random.Random(i).choice(("\n", "\r\n")) for i, x in enumerate(lines))
    assert one_run(mixed, IB).rows == rows
    assert plain_line("[1,12]<stderr>:# x") == "# x"


def test_what_the_library_says_between_rows_is_no_row():
    text = made_log()
    lines = text.splitlines()
    at = next(i for i, x in enumerate(lines) if "1048576" in x and "#" not in x)
    lines[at:at] = [
        "node1:55:66 [0] NCCL INFO Channel 00/08 : 0 1 2 3 4 5 6 7",
        "",
        "a note of ours, 3 words",
    ]
    assert [r.bytes for r in one_run("\n".join(lines)).rows] == list(POWERS)


def test_one_log_may_hold_several_runs():
    text = made_log() + "\n======== alltoall_perf ========\n" + made_log(op="all_to_all", title=False)
    assert [run.op for run in log_runs(text, "all.log")] == ["all_reduce", "all_to_all"]
    assert [run.op for run in log_runs(made_log() + made_log(op="all_gather"), "two.log")] == [
        "all_reduce",
        "all_gather",
    ]


# ---------------------------------------------------------------------------------------- bad ones


def refused(text, told=None, name="my.log"):
    with pytest.raises(StrataError) as caught:
        log_runs(text, name, told)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(name)
    return str(caught.value)


def test_a_log_that_is_cut_off_names_the_row_and_can_be_taken_in_part():
    text = made_log()
    cut = text[: text.index("67108864") + 30]  # in the middle of a row
    line = cut.count("\n") + 1
    assert f"line {line}: the row of size 67108864 has 3 of 13 columns: cut off" in refused(cut)
    run = one_run(cut, ToldRun(partial=True))
    assert [r.bytes for r in run.rows] == [s for s in POWERS if s < 67108864] and list(run.left_out) == [line]
    after = text[: text.index("# Out of bounds")]
    assert "cut off after 28 rows: no line '# Avg bus bandwidth' follows; --partial" in refused(after)
    assert len(one_run(after, ToldRun(partial=True)).rows) == 28
    before = text[: text.index("#\n#   ")]
    assert "line 12: the log is cut off before its table" in refused(before)
    # the second of two runs
    assert "cut off" in refused(text + made_log(op="all_gather")[:400])


def test_every_cut_of_a_log_is_whole_or_refused():
    text = made_log(sizes=POWERS[10:16])
    whole = len(one_run(text).rows)
    for at in range(0, len(text), 7):
        try:
            runs = log_runs(text[:at], "my.log")
        except BadFile as error:
            assert "\n" not in str(error)
        else:
            assert [len(run.rows) for run in runs] == [whole]


def test_a_log_without_units_says_so_and_takes_them_from_the_user():
    text = made_log(units=False)
    assert re.search(r"my.log line 15: no line of units.*rows 16-43 have none: give --units", refused(text))
    assert len(one_run(text, ToldRun(units="us")).rows) == 28
    # of the wrong unit: bandwidths contradict it
    assert "GB/s, but algbw is" in refused(text, ToldRun(units="ms"))


def test_one_node_is_not_several():
    one = made_log()
    assert "lines 5-12: its 8 ranks run on one host, node1, but --nodes 2 was told" in refused(
        one, ToldRun(nodes=2)
    )
    said = refused(one, IB)
    assert "lines 15-44: its ranks run on one node, but --fabric and --links say" in said
    two = made_log(**TWO)
    assert "its 16 ranks run on 2 hosts, but --nodes 4 was told" in refused(
        two, ToldRun(nodes=4, fabric="efa")
    )
    assert "16 ranks, but --gpus 8 was told" in refused(two, ToldRun(gpus=8, fabric="efa"))


def test_ranks_that_are_not_told_must_be_told_and_must_fit():
    text = made_log(ranks=False)
    assert "give --gpus and --nodes" in refused(text)
    run = one_run(text, ToldRun(gpus=8, nodes=1, gpu="h100"))
    assert (run.gpus, run.nodes, run.gpu) == (8, 1, "h100")
    # a table of eight ranks given as one of sixteen: the ratio of its bandwidths tells
    said = refused(text, ToldRun(gpus=16, nodes=2, gpu="h100", fabric="roce"))
    assert re.search(r"busbw / algbw of size \d+ is 1.7\d, but all_reduce over 16 ranks has 1.88", said)
    assert "does not name its GPUs: give the chip" in refused(text, ToldRun(gpus=8, nodes=1))


def test_processes_that_each_ran_alone_are_refused():
    alone = made_log(per_host=1)
    assert "one rank makes no collective; without MPI" in refused(alone)
    head, table = alone.split("#\n#  ", 1)
    assert "rank 0 is told twice: without MPI" in refused(head + head + "#\n#  " + table)


def test_hosts_and_gpus_must_be_even_and_alike():
    text = made_log(**TWO)
    assert "mixes GPUs: NVIDIA H100 80GB HBM3, NVIDIA H200" in refused(
        text.replace("NVIDIA H100 80GB HBM3", "NVIDIA H200", 3), IB
    )
    fewer = "\n".join(x for x in text.splitlines() if "Rank 15" not in x)
    assert "hosts have 7 and 8 ranks" in refused(fewer, IB)
    gone = "\n".join(x for x in text.splitlines() if "Rank  3" not in x)
    assert "rank 3 of 16 is not told" in refused(gone, IB)
    same = made_log(hosts=("node", "node"))
    assert "GPU 0000:07:00 of node has two ranks" in refused(same)
    assert one_run(same, ToldRun(nodes=2, fabric="roce")).nodes == 2


def test_rows_that_contradict_themselves_are_named():
    lines = made_log().splitlines()
    rows = [i for i, x in enumerate(lines) if re.match(r"\s*\d", x)]

    def with_row(place, change):
        made = list(lines)
        made[rows[place]] = change(made[rows[place]])
        return refused("\n".join(made))

    number = rows[20] + 1
    assert f"line {number}: " in with_row(20, lambda x: x.replace("float", "flaot"))
    assert "does not agree with" in with_row(20, lambda x: x.replace("8388608", "8388609"))
    assert "came out wrong in 4 elements" in with_row(20, lambda x: x[:-1] + "4")
    assert "no size" in with_row(20, lambda x: "?" + x.strip())
    assert "time must be a number" in with_row(0, lambda x: x.replace("20.00", "20..0"))
    assert "time must be above 0" in with_row(0, lambda x: x.replace("20.00", "-20.0"))
    broken = "\n".join(x.replace("float", "flaot") if i in rows[3:6] else x for i, x in enumerate(lines))
    said = refused(broken)
    assert (
        f"line {rows[3] + 1}: " in said and f"(and 2 more rows: lines {rows[4] + 1}, {rows[5] + 1})" in said
    )


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "hello\n", "size,count,type,time\n1,2,3,4\n", "Rank 0 on node1\n", "# Avg bus bandwidth : 3\n", "8 2 float sum -1 20 0 0 0\n" * 40],
)  # fmt: skip
def test_a_file_of_another_program_is_none(text):
    assert "is no log of nccl-tests or rccl-tests" in refused(text)


def test_ops_and_gpus_by_their_names():
    with pytest.raises(BadFile, match="is of 'sendrecv'; what is priced is all_reduce, all_gather"):
        log_runs(made_log(title=False, before=["./sendrecv_perf -b 8"]), "x.log")
    assert logged_op("AllGather", "x") == "all_gather"
    with pytest.raises(BadFile, match=r"'gfx942:sramecc.:xnack-', which several chips are"):
        one_run(made_log(gpu="gfx942:sramecc+:xnack-"))
    assert one_run(made_log(gpu="gfx942:sramecc+:xnack-"), ToldRun(gpu="mi325x")).gpu == "mi325x"
    known = {
        "NVIDIA H200": "h200", "NVIDIA H200 NVL": "h200-nvl", "NVIDIA GB200": "gb200", "NVIDIA B200": "b200",
        "Tesla V100-SXM2-32GB": "v100", "AMD Instinct MI355X": "mi355x", "NVIDIA GH200 120GB": "gh200",
        "NVIDIA L40S": "l40s", "AMD Instinct MI300X VF": "mi300x", "NVIDIA H20": "nvidia-h20",
    }  # fmt: skip
    assert {said: chip_of_gpu(said) for said in known} == known


def test_files_are_read_whole_and_written_as_measured_files(tmp_path):
    for name, text in (("one.log", made_log()), ("two.log", made_log(**TWO, op="all_gather"))):
        (tmp_path / name).write_bytes(text.encode())
    runs = [*read_logs([tmp_path / "one.log"]), *read_logs([tmp_path / "two.log"], IB)]
    assert {table.name: len(table) for table in tables_of_runs(runs)} == {
        "ops/nccl.csv": 28,
        "network/multinode.csv": 25,
    }
    for name, text in texts_of_runs(runs).items():
        keep(tmp_path / "out" / name, text)
    for name in COLLECTIVE_COLUMNS:
        assert tuple(read_table(tmp_path / "out", name).columns) == COLLECTIVE_COLUMNS[name]
        path = tmp_path / "out" / name
        (again,) = runs_of_csv(path)
        first = next(run for run in runs if file_of_run(run) == name)
        assert rows_of_run(again) == rows_of_run(first)
    (tmp_path / "bad.log").write_bytes(made_log().encode()[:900] + b"\xff\xfe\x00")
    with pytest.raises(BadFile, match=r"bad\.log is not a text log"):
        read_logs([tmp_path / "bad.log"])


def test_random_changes_end_in_a_line_or_in_sound_rows():
    rng, text = random.Random(7), made_log(sizes=POWERS[12:22])
    for _ in range(400):
        made = list(text)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(made))
            if rng.random() < 0.4:
                del made[at : at + rng.randint(1, 60)]
            else:
                made[at : at + 1] = rng.choice(
                    ("x", "9", " ", "\n", "\t", "#", "-", "\x1b", "é", "²", "1e999", "()")
                )
        try:
            runs = log_runs("".join(made), "my.log", ToldRun(op="all_reduce", partial=rng.random() < 0.3))
        except StrataError as error:
            assert str(error).startswith("my.log") and "\n" not in str(error)
        else:
            assert all(row.time_us > 0 and row.bytes > 0 for run in runs for row in run.rows)
