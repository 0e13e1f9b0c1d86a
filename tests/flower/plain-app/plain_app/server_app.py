"""A strategy of Flower's, and an audit beside it if there is a directory for one."""

from typing import Any

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp import strategy as strategies

from fedfv.flower import audited
from plain_app.task import new_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config: dict[str, Any] = context.run_config
    strategy: strategies.Strategy = getattr(strategies, config["strategy"])(fraction_train=config["fraction-train"])
    if config["audit"]:
        strategy = audited(strategy, config["audit"])
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({name: Array(values) for name, values in new_model().items()}),
        num_rounds=config["num-server-rounds"],
        timeout=config["timeout"],
    )
