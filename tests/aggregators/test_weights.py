"""The rules that weigh updates by losses: worked by hand, against plain loops, and what each promises."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedfv import Aggregator, FedAvg, Replies, skip, start, step
from fedfv.aggregators import TERM, AAggFF, FairMean, FedGA, PropFair, SemiVRed
from tests import plain_weights as plain
from tests.helpers import make_replies, random_rounds, run, updates_of

N = 9
UNIFORM = FedAvg(weighting="uniform")
RESPONSES = ["gumbel", "weibull", "exponential", "frechet", "logistic"]
NORMALISED = [  # rules whose weights are non-negative and sum to 1
    TERM(t=5.0),
    TERM(t=0.1, weighting="uniform"),
    PropFair(),
    SemiVRed(beta=3.0),
    SemiVRed(beta=3.0, semi=False),
    *(AAggFF(participation=p, response=r) for p in ("sampled", "full") for r in RESPONSES),  # type: ignore[arg-type]
    FedGA(step=0.9),
]
each_normalised = pytest.mark.parametrize("rule", NORMALISED, ids=repr)


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.double)


def weights_of(rule: Aggregator[Any], *losses: float, state: Any = None, **fields: Any) -> Tensor:
    """The weights of a round in which client k sends the k-th unit vector."""
    m = len(losses)
    fields = {"losses": doubles(*losses), "sizes": torch.full((m,), 10), **fields}
    replies = make_replies(torch.eye(m, dtype=torch.double), **fields)
    direction, _ = rule(replies, rule.init(m, m) if state is None else state)
    return direction


def rounds_of(num_clients: int = N, m: int = 5, **how: Any) -> list[Replies]:
    return [replies for replies in random_rounds(num_clients, m, 30, 12, **how) if replies is not None]


# Worked by hand


def test_term_worked_by_hand() -> None:
    """exp(ln 2 * 1) * 10 and exp(0) * 30 are 20 and 30."""
    weights = weights_of(TERM(t=math.log(2)), 1.0, 0.0, sizes=torch.tensor([10, 30]))
    torch.testing.assert_close(weights, doubles(0.4, 0.6))


def test_term_with_the_reciprocal_of_a_temperature_is_fedeba() -> None:
    """FedEBA's weights are proportional to exp(F / temperature)."""
    losses, temperature = doubles(0.3, 1.1, 2.0), 0.5
    expected = (losses / temperature).exp()
    weights = weights_of(TERM(t=1 / temperature, weighting="uniform"), *losses.tolist())
    torch.testing.assert_close(weights, expected / expected.sum())


def test_fairmean_worked_by_hand() -> None:
    """Losses 0, 1 and 3 with tau = 1 add 0, a half and three quarters of kappa."""
    torch.testing.assert_close(weights_of(FairMean(kappa=2, tau=1), 0.0, 1.0, 3.0), doubles(1, 2, 2.5) / 3)


def test_propfair_worked_by_hand() -> None:
    """10 / (2 - 1), 30 / (2 - 0.5), and 10 / 0.2, since the utility of a loss of 7 is below epsilon."""
    weights = weights_of(PropFair(M=2, epsilon=0.2), 1.0, 0.5, 7.0, sizes=torch.tensor([10, 30, 10]))
    torch.testing.assert_close(weights, doubles(10, 20, 50) / 80)


def test_semivred_worked_by_hand() -> None:
    """The mean is 2, the excess 1 and 0, its mean a half: (1 + 0.4 (1 - 0.5)) / 2; for VRed (1 + 0.4 (1 - 0)) / 2."""
    torch.testing.assert_close(weights_of(SemiVRed(beta=0.2), 3.0, 1.0), doubles(0.6, 0.4))
    torch.testing.assert_close(weights_of(SemiVRed(beta=0.2, semi=False), 3.0, 1.0), doubles(0.7, 0.3))


def test_semivred_has_no_negative_weights() -> None:
    """Excesses 4, 0, 0, 0 less their mean 1: (1 + 2 * 3) / 4 and (1 - 2) / 4, which becomes 0; then scaled to 1."""
    losses = (5.0 + 1 / 3, 0.0, 0.0, 0.0)
    assert weights_of(SemiVRed(beta=1.0), *losses).tolist() == [1, 0, 0, 0]


