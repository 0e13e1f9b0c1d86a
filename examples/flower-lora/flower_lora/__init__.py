"""Adapters of a small transformer, trained fairly for nine villages that speak three dialects."""
