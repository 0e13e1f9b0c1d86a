"""Reads and checks the replies of clients: a wrong reply costs its client the round, and never stops the run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from flwr.app import Message, MetricRecord

from fedfv.core import Buffers, Measure, NotFiniteError, Replies, ServerState, as_fields
from fedfv.flower._contract import ARRAYS, LOSS, SIZE, VARIANCE, key_of
from fedfv.flower._layout import Layout, WrongArraysError
from fedfv.tasks import Score

KINDS = ("error", "silent", "arrays", "not-finite", "metrics", "duplicate")


class Rejected(NamedTuple):
    """A client whose reply is not used in the round, and the reason."""

    client: int
    kind: str  # one of KINDS
    reason: str


class Evaluated(NamedTuple):
    """The evaluation of the model by one client."""

    loss: float | None
    score: float
    size: int
    variance: float | None = None  # sampling variance of the score, if the client reports it


class _WrongError(ValueError):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class _Trained(NamedTuple):
    client: int
    loss: float
    size: float
    measured: dict[str, float]  # by field of `Replies`
    buffers: Buffers


def sort_messages(
    messages: Iterable[Message], sent: Sequence[Message], clients: Mapping[int, int]
) -> tuple[dict[int, Message], list[Rejected]]:
    """The answer of each client, and the clients that failed, did not answer, or answered twice.

    Args:
        messages: the received messages.
        sent: the messages that were sent. The network itself answers for a lost node; this answer names the message
            that was sent, and not the node.
        clients: the id of the client on each node.
    """
    recipients = {message.metadata.message_id: clients[message.metadata.dst_node_id] for message in sent}
    answers: dict[int, Message] = {}
    rejected = []
    for message in messages:
        client = recipients.get(message.metadata.reply_to_message_id)
        if client is None:
            continue
        if message.has_error():
            rejected.append(Rejected(client, "error", f"code {message.error.code}: {message.error.reason}"))
        elif client in answers:
            rejected.append(Rejected(client, "duplicate", "another client with this id has replied"))
        else:
            answers[client] = message
    replied = {*answers, *(entry.client for entry in rejected)}
    silent = [client for client in recipients.values() if client not in replied]
    rejected += [Rejected(client, "silent", "no reply in time") for client in silent]
    return answers, rejected


def read_training(
    answers: Mapping[int, Message], layout: Layout, server: ServerState[Any], needs: Mapping[str, Measure | None]
) -> tuple[Replies | None, list[Rejected]]:
    """The good replies of a round in the order of client ids, or None if there are none; and the rejected clients.

    Args:
        answers: the answer of each client.
        layout: the layout of the model.
        server: the server whose model the clients have trained.
        needs: the fields that the rule needs, see `fedfv.core.needs`.
    """
    updates = torch.empty(len(answers), len(server.params), dtype=server.params.dtype)
    good: list[_Trained] = []
    rejected = []
    for client in sorted(answers):
        row = updates[len(good)]
        try:
            good.append(_read(client, answers[client], layout, row, needs))
        except _WrongError as wrong:
            rejected.append(Rejected(client, wrong.kind, str(wrong)))
            continue
        torch.sub(server.params, row, out=row)
    updates = updates[: len(good)]
    while any(report.size for report in good):
        try:
            return _replies(good, updates, server.round), rejected
        except NotFiniteError as error:  # only `Replies` checks this, so that updates are read once for the check
            rejected += [
                Rejected(client, "not-finite", f"the {error.name} have NaN or infinite numbers")
                for client in error.clients
            ]
            updates = updates[[report.client not in error.clients for report in good]]
            good = [report for report in good if report.client not in error.clients]
    return None, rejected


def read_evaluation(
    answers: Mapping[int, Message], scored_by: Score, score_key: str
) -> tuple[dict[int, Evaluated], list[Rejected]]:
    """The evaluation of each client on its test data, and the clients whose answer is wrong."""
    good, rejected = {}, []
    for client, message in sorted(answers.items()):
        try:
            metrics = _metrics(message)
            loss = _number(metrics, LOSS) if LOSS in metrics else None
            score, size = _number(metrics, score_key, scored_by.low, scored_by.high), int(_number(metrics, SIZE))
            variance = metrics.get(VARIANCE)
            known = isinstance(variance, float) and variance >= 0  # a client with one example sends NaN
            good[client] = Evaluated(loss, score, size, variance if known else None)  # type: ignore[arg-type]
        except _WrongError as wrong:
            rejected.append(Rejected(client, wrong.kind, str(wrong)))
    return good, rejected


def _read(
    client: int, message: Message, layout: Layout, row: torch.Tensor, needs: Mapping[str, Measure | None]
) -> _Trained:
    """A client's report on its training. The parameters of its model are written into `row`."""
    metrics = _metrics(message)
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise _WrongError("arrays", f"the reply must have one record of arrays, `{ARRAYS}`, got {len(records)}")
    loss, size = _number(metrics, LOSS), _number(metrics, SIZE)
    measured = {
        name: _number(metrics, key_of(name), *((-math.inf,) if measure is None else (measure.low, measure.high)))
        for name, measure in needs.items()
    }
    try:
        buffers = layout.read(records[0], row)
    except WrongArraysError as error:
        raise _WrongError("arrays", str(error)) from None
    except Exception as error:  # a client may send bytes that are no array
        raise _WrongError("arrays", f"the arrays cannot be read: {error}") from None
    return _Trained(client, loss, size, measured, buffers)


def _metrics(message: Message) -> MetricRecord:
    records = list(message.content.metric_records.values())
    if len(records) != 1:
        raise _WrongError("metrics", f"the reply must have one record of metrics, got {len(records)}")
    return records[0]


def _number(metrics: MetricRecord, key: str, low: float = 0, high: float = math.inf) -> float:
    if key not in metrics:
        raise _WrongError("metrics", f"`{key}` is missing")
    value = metrics[key]
    if isinstance(value, list) or not math.isfinite(value) or not low <= value <= high:
        ends = [f" from {low:g}"] * (low > -math.inf) + [f" to {high:g}"] * (high < math.inf)
        raise _WrongError("metrics", f"`{key}` must be a finite number{''.join(ends)}, got {value}")
    return value


def _replies(good: Sequence[_Trained], updates: torch.Tensor, round: int) -> Replies:
    def column(values: Iterable[float]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.double)

    sizes = [report.size for report in good]
    with_buffers = any(len(part) for part in good[0].buffers)
    return Replies(
        round=round,
        clients=torch.tensor([report.client for report in good]),
        updates=updates,
        losses=column(report.loss for report in good),
        sizes=torch.tensor(sizes, dtype=torch.long if all(isinstance(size, int) for size in sizes) else torch.double),
        **as_fields({name: column(report.measured[name] for report in good) for name in good[0].measured}),
        buffers=Buffers(*map(torch.stack, zip(*(report.buffers for report in good), strict=True)))
        if with_buffers
        else None,
    )
