"""Fusion inside a chip, exactly: the problem, order ideals, shortest paths, CP-SAT."""
