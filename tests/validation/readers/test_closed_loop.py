"""What clients of a closed loop see, on numbers worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from strata.mapping.engine import engine
from strata.validation.readers.closed_loop import EngineTimes, client_times
from strata.validation.readers.online_conditions import plain_runs

ROUNDS = 10.0


def test_waits_of_a_closed_loop():
    one = np.ones(1)
    run = plain_runs(1000.0 * one, 100.0 * one, ROUNDS)
    times = EngineTimes(step=0.01 * one, token=0.01 * one, reading=0.05 * one, own=0.05 * one)
    by = engine("ideal")

    def seen(clients, made=run, slots=None):
        running = clients if slots is None else np.minimum(clients, slots)
        return [float(v[0]) for v in client_times(times, clients * one, running * one, one, made, by)]

    # alone: the prompt, half a step, and nobody's prompts
    assert seen(1.0) == pytest.approx([0.05 + 0.005, 0.01])
    assert seen(21.0)[1] == pytest.approx(0.01 + 20 * 0.05 / 100)
    assert seen(21.0, replace(run, fresh=0.5 * one))[1] == pytest.approx(0.01 + 10 * 0.05 / 100)
    assert seen(21.0, replace(run, polled=30.0 * one, burst=4.0 * one))[0] > seen(21.0)[0] + 0.14
    assert seen(21.0, replace(run, first=10.0 * one))[0] == pytest.approx(seen(21.0)[0] + 10.0 / ROUNDS)
    assert seen(42.0, slots=21.0)[0] == pytest.approx(2 * seen(21.0)[0] + 100 * seen(21.0)[1])
