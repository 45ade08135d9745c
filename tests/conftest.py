"""One hypothesis profile for the whole suite: the same examples on every machine, no time limit for one example."""

from hypothesis import HealthCheck, settings

settings.register_profile("strata", deadline=None, derandomize=True, database=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("strata")
