"""A Flower client app that trains like the simulated clients."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from torch import Tensor, nn

from fedfv.core import ACCURACY, NO_BUFFERS, TRAINED_LOSS, Buffers, Measure
from fedfv.data import Federation, Index
from fedfv.flower._contract import (
    ARRAYS,
    CLIENT,
    CONFIG,
    LOSS,
    METRICS,
    NEEDS,
    ROUND,
    SERVER_ROUND,
    SIZE,
    VARIANCE,
    identify,
    key_of,
    key_of_score,
)
from fedfv.models import flatten, flatten_buffers, load
from fedfv.tasks import Classification, Task
from fedfv.training import BatchedClients, LocalTraining, LoopClients, can_be_batched, evaluate

Examples = tuple[Tensor, Tensor]  # inputs and targets


def fair_client(
    model: Callable[[], nn.Module],
    data: Callable[[Context], tuple[Examples, Examples]],
    local: LocalTraining,
    *,
    task: Task | None = None,
    seed: int = 0,
    measures: Mapping[str, Measure] = MappingProxyType({}),
    key: str = "partition-id",
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """An app whose clients meet the contract: they evaluate the received model, train it, and reply.

    Clients report the measures that the server's rule needs: accuracies, losses after training, and your `measures`.

    Args:
        model: makes the network; its parameters are replaced by the received ones.
        data: returns the training and the test examples of a client, given the context of its node.
        local: settings of the local training.
        task: the loss and the score of each example; the default is classification. A task that takes constants from
            training targets needs them here, since no client sees the targets of the others.
        seed: seed for the order of the examples, which is that of a simulated client with the same seed.
        measures: the `needs` of your own rule.
        key: key of the node's configuration that holds the client's id.
        mods: Flower mods, which wrap the app.
    """
    app, task = identify(ClientApp(mods=list(mods)), key), Classification() if task is None else task
    known = {"accuracies": ACCURACY, "trained_losses": TRAINED_LOSS, **measures}
    fields = {key_of(name): name for name in known}

    def received(message: Message, context: Context) -> tuple[int, nn.Module, Federation]:
        module = model()
        module.load_state_dict(message.content.array_records[ARRAYS].to_torch_state_dict())
        client = int(context.node_config[key])
        return client, module, _alone(client, *data(context))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, module, federation = received(message, context)
        clients = BatchedClients if can_be_batched(module) else LoopClients
        config = message.content.config_records[CONFIG]
        round = int(config.get(ROUND, int(config[SERVER_ROUND]) - 1))  # type: ignore[arg-type]
        needed = str(config.get(NEEDS, "")).split()  # Flower's own strategies say neither
        if unknown := [key for key in needed if key not in fields]:
            raise ValueError(f"`measures` must have `{unknown[0]}`, which the server's rule needs, got {list(fields)}.")
        needed_measures = {fields[key]: known[fields[key]] for key in needed}
        train_all = clients(federation, module, local, task, seed, needed_measures)
        replies = train_all(round, torch.tensor([client]), flatten(module), flatten_buffers(module))
        buffers = NO_BUFFERS if replies.buffers is None else Buffers(*(part[0] for part in replies.buffers))
        load(flatten(module) - torch.as_tensor(replies.updates)[0], module, buffers)
        metrics = MetricRecord({LOSS: float(replies.losses[0]), SIZE: int(replies.sizes[0]), CLIENT: client})
        metrics.update({key_of(name): float(values[0]) for name, values in replies.all_measured().items()})
        return Message(RecordDict({ARRAYS: ArrayRecord(module.state_dict()), METRICS: metrics}), reply_to=message)

    @app.evaluate()
    def test(message: Message, context: Context) -> Message:
        client, module, federation = received(message, context)
        evaluation = evaluate(federation, module, flatten(module), flatten_buffers(module), task)
        metrics = MetricRecord(
            {
                LOSS: float(evaluation.losses[client]),
                key_of_score(task.scored_by): float(evaluation.scores[client]),
                SIZE: int(evaluation.sizes[client]),
            }
        )
        if not task.scored_by.is_share:
            metrics[VARIANCE] = float(evaluation.variances[client])
        return Message(RecordDict({METRICS: metrics}), reply_to=message)

    return app


def _alone(client: int, train: Examples, test: Examples) -> Federation:
    """A federation in which only this client has examples; the client keeps its id."""

    def index(first: int, count: int) -> Index:
        offsets = torch.zeros(client + 2, dtype=torch.long)
        offsets[-1] = count
        return Index(torch.arange(first, first + count), offsets)

    inputs, targets = torch.cat([train[0], test[0]]), torch.cat([train[1], test[1]])
    num_classes = None if targets.is_floating_point() else int(targets.max()) + 1
    train_rows, test_rows = index(0, len(train[1])), index(len(train[1]), len(test[1]))
    return Federation(inputs, targets, train_rows, index(0, 0), test_rows, num_classes)
