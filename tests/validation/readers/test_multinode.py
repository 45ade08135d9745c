"""Clusters of nccl-tests between nodes: what the columns mean, and rows that cannot be read."""

import numpy as np
import pytest

from strata.hardware.transport import transport
from strata.validation.fit.networks import calibrate_networks
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import held_out
from strata.validation.readers.multinode import cluster_fabric, multinode
from strata.validation.readers.tables import read_table

HEAD = "gpu,nodes,gpus,gpus_per_node,fabric,links,op,nccl,setting,dtype,bytes,time_us\n"


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
    made = cluster_fabric(Catalogue(), gpu, network, links, "default", tuple(map(float, counts)))
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
    fabrics = table.text("fabric").astype(str)
    fitted, outcomes = calibrate_networks(table.keep(fabrics != "efa"))
    left = multinode(table.keep(fabrics == "efa"), Catalogue(transports=fitted))
    assert np.abs(left.predicted / left.measured - 1)[left.headline.astype(bool)].mean() < 0.35
    assert "sockets" not in outcomes


def test_one_library_over_all_networks():
    """What belongs to NCCL is the same over every network; adapters' shares and latencies are stated."""
    first, *others = (transport(name).rings for name in ("infiniband", "roce", "efa"))
    for one in others:
        assert (one.post, one.chunk, one.pieces) == (first.post, first.chunk, first.pieces)
        assert one.share["ll"] == first.share["ll"] and one.share["ll128"] == first.share["ll128"]
