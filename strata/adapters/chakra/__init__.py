"""Chakra execution traces as programs, and steps as such traces."""
