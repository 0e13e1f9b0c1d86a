"""A client that lies, on a network."""
