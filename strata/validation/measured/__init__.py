"""Measured files: a CSV with its rows, and a TOML of the question that a row asks and what was measured."""
