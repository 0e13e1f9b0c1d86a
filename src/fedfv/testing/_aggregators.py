"""The laws of a rule."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedfv.core import (
    Aggregator,
    Replies,
    ServerState,
    as_fields,
    begin,
    from_tensors,
    needs,
    start,
    step,
    to_tensors,
    uses_losses,
)
from fedfv.matrix import Matrix
from fedfv.seeding import rng
from fedfv.testing._law import Law

_CLIENTS, _REPLIES, _PARAMETERS, _ROUNDS = 9, 4, 33, 8
_LARGE = 7.0  # the factor by which homogeneity is tested
_NOTHING: dict[str, Any] = {"accuracies": None, "trained_losses": None, "measured": {}}


def check_aggregator(
    rule: Aggregator[Any],
    *,
    degree: int | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64),
) -> None:
    """Checks the laws of a rule; raises a `BrokenLawError` for the first one that is broken.

    - interface: `init` returns a state, a NamedTuple of tensors or of tuples of tensors.
    - finite: the direction has the shape and type of the parameters and is finite, also for updates that are zero,
      parallel, opposite, tiny or huge; updates of zero give a direction of zero.
    - needs: the rule reads nothing from the replies but what it declares in `needs`, and is refused replies without it;
      with `uses_losses = False` it does not read the losses either.
    - pure: the rule changes neither its arguments nor itself, and the same replies give the same direction.
    - order: the order of the replies does not matter.
    - resume: a run that is resumed from a checkpoint is the uninterrupted one, bit for bit.
    - homogeneity: updates times c give a direction times c to the power of `degree`.

    Args:
        rule: the rule, with its hyper-parameters.
        degree: the degree of homogeneity that the rule claims; None if it claims nothing.
        dtypes: the types of numbers with which to check the law "finite".
    """
    _check_interface(rule)
    for name, updates in _inputs().items():
        for dtype in dtypes:
            if updates.to(dtype).isfinite().all():
                _check_finite(rule, name, updates.to(dtype))
    rounds = _rounds(rule)
    _check_needs(rule, rounds[0])
    _check_pure(rule, rounds)
    _check_order(rule, rounds)
    _check_resume(rule, rounds)
    if degree is not None:
        _check_homogeneity(rule, rounds, degree)


def _check_interface(rule: Any) -> None:
    with Law("interface") as law:
        law.require(callable(rule) and hasattr(rule, "init"), "a rule has the methods `init` and `__call__`")
        state = begin(rule, _CLIENTS, _PARAMETERS)
        law.require(isinstance(state, tuple) and hasattr(state, "_asdict"), "`init` must return a NamedTuple")
        for name, value in state._asdict().items():
            came = type(value).__name__
            law.require(_is_state(value), f"`{name}` of the state must be a tensor or a tuple of tensors, got {came}")


def _is_state(value: Any) -> bool:
    """Whether a field of a state is a tensor, a tuple of tensors, or the state of a rule inside the rule."""
    return isinstance(value, Tensor) or (isinstance(value, tuple) and all(map(_is_state, value)))


def _inputs() -> dict[str, Float[Tensor, "m d"]]:
    """Updates that are hard for a rule, by name."""
    random = torch.randn(4, 33, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    return {
        "zero": torch.zeros(4, 33),
        "one zero": random * torch.tensor([[1], [0], [1], [1]]),
        "rank one": random[:1] * torch.tensor([[1], [2], [-3], [0.5]]),
        "rank two": random[:2].repeat(2, 1),
        "one parameter": random[:, :1],
        "tiny": random * 1e-10,
        "huge": random * 1e15,
        "opposite pair": torch.stack([random[0], -random[0]]),
        "opposite pair of other lengths": torch.stack([random[0], -3 * random[0]]),
        "one client": random[:1],
    }


def _check_finite(rule: Aggregator[Any], name: str, updates: Float[Tensor, "m d"]) -> None:
    m, d = updates.shape
    server = start(rule, _CLIENTS, torch.zeros(d, dtype=updates.dtype))
    for round in range(4):
        where = f"the updates '{name}' in {str(updates.dtype).removeprefix('torch.')}, round {round}"
        with Law("finite", where) as law:
            replies = _replies(rule, round, (torch.arange(m) + round) % _CLIENTS, updates)
            direction, _ = rule(replies, server.memory)
            law.require(isinstance(direction, Tensor), f"the direction is a {type(direction).__name__}")
            shape = tuple(direction.shape)
            law.require(shape == (d,), f"the direction must have shape {(d,)}, got {shape}")
            law.require(
                direction.dtype == updates.dtype, f"the direction must be {updates.dtype}, got {direction.dtype}"
            )
            law.require(direction.isfinite().all(), "the direction has NaN or infinite numbers")
            law.require(name != "zero" or not direction.any(), "the direction must be zero")
            server = step(rule, replies, server)


def _replies(rule: Any, round: int, clients: Int[Tensor, " m"], updates: Matrix, **others: Any) -> Replies:
    """Replies with these updates, and with the values that the rule needs and no others."""
    m = len(clients)
    random = rng(0, "law", round)
    values: dict[str, Any] = {
        "losses": torch.from_numpy(random.integers(1, 6, m) / 2),  # few values, so that there are ties
        "sizes": torch.from_numpy(random.integers(1, 100, m)),
    }
    measured = {}
    for name, measure in needs(rule).items():
        low, high = (0.0, 1.0) if measure is None else (measure.low, measure.high)
        low, high = max(low, min(0.0, high)), min(high, max(1.0, low))
        measured[name] = torch.from_numpy(low + (high - low) * random.random(m))
    return Replies(round=round, clients=clients, updates=updates, **{**values, **as_fields(measured), **others})


def _rounds(rule: Any, scale: float = 1.0) -> list[Replies]:
    """Rounds in which different clients reply, and some do not."""
    rounds = []
    for round in range(_ROUNDS):
        random = rng(0, "law", "updates", round)
        count = _REPLIES if round == _ROUNDS - 1 else random.integers(1, _REPLIES + 1)
        clients = torch.from_numpy(random.permutation(_CLIENTS)[:count])
        updates = torch.from_numpy(scale * random.normal(size=(len(clients), _PARAMETERS)))
        rounds.append(_replies(rule, round, clients, updates))
    return rounds


def _run(rule: Aggregator[Any], rounds: Sequence[Replies]) -> ServerState[Any]:
    server = start(rule, _CLIENTS, torch.zeros(_PARAMETERS, dtype=torch.double))
    for replies in rounds:
        server = step(rule, replies, server)
    return server


def _check_needs(rule: Aggregator[Any], replies: Replies) -> None:
    memory = begin(rule, _CLIENTS, _PARAMETERS)
    with Law("needs", "replies with the declared values only"):
        rule(replies, memory)
    for name in needs(rule):
        with Law("needs", f"replies without `{name}`") as law:
            others = {other: values for other, values in replies.all_measured().items() if other != name}
            lacking = _replies(rule, 0, replies.clients, replies.updates, **{**_NOTHING, **as_fields(others)})
            with contextlib.suppress(ValueError):
                step(rule, lacking, start(rule, _CLIENTS, torch.zeros(_PARAMETERS, dtype=torch.double)))
                law.require(False, "`step` must refuse them")
    if not uses_losses(rule):
        with Law("needs", "replies with other losses") as law:
            unknown = replies.saying(losses=torch.zeros_like(replies.losses))
            same = torch.equal(rule(replies, memory)[0], rule(unknown, memory)[0])
            law.require(same, "they change the direction, so `uses_losses` must not be False")


def _check_pure(rule: Aggregator[Any], rounds: Sequence[Replies]) -> None:
    with Law("pure") as law:
        server = _run(rule, rounds[:-1])
        last = rounds[-1]
        before = {name: value.clone() for name, value in {**_tensors(last), **to_tensors(server)}.items()}
        described = repr(rule)
        directions = []
        for seed in (0, 1):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                directions.append(rule(last, server.memory)[0].clone())
        after = {**_tensors(last), **to_tensors(server)}
        changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
        law.require(not changed, f"a call changed `{(changed or [''])[0]}`, which must stay as it was")
        law.require(repr(rule) == described, "a call changed the rule itself")
        law.require(torch.equal(*directions), "two calls with the same arguments gave different directions")


def _tensors(replies: Replies) -> dict[str, Tensor]:
    named = {name: getattr(replies, name) for name in ("clients", "updates", "losses", "sizes")}
    return {f"replies.{name}": value for name, value in (named | replies.all_measured()).items()}


def _check_order(rule: Aggregator[Any], rounds: Sequence[Replies]) -> None:
    with Law("order", "replies in another order") as law:
        shuffled = []
        for replies in rounds:
            order = torch.from_numpy(rng(0, "law", "order", replies.round).permutation(len(replies.clients)))
            named = {name: getattr(replies, name)[order] for name in ("clients", "updates", "losses", "sizes")}
            measured = {name: values[order] for name, values in replies.all_measured().items()}
            shuffled.append(replace(replies, **named, **as_fields(measured)))
        first, second = _run(rule, rounds).params, _run(rule, shuffled).params
        law.require(torch.allclose(first, second, rtol=1e-7, atol=1e-9), _apart(first, second))


def _check_resume(rule: Aggregator[Any], rounds: Sequence[Replies]) -> None:
    whole = _run(rule, rounds)
    for stop in range(len(rounds)):
        with Law("resume", f"a run that is interrupted after {stop} rounds") as law:
            file = io.BytesIO()
            torch.save(to_tensors(_run(rule, rounds[:stop])), file)
            file.seek(0)
            resumed = from_tensors(rule, torch.load(file, weights_only=True))
            for replies in rounds[stop:]:
                resumed = step(rule, replies, resumed)
            law.require(torch.equal(resumed.params, whole.params), _apart(resumed.params, whole.params))


def _check_homogeneity(rule: Aggregator[Any], rounds: Sequence[Replies], degree: int) -> None:
    with Law("homogeneity", f"updates times {_LARGE:g}") as law:
        plain, scaled = _run(rule, rounds).params, _run(rule, _rounds(rule, _LARGE)).params
        expected = plain * _LARGE**degree
        law.require(torch.allclose(scaled, expected, rtol=1e-7, atol=1e-9), _apart(scaled, expected))


def _apart(first: Tensor, second: Tensor) -> str:
    return f"the parameters differ by up to {float((first - second).abs().max()):.3g}"
