"""Which client runs on each connected node."""

import math
import time
from collections.abc import Sequence
from logging import INFO, WARNING

from flwr.app import Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedfv.errors import RunError
from fedfv.flower._contract import CLIENT, WHO
from fedfv.flower._inbox import Rejected

_LOG_EVERY = 10.0  # seconds between two log lines while clients are awaited
_PERMANENT = (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.LOAD_CLIENT_APP_EXCEPTION)  # asking again is useless


class Roster:
    """The clients on the nodes of a grid. Each node is asked once for its client id.

    Args:
        num_clients: the number of all clients.
        wait: seconds to wait for clients to connect.
        timeout: seconds to wait for the answers of nodes that are asked for their client id.
        ttl: seconds after which such a query expires.
    """

    def __init__(self, num_clients: int, wait: float, timeout: float, ttl: float) -> None:
        self.num_clients, self.wait, self.timeout, self.ttl = num_clients, wait, timeout, ttl
        self.duplicates: list[Rejected] = []  # nodes that are left out, since another node has the same client
        self._clients: dict[int, int | None] = {}  # the client of each node; None if the node gave no valid id
        self._failed: set[int] = set()  # nodes that did not reply to their last message
        self._stranger = ""  # the answer of a node that gave no valid id

    @property
    def clients(self) -> dict[int, int]:
        """The client on each node that gave a valid id."""
        return {node: client for node, client in self._clients.items() if client is not None}

    def note(self, asked: set[int], answered: set[int]) -> None:
        """Records which of the asked nodes replied."""
        self._failed = (self._failed | asked) - answered

    def connected(self, grid: Grid, needed: int) -> dict[int, int]:
        """The node of each connected client, once `needed` clients are connected or the time to wait is over."""
        end, last_logged = time.monotonic() + self.wait, -math.inf
        while True:
            nodes = list(grid.get_node_ids())
            self._identify(grid, [node for node in nodes if node not in self._clients])
            self._refuse_strangers(nodes)
            connected = self._one_node_each(nodes)
            now = time.monotonic()
            if len(connected) >= needed or now > end:
                return connected
            if now > last_logged + _LOG_EVERY:
                log(INFO, "waiting for clients: %d are connected, %d are needed", len(connected), needed)
                last_logged = now
            time.sleep(1)

    def _one_node_each(self, nodes: Sequence[int]) -> dict[int, int]:
        known = {node: client for node, client in self.clients.items() if node in nodes}
        chosen: dict[int, int] = {}
        for node, client in known.items():
            # After a restart, a client has a second node until the network notices that the first one is gone.
            if client not in chosen or chosen[client] in self._failed:
                chosen[client] = node
        self.duplicates = [
            Rejected(client, "duplicate", f"node {node} is left out, since another node has the same client id")
            for node, client in known.items()
            if chosen[client] != node
        ]
        return chosen

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
        if not nodes:
            return
        questions = [Message(RecordDict(), node, f"{MessageType.QUERY}.{WHO}", ttl=self.ttl) for node in nodes]
        answers = list(grid.send_and_receive(questions, timeout=self.timeout))
        recipients = {question.metadata.message_id: question.metadata.dst_node_id for question in questions}
        for answer in answers:
            node = recipients.get(answer.metadata.reply_to_message_id)
            if node is not None and not (answer.has_error() and answer.error.code not in _PERMANENT):
                self._register(node, answer)

    def _register(self, node: int, answer: Message) -> None:
        records = [] if answer.has_error() else list(answer.content.metric_records.values())
        client = records[0].get(CLIENT) if len(records) == 1 else None
        if isinstance(client, int) and 0 <= client < self.num_clients:
            self._clients[node] = client
            return
        self._clients[node] = None
        self._stranger = str(answer.error.reason).strip() if answer.has_error() else f"`{CLIENT}` is {client}"
        log(WARNING, "node %d gives no valid client id, so it is left out; see fedfv.flower.identify", node)
