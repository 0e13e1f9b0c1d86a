"""The messages of a run, of which each reply is received on its own."""

import time
from collections.abc import Iterable, Iterator
from logging import WARNING

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from fedfv.flower._forwarding import Forwarding
from fedfv.flower._parts import one_line

_PAUSE, _LONGEST_PAUSE = 0.05, 3.0  # seconds between two looks for replies: at first, and after many in vain
# What the decoding of bytes that a stranger has sent may raise; errors of the network are none of these.
_UNDECODABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError)


class Mail(Forwarding):
    """A grid that receives one reply at a time, and only when the next one is asked for.

    Flower's grids receive all replies at once: if one of them cannot be decoded, the others are lost with it, and the
    run ends. Here, such a reply becomes an error of its sender. Replies that were read can be freed before the next
    one is received.
    """

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Sends the messages, and yields replies as they are received, until all are there or the time is over."""
        messages = list(messages)
        sent = set(self._grid.push_messages(messages) if messages else [])
        # The answer in place of one that cannot be decoded is made now, so that no message, with its arrays, is kept.
        wrong = Error(ErrorCode.UNKNOWN, "the reply cannot be decoded")
        pairs = [(name, each) for each in messages if (name := each.metadata.message_id) in sent]
        return self._replies({name: Message(wrong, reply_to=each) for name, each in pairs}, timeout)

    def _replies(self, waiting: dict[str, Message], timeout: float | None) -> Iterator[Message]:
        end, pause = None if timeout is None else time.monotonic() + timeout, _PAUSE
        while waiting:
            before = len(waiting)
            for name in list(waiting):
                for reply in self._pulled(name, waiting[name]):
                    waiting.pop(name, None)
                    yield reply
                    del reply
            if end is not None and time.monotonic() >= end:
                return
            pause = _PAUSE if len(waiting) < before else min(2 * pause, _LONGEST_PAUSE)
            if waiting:
                time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))

    def _pulled(self, name: str, wrong: Message) -> Iterator[Message]:
        try:
            replies = list(self._grid.pull_messages([name]))
        except _UNDECODABLE as error:
            log(WARNING, "a reply cannot be decoded: %s", one_line(repr(error)))
            replies = [wrong]
        while replies:
            yield replies.pop()
