"""The fast clients against the plain ones, and the plain ones against arithmetic by hand."""

import gc
import itertools
import re
import weakref
from typing import Any, Literal

import pytest
import torch
from torch import nn

from fedfv.core import ACCURACY, NO_BUFFERS, TRAINED_LOSS, Measure, Replies
from fedfv.data import Federation, Index
from fedfv.models import build_model, flatten, flatten_buffers
from fedfv.tasks import Classification
from fedfv.training import BatchedClients, LocalSGD, LoopClients, evaluate
from tests.helpers import updates_of

IMAGE = (1, 20, 20)
MODELS: dict[str, dict[str, Any]] = {
    "softmax-regression": {"name": "softmax-regression"},
    "mlp": {"name": "mlp", "hidden": [9, 7]},
    "paper-cnn": {"name": "paper-cnn"},
    "cnn": {"name": "cnn", "width": 8},
}
MEASURES: dict[str, Measure | None] = {
    "accuracies": ACCURACY,
    "trained_losses": TRAINED_LOSS,
    "squares": Measure(lambda seen: seen.losses**2),
    "trained_largest": Measure(lambda seen: seen.outputs.amax(dim=1), after=True),
}
LOCALS = [
    LocalSGD(lr=0.1),
    LocalSGD(lr=0.1, epochs=3),
    LocalSGD(lr=0.05, epochs=2, batch_size=4),
    LocalSGD(lr=0.05, epochs=2, batch_size=4, momentum=0.9, weight_decay=0.01, lr_decay=0.5),
]


