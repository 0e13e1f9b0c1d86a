"""Every kind of local training, and every setting of it: the fast clients against torch.optim, and by hand."""

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from fedfv.core import NO_BUFFERS
from fedfv.data import Federation
from fedfv.models import flatten, unflatten
from fedfv.training import TRAININGS, BatchedClients, LocalAdam, LocalAdamW, LocalSGD, LocalTraining, LoopClients
from tests.helpers import updates_of
from tests.training.test_clients import make_federation, make_model

SIZES = [6, 3, 11, 8, 1]
STEPS: dict[str, Any] = {"lr": 0.05, "epochs": 2, "batch_size": 4}


class Memory(NamedTuple):
    """A state with all that a state may have."""

    steps: Tensor
    received: dict[str, Tensor]


@dataclass(frozen=True)
class Normalised(LocalTraining):
    """Steps of equal length, which are shorter the more of them there were, towards the received model at last.

    The norm is over all parameters of a client, so it differs from that of a stack, and it is zero for a client that
    has finished.
    """

    pull: float = 0.5

    def start(self, params: dict[str, Tensor]) -> Memory:
        return Memory(next(iter(params.values())).new_zeros(()), params)

    def step(
        self, grads: dict[str, Tensor], params: dict[str, Tensor], state: Memory
    ) -> tuple[dict[str, Tensor], Memory]:
        norm = torch.stack([grad.norm() for grad in grads.values()]).norm() * (1 + state.steps)
        direction = {
            name: grad / norm + self.pull * (params[name] - state.received[name]) for name, grad in grads.items()
        }
        return direction, state._replace(steps=state.steps + 1)


@dataclass(frozen=True)
class Doubled(LocalSGD):
    """A subclass of a known kind with another step, which is not elementwise."""

    def step(self, grads: dict[str, Tensor], params: dict[str, Tensor], state: Any) -> tuple[dict[str, Tensor], Any]:
        direction, state = super().step(grads, params, state)
        return {name: 2 * part / (1 + part.abs().max()) for name, part in direction.items()}, state


KINDS: list[LocalTraining] = [
    LocalSGD(**STEPS, momentum=0.9, weight_decay=0.01),
    LocalSGD(lr=0.1, epochs=3, proximal=0.5),
    LocalSGD(**STEPS, clip_norm=0.3),
    LocalSGD(**STEPS, drop_last=True),
    LocalSGD(**STEPS, momentum=0.5, weight_decay=0.1, clip_norm=0.5, proximal=1.0, drop_last=True, warmup_rounds=20),
    LocalAdam(**STEPS),
    LocalAdam(lr=0.01, epochs=3, betas=(0.5, 0.0), eps=0.1, weight_decay=0.1),
    LocalAdam(**STEPS, weight_decay=0.1, clip_norm=0.2, proximal=0.3, drop_last=True, cosine_rounds=9),
    LocalAdamW(**STEPS),
    LocalAdamW(**STEPS, weight_decay=0.3, clip_norm=0.2, proximal=0.3),
    Normalised(**STEPS),
    Normalised(**STEPS, clip_norm=0.2, proximal=0.3, drop_last=True),
    Doubled(**STEPS, momentum=0.9, weight_decay=0.1, proximal=0.3),
]
every_kind = pytest.mark.parametrize("local", KINDS, ids=str)


def both(federation: Federation, module: nn.Module, local: LocalTraining) -> tuple[Tensor, Tensor]:
    """The updates of batched and of looped clients, in round 7."""
    chosen = torch.tensor([3, 0, 4, 2])
    fast, plain = (
        updates_of(kind(federation, module, local)(7, chosen, flatten(module), NO_BUFFERS))
        for kind in (BatchedClients, LoopClients)
    )
    return fast, plain


@every_kind
@pytest.mark.parametrize("own_inputs", [1, 10**9])  # each client alone, or all in a stack
@pytest.mark.parametrize("model", [{"name": "softmax-regression"}, {"name": "mlp", "hidden": [9, 7]}], ids=str)
def test_batched_clients_equal_looped_ones(
    model: dict[str, Any], own_inputs: int, local: LocalTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedfv.training._batched._OWN_INPUTS", own_inputs)
    federation = make_federation(SIZES)
    fast, plain = both(federation, make_model(federation, **model), local)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-12)
    assert plain.isfinite().all()
    assert (plain != 0).any(dim=1).all()


@every_kind
def test_models_with_convolutions_are_trained_alike(local: LocalTraining) -> None:
    federation = make_federation(SIZES, shape=(1, 8, 8))
    fast, plain = both(federation, make_model(federation, name="cnn", width=8), local)
    torch.testing.assert_close(fast, plain, rtol=1e-8, atol=1e-11)


