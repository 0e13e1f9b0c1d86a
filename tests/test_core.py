"""What is refused at the door, and how a server goes from one round to the next."""

import dataclasses
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfv import AFL, FedAvg, FedFV, FedMGDA, Replies, from_tensors, start, step, to_tensors
from fedfv.aggregators import SemiVRed, ServerMomentum, UPGrad
from fedfv.core import label
from tests.helpers import make_replies, random_rounds, run

ARGUMENTS = [each.name for each in dataclasses.fields(Replies) if each.init]
NAN, INF = float("nan"), float("inf")
BAD: list[tuple[dict[str, Any], str]] = [
    ({"round": -1}, "`round` must be a whole number from 0, got -1."),
    ({"round": 1.5}, "`round` must be a whole number from 0, got 1.5."),
    ({"updates": [[1.0]]}, "`updates` must be a tensor or a MappedMatrix, got list."),
    (
        {"updates": torch.zeros(3)},
        "`updates` must be a matrix with a row for each of at least one client, got shape (3,).",
    ),
    (
        {"updates": torch.zeros(0, 5)},
        "`updates` must be a matrix with a row for each of at least one client, got shape (0, 5).",
    ),
    (
        {"updates": torch.zeros(3, 0)},
        "`updates` must be a matrix with a row for each of at least one client, got shape (3, 0).",
    ),
    ({"updates": torch.zeros(3, 2, dtype=torch.long)}, "`updates` must be floating-point numbers, got torch.int64."),
    (
        {"updates": torch.zeros(3, 2, dtype=torch.cfloat)},
        "`updates` must be floating-point numbers, got torch.complex64.",
    ),
    (
        {"updates": torch.tensor([[1.0], [NAN], [-INF]])},
        "`updates` must be finite, but those of clients [7, 9] are not.",
    ),
    ({"clients": [5, 7, 9]}, "`clients` must be a tensor, got list."),
    ({"clients": torch.tensor([5, 7])}, "`clients` must have one entry for each of the 3 updates, got shape (2,)."),
    ({"clients": torch.tensor([5.0, 7.0, 9.0])}, "`clients` must be whole numbers, got torch.float32."),
    ({"clients": torch.tensor([5, 7, 5])}, "`clients` must be distinct, but [5] replied more than once."),
    ({"clients": torch.tensor([5, -7, 9])}, "`clients` must be at least 0, but [-7] are not."),
    ({"losses": torch.ones(3, 1)}, "`losses` must have one entry for each of the 3 updates, got shape (3, 1)."),
    ({"losses": torch.tensor([1.0, NAN, INF])}, "`losses` must be finite, but those of clients [7, 9] are not."),
    ({"losses": torch.ones(3, dtype=torch.cfloat)}, "`losses` must be real numbers, got torch.complex64."),
    ({"sizes": torch.tensor([1, -2, 3])}, "`sizes` must be at least 0, but those of clients [7] are not."),
    ({"sizes": torch.tensor([1, NAN, 3])}, "`sizes` must be finite, but those of clients [7] are not."),
    ({"sizes": torch.zeros(3)}, "`sizes` must not all be zero, since averages are weighted by size."),
    (
        {"accuracies": torch.tensor([0.5, 1.5, -0.5])},
        "`accuracies` must be in [0, 1], but those of clients [7, 9] are not.",
    ),
    (
        {"trained_losses": torch.tensor([1.0, 1.0, NAN])},
        "`trained_losses` must be finite, but those of clients [9] are not.",
    ),
]

ARGUMENTS = [each.name for each in dataclasses.fields(Replies) if each.init]


