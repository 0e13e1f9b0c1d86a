"""The client app: each client has one class of clothing, which the `partition-id` of its node selects."""

from flwr.app import Context
from torch import Tensor

from fedfv.experiments import build_federation
from fedfv.flower import fair_client
from fedfv.models import build_model
from flower_fashion.task import experiment

table3 = experiment("fedavg", seed=0)


def data(context: Context) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The training and the test examples of the client on this node."""
    federation = build_federation(experiment("fedavg", int(context.run_config["seed"])))
    client = int(context.node_config["partition-id"])
    return federation.examples("train", client), federation.examples("test", client)


app = fair_client(
    lambda: build_model("softmax-regression", (1, 28, 28), 3, seed=0), data, table3.training, task=table3.task
)
