"""The server's model as Flower arrays, which are serialised once a round."""

from typing import Any

from flwr.app import ArrayRecord
from jaxtyping import Float
from torch import Tensor

from fedfv.core import ServerState, answer
from fedfv.flower._layout import Layout


class Outgoing:
    """The server and its model as arrays to send.

    Args:
        layout: the layout of the model.
        rule: the rule whose answer is evaluated.
        server: the current state of the server.
    """

    def __init__(self, layout: Layout, rule: Any, server: ServerState[Any]) -> None:
        self._layout, self._rule = layout, rule
        self.move(server)

    def move(self, server: ServerState[Any]) -> None:
        """Replaces the server by its state after the next round."""
        self.server = server
        self._trained: ArrayRecord | None = None
        self._answer: ArrayRecord | None = None

    def forget(self) -> None:
        """Frees the arrays, which are made again when they are asked for."""
        self._trained = self._answer = None

    @property
    def trained(self) -> ArrayRecord:
        """The model that clients train."""
        if self._trained is None:
            self._trained = self._record(self.server.params)
        return self._trained

    @property
    def answer(self) -> ArrayRecord:
        """The model that is evaluated, the rule's answer: for most rules the one that clients train."""
        if (params := answer(self._rule, self.server)) is self.server.params:
            return self.trained
        if self._answer is None:
            self._answer = self._record(params)
        return self._answer

    def _record(self, params: Float[Tensor, " d"]) -> ArrayRecord:
        return self._layout.record(params, self.server.buffers)
