"""Flower in one process: the real messages, apps and strategy, without a network between them."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor

from fedfv.data import Federation, Index
from fedfv.flower import fair_client
from fedfv.models import build_model
from fedfv.training import LocalTraining

SIZES = [7, 12, 5, 9]


class LocalGrid(Grid):
    """Nodes of one app, some of which may be lost or answer wrongly.

    Args:
        spoil: what becomes of the answer of a client in training, by id: another message, or None for silence.
    """

    def __init__(self, app: Callable[[Message, Context], Message], clients: int, first_node: int = 1000) -> None:
        self.app = app
        self.nodes = {first_node + 7 * k: k for k in reversed(range(clients))}  # in an order of their own
        self.spoil: dict[int, Callable[[Message], Message | None]] = {}
        self.silent: set[int] = set()  # nodes that are listed, and do not answer anything
        self.queries: list[int] = []  # the nodes that were asked for their client ids
        self._ids = itertools.count()
        self._answers: dict[str, Message] = {}
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a process of Flower's own has

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        assert isinstance(messages, list)  # what a deployment insists on
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message-{next(self._ids)}"
            if (answer := self._answer(message)) is not None:
                self._answers[message.metadata.message_id] = answer
        return list(self._answers)  # nobody waits for the answer of a silent node

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._answers.pop(each) for each in message_ids if each in self._answers]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        if message.metadata.message_type == "query.who":
            self.queries.append(node)
        if node not in self.nodes:
            return Message(Error(5, "node is lost"), reply_to=message)
        if node in self.silent:
            return None
        client = self.nodes[node]
        answer: Message | None
        try:
            answer = self.app(message, Context(1, node, {"partition-id": client}, RecordDict(), {}))
        except Exception as error:
            answer = Message(Error(2, str(error)), reply_to=message)
        if message.metadata.message_type == "train" and client in self.spoil:
            answer = self.spoil[client](answer)
        if answer is not None:
            answer.metadata.__dict__["_src_node_id"] = node
        return answer


def without_means(metrics: Any) -> dict[str, Any]:
    """What the strategy says of a round, without the means of what the clients say."""
    return {name: value for name, value in metrics.items() if name not in ("loss", "accuracy", "trained-loss")}


def make_federation(classes: int = 3, dtype: torch.dtype = torch.double) -> Federation:
    generator = torch.Generator().manual_seed(0)
    total = sum(SIZES)
    rows = torch.arange(2 * total).split([*SIZES, *SIZES])
    return Federation(
        inputs=torch.randn(2 * total, 6, generator=generator, dtype=dtype),
        targets=torch.randint(0, classes, (2 * total,), generator=generator),
        train=Index.of(list(rows[: len(SIZES)])),
        validation=Index.of([row[:0] for row in rows[: len(SIZES)]]),
        test=Index.of(list(rows[len(SIZES) :])),
        num_classes=classes,
    )


def make_model(dtype: torch.dtype = torch.double) -> torch.nn.Module:
    return build_model("mlp", (6,), 3, seed=0, hidden=[5]).to(dtype)


def make_app(federation: Federation, local: LocalTraining, seed: int = 0, **options: Any) -> ClientApp:
    def data(context: Context) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        client = int(context.node_config["partition-id"])
        return federation.examples("train", client), federation.examples("test", client)

    return fair_client(lambda: make_model(federation.inputs.dtype), data, local, seed=seed, **options)
