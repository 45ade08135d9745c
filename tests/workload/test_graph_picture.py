"""Pictures of graphs: every kernel a box, every tensor an edge, nothing on top of another."""

import itertools
from xml.etree import ElementTree

import pytest

import strata as st
from strata.params import data_folders
from strata.workload.graph_layers import layered
from strata.workload.graph_picture import graph_dot, graph_svg
from strata.workload.program import program

SHIPPED = sorted(path.stem for folder in data_folders("programs") for path in folder.glob("*.toml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_kernel_is_drawn_once(name):
    graph = program(name).trace(st.forward(1.0))
    text = graph_svg(graph, title=name)
    assert text == graph_svg(graph, title=name) and "nan" not in text
    said = [node.text for node in ElementTree.fromstring(text).iter() if node.tag.endswith("text")]
    for _, op in graph.ops():
        assert said.count(op.name) == 1 or len(op.name) > 28
    dot = graph_dot(graph)
    edges = sum(len(set(op.inputs)) for _, op in graph.ops())
    assert dot.count(" -> ") == edges


def test_language_models_and_both_passes_are_drawn():
    forward = graph_svg(st.model("llama-3-8b").trace(st.prefill(1.0, 1024.0)))
    both = graph_svg(program("gpt3-layer").trace(st.train(1.0, 1.0)))
    assert "attention.full x 32" in forward and "layer.backward" in both
    ElementTree.fromstring(both)


def test_partitions_stand_on_ground_of_their_own():
    graph = program("gpt3-layer").trace(st.forward(1.0))
    plain, framed = graph_svg(graph), graph_svg(graph, [["q", "k"], ["up", "gelu"]])
    assert plain.count("<g ") == 0 and framed.count("<g ") == 2
    assert "partition 2" in framed and "partition 3" not in framed


def test_boxes_of_a_layer_do_not_touch_and_edges_lead_down():
    nodes = [f"n{i}" for i in range(12)]
    edges = [(f"n{i}", f"n{j}") for i in range(12) for j in range(i + 1, 12) if (i * 7 + j * 5) % 4 == 0]
    drawn = layered(nodes, edges, dict.fromkeys(nodes, 100.0), 20.0, 80.0)
    for a in nodes:
        for b in nodes:
            if a < b and drawn.at[a][1] == drawn.at[b][1]:
                assert abs(drawn.at[a][0] - drawn.at[b][0]) >= 120.0 - 1e-9
    for path in drawn.paths.values():
        assert all(above[1] < below[1] for above, below in itertools.pairwise(path))
    assert min(x for x, _ in drawn.at.values()) >= 50.0 - 1e-9
