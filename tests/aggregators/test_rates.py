"""Rules that say how much each client improves: by hand, against other rules, and against the papers' algorithms."""

import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfv import FedAvg, MappedMatrix, Replies, from_tensors, skip, start, step, to_tensors
from fedfv.aggregators import IMTLG, AdaFed, FairGrad, FedLF, FedMDFG
from fedfv.experiments import run as run_experiment
from fedfv.linalg import gramian
from fedfv.models import build_model, layers_of
from tests.experiments.helpers import small, write_data
from tests.helpers import make_replies, random_rounds, run, updates_of
from tests.plain_rates import PlainFedLF, PlainFedMDFG, adafed_by_gram_schmidt

RULES = [AdaFed(), IMTLG(), FairGrad(), FedMDFG(), FedLF()]
MEAN = FedAvg(weighting="uniform")


def direction_of(rule: Any, updates: Tensor, layers: list[int] | None = None, **given: Any) -> Tensor:
    m, d = updates.shape
    state = rule.init(m, d) if layers is None else rule.init(m, d, torch.tensor(layers))
    direction, _ = rule(make_replies(updates, **given), state)
    return direction


def at_length_of(direction: list[float], other: Tensor) -> Tensor:
    vector = torch.tensor(direction, dtype=other.dtype)
    return vector / vector.norm() * other.norm()


def double(rows: list[list[float]] | list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.double)


def random_round(m: int, d: int, seed: int = 0, **options: Any) -> Replies:
    (replies,) = random_rounds(m, m, d, 1, seed=seed, **options)
    assert replies is not None
    return replies


# AdaFed


def test_adafed_worked_by_hand() -> None:
    """K = diag(9, 16), f = (2, 1): y = (2/9, 1/16), f . y = 73/144."""
    updates = double([[3.0, 0.0], [0.0, 4.0]])
    found = direction_of(AdaFed(length="own"), updates, losses=double([2.0, 1.0]))
    torch.testing.assert_close(found, double([96 / 73, 36 / 73]))
    found = direction_of(AdaFed(), updates, losses=double([2.0, 1.0]))
    torch.testing.assert_close(found, at_length_of([96, 36], double([1.5, 2.0])))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("m", [1, 2, 5, 20])
