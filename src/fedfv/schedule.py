"""The learning rate of a round, for the clients and for the server."""

import math

__all__ = ["LARGEST", "rate_at"]


LARGEST = 3.4028234663852886e38
"""The largest number of single precision."""


def rate_at(
    round: int, lr: float, decay: float, decay_every: int, warmup_rounds: int, cosine_rounds: int | None
) -> float:
    """The learning rate after decay, warm-up and cosine, whose factors are multiplied.

    Args:
        round: counted from 0.
        lr: the learning rate without a schedule.
        decay: the factor by which the learning rate is multiplied every `decay_every` rounds.
        decay_every: a number of rounds.
        warmup_rounds: rounds in which the learning rate rises linearly, from `lr / warmup_rounds` to `lr`.
        cosine_rounds: rounds after the warm-up in which the learning rate falls along half a cosine; None for all. It
            would be zero one round later; all further rounds have the last positive value.

    >>> [round(rate_at(done, 1.0, 1.0, 1, warmup_rounds=2, cosine_rounds=4), 3) for done in range(8)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.146, 0.146]
    """
    try:
        rate = lr * decay ** (round // decay_every)
    except OverflowError:
        rate = math.inf
    if rate > LARGEST:  # torch refuses such a factor for single precision, but takes infinity, and the run diverges
        return math.inf
    if round < warmup_rounds:
        return rate * (round + 1) / warmup_rounds
    if cosine_rounds is None:
        return rate
    done = min(round - warmup_rounds, cosine_rounds - 1)
    return rate * (1 + math.cos(math.pi * done / cosine_rounds)) / 2
