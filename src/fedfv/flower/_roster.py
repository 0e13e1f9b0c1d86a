"""Which client runs on each connected node."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from logging import INFO, WARNING

from flwr.app import Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedfv.errors import RunError
from fedfv.flower._contract import CLIENT, WHO
from fedfv.flower._inbox import UNANSWERED, Rejected
from fedfv.flower._parts import WrongReplyError, one_line, record_of, shown

_NODE = "node "  # before the id of a node, in the name of a client that has no other
_NO_ID = "node %d gives no valid client id, so it is left out; see fedfv.flower.identify"
_LOG_EVERY = 10.0  # seconds between two log lines while clients are awaited
_PERMANENT = (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.LOAD_CLIENT_APP_EXCEPTION)  # asking again is useless


class Roster:
    """The clients on the nodes of a grid. Each node is asked once for its client id.

    If no node has an id to give, as with an app that is not made with `identify`, each node is a client of its own, in
    the order of the node ids, for as long as it is connected.

    The first node with an id holds it for as long as it is connected. If the holder did not reply to its last message,
    and another connected node has the same id, the holder is asked again: it keeps the id if it answers, and loses it
    to the other node if not. Hence a client that was restarted is found again before the network notices that its old
    node is gone, and a node that claims the id of another client gets it only when that client is silent.

    Args:
        num_clients: the number of all clients.
        wait: seconds to wait for clients to connect.
        timeout: seconds to wait for the answers of nodes that are asked for their client id.
        ttl: seconds after which such a query expires.
        names: the names of the clients in the records of a run that goes on; a node keeps its client.
    """

    def __init__(self, num_clients: int, wait: float, timeout: float, ttl: float, names: Sequence[str] = ()) -> None:
        self.num_clients, self.wait, self.timeout, self.ttl = num_clients, wait, timeout, ttl
        self._nameless: set[int] = set()  # nodes whose app does not answer the question
        self._numbered = {name: client for client, name in enumerate(names) if name.startswith(_NODE)}
        self.duplicates: list[Rejected] = []  # nodes that are left out, since another node has the same client
        self._clients: dict[int, int | None] = {}  # the client of each node; None if the node gave no valid id
        self._holders: dict[int, int] = {}  # the node of each client
        self._failed: set[int] = set()  # nodes that did not reply to their last message
        self._stranger = ""  # the answer of a node that gave no valid id

    @property
    def clients(self) -> dict[int, int]:
        """The client on each node that gave a valid id."""
        return {node: client for node, client in self._clients.items() if client is not None}

    def names(self) -> list[str]:
        """The names of all clients, if they are nodes; an id needs no name."""
        nodes = {client: name for name, client in self._numbered.items()}
        return [nodes.get(client, f"client {client}") for client in range(self.num_clients)] if nodes else []

    def note(self, asked: Mapping[int, int], rejected: Iterable[Rejected]) -> None:
        """Records which nodes replied, of those that were asked; these are given by client."""
        unanswered = {asked[client] for client, kind, _ in rejected if kind in UNANSWERED}
        self._failed = (self._failed - {*asked.values()}) | unanswered

    def connected(self, grid: Grid, needed: int) -> dict[int, int]:
        """The node of each connected client, once `needed` clients are connected or the time to wait is over."""
        end, last_logged = time.monotonic() + self.wait, -math.inf
        while True:
            nodes = list(grid.get_node_ids())
            self._identify(grid, [node for node in nodes if node not in self._clients])
            connected = self._one_node_each(grid, nodes)
            now = time.monotonic()
            if len(nodes) >= needed or now > end:
                self._number(nodes)
                connected = connected or self._one_node_each(grid, nodes)
                self._refuse_strangers(nodes)
            if len(connected) >= needed or now > end:
                return connected
            if now > last_logged + _LOG_EVERY:
                log(INFO, "waiting for clients: %d are connected, %d are needed", len(connected), needed)
                last_logged = now
            time.sleep(1)

    def _one_node_each(self, grid: Grid, nodes: Sequence[int]) -> dict[int, int]:
        claims = self._claims(nodes)
        for client, claimants in claims.items():
            if self._holders.get(client) not in claimants:
                self._holders[client] = claimants[0]
        self._ask_again(grid, {client: claimants for client, claimants in claims.items() if len(claimants) > 1})
        chosen = {client: self._holders[client] for client in claims}
        self.duplicates = [
            Rejected(client, "duplicate", f"node {node} is left out, since node {chosen[client]} has the same id")
            for client, claimants in claims.items()
            for node in claimants
            if node != chosen[client]
        ]
        return chosen

    def _ask_again(self, grid: Grid, rivals: Mapping[int, Sequence[int]]) -> None:
        """Gives the client of each holder that is silent to the next of its rivals."""
        doubted = {self._holders[client]: client for client in rivals if self._holders[client] in self._failed}
        for node, answer in self._ask(grid, list(doubted)):
            if self._client_of(answer) == doubted[node]:
                self._failed.discard(node)
        for node in self._failed.intersection(doubted):
            client, others = doubted[node], rivals[doubted[node]]
            heir = self._holders[client] = others[(others.index(node) + 1) % len(others)]
            self._failed.discard(heir)  # whatever it did as the holder before
            log(WARNING, "client %d is on node %d now, since node %d does not answer", client, heir, node)

    def _claims(self, nodes: Iterable[int]) -> dict[int, list[int]]:
        """The connected nodes of each client, in the order in which they gave their ids."""
        claims: dict[int, list[int]] = {}
        for node, client in self.clients.items():
            if node in nodes:
                claims.setdefault(client, []).append(node)
        return claims

    def _number(self, nodes: Sequence[int]) -> None:
        """Makes each nameless node a client, or leaves it out if other nodes have told their ids."""
        told = any(client is not None and node not in self._nameless for node, client in self._clients.items())
        for node in sorted(self._nameless.intersection(nodes)):
            if told:
                self._nameless.remove(node)
                log(WARNING, _NO_ID, node)
            elif self._clients[node] is None:
                self._clients[node] = self._number_of(node, nodes)

    def _number_of(self, node: int, nodes: Sequence[int]) -> int | None:
        """The client of a nameless node: the one that it was before, a new one, or one whose node is gone."""
        if (name := f"{_NODE}{node}") not in self._numbered:
            taken = {*self._numbered.values()}
            free = [client for client in range(self.num_clients) if client not in taken]
            if not free:
                here = {f"{_NODE}{other}" for other in nodes}
                gone = [other for other in self._numbered if other not in here]
                if not gone:
                    log(WARNING, "node %d is left out, since `num_clients` is %d", node, self.num_clients)
                    return None
                free = [self._numbered.pop(gone[0])]
            self._numbered[name] = free[0]
            log(
                WARNING,
                "node %d does not say who it is, so it is client %d until it restarts; see fedfv.flower.identify",
                *(node, free[0]),
            )
        return self._numbered[name]

    def _refuse_strangers(self, nodes: Sequence[int]) -> None:
        """Ends the run if no client ever gave a valid id, and no connected node can."""
        if nodes and not self.clients and all(node in self._clients for node in nodes):
            raise RunError(
                f"none of the {len(nodes)} connected nodes gives a valid client id; one answered: {self._stranger}. "
                f"Make the client app with `fair_app` or `identify` of fedfv.flower, and start each node with a "
                f"`partition-id` from 0 to {self.num_clients - 1} in its configuration."
            )

    def _identify(self, grid: Grid, nodes: Sequence[int]) -> None:
        """Asks these nodes for their client ids; a node that does not answer, or is lost for now, is asked again."""
        for node, answer in self._ask(grid, nodes):
            if answer.has_error() and answer.error.code not in _PERMANENT:
                continue
            client = self._clients[node] = self._client_of(answer)
            if client is None and answer.has_error():
                self._nameless.add(node)
                self._stranger = _described(answer)
            elif client is None:
                self._stranger = _described(answer)
                log(WARNING, _NO_ID, node)

    def _ask(self, grid: Grid, nodes: Sequence[int]) -> list[tuple[int, Message]]:
        """The answers of these nodes to the question for their client ids."""
        if not nodes:
            return []
        questions = [Message(RecordDict(), node, f"{MessageType.QUERY}.{WHO}", ttl=self.ttl) for node in nodes]
        answers = list(grid.send_and_receive(questions, timeout=self.timeout))
        recipients = {question.metadata.message_id: question.metadata.dst_node_id for question in questions}
        pairs = [(recipients.get(answer.metadata.reply_to_message_id), answer) for answer in answers]
        return [(node, answer) for node, answer in pairs if node is not None]

    def _client_of(self, answer: Message) -> int | None:
        """The client id in an answer, if it is a valid one."""
        client = _claimed(answer)
        return client if isinstance(client, int) and 0 <= client < self.num_clients else None


def _claimed(answer: Message) -> object:
    """The client id in an answer, whatever a node has put there."""
    try:
        return record_of(answer, MetricRecord).get(CLIENT) if answer.has_content() else None
    except WrongReplyError:
        return None


def _described(answer: Message) -> str:
    return one_line(answer.error.reason) if answer.has_error() else f"`{CLIENT}` is {shown(_claimed(answer))}"
