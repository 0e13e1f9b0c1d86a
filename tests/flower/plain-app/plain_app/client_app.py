"""Clients as in the templates: they report what they like, and have no client id."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from plain_app import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    model = {name: array.numpy().copy() for name, array in message.content["arrays"].items()}
    (inputs, targets), _ = task.load_data(int(context.node_config["partition-id"]))
    loss = task.train(model, inputs, targets)
    arrays = ArrayRecord({name: Array(values) for name, values in model.items()})
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(targets)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    _, (inputs, targets) = task.load_data(int(context.node_config["partition-id"]))
    loss, accuracy = task.test(model, inputs, targets)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(targets)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
