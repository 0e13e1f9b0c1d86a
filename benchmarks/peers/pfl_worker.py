"""pfl-research in the same harness as fedfv."""

import time
from collections.abc import Iterator

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from workloads import WORKLOADS, main


class Learner(nn.Module):
    """A network with the two methods that pfl calls."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.network(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        outputs, count = self.network(inputs), len(targets)
        return {
            "loss": Weighted(cross_entropy(outputs, targets, reduction="sum").item(), count),
            "accuracy": Weighted((outputs.argmax(dim=1) == targets).sum().item(), count),
        }


class Clock(TrainingProcessCallback):
    """Callback that records when training began and when each round ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.times.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.times.append(time.perf_counter())
        return False, Metrics()


def federation(clients: list[tuple[Tensor, Tensor]], count: int) -> FederatedDataset:
    """The clients' data in memory; each round draws `count` distinct clients, all equally likely."""
    generator = np.random.default_rng(0)

    def draw() -> Iterator[int]:
        while True:
            yield from generator.choice(len(clients), count, replace=False)

    # pfl's own random sampler is not used, since it may draw a client twice in a round.
    return FederatedDataset(lambda client: PyTorchTensorDataset(clients[client]), draw().__next__)


def train(
    network: nn.Module, lr: float, data: FederatedDataset, test: FederatedDataset, params: NNAlgorithmParams
) -> Clock:
    """FedAvg: each client takes one step on all its examples, and the mean of their models is the new model."""
    learner, clock = Learner(network), Clock()
    FederatedAveraging().run(
        algorithm_params=params,
        backend=SimulatedBackend(training_data=data, val_data=test),
        model=PyTorchModel(learner, torch.optim.SGD, torch.optim.SGD(learner.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(local_batch_size=None, local_num_epochs=1, local_learning_rate=lr),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,  # otherwise pfl prints them
    )
    return clock


def rounds(workload: str, warmup: int, rounds: int, tau: int = 10) -> list[float]:
    """Rounds of FedAvg: pfl has no FedFV, so `tau` is ignored."""
    work, total = WORKLOADS[workload], warmup + rounds
    data = federation([work.data(client) for client in range(work.clients)], work.count)
    params = NNAlgorithmParams(
        central_num_iterations=total,
        evaluation_frequency=total,  # only the first round is evaluated, as always in pfl: use a warm-up
        train_cohort_size=work.count,
        val_cohort_size=0,
    )
    return np.diff(train(work.model(), work.lr, data, data, params).times)[warmup:].tolist()


def job(data: str, rounds: int) -> list[float]:
    """A whole run of FedAvg with three clients, from the data file to the last model; evaluates every ten rounds."""
    begin = time.perf_counter()
    with np.load(data) as arrays:
        tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}

    def split(name: str) -> FederatedDataset:
        return federation([(tensors[f"{name}_inputs_{i}"], tensors[f"{name}_targets_{i}"]) for i in range(3)], 3)

    params = NNAlgorithmParams(
        central_num_iterations=rounds, evaluation_frequency=10, train_cohort_size=3, val_cohort_size=3
    )
    train(nn.Linear(784, 3), 0.1, split("train"), split("test"), params)
    return [time.perf_counter() - begin]


if __name__ == "__main__":
    main({"rounds": rounds, "job": job})
