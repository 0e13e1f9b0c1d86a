"""All that is kept of a run of Flower: records, checkpoints, and what the log and the user's callback are told."""

import dataclasses
from collections.abc import Callable
from logging import ERROR
from typing import Any, Literal

import torch
from flwr.app import ArrayRecord, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Result

from fedfv.core import Aggregator, ServerState, answers_with_mean
from fedfv.flower._inbox import Evaluated
from fedfv.flower._layout import Layout
from fedfv.flower._log import Verdicts
from fedfv.flower._parts import one_line
from fedfv.runs import Fingerprint, ModelFile, Opening, Progress, Record, Recorder, RunDirectory, Scores, Watch
from fedfv.tasks import Score

CentralEvaluation = Callable[[int, ArrayRecord], MetricRecord | None]


class EnoughError(Exception):
    """Ends a run before its last round."""


class Diary:
    """The records of a run, in memory, and in its directory if it has one.

    Args:
        place: the directory; None for none.
        rule: the rule.
        layout: the layout of the model.
        num_clients: the number of all clients.
        scored_by: what the score of a client means.
        rounds: the number of rounds that are asked for.
    """

    def __init__(
        self,
        place: RunDirectory | None,
        rule: Aggregator[Any],
        layout: Layout,
        num_clients: int,
        scored_by: Score,
        rounds: int,
    ) -> None:
        self.records: list[Record] = []
        self.result = Result()
        self._num_clients, self._scored_by, self._rounds = num_clients, scored_by, rounds
        self._fingerprint = Fingerprint(model=layout.described())
        self._recorder = None if place is None else Recorder(place, rule, self._fingerprint, save_after=0)
        self._watch: Watch | None = None
        if place is not None:
            output: Literal["last", "mean"] = "mean" if answers_with_mean(rule) else "last"
            frozen = {name: torch.from_numpy(array.numpy()) for name, array in layout.fixed.items()}
            place.describe(ModelFile(arrays=layout.stored(), output=output), frozen)

    @property
    def is_read(self) -> bool:
        """Whether anybody sees the records."""
        return self._recorder is not None or self._watch is not None

    @property
    def names(self) -> list[str]:
        """The names of all clients, if they have names."""
        opening = self.records[0].opening if self.records else None
        return [] if opening is None else opening.names

    def resume(self) -> ServerState[Any] | None:
        """The server at the last checkpoint, None for a run that begins."""
        server = None
        if self._recorder is not None:
            server = self._recorder.resume()
            self.records = self._recorder.place.records()
        self._verdicts = Verdicts(self.records)
        return server

    def open(self, server: ServerState[Any], results: dict[int, Evaluated], names: list[str]) -> None:
        """Writes the first record, with the scores of the initial model."""
        everyone = [results.get(client) for client in range(self._num_clients)]
        sizes = {"test": [result and result.size for result in everyone]}
        opening = Opening(names=names, sizes=sizes, scored_by=self._scored_by, fingerprint=self._fingerprint)
        self._write(server, Record(rounds_done=0, opening=opening, test=self._scores(results)), save=True)

    def begin(self, watch: Watch | None) -> None:
        """From now on, `watch` is told the progress; it also gets that of the rounds that are done."""
        self._watch = watch
        self._tell(None)

    def keeping(
        self, evaluate: CentralEvaluation | None, arrays: Callable[[], ArrayRecord]
    ) -> CentralEvaluation | None:
        """The user's evaluation on the server, with rounds that are counted from the first one of the run.

        Args:
            evaluate: the function; None for none.
            arrays: the arrays that are evaluated, those of the rule's answer.
        """
        before = self.records[-1].rounds_done

        def kept(round: int, _: ArrayRecord) -> MetricRecord | None:
            metrics = None if evaluate is None else evaluate(before + round, arrays())
            if metrics is not None:
                self.result.evaluate_metrics_serverapp[round] = metrics
            return metrics

        return None if evaluate is None else kept

    def note(self, record: Record) -> dict[str, int]:
        """Logs what the defences did in a round, and returns how many clients are concerned."""
        return self._verdicts.note(record)

    def add(self, server: ServerState[Any], record: Record, results: dict[int, Evaluated]) -> None:
        """Writes the record of a round with the scores of the clients, and a checkpoint."""
        self._write(server, dataclasses.replace(record, test=self._scores(results)))
        self._tell(self.records[-1])

    def _write(self, server: ServerState[Any], record: Record, save: bool = False) -> None:
        self.records.append(record)
        if self._recorder is not None:
            self._recorder.add(server, record, save=save)

    def _tell(self, record: Record | None) -> None:
        if self._watch is None:
            return
        tests = (each.test.scores for each in reversed(self.records) if each.test is not None)
        progress = Progress(
            rounds_done=self.records[-1].rounds_done,
            rounds=self._rounds,
            scores=next(tests, [None] * self._num_clients),
            replied=None if record is None else len(record.replied or []),
            record=record,
            scored_by=self._scored_by,
            names=self.names,
        )
        try:
            self._watch(progress)
        except Exception as error:  # a fault of a display must not end the training
            log(ERROR, "`watch` is not called again, since it raised: %s", one_line(repr(error)))
            self._watch = None

    def _scores(self, results: dict[int, Evaluated]) -> Scores | None:
        if not results:
            return None
        everyone = [results.get(client) for client in range(self._num_clients)]
        return Scores(
            losses=[result and result.loss for result in everyone],
            scores=[result and result.score for result in everyone],
            variances=None if self._scored_by.is_share else [result and result.variance for result in everyone],
        )
