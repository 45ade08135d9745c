"""Fits of a few physical quantities of chips, transports and engines to measured rows."""
