"""The contract between server and clients: the names of records, metrics and configuration keys in messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from flwr.app import Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedfv.tasks import Score

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # Flower's own names for the records of a message

CLIENT = "client-id"
ROUND = "round"  # key of the configuration; rounds are counted from 0
NEEDS = "needs"  # key of the configuration: the metrics that the rule needs beside loss and size, separated by spaces
SERVER_ROUND = "server-round"  # the same round, counted from 1 as in Flower's own strategies
LOSS, ACCURACY, SIZE = "loss", "accuracy", "num-examples"
VARIANCE = "score-variance"  # the sampling variance of a score that is not a share
_KEYS = {"accuracies": ACCURACY, "trained_losses": "trained-loss"}

# Bounds of what a reply may hold. They are far above all sensible values, and low enough for the sums, squares and
# products that rules compute of them to stay finite.
LARGEST = 1e30  # a loss, score or measured value, in absolute value; rules compute with them in double precision
LARGEST_SIZE = 1e15  # a number of examples; sums of sizes are exact
LARGEST_CHANGE = 1e15  # the change of a parameter; rules may square it in single precision
LARGEST_BUFFER = 3.5e38  # a number in a floating-point buffer, which may be any that single precision has
MOST_NUMBERS = 10_000  # numbers in the metrics, also in those that the server ignores


class Names(NamedTuple):
    """The names in the messages of an app, as its author has chosen them."""

    arrays: str = ARRAYS  # the record of arrays, in both directions
    config: str = CONFIG  # the record of the configuration
    size: str = SIZE
    loss: str = LOSS
    score: str = ACCURACY


WHO = "who"  # the action of the query that asks a node for its client id
BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked")  # buffers of torch's normalisation layers


def key_of(field: str) -> str:
    """The name of the metric for a field of `Replies`; a field of a user's own rule keeps its name.

    >>> key_of("accuracies"), key_of("margins")
    ('accuracy', 'margins')
    """
    return _KEYS.get(field, field)


def key_of_score(scored_by: Score) -> str:
    """The name of the metric for the score of a client.

    >>> from fedfv.tasks import ACCURACY, Score
    >>> key_of_score(ACCURACY), key_of_score(Score("mean absolute error"))
    ('accuracy', 'mean-absolute-error')
    """
    return scored_by.name.lower().replace(" ", "-")


def fair_app(
    before: Callable[[Message, Context], float | tuple[float, float] | Mapping[str, float]],
    *,
    key: str = "partition-id",
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """A `ClientApp` for your own training functions, which adds to their replies what a fair rule needs.

    The app reports its client id, again with each training, and evaluates the received model before each training. A
    loss that is measured during or after training would rank clients by their training progress, not by how well the
    global model serves them.

    Args:
        before: returns the mean loss of the model in the message on the client's *training* data; or the loss and the
            accuracy, in [0, 1]; or metrics by name, including `loss`, for a rule that needs others.
        key: key of the node's configuration that holds the client's id.
        mods: Flower mods, which wrap the app.
    """

    def report(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type != MessageType.TRAIN:
            return call_next(message, context)
        measured = {**_as_metrics(before(message, context)), CLIENT: int(context.node_config[key])}
        reply = call_next(message, context)
        if reply.has_content():
            for metrics in reply.content.metric_records.values():
                metrics.update(measured)
        return reply

    return identify(ClientApp(mods=[*mods, report]), key)


def _as_metrics(measured: float | tuple[float, float] | Mapping[str, float]) -> dict[str, float]:
    if isinstance(measured, Mapping):
        return {name: float(value) for name, value in measured.items()}
    values = measured if isinstance(measured, tuple) else (measured,)
    return {name: float(value) for name, value in zip((LOSS, ACCURACY), values, strict=False)}


def identify(app: ClientApp, key: str = "partition-id") -> ClientApp:
    """Makes the clients of an app report their ids, which a rule with a memory needs; returns the app.

    Flower's own node id changes with each restart. The client id, an integer from 0, comes from the node's
    configuration, which `flower-supernode --node-config "partition-id=3"` and simulations set.

    Args:
        app: any Flower app.
        key: key of the node's configuration that holds the client's id.
    """

    @app.query(WHO)
    def who(message: Message, context: Context) -> Message:
        return Message(RecordDict({METRICS: MetricRecord({CLIENT: int(context.node_config[key])})}), reply_to=message)

    return app
