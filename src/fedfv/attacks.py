"""Clients that lie, for experiments: who lies, when, and what they send in place of an honest reply."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fedfv.checks import Between, Finite, NotNegative, Whole, check_fields
from fedfv.core import Buffers, Clients, Replies, as_fields
from fedfv.data import Federation
from fedfv.matrix import Matrix, divided_like, whole
from fedfv.seeding import rng

__all__ = ["ATTACKS", "Attack", "AttackedClients", "Lies", "Scene", "with_flipped_labels"]

_HUGE = 1e6  # a loss that no honest client has
_ABOVE = 1.001  # a loss that is just above all others, relative to the largest of them
_TRAINED = ("updates", "losses")
_DRIFT = 0.5  # length of the part of an update that leads back to the initial model, relative to the honest update


class Scene(NamedTuple):
    """All that liars know in a round, beside the honest replies of all clients."""

    params: Float[Tensor, " d"]  # the global model of this round
    initial: Float[Tensor, " d"]  # the initial model
    train: Callable[[Float[Tensor, " d"]], Replies]  # honest replies of the liars, in ascending order, to any model
    rng: np.random.Generator  # depends on the seed of the experiment and on the round


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Who lies, and when. An attack inherits these fields and defines `replies`.

    Args:
        share: the share of all clients that lie, drawn from the seed, at least one of them; if `clients` is not set.
        clients: the ids of the clients that lie.
        first: the first round with an attack, counted from 0.
        last: the last round with an attack; None for the last round of the run.
        labels: "flipped" to train the liars on wrong labels: of C classes, c becomes C - 1 - c, and numbers change
            their sign.
    """

    share: Annotated[float, Between(0, 1, open_low=True)] = 0.1
    clients: tuple[Whole, ...] = ()
    first: Whole = 0
    last: Whole | None = None
    labels: Literal["own", "flipped"] = "own"

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "clients", tuple(self.clients))
        for client in self.clients:
            if isinstance(client, bool) or not isinstance(client, int) or client < 0:
                raise ValueError(f"`clients` of {type(self).__name__} must be whole numbers from 0, got {client!r}.")
        if self.last is not None and self.last < self.first:
            name = type(self).__name__
            raise ValueError(f"`last` of {name} must be at least `first`, which is {self.first}, got {self.last}.")

    def liars(self, num_clients: int, seed: int) -> Int[Tensor, " l"]:
        """The ids of the clients that lie, in ascending order.

        >>> Lies(share=0.2).liars(num_clients=10, seed=0)
        tensor([4, 6])
        >>> Lies(clients=(3,)).liars(num_clients=10, seed=0)
        tensor([3])
        """
        if self.clients:
            if max(self.clients) >= num_clients:
                raise ValueError(f"`clients` of an attack must be below {num_clients}, got {max(self.clients)}.")
            return torch.tensor(sorted(set(self.clients)))
        count = max(1, round(self.share * num_clients))
        drawn = rng(seed, "attack").choice(num_clients, count, replace=False)
        return torch.from_numpy(drawn).sort().values

    def is_on(self, round: int) -> bool:
        """Whether clients lie in this round."""
        return self.first <= round and (self.last is None or round <= self.last)

    def replies(self, honest: Replies, lying: Bool[Tensor, " m"], scene: Scene) -> Replies:
        """The replies of the round, in which the lying clients may send anything.

        Args:
            honest: what all clients, also the liars, would send if they did not lie, but for flipped labels.
            lying: which of these clients lie.
            scene: what else the liars know.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `replies`.")


Update = Literal["own", "negated", "negated-mean", "negated-worst", "noise", "zero", "old", "drift"]


@dataclass(frozen=True, kw_only=True)
class Lies(Attack):
    """The known lies, in any combination: about the loss, the update and the size.

    The usual length of an update is the median over the honest clients of the round.

    Args:
        loss: "huge" for 1e6, "above" for 0.1 % above the largest honest loss, "zero"; or a number.
        update: "negated" for the own update with the other sign; "negated-mean" for the mean of the honest updates with
            the other sign, and "negated-worst" for that of the honest client with the largest loss, both at the usual
            length; "noise" for a random direction of the usual length; "zero"; "old" for the own update of the initial
            model; "drift" for the own update, and half as much towards the initial model, which each round undoes a
            little of the training.
        scale: a factor of the update, after all else.
        size: the number of examples that the liars claim to have.
        together: whether the liars agree on one update, the mean of theirs.

    >>> Lies(loss="huge", update="negated").update
    'negated'
    """

    loss: Literal["own", "huge", "above", "zero"] | Finite = "own"
    update: Update = "own"
    scale: Finite = 1.0
    size: NotNegative | None = None
    together: bool = False

    def replies(self, honest: Replies, lying: Bool[Tensor, " m"], scene: Scene) -> Replies:
        """The honest replies with the lies in their place."""
        updates = honest.updates.clone()  # type: ignore[union-attr]  # clients train into a tensor
        false = self._updates(honest, lying, scene)
        if self.together:
            false = false.mean(dim=0).expand_as(false)
        updates[lying] = self.scale * false
        sizes = honest.sizes
        if self.size is not None:
            sizes = honest.sizes.double().masked_fill(lying, self.size)
        changes: dict[str, Any] = {"losses": self._losses(honest.losses, lying)}
        if honest.trained_losses is not None:
            changes["trained_losses"] = self._losses(honest.trained_losses, lying)
        return dataclasses.replace(honest, updates=updates, sizes=sizes, **changes)

    def _losses(self, losses: Float[Tensor, " m"], lying: Bool[Tensor, " m"]) -> Float[Tensor, " m"]:
        if self.loss == "own":
            return losses
        highest = losses[~lying].max() if not lying.all() else losses.max()
        values = {"huge": _HUGE, "above": float(highest * _ABOVE), "zero": 0.0}
        return losses.masked_fill(lying, values[self.loss] if isinstance(self.loss, str) else self.loss)

    def _updates(self, honest: Replies, lying: Bool[Tensor, " m"], scene: Scene) -> Float[Tensor, "l d"]:
        own = honest.updates[lying]  # type: ignore[index]
        others = ~lying if not lying.all() else lying  # without an honest client, liars lie about each other
        rows, losses = honest.updates[others], honest.losses[others]  # type: ignore[index]
        usual = rows.norm(dim=1).median()
        match self.update:
            case "negated":
                return -own
            case "negated-mean":
                return -_of_length(rows.mean(dim=0), usual).expand_as(own)
            case "negated-worst":
                return -_of_length(rows[losses.argmax()], usual).expand_as(own)
            case "noise":
                noise = torch.from_numpy(scene.rng.standard_normal(tuple(own.shape))).to(own)
                return _of_length(noise, usual)
            case "zero":
                return torch.zeros_like(own)
            case "old":
                return scene.train(scene.initial).updates  # type: ignore[return-value]
            case "drift":
                back = (scene.params - scene.initial).expand_as(own)  # an update is subtracted
                return own + _of_length(back, _DRIFT * own.norm(dim=1, keepdim=True))
        return own


def _of_length(vectors: Float[Tensor, "*l d"], length: Tensor) -> Float[Tensor, "*l d"]:
    """The vectors at this length; zeros stay zeros."""
    return torch.nn.functional.normalize(vectors, dim=-1) * length


ATTACKS: dict[str, type[Attack]] = {"lies": Lies}


@dataclass(frozen=True, eq=False)
class AttackedClients:
    """Clients of which some lie.

    Args:
        clients: the clients without lies.
        liars: the ids of the clients that lie.
        initial: the parameters of the initial model.
        misled: the clients with flipped labels, for an attack that flips them.
        seed: the seed of the experiment.
    """

    clients: Clients
    attack: Attack
    liars: Int[Tensor, " l"]
    initial: Float[Tensor, " d"]
    misled: Clients | None = None
    seed: int = 0

    def __call__(self, round: int, chosen: Int[Tensor, " m"], params: Float[Tensor, " d"], buffers: Buffers) -> Replies:
        honest = self.clients(round, chosen, params, buffers)
        lying = self.attacking(round, chosen)
        if not lying.any():
            return honest

        def train(model: Float[Tensor, " d"]) -> Replies:
            return (self.misled or self.clients)(round, chosen[lying], model, buffers)

        divided = honest.updates
        honest = _with_updates(honest, whole(divided))
        if self.misled is not None:
            honest = _with_rows(honest, lying, train(params))
        scene = Scene(params, self.initial, train, rng(self.seed, "lies", round))
        lied = self.attack.replies(honest, lying, scene)
        return _with_updates(lied, divided_like(lied.updates, divided))

    def attacking(self, round: int, chosen: Int[Tensor, " m"]) -> Bool[Tensor, " m"]:
        """Which of the chosen clients lie in this round."""
        return torch.isin(chosen, self.liars) & self.attack.is_on(round)


def _with_updates(replies: Replies, updates: Matrix) -> Replies:
    return replies if updates is replies.updates else dataclasses.replace(replies, updates=updates)


def _with_rows(replies: Replies, lying: Bool[Tensor, " m"], of_liars: Replies) -> Replies:
    """The replies with all that the liars say in their rows."""

    def mixed(values: Any, false: Any) -> Any:
        values = values.clone()
        values[lying] = false
        return values

    measured = {name: mixed(values, of_liars.all_measured()[name]) for name, values in replies.all_measured().items()}
    changes = as_fields(measured) | {name: mixed(getattr(replies, name), getattr(of_liars, name)) for name in _TRAINED}
    if replies.buffers is not None:
        changes["buffers"] = Buffers(*map(mixed, replies.buffers, of_liars.buffers or ()))
    return dataclasses.replace(replies, **changes)


def with_flipped_labels(federation: Federation) -> Federation:
    """The federation with wrong targets: of C classes, c becomes C - 1 - c, and numbers change their sign.

    Negative classes, which mark padding, stay.
    """
    targets, classes = federation.targets, federation.num_classes
    flipped = -targets if classes is None else torch.where(targets >= 0, classes - 1 - targets, targets)
    return dataclasses.replace(federation, targets=flipped)
