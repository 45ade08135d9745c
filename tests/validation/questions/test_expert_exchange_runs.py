"""Published exchanges of tokens between experts: what the rows mean, and rows that cannot be read."""

import numpy as np
import pytest

from strata.validation.measured.reader import reader_of
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

HEAD = "source,gpu,fabric,kernel,phase,ep,gpus_per_node,format,bandwidth_GBs,latency_us,sms\n"
# DeepEP (https://github.com/deepseek-ai/DeepEP), README.md and docs/legacy.md
PUBLISHED = """a (V2),h800/h100 (SM90),infiniband CX7,normal,dispatch,16,8,fp8,90,,12
a (V1),h800,infiniband 400G,normal,dispatch,16,8,fp8,43,,20
a (V1),h800,infiniband 400G,normal,combine,64,8,bf16,50,,20
a (V2),b200 (SM100),nvlink,normal,combine,8,8,bf16,675,,24
a (V1),h800,infiniband 400G,low_latency,combine,256,8,bf16,40,360,
"""


def read(folder, rows):
    (folder / "network").mkdir(exist_ok=True)
    (folder / "network/expert_exchange.csv").write_text(HEAD + rows, encoding="utf-8")
    name = "network/expert_exchange.csv"
    return reader_of(name, Catalogue())(read_table(folder, name), Catalogue())


def test_published_rows_are_met_with_nothing_fitted_to_them(tmp_path):
    points = read(tmp_path, PUBLISHED)
    assert points.why == {}
    order = np.argsort(points.line)
    assert list(points.rate[order]) == [True, True, True, True, False]  # a latency is counted once
    assert points.group[order][0] == "dispatch/h800/h100 (SM90)/infiniband CX7"
    errors = points.predicted / points.measured - 1.0
    assert np.max(np.abs(errors)) < 0.12


def test_other_chips_and_adapters_have_a_price_and_odd_rows_a_reason(tmp_path):
    good = [
        "x,mi300x,xgmi,normal,dispatch,8,8,fp8,300,,80",
        "x,mi355x,roce 400G,Low-Latency,combine,16,8,bf16,,120,",
        "x,gb200,nvlink,normal,dispatch,32,4,fp8,600,,24",
        "x,h200,roce 3200G,high_throughput,combine,16,8,,80,,",
        "x,h200,roce 16x200G,normal,combine,16,8,,80,,",
        "x,h200,efa 16x200G,normal,combine,16,8,,80,,",
    ]
    odd = {
        "x,h99,nvlink,normal,dispatch,8,8,fp8,300,,24": "no chip called 'h99'",
        "x,h200,roce,normal,dispatch,12,8,bf16,30,,24": "whole nodes",
        "x,h200,roce,fast,combine,16,8,bf16,30,,24": "kernel must be",
        "x,h200,roce,normal,combine,16,8,int3,30,,24": "no precision called",
        "x,h200,roce,normal,combine,,8,,30,,24": "is empty",
        "x,,roce,normal,combine,16,8,,30,,24": "no chip called",
        "x,h200,roce,low_latency,combine,1,8,,60,,": "2 ranks or more",
    }
    points = read(tmp_path, "\n".join([*good, *odd]) + "\n")
    read_rows = points.line < 2 + len(good)
    assert np.all(points.predicted[read_rows] > 0) and np.all(points.predicted[~read_rows] == 0)
    for line, words in enumerate(odd.values(), 2 + len(good)):
        assert words in points.why[line]
    named = dict(zip(points.line, points.predicted, strict=True))
    assert named[5] == pytest.approx(named[6], rel=1e-9)  # 3200 Gb/s of a node of eight are 400 a rank
    assert named[7] < named[6]  # the latency of the network that is named, not of the usual one
