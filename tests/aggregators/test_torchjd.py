"""Rules that TorchJD has, too: they are compared with it, in both directions."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfv import AlignedMTL, CAGrad, DualProj, FairGrad, FedFV, FromTorchJD, UPGrad, linalg
from fedfv.aggregators import IMTLG, on_matrix
from fedfv.core import Aggregator
from fedfv.experiments import Experiment
from fedfv.sampling import Everyone
from fedfv.seeding import rng
from fedfv.testing import check_aggregator
from tests.helpers import make_replies

SHAPES = [(1, 5), (2, 9), (3, 40), (5, 6), (10, 30), (40, 60)]


def random_matrices() -> list[Tensor]:
    return [torch.from_numpy(rng(seed, "torchjd").normal(size=shape)) for seed, shape in enumerate(SHAPES * 3)]


def direction_of(rule: Aggregator[Any], updates: Tensor) -> Tensor:
    return rule(make_replies(updates), rule.init(len(updates), updates.shape[1]))[0]


def close(found: Tensor, expected: Tensor, updates: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * float(updates.norm(dim=1).mean()))


def test_experiments_keep_the_name_and_the_options() -> None:
    rule = FromTorchJD("CAGrad", options={"c": 0.5})
    experiment = Experiment(rounds=1, sampling=Everyone(), aggregator=rule)
    table = {"name": "torchjd", "aggregator": "CAGrad", "options": {"c": 0.5}, "seed": 0}
    assert experiment.to_dict()["aggregator"] == table
    assert Experiment.from_toml(experiment.to_toml()) == experiment


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"aggregator": 3}, "`aggregator` of FromTorchJD must be a name or an object of TorchJD, got 3."),
        ({"aggregator": print, "options": {"c": 1}}, "`options` of FromTorchJD must be left out with an object, got"),
    ],
)
def test_a_wrong_option_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        FromTorchJD(**fields)


def test_a_rule_is_a_function_of_a_matrix() -> None:
    updates = torch.from_numpy(rng(0, "on matrix").normal(size=(5, 12)))
    losses, sizes = torch.arange(5.0), torch.tensor([1, 2, 3, 4, 5])
    rule = FedFV(alpha=0.2, tau=0)
    expected, _ = rule(make_replies(updates, losses=losses, sizes=sizes), rule.init(5, 12))
    assert torch.equal(on_matrix(rule, losses, sizes)(updates), expected)
    assert torch.equal(on_matrix(UPGrad())(updates), direction_of(UPGrad(), updates))


@pytest.fixture
def torchjd() -> Any:
    pytest.importorskip("quadprog")
    return pytest.importorskip("torchjd.aggregation")


def exact(torchjd: Any, name: str) -> Any:
    """The aggregator of TorchJD without the thresholds that it adds."""
    projector = pytest.importorskip("torchjd.linalg").QuadprogProjector(norm_eps=0.0, reg_eps=1e-10)
    return getattr(torchjd, name)(projector=projector)


@pytest.mark.parametrize("rule", [UPGrad(), DualProj()], ids=repr)
def test_projections_onto_the_dual_cone_are_those_of_torchjd(torchjd: Any, rule: Any) -> None:
    theirs = exact(torchjd, type(rule).__name__)
    for updates in random_matrices():
        close(direction_of(rule, updates), theirs(updates), updates, 1e-7)
        close(on_matrix(rule)(updates), direction_of(FromTorchJD(theirs), updates), updates, 1e-7)
        # With its own ridge of 1e-4 there is a bias.
        close(on_matrix(rule)(updates), direction_of(FromTorchJD(type(rule).__name__), updates), updates, 0.02)


def test_aligned_mtl_is_that_of_torchjd(torchjd: Any) -> None:
    for updates in [*random_matrices(), random_matrices()[4][:, :2]]:
        close(on_matrix(AlignedMTL())(updates), torchjd.AlignedMTL()(updates), updates, 1e-7)


def test_imtl_g_is_that_of_torchjd(torchjd: Any) -> None:
    for updates in random_matrices():
        if len(updates) > updates.shape[1]:
            continue  # linearly dependent rows have no equal projections, and TorchJD takes other ones
        theirs = torchjd.IMTLG()(updates)
        ours = on_matrix(IMTLG(length="own"))(updates)
        close(ours, theirs if float(ours @ theirs) > 0 else -theirs, updates, 1e-4)


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0, 2.0])
def test_cagrad_is_that_of_torchjd(torchjd: Any, c: float) -> None:
    """TorchJD's solver has a tolerance of 1e-8 in the objective; the client that gains least never gains less here."""
    pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    for updates in random_matrices():
        ours, theirs = on_matrix(CAGrad(c=c))(updates), torchjd.CAGrad(c=c, norm_eps=0.0)(updates)
        close(ours, theirs, updates, 1e-3)
        assert (updates @ ours).min() >= (updates @ theirs).min() - 1e-9


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_fairgrad_is_that_of_torchjd(torchjd: Any, alpha: float) -> None:
    pytest.importorskip("scipy")
    for updates in random_matrices():
        ours, theirs = on_matrix(FairGrad(alpha, length="own"))(updates), torchjd.FairGrad(alpha)(updates)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6 * float(ours.norm()))


