"""How many clients train and evaluate in a round, and which ones."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedfv.seeding import rng


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The choice of clients, drawn from the seed and the ids of the connected clients, in whatever order they came."""

    num_clients: int
    seed: int
    count: int | None
    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int | None

    def __post_init__(self) -> None:
        for name in ("fraction_train", "fraction_evaluate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be in [0, 1], got {getattr(self, name)}.")
        least = {"num_clients": 1, "min_train_nodes": 0, "min_evaluate_nodes": 0, "min_available_nodes": 0}
        for name, low in least.items():
            number = getattr(self, name)
            if number is not None and (not isinstance(number, int) or number < low):
                raise ValueError(f"`{name}` must be a whole number from {low}, got {number!r}.")
        if self.count is not None and not 1 <= self.count <= self.num_clients:
            raise ValueError(f"`count` must be from 1 to the {self.num_clients} clients, got {self.count}.")

    def at_start(self) -> int:
        """The number of clients to wait for at the start: a full round of them, if nothing else is said."""
        return self._trainers(self.num_clients) if self.min_available_nodes is None else self.min_available_nodes

    def to_train(self, round: int, connected: Iterable[int]) -> list[int]:
        """The clients that train in a round."""
        connected = sorted(connected)
        return self._drawn("sample", round, connected, self._trainers(len(connected)))

    def to_evaluate(self, round: int, connected: Iterable[int]) -> list[int]:
        """The clients that evaluate the model after this number of rounds."""
        connected = sorted(connected)
        count = _share(self.fraction_evaluate, len(connected), self.min_evaluate_nodes)
        return self._drawn("evaluate", round, connected, count)

    def _trainers(self, connected: int) -> int:
        return self.count or _share(self.fraction_train, connected, self.min_train_nodes)

    def _drawn(self, why: str, round: int, connected: list[int], count: int) -> list[int]:
        drawn = rng(self.seed, why, round).choice(connected, min(count, len(connected)), replace=False)
        return sorted(drawn.tolist())


def _share(fraction: float, connected: int, least: int) -> int:
    """As in Flower's own strategies: the share, rounded down, but at least some; none for a share of 0."""
    return max(int(fraction * connected + 1e-9), least) if fraction else 0
