"""Names that files and logs give to tests, networks, adapters and settings between nodes."""

import numpy as np
import pytest

from strata.errors import BadValue, UnknownName
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.multinode import cluster_fabric, multinode
from strata.validation.readers.network_names import (
    adapters_of,
    asked_of,
    chip_called,
    network_of,
    pattern_of_test,
)
from strata.validation.readers.tables import read_table

HEAD = "gpu,nodes,gpus,gpus_per_node,fabric,links,op,nccl,setting,dtype,bytes,time_us\n"


def times(tmp_path, *rows):
    (tmp_path / "network").mkdir()
    (tmp_path / "network/multinode.csv").write_text(HEAD + "\n".join(rows) + "\n")
    return multinode(read_table(tmp_path, "network/multinode.csv"), Catalogue())


@pytest.mark.parametrize(
    ("links", "network", "rate"),
    [
        ("8 x 400 Gb/s ConnectX-7", "infiniband", 50e9),
        ("8x ConnectX-7 400Gb/s", "infiniband", 50e9),
        ("8x400GbE", "roce", 50e9),
        ("8×400 Gbps", "roce", 50e9),
        ("8x50GB/s", "infiniband", 50e9),
        ("8x2x200G", "roce", 50e9),
        ("4x200G HDR", "infiniband", 12.5e9),
        ("2x100GbE", "ethernet", 3.125e9),
        ("3.2 Tbps", "infiniband", 50e9),
        ("3200 Gb/s per node", "efa", 50e9),
        ("400 Gb/s NDR per GPU", "infiniband", 50e9),
        ("8 x CX-7", "infiniband NDR", 50e9),
        ("8 x CX-7 (NDR200)", "infiniband", 25e9),
        ("", "infiniband HDR", 25e9),
        ("", "infiniband", None),
    ],
)
def test_adapters_of_a_node_of_eight(links, network, rate):
    found = adapters_of(links, network).of_device(8.0, 8.0, 1.0)
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
        ("Ring/LL", {"ring ll"}),
        ("tree only", {"tree ll", "tree simple"}),
        ("LL128 disabled", {"ring ll", "ring simple", "tree ll", "tree simple", "nvls tree"}),
    ],
)
def test_settings_leave_some_algorithms(setting, allowed):
    known = ("ring ll", "ring ll128", "ring simple", "tree ll", "tree simple", "nvls tree")
    assert {name for name in known if asked_of(setting).allows(name)} == allowed


def test_additions_in_switches_are_turned_on_and_off():
    for off in ("NCCL_NVLS_ENABLE=0", "NVLS off", "no NVLS", "without NVLS", "NCCL_ALGO=^NVLS"):
        assert asked_of(off).in_node is False
    for on in ("SHARP", "SHARP on", "NCCL_COLLNET_ENABLE=1", "with SHARP enabled"):
        assert asked_of(on).in_network is True
    for off in ("SHARP off", "without SHARP", "NCCL_COLLNET_ENABLE=0", "no SHARP", "SHARP disabled"):
        assert asked_of(off).in_network is False
    assert asked_of("default").in_network is None


def test_a_chip_without_a_fabric_of_the_kind_keeps_its_own_links():
    made = cluster_fabric(Catalogue(), "h100-pcie", "infiniband", "2x400G", "", (2.0, 16.0, 8.0))
    own = Catalogue().usual_fabric("h100-pcie").dimension[0]
    assert made.dimension[0].name == own.name and made.dimension[0].bandwidth == own.bandwidth
    made = cluster_fabric(Catalogue(), "h800", "efa", "32x100G", "", (2.0, 16.0, 8.0))
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
    found = times(tmp_path, *rows)
    assert not found.why
    for (cluster, test, n), took in zip(cases, found.predicted[np.argsort(found.line)], strict=True):
        _, g, *_, rate = cluster
        pattern, p = pattern_of_test(test), n * g
        if pattern in ("all_to_all", "send"):
            crossing = size / (rate / g) * ((p - g) / p if pattern == "all_to_all" else 1.0)
        else:
            crossing = size / rate * (2.0 if pattern == "all_reduce" else 1.0)
        assert 0.55 < crossing / took < 1.0, (cluster, test, n, crossing / took)