def test_sampled_aaggff_worked_by_hand() -> None:
    """Clients 0 and 1 of 4 with 1.5 and 0.5 times the mean loss."""
    rule = AAggFF()
    first, second = math.exp(-math.exp(-0.5)), math.exp(-math.exp(0.5))
    mean = 0.5 * (first + second) / 2
    replies = make_replies(torch.eye(2, dtype=torch.double), losses=doubles(3.0, 1.0))
    direction, state = rule(replies, rule.init(4, 2))
    gains = doubles(mean + first - (first + second) / 2, mean + second - (first + second) / 2, mean, mean) / (1 + mean)
    torch.testing.assert_close(state.gains, gains)
    powers = (gains * math.sqrt(math.log(4)) / 2.5).exp()
    torch.testing.assert_close(state.weights, powers / powers.sum())
    torch.testing.assert_close(direction, powers[:2] / powers[:2].sum())


def test_full_aaggff_worked_by_hand() -> None:
    """For two clients the minimum over p and 1 - p is where a derivative is zero."""
    rule = AAggFF(participation="full")
    r = doubles(math.exp(-math.exp(-0.5)), math.exp(-math.exp(0.5))) / 2
    replies = make_replies(torch.eye(2, dtype=torch.double), losses=doubles(3.0, 1.0))
    direction, state = rule(replies, rule.init(2, 2))
    a = r / (1 + r.mean())
    torch.testing.assert_close(state.gains, a)
    more = a[0] - a[1]
    p = (6 + more - more * a[1] / 2) / (12 + more**2 / 2)
    torch.testing.assert_close(direction, torch.stack([p, 1 - p]))
    torch.testing.assert_close(state.weights, direction)


def test_fedga_worked_by_hand() -> None:
    """The second round's gaps are 2 and -1: 1/2 + 0.1 and 1/2 - 0.05, with a sum of 1.05."""
    rule = FedGA(step=0.2)
    rows = torch.eye(2, dtype=torch.double)
    direction, state = rule(make_replies(rows, trained_losses=doubles(0.5, 1.0)), rule.init(2, 2))
    assert direction.tolist() == [0.5, 0.5]
    direction, state = rule(make_replies(rows, round=1, losses=doubles(2.5, 0.0)), state)
    torch.testing.assert_close(direction, doubles(0.6, 0.45) / 1.05)
    torch.testing.assert_close(state.weights, direction)


def test_the_step_of_fedga_falls_linearly_to_zero() -> None:
    """With gaps of 1 and 0 the weights are proportional to 1 + s and 1."""
    rows, losses, trained = torch.eye(2, dtype=torch.double), doubles(2.0, 1.0), doubles(1.0, 1.0)
    rule = FedGA(step=0.8, rounds=4)
    _, state = rule(make_replies(rows, trained_losses=trained), rule.init(2, 2))
    for round, s in [(1, 0.6), (2, 0.4), (3, 0.2), (4, 0.0), (9, 0.0)]:
        direction, _ = rule(make_replies(rows, round=round, losses=losses), state)
        torch.testing.assert_close(direction, doubles(1 + s, 1) / (2 + s))


# Against plain loops


@pytest.mark.parametrize("m", [1, 2, 5, 9])
@pytest.mark.parametrize(
    ("rule", "weigh"),
    [
        (TERM(t=3.0), plain.term(3.0, by_size=True)),
        (TERM(t=0.5, weighting="uniform"), plain.term(0.5, by_size=False)),
        (FairMean(kappa=1.5, tau=0.3), plain.fairmean(1.5, 0.3)),
        (PropFair(M=2.2, epsilon=0.1), plain.propfair(2.2, 0.1)),
        (SemiVRed(beta=1.5), plain.semivred(1.5, semi=True)),
        (SemiVRed(beta=1.5, semi=False), plain.semivred(1.5, semi=False)),
    ],
    ids=lambda value: repr(value) if hasattr(value, "init") else "plain",
)
def test_a_rule_without_state_equals_its_formula(rule: Aggregator[Any], weigh: plain.Weigh, m: int) -> None:
    compare(rule, weigh, m)


@pytest.mark.parametrize("m", [1, 2, 5, 9])
@pytest.mark.parametrize("response", RESPONSES)
def test_sampled_aaggff_equals_its_formulas(response: Any, m: int) -> None:
    compare(AAggFF(response=response), plain.aaggff_sampled(N, response), m)


