"""Hugging Face configs as models."""
