"""What server and clients have agreed on: the names under which things are sent."""

from collections.abc import Callable, Mapping, Sequence

from flwr.app import Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # Flower's own names for the records of a message

CLIENT = "client-id"
ROUND, NEEDS = "round", "needs"  # in the configuration of a training: counted from 0; names with spaces between
SERVER_ROUND = "server-round"  # the same round as Flower's own strategies count it, from 1
LOSS, ACCURACY, SIZE = "loss", "accuracy", "num-examples"
_KEYS = {"accuracies": ACCURACY, "trained_losses": "trained-loss"}

WHO = "who"  # the action of the query
BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked")  # of torch's normalisation layers


def key_of(field: str) -> str:
    """The metric of a reply for a field of `Replies`; a field of a user's own rule has its own name.

    >>> key_of("accuracies"), key_of("margins")
    ('accuracy', 'margins')
    """
    return _KEYS.get(field, field)


def fair_app(
    before: Callable[[Message, Context], float | tuple[float, float] | Mapping[str, float]],
    *,
    key: str = "partition-id",
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """A `ClientApp` for training functions of one's own, which makes their replies what a fair rule needs.

    It says who it is, and before each training looks at how the model that came serves the client: a loss that is taken
    after training, or while it goes on, ranks clients by how far they got and not by how they are served.

    Args:
        before: the mean loss of the model in the message on the client's *training* data; or the loss and the accuracy,
            in [0, 1]; or metrics by name, `loss` among them, for a rule that needs others.
        key: of the node's configuration, under which its id stands.
        mods: of Flower, around it.
    """

    def report(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type != MessageType.TRAIN:
            return call_next(message, context)
        found = _as_metrics(before(message, context))
        reply = call_next(message, context)
        if reply.has_content():
            for metrics in reply.content.metric_records.values():
                metrics.update(found)
        return reply

    return identify(ClientApp(mods=[*mods, report]), key)


def _as_metrics(found: float | tuple[float, float] | Mapping[str, float]) -> dict[str, float]:
    if isinstance(found, Mapping):
        return {name: float(value) for name, value in found.items()}
    values = found if isinstance(found, tuple) else (found,)
    return {name: float(value) for name, value in zip((LOSS, ACCURACY), values, strict=False)}


def identify(app: ClientApp, key: str = "partition-id") -> ClientApp:
    """Lets the clients of an app say who they are, which a rule with a memory has to know; returns the app.

    A node's own number is a new one after each restart. The id comes from the node's configuration, which
    `flower-supernode --node-config "partition-id=3"` and simulations set: whole numbers from 0.

    Args:
        app: any Flower app.
        key: of the node's configuration.
    """

    @app.query(WHO)
    def who(message: Message, context: Context) -> Message:
        return Message(RecordDict({METRICS: MetricRecord({CLIENT: int(context.node_config[key])})}), reply_to=message)

    return app
