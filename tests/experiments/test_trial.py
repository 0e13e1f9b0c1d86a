"""Models that cannot be trained as they are: one sentence before anything is written, or the loop instead of stacks."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfv.experiments import ConfigError, Experiment, run
from fedfv.experiments._build import build_clients, build_federation, build_module
from fedfv.models import MODELS
from fedfv.training import BatchedClients, LoopClients
from tests.experiments.helpers import small, write_data


def of_outputs(make: Callable[[Tensor], Any]) -> Callable[..., nn.Module]:
    class Outputs(nn.Linear):
        def forward(self, inputs: Tensor) -> Any:
            return make(super().forward(inputs))

    return lambda input_shape, num_classes: Outputs(input_shape[0], num_classes)


def wrong_linear(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(784, num_classes)


def too_few_outputs(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], num_classes - 1)


def no_module(input_shape: tuple[int, ...], num_classes: int) -> int:
    return num_classes


def frozen(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], num_classes).requires_grad_(False)


def broken(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    raise KeyError("weights")


no_classes = of_outputs(lambda outputs: outputs.sum(dim=1))
a_pair = of_outputs(lambda outputs: (outputs, outputs))
detached = of_outputs(lambda outputs: outputs.detach())
controlled = of_outputs(lambda outputs: outputs if outputs.sum() > 0 else 2 * outputs)
reads_a_number = of_outputs(lambda outputs: outputs * outputs.abs().max().item())
drops = of_outputs(lambda outputs: nn.functional.dropout(outputs, 0.5))


def normalised(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(input_shape[0]), nn.Linear(input_shape[0], num_classes))


class Recurrent(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.memory, self.last = nn.GRU(width, 5, batch_first=True), nn.Linear(5, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.memory(inputs[:, None])[0][:, -1])


def recurrent(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Recurrent(input_shape[0], num_classes)


def has_spare_parameters(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    model = of_outputs(lambda outputs: outputs)(input_shape, num_classes)
    model.spare = nn.Linear(3, 3)
    return model


def mine(function: str) -> dict[str, str]:
    return {"name": f"{__name__}:{function}"}


MISFITS = [
    ({"name": "cnn"}, "RuntimeError: "),
    ({"name": "paper-cnn"}, "ValueError: not enough values to unpack"),
    ({"name": "mlp", "options": {"hiden": [3]}}, "TypeError: mlp() got an unexpected keyword argument 'hiden'"),
    (mine("wrong_linear"), "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x8 and 784x4)"),
    (mine("too_few_outputs"), "it returns shape (2, 3) for 2 examples"),
    (mine("no_classes"), "it returns shape (2,) for 2 examples"),
    (mine("a_pair"), "it returns a tuple"),
    (mine("no_module"), "int"),
    (mine("frozen"), "it has no trainable parameters"),
    (mine("detached"), "RuntimeError: element 0 of tensors does not require grad"),
    (mine("broken"), "KeyError: 'weights'"),
]


@pytest.mark.parametrize(("model", "what"), MISFITS, ids=[what for _, what in MISFITS])
def test_a_model_that_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, model: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run(small(write_data(tmp_path / "data.npz"), model=model), tmp_path / "run")
    said = str(caught.value)
    assert said.startswith(f"model '{model['name']}' ")
    assert "(8,)" in said
    assert "4 classes" in said or "4 outputs" in said
    assert what in said
    assert "\n" not in said
    assert not (tmp_path / "run").exists()


def test_trying_a_model_changes_neither_the_model_nor_the_global_random_state(tmp_path: Path) -> None:
    experiment = small(write_data(tmp_path / "data.npz"), model=mine("normalised"))
    federation = build_federation(experiment)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    model = build_module(experiment, federation)
    state = copy.deepcopy(model.state_dict())
    build_clients(experiment, federation, model)
    assert torch.equal(torch.get_rng_state(), before)
    assert int(state["0.num_batches_tracked"]) == 0
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model.training


def clients_of(experiment: Experiment) -> Any:
    federation = build_federation(experiment)
    return build_clients(experiment, federation, build_module(experiment, federation))


UNSTACKED = ["recurrent", "controlled", "reads_a_number", "drops", "has_spare_parameters"]


@pytest.mark.parametrize("name", UNSTACKED)
def test_a_model_that_cannot_be_stacked_is_trained_in_the_loop_which_is_said_once(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = small(write_data(tmp_path / "data.npz"), model=mine(name))
    with caplog.at_level(logging.WARNING, "fedfv"):
        run(experiment, tmp_path / "run")
        assert isinstance(clients_of(experiment), LoopClients)
    (said,) = caplog.messages
    assert said.startswith(f"model '{__name__}:{name}' cannot be trained in stacks of clients (")
    assert said.endswith("), so its clients are trained one after another, which is slower.")
    assert "\n" not in said


@pytest.mark.parametrize("name", UNSTACKED)
def test_stacks_of_a_model_that_cannot_be_stacked_are_refused(tmp_path: Path, name: str) -> None:
    experiment = small(write_data(tmp_path / "data.npz"), model=mine(name), engine="batched")
    with pytest.raises(ConfigError, match=r"^`engine` must be 'auto' or 'loop' for model '.*', which cannot be tr"):
        run(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_models_of_the_package_stay_in_stacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_data(tmp_path / "data.npz", shape=(1, 20, 20))
    for name in MODELS:
        assert isinstance(clients_of(small(data, model={"name": name})), BatchedClients), name
    assert not caplog.messages


def test_a_last_batch_of_one_example_is_refused_where_the_model_cannot_take_it(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz", each=39)  # of which 31 are for training
    sentence = (
        rf"^model '{__name__}:normalised' cannot be trained on a batch of one example \(ValueError: Expected more than "
        r"1 value .*\), but with `training.batch_size` = 10 clients 0, 1, 2, 3, 4 and 1 more have such a batch; "
        r"choose another `training.batch_size`, such as 11\.$"
    )
    with pytest.raises(ConfigError, match=sentence):
        run(small(data, model=mine("normalised")), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run(small(data, model=mine("normalised"), training={"batch_size": 11}, rounds=1), tmp_path / "run")
    dropped = small(data, model=mine("normalised"), training={"batch_size": 10, "drop_last": True}, rounds=1)
    run(dropped, tmp_path / "dropped")
    run(small(data, rounds=1), tmp_path / "other")  # an mlp takes any batch


def test_a_client_of_one_example_is_refused_where_the_model_cannot_take_it(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz", each=2)
    changes = {"partition": {"kind": "by-column", "fractions": [0.5, 0.0, 0.5]}, "training": {"lr": 0.1}}
    with pytest.raises(ConfigError, match=r"have a single training example; give each client at least two\.$"):
        run(small(data, model=mine("normalised"), **changes), tmp_path / "run")
