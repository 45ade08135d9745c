"""Layouts and fusion together: one search, one certificate."""
