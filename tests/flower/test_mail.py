"""Replies that are received one at a time."""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedfv.flower._mail import Mail
from tests.flower.helpers import LocalGrid

NODES = 3


class WireGrid(LocalGrid):
    """Decodes the bytes of all asked replies at once, as the grid of a deployment does."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, NODES)
        self.broken: dict[str, Exception] = {}

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        message_ids = list(message_ids)
        for each in message_ids:
            if each in self.broken:
                raise self.broken[each]
        return [decoded(message) for message in super().pull_messages(message_ids)]


def decoded(message: Message) -> Message:
    objects = {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
    found = inflate_object_from_contents(message.object_id, objects)
    assert isinstance(found, Message)
    return found


def app(message: Message, context: Context) -> Message:
    client = context.node_config["partition-id"]
    arrays = ArrayRecord({"w": Array(np.zeros(2))})
    if client == 1:
        arrays["w"].shape = ("x",)  # type: ignore[assignment]  # only the decoder looks at it
    metrics = MetricRecord({"client": int(client)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def questions() -> list[Message]:
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a process of Flower's own has
    return [Message(RecordDict(), 1000 + 7 * client, "train", ttl=60) for client in range(NODES)]


def clients(replies: Iterable[Message]) -> list[Any]:
    return [reply.content["metrics"]["client"] for reply in replies if reply.has_content()]


def test_a_reply_that_cannot_be_decoded_is_an_error_of_its_sender() -> None:
    grid, sent = WireGrid(app), questions()
    replies = list(Mail(grid).send_and_receive(sent, timeout=9))
    assert clients(replies) == [0, 2]
    (wrong,) = (reply for reply in replies if reply.has_error())
    assert wrong.error.reason == "the reply cannot be decoded"
    assert wrong.metadata.reply_to_message_id == sent[1].metadata.message_id


def test_without_this_grid_all_replies_would_be_lost() -> None:
    with pytest.raises(TypeError):
        WireGrid(app).send_and_receive(questions(), timeout=9)


def test_an_error_of_the_network_ends_the_run() -> None:
    grid = WireGrid(app)
    grid.broken = {"message-0": ConnectionError("the link is gone")}
    with pytest.raises(ConnectionError):
        list(Mail(grid).send_and_receive(questions(), timeout=9))


def test_replies_are_received_when_they_are_asked_for() -> None:
    grid = WireGrid(app)
    replies = iter(Mail(grid).send_and_receive(questions(), timeout=9))
    next(replies)
    assert len(grid._answers) == NODES - 1


def test_silence_ends_with_the_timeout() -> None:
    class Silent(LocalGrid):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            super().push_messages(messages)
            self._answers.pop("message-2")
            return [f"message-{number}" for number in range(NODES)]

    begin = time.monotonic()
    mail = Mail(Silent(lambda message, _: Message(Error(0, "no reason"), reply_to=message), NODES))
    replies = list(mail.send_and_receive(questions(), timeout=0.4))
    assert 0.4 <= time.monotonic() - begin < 5
    assert len(replies) == NODES - 1