def test_adafed_gives_each_client_the_rate_of_its_loss(m: int, gamma: float) -> None:
    replies = random_round(m, 40)
    for normalise in (False, True):
        d, _ = AdaFed(gamma, normalise, length="own")(replies, AdaFed().init(m, 40))
        rows = updates_of(replies)
        if normalise:
            lengths = rows.norm(dim=1, keepdim=True)
            rows = rows / lengths * lengths.mean()
        torch.testing.assert_close(rows @ d / (d @ d), replies.losses.double() ** gamma, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_adafed_is_the_papers_gram_schmidt_process(seed: int) -> None:
    replies = random_round(6, 30, seed)
    d, _ = AdaFed(gamma=1.0, length="own")(replies, AdaFed().init(6, 30))
    expected = adafed_by_gram_schmidt(list(replies.updates.numpy()), replies.losses.tolist(), 1.0)
    torch.testing.assert_close(d, torch.from_numpy(expected), rtol=1e-6, atol=1e-9)


def test_adafed_without_gamma_on_updates_of_one_length_is_imtl_g() -> None:
    replies = random_round(5, 30)
    first, _ = AdaFed(gamma=0.0, normalise=True)(replies, AdaFed().init(5, 30))
    second, _ = IMTLG()(replies, IMTLG().init(5, 30))
    torch.testing.assert_close(first, second)


def test_adafed_takes_large_powers_and_losses_of_zero() -> None:
    updates = torch.eye(2, dtype=torch.double)
    assert not direction_of(AdaFed(), updates, losses=torch.zeros(2)).any()
    assert direction_of(AdaFed(gamma=50.0), updates, losses=double([1e20, 1e-20])).isfinite().all()
    torch.testing.assert_close(direction_of(AdaFed(), updates, losses=double([1.0, 0.0])), double([0.5**0.5, 0.0]))
    with pytest.raises(ValueError, match=r"^`losses` must not be negative for AdaFed, but those of clients \[1\] are"):
        direction_of(AdaFed(), updates, losses=double([1.0, -1.0]))


def test_adafed_takes_the_nearest_rates_where_it_cannot_have_those_of_the_losses() -> None:
    """Along a row and -3 times it, the same rate for both is 1 and -1/3 of the row's length; the mean of them wins."""
    row = updates_of(random_round(1, 20))[0]
    found = direction_of(AdaFed(), torch.stack([row, -3 * row]), losses=torch.ones(2, dtype=torch.double))
    torch.testing.assert_close(found, row, rtol=1e-5, atol=1e-5)


# IMTL-G


def test_imtl_g_worked_by_hand() -> None:
    """K = diag(9, 16), f = (3, 4): y = (1/3, 1/4), weights 4/7 and 3/7."""
    updates = double([[3.0, 0.0], [0.0, 4.0]])
    torch.testing.assert_close(direction_of(IMTLG(length="own"), updates), double([12 / 7, 12 / 7]))
    torch.testing.assert_close(direction_of(IMTLG(), updates), at_length_of([1, 1], double([1.5, 2.0])))


@pytest.mark.parametrize("length", ["own", "mean"])
@pytest.mark.parametrize("m", [1, 2, 7, 20])
def test_imtl_g_has_the_same_projection_on_all_updates(m: int, length: Any) -> None:
    updates = updates_of(random_round(m, 40)) * torch.logspace(-3, 3, m, dtype=torch.double)[:, None]
    projections = (updates / updates.norm(dim=1, keepdim=True)) @ direction_of(IMTLG(length), updates)
    assert projections.min() > 0
    torch.testing.assert_close(projections, projections.mean().expand(m), rtol=1e-6, atol=0)


def test_imtl_g_improves_all_clients_where_the_published_weights_have_a_negative_sum() -> None:
    updates = double([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1e-3, 1e-3, 1e-4]])
    K = gramian(updates)
    assert torch.linalg.solve(K, K.diagonal().sqrt()).sum() < 0, "no longer such a case"
    assert (updates @ direction_of(IMTLG(length="own"), updates) > 0).all()


# FairGrad


def test_fairgrad_worked_by_hand() -> None:
    """Orthogonal updates of lengths 2 and 1: K w = 1/w is w = (1/2, 1)."""
    updates = double([[2.0, 0.0], [0.0, 1.0]])
    torch.testing.assert_close(direction_of(FairGrad(length="own"), updates), double([1.0, 1.0]))
    torch.testing.assert_close(direction_of(FairGrad(), updates), at_length_of([1, 1], double([1.0, 0.5])))


def test_fairgrad_with_alpha_zero_is_the_mean() -> None:
    rounds = [replies for replies in random_rounds(9, 5, 30, 6) if replies is not None]
    torch.testing.assert_close(run(FairGrad(alpha=0), 9, rounds).params, run(MEAN, 9, rounds).params)


