"""A user of the base install: a round by hand, and a few rounds of a simulation on the data that come with it."""

from importlib.util import find_spec

import torch

from fedfv import FedFV, Replies, start, step
from fedfv.data import Dataset, OneClassEach, federate, load
from fedfv.models import build_model, flatten
from fedfv.simulation import simulate
from fedfv.training import BatchedClients, LocalSGD, evaluate

extras = [name for name in ("pydantic", "typer", "plotly", "flwr", "pyarrow", "pandas", "torchjd") if find_spec(name)]
assert not extras, f"the base install has {extras}"

updates = torch.tensor([[3.0, 0.0], [-1.0, 1.0]])  # they conflict, and the mean follows the longer one
replies = Replies(
    round=0,
    clients=torch.tensor([0, 1]),
    updates=updates,
    losses=torch.tensor([1.0, 2.0]),
    sizes=torch.tensor([50, 50]),
)
rule = FedFV(alpha=0, tau=0)
server = step(rule, replies, start(rule, num_clients=2, params=torch.zeros(2)))
served = updates @ -server.params  # the server subtracts the direction
assert (updates @ updates.mean(dim=0)).tolist() == [3.0, -0.5]
assert (served > 0).all(), served

dataset = load("fashion-tops")
assert isinstance(dataset, Dataset)
federation = federate(dataset, OneClassEach())
model = build_model("softmax-regression", (1, 28, 28), 3, seed=0)
clients = BatchedClients(federation, model, LocalSGD())
*_, last = simulate(clients, rule, lambda round: torch.arange(3), start(rule, 3, flatten(model)), 3)
scores = evaluate(federation, model, last.server.params).scores
assert scores.mean() > 1 / 3, scores
print(f"FedFV serves both clients: {served.tolist()}; accuracies after three rounds: {scores.tolist()}")
