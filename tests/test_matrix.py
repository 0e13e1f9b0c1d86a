"""Views of some rows of a matrix, with factors."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedfv import FedFV, MappedMatrix, Replies, linalg
from fedfv.aggregators import ClipNorms
from fedfv.core import Empty, begin
from fedfv.distributed import ALONE
from fedfv.matrix import Matrix, MatrixView, some_rows, whole
from fedfv.sharded import ShardedMatrix
from tests.helpers import make_replies, random_rounds
from tests.test_mapped import saved

FACTORS = torch.tensor([1.0, 0.5, 0.25, 2.0, 0.0], dtype=torch.double)
ROWS = torch.randn(5, 70, dtype=torch.double, generator=torch.Generator().manual_seed(0))
EXPECTED = ROWS * FACTORS[:, None]


INDEX = torch.tensor([6, 0, 3, 1, 7])  # of these rows among others
AMONG = torch.full((8, 70), torch.nan, dtype=torch.double)
AMONG[INDEX] = ROWS


@pytest.fixture(params=["tensor", "file", "twice", "some", "some in a file", "some of some", "divided", "some divided"])
def scaled(request: pytest.FixtureRequest, tmp_path: Path) -> MatrixView:
    match request.param:
        case "twice":
            return MatrixView(MatrixView(ROWS, FACTORS / 2), torch.full((5,), 2.0))
        case "some":
            return MatrixView(AMONG, FACTORS, INDEX)
        case "some in a file":
            return MatrixView(MappedMatrix(saved(tmp_path, AMONG.numpy())), FACTORS, INDEX)
        case "some of some":
            outer = torch.tensor([4, 1, 2, 3, 0])
            return MatrixView(MatrixView(AMONG, FACTORS[outer] / 2, INDEX[outer]), torch.full((5,), 2.0), outer)
        case "divided":
            return MatrixView(ShardedMatrix.of(ROWS, ALONE), FACTORS)
        case "some divided":
            return MatrixView(ShardedMatrix.of(AMONG, ALONE), FACTORS, INDEX)
        case "file":
            return MatrixView(MappedMatrix(saved(tmp_path, ROWS.numpy())), FACTORS)
    return MatrixView(ROWS, FACTORS)


def test_every_pass_applies_the_factors(scaled: Matrix) -> None:
    vector, weights, offsets = ROWS[0], torch.arange(5.0, dtype=torch.double), torch.tensor([0, 30, 70])
    used = torch.tensor([True, False, True, True, True])
    torch.testing.assert_close(linalg.gramian(scaled), EXPECTED @ EXPECTED.T)
    torch.testing.assert_close(linalg.products(scaled, vector), EXPECTED @ vector)
    torch.testing.assert_close(linalg.squared_lengths(scaled), EXPECTED.square().sum(dim=1))
    along, squares = linalg.along_sample(scaled, linalg.sampled(vector))
    torch.testing.assert_close(along, EXPECTED @ vector)
    torch.testing.assert_close(squares, EXPECTED.square().sum(dim=1))
    torch.testing.assert_close(linalg.combine(weights, scaled), weights @ EXPECTED)
    torch.testing.assert_close(linalg.block_gramians(scaled, offsets), linalg.block_gramians(EXPECTED, offsets))
    torch.testing.assert_close(
        linalg.block_cross_gramians(scaled, scaled, offsets, used),
        linalg.block_cross_gramians(EXPECTED, EXPECTED, offsets, used),
    )
    both = torch.stack([weights, weights.flip(0)])
    torch.testing.assert_close(
        linalg.combine_blocks(both, scaled, offsets), linalg.combine_blocks(both, EXPECTED, offsets)
    )
    assert linalg.finite_rows(scaled).all()
    torch.testing.assert_close(whole(some_rows(scaled, used)), EXPECTED[used])


def test_operations_of_torch_get_the_product(scaled: Tensor) -> None:
    assert scaled.shape == (5, 70)
    assert repr(scaled) == "MatrixView(5 x 70, torch.float64)"
    torch.testing.assert_close(scaled.mean(dim=0), EXPECTED.mean(dim=0))
    torch.testing.assert_close(ROWS[:, 0] @ scaled, ROWS[:, 0] @ EXPECTED)
    torch.testing.assert_close(scaled[1], EXPECTED[1])
    torch.testing.assert_close(2 * scaled, 2 * EXPECTED)


@dataclass(frozen=True)
class Median:
    """A rule that treats the updates as a tensor."""

    def init(self, num_clients: int, dim: int) -> Empty:
        return Empty()

    def __call__(self, replies: Replies, state: Empty) -> tuple[Tensor, Empty]:
        assert isinstance(replies.updates, Tensor)
        return replies.updates.median(dim=0).values, state


def test_a_rule_that_treats_the_updates_as_a_tensor_can_be_inside() -> None:
    replies = make_replies(ROWS)
    bound = float(ROWS.norm(dim=1).min())
    direction, _ = ClipNorms(Median(), bound)(replies, begin(ClipNorms(Median(), bound), 5, 70))
    torch.testing.assert_close(direction, (ROWS / ROWS.norm(dim=1, keepdim=True) * bound).median(dim=0).values)


def test_clipping_remembers_what_a_copy_of_the_updates_would() -> None:
    """FedFV remembers scaled updates; the directions are those of updates that were scaled beforehand."""
    rule = FedFV(alpha=0.1, tau=3)
    inside, around = begin(rule, 9, 40), begin(ClipNorms(rule), 9, 40)
    for replies in random_rounds(9, 4, 40, 12, dropout=0.2, dtype=torch.double):
        if replies is None:
            continue
        lengths = whole(replies.updates).norm(dim=1)
        factors = (lengths.quantile(0.5) / lengths).clamp(max=1)
        copied = make_replies(
            whole(replies.updates) * factors[:, None],
            round=replies.round,
            clients=replies.clients,
            losses=replies.losses,
            sizes=replies.sizes,
        )
        expected, inside = rule(copied, inside)
        found, around = ClipNorms(rule)(replies, around)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
