"""A client that meets the contract with nothing but Flower and numpy."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from numpy_app.task import EXAMPLES, loss, trained

app = ClientApp()


@app.query("who")
def who(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"client-id": int(context.node_config["partition-id"])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    client = int(context.node_config["partition-id"])
    weights = message.content["arrays"]["weights"].numpy()
    metrics = MetricRecord({"loss": loss(client, weights), "accuracy": 0.5, "num-examples": EXAMPLES[client]})
    weights = trained(client, weights)
    if client == context.run_config["nan"]:
        weights = np.full_like(weights, np.nan)
    if client == context.run_config["shape"]:
        weights = weights[:-1]
    arrays = ArrayRecord({"weights": Array(weights)})
    if client == context.run_config["broken"]:
        arrays["weights"].shape = ("x",)  # type: ignore[assignment]  # the decoder refuses text
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
