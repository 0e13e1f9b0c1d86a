"""FedFV against the paper: its algorithms, its special cases, and what it must remember."""

from fractions import Fraction

import pytest
import torch

from fedfv import FedAvg, FedFV, History, Replies, skip, start, step
from fedfv.linalg import gramian, length
from tests.helpers import make_replies, permuted, random_rounds, run, updates_of
from tests.plain import PlainFedFV

ALPHAS = [Fraction(0), Fraction(1, 10), Fraction(1, 5), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)]
TAUS = [0, 1, 3, 10]


@pytest.mark.parametrize("m", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
def test_fedfv_equals_the_papers_algorithms_round_by_round(alpha: Fraction, tau: int, m: int) -> None:
    num_clients, d = 2 * m + 1, 40
    rule, plain = FedFV(float(alpha), tau), PlainFedFV(alpha, tau)
    server = start(rule, num_clients, torch.zeros(d, dtype=torch.double))
    for replies in random_rounds(num_clients, m, d, rounds=16, seed=m, dropout=0.25):
        if replies is None:  # nobody replied: the round passes, the model stays
            server = skip(server)
            continue
        expected = plain(
            replies.round, replies.clients.tolist(), list(replies.updates.numpy()), replies.losses.tolist()
        )
        direction, _ = rule(replies, server.memory)
        torch.testing.assert_close(direction, torch.from_numpy(expected), rtol=1e-9, atol=1e-9)
        server = step(rule, replies, server)


def test_two_conflicting_clients_are_both_served() -> None:
    """Worked by hand: (4, 0) and (-1, 1) become (2, 2) and (0, 1), mean (1, 1.5), at the length of (1.5, 0.5)."""
    direction, _ = FedFV(alpha=0, tau=0)(make_replies(torch.tensor([[4.0, 0.0], [-1.0, 1.0]])), FedFV().init(2, 2))
    expected = torch.tensor([1.0, 1.5])
    torch.testing.assert_close(direction, expected / expected.norm() * torch.tensor([1.5, 0.5]).norm())


def test_an_absent_client_is_protected_for_tau_rounds() -> None:
    """Client 0 asked for (-1, 1) in round 0; round 1's (1, 0) is turned until it no longer goes against that."""
    first = make_replies(torch.tensor([[-1.0, 1.0]]), clients=torch.tensor([0]))
    opposed = [
        make_replies(torch.tensor([[1.0, 0.0]]), clients=torch.tensor([1]), round=round) for round in range(1, 4)
    ]
    plain, tilted = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]).sqrt()
    for tau, expected in [(0, [plain, plain, plain]), (1, [tilted, plain, plain]), (2, [plain, tilted, plain])]:
        rule = FedFV(alpha=0, tau=tau)
        _, memory = rule(first, rule.init(2, 2))
        for replies, wanted in zip(opposed, expected, strict=True):
            direction, memory = rule(replies, memory)
            # With tau = 2 nothing is done in round 1: the external step starts at round tau.
            torch.testing.assert_close(direction, wanted, msg=f"tau={tau}, round {replies.round}")


def test_with_alpha_one_and_tau_zero_fedfv_is_the_uniform_average() -> None:
    rounds = [replies for replies in random_rounds(9, 5, 30, 6) if replies is not None]
    fair, uniform = run(FedFV(alpha=1, tau=0), 9, rounds), run(FedAvg(weighting="uniform"), 9, rounds)
    torch.testing.assert_close(fair.params, uniform.params)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_direction_is_as_long_as_the_mean_update(tau: int, dtype: torch.dtype) -> None:
    rule = FedFV(alpha=0.2, tau=tau)
    server = start(rule, 20, torch.zeros(50, dtype=dtype))
    for replies in random_rounds(20, 6, 50, 14, dtype=dtype):
        assert replies is not None
        direction, _ = rule(replies, server.memory)
        assert length(direction) == pytest.approx(length(replies.updates.mean(dim=0)), rel=1e-6)
        server = step(rule, replies, server)


