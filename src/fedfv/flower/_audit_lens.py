"""The lens on a round of any strategy: the model that was sent, the updates, and the step that was made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message
from jaxtyping import Float
from torch import Tensor

from fedfv.core import Aggregator, Replies
from fedfv.flower._audit_updates import Updates
from fedfv.flower._inbox import read_update
from fedfv.flower._layout import Layout, kind_of
from fedfv.flower._parts import record_of
from fedfv.lens import look
from fedfv.runs import Look
from fedfv.whatif import what_if


class Model(NamedTuple):
    """The arrays of a model that are trained, and their numbers as a vector."""

    layout: Layout
    params: Float[Tensor, " d"]

    @classmethod
    def of(cls, arrays: ArrayRecord, buffers: Sequence[str]) -> "Model | None":
        """The model in these arrays; None if they have no floating-point numbers to train, like the bytes of trees."""
        trained = {name: array for name, array in arrays.items() if _is_trained(name, array, buffers)}
        if not trained:
            return None
        shapes, types = zip(*((array.shape, np.dtype(array.dtype)) for array in trained.values()), strict=True)
        layout = Layout(tuple(trained), shapes, types, tuple("parameter" for _ in trained))
        params = torch.empty(layout.size("parameter"), dtype=layout.type("parameter"))
        layout.read(ArrayRecord(trained), params)
        return cls(layout, params)

    def has_form_of(self, other: "Model") -> bool:
        """Whether both have arrays of the same names and shapes; strategies may change their types."""
        mine, others = self.layout, other.layout
        return (mine.names, mine.shapes) == (others.names, others.shapes)


def _is_trained(name: str, array: Array, buffers: Sequence[str]) -> bool:
    try:
        dtype = np.dtype(array.dtype)
    except TypeError:  # a type that NumPy does not have
        return False
    return dtype.kind == "f" and kind_of(name, dtype, buffers) == "parameter"


def arrays_in(message: Message, key: str) -> ArrayRecord:
    """The arrays of a message: those under the key, or else the only ones."""
    record = message.content.get(key)
    return record if isinstance(record, ArrayRecord) else record_of(message, ArrayRecord)


def same_arrays(one: ArrayRecord, other: ArrayRecord) -> bool:
    """Whether both hold the same bytes; nothing is decoded."""
    return one is other or (
        list(one) == list(other)
        and all(mine.data == theirs.data for mine, theirs in zip(one.values(), other.values(), strict=True))
    )


class Round:
    """The updates of a round, which wait for the model that the strategy makes of them.

    Args:
        model: the model that the clients received.
        rows: upper bound on the replies.
        folder: the folder for the updates, if they do not fit into memory.
        share: the largest share of the available memory that they may take.
    """

    def __init__(self, model: Model, rows: int, folder: Path, share: float) -> None:
        self._model = model
        self._update = torch.empty_like(model.params)
        self._clients: list[int] = []
        self._updates = Updates(rows, len(model.params), folder, share)

    def add(self, client: int, arrays: ArrayRecord) -> None:
        """Adds the update of a client; raises a `WrongReplyError` if the arrays are not a model of this form."""
        names = self._model.layout.names
        known = ArrayRecord({name: arrays[name] for name in names if name in arrays})
        read_update(known, self._model.layout, self._model.params, self._update)
        self._updates.add(self._update)
        self._clients.append(client)

    def look(self, after: Model, others: Sequence[Aggregator[Any]] = (), lr: float | None = None) -> Look | None:
        """The lens entry, given the model of the next round; None if there are no updates.

        The losses before training are not known, so clients are in the order in which they were added.

        Args:
            after: the model of the next round.
            others: rules that read no losses; the entry says what each would have done.
            lr: the clients' learning rate, if it is known.
        """
        if not self._clients:
            return None
        direction = (self._model.params - after.params).float()
        if not direction.isfinite().all():
            raise ValueError("the model that the strategy made has NaN or infinite numbers")
        m = len(self._clients)
        replies = Replies(
            round=0,
            clients=torch.tensor(self._clients),
            updates=self._updates.matrix(),
            losses=torch.zeros(m, dtype=torch.double),
            sizes=torch.ones(m, dtype=torch.long),
        )
        return Look.of(look(replies, direction), what_if(replies, others, lr=lr))

    def leads_to(self, after: Model) -> bool:
        """Whether a model can be that of the next round."""
        return after.has_form_of(self._model)
