"""Clusters of nccl-tests between nodes: what the columns mean, and rows that cannot be read."""

import numpy as np
import pytest

from strata.base.errors import BadValue, UnknownName
from strata.hardware.transport import transport
from strata.validation.fit.left_out import left_out_points
from strata.validation.fit.table import fit_table
from strata.validation.measured.reader import reader_of
from strata.validation.questions.network import (
    adapters_of,
    network_of,
    pattern_of_test,
    run_cluster,
    setting_of,
)
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue, chip_called
from strata.validation.readers.tables import read_table

HEAD = "gpu,nodes,gpus,gpus_per_node,fabric,links,op,nccl,setting,dtype,bytes,time_us\n"


def multinode(table, catalogue):
    return reader_of("network/multinode.csv", catalogue)(table, catalogue)


def cluster(gpu, network, links, counts):
    """The fabric that a row's words and counts of nodes, devices and devices a node make."""
    words = {"chip": gpu, "network": network, "links": links, "setting": "default"}
    counted = dict(zip(("nodes", "ranks", "per_node"), map(float, counts), strict=True))
    return run_cluster(words | counted, Catalogue())


def points(tmp_path, *rows):
    (tmp_path / "network").mkdir()
    (tmp_path / "network/multinode.csv").write_text(HEAD + "\n".join(rows) + "\n")
    return multinode(read_table(tmp_path, "network/multinode.csv"), Catalogue())


@pytest.mark.parametrize(
    ("gpu", "network", "links", "counts", "name", "sizes", "rate"),
    [
        ("a100-80", "efa", "4x100G EFA", (2, 16, 8), "p4d-efa", (8, 2), 6.25e9),
        ("h200", "efa", "16x200G EFA (p5en)", (4, 32, 8), "p5en-efa", (8, 4), 50e9),
        ("b200", "efa", "8x400G EFA v4", (4, 32, 8), "p6-b200-efa", (8, 4), 50e9),
        ("h100", "infiniband", "8x400G CX-7", (2, 16, 8), "hgx-h100", (8, 2), 50e9),
        ("h100", "infiniband", "", (2, 16, 8), "hgx-h100", (8, 2), 50e9),
        ("gb200", "nvlink+roce", "two NVL72 racks", (32, 128, 4), "nvl72-roce", (64, 2), 50e9),
        ("gb200", "nvlink", "", (16, 64, 4), "nvl72", (64, 1), 50e9),
        ("b200", "roce", "1x400G CX-7, one GPU a node", (2, 2, 1), "hgx-b200-roce", (1, 2), 50e9),
        ("gh200", "slingshot", "4x200G Slingshot-11", (2, 8, 4), "alps-gh200", (4, 2), 25e9),
        ("h100", "slingshot", "8x200G", (2, 16, 8), "alps-gh200", (8, 2), 25e9),
        ("gb300", "nvlink+infiniband", "4x800G", (36, 144, 4), "nvl72", (72, 2), 100e9),
        ("mi300x", "roce", "8x400G", (2, 16, 8), "mi300x-node", (8, 2), 50e9),
        ("b300", "infiniband", "8x800G CX-8", (2, 16, 8), "hgx-b300", (8, 2), 100e9),
    ],
)
def test_a_cluster_is_built_from_its_columns(gpu, network, links, counts, name, sizes, rate):
    made = cluster(gpu, network, links, counts)
    assert made.name == name and tuple(float(d.size) for d in made.dimension) == tuple(map(float, sizes))
    assert float(made.dimension[1].bandwidth) == pytest.approx(rate)


def test_rows_that_cannot_be_read_are_named_and_the_others_stay(tmp_path):
    found = points(
        tmp_path,
        "h100,2,16,8,infiniband,8x400G,all_reduce,2.26,default,float,1048576,71",
        "h100,2,16,8,pigeons,8x400G,all_reduce,2.26,default,float,1048576,71",
        "xyz,2,16,8,infiniband,8x400G,all_reduce,2.26,default,float,1048576,71",
        "h100,2,15,8,infiniband,8x400G,all_reduce,2.26,default,float,1048576,71",
        "h100,2,16,8,infiniband,8x400G,juggle,2.26,default,float,1048576,71",
        "h100,2,16,8,infiniband,8x400G,all_reduce,2.26,default,float,,71",
    )
    assert sorted(found.why) == [3, 4, 5, 6, 7]
    assert "pigeons" in found.why[3] and "whole nodes" in found.why[5] and "juggle" in found.why[6]
    assert found.predicted[0] > 0 and found.group[0] == "all_reduce/h100/infiniband/2"


