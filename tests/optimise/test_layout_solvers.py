"""Solvers of factor graphs agree with each other, and with all choices tried one by one."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strata.optimise.layouts.conditioning import ConditionedSearch, Messages
from strata.optimise.layouts.factor_graph import (
    Assignment,
    Factor,
    FactorGraph,
    eliminated,
    elimination_order,
    restricted,
    surviving,
)


def random_graph(seed, variables=6, options=3, factors=8, forbidden=0.1):
    random = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(variables)]
    domains = {v: int(random.integers(1, options + 1)) for v in names}
    made = [Factor((v,), random.random(n)) for v, n in domains.items()]
    for _ in range(factors):
        scope = tuple(random.choice(names, size=int(random.integers(2, 4)), replace=False))
        table = random.random([domains[v] for v in scope])
        table[(random.random(table.shape) < forbidden) & (np.indices(table.shape).sum(0) > 0)] = np.inf
        made.append(Factor(scope, table))
    return FactorGraph(domains, made)


def value(graph, choice):
    """The sum of the tables at a choice."""
    return float(sum(f.table[tuple(choice[v] for v in f.scope)] for f in graph.factors))


def exhaustive(graph):
    """The best of all choices, one by one."""
    names = list(graph.domains)
    every = itertools.product(*(range(graph.domains[n]) for n in names))
    best = min((dict(zip(names, c, strict=True)) for c in every), key=lambda choice: value(graph, choice))
    return Assignment(best, value(graph, best))


@settings(max_examples=50, deadline=None)
@given(some.integers(0, 10**6))
def test_elimination_equals_all_choices(seed):
    graph = random_graph(seed)
    found, truth = eliminated(graph), exhaustive(graph)
    assert found.value == pytest.approx(truth.value)
    assert value(graph, found.choice) == pytest.approx(found.value)


@settings(max_examples=50, deadline=None)
@given(some.integers(0, 10**6))
def test_dead_end_elimination_keeps_a_best_choice(seed):
    graph = random_graph(seed)
    alive = surviving(graph)
    assert eliminated(restricted(graph, alive)).value == pytest.approx(eliminated(graph).value)


@settings(max_examples=30, deadline=None)
@given(some.integers(0, 10**6))
def test_messages_bound_every_choice_from_below(seed):
    graph = random_graph(seed, forbidden=0.0)
    messages, best = Messages(graph), exhaustive(graph)
    last = -np.inf
    for _ in range(5):
        messages.sweep()
        bound, costs = messages.bounds()
        assert last - 1e-9 <= bound <= best.value + 1e-9
        assert all(costs[v][k] <= best.value + 1e-9 for v, k in best.choice.items())
        last = bound


def test_conditioning_agrees_with_elimination(monkeypatch):
    monkeypatch.setattr("strata.optimise.layouts.conditioning.LEAF_LIMIT", 200)
    monkeypatch.setattr("strata.optimise.layouts.conditioning.NEAR_LIMIT", 50)
    wide = (random_graph(seed, variables=10, options=4, factors=16) for seed in range(24))
    for graph in [graph for graph in wide if elimination_order(graph)[2] > 200][:12]:
        search = ConditionedSearch(graph, list(graph.domains), time.perf_counter() + 30).run()
        assert search.proved
        assert search.best.value == pytest.approx(eliminated(graph).value)


def test_a_search_out_of_time_gives_its_best_and_a_true_bound(monkeypatch):
    monkeypatch.setattr("strata.optimise.layouts.conditioning.LEAF_LIMIT", 60)
    graph = random_graph(3, variables=10, options=4, factors=16)
    search = ConditionedSearch(graph, list(graph.domains), 0.0).run()
    assert search.bound <= eliminated(graph).value + 1e-9
    assert not search.proved or search.best.value == pytest.approx(eliminated(graph).value)
