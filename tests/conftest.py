"""One hypothesis profile for the whole suite: the same examples on every machine, no time limit for one example."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("strata", deadline=None, derandomize=True, database=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("strata")
# The tests compile a lot and compute little: without the optimiser of machine code JAX compiles twice as fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