@pytest.mark.parametrize("m", [1, 5, 9])
@pytest.mark.parametrize("response", ["gumbel", "frechet"])
def test_full_aaggff_equals_its_formulas(response: Any, m: int) -> None:
    compare(AAggFF(participation="full", response=response), plain.aaggff_full(N, response), m)


@pytest.mark.parametrize("rounds", [None, 10, 100])
@pytest.mark.parametrize("m", [1, 2, 5, 9])
def test_fedga_equals_its_formulas(m: int, rounds: int | None) -> None:
    compare(FedGA(step=0.3, rounds=rounds), plain.fedga(N, 0.3, rounds), m)


def compare(rule: Aggregator[Any], weigh: plain.Weigh, m: int) -> None:
    """Compares the directions of many rounds; in some, clients that were chosen do not reply."""
    server = start(rule, N, torch.zeros(7, dtype=torch.double))
    for replies in random_rounds(N, m, 7, rounds=25, seed=m, dropout=0.25):
        if replies is None:
            server = skip(server)
            continue
        clients = replies.clients.tolist()
        losses, sizes, trained = (
            dict(zip(clients, values.tolist(), strict=True))
            for values in (replies.losses, replies.sizes, replies.reported("trained_losses", to=rule))
        )
        weights = weigh(replies.round, losses, sizes, trained)
        expected = sum((weights[k] * updates_of(replies)[i] for i, k in enumerate(clients)), torch.zeros(7))
        direction, _ = rule(replies, server.memory)
        torch.testing.assert_close(direction, expected, rtol=1e-9, atol=1e-9)
        server = step(rule, replies, server)


# Identities


@pytest.mark.parametrize(
    ("rule", "same"),
    [
        (TERM(t=0), FedAvg()),
        (TERM(t=0, weighting="uniform"), UNIFORM),
        (FairMean(kappa=0), UNIFORM),
        (PropFair(M=1e12), FedAvg()),
        (SemiVRed(beta=0), FedAvg()),
        (SemiVRed(beta=0, semi=False), FedAvg()),
        (FedGA(step=0), UNIFORM),
    ],
    ids=repr,
)
def test_a_rule_that_does_not_look_at_losses_is_an_average(rule: Aggregator[Any], same: FedAvg) -> None:
    torch.testing.assert_close(run(rule, N, rounds_of()).params, run(same, N, rounds_of()).params)


@pytest.mark.parametrize("loss", [0.0, 0.7, 1e30])
@pytest.mark.parametrize(
    ("rule", "same"),
    [
        (TERM(t=4), FedAvg()),
        (TERM(t=4, weighting="uniform"), UNIFORM),
        (PropFair(), FedAvg()),
        (SemiVRed(beta=2), FedAvg()),
        (SemiVRed(beta=2, semi=False), FedAvg()),
        (AAggFF(), UNIFORM),
        (AAggFF(participation="full"), UNIFORM),
    ],
    ids=repr,
)
def test_with_equal_losses_a_rule_is_an_average(rule: Aggregator[Any], same: FedAvg, loss: float) -> None:
    rounds = [replace(replies, losses=torch.full_like(replies.losses, loss)) for replies in rounds_of(dropout=0.2)]
    torch.testing.assert_close(run(rule, N, rounds).params, run(same, N, rounds).params)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=6), st.sampled_from([0.01, 1.0, 7.0]))
def test_term_is_the_gradient_of_the_tilted_loss(values: list[float], t: float) -> None:
    losses, sizes = doubles(*values).requires_grad_(), torch.arange(1, len(values) + 1)
    tilted = torch.logsumexp(t * losses + sizes.double().log(), dim=0) / t
    (gradient,) = torch.autograd.grad(tilted, losses)
    torch.testing.assert_close(weights_of(TERM(t=t), *values, sizes=sizes), gradient)


@pytest.mark.parametrize("semi", [True, False])
@given(values=st.lists(st.floats(0, 2), min_size=2, max_size=6, unique=True))
def test_semivred_is_the_gradient_of_its_objective(semi: bool, values: list[float]) -> None:
    """As long as no weight is negative: with beta = 0.2 and losses up to 2, none is."""
    losses, beta = doubles(*values).requires_grad_(), 0.2
    shares = torch.arange(1, len(values) + 1).double()
    shares = shares / shares.sum()
    excess = losses - shares @ losses
    penalty = (excess.clamp(min=0) if semi else excess).square()
    (gradient,) = torch.autograd.grad(shares @ losses + beta * shares @ penalty, losses)
    weights = weights_of(SemiVRed(beta, semi), *values, sizes=torch.arange(1, len(values) + 1))
    torch.testing.assert_close(weights, gradient)


