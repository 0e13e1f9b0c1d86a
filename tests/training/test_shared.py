"""Models in which layers share parameters, or have two names."""

import copy

import pytest
import torch
from torch import Tensor, nn

from fedfv.data import Federation, Index
from fedfv.models import flatten, load
from fedfv.tasks import NextToken
from fedfv.training import BatchedClients, LocalSGD, LoopClients, evaluate


class Tied(nn.Module):
    """The embedding of a token is also its weight in the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.tanh(self.embed(tokens)))
        return logits


class TwoNames(Tied):
    """A layer that two attributes name."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.last = nn.Linear(5, 7)


@pytest.mark.parametrize("kind", [Tied, TwoNames])
def test_shared_parameters_are_trained_and_evaluated_as_one(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().double()
    tokens = torch.randint(7, (12, 6))
    index = Index.of(list(torch.arange(12).split([5, 4, 3])))
    federation = Federation(tokens[:, :-1].contiguous(), tokens[:, 1:], index, index, index, num_classes=7)
    local, params = LocalSGD(lr=0.3, epochs=2, batch_size=2), flatten(model)
    names, found = [name for name, _ in model.named_parameters()], []
    for clients in (BatchedClients, LoopClients):
        found.append(clients(federation, model, local, NextToken())(0, torch.arange(3), params).updates)
        assert [name for name, each in model.named_parameters() if each.requires_grad] == names
    torch.testing.assert_close(*map(torch.as_tensor, found), rtol=1e-9, atol=1e-12)
    moved = params - torch.as_tensor(found[0])[0]
    scored = evaluate(federation, model, moved, task=NextToken())
    assert torch.equal(flatten(model), params)
    other = copy.deepcopy(model)
    load(moved, other)
    assert torch.equal(scored.losses, evaluate(federation, other, flatten(other), task=NextToken()).losses)
    assert not torch.equal(scored.losses, evaluate(federation, model, params, task=NextToken()).losses)
