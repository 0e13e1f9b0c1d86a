"""Reads and checks the replies of clients: a wrong reply costs its client the round, and never stops the run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, MetricRecordValues, RecordDict
from torch import Tensor

from fedfv.core import ACCURACY, Buffers, Measure, Replies, as_fields, title
from fedfv.errors import RunError
from fedfv.flower._contract import LARGEST, LARGEST_BUFFER, LARGEST_CHANGE, LARGEST_SIZE, VARIANCE, Names, key_of
from fedfv.flower._layout import Layout
from fedfv.flower._npy import WrongArraysError
from fedfv.flower._parts import WrongReplyError, metrics_of, missing, number, one_line, record_of
from fedfv.mapped import Rows
from fedfv.matrix import Matrix
from fedfv.tasks import Score

KINDS = ("error", "silent", "arrays", "not-finite", "metrics", "duplicate", "identity")
UNANSWERED = ("error", "silent", "duplicate")
"""The kinds of replies that hold no answer of the client."""

Answer = TypeVar("Answer")


class Rejected(NamedTuple):
    """A client whose reply is not used in the round, and the reason."""

    client: int
    kind: str  # one of KINDS
    reason: str


class Wanted(NamedTuple):
    """What a reply to a training must have."""

    layout: Layout
    names: Names
    needs: Mapping[str, Measure | None]  # the fields that the rule needs, see `fedfv.core.needs`
    losses: bool = True  # whether the rule needs the loss before training


class Training(NamedTuple):
    """What the clients sent in a round."""

    replies: Replies | None  # the good ones, in the order of client ids; None if there are none
    metrics: list[MetricRecord]  # of the good ones
    rejected: list[Rejected]
    losses: bool = True  # whether the losses in the replies are those of the clients


class _Trained(NamedTuple):
    """The report of a client on its training, without the arrays."""

    loss: float | None
    size: float
    measured: dict[str, float]  # by field of `Replies`
    buffers: Buffers
    metrics: MetricRecord


class Evaluated(NamedTuple):
    """The evaluation of the model by one client."""

    loss: float | None
    score: float
    size: int
    metrics: MetricRecord
    variance: float | None = None  # sampling variance of the score, if the client reports it


def receive(
    messages: Iterable[Message], asked: Mapping[str, int], read: Callable[[int, Message], Answer]
) -> tuple[dict[int, Answer], list[Rejected]]:
    """What `read` makes of the answer of each client, by client in ascending order; and the clients that are rejected.

    A message loses its content as soon as it is read, since Flower keeps the messages of a round until the next one.

    Args:
        messages: the received messages, in any order.
        asked: the client that was asked by each message, by the id of the message. The network itself answers for a
            lost node; this answer names the message that was sent, and not the node.
        read: reads the answer of a client; raises a `WrongReplyError` for one that cannot be used.
    """
    answers: dict[int, Answer] = {}
    wrong: dict[int, Rejected] = {}
    for message in messages:
        client = asked.get(message.metadata.reply_to_message_id)
        if client is None:
            pass
        elif client in answers or client in wrong:
            answers.pop(client, None)
            wrong[client] = Rejected(client, "duplicate", "several replies to one message")
        else:
            try:
                answers[client] = read(client, _answered(message))
            except WrongReplyError as error:
                wrong[client] = Rejected(client, error.kind, str(error))
        if message.has_content():
            message.content = RecordDict()
    for client in asked.values():
        if client not in answers and client not in wrong:
            wrong[client] = Rejected(client, "silent", "no reply in time")
    return dict(sorted(answers.items())), list(wrong.values())


def read_training(
    messages: Iterable[Message], asked: Mapping[str, int], wanted: Wanted, params: Tensor, round: int, rows: Rows
) -> Training:
    """The replies of a round.

    Args:
        messages: the received messages.
        asked: the client that was asked by each message.
        wanted: what a reply must have.
        params: the parameters that the clients have trained.
        round: the index of the round.
        rows: the matrix for the updates, with a row for each client that was asked.
    """
    places = {client: place for place, client in enumerate(sorted(asked.values()))}

    sent = wanted.layout.as_sent(params)

    def read(client: int, message: Message) -> _Trained:
        report = _trained(client, message, wanted, sent, rows[places[client]])
        rows.release()
        return report

    good, rejected = receive(messages, asked, read)
    if not any(report.size for report in good.values()):
        nothing = f"`{wanted.names.size}` must not be 0 in all replies"
        return Training(None, [], rejected + [Rejected(client, "metrics", nothing) for client in good])
    updates = rows.only([places[client] for client in good])
    metrics, losses = [each.metrics for each in good.values()], [each.loss for each in good.values()]
    return Training(_replies(good, updates, round), metrics, rejected, None not in losses)


def read_evaluation(
    messages: Iterable[Message], asked: Mapping[str, int], scored_by: Score, names: Names
) -> tuple[dict[int, Evaluated], list[Rejected]]:
    """The evaluation of each client on its test data, and the clients whose answer is wrong."""
    return receive(messages, asked, lambda client, message: _evaluated(metrics_of(message, client), scored_by, names))


def refuse_without_losses(rule: Any, key: str, rejected: Sequence[Rejected], good: Replies | None) -> None:
    """Ends a run whose clients do not report the loss that the rule needs: no round would change the model."""
    lacking = [entry for entry in rejected if entry.reason == missing(key)]
    if good is None and lacking and all(entry.kind in UNANSWERED or entry in lacking for entry in rejected):
        raise RunError(
            f"no client reports `{key}`, the loss of the model as received, which {title(rule)} needs; make the client "
            "app with `fair_app` of fedfv.flower (app = fair_app(on_training_data)), name another metric with "
            "`loss_key`, or choose a rule that needs no losses, such as UPGrad"
        )


def counted(rejected: Sequence[Rejected]) -> dict[str, MetricRecordValues]:
    """The numbers of rejected replies by kind, as metrics of a round.

    >>> counted([Rejected(2, "silent", "no reply in time"), Rejected(3, "silent", "no reply in time")])
    {'rejected-silent': 2}
    """
    counts = {f"rejected-{kind}": sum(entry.kind == kind for entry in rejected) for kind in KINDS}
    return {name: count for name, count in counts.items() if count}


def _answered(message: Message) -> Message:
    """The message, if it holds an answer."""
    if message.has_error():
        raise WrongReplyError("error", f"code {message.error.code}: {one_line(message.error.reason or 'no reason')}")
    if not message.has_content():
        raise WrongReplyError("error", "the reply is empty")
    return message


def _trained(client: int, message: Message, wanted: Wanted, sent: Tensor, row: Tensor) -> _Trained:
    """A client's report on its training; its update is written into `row`."""
    names = wanted.names
    metrics, arrays = metrics_of(message, client), record_of(message, ArrayRecord, names.arrays)
    loss = float(number(metrics, names.loss)) if wanted.losses or names.loss in metrics else None
    size = number(metrics, names.size, high=LARGEST_SIZE)
    measured = {name: _measured(metrics, name, measure) for name, measure in wanted.needs.items()}
    buffers = read_update(arrays, wanted.layout, sent, row)
    _check_range("buffers", buffers.values, LARGEST_BUFFER)
    return _Trained(loss, size, measured, buffers, metrics)