# Promises


@each_normalised
@pytest.mark.parametrize("losses", [(0, 0, 0), (0, 0, 5), (1e-30, 2, 1e30), (1e30, 1e30, 0), (1e6, 1e6 + 1, 1e6 - 1)])
def test_weights_are_on_the_simplex_whatever_the_losses(rule: Aggregator[Any], losses: tuple[float, ...]) -> None:
    _, state = rule(make_replies(torch.eye(3, dtype=torch.double)), rule.init(3, 3))
    weights = weights_of(rule, *losses, state=state, round=1)
    assert weights.min() >= 0
    assert weights.sum().item() == pytest.approx(1, abs=1e-9)


@each_normalised
@pytest.mark.parametrize("m", [1, 2, 5])
def test_weights_are_on_the_simplex_in_every_round(rule: Aggregator[Any], m: int) -> None:
    state = rule.init(N, m)
    for replies in random_rounds(N, m, 1, 30, dropout=0.2):
        if replies is None:
            continue
        rows = torch.eye(len(replies.clients), m, dtype=torch.double)
        direction, state = rule(replace(replies, updates=rows), state)
        everyone = getattr(state, "weights", direction)
        for weights in (direction, everyone):
            assert weights.min() >= 0
            assert weights.sum().item() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "rule",
    [
        *(TERM(t=t, weighting="uniform") for t in (0.1, 5.0)),
        FairMean(),
        PropFair(),
        SemiVRed(beta=1.0),
        SemiVRed(beta=1.0, semi=False),
        *(AAggFF(participation=p, response=r) for p in ("sampled", "full") for r in RESPONSES),  # type: ignore[arg-type]
    ],
    ids=repr,
)
@given(losses=st.lists(st.floats(0, 1e6), min_size=2, max_size=6))
def test_a_larger_loss_never_counts_less(rule: Aggregator[Any], losses: list[float]) -> None:
    weights = weights_of(rule, *losses)
    in_order = weights[doubles(*losses).argsort()]
    assert (in_order.diff() >= -1e-9).all()


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=8), st.floats(0, 20), st.floats(1e-3, 10))
def test_no_client_counts_more_with_fairmean_than_its_bound(losses: list[float], kappa: float, tau: float) -> None:
    weights = weights_of(FairMean(kappa, tau), *losses)
    m = len(losses)
    assert (weights >= 1 / m - 1e-12).all()
    assert (weights <= (1 + kappa) / m + 1e-12).all()


def test_term_finds_weights_if_the_worst_client_has_no_examples() -> None:
    assert weights_of(TERM(t=5), 1e6, 2.0, 1.0, sizes=torch.tensor([0, 1, 1]))[0] == 0
    weights = weights_of(TERM(t=math.log(3)), 1e6, 2.0, 1.0, sizes=torch.tensor([0, 1, 1]))
    torch.testing.assert_close(weights, doubles(0, 0.75, 0.25))


def test_aaggff_favours_a_client_that_is_always_badly_served() -> None:
    for participation in ("sampled", "full"):
        rule = AAggFF(participation=participation)
        state = rule.init(3, 3)
        shares = []
        for round in range(20):
            replies = make_replies(torch.eye(3, dtype=torch.double), round=round, losses=doubles(1.0, 1.0, 4.0))
            direction, state = rule(replies, state)
            shares.append(float(direction[2]))
        assert shares == sorted(shares)
        assert shares[-1] > shares[0] > 1 / 3


@pytest.mark.parametrize("participation", ["sampled", "full"])
def test_absent_clients_gain_as_much_as_the_average(participation: Any) -> None:
    rule = AAggFF(participation=participation)
    rows = torch.eye(4, dtype=torch.double)
    _, before = rule(make_replies(rows, losses=doubles(1.0, 1.0, 4.0, 2.0)), rule.init(4, 4))
    _, after = rule(make_replies(rows[:2], losses=doubles(1.0, 4.0)), before)
    gained = after.gains - before.gains
    torch.testing.assert_close(gained[2:], gained[:2].mean().repeat(2))
    assert gained[1] > gained[2] > gained[0]


