"""The replies of a phase of an audited run, of whatever content, each with its client."""

from collections.abc import Sequence
from typing import NamedTuple

from flwr.app import Message

from fedfv.flower._audit_numbers import Said, numbers_in
from fedfv.flower._audit_who import Who
from fedfv.flower._inbox import only_answer
from fedfv.flower._parts import WrongReplyError, one_line


class Reply(NamedTuple):
    """The reply of a client."""

    client: int
    node: int
    message: Message
    said: Said


class Failure(NamedTuple):
    """A client without a reply, or with one that cannot be used."""

    client: int
    wrong: WrongReplyError


def sorted_replies(
    messages: Sequence[Message], replies: Sequence[Message], who: Who
) -> tuple[list[Reply], list[Failure]]:
    """The replies with content in the order of the clients, and the clients that failed or did not answer.

    The network itself answers for a lost node; its answer names the message that was sent, and not the node.
    """
    received: dict[str, list[Message]] = {}
    for each in replies:
        received.setdefault(each.metadata.reply_to_message_id, []).append(each)
    asked = {message.metadata.dst_node_id for message in messages}
    good: dict[int, Reply] = {}
    failures = []
    for message in messages:
        node = message.metadata.dst_node_id
        try:
            reply = _read(node, received.get(message.metadata.message_id, []), who, asked)
            if reply.client in good:
                raise WrongReplyError("duplicate", "several messages were sent to this client")
            good[reply.client] = reply
        except WrongReplyError as wrong:
            failures.append(Failure(who.client_on(node, {}, asked), wrong))
    return [good[client] for client in who.order() if client in good], failures


def _read(node: int, received: Sequence[Message], who: Who, asked: set[int]) -> Reply:
    message = only_answer(received)
    try:
        said = numbers_in(message.content)
    except Exception as error:  # whatever a client may have thought of, the others count
        raise WrongReplyError("metrics", f"the metrics cannot be read: {one_line(error)}") from None
    return Reply(who.client_on(node, said, asked), node, message, said)
