"""Follows a run by its messages, whatever its strategy does, and records how each round treats each client."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, Message, MessageType
from flwr.common.logger import log

from fedfv.core import Aggregator
from fedfv.flower._audit_faults import Faults
from fedfv.flower._audit_ledger import Ledger
from fedfv.flower._audit_lens import Model, Round, arrays_in, same_arrays
from fedfv.flower._audit_numbers import Said, columns
from fedfv.flower._audit_replies import Failure, Reply, sorted_replies
from fedfv.flower._audit_scores import Scoring
from fedfv.flower._audit_who import CLIENT_KEYS, Who
from fedfv.flower._contract import ARRAYS, BUFFERS, SIZE
from fedfv.flower._parts import WrongReplyError
from fedfv.runs import Fingerprint, Opening, Record, RunDirectory
from fedfv.tasks import ACCURACY, Score

_LENS, _RECORD = "the lens entry of a round", "the record of a round"  # parts of an audit, in the log


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of an audit, see `audited`, and the keys of the strategy."""

    score_key: str | None = None
    scored_by: Score = ACCURACY
    client_keys: Sequence[str] = CLIENT_KEYS
    lens_every: int = 1
    memory_share: float = 0.25
    buffers: Sequence[str] = BUFFERS
    size_key: str = SIZE
    arrays_key: str = ARRAYS
    what_if: Sequence[Aggregator[Any]] = ()


