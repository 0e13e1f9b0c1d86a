"""The server app: a rule for the adapters of all villages."""

from typing import Any

import torch
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedfv import Aggregator, FedAvg, FedFV
from fedfv.flower import FairStrategy
from fedfv.tasks import NextToken
from flower_lora.task import adapted_base, checksum, to_send
from flower_lora.text import VILLAGES

RULES: dict[str, Aggregator[Any]] = {
    "fedfv": FedFV(alpha=0.1, tau=3),
    "fedavg": FedAvg(),
    "uniform": FedAvg(weighting="uniform"),
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the rule, the number of rounds and the seed in the configuration."""
    config = context.run_config
    base, seed = str(config["base"]), int(config["seed"])
    torch.manual_seed(seed)
    strategy = FairStrategy(
        RULES[str(config["rule"])],
        num_clients=len(VILLAGES),
        scored_by=NextToken.scored_by,
        evaluate_every=5,
        seed=seed,
        directory=str(config["directory"]) or None,
    )
    to_all = ConfigRecord({"base": checksum(base), "lr": float(config["lr"])})
    strategy.start(
        grid, to_send(adapted_base(base)), int(config["rounds"]), train_config=to_all, evaluate_config=to_all
    )
