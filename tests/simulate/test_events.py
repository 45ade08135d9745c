"""The event engine: order, room, priorities, and one line for what cannot run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strata.base.errors import BadValue, UnknownName
from strata.simulate.events import Task, run_tasks


def starts(tasks, *resources):
    return {t.task.name: t.start for t in run_tasks(tasks, resources).tasks}


def on(name, duration, *resources, **more):
    return Task(name=name, duration=duration, resources=resources, **more)


def test_a_resource_serves_those_that_wait_longest_first():
    tasks = [on("a", 3, "r"), on("late", 1, "r", after=("tick",)), on("tick", 1), on("b", 3, "r")]
    assert starts(tasks, "r") == {"a": 0, "tick": 0, "b": 3, "late": 6}


def test_priorities_count():
    tasks = [on("b", 1, "r", priority=2), on("first", 1, "r"), on("a", 1, "r", priority=1)]
    assert starts(tasks, "r") == {"first": 0, "a": 1, "b": 2}


def test_a_task_that_waits_for_one_resource_holds_no_other():
    tasks = [on("long", 5, "link"), on("both", 1, "core", "link"), on("short", 2, "core")]
    found = starts(tasks, "core", "link")
    assert found == {"long": 0, "short": 0, "both": 5}


def test_tasks_of_no_length_pass_at_once_in_order():
    tasks = [on("a", 0, "r"), on("b", 0, "r", after=("a",)), on("c", 0, after=("b",)), on("d", 1, "r")]
    assert set(starts(tasks, "r").values()) <= {0, 1}
    assert run_tasks(tasks, ["r"]).time == 1


@pytest.mark.parametrize(
    ("tasks", "kind", "said"),
    [
        ([on("a", 1, "cores")], UnknownName, "no resource of task 'a' called 'cores'; nearest: core"),
        ([on("a", 1, "core", after=("b",))], UnknownName, "no task that 'a' comes after called 'b'"),
        ([on("a", -1.0, "core")], BadValue, "duration of at least 0 s"),
        ([on("a", float("nan"))], BadValue, "duration of at least 0 s"),
        ([on("a", 1), on("a", 2)], BadValue, "a name of its own"),
        (
            [on("a", 1, after=("c",)), on("b", 1, after=("a",)), on("c", 1, after=("b",))],
            BadValue,
            "tasks wait for each other in a circle: a > b > c > a",
        ),
    ],
)
def test_what_cannot_run_is_said_in_a_line(tasks, kind, said):
    with pytest.raises(kind) as error:
        run_tasks(tasks, ["core"])
    assert said in str(error.value) and "\n" not in str(error.value)


@settings(max_examples=60, deadline=None)
@given(some.data())
def test_schedules_keep_their_laws(data):
    """Nothing starts before what it comes after, no resource serves more than it can, no time is lost where
    all wait, and a second run is the same.
    """
    count = data.draw(some.integers(1, 14))
    tasks = []
    for i in range(count):
        after = data.draw(some.sets(some.integers(0, i - 1), max_size=3)) if i else set()
        tasks.append(
            on(
                f"t{i}",
                data.draw(some.integers(0, 5)),
                *data.draw(some.sampled_from([(), ("a",), ("b",), ("a", "b")])),
                after=tuple(f"t{j}" for j in after),
                priority=data.draw(some.integers(0, 2)),
            )
        )
    resources = ["a", "b"]
    found = run_tasks(tasks, resources)
    at = found.by_name
    assert [(t.task.name, t.start) for t in found.tasks] == [
        (t.task.name, t.start) for t in run_tasks(tasks, resources).tasks
    ]
    for t in found.tasks:
        assert t.end == t.start + t.task.duration
        assert all(at[name].end <= t.start for name in t.task.after)
    for r in resources:
        held = [t for t in found.tasks if r in t.task.resources and t.end > t.start]
        for t in held:
            assert sum(o.start <= t.start < o.end for o in held) <= 1
    for t in found.tasks:  # a task that could start earlier would have
        ready = max((at[name].end for name in t.task.after), default=0)
        ends = {o.end for o in found.tasks} | {0}
        assert t.start == ready or t.start in ends
