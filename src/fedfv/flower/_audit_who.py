"""Which clients take part in an audited run: those whose replies say an id, and nodes for all others."""

from collections.abc import Collection, Mapping, Sequence
from logging import INFO, WARNING

from flwr.common.logger import log

from fedfv.flower._contract import CLIENT

CLIENT_KEYS = (CLIENT, "client_id", "cid", "partition-id", "partition_id")
"""The metrics in which a client may say its id, the first that it has counts."""

_LARGEST_ID = 1e15  # up to here floating-point numbers hold whole numbers exactly
_BY_ID, _BY_NODE = 0, 1


class Who:
    """The clients of a run, numbered in the order in which they appear.

    A node keeps the id that it says first. A client with an id may move to another node, as after a restart, unless its
    old node was asked in the same round. A node that has not said an id yet, such as one that has only failed so far,
    is a client of its own, and gets the id when it says one that is new.

    Args:
        keys: the metrics in which a client may say its id.

    >>> who = Who(["partition-id"])
    >>> who.client_on(71, {"partition-id": 5.0}, asked=[71, 72]), who.client_on(72, {}, asked=[71, 72])
    (0, 1)
    >>> who.names()
    ['client 5', 'node 72']
    """

    def __init__(self, keys: Sequence[str] = CLIENT_KEYS) -> None:
        self.keys = keys
        self._ids: list[tuple[int, int]] = []  # of each client: _BY_ID and its id, or _BY_NODE and its node
        self._numbers: dict[tuple[int, int], int] = {}  # the way back
        self._on_node: dict[int, int] = {}
        self._node_of: list[int] = []
        self._announced = False

    def __len__(self) -> int:
        return len(self._ids)

    def client_on(self, node: int, said: Mapping[str, float | None], asked: Collection[int]) -> int:
        """The number of the client on a node.

        Args:
            node: the node.
            said: the metrics in its reply; empty if there is no reply.
            asked: the nodes to which messages were sent in the same round.
        """
        client, claimed = self._on_node.get(node), self._claimed(said)
        if claimed is None or (client is not None and self._ids[client][0] == _BY_ID):
            return self._new((_BY_NODE, node), node) if client is None else client
        holder = self._numbers.get((_BY_ID, claimed))
        if holder is None:
            return self._new((_BY_ID, claimed), node) if client is None else self._renamed(client, claimed)
        if self._node_of[holder] in asked:
            if client is None:
                log(
                    WARNING,
                    "audit: nodes %d and %d both say that they are client %d",
                    *(self._node_of[holder], node, claimed),
                )
            return self.client_on(node, {}, asked)
        self._on_node[node], self._node_of[holder] = holder, node
        return holder

    def order(self) -> list[int]:
        """The numbers of the clients by their ids, those with an id of their own first."""
        return sorted(range(len(self)), key=lambda client: self._ids[client])

    def name(self, client: int) -> str:
        """The name of a client: "client 3" or "node 1234"."""
        kind, number = self._ids[client]
        return f"{'client' if kind == _BY_ID else 'node'} {number}"

    def names(self) -> list[str]:
        """The names of all clients, in their order."""
        return [self.name(client) for client in self.order()]

    def announce(self) -> None:
        """Logs, once, how clients are known."""
        if self._announced or not len(self):
            return
        self._announced = True
        if any(kind == _BY_ID for kind, _ in self._ids):
            log(INFO, "audit: clients are known by the id in their metrics")
        else:
            log(
                INFO,
                "audit: no reply has a client id (%s), so clients are known by their nodes, which get another id when "
                "they are started again",
                ", ".join(self.keys),
            )

    def _claimed(self, said: Mapping[str, float | None]) -> int | None:
        values = (said.get(key) for key in self.keys)
        value = next((value for value in values if value is not None), None)
        return int(value) if value is not None and value.is_integer() and 0 <= value <= _LARGEST_ID else None

    def _new(self, identity: tuple[int, int], node: int) -> int:
        client = self._numbers[identity] = self._on_node[node] = len(self._ids)
        self._ids.append(identity)
        self._node_of.append(node)
        return client

    def _renamed(self, client: int, claimed: int) -> int:
        del self._numbers[self._ids[client]]
        self._ids[client] = (_BY_ID, claimed)
        self._numbers[_BY_ID, claimed] = client
        return client
