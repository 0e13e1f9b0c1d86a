"""The client app: a village that trains the adapters on its own text."""

from typing import Any

from flwr.app import Context, Message, MetricRecord, RecordDict

from fedfv.flower import fair_app
from fedfv.seeding import rng
from flower_lora.model import Transformer, load_adapters
from flower_lora.task import adapted_base, checksum, score, to_send, train
from flower_lora.text import village_text


def received(message: Message, context: Context) -> tuple[Transformer, Any, int]:
    """The base of this client with the received adapters, the configuration of the round, and the village."""
    base, config = str(context.run_config["base"]), message.content.config_records["config"]
    if config["base"] != checksum(base):
        raise ValueError(f"{base} is not the base of the server, for which the adapters are.")
    model = adapted_base(base)
    load_adapters(model, message.content.array_records["arrays"].to_torch_state_dict())
    return model, config, int(context.node_config["partition-id"])


def on_training_data(message: Message, context: Context) -> float:
    """The loss of the received adapters, before this village trains them."""
    model, _, village = received(message, context)
    loss, _, _ = score(model, village_text(village, "train"))
    return loss


app = fair_app(on_training_data)


@app.train()
def train_village(message: Message, context: Context) -> Message:
    """Trains the received adapters for one epoch."""
    model, config, village = received(message, context)
    rows = village_text(village, "train")
    train(model, rows, config["lr"], rng(int(context.run_config["seed"]), "order", config["round"], village))
    metrics = MetricRecord({"num-examples": len(rows)})
    return Message(RecordDict({"arrays": to_send(model), "metrics": metrics}), reply_to=message)


@app.evaluate()
def test_village(message: Message, context: Context) -> Message:
    """Scores the received adapters on the test data of the village."""
    model, _, village = received(message, context)
    rows = village_text(village, "test")
    loss, accuracy, variance = score(model, rows)
    metrics = MetricRecord({"loss": loss, "token-accuracy": accuracy, "score-variance": variance})
    metrics["num-examples"] = len(rows)
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
