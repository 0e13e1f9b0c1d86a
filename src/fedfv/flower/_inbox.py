"""Reads and checks the replies of clients: a wrong reply costs its client the round, and never stops the run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, MetricRecordValues, RecordDict
from torch import Tensor

from fedfv.core import ACCURACY, Buffers, Measure, Replies, ServerState, as_fields
from fedfv.flower._contract import (
    LARGEST,
    LARGEST_BUFFER,
    LARGEST_CHANGE,
    LARGEST_SIZE,
    LOSS,
    SIZE,
    VARIANCE,
    key_of,
)
from fedfv.flower._layout import Layout
from fedfv.flower._npy import WrongArraysError
from fedfv.flower._parts import WrongReplyError, metrics_of, number, one_line, record_of
from fedfv.tasks import Score

KINDS = ("error", "silent", "arrays", "not-finite", "metrics", "duplicate", "identity")


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


class _Trained(NamedTuple):
    client: int
    loss: float
    size: float
    measured: dict[str, float]  # by field of `Replies`
    buffers: Buffers


def sort_messages(
    messages: Iterable[Message], sent: Sequence[Message], clients: Mapping[int, int]
) -> tuple[dict[int, Message], list[Rejected]]:
    """The answer of each client, and the clients that failed, did not answer, or answered more than once.

    Args:
        messages: the received messages.
        sent: the messages that were sent. The network itself answers for a lost node; this answer names the message
            that was sent, and not the node.
        clients: the id of the client on each node.
    """
    recipients = {message.metadata.message_id: clients[message.metadata.dst_node_id] for message in sent}
    replies: dict[int, list[Message]] = {client: [] for client in recipients.values()}
    for message in messages:
        client = recipients.get(message.metadata.reply_to_message_id)
        if client is not None:
            replies[client].append(message)
    answers, rejected = {}, []
    for client, received in replies.items():
        try:
            answers[client] = only_answer(received)
        except WrongReplyError as wrong:
            rejected.append(_rejected(client, wrong, received))
    return answers, rejected


def read_training(
    answers: Mapping[int, Message], layout: Layout, server: ServerState[Any], needs: Mapping[str, Measure | None]
) -> tuple[Replies | None, list[Rejected]]:
    """The good replies of a round in the order of client ids, or None if there are none; and the rejected clients.

    A rejected message loses its content, since Flower keeps the messages of a round until the next one.

    Args:
        answers: the answer of each client.
        layout: the layout of the model.
        server: the server whose model the clients have trained.
        needs: the fields that the rule needs, see `fedfv.core.needs`.
    """
    updates = torch.empty(len(answers), len(server.params), dtype=server.params.dtype)
    good: list[_Trained] = []
    rejected = []
    for client, message in sorted(answers.items()):
        try:
            good.append(_read(client, message, layout, server.params, updates[len(good)], needs))
        except WrongReplyError as wrong:
            rejected.append(_rejected(client, wrong, [message]))
    if not any(report.size for report in good):
        nothing = WrongReplyError("metrics", f"`{SIZE}` must not be 0 in all replies")
        return None, rejected + [_rejected(report.client, nothing, [answers[report.client]]) for report in good]
    return _replies(good, updates[: len(good)], server.round), rejected


def read_evaluation(
    answers: Mapping[int, Message], scored_by: Score, score_key: str
) -> tuple[dict[int, Evaluated], list[Rejected]]:
    """The evaluation of each client on its test data, and the clients whose answer is wrong.

    A rejected message loses its content, as in training.
    """
    good, rejected = {}, []
    for client, message in sorted(answers.items()):
        try:
            good[client] = _evaluated(metrics_of(message, client), scored_by, score_key)
        except WrongReplyError as wrong:
            rejected.append(_rejected(client, wrong, [message]))
    return good, rejected


def counted(rejected: Sequence[Rejected]) -> dict[str, MetricRecordValues]:
    """The numbers of rejected replies by kind, as metrics of a round.

    >>> counted([Rejected(2, "silent", "no reply in time"), Rejected(3, "silent", "no reply in time")])
    {'rejected-silent': 2}
    """
    counts = {f"rejected-{kind}": sum(entry.kind == kind for entry in rejected) for kind in KINDS}
    return {name: count for name, count in counts.items() if count}


def only_answer(received: Sequence[Message]) -> Message:
    """The answer of a client, if it is the only one and no error; raises a `WrongReplyError` if not."""
    if not received:
        raise WrongReplyError("silent", "no reply in time")
    if len(received) > 1:
        raise WrongReplyError("duplicate", f"{len(received)} replies to one message")
    (message,) = received
    if message.has_error():
        raise WrongReplyError("error", f"code {message.error.code}: {one_line(message.error.reason or 'no reason')}")
    if not message.has_content():
        raise WrongReplyError("error", "the reply is empty")
    return message


def _rejected(client: int, wrong: WrongReplyError, messages: Iterable[Message]) -> Rejected:
    """The entry for a client whose messages are not used; their content is dropped."""
    for message in messages:
        if message.has_content():
            message.content = RecordDict()
    return Rejected(client, wrong.kind, str(wrong))


def _read(
    client: int,
    message: Message,
    layout: Layout,
    params: Tensor,
    row: Tensor,
    needs: Mapping[str, Measure | None],
) -> _Trained:
    """A client's report on its training; its update is written into `row`."""
    metrics, arrays = metrics_of(message, client), record_of(message, ArrayRecord)
    loss, size = float(number(metrics, LOSS)), number(metrics, SIZE, high=LARGEST_SIZE)
    measured = {name: _measured(metrics, name, measure) for name, measure in needs.items()}
    buffers = read_update(arrays, layout, params, row)
    _check_range("buffers", buffers.values, LARGEST_BUFFER)
    return _Trained(client, loss, size, measured, buffers)


