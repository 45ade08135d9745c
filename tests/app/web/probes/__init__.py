"""Answers that only tests ask for."""