class Audit:
    """Writes one record for each round of training; nothing that goes wrong here reaches the run.

    The step of a round is known when a later message has the new model: that of the evaluation, that of the next
    training, or the result of the run.

    Args:
        place: the directory, which this process owns.
        options: the settings.
        faults: where faults are logged.
        lr: the clients' learning rate, if it is known.
    """

    def __init__(self, place: RunDirectory, options: Options, faults: Faults, lr: float | None = None) -> None:
        self._place, self._options, self._faults, self._lr = place, options, faults, lr
        self._ledger, self._who = Ledger(place), Who(options.client_keys)
        self._scoring = Scoring(options.score_key, options.scored_by, options.size_key, faults)
        self._fingerprint: Fingerprint | None = None
        self._record = Record(rounds_done=0)  # of the current round; its clients are numbered by `Who`
        self._round: Round | None = None  # the updates, until the step is known
        self._others: set[int] = set()  # nodes that received another model than the first one

    def sent(self, messages: Sequence[Message]) -> None:
        """Reads messages that are about to be sent."""
        kind = _kind_of(messages)
        if kind in (MessageType.TRAIN, MessageType.EVALUATE):
            with self._faults.harmless(_LENS):
                self._complete(self._arrays(messages[0]))
        if kind == MessageType.TRAIN:
            with self._faults.harmless(_RECORD):
                self._put()
            with self._faults.harmless(_LENS):
                self._begin(messages)

    def received(self, messages: Sequence[Message], replies: Sequence[Message]) -> None:
        """Reads the replies to these messages."""
        kind = _kind_of(messages)
        if kind == MessageType.TRAIN:
            with self._faults.harmless("the reading of trained models"):
                self._trained(*sorted_replies(messages, replies, self._who))
        elif kind == MessageType.EVALUATE:
            with self._faults.harmless("the reading of evaluations"):
                self._evaluated(*sorted_replies(messages, replies, self._who))
            with self._faults.harmless(_RECORD):
                self._put()

    def finished(self, arrays: ArrayRecord | None) -> None:
        """Completes the last round; `arrays` is the final model, None if the run failed."""
        with self._faults.harmless(_LENS):
            self._complete(arrays)
            self._round = None
        with self._faults.harmless(_RECORD):
            self._put()
            done, path = self._record.rounds_done, self._place.path
            log(INFO, "audit: %d rounds are recorded; to see them: fedfv report %s", done, path)
            if done == 0:
                log(WARNING, "audit: there are no rounds, since the strategy sent no training by `send_and_receive`")

    def _begin(self, messages: Sequence[Message]) -> None:
        """Begins the record of a round, and reads the model that the clients receive."""
        self._record = Record(rounds_done=self._record.rounds_done + 1, replied=[])
        self._round = None
        arrays = self._arrays(messages[0])
        model = None if arrays is None else Model.of(arrays, self._options.buffers)
        if arrays is None or model is None:
            return
        self._fingerprint = self._fingerprint or Fingerprint(model=model.layout.described())
        if self._record.rounds_done % self._options.lens_every == 0:
            self._others = {each.metadata.dst_node_id for each in messages if not self._has(each, arrays)}
            if self._others:
                text = "audit: the strategy sends several models; only clients with the first one are in the lens"
                self._faults.once("several models", text)
            self._round = Round(model, len(messages), self._place.path, self._options.memory_share)

    def _complete(self, arrays: ArrayRecord | None) -> None:
        """Completes the lens entry with the model that the strategy made of the replies."""
        after = None if self._round is None or arrays is None else Model.of(arrays, self._options.buffers)
        if self._round is None or after is None or not self._round.leads_to(after):
            return
        waiting, self._round = self._round, None
        self._record = dataclasses.replace(self._record, lens=waiting.look(after, self._options.what_if, self._lr))

    def _trained(self, good: Sequence[Reply], failures: Sequence[Failure]) -> None:
        self._who.announce()
        self._record = dataclasses.replace(
            self._record,
            replied=[reply.client for reply in good],
            measured=columns([reply.said for reply in good], self._who.keys),
            rejected=self._logged([*failures, *self._gather(good)]),
        )

    def _gather(self, good: Sequence[Reply]) -> list[Failure]:
        """Adds the updates to those of the round, and returns the clients whose arrays cannot be used."""
        failures = []
        for reply in good:
            try:
                if self._round is not None and reply.node not in self._others:
                    self._round.add(reply.client, arrays_in(reply.message, self._options.arrays_key))
            except WrongReplyError as wrong:
                failures.append(Failure(reply.client, wrong))
            except Exception as error:  # such as a full disk
                self._round = None
                self._faults.note(_LENS, error)
        return failures

    def _evaluated(self, good: Sequence[Reply], failures: Sequence[Failure]) -> None:
        self._who.announce()
        said: list[Said] = [{} for _ in range(len(self._who))]
        for reply in good:
            said[reply.client] = reply.said
        failed = [(client, f"{kind} in evaluation") for client, kind in self._logged(failures)]
        self._record = dataclasses.replace(
            self._record,
            evaluated=columns(said, self._who.keys),
            test=self._scoring.scores(said),
            rejected=sorted([*self._record.rejected, *failed]),
        )

    def _logged(self, failures: Sequence[Failure]) -> list[tuple[int, str]]:
        """The entries of a record for clients that failed, which are logged."""
        for client, wrong in failures:
            name, done = self._who.name(client), self._record.rounds_done
            log(WARNING, "audit: round %d, %s: %s: %s", done, name, wrong.kind, wrong)
        return sorted((client, wrong.kind) for client, wrong in failures)

    def _put(self) -> None:
        order = self._who.order()
        opening = Opening(
            names=self._who.names(),
            sizes={"test": [self._scoring.sizes.get(client) for client in order]},
            scored_by=self._scoring.scored_by,
            fingerprint=self._fingerprint,
        )
        self._ledger.put(self._record, opening, order)

    def _arrays(self, message: Message) -> ArrayRecord | None:
        """The arrays in a message of the strategy; None if it is not clear which they are."""
        try:
            return arrays_in(message, self._options.arrays_key)
        except WrongReplyError:
            return None

    def _has(self, message: Message, arrays: ArrayRecord) -> bool:
        mine = self._arrays(message)
        return mine is not None and same_arrays(mine, arrays)


def _kind_of(messages: Sequence[Message]) -> str:
    """What the messages ask for: "train", "evaluate", or something else."""
    return messages[0].metadata.message_type.split(".", 1)[0] if messages else ""