def read_update(arrays: ArrayRecord, layout: Layout, params: Tensor, row: Tensor) -> Buffers:
    """Writes the update, `params` minus those of the client, into `row`, and returns the buffers of the client.

    Raises a `WrongReplyError` for arrays of another layout, and for an update that is not finite or absurdly large.
    """
    try:
        buffers = layout.read(arrays, row)
    except WrongArraysError as error:
        raise WrongReplyError("arrays", str(error)) from None
    except Exception as error:  # whatever a client may have thought of, the others go on
        raise WrongReplyError("arrays", f"the arrays cannot be read: {one_line(error)}") from None
    _check_range("updates", torch.sub(params, row, out=row), LARGEST_CHANGE)
    return buffers


def _measured(metrics: MetricRecord, name: str, measure: Measure | None) -> float:
    if name == "accuracies":
        measure = ACCURACY  # `Replies` wants its range, whatever the rule says
    low, high = (-LARGEST, LARGEST) if measure is None else (max(measure.low, -LARGEST), min(measure.high, LARGEST))
    return float(number(metrics, key_of(name), low, high))


def _evaluated(metrics: MetricRecord, scored_by: Score, score_key: str) -> Evaluated:
    variance = metrics.get(VARIANCE)
    unknown = variance is None or (isinstance(variance, float) and not math.isfinite(variance))  # of one example
    return Evaluated(
        loss=float(number(metrics, LOSS)) if LOSS in metrics else None,
        score=float(number(metrics, score_key, max(scored_by.low, -LARGEST), min(scored_by.high, LARGEST))),
        size=int(number(metrics, SIZE, high=LARGEST_SIZE)),
        variance=None if unknown else float(number(metrics, VARIANCE)),
    )


def _check_range(name: str, values: Tensor, largest: float) -> None:
    """Refuses NaN, and numbers above `largest` in absolute value, in one pass that reserves no memory."""
    if not len(values):
        return
    low, high = (float(end) for end in torch.aminmax(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise WrongReplyError("not-finite", f"the {name} have NaN or infinite numbers")
    if max(-low, high) > largest:
        raise WrongReplyError("arrays", f"the {name} have numbers above {largest:g} in absolute value")


def _replies(good: Sequence[_Trained], updates: Tensor, round: int) -> Replies:
    def column(values: Iterable[float]) -> Tensor:
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