def test_settings_choose_the_way(tmp_path):
    row = "h100,4,32,8,infiniband,8x400G,all_reduce,2.26,{},float,1073741824,5802"
    settings = (
        "default",
        "NCCL_ALGO=Ring",
        "NCCL_ALGO=Tree",
        "NCCL_NET=Socket",
        "NCCL_ALGO=allreduce:nvlstree",
    )
    plain, ring, tree, sockets, nvls = points(tmp_path, *(row.format(s) for s in settings)).predicted
    assert plain == pytest.approx(min(ring, nvls)) and tree > nvls and sockets > 5 * plain


def test_first_uses_stand_apart(tmp_path):
    row = "b200,4,32,8,efa,8x400G EFA,all_reduce,2.27,default,float,{},{}"
    found = points(tmp_path, row.format(32768, 6348), row.format(131072, 300), row.format(524288, 357))
    assert found.headline.tolist() == [False, True, True]


def test_rows_not_fitted_and_fabrics_left_out(request):
    """As the issue asks: 25 % and a median of 15 % on rows not fitted, 35 % on a fabric left out whole."""
    table = read_table(request.config.rootpath / "validation", "network/multinode.csv")
    found = held_out(multinode(table, Catalogue()))
    errors = np.abs(found.predicted / found.measured - 1)[found.headline.astype(bool)]
    assert errors.mean() < 0.25 and np.median(errors) < 0.15
    (left,) = left_out_points(table.folder, table.name, kinds=("network",))
    error = np.abs(left.predicted / left.points.measured - 1)
    assert left.refitted and error[left.family == "efa"].mean() < 0.35
    assert "sockets" not in fit_table().group("library between nodes").records


def test_one_library_over_all_networks():
    """What belongs to NCCL is the same over every network; adapters' shares and latencies are stated."""
    first, *others = (transport(name).rings for name in ("infiniband", "roce", "efa"))
    for one in others:
        assert (one.post, one.chunk, one.pieces) == (first.post, first.chunk, first.pieces)
        assert one.share["ll"] == first.share["ll"] and one.share["ll128"] == first.share["ll128"]


# ------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("links", "rate"),
    [
        ("8 x 400 Gb/s ConnectX-7", 50e9),
        ("8x400GbE", 50e9),
        ("8×400 Gbps", 50e9),
        ("8x50GB/s", 50e9),
        ("4x200G HDR", 12.5e9),
        ("2x100GbE", 3.125e9),
        ("3.2 Tbps", 50e9),
        ("3200 Gb/s per node", 50e9),
        ("400 Gb/s NDR per GPU", 50e9),
        ("two NVL72 racks", None),
        ("", None),
    ],
)
def test_adapters_of_a_node_of_eight(links, rate):
    found = adapters_of(links).of_device(8.0, 8.0, 1.0)
    assert found is None if rate is None else found == pytest.approx(rate)


def test_fewer_devices_than_a_node_holds_have_the_adapters_beside_them():
    assert adapters_of("8x400G").of_device(2.0, 8.0, 1.0) == 50e9
    assert adapters_of("2x400G").of_device(2.0, 8.0, 1.0) == 50e9
    with pytest.raises(BadValue, match="adapters of some rate"):
        adapters_of("8x0G")


@pytest.mark.parametrize(
    ("fabric", "kind"),
    [
        ("InfiniBand NDR400", "infiniband"),
        ("ib", "infiniband"),
        ("Omni-Path", "infiniband"),
        ("RoCE v2", "roce"),
        ("ethernet", "roce"),
        ("spectrum-x", "roce"),
        ("EFAv3", "efa"),
        ("AWS EFA RDMA", "efa"),
        ("Slingshot-11", "slingshot"),
        ("GPUDirect-TCPX", "tcpx"),
        ("tcpxo", "tcpx"),
        ("TCP", "sockets"),
        ("nvlink + infiniband", "infiniband"),
        ("NVL72+roce", "roce"),
    ],
)
def test_networks_by_other_names(fabric, kind):
    assert network_of(fabric) == kind


