"""The laws of a sampler."""

from dataclasses import is_dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from fedfv.sampling import Sampler
from fedfv.testing._law import Law, global_seed


def check_sampler(sampler: Sampler, sizes: Int[Tensor, " N"] | None = None) -> None:
    """Checks the laws of a sampler; raises a `BrokenLawError` for the first one that is broken.

    - interface: it returns distinct client ids in an int64 tensor.
    - pure: the same round and seed give the same clients, in whatever order rounds are asked for and whatever the state
      of global random generators; `sizes` is not changed.

    Args:
        sampler: the sampler, with its options.
        sizes: the numbers of training examples of all clients; the default is 20 clients of different sizes.
    """
    sizes = torch.arange(20) * 3 + 5 if sizes is None else sizes
    with Law("interface") as law:
        law.require(is_dataclass(sampler) and callable(sampler), "a sampler is an object of a frozen dataclass")
    before, found = sizes.clone(), {}
    for round in range(10):
        with Law("interface", f"round {round}") as law:
            chosen = sampler(round=round, sizes=sizes, seed=0)
            good = isinstance(chosen, Tensor) and chosen.dtype == torch.int64 and chosen.ndim == 1
            law.require(good, f"it must return a vector of int64, got {chosen!r}")
            inside = len(chosen) == 0 or 0 <= int(chosen.min()) <= int(chosen.max()) < len(sizes)
            law.require(inside, f"ids must be from 0 to {len(sizes) - 1}, got {chosen.tolist()}")
            law.require(len(chosen.unique()) == len(chosen), f"ids must be distinct, got {chosen.tolist()}")
            found[round] = chosen.tolist()
    for round in reversed(range(10)):
        with Law("pure", f"round {round}") as law, global_seed(round):
            again = sampler(round=round, sizes=sizes, seed=0).tolist()
            law.require(
                again == found[round], f"two calls with the same round and seed gave {found[round]} and {again}"
            )
            law.require(torch.equal(sizes, before), "a call changed `sizes`")
