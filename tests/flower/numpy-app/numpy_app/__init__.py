"""A federation that starts fast, for tests over a real network."""
