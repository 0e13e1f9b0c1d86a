"""Honest clients, but for one: it reports a huge loss, and sends what leads away from what it has learned."""

from flwr.app import Array, ArrayRecord, Context, Message, MessageType, MetricRecord
from flwr.clientapp.typing import ClientAppCallable
from torch import Tensor

from fedfv.experiments import build_federation
from fedfv.flower import fair_client
from fedfv.models import build_model
from liar_app.task import LIAR, experiment

spec = experiment(rounds=1)


def data(context: Context) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    federation = build_federation(spec)
    client = int(context.node_config["partition-id"])
    return federation.examples("train", client), federation.examples("test", client)


def lie(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if context.node_config["partition-id"] != LIAR or message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    received = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
    reply = call_next(message, context)
    trained = {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}
    reply.content["arrays"] = ArrayRecord({name: Array(2 * received[name] - trained[name]) for name in trained})
    reply.content["metrics"] = MetricRecord({**reply.content.metric_records["metrics"], "loss": 1e6})
    return reply


app = fair_client(
    lambda: build_model("softmax-regression", (1, 28, 28), 3, seed=0), data, spec.training, task=spec.task, mods=[lie]
)
