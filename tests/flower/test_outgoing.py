"""The model becomes arrays once a round."""

from typing import Any

import pytest
from flwr.app import ArrayRecord, MetricRecord

from fedfv import AFL, FedFV
from fedfv.flower import FairStrategy
from fedfv.flower._layout import Layout
from fedfv.training import LocalSGD
from tests.flower.helpers import SIZES, LocalGrid, make_app, make_federation, make_model

ROUNDS = 3


@pytest.mark.parametrize(("rule", "times"), [(FedFV(), 1), (AFL(), 2)], ids=str)
def test_a_model_is_made_into_arrays_once_for_each_round_and_twice_with_a_mean(
    rule: Any, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For training, for evaluation at the clients and for that at the server together."""
    calls, record = [], Layout.record

    def counted(*arguments: Any) -> ArrayRecord:
        calls.append(arguments)
        return record(*arguments)

    monkeypatch.setattr(Layout, "record", counted)
    strategy = FairStrategy(rule, len(SIZES), fraction_evaluate=1, wait=0)
    grid = LocalGrid(make_app(make_federation(), LocalSGD(), seed=0), len(SIZES))
    model = ArrayRecord(make_model().state_dict())
    strategy.start(grid, model, ROUNDS, evaluate_fn=lambda round, arrays: MetricRecord({}))
    assert len(calls) <= times * (ROUNDS + 1)  # the model before the first round is evaluated as well
