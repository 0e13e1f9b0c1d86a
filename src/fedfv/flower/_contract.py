"""What server and clients have agreed on: the names under which things are sent."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # Flower's own names for the records of a message

CLIENT = "client-id"
ROUND = "server-round"
LOSS, ACCURACY, SIZE = "loss", "accuracy", "num-examples"
TRAINED_LOSS = "trained-loss"

WHO = "who"  # the action of the query
BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked")  # of torch's normalisation layers


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
