"""An app like those that `flwr new` makes."""