@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem that is not DPP")
def test_fairgrad_with_alpha_one_is_nash_of_torchjd(torchjd: Any) -> None:
    """The iteration of TorchJD's NashMTL does not always converge with many rows; its objective is never larger."""
    pytest.importorskip("cvxpy")
    pytest.importorskip("ecos")
    for updates in random_matrices():
        m = len(updates)
        if m == 1:
            continue  # TorchJD's has an error for one row
        ours = on_matrix(FairGrad(alpha=1.0, length="own"))(updates)
        theirs = torchjd.NashMTL(n_tasks=m, max_norm=0.0, optim_niter=100)(updates)
        if m <= 5:
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6 * float(ours.norm()))
        gains = [(updates @ direction / direction.norm()).log().sum() for direction in (ours, theirs)]
        assert not gains[0] < gains[1] - 1e-9  # NaN: their direction makes a client worse


def test_the_shortest_mixture_is_near_that_of_torchjd(torchjd: Any) -> None:
    """The iterations of TorchJD's MGDA converge slowly; its mixture is never shorter."""
    for updates in random_matrices():
        m = len(updates)
        exact = linalg.min_norm_weights(linalg.gramian(updates), torch.zeros(m), torch.ones(m)) @ updates
        theirs = torchjd.MGDA(epsilon=1e-6, max_iters=2000)(updates)
        assert exact.norm() <= theirs.norm() * (1 + 1e-9)
        close(exact, theirs, updates, 0.05)


def test_pcgrad_is_fedfv_before_its_length_is_restored(torchjd: Any) -> None:
    """PCGrad draws an order for each row, FedFV has one for all; each row of PCGrad is that row of FedFV for an order.

    With two rows there is only one order of the others.
    """
    kept = torch.zeros(3, dtype=torch.bool)
    for seed in range(20):
        updates = torch.from_numpy(rng(seed, "pcgrad").normal(size=(3, 4)))
        pair = updates[:2]
        sums = linalg.deconflict(linalg.gramian(pair), torch.tensor([0, 1]), kept[:2]).sum(dim=0)
        close(torchjd.PCGrad()(pair), sums @ pair, pair, 1e-12)
        close(torchjd.PCGrad()(pair) / 2, direction_of(UPGrad(), pair), pair, 1e-12)

        orders = [torch.tensor(order) for order in itertools.permutations(range(3))]
        each = [linalg.deconflict(linalg.gramian(updates), order, kept) for order in orders]
        chosen = itertools.product(each, repeat=3)  # an order for each row
        possible = [torch.stack([rows[i][i] for i in range(3)]).sum(dim=0) @ updates for rows in chosen]
        drawn = direction_of(FromTorchJD("PCGrad", seed=seed), updates)
        assert min(float((drawn - one).norm()) for one in possible) < 1e-9


def test_tiny_updates_are_below_the_threshold_of_torchjd(torchjd: Any) -> None:
    """For updates of length .003, TorchJD's UPGrad is the plain mean, and conflicts; ours does not depend on units."""
    updates = torch.tensor([[1.0, 0.0], [-3.0, 1.0]], dtype=torch.double)
    tiny = updates * 0.001
    theirs = torchjd.UPGrad()
    torch.testing.assert_close(theirs(tiny), tiny.mean(dim=0))
    assert (tiny @ theirs(tiny)).min() < 0
    close(theirs(updates), on_matrix(UPGrad())(updates), updates, 0.01)
    torch.testing.assert_close(on_matrix(UPGrad())(tiny), on_matrix(UPGrad())(updates) * 0.001)


def test_aggregators_that_need_the_matrix_get_it(torchjd: Any) -> None:
    updates = torch.from_numpy(rng(0, "matrix").normal(size=(5, 12)))
    rule = FromTorchJD("TrimmedMean", options={"trim_number": 1})
    close(direction_of(rule, updates), updates.sort(dim=0).values[1:-1].mean(dim=0), updates, 1e-12)
    check_aggregator(FromTorchJD("GradDrop"), degree=1, dtypes=[torch.float32, torch.bfloat16])


def test_random_aggregators_depend_on_the_round_and_the_seed_alone(torchjd: Any) -> None:
    updates = torch.from_numpy(rng(0, "random").normal(size=(5, 12)))
    found = [direction_of(FromTorchJD("Random", seed=seed), updates) for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_an_unknown_name_is_refused_before_the_first_round(torchjd: Any) -> None:
    with pytest.raises(ValueError, match=r"`aggregator` of FromTorchJD must be one of AlignedMTL, .*, got 'UPgrad'"):
        FromTorchJD("UPgrad").init(3, 4)
    with pytest.raises(ValueError, match="must be one of"):
        FromTorchJD("UPGradWeighting").init(3, 4)


def test_torchjd_descends_with_our_rule(torchjd: Any) -> None:
    """A rule goes wherever an aggregator of TorchJD is called with a matrix, as in its `jac_to_grad`."""
    autojac = pytest.importorskip("torchjd.autojac")
    model = torch.nn.Linear(4, 3).double()
    inputs = torch.from_numpy(rng(0, "descends").normal(size=(6, 4)))
    losses = model(inputs).square().mean(dim=0)
    autojac.backward(losses)
    autojac.jac_to_grad(model.parameters(), on_matrix(UPGrad()))
    assert all(parameter.grad.any() for parameter in model.parameters())
