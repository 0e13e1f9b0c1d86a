"""The baselines: each worked by hand once, and each against another rule that it must equal somewhere."""

import pytest
import torch

from fedfv import AFL, FedAvg, FedFa, FedMGDA, QFedAvg, Replies, start, step
from fedfv.linalg import gramian
from tests.helpers import make_replies, random_rounds, run, updates_of

UNIFORM = FedAvg(weighting="uniform")


def rounds_of(num_clients: int = 9, m: int = 5) -> list[Replies]:
    return [replies for replies in random_rounds(num_clients, m, 30, 6) if replies is not None]


def test_fedavg_averages_by_size() -> None:
    replies = make_replies(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), sizes=torch.tensor([30, 10]))
    direction, _ = FedAvg()(replies, FedAvg().init(2, 2))
    torch.testing.assert_close(direction, torch.tensor([0.75, 0.5]))


def test_qfedavg_worked_by_hand() -> None:
    """With q = 1, lr = 1/2: L = 2, D = (4, 0) and (0, 2), so (2 (4, 0) + 1 (0, 2)) / (16 + 4 + 2 * 2 + 2 * 1)."""
    replies = make_replies(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), losses=torch.tensor([2.0, 1.0]))
    direction, _ = QFedAvg(q=1, lr=0.5)(replies, QFedAvg().init(2, 2))
    torch.testing.assert_close(direction, torch.tensor([8.0, 2.0]) / 26)


def test_qfedavg_with_q_zero_is_the_uniform_average() -> None:
    torch.testing.assert_close(run(QFedAvg(q=0, lr=0.1), 9, rounds_of()).params, run(UNIFORM, 9, rounds_of()).params)


def test_qfedavg_can_take_the_loss_after_training_for_the_papers_tables() -> None:
    updates = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    before, after = torch.tensor([2.0, 1.0]), torch.tensor([0.5, 0.9])
    direction, _ = QFedAvg(q=2, lr=0.1, loss="after")(
        make_replies(updates, losses=before, trained_losses=after), QFedAvg().init(2, 2)
    )
    expected, _ = QFedAvg(q=2, lr=0.1)(make_replies(updates, losses=after), QFedAvg().init(2, 2))
    assert torch.equal(direction, expected)


def test_qfedavg_with_a_large_q_does_not_overflow() -> None:
    replies = make_replies(torch.ones(2, 3), losses=torch.tensor([1e20, 1e-20], dtype=torch.double))
    direction, _ = QFedAvg(q=15, lr=0.1)(replies, QFedAvg().init(2, 3))
    assert direction.isfinite().all()
    assert direction.any()


def test_qfedavg_names_the_losses_that_are_missing() -> None:
    replies = make_replies(torch.ones(2, 3), trained_losses=None)
    with pytest.raises(ValueError, match=r"^`trained_losses` must be in the replies, since QFedAvg needs it"):
        QFedAvg(lr=0.1, loss="after")(replies, QFedAvg().init(2, 3))
    replies = make_replies(torch.ones(2, 3), clients=torch.tensor([4, 7]), losses=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"^`losses` must not be negative for QFedAvg, but those of clients \[7\]"):
        QFedAvg(lr=0.1)(replies, QFedAvg().init(9, 3))


