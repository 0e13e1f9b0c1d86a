"""Who is there: which client each connected node is."""

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

_TELL_EVERY = 10.0  # seconds between two lines of the log that say what is waited for
_CANNOT_SAY = (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.LOAD_CLIENT_APP_EXCEPTION)  # now or later


class Roster:
    """The clients on the nodes of a grid. Each node is asked once which client it is.

    Args:
        num_clients: how many there are in all.
        wait: seconds to wait for clients.
        timeout: seconds to wait for the answers of nodes that are asked who they are.
        ttl: seconds after which such a question is given up.
    """

    def __init__(self, num_clients: int, wait: float, timeout: float, ttl: float) -> None:
        self.num_clients, self.wait, self.timeout, self.ttl = num_clients, wait, timeout, ttl
        self.duplicates: list[Rejected] = []  # nodes that are left out, since another is the same client
        self._clients: dict[int, int | None] = {}  # by node; None for one that does not say who it is
        self._failed: set[int] = set()  # nodes that did not reply when they were last asked
        self._stranger = ""  # what a node said that did not say who it is

    @property
    def clients(self) -> dict[int, int]:
        """The client on each node that has said who it is."""
        return {node: client for node, client in self._clients.items() if client is not None}

    def note(self, asked: set[int], answered: set[int]) -> None:
        """Takes note of which nodes replied."""
        self._failed = (self._failed | asked) - answered

    def there(self, grid: Grid, wanted: int) -> dict[int, int]:
        """The node of each client that is there, after a wait for as many as are wanted, but no longer than that."""
        end, told = time.monotonic() + self.wait, -math.inf
        while True:
            nodes = list(grid.get_node_ids())
            self._identify(grid, [node for node in nodes if node not in self._clients])
            self._refuse_strangers(nodes)
            there = self._one_node_each(nodes)
            now = time.monotonic()
            if len(there) >= wanted or now > end:
                return there
            if now > told + _TELL_EVERY:
                log(INFO, "waiting for clients: %d are there, %d are wanted", len(there), wanted)
                told = now
            time.sleep(1)

    def _one_node_each(self, nodes: Sequence[int]) -> dict[int, int]:
        known = {node: client for node, client in self.clients.items() if node in nodes}
        there: dict[int, int] = {}
        for node, client in known.items():
            # A client that was started again is on a second node for as long as the first is not yet missed.
            if client not in there or there[client] in self._failed:
                there[client] = node
        self.duplicates = [
            Rejected(client, "duplicate", f"node {node}, which is said to be this client, too, is left out")
            for node, client in known.items()
            if there[client] != node
        ]
        return there

    def _refuse_strangers(self, nodes: Sequence[int]) -> None:
        """Ends a run in which no client ever said who it is, and none of those that are there can."""
        if nodes and not self.clients and all(node in self._clients for node in nodes):
            raise RunError(
                f"none of the {len(nodes)} connected nodes says which client it is; one answered: {self._stranger}. "
                f"Make the client app with `fair_app` or `identify` of fedfv.flower, and start each node with a "
                f"`partition-id` from 0 to {self.num_clients - 1} in its configuration."
            )

    def _identify(self, grid: Grid, nodes: Sequence[int]) -> None:
        """Asks these nodes which client they are; one that says nothing, or is lost for now, is asked again later."""
        if not nodes:
            return
        questions = [Message(RecordDict(), node, f"{MessageType.QUERY}.{WHO}", ttl=self.ttl) for node in nodes]
        answers = list(grid.send_and_receive(questions, timeout=self.timeout))
        asked = {question.metadata.message_id: question.metadata.dst_node_id for question in questions}
        for answer in answers:
            node = asked.get(answer.metadata.reply_to_message_id)
            if node is not None and not (answer.has_error() and answer.error.code not in _CANNOT_SAY):
                self._take_down(node, answer)

    def _take_down(self, node: int, answer: Message) -> None:
        said = [] if answer.has_error() else list(answer.content.metric_records.values())
        client = said[0].get(CLIENT) if len(said) == 1 else None
        if isinstance(client, int) and 0 <= client < self.num_clients:
            self._clients[node] = client
            return
        self._clients[node] = None
        self._stranger = str(answer.error.reason).strip() if answer.has_error() else f"`{CLIENT}` is {client}"
        log(WARNING, "node %d does not say which client it is, so it is left out; see fedfv.flower.identify", node)