def test_fairgrad_with_a_small_alpha_is_near_a_mean_without_conflicts() -> None:
    updates = updates_of(random_round(5, 30)) + 1
    assert (gramian(updates) > 0).all()
    torch.testing.assert_close(direction_of(FairGrad(alpha=1e-4), updates), updates.mean(dim=0), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("seed", range(5))
def test_fairgrad_with_alpha_one_solves_the_equation_of_nash(seed: int) -> None:
    """With a coordinate of its own for each client, the direction shows the weights."""
    updates = updates_of(random_round(6, 30, seed))
    marked = torch.cat([updates, 1e-3 * torch.eye(6, dtype=torch.double)], dim=1)
    weights = direction_of(FairGrad(alpha=1.0, length="own"), marked)[-6:] / 1e-3
    torch.testing.assert_close(gramian(marked) @ weights, 1 / weights, rtol=1e-6, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_fairgrad_serves_the_worst_off_more_as_alpha_grows(seed: int) -> None:
    updates = updates_of(random_round(6, 30, seed)) * torch.linspace(1, 3, 6, dtype=torch.double)[:, None]
    smallest = []
    for alpha in (0.5, 1.0, 2.0, 5.0, 20.0, 30.0):
        improvements = updates @ direction_of(FairGrad(alpha), updates)
        assert improvements.min() > 0
        smallest.append(float(improvements.min()))
    assert smallest == sorted(smallest)


def test_fairgrad_stays_where_no_direction_improves_all_clients() -> None:
    angles = 2 * math.pi / 3 * torch.arange(3, dtype=torch.double)
    rows = torch.stack([angles.cos(), angles.sin()], dim=1) * double([[1.0], [2.0], [5.0]])
    for alpha in (0.2, 1.0, 2.0, 10.0):
        for length in ("own", "mean"):
            assert not direction_of(FairGrad(alpha, length), rows).any()


# FedMDFG and FedLF


def test_fedmdfg_worked_by_hand() -> None:
    """(3, 0) and (0, 5) are scaled to length 4; losses 4 and 3 are 8.1 degrees from equal ones.

    Beyond `theta` the fair row is 0.6 (4, 0) - 0.8 (0, 4); the nearest point to zero, between it and (0, 4), is
    (1.2, 0.4): the client with the larger loss improves more.
    """
    updates, losses = double([[3.0, 0.0], [0.0, 5.0]]), double([4.0, 3.0])
    torch.testing.assert_close(direction_of(FedMDFG(), updates, losses=losses), double([2.0, 2.0]))
    found = direction_of(FedMDFG(theta=5.0), updates, losses=losses)
    torch.testing.assert_close(found, at_length_of([3, 1], double([2.0, 2.0])))


def test_fedmdfg_turns_to_equal_losses_when_a_loss_rises() -> None:
    rule, updates = FedMDFG(theta=90.0), double([[3.0, 0.0], [0.0, 5.0]])
    _, state = rule(make_replies(updates, losses=double([3.0, 3.0])), rule.init(2, 2))
    risen, after = rule(make_replies(updates, round=1, losses=double([4.0, 3.0])), state)
    torch.testing.assert_close(risen, at_length_of([3, 1], double([2.0, 2.0])))
    assert after.losses.tolist() == [3.0, 3.0]
    both, _ = rule(make_replies(updates, round=1, losses=double([4.0, 3.1])), state)
    torch.testing.assert_close(both, double([2.0, 2.0]))
    _, fallen = rule(make_replies(updates, round=1, losses=double([1.0, 3.0])), state)
    assert fallen.losses.tolist() == [2.0, 3.0]
    assert fallen.counts.tolist() == [2, 2]


def test_fedmdfg_protects_the_clients_of_the_last_round() -> None:
    """Client 0 asked for (-1, 1), so client 1's (1, 0) becomes half of both, for one round."""
    rule = FedMDFG()
    _, state = rule(make_replies(double([[-1.0, 1.0]]), clients=torch.tensor([0])), rule.init(2, 2))
    for round, expected in ((1, [0.2**0.5, 0.8**0.5]), (2, [1.0, 0.0])):
        direction, state = rule(make_replies(double([[1.0, 0.0]]), clients=torch.tensor([1]), round=round), state)
        torch.testing.assert_close(direction, double(expected))


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("theta", [0.0, 11.25, 90.0])
def test_fedmdfg_equals_the_papers_algorithm_round_by_round(theta: float, m: int) -> None:
    compare(FedMDFG(theta), PlainFedMDFG(theta), None, m)


def test_fedlf_worked_by_hand() -> None:
    """In the first layer both are scaled to 2; in the second they are opposite, so nothing is left."""
    updates = double([[3.0, 1.0], [1.0, -1.0]])
    found = direction_of(FedLF(), updates, [0, 1, 2], losses=double([1.0, 1.0]))
    torch.testing.assert_close(found, double([2.0, 0.0]))
    updates, losses = double([[3.0, 0.0], [0.0, 5.0]]), double([4.0, 3.0])  # as for FedMDFG
    torch.testing.assert_close(direction_of(FedLF(), updates, losses=losses), at_length_of([3, 1], double([1.5, 2.5])))


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("offsets", [None, [0, 40], [0, 3, 25, 40], [0, 20, 20, 40]], ids=str)
def test_fedlf_equals_the_papers_algorithm_round_by_round(offsets: list[int] | None, m: int) -> None:
    plain = [0, *sorted(set(offsets or [0, 40]))[1:]]
    compare(FedLF(), PlainFedLF(plain), offsets, m)


def compare(rule: Any, plain: Any, offsets: list[int] | None, m: int, num_clients: int = 6, d: int = 40) -> None:
    layers = None if offsets is None else torch.tensor(offsets)
    server = start(rule, num_clients, torch.zeros(d, dtype=torch.double), layers=layers)
    for replies in random_rounds(num_clients, m, d, rounds=14, seed=m, dropout=0.25):
        if replies is None:
            server = skip(server)
            continue
        clients, updates = replies.clients.tolist(), list(replies.updates.numpy())
        expected = plain(replies.round, clients, updates, replies.losses.tolist())
        direction, _ = rule(replies, server.memory)
        torch.testing.assert_close(direction, torch.from_numpy(expected), rtol=1e-6, atol=1e-6)
        server = step(rule, replies, server)


def test_fedlf_works_on_each_layer_as_if_it_were_the_model() -> None:
    updates = updates_of(random_round(5, 30))
    whole = direction_of(FedLF(), updates, [0, 10, 30])
    for part in (slice(0, 10), slice(10, 30)):
        alone = direction_of(FedLF(), updates[:, part].clone())
        torch.testing.assert_close(whole[part] / whole[part].norm(), alone / alone.norm())
    torch.testing.assert_close(direction_of(FedLF(), updates, [0, 30]), direction_of(FedLF(), updates), rtol=0, atol=0)


def test_fedlf_leaves_out_a_client_whose_layer_did_not_change() -> None:
    updates = updates_of(random_round(3, 20)).clone()
    updates[1, 5:] = 0
    losses = torch.ones(3, dtype=torch.double)
    found = direction_of(FedLF(), updates, [0, 5, 20], losses=losses)
    others = direction_of(FedLF(), updates[[0, 2], 5:], losses=losses[:2])
    torch.testing.assert_close(found[5:] / found[5:].norm(), others / others.norm())


def test_fedlf_remembers_no_more_than_two_rows_for_each_client() -> None:
    rule, num_clients, m = FedLF(), 12, 4
    server = start(rule, num_clients, torch.zeros(9, dtype=torch.double), layers=torch.tensor([0, 4, 9]))
    for replies in random_rounds(num_clients, m, 9, rounds=60):
        assert replies is not None
        server = step(rule, replies, server)
        assert server.memory.updates[-1] is replies.updates, "the matrix was copied"
        assert sum(len(matrix) for matrix in server.memory.updates) <= 2 * num_clients
        pairs = zip(server.memory.updates, server.memory.standing(), strict=True)
        standing = torch.cat([rows[mask] for rows, mask in pairs if isinstance(rows, Tensor)])
        first, second = server.memory.gramians
        torch.testing.assert_close(first, gramian(standing[:, :4].contiguous()))
        torch.testing.assert_close(second, gramian(standing[:, 4:].contiguous()))


def test_fedlf_with_layers_resumes_bit_for_bit() -> None:
    rule, layers = FedLF(), torch.tensor([0, 7, 30])
    rounds = [replies for replies in random_rounds(8, 3, 30, 8) if replies is not None]
    servers = [start(rule, 8, torch.zeros(30, dtype=torch.double), layers=layers)]
    for replies in rounds:
        servers.append(step(rule, replies, servers[-1]))
    for server in servers[:-1]:
        file = io.BytesIO()
        torch.save(to_tensors(server), file)
        file.seek(0)
        resumed = from_tensors(rule, torch.load(file, weights_only=True))
        assert torch.equal(resumed.memory.offsets, layers)
        for replies in rounds[server.round :]:
            resumed = step(rule, replies, resumed)
        assert torch.equal(resumed.params, servers[-1].params)


def test_fedlf_reads_layers_in_files_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfv.mapped._PIECE", 3 * 4 * 7000)  # pieces that do not begin with the layers
    rule, d = FedLF(), 50_000
    layers = torch.tensor([0, 20_000, 20_010, d])
    servers = [start(rule, 7, torch.zeros(d), layers=layers) for _ in range(2)]
    for replies in random_rounds(7, 3, d, 4, dropout=0.3, dtype=torch.float32):
        assert replies is not None
        np.save(tmp_path / f"{replies.round}.npy", replies.updates.numpy())
        fields = {name: getattr(replies, name) for name in ("round", "clients", "losses", "sizes")}
        in_file = Replies(updates=MappedMatrix(tmp_path / f"{replies.round}.npy"), **fields)
        servers = [step(rule, replies, servers[0]), step(rule, in_file, servers[1])]
    torch.testing.assert_close(servers[0].params, servers[1].params, rtol=1e-5, atol=1e-6)


def test_layers_reach_the_rule_in_a_run(tmp_path: Path) -> None:
    experiment = small(write_data(tmp_path / "data.npz"), rounds=3, aggregator={"name": "fedlf"})
    checkpoint = run_experiment(experiment, tmp_path / "run").load()
    assert checkpoint is not None
    model = build_model("mlp", (8,), 4, seed=0, hidden=[6])
    assert checkpoint["memory.offsets"].tolist() == layers_of(model).tolist() == [0, 48, 54, 78, 82]


# All of them


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_one_client_gets_its_update(rule: Any) -> None:
    updates = updates_of(random_round(1, 20))
    torch.testing.assert_close(direction_of(rule, updates), updates[0])


@pytest.mark.parametrize("rule", [AdaFed(normalise=True), *RULES[1:]], ids=repr)
@pytest.mark.parametrize("factor", [-1.0, -3.0])
def test_two_opposite_updates_leave_the_model(rule: Any, factor: float) -> None:
    row = updates_of(random_round(1, 20))[0]
    found = direction_of(rule, torch.stack([row, factor * row]), losses=torch.ones(2, dtype=torch.double))
    assert found.norm() <= 1e-6 * row.norm()


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_equal_losses_and_orthogonal_updates_serve_all_clients_alike(rule: Any) -> None:
    updates = 2 * torch.eye(4, 7, dtype=torch.double)
    found = direction_of(rule, updates, losses=torch.full((4,), 0.3, dtype=torch.double))
    torch.testing.assert_close(found, updates.mean(dim=0))


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_an_update_of_zero_does_not_stop_the_others(rule: Any) -> None:
    updates = updates_of(random_round(3, 20)).clone()
    updates[1] = 0
    losses = torch.full((3,), 0.5, dtype=torch.double)
    found = direction_of(rule, updates, losses=losses)
    others = direction_of(rule, updates[[0, 2]], losses=losses[:2])
    torch.testing.assert_close(found / found.norm(), others / others.norm())


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("scale", [1e-10, 1e15])
def test_the_scale_of_the_updates_does_not_matter(rule: Any, scale: float) -> None:
    updates = updates_of(random_round(4, 20))
    expected = direction_of(rule, updates)
    torch.testing.assert_close(direction_of(rule, scale * updates) / scale, expected, rtol=1e-6, atol=1e-9)
    assert expected.any()


BAD = [
    (AdaFed, {"gamma": -1}, "`gamma` of AdaFed must be a number from 0, got -1."),
    (AdaFed, {"length": "long"}, "`length` of AdaFed must be one of 'own', 'mean', got 'long'."),
    (IMTLG, {"length": "long"}, "`length` of IMTLG must be one of 'own', 'mean', got 'long'."),
    (FairGrad, {"alpha": -0.5}, "`alpha` of FairGrad must be a number from 0 to 30, got -0.5."),
    (FairGrad, {"length": "long"}, "`length` of FairGrad must be one of 'own', 'mean', got 'long'."),
    (FedMDFG, {"theta": 91}, "`theta` of FedMDFG must be a number from 0 to 90, got 91."),
]


@pytest.mark.parametrize(("rule", "fields", "sentence"), BAD, ids=[sentence for _, _, sentence in BAD])
def test_a_wrong_hyper_parameter_is_refused(rule: type, fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        rule(**fields)