@every_kind
def test_frozen_parameters_stay_out_of_the_update_and_take_part_in_the_forward_pass(local: LocalTraining) -> None:
    federation = make_federation(SIZES)
    first = nn.Linear(12, 6).requires_grad_(False)
    module = nn.Sequential(first, nn.Tanh(), nn.Linear(6, 4)).double()
    frozen = first.weight.clone()
    assert len(flatten(module)) == 6 * 4 + 4
    fast, plain = both(federation, module, local)
    assert fast.shape == (4, 28)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-12)
    assert torch.equal(first.weight, frozen)
    with torch.no_grad():
        first.weight.mul_(2)
    assert not torch.allclose(both(federation, module, local)[0], fast)


def test_a_client_that_has_finished_moves_no_more() -> None:
    """Momentum, moments and weight decay go on without gradients; the short client of a stack has one step of four."""
    federation = make_federation([2, 8])
    module = make_model(federation, name="mlp", hidden=[5])
    for local in KINDS:
        alone, stacked = (
            updates_of(BatchedClients(federation, module, local)(0, torch.tensor(chosen), flatten(module)))
            for chosen in ([0], [0, 1])
        )
        torch.testing.assert_close(alone[0], stacked[0], rtol=1e-9, atol=1e-12, msg=str(local))


def test_clipping_is_for_each_client_and_leaves_short_gradients_as_they_are() -> None:
    federation = make_federation(SIZES)
    module = make_model(federation, name="mlp", hidden=[5])

    def steps(**settings: Any) -> Tensor:
        clients = BatchedClients(federation, module, LocalSGD(lr=1.0, **settings))
        return updates_of(clients(0, torch.arange(5), flatten(module)))

    free = steps()
    bound = 1.01 * float(free.norm(dim=1).median())
    clipped = steps(clip_norm=bound)
    long = free.norm(dim=1) > bound
    assert 0 < long.sum() < 5
    torch.testing.assert_close(clipped[~long], free[~long])
    torch.testing.assert_close(
        clipped[long].norm(dim=1), torch.full((int(long.sum()),), bound).double(), rtol=1e-4, atol=0
    )
    torch.testing.assert_close(torch.cosine_similarity(clipped, free), torch.ones(5).double(), rtol=1e-9, atol=0)


def test_a_large_proximal_factor_keeps_the_client_near_the_received_model() -> None:
    federation = make_federation([20])
    module = make_model(federation, name="softmax-regression")

    def moved(mu: float) -> float:
        local = LocalSGD(lr=0.05, epochs=200, proximal=mu)
        return float(
            updates_of(BatchedClients(federation, module, local)(0, torch.tensor([0]), flatten(module))).norm()
        )

    assert moved(0) > 2 * moved(1) > 8 * moved(10) > 0


def test_two_steps_of_adam_by_hand() -> None:
    """With a constant gradient both averages are exact after their correction, so each step has the length lr."""
    grads, params = {"w": torch.tensor([3.0, -0.5])}, {"w": torch.tensor([1.0, 2.0])}
    local = LocalAdam(eps=1e-12)
    first, state = local.step(grads, params, local.start(params))
    second, _ = local.step(grads, params, state)
    for direction in (first, second):
        torch.testing.assert_close(direction["w"], torch.tensor([1.0, -1.0]))
    decayed, _ = LocalAdamW(eps=1e-12, weight_decay=0.1).step(grads, params, local.start(params))
    torch.testing.assert_close(decayed["w"], torch.tensor([1.1, -0.8]))


@every_kind
def test_start_and_step_change_no_argument(local: LocalTraining) -> None:
    generator = torch.Generator().manual_seed(0)
    module = nn.Linear(3, 2)
    params, *gradients = (unflatten(torch.randn(8, generator=generator), module) for _ in range(4))
    state = local.start(params)
    for grads in gradients:
        before = [tensor.clone() for tensor in tensors_in((grads, params, state))]
        direction, new = local.step(grads, params, state)
        assert all(map(torch.equal, before, tensors_in((grads, params, state))))
        assert direction.keys() == params.keys()
        state = new


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in tensors_in(item)]


@pytest.mark.parametrize(
    ("size", "lengths"), [(9, [4, 4]), (8, [4, 4]), (4, [4]), (3, [3]), (1, [1])], ids=lambda value: str(value)
)
def test_the_last_incomplete_batch_is_dropped_unless_it_is_the_only_one(size: int, lengths: list[int]) -> None:
    local = LocalSGD(batch_size=4, epochs=2, drop_last=True)
    batches = local.batches(size, seed=0, round=0, client=0)
    assert [len(batch) for batch in batches] == 2 * lengths
    kept = dataclasses.replace(local, drop_last=False).batches(size, seed=0, round=0, client=0)
    assert all(map(torch.equal, batches, [batch for batch in kept if len(batch) == 4 or size < 4]))


