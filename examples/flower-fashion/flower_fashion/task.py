"""The experiment of Table 3, which server and clients share; its data come with fedfv."""

from fedfv.experiments import Experiment
from fedfv.paper import paper_study

ROWS = {"fedfv": "fedfv-0.667-0", "fedavg": "fedavg"}


def experiment(row: str, seed: int) -> Experiment:
    """The experiment of a row of Table 3."""
    (part,) = paper_study("table3").parts
    (study_row,) = part.find([row])
    return part.run_of(study_row, seed)