@pytest.mark.parametrize("seed", range(20))
def test_the_last_target_is_never_conflicted_with_at_alpha_zero(seed: int) -> None:
    (replies,) = random_rounds(8, 8, 12, 1, seed=seed)
    assert replies is not None
    direction, _ = FedFV(alpha=0, tau=0)(replies, FedFV().init(8, 12))
    last = max(range(8), key=lambda k: (replies.losses[k], replies.clients[k]))
    assert updates_of(replies)[last] @ direction >= -1e-12


@pytest.mark.parametrize(
    ("m", "alpha", "count"),
    [
        (10, 0.0, 0),
        (10, 0.1, 1),
        (10, 0.2, 2),
        (10, 0.5, 5),
        (3, 0.334, 1),
        (3, 0.667, 2),
        (3, 1 / 3, 1),
        (3, 2 / 3, 2),
        (11, 0.7, 8),
        (10, 1.0, 10),
        (1, 0.5, 1),
    ],
)
def test_the_share_alpha_of_clients_with_the_largest_losses_keep_their_update(m: int, alpha: float, count: int) -> None:
    replies = make_replies(torch.eye(m), losses=torch.arange(m))
    _, _, explanation = FedFV(alpha=alpha).explain(replies, FedFV().init(m, m))
    assert explanation.kept.tolist() == [False] * (m - count) + [True] * count


def test_nearly_opposite_updates_in_single_precision_lose_nothing() -> None:
    """What two such updates do not share is all that remains of them; a Gramian in single precision loses it."""
    generator = torch.Generator().manual_seed(0)
    shared, difference = torch.randn(2, 5000, generator=generator)
    updates = torch.stack([shared, -shared + 1e-4 * difference])
    single, _ = FedFV(alpha=0, tau=0)(make_replies(updates), FedFV().init(2, 5000))
    double, _ = FedFV(alpha=0, tau=0)(make_replies(updates.double()), FedFV().init(2, 5000))
    assert (single.double() - double).norm() < 1e-6 * double.norm()


def test_exactly_opposite_updates_give_zero_and_not_magnified_rounding() -> None:
    update = torch.randn(100_001, generator=torch.Generator().manual_seed(0))
    for factor in (-1.0, -3.0, -0.3):
        direction, _ = FedFV(alpha=0, tau=0)(
            make_replies(torch.stack([update.double(), factor * update.double()])), FedFV().init(2, 1)
        )
        assert not direction.any()


def test_a_round_that_is_opposed_only_by_memory_gives_zero_and_not_magnified_rounding() -> None:
    update = torch.randn(1, 10_001, generator=torch.Generator().manual_seed(0))
    rule = FedFV(alpha=0, tau=1)
    _, memory = rule(make_replies(update, clients=torch.tensor([0])), rule.init(2, 10_001))
    direction, _ = rule(make_replies(-0.3 * update, clients=torch.tensor([1]), round=1), memory)
    assert not direction.any()


def test_the_random_order_depends_on_seed_and_round_and_on_nothing_else() -> None:
    (replies,) = random_rounds(12, 12, 20, 1)
    assert replies is not None
    state = FedFV().init(12, 20)
    rule = FedFV(alpha=0, tau=0, order="random", seed=3)
    torch.manual_seed(0)
    direction, _ = rule(replies, state)
    torch.manual_seed(1)
    again, _ = rule(replies, state)
    assert torch.equal(direction, again)
    shuffled, _ = rule(permuted(replies, torch.randperm(12, generator=torch.Generator().manual_seed(0))), state)
    torch.testing.assert_close(shuffled, direction)
    other_seed, _ = FedFV(alpha=0, tau=0, order="random", seed=4)(replies, state)
    assert not torch.allclose(other_seed, direction)


def test_the_three_orders_differ() -> None:
    (replies,) = random_rounds(12, 12, 20, 1)
    assert replies is not None
    rules = [FedFV(alpha=0, tau=0, order=order) for order in ("loss", "reverse", "random")]
    loss, reverse, random = (rule(replies, rule.init(12, 20))[0] for rule in rules)
    assert not torch.allclose(loss, reverse)
    assert not torch.allclose(loss, random)
    assert not torch.allclose(reverse, random)


def rows_in(memory: History) -> int:
    return sum(len(clients) for clients in memory.clients)


