"""The messages of a round: to which clients they go, and what is in them."""

from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedfv.core import needs
from fedfv.flower._choice import Choice
from fedfv.flower._contract import NEEDS, ROUND, SERVER_ROUND, Names, key_of
from fedfv.flower._roster import Roster


class Questions:
    """Asks clients to train or to evaluate a model, and knows whom it has asked.

    Args:
        rule: the rule, which may need more metrics than the loss and the size.
        choice: how many clients are asked, and which ones.
        names: the names in the messages.
        roster: the clients on the nodes.
        ttl: seconds after which a message expires.
        least: the number of clients to wait for.
    """

    def __init__(self, rule: Any, choice: Choice, names: Names, roster: Roster, ttl: float, least: int) -> None:
        self._needs = " ".join(map(key_of, needs(rule)))
        self._choice, self._names, self._roster, self._ttl, self._least = choice, names, roster, ttl, least
        self._sent: dict[int, Message] = {}  # the messages that are being sent, by client
        self.nodes: dict[int, int] = {}  # the node of each client that was asked

    def sent(self) -> dict[str, int]:
        """The clients that were asked, by the id that the message got when it was sent; the messages are not kept."""
        clients = {message.metadata.message_id: client for client, message in self._sent.items()}
        self._sent = {}
        return clients

    def train(self, grid: Grid, arrays: ArrayRecord, config: ConfigRecord, round: int) -> list[Message]:
        """Messages that ask the clients of a round to train the model."""
        nodes = self._roster.connected(grid, self._least)
        return self._ask(MessageType.TRAIN, nodes, self._choice.to_train(round, nodes), arrays, config, round)

    def evaluate(
        self, grid: Grid, arrays: Callable[[], ArrayRecord], config: ConfigRecord, round: int
    ) -> list[Message]:
        """Messages that ask clients to evaluate the model, after this number of rounds; arrays are made if needed."""
        if self._choice.fraction_evaluate == 0:
            return self.nothing()
        nodes = self._roster.connected(grid, self._least)
        return self._ask(MessageType.EVALUATE, nodes, self._choice.to_evaluate(round, nodes), arrays(), config, round)

    def nothing(self) -> list[Message]:
        """No message."""
        self._sent, self.nodes = {}, {}
        return []

    def _ask(
        self,
        kind: str,
        nodes: dict[int, int],
        chosen: Sequence[int],
        arrays: ArrayRecord,
        config: ConfigRecord,
        round: int,
    ) -> list[Message]:
        """The messages, in a list, since a deployment refuses an iterator."""
        config = ConfigRecord({**config, SERVER_ROUND: round + 1, ROUND: round, NEEDS: self._needs})
        content = RecordDict({self._names.arrays: arrays, self._names.config: config})
        self.nodes = {client: nodes[client] for client in chosen}
        self._sent = {client: Message(content, node, kind, ttl=self._ttl) for client, node in self.nodes.items()}
        return list(self._sent.values())
