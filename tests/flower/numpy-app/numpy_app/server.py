"""FedFV over these clients, and a note of the process that it runs in."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedfv import FedFV
from fedfv.flower import FairStrategy
from numpy_app.task import CLIENTS, INPUTS

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config: dict[str, Any] = context.run_config
    if config["process"]:
        Path(config["process"]).write_text(str(os.getpid()))
    strategy = FairStrategy(
        FedFV(alpha=config["alpha"], tau=config["tau"]),
        CLIENTS,
        fraction_evaluate=0,
        timeout=config["timeout"],
        directory=config["directory"] or None,
    )
    strategy.start(grid, ArrayRecord({"weights": Array(np.zeros(INPUTS))}), config["rounds"])
