"""Prices of communication: collectives, transports, packets."""
