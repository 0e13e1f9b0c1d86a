"""Table 3 of the paper on three machines."""
