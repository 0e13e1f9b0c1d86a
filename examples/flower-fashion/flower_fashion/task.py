"""What server and clients share: the experiment of Table 3, whose data come with fedfv."""

from fedfv.experiments import Experiment
from fedfv.paper import paper_study

ROWS = {"fedfv": "fedfv-0.667-0", "fedavg": "fedavg"}


def experiment(row: str, seed: int) -> Experiment:
    """A row of Table 3."""
    (part,) = paper_study("table3").parts
    (found,) = part.find([row])
    return part.run_of(found, seed)
