"""Names of dots in a picture: beside their dots, inside the frame, none over another."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.app.render.roofline_picture import DotLabel, place_names, text_size

FRAME, FONT = (0.0, 0.0, 600.0, 300.0), 7.5
PLACES = st.lists(
    st.tuples(st.floats(100.0, 500.0), st.floats(60.0, 240.0), st.integers(3, 24)), min_size=1, max_size=6
)


def boxes_of(labels):
    dots = [(d.x - d.radius, d.y - d.radius, d.x + d.radius, d.y + d.radius) for d in labels]
    return dots, place_names(labels, dots, np.zeros((0, 2)), FRAME, FONT)


def covered(a, b):
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)


@settings(max_examples=60, deadline=None)
@given(PLACES)
def test_names_stand_free_inside_the_frame(places):
    labels = [DotLabel("x" * length, x, y, 4.0) for x, y, length in places]
    dots, boxes = boxes_of(labels)
    assert all(b[0] >= 0 and b[1] >= 0 and b[2] <= 600 and b[3] <= 300 for b in boxes)
    assert sum(covered(a, b) for a, b in itertools.combinations(boxes, 2)) == 0.0
    assert sum(covered(a, b) for a, b in itertools.product(dots, boxes)) < 5.0
    for label, box in zip(labels, boxes, strict=True):
        assert np.allclose((box[2] - box[0], box[3] - box[1]), text_size(label.text, FONT))


def test_a_dot_alone_has_its_name_to_the_right_and_at_the_edge_to_the_left():
    _, (right,) = boxes_of([DotLabel("attention", 300.0, 150.0, 4.0)])
    _, (left,) = boxes_of([DotLabel("attention", 595.0, 150.0, 4.0)])
    assert right[0] > 304.0 and left[2] < 591.0


def test_a_name_leaves_a_line_alone():
    along = np.column_stack([np.linspace(0.0, 600.0, 600), np.full(600, 150.0)])
    label = DotLabel("attention", 300.0, 150.0, 4.0)
    (box,) = place_names([label], [], along, FRAME, FONT)
    assert box[1] >= 150.0 or box[3] <= 150.0
