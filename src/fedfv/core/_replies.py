"""The replies of clients, checked once."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from fedfv import linalg
from fedfv.mapped import MappedMatrix
from fedfv.matrix import Matrix, MatrixView

_OPTIONAL = ("accuracies", "trained_losses")


class Buffers(NamedTuple):
    """The tensors of a model beside its parameters, such as the statistics of BatchNorm; rules do not see them."""

    values: Float[Tensor, "*m b"]  # floating-point buffers; `step` averages them, weighted by client size
    counts: Int[Tensor, "*m c"]  # integer buffers; `step` keeps the element-wise maximum


NO_BUFFERS = Buffers(torch.zeros(0), torch.zeros(0, dtype=torch.long))


class NotFiniteError(ValueError):
    """Some clients replied with NaN or infinity, as usually happens when a model diverges."""

    def __init__(self, name: str, clients: list[int]) -> None:
        super().__init__(name, clients)
        self.name, self.clients = name, clients

    def __str__(self) -> str:
        return f"`{self.name}` must be finite, but those of clients {self.clients} are not."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replies:
    """The replies of m clients in one round; checked here and nowhere else.

    Rules may keep `updates` without a copy: do not write to the matrix afterwards.

    Args:
        round: counted from 0.
        clients: distinct ids, from 0 to one less than the number of all clients.
        updates: the global parameters minus the client's own after training, a row for each client.
        losses: the loss of the *global* model on the client's training data, before the client trained.
        sizes: numbers of training examples.
        accuracies: the accuracy, in [0, 1], of the global model on the same data before training.
        trained_losses: the loss of the client's own model after training.
        measured: other values that a rule needs, by name, see `Measure`; one number for each client.
        buffers: the buffers of the client's own model after training, a row for each client.

    A rule lists the optional fields that it needs, and `step` refuses replies without them.

    >>> Replies(
    ...     round=0,
    ...     clients=torch.tensor([4, 9]),
    ...     updates=torch.tensor([[1.0, 2.0], [torch.nan, 0.0]]),
    ...     losses=torch.tensor([0.7, 0.3]),
    ...     sizes=torch.tensor([600, 20]),
    ... )
    Traceback (most recent call last):
    fedfv.core._replies.NotFiniteError: `updates` must be finite, but those of clients [9] are not.
    """

    round: int
    clients: Int[Tensor, " m"]
    updates: Matrix
    losses: Float[Tensor, " m"]
    sizes: Real[Tensor, " m"]
    accuracies: Float[Tensor, " m"] | None = None
    trained_losses: Float[Tensor, " m"] | None = None
    measured: Mapping[str, Float[Tensor, " m"]] = field(default_factory=dict)
    buffers: Buffers | None = None
    _grams: list[Float[Tensor, "m m"]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.round, bool) or not isinstance(self.round, int) or self.round < 0:
            raise ValueError(f"`round` must be a whole number from 0, got {self.round!r}.")
        self._check_updates()
        self._check_clients()
        for name, values in ({"losses": self.losses, "sizes": self.sizes} | self.all_measured()).items():
            self._check_values(name, values)
        self._refuse("sizes", self.sizes < 0, "be at least 0")
        if not self.sizes.any():
            raise ValueError("`sizes` must not all be zero, since averages are weighted by size.")
        if self.accuracies is not None:
            self._refuse("accuracies", (self.accuracies < 0) | (self.accuracies > 1), "be in [0, 1]")
        self._refuse_not_finite("updates", linalg.finite_rows(self.updates))
        if self.buffers is not None:
            for values in self.buffers:
                if len(values) != len(self.updates):
                    rows = f"a row for each of the {len(self.updates)} updates"
                    raise ValueError(f"`buffers` must have {rows}, got {shape_of(values)}.")
                self._refuse_not_finite("buffers", values.isfinite().all(dim=1))

    def gramian(self) -> Float[Tensor, "m m"]:
        """Inner products of the updates in double precision, computed when they are first needed."""
        if not self._grams:
            self._grams.append(linalg.gramian(self.updates))
        return self._grams[0]

    def squared_lengths(self) -> Float[Tensor, " m"]:
        """The squared length of each update, without a reading of the updates if the Gramian is known."""
        return self._grams[0].diagonal() if self._grams else linalg.squared_lengths(self.updates)

    def scaled(self, factors: Float[Tensor, " m"]) -> "Replies":
        """The replies with each update multiplied by a finite factor; no update is read or copied.

        >>> replies = Replies(
        ...     round=0,
        ...     clients=torch.tensor([4, 9]),
        ...     updates=torch.tensor([[1.0, 2.0], [2.0, 0.0]]),
        ...     losses=torch.tensor([0.7, 0.3]),
        ...     sizes=torch.tensor([600, 20]),
        ... )
        >>> replies.scaled(torch.tensor([1.0, 0.5])).gramian()
        tensor([[5., 1.],
                [1., 1.]], dtype=torch.float64)
        """
        return self._changed(
            updates=MatrixView(self.updates, factors), _grams=[_scaled(K, factors) for K in self._grams]
        )

    def only(self, among: Bool[Tensor, " m"]) -> "Replies":
        """The replies of some of the clients; no update is read or copied.

        >>> replies = Replies(
        ...     round=0,
        ...     clients=torch.tensor([4, 9]),
        ...     updates=torch.tensor([[1.0, 2.0], [2.0, 0.0]]),
        ...     losses=torch.tensor([0.7, 0.3]),
        ...     sizes=torch.tensor([600, 20]),
        ... )
        >>> replies.only(torch.tensor([False, True])).losses
        tensor([0.3000])
        """
        if among.all():
            return self
        if not among.any():
            raise ValueError("`among` must mark at least one client.")
        optional = {name: getattr(self, name) for name in _OPTIONAL}
        return self._changed(
            updates=MatrixView(self.updates, chosen=among.nonzero().flatten()),
            **{name: getattr(self, name)[among] for name in ("clients", "losses", "sizes")},
            **{name: values[among] for name, values in optional.items() if values is not None},
            measured={name: values[among] for name, values in self.measured.items()},
            buffers=None if self.buffers is None else Buffers(*(values[among] for values in self.buffers)),
            _grams=[gramian[among][:, among] for gramian in self._grams],
        )

    def saying(self, **values: Tensor) -> "Replies":
        """The replies with other `losses`, `sizes` or `trained_losses`, finite as before; the Gramian stays known."""
        return self._changed(**values)

    def in_few_columns(self) -> "Replies":
        """The replies in round 0, with updates of at most m numbers that have the same Gramian; no update is read.

        A rule whose direction is a combination of the updates, with weights that follow from their inner products, does
        the same to each client here as in the first round of a run with these replies.

        >>> replies = Replies(
        ...     round=7,
        ...     clients=torch.tensor([4, 9]),
        ...     updates=torch.tensor([[3.0, 4.0, 0.0], [6.0, 8.0, 0.0]]),
        ...     losses=torch.tensor([0.7, 0.3]),
        ...     sizes=torch.tensor([600, 20]),
        ... )
        >>> replies.in_few_columns().updates
        tensor([[ 5.],
                [10.]], dtype=torch.float64)
        """
        gramian = self.gramian()
        return self._changed(round=0, updates=linalg.short_rows(gramian), buffers=None, _grams=[gramian])

    def _changed(self, **fields: Any) -> "Replies":
        changed = copy(self)  # what was checked once is not checked again
        for name, value in fields.items():
            object.__setattr__(changed, name, value)
        return changed

    def all_measured(self) -> dict[str, Float[Tensor, " m"]]:
        """All optional values that the clients reported, by name."""
        fields = {name: values for name in _OPTIONAL if (values := getattr(self, name)) is not None}
        return fields | dict(self.measured)

    def reported(self, name: str, to: object) -> Float[Tensor, " m"]:
        """The values of an optional field, or of an entry of `measured`, for a rule that needs them."""
        if (values := self.all_measured().get(name)) is None:
            raise ValueError(f"`{name}` must be in the replies, since {type(to).__name__} needs it, got None.")
        return values

    def _check_updates(self) -> None:
        updates = self.updates
        if not isinstance(updates, Tensor | MappedMatrix):
            raise ValueError(f"`updates` must be a tensor or a MappedMatrix, got {type(updates).__name__}.")
        if len(updates.shape) != 2 or 0 in updates.shape:
            raise ValueError(
                f"`updates` must be a matrix with a row for each of at least one client, got shape {shape_of(updates)}."
            )
        if not updates.dtype.is_floating_point:
            raise ValueError(f"`updates` must be floating-point numbers, got {updates.dtype}.")

    def _check_clients(self) -> None:
        clients = self.clients
        _check_vector("clients", clients, len(self.updates))
        if clients.dtype.is_floating_point or clients.dtype.is_complex or clients.dtype == torch.bool:
            raise ValueError(f"`clients` must be whole numbers, got {clients.dtype}.")
        ids = clients.sort().values
        if (repeated := ids[1:] == ids[:-1]).any():
            twice = sorted(set(ids[1:][repeated].tolist()))
            raise ValueError(f"`clients` must be distinct, but {twice} replied more than once.")
        if (clients < 0).any():
            raise ValueError(f"`clients` must be at least 0, but {clients[clients < 0].tolist()} are not.")

    def _check_values(self, name: str, values: Tensor) -> None:
        _check_vector(name, values, len(self.updates))
        if values.dtype.is_complex or values.dtype == torch.bool:
            raise ValueError(f"`{name}` must be real numbers, got {values.dtype}.")
        self._refuse_not_finite(name, values.isfinite())

    def _refuse_not_finite(self, name: str, finite: Tensor) -> None:
        if not finite.all():
            raise NotFiniteError(name, self.clients[~finite].tolist())

    def _refuse(self, name: str, bad: Tensor, rule: str) -> None:
        if bad.any():
            raise ValueError(f"`{name}` must {rule}, but those of clients {self.clients[bad].tolist()} are not.")


def as_fields(measured: Mapping[str, Float[Tensor, " m"]]) -> dict[str, Any]:
    """Arguments of `Replies` from values by name: its optional fields, and all other values in `measured`.

    >>> as_fields({"accuracies": torch.tensor([0.5]), "margins": torch.tensor([2.0])})
    {'accuracies': tensor([0.5000]), 'measured': {'margins': tensor([2.])}}
    """
    fields: dict[str, Any] = {name: values for name, values in measured.items() if name in _OPTIONAL}
    return fields | {"measured": {name: values for name, values in measured.items() if name not in _OPTIONAL}}


def _scaled(gramian: Float[Tensor, "m m"], factors: Float[Tensor, " m"]) -> Float[Tensor, "m m"]:
    return gramian * factors[:, None] * factors


def _check_vector(name: str, values: Any, m: int) -> None:
    if not isinstance(values, Tensor):
        raise ValueError(f"`{name}` must be a tensor, got {type(values).__name__}.")
    if values.shape != (m,):
        raise ValueError(f"`{name}` must have one entry for each of the {m} updates, got shape {shape_of(values)}.")


def shape_of(values: Matrix) -> tuple[int, ...]:
    return tuple(values.shape)
