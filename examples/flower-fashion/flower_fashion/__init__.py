"""Table 3 of the paper with three clients on a network."""
