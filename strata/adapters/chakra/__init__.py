"""Chakra execution traces as programs."""