def make_federation(sizes: list[int], shape: tuple[int, ...] = (12,), classes: int = 4, seed: int = 0) -> Federation:
    """Random examples in random order, so that no client's rows stand together."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    rows = torch.randperm(2 * total, generator=generator).split([*sizes, *sizes])
    train, test = Index.of(list(rows[: len(sizes)])), Index.of(list(rows[len(sizes) :]))
    return Federation(
        inputs=torch.randn(2 * total, *shape, generator=generator, dtype=torch.double),
        targets=torch.randint(0, classes, (2 * total,), generator=generator),
        train=train,
        validation=Index.of([row[:0] for row in rows[: len(sizes)]]),
        test=test,
        num_classes=classes,
    )


def make_model(federation: Federation, **options: Any) -> nn.Module:
    return build_model(
        **options, input_shape=tuple(federation.inputs.shape[1:]), num_classes=federation.num_outputs, seed=1
    ).double()


def assert_equal(fast: Replies, plain: Replies) -> None:
    assert fast.all_measured().keys() == plain.all_measured().keys() == MEASURES.keys()
    torch.testing.assert_close(fast.updates, plain.updates, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(fast.losses, plain.losses, rtol=1e-9, atol=1e-12)
    for name in MEASURES:
        measured = [replies.reported(name, to=None) for replies in (fast, plain)]
        torch.testing.assert_close(*measured, rtol=1e-9, atol=1e-12, msg=name)
    assert torch.equal(fast.sizes, plain.sizes)
    assert torch.equal(fast.clients, plain.clients)


@pytest.mark.parametrize("loss", ["cross-entropy", "softmax-cross-entropy"])
@pytest.mark.parametrize("local", LOCALS, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_batched_clients_equal_looped_ones(model: str, local: LocalSGD, loss: Any) -> None:
    federation = make_federation([6, 3, 11, 8, 1], shape=IMAGE)
    module = make_model(federation, **MODELS[model])
    settings: dict[str, Any] = {"local": local, "task": Classification(loss=loss), "measures": MEASURES}
    chosen = torch.tensor([3, 0, 4, 2])
    arguments = (7, chosen, flatten(module), NO_BUFFERS)
    fast, plain = (kind(federation, module, **settings) for kind in (BatchedClients, LoopClients))
    assert_equal(fast(*arguments), plain(*arguments))


def test_the_data_go_with_the_clients() -> None:
    """Not when Python next looks for cycles, which after a run with few objects and much data it rarely does."""

    def train() -> weakref.ref[Federation]:
        federation = make_federation([6, 3, 11])
        module = make_model(federation, name="mlp", hidden=[9])
        clients = BatchedClients(federation, module, LocalSGD(lr=0.1, batch_size=4), measures=MEASURES)
        clients(0, torch.arange(3), flatten(module), NO_BUFFERS)
        return weakref.ref(federation)

    train()  # what torch loads when first used keeps something, once
    gc.disable()
    try:
        assert train()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
@pytest.mark.parametrize("local", LOCALS, ids=str)
def test_a_client_that_is_too_large_to_be_stacked_equals_a_looped_one(
    local: LocalSGD, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedfv.training._batched._OWN_INPUTS", 1)
    federation = make_federation([6, 3, 11], shape=IMAGE, classes=classes)
    module = make_model(federation, name="softmax-regression")
    settings: dict[str, Any] = {"local": local, "measures": MEASURES}
    arguments = (7, torch.arange(3), flatten(module), NO_BUFFERS)
    fast, plain = (kind(federation, module, **settings) for kind in (BatchedClients, LoopClients))
    assert_equal(fast(*arguments), plain(*arguments))


@pytest.mark.parametrize("local", LOCALS, ids=str)
def test_however_clients_are_grouped_the_result_is_the_same(local: LocalSGD, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = make_federation([5, 9, 2, 7, 30, 4, 4])
    module = make_model(federation, name="mlp", hidden=[6])
    clients = BatchedClients(federation, module, local, measures=MEASURES)
    results = []
    for own, stacked in itertools.product([1, 100, 10_000], [1, 250, 10**9]):
        monkeypatch.setattr("fedfv.training._batched._OWN_INPUTS", own)
        monkeypatch.setattr("fedfv.training._batched._STACKED_NUMBERS", stacked)
        results.append(clients(2, torch.arange(7), flatten(module), NO_BUFFERS))
    for other in results[1:]:
        assert_equal(other, results[0])


def test_one_step_of_one_client_by_hand() -> None:
    """Softmax regression at zero: the gradient is the mean of (1/2 - target) x."""
    federation = make_federation([4], shape=(3,), classes=2)
    module = make_model(federation, name="softmax-regression")
    inputs, targets = federation.examples("train", 0)
    clients = BatchedClients(federation, module, LocalSGD(lr=0.5), measures={"accuracies": ACCURACY})
    replies = clients(0, torch.tensor([0]), torch.zeros(8).double())
    residual = 0.5 - nn.functional.one_hot(targets, 2).double()
    expected = torch.cat([(residual.mT @ inputs / 4).flatten(), residual.mean(dim=0)])
    torch.testing.assert_close(updates_of(replies)[0], 0.5 * expected)
    assert replies.losses.item() == pytest.approx(0.6931471805599453)
    assert replies.accuracies.item() == pytest.approx(float((targets == 0).double().mean()))


def test_the_order_of_the_examples_depends_on_seed_round_and_client_only() -> None:
    local = LocalSGD(batch_size=3)
    order = torch.cat(local.batches(10, seed=1, round=2, client=3))
    assert sorted(order.tolist()) == list(range(10))
    assert torch.equal(order, torch.cat(local.batches(10, seed=1, round=2, client=3)))
    for other in [(0, 2, 3), (1, 0, 3), (1, 2, 0)]:
        assert not torch.equal(order, torch.cat(local.batches(10, *other)))


def test_models_with_batch_normalisation_are_trained_in_a_loop_and_their_statistics_come_back() -> None:
    federation = make_federation([6, 9], shape=(1, 8, 8))
    module = make_model(federation, name="cnn", norm="batch", width=8)
    with pytest.raises(ValueError, match="`model` of BatchedClients must have neither buffers nor dropout"):
        BatchedClients(federation, module, LocalSGD())
    buffers = flatten_buffers(module)
    replies = LoopClients(federation, module, LocalSGD(epochs=2))(0, torch.arange(2), flatten(module), buffers)
    assert replies.buffers is not None
    assert replies.buffers.values.shape == (2, len(buffers.values))
    assert (replies.buffers.counts == 2).all()
    assert not torch.allclose(replies.buffers.values[0], replies.buffers.values[1])


def test_models_with_dropout_are_trained_reproducibly() -> None:
    federation = make_federation([20])
    module = nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 4)).double()
    with pytest.raises(ValueError, match="dropout"):
        BatchedClients(federation, module, LocalSGD())
    clients = LoopClients(federation, module, LocalSGD(epochs=2))
    arguments = (torch.tensor([0]), flatten(module), NO_BUFFERS)
    torch.manual_seed(0)
    first = updates_of(clients(4, *arguments))
    torch.manual_seed(1)
    assert torch.equal(updates_of(clients(4, *arguments)), first)
    assert not torch.equal(updates_of(clients(5, *arguments)), first)


@pytest.mark.parametrize("in_order", [True, False])
def test_evaluation_in_one_pass_equals_one_for_each_client(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfv.training._evaluate._AT_ONCE", 12 * 7)  # several passes that cut through clients
    federation = make_federation([5, 9, 2, 7])
    if in_order:
        federation = federation.sorted_by_client()
    module = make_model(federation, name="mlp", hidden=[6])
    found = evaluate(federation, module, flatten(module), NO_BUFFERS)
    for client in range(4):
        inputs, targets = federation.examples("test", client)
        outputs = module(inputs)
        assert found.losses[client].item() == pytest.approx(nn.functional.cross_entropy(outputs, targets).item())
        assert found.scores[client].item() == pytest.approx((outputs.argmax(1) == targets).double().mean().item())
    assert found.sizes.tolist() == [5, 9, 2, 7]


def test_sorting_a_federation_by_client_changes_no_clients_examples() -> None:
    federation = make_federation([5, 9, 2])
    ordered = federation.sorted_by_client()
    parts: tuple[Literal["train", "test"], ...] = ("train", "test")
    for part, client in itertools.product(parts, range(3)):
        for old, new in zip(federation.examples(part, client), ordered.examples(part, client), strict=True):
            assert torch.equal(old, new)
            assert (
                new.untyped_storage().data_ptr() == getattr(ordered, "inputs" if old.ndim > 1 else "targets").data_ptr()
            )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"lr": 0}, "`lr` of LocalSGD must be a number above 0, got 0."),
        ({"momentum": 1}, "`momentum` of LocalSGD must be a number from 0 to below 1, got 1."),
        ({"weight_decay": -1}, "`weight_decay` of LocalSGD must be a number from 0 to 3.40282e+38, got -1."),
        ({"epochs": 0}, "`epochs` of LocalSGD must be a whole number from 1, got 0."),
        ({"batch_size": 0}, "`batch_size` of LocalSGD must be a whole number from 1, got 0."),
    ],
)
def test_invalid_training_settings_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        LocalSGD(**fields)