def only_answer(received: Sequence[Message]) -> Message:
    """The answer of a client, if it is the only one and no error; raises a `WrongReplyError` if not."""
    if not received:
        raise WrongReplyError("silent", "no reply in time")
    if len(received) > 1:
        raise WrongReplyError("duplicate", f"{len(received)} replies to one message")
    return _answered(received[0])


def read_update(arrays: ArrayRecord, layout: Layout, sent: Tensor, row: Tensor) -> Buffers:
    """Writes the update, `sent` minus the client's parameters, into `row`, and returns the buffers of the client.

    Raises a `WrongReplyError` for arrays of another layout, and for an update that is not finite or absurdly large.
    """
    try:
        buffers = layout.read(arrays, row)
    except WrongArraysError as error:
        raise WrongReplyError("arrays", str(error)) from None
    except Exception as error:  # whatever a client may have thought of, the others go on
        raise WrongReplyError("arrays", f"the arrays cannot be read: {one_line(error)}") from None
    _check_range("updates", torch.sub(sent, row, out=row), LARGEST_CHANGE)
    return buffers


def _measured(metrics: MetricRecord, name: str, measure: Measure | None) -> float:
    if name == "accuracies":
        measure = ACCURACY  # `Replies` wants its range, whatever the rule says
    low, high = (-LARGEST, LARGEST) if measure is None else (max(measure.low, -LARGEST), min(measure.high, LARGEST))
    return float(number(metrics, key_of(name), low, high))


def _evaluated(metrics: MetricRecord, scored_by: Score, names: Names) -> Evaluated:
    variance = metrics.get(VARIANCE)
    unknown = variance is None or (isinstance(variance, float) and not math.isfinite(variance))  # of one example
    return Evaluated(
        loss=float(number(metrics, names.loss)) if names.loss in metrics else None,
        score=float(number(metrics, names.score, max(scored_by.low, -LARGEST), min(scored_by.high, LARGEST))),
        size=int(number(metrics, names.size, high=LARGEST_SIZE)),
        metrics=metrics,
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


def _replies(good: Mapping[int, _Trained], updates: Matrix, round: int) -> Replies:
    reports = list(good.values())

    def column(values: Iterable[float]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.double)

    sizes = [report.size for report in reports]
    with_buffers = any(len(part) for part in reports[0].buffers)
    measured: dict[str, Any] = {name: column(each.measured[name] for each in reports) for name in reports[0].measured}
    return Replies(
        round=round,
        clients=torch.tensor(list(good)),
        updates=updates,
        losses=column(report.loss or 0.0 for report in reports),
        sizes=torch.tensor(sizes, dtype=torch.long if all(isinstance(size, int) for size in sizes) else torch.double),
        **as_fields(measured),
        buffers=Buffers(*map(torch.stack, zip(*(report.buffers for report in reports), strict=True)))
        if with_buffers
        else None,
    )