def test_fedga_keeps_the_weights_and_losses_of_absent_clients() -> None:
    rule = FedGA(step=0.5)
    rows = torch.eye(3, dtype=torch.double)
    _, first = rule(make_replies(rows, trained_losses=doubles(1.0, 1.0, 1.0)), rule.init(4, 3))
    assert first.trained_losses.tolist() == [1, 1, 1, math.inf]
    replies = make_replies(rows[:2], round=1, losses=doubles(3.0, 1.0), trained_losses=doubles(0.5, 0.7))
    _, second = rule(replies, first)
    assert second.trained_losses.tolist() == [0.5, 0.7, 1, math.inf]
    assert second.weights[2:].tolist() == first.weights[2:].tolist() == [0.25, 0.25]
    torch.testing.assert_close(second.weights[:2], 0.5 * doubles(0.75, 0.5) / 1.25)


def test_fedga_clips_its_weights() -> None:
    """Gaps of -1, 1 and 0 make -0.05, 1.0, and 0.05 of 0.1, 0.85 and 0.05; only the first is outside of [0, 1]."""
    rule = FedGA(step=0.45)
    state = rule.init(3, 3)._replace(weights=doubles(0.1, 0.85, 0.05), trained_losses=doubles(1.0, 1.0, 1.0))
    weights = weights_of(rule, 0.0, 2.0, 1.0, state=state)
    torch.testing.assert_close(weights, doubles(0, 1, 0.05) / 1.05)


def test_fedga_does_not_change_the_weight_of_a_client_without_a_gap() -> None:
    rule = FedGA(step=0.5)
    rows = torch.eye(2, dtype=torch.double)
    first = make_replies(rows[:1], clients=torch.tensor([0]), trained_losses=doubles(1.0))
    _, state = rule(first, rule.init(2, 2))
    direction, _ = rule(make_replies(rows, round=1, losses=doubles(2.0, 9.0)), state)
    torch.testing.assert_close(direction, doubles(0.75, 0.5) / 1.25)


def test_fedga_leaves_the_model_when_all_weight_is_on_absent_clients() -> None:
    rule = FedGA()
    state = rule.init(2, 3)._replace(weights=doubles(1.0, 0.0))
    replies = make_replies(torch.ones(1, 3), clients=torch.tensor([1]), trained_losses=doubles(0.5))
    direction, state = rule(replies, state)
    assert not direction.any()
    assert state.weights.tolist() == [1, 0]
    assert state.trained_losses.tolist() == [math.inf, 0.5]


@pytest.mark.parametrize("gain", [8.0, 10.0, 12.0, 30.0])
def test_aaggff_leaves_the_model_when_all_weight_is_on_absent_clients(gain: float) -> None:
    """The solver's weights of the others are some 1e-12; an average by them would be one by rounding errors."""
    rule = AAggFF(participation="full")
    state = rule.init(3, 3)._replace(gains=doubles(gain, 0.0, 0.0))
    direction, state = rule(make_replies(torch.ones(2, 3), clients=torch.tensor([1, 2])), state)
    assert state.weights.tolist() == [1, 0, 0]
    assert not direction.any()


# What is refused


@pytest.mark.parametrize("rule", [FairMean(), AAggFF()], ids=repr)
def test_negative_losses_are_refused_where_the_rule_is_not_defined(rule: Aggregator[Any]) -> None:
    replies = make_replies(torch.ones(2, 3), clients=torch.tensor([4, 7]), losses=doubles(1.0, -1.0))
    sentence = f"`losses` must not be negative for {type(rule).__name__}, but those of clients [7] are."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        rule(replies, rule.init(9, 3))


@pytest.mark.parametrize("rule", [TERM(), PropFair(), SemiVRed(), SemiVRed(semi=False), FedGA()], ids=repr)
def test_negative_losses_are_as_good_as_others_elsewhere(rule: Aggregator[Any]) -> None:
    weights = weights_of(rule, -3.0, -1.0, -2.0)
    assert weights.min() >= 0
    assert weights.sum().item() == pytest.approx(1)


def test_fedga_names_the_losses_that_are_missing() -> None:
    replies = make_replies(torch.ones(2, 3), trained_losses=None)
    with pytest.raises(ValueError, match=r"^`trained_losses` must be in the replies, since FedGA needs it"):
        FedGA()(replies, FedGA().init(2, 3))
