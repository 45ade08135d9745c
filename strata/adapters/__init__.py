"""Readers of files that other tools write, as models and programs."""
