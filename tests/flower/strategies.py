"""Flower's own strategies, each with clients that it can work with and that know nothing of fedfv."""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Result, Strategy
from plain_app import client_app, task

from tests.flower.helpers import LocalGrid

CLIENTS, ROUNDS = 7, 6
App = Callable[[Message, Context], Message]


def new_arrays() -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in task.new_model().items()})


class Case(NamedTuple):
    """A strategy that can be made again and again, and an app for its clients."""

    make: Callable[[], Strategy]
    app: App = client_app.app
    arrays: Callable[[], ArrayRecord] = new_arrays


def with_mod(mod: Any) -> App:
    """The plain app with a mod around its training."""

    def app(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            reply: Message = mod(message, context, client_app.app)
            return reply
        return client_app.app(message, context)

    return app


def trees(message: Message, context: Context) -> Message:
    """A client whose model is a text with one tree more in each round, as that of XGBoost."""
    client = int(context.node_config["partition-id"])
    metrics = MetricRecord({"auc": 0.5 + client / 20, "num-examples": 10})
    if message.metadata.message_type != "train":
        return Message(RecordDict({"metrics": metrics}), reply_to=message)
    model = {
        "gbtree_model_param": {"num_trees": "1", "num_parallel_tree": "1"},
        "trees": [{"id": 0, "client": client}],
        "tree_info": [0],
        "iteration_indptr": [0, 1],
    }
    text = json.dumps({"learner": {"gradient_booster": {"model": model}}}).encode()
    arrays = ArrayRecord([np.frombuffer(text, dtype=np.uint8)])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def no_trees() -> ArrayRecord:
    return ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])


STRATEGIES = {
    "FedAvg": Case(flower.FedAvg),
    "FedAvgM": Case(lambda: flower.FedAvgM(server_momentum=0.5)),
    "FedAdagrad": Case(flower.FedAdagrad),
    "FedAdam": Case(flower.FedAdam),
    "FedYogi": Case(flower.FedYogi),
    "FedMedian": Case(flower.FedMedian),
    "FedTrimmedAvg": Case(flower.FedTrimmedAvg),
    "FedProx": Case(lambda: flower.FedProx(proximal_mu=0.1)),
    "Krum": Case(lambda: flower.Krum(num_malicious_nodes=1)),
    "MultiKrum": Case(lambda: flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=3)),
    "Bulyan": Case(lambda: flower.Bulyan(num_malicious_nodes=1)),
    "QFedAvg": Case(lambda: flower.QFedAvg(client_learning_rate=0.5)),
    "DifferentialPrivacyServerSideFixedClipping": Case(
        lambda: flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(), 0.1, 0.5, CLIENTS)
    ),
    "DifferentialPrivacyClientSideFixedClipping": Case(
        lambda: flower.DifferentialPrivacyClientSideFixedClipping(flower.FedAvg(), 0.1, 0.5, CLIENTS),
        with_mod(fixedclipping_mod),
    ),
    "DifferentialPrivacyServerSideAdaptiveClipping": Case(
        lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(flower.FedAvg(), 0.1, CLIENTS)
    ),
    "DifferentialPrivacyClientSideAdaptiveClipping": Case(
        lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(flower.FedAvg(), 0.1, CLIENTS),
        with_mod(adaptiveclipping_mod),
    ),
    "FedXgbBagging": Case(flower.FedXgbBagging, trees, no_trees),
    "FedXgbCyclic": Case(flower.FedXgbCyclic, trees, no_trees),
}


class SpyGrid(LocalGrid):
    """A grid that keeps copies of what is sent and of what is answered."""

    def __init__(self, app: App, clients: int) -> None:
        super().__init__(app, clients)
        self.sent: list[list[tuple[str, int, dict[str, np.ndarray]]]] = []  # type, client and arrays of each message
        self.answered: list[list[tuple[int, dict[str, np.ndarray]]]] = []  # client and arrays of each reply

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        sent = [(each.metadata.message_type, self.nodes[each.metadata.dst_node_id], _copied(each)) for each in messages]
        replies = super().send_and_receive(messages, timeout=timeout)
        self.sent.append(sent)
        self.answered.append(
            [(self.nodes.get(each.metadata.src_node_id, -1), _copied(each)) for each in replies if each.has_content()]
        )
        return replies


def _copied(message: Message) -> dict[str, np.ndarray]:
    records = [record for record in message.content.values() if isinstance(record, ArrayRecord)]
    return {name: array.numpy().copy() for record in records for name, array in record.items()}


def started(strategy: Strategy, case: Case, grid: LocalGrid | None = None, rounds: int = ROUNDS) -> Result:
    """The result of a run in which the strategy draws the same random numbers whenever it is started."""
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002  # the strategies draw from it
    grid = LocalGrid(case.app, CLIENTS) if grid is None else grid
    return strategy.start(grid, case.arrays(), num_rounds=rounds, timeout=60)


def bytes_of(result: Result) -> dict[str, bytes]:
    return {name: array.data for name, array in result.arrays.items()}
