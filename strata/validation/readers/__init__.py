"""Readers of measured files: each predicts the rows of one kind of file, given a catalogue of names."""
