"""Predictions against measurements: what `strata validate` prints, and the error intervals `strata predict` quotes."""

from strata.validation.run import points, validate

__all__ = ["points", "validate"]
