"""Prices of single kernels: one pricer an op kind."""
