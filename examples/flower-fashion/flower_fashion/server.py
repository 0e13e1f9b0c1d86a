"""The server app: a fair rule for the connected clients."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedfv.flower import FairStrategy
from fedfv.models import build_model
from fedfv.paper import PaperSeeding
from flower_fashion.task import ROWS, experiment

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the number of rounds in the configuration."""
    config = context.run_config
    table3 = experiment(ROWS[str(config["rule"])], int(config["seed"]))
    strategy = FairStrategy(
        table3.aggregator,
        num_clients=3,
        min_replies=2,
        seed=table3.seed,
        timeout=float(config["timeout"]),
        directory=str(config["directory"]) or None,
    )
    seed = PaperSeeding().model_seed(table3.seed)
    model = build_model("softmax-regression", (1, 28, 28), 3, seed)
    strategy.start(grid, ArrayRecord(model.state_dict()), int(config["rounds"]))
