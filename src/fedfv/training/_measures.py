"""The values that clients measure beside the loss: those that the rule needs, and no others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from fedfv.core import Measure, Seen, as_fields

Value = Callable[[Seen], Tensor]
"""Computes a number for each example."""


@dataclass(frozen=True)
class Measures:
    """The measures of each client, by name; refuses those that simulated clients cannot compute."""

    by_name: Mapping[str, Measure | None]

    def __post_init__(self) -> None:
        for name, measure in self.by_name.items():
            if measure is None:
                raise ValueError(f"`{name}` has no `Measure`, so only clients on a network can report it.")

    def values(self, *, after: bool) -> list[Value]:
        """The functions that compute the values before, or after, training."""
        return [measure.of for measure in self._in_order().values() if measure.after == after]

    def fields(self, means: Sequence[Float[Tensor, " m"]]) -> dict[str, Any]:
        """Fields of `Replies` from means: first of all values before training, then of all values after it."""
        pairs = zip(self._in_order().items(), means, strict=True)
        return as_fields({name: values.clamp(measure.low, measure.high) for (name, measure), values in pairs})

    def _in_order(self) -> dict[str, Measure]:
        known = {name: measure for name, measure in self.by_name.items() if measure is not None}
        return dict(sorted(known.items(), key=lambda item: item[1].after))