def test_afl_worked_by_hand() -> None:
    """Weights 1/2, 1/2; up the losses 3, 1 by 0.1: 0.8, 0.6; back onto the simplex: 0.6, 0.4."""
    replies = make_replies(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), losses=torch.tensor([3.0, 1.0]))
    direction, state = AFL(eta_lambda=0.1)(replies, AFL().init(2, 2))
    torch.testing.assert_close(direction, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(state.weights, torch.tensor([0.6, 0.4], dtype=torch.double))
    direction, _ = AFL(eta_lambda=0.1)(replies, state)
    torch.testing.assert_close(direction, torch.tensor([0.6, 0.4]))


def test_afl_that_does_not_ascend_is_the_uniform_average() -> None:
    torch.testing.assert_close(run(AFL(eta_lambda=0), 9, rounds_of()).params, run(UNIFORM, 9, rounds_of()).params)


def test_afl_leaves_the_model_when_all_weight_is_on_absent_clients() -> None:
    rule = AFL(eta_lambda=10.0)
    both = make_replies(torch.ones(2, 3), losses=torch.tensor([9.0, 1.0]))
    _, state = rule(both, rule.init(2, 3))
    assert state.weights.tolist() == [1.0, 0.0]
    direction, _ = rule(make_replies(torch.ones(1, 3), clients=torch.tensor([1])), state)
    assert not direction.any()


def test_afl_returns_the_mean_of_the_iterates() -> None:
    server = start(AFL(), 9, torch.zeros(30, dtype=torch.double))
    iterates = []
    for replies in rounds_of():
        server = step(AFL(), replies, server)
        iterates.append(server.params)
        torch.testing.assert_close(server.mean, torch.stack(iterates).mean(dim=0))


def test_fedfa_worked_by_hand() -> None:
    """Accuracies 1/4 and 3/4 weigh 2 and log2(4/3); both replied once, so the frequencies are equal."""
    replies = make_replies(torch.eye(2, dtype=torch.double), accuracies=torch.tensor([0.2, 0.6], dtype=torch.double))
    log = torch.log2(torch.tensor(4 / 3, dtype=torch.double))
    first = 0.5 * 2 / (2 + log) + 0.5 * 0.5
    average = torch.stack([first, 1 - first])
    direction, state = FedFa(gamma=0.5, eta=0.1)(replies, FedFa().init(2, 2))
    torch.testing.assert_close(state.momentum, 0.5 * average)
    torch.testing.assert_close(direction, average + 0.1 * 0.5 * average)
    assert state.counts.tolist() == [1, 1]


def test_fedfa_favours_clients_that_reply_often() -> None:
    rule = FedFa(alpha=0, beta=1, eta=0)
    _, state = rule(make_replies(torch.ones(1, 2)), rule.init(2, 2))
    direction, _ = rule(make_replies(torch.eye(2), round=1), state)
    assert direction[0] > direction[1]


def test_fedfa_without_weights_and_momentum_is_the_uniform_average() -> None:
    plain = FedFa(weighting="uniform", eta=0)
    torch.testing.assert_close(run(plain, 9, rounds_of()).params, run(UNIFORM, 9, rounds_of()).params)


def test_fedfa_of_the_papers_tables_subtracts_its_momentum() -> None:
    """As they were run: w <- w_new - lr m, m <- gamma m + (1 - gamma) (w_new - w)."""
    lr, gamma = 0.1, 0.5
    w, m = torch.zeros(2, 30, dtype=torch.double)
    for replies in rounds_of():
        w_new = w - replies.updates.mean(dim=0)
        m = gamma * m + (1 - gamma) * (w_new - w)
        w = w_new - lr * m
    rule = FedFa(weighting="uniform", momentum="subtracted", gamma=gamma, eta=lr)
    torch.testing.assert_close(run(rule, 9, rounds_of()).params, w)


def test_fedmgda_worked_by_hand() -> None:
    """(3, 0) and (0, 5) count as unit vectors; the shortest mixture is half of each."""
    replies = make_replies(torch.tensor([[3.0, 0.0], [0.0, 5.0]]), sizes=torch.tensor([10, 30]))
    direction, _ = FedMGDA(epsilon=1, eta=0.2)(replies, FedMGDA().init(2, 2))
    torch.testing.assert_close(direction, torch.tensor([0.1, 0.1]))
    direction, _ = FedMGDA(epsilon=0.1, eta=0.2)(replies, FedMGDA().init(2, 2))
    torch.testing.assert_close(direction, 0.2 * torch.tensor([0.35, 0.65]))


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.05, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("m", "d"), [(1, 5), (2, 5), (10, 40), (50, 200), (20, 3)])
def test_fedmgda_satisfies_its_box_and_its_optimality_conditions(m: int, d: int, epsilon: float) -> None:
    (replies,) = random_rounds(m, m, d, 1, seed=3)
    assert replies is not None
    weights, by_size, gradient = solve(replies, epsilon)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert weights.min() >= 0
    assert (weights - by_size).abs().max() <= epsilon + 1e-12
    # Weight can be moved from i to k only where i is above its lower and k below its upper bound: that must not pay.
    can_give = weights > (by_size - epsilon).clamp(min=0) + 1e-7
    can_take = weights < (by_size + epsilon).clamp(max=1) - 1e-7
    if can_give.any() and can_take.any():
        assert gradient[can_give].max() <= gradient[can_take].min() + 1e-9


def solve(replies: Replies, epsilon: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The weights of FedMGDA, read off its direction, those by size, and the gradient of its objective."""
    m = len(replies.clients)
    updates = updates_of(replies)
    rows = updates / updates.norm(dim=1, keepdim=True)
    # With a coordinate of its own for each client the direction shows its weights.
    marked = torch.cat([updates, 1e-7 * updates.norm(dim=1).diag()], dim=1)
    direction, _ = FedMGDA(epsilon=epsilon, eta=1)(
        make_replies(marked, sizes=replies.sizes), FedMGDA().init(m, marked.shape[1])
    )
    weights = direction[-m:] / 1e-7
    return weights, replies.sizes.double() / replies.sizes.sum(), gramian(rows) @ weights