@pytest.mark.parametrize(("num_clients", "m", "tau"), [(100, 10, 3), (6, 4, 10), (5, 5, 10), (50, 5, 0)])
def test_the_history_holds_only_rows_that_can_be_used_again(num_clients: int, m: int, tau: int) -> None:
    rule = FedFV(alpha=0.1, tau=tau)
    server = start(rule, num_clients, torch.zeros(8, dtype=torch.double))
    for replies in random_rounds(num_clients, m, 8, 25):
        assert isinstance(replies, Replies)
        server = step(rule, replies, server)
        memory = server.memory
        assert rows_in(memory) <= min(num_clients, tau * m)
        assert sum(len(updates) for updates in memory.updates) == rows_in(memory)
        for updates, kernel in zip(memory.updates, memory.gramians, strict=True):
            torch.testing.assert_close(kernel, gramian(updates))
    if num_clients == m:  # everybody replies, so only the last round stands
        assert rows_in(server.memory) == m


def test_the_history_does_not_copy_updates() -> None:
    replies = make_replies(torch.randn(3, 10, generator=torch.Generator().manual_seed(0)))
    _, memory = FedFV(tau=5)(replies, FedFV(tau=5).init(30, 10))
    assert memory.updates[0] is replies.updates


def test_the_band_gives_the_last_and_the_kept_place_to_the_best_aligned_client() -> None:
    """Clients 1 to 3 are worst served; of these, client 2 agrees most with the mean (2, 1), and client 3 opposes it."""
    updates = torch.tensor([[4.0, 0.0], [1.0, 2.0], [4.0, 2.5], [-1.0, -0.5]], dtype=torch.double)
    replies = make_replies(updates, losses=torch.tensor([0.1, 1.0, 1.1, 1e6], dtype=torch.double))
    for band, kept in [(0.0, 3), (0.25, 3), (0.5, 2), (0.75, 2), (1.0, 2)]:
        rule = FedFV(alpha=0.25, tau=0, band=band)
        _, _, explanation = rule.explain(replies, rule.init(4, 2))
        assert explanation.kept is not None
        assert explanation.kept.nonzero().flatten().tolist() == [kept], band


def test_a_bounded_projection_moves_an_update_by_a_multiple_of_the_target() -> None:
    """Worked by hand: (-4, 1) loses -4 (1, 0) to become (0, 1); at most twice the target leaves (-2, 1)."""
    replies = make_replies(torch.tensor([[1.0, 0.0], [-4.0, 1.0]], dtype=torch.double))
    for most, expected in [(None, (0.0, 1.0)), (4.0, (0.0, 1.0)), (2.0, (-2.0, 1.0))]:
        rule = FedFV(alpha=0, tau=0, max_projection=most)
        _, _, explanation = rule.explain(replies, rule.init(2, 2))
        assert explanation.coefficients is not None
        torch.testing.assert_close((explanation.coefficients @ updates_of(replies))[1].tolist(), [*expected])


def test_a_bounded_stretch_bounds_the_last_factor() -> None:
    """Each update loses nearly all of its first entry, and the mean (40, 1) is much longer than what is left."""
    replies = make_replies(torch.tensor([[90.0, 1.0], [-10.0, 1.0]], dtype=torch.double))
    lengths = [
        length(FedFV(alpha=0, tau=0, max_stretch=most)(replies, FedFV().init(2, 2))[0]) for most in (None, 1e9, 3.0)
    ]
    coefficients = FedFV(alpha=0, tau=0).explain(replies, FedFV().init(2, 2))[2].coefficients
    assert coefficients is not None
    before = length((coefficients @ updates_of(replies)).mean(dim=0))
    torch.testing.assert_close(lengths, [1601**0.5] * 2 + [3 * before])


@pytest.mark.parametrize(
    ("field", "bounds"), [("band", "from 0 to 1"), ("max_projection", "above 0"), ("max_stretch", "from 1")]
)
def test_the_fields_beyond_the_paper_refuse_what_makes_no_sense(field: str, bounds: str) -> None:
    with pytest.raises(ValueError, match=rf"^`{field}` of FedFV must be a number {bounds}, got -1\.0\.$"):
        FedFV(**{field: -1.0})  # type: ignore[arg-type]