def test_unknown_names_are_refused_in_one_line():
    for bad in (lambda: network_of("pigeons"), lambda: chip_called(Catalogue(), "abacus 3000")):
        with pytest.raises(UnknownName):
            bad()
    with pytest.raises(BadValue, match="juggle"):
        pattern_of_test("juggle")


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("default", {"ring ll", "ring ll128", "ring simple", "tree ll", "tree simple", "nvls tree"}),
        ("", {"ring ll", "ring ll128", "ring simple", "tree ll", "tree simple", "nvls tree"}),
        ("NCCL_ALGO=Ring", {"ring ll", "ring ll128", "ring simple"}),
        ("NCCL_ALGO=Ring,Tree", {"ring ll", "ring ll128", "ring simple", "tree ll", "tree simple"}),
        ("NCCL_ALGO=^NVLSTree", {"ring ll", "ring ll128", "ring simple", "tree ll", "tree simple"}),
        ("NCCL_PROTO=LL", {"ring ll", "tree ll"}),
        ("NCCL_PROTO=^LL128", {"ring ll", "ring simple", "tree ll", "tree simple", "nvls tree"}),
        ("NCCL_ALGO=Tree,NCCL_PROTO=Simple", {"tree simple"}),
        ("NCCL_ALGO=allreduce:nvlstree", {"nvls tree"}),
    ],
)
def test_settings_leave_some_algorithms(setting, allowed):
    known = ("ring ll", "ring ll128", "ring simple", "tree ll", "tree simple", "nvls tree")
    assert {name for name in known if setting_of(setting).allows(name)} == allowed


def test_additions_in_switches_are_turned_on_and_off():
    for off in ("NCCL_NVLS_ENABLE=0", "NCCL_ALGO=^NVLS"):
        assert setting_of(off).in_node is False
    assert setting_of("NCCL_COLLNET_ENABLE=1").in_network is True
    assert setting_of("NCCL_COLLNET_ENABLE=0").in_network is False
    assert setting_of("default").in_network is setting_of("default").in_node is None


def test_a_chip_without_a_fabric_of_the_kind_keeps_its_own_links():
    made = cluster("h100-pcie", "infiniband", "2x400G", (2, 16, 8))
    own = Catalogue().usual_fabric("h100-pcie").dimension[0]
    assert made.dimension[0].name == own.name and made.dimension[0].bandwidth == own.bandwidth
    made = cluster("h800", "efa", "32x100G", (2, 16, 8))
    assert float(made.dimension[0].bandwidth) == 200e9


TESTS = (
    "all_reduce",
    "AllGather",
    "reduce-scatter",
    "alltoall_perf",
    "all to all",
    "broadcast",
    "reduce",
    "gather",
    "sendrecv",
)
CLUSTERS = (
    ("a100", 8, "infiniband", "4x200G HDR", 100e9),
    ("NVIDIA A100-SXM4-40GB", 8, "roce", "16x100G", 200e9),
    ("h100", 8, "infiniband", "8 x 400 Gb/s ConnectX-7", 400e9),
    ("h100", 8, "GPUDirect-TCPXO", "8x200G", 200e9),
    ("h200", 8, "EFA v3", "16x200G EFAv3", 400e9),
    ("b300", 8, "infiniband XDR", "8x800G", 800e9),
    ("gb200", 4, "infiniband", "4x400G", 200e9),
    ("gh200", 4, "Slingshot-11", "4x200G", 100e9),
    ("mi300x", 8, "roce", "8x400G Thor-2", 400e9),
    ("MI355X", 8, "Pollara", "8x400G", 400e9),
)


def test_long_messages_come_near_the_adapters_rate(tmp_path):
    """Of other networks, chips and tests than any file has; at four nodes and more trees gain nothing."""
    size = 2.0**33
    cases = [(c, t, n) for c in CLUSTERS for t in TESTS for n in (4, 16, 64)]
    rows = [
        f"{gpu},{n},{n * g},{g},{network},{links},{test},,default,float,{size:.0f},1e6"
        for (gpu, g, network, links, _), test, n in cases
    ]
    found = points(tmp_path, *rows)
    assert not found.why
    for (cluster, test, n), took in zip(cases, found.predicted[np.argsort(found.line)], strict=True):
        _, g, *_, rate = cluster
        pattern, p = pattern_of_test(test), n * g
        if pattern in ("all_to_all", "send"):
            crossing = size / (rate / g) * ((p - g) / p if pattern == "all_to_all" else 1.0)
        else:
            crossing = size / rate * (2.0 if pattern == "all_reduce" else 1.0)
        assert 0.55 < crossing / took < 1.0, (cluster, test, n, crossing / took)