@pytest.mark.parametrize(("fields", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_invalid_replies_are_refused_in_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    good = {"updates": torch.ones(3, 2), "clients": torch.tensor([5, 7, 9])}
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make_replies(**{**good, **fields})


@given(
    m=st.integers(1, 6),
    d=st.integers(1, 6),
    field=st.sampled_from(["updates", "losses", "sizes", "accuracies", "trained_losses"]),
    value=st.sampled_from([NAN, INF, -INF]),
    data=st.data(),
)
def test_non_finite_values_are_refused_with_the_id_of_their_client(
    m: int, d: int, field: str, value: float, data: st.DataObject
) -> None:
    clients = torch.tensor(data.draw(st.lists(st.integers(0, 1000), min_size=m, max_size=m, unique=True)))
    culprit = data.draw(st.integers(0, m - 1))
    good = make_replies(torch.ones(m, d), clients=clients)
    bad = getattr(good, field).double().clone()
    bad[culprit] = value
    with pytest.raises(ValueError, match=f"^`{field}` must be finite, .* \\[{clients[culprit]}\\] are not.$"):
        Replies(**{**{name: getattr(good, name) for name in ARGUMENTS}, field: bad})


@given(m=st.integers(1, 8), d=st.integers(1, 8), seed=st.integers(0, 1000))
def test_valid_replies_are_accepted_unchanged(m: int, d: int, seed: int) -> None:
    (replies,) = random_rounds(20, m, d, 1, seed=seed)
    assert isinstance(replies, Replies)
    assert replies.updates.shape == (len(replies.clients), d)
    with pytest.raises(AttributeError):
        replies.round = 1  # type: ignore[misc]  # frozen


def test_a_step_subtracts_the_direction_and_counts_the_round() -> None:
    server = start(FedAvg(), 3, torch.ones(2))
    after = step(FedAvg(), make_replies(torch.tensor([[0.5, 1.0]])), server)
    assert after.round == 1
    assert after.params.tolist() == [0.5, 0.0]
    assert server.params.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("replies", "sentence"),
    [
        ({"round": 3}, "`round` must be 0, the server's current round, got 3."),
        ({"clients": torch.tensor([1, 8])}, "`clients` must be below 8, got 8."),
        (
            {"updates": torch.ones(2, 5)},
            "`updates` must have rows of 4 numbers of torch.float32 like the parameters, got 5 of torch.float32.",
        ),
        (
            {"updates": torch.ones(2, 4).double()},
            "`updates` must have rows of 4 numbers of torch.float32 like the parameters, got 4 of torch.float64.",
        ),
    ],
)
def test_replies_that_do_not_fit_the_server_are_refused(replies: dict[str, Any], sentence: str) -> None:
    server = start(FedAvg(), 8, torch.zeros(4))
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        step(FedAvg(), make_replies(**{"updates": torch.ones(2, 4), **replies}), server)


@pytest.mark.parametrize(
    ("num_clients", "params", "sentence"),
    [
        (0, torch.zeros(4), "`num_clients` must be at least 1, got 0."),
        (3, torch.zeros(2, 2), "`params` must be one vector of floating-point numbers, got torch.float32 (2, 2)."),
        (3, torch.zeros(2).int(), "`params` must be one vector of floating-point numbers, got torch.int32 (2,)."),
    ],
)
def test_an_invalid_server_state_is_refused(num_clients: int, params: torch.Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        start(FedAvg(), num_clients, params)


def test_a_checkpoint_consists_of_named_tensors_only() -> None:
    rule = FedFV(tau=2)
    rounds = [replies for replies in random_rounds(9, 3, 5, 4) if replies is not None]
    named = to_tensors(run(rule, 9, rounds))
    assert all(type(value) is torch.Tensor for value in named.values())
    assert {"round", "num_clients", "params", "mean", "memory.rounds", "memory.updates.0"} <= named.keys()
    again = from_tensors(rule, named)
    assert (again.round, again.num_clients) == (4, 9)
    assert len(again.memory.updates) == len(again.memory.gramians) == 2


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (FedAvg(), "FedAvg()"),
        (FedFV(), "FedFV(alpha=0.1, tau=1)"),
        (FedFV(order="random", seed=7), "FedFV(alpha=0.1, tau=1, order='random')"),
        (FedMGDA(), "FedMGDA+()"),
        (FedMGDA(eta=0.5), "FedMGDA+()"),
        (FedMGDA(epsilon=0.2, eta=0.1), "FedMGDA+(epsilon=0.2, eta=0.1)"),
        (ServerMomentum(AFL(0.3), beta=0.5), "ServerMomentum(AFL(eta_lambda=0.3), beta=0.5)"),
        (UPGrad(), "UPGrad()"),
        (SemiVRed(beta=2.0), "SemiVRed(beta=2.0)"),
    ],
    ids=repr,
)
def test_a_label_has_what_is_special_about_a_rule(rule: Any, text: str) -> None:
    assert label(rule, lr=0.5) == text
