"""FedFV with the recommended defences."""

from typing import Any

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedfv import FedFV
from fedfv.aggregators import robust
from fedfv.flower import FairStrategy
from fedfv.models import build_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config: dict[str, Any] = context.run_config
    strategy = FairStrategy(
        robust(FedFV(alpha=0.1, tau=1)),
        num_clients=4,
        min_replies=4,
        evaluate_every=config["rounds"],
        timeout=config["timeout"],
        directory=config["directory"],
    )
    model = build_model("softmax-regression", (1, 28, 28), 3, seed=0)
    strategy.start(grid, ArrayRecord(model.state_dict()), config["rounds"])