def test_the_learning_rate_rises_falls_and_stays_positive() -> None:
    rates = [LocalSGD(lr=0.4, warmup_rounds=4).lr_at(round) for round in range(6)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    rates = [LocalSGD(lr=2.0, cosine_rounds=3).lr_at(round) for round in range(5)]
    assert rates == pytest.approx([2.0, 1.5, 0.5, 0.5, 0.5])
    assert LocalSGD(lr=2.0, cosine_rounds=1).lr_at(9) == 2.0
    both = LocalSGD(lr=1.0, lr_decay=0.5, lr_decay_every=2, warmup_rounds=2, cosine_rounds=2)
    assert [both.lr_at(round) for round in range(5)] == pytest.approx([0.5, 1.0, 0.5, 0.25, 0.125])


@dataclass(frozen=True)
class Halving(LocalSGD):
    """A schedule of one's own, and no step."""

    def lr_at(self, round: int) -> float:
        return self.lr / 2**round


def test_a_schedule_of_ones_own_needs_no_step() -> None:
    federation = make_federation(SIZES)
    module = make_model(federation, name="mlp", hidden=[5])
    fast, plain = both(federation, module, Halving(lr=8.0, epochs=2, batch_size=4, momentum=0.5))
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        fast, both(federation, module, LocalSGD(lr=8 / 2**7, epochs=2, batch_size=4, momentum=0.5))[0]
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"lr_decay": math.inf}, "`lr_decay` of LocalSGD must be a finite number above 0, got inf."),
        ({"clip_norm": 0.0}, "`clip_norm` of LocalSGD must be a number above 0, got 0.0."),
        ({"proximal": -0.1}, "`proximal` of LocalSGD must be a number from 0, got -0.1."),
        ({"drop_last": "yes"}, "`drop_last` of LocalSGD must be true or false, got 'yes'."),
        ({"warmup_rounds": -1}, "`warmup_rounds` of LocalSGD must be a whole number from 0, got -1."),
        ({"cosine_rounds": 0}, "`cosine_rounds` of LocalSGD must be a whole number from 1, got 0."),
        ({"lr_decay_every": None}, "`lr_decay_every` of LocalSGD must be a whole number from 1, got None."),
    ],
)
@pytest.mark.parametrize("kind", TRAININGS.values())
def test_invalid_settings_are_refused(kind: type[Any], fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence.replace('LocalSGD', kind.__name__))}$"):
        kind(**fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"betas": (0.9, 1.0)}, "`betas` of LocalAdam must be two numbers from 0 to below 1, got (0.9, 1.0)."),
        ({"betas": (0.9,)}, "`betas` of LocalAdam must be two numbers from 0 to below 1, got (0.9,)."),
        ({"betas": 0.9}, "`betas` of LocalAdam must be two numbers from 0 to below 1, got 0.9."),
        ({"eps": 0.0}, "`eps` of LocalAdam must be a number above 0, got 0.0."),
    ],
)
def test_invalid_settings_of_adam_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        LocalAdam(**fields)


def test_lists_and_tuples_of_betas_are_equal() -> None:
    assert LocalAdam(betas=[0.5, 0.9]) == LocalAdam(betas=(0.5, 0.9))  # type: ignore[arg-type]  # as a user may write


@dataclass(frozen=True)
class Wrong(LocalTraining):
    """Local training whose direction does not fit the parameters."""

    fails: str = ""

    def step(self, grads: dict[str, Tensor], params: dict[str, Tensor], state: Any) -> tuple[dict[str, Tensor], Any]:
        if self.fails == "shape":
            return {name: grad.sum() for name, grad in grads.items()}, state
        return {}, state


@dataclass(frozen=True)
class Unfinished(LocalTraining):
    """Local training without a step."""


@pytest.mark.parametrize("kind", [BatchedClients, LoopClients])
@pytest.mark.parametrize("chosen", [[0], [0, 1]])
@pytest.mark.parametrize(
    ("local", "sentence"),
    [
        (
            Wrong(fails="shape"),
            "`step` of Wrong must return a direction with the shapes of the gradients, (4, 12) for '1.weight', got ().",
        ),
        (
            Wrong(fails="names"),
            "`step` of Wrong must return a direction with the shapes of the gradients, (4, 12) for '1.weight', "
            "got None.",
        ),
        (Unfinished(), "Unfinished must have a method `step`."),
    ],
)
def test_a_step_of_ones_own_that_does_not_fit_is_refused(
    kind: Any, chosen: list[int], local: LocalTraining, sentence: str
) -> None:
    federation = make_federation([3, 4])
    module = make_model(federation, name="softmax-regression")
    with pytest.raises((ValueError, NotImplementedError), match=f"^{re.escape(sentence)}$"):
        kind(federation, module, local)(0, torch.tensor(chosen), flatten(module))
