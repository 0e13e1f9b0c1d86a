"""Any rule as a Flower strategy."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedfv.core import Aggregator, ServerState, check_rule, explained_step, needs, skip, start, with_learning_rate
from fedfv.flower._contract import ACCURACY, ARRAYS, BUFFERS, CONFIG, NEEDS, ROUND, SERVER_ROUND
from fedfv.flower._inbox import KINDS, Evaluated, Rejected, read_evaluation, read_training, sort_messages
from fedfv.flower._layout import Layout
from fedfv.flower._outgoing import Outgoing
from fedfv.flower._roster import Roster
from fedfv.flower._settings import settings_of
from fedfv.lens import look
from fedfv.metrics import METRICS
from fedfv.runs import Fingerprint, Look, Opening, Record, Recorder, RunDirectory, Scores
from fedfv.seeding import rng

_SHOWN = ("mean", "std", "worst", "minimum")  # metrics of the clients' accuracies, in the results of Flower


class FairStrategy(Strategy):
    """A rule of `fedfv` as the strategy of a Flower `ServerApp`: it drives `step` and holds one `ServerState`.

    A reply that is wrong costs its client the round and never the run; what was wrong is logged and counted in the
    round's metrics. With a directory it checkpoints each round, and `start` goes on where it was cut off: the final
    model is the one of a run that was not, bit for bit.

    Args:
        aggregator: the rule, an object of `fedfv.aggregators` or of one's own. A rule that uses the clients' learning
            rate, and has no value for it, takes the `lr` of `train_config`.
        num_clients: how many there are in all; their ids, which `identify` lets them say, are from 0 to one less.
        fraction: of the clients that are there, for training in a round.
        count: how many of them instead.
        min_replies: with fewer good replies the model stays as it is for that round.
        evaluate_fraction: of the clients that are there, to see how the model serves them.
        accuracy_key: of the clients' metrics in evaluation, from 0 to 1: what they should have equal shares of.
        evaluate_every: rounds between evaluations; there is one before the first and one after the last as well.
        timeout: seconds to wait for the replies of a round.
        ttl: seconds after which a message is given up; None for the timeout.
        wait: seconds to wait for clients: at the start for as many as a round should have, later for `min_replies`.
        seed: of who is chosen.
        buffers: names of arrays that are not trained, in which * stands for anything; they are averaged by size.
        directory: where to keep records and checkpoints, like those of a simulated run; None for nowhere.
    """

    def __init__(
        self,
        aggregator: Aggregator[Any],
        num_clients: int,
        *,
        fraction: float = 1.0,
        count: int | None = None,
        min_replies: int = 1,
        evaluate_fraction: float = 1.0,
        accuracy_key: str = ACCURACY,
        evaluate_every: int = 1,
        timeout: float = 600.0,
        ttl: float | None = None,
        wait: float = 120.0,
        seed: int = 0,
        buffers: Sequence[str] = BUFFERS,
        directory: str | Path | None = None,
    ) -> None:
        check_rule(with_learning_rate(aggregator, 1.0))
        for name, value in {"fraction": fraction, "evaluate_fraction": evaluate_fraction}.items():
            if not 0 <= value <= 1:
                raise ValueError(f"`{name}` must be in [0, 1], got {value}.")
        for name, number in {
            "num_clients": num_clients,
            "min_replies": min_replies,
            "evaluate_every": evaluate_every,
        }.items():
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"`{name}` must be a whole number from 1, got {number!r}.")
        if count is not None and not 1 <= count <= num_clients:
            raise ValueError(f"`count` must be from 1 to the {num_clients} clients, got {count}.")
        self.aggregator, self.num_clients, self.seed = aggregator, num_clients, seed
        self.fraction, self.count, self.min_replies = fraction, count, min_replies
        self.evaluate_fraction, self.evaluate_every = evaluate_fraction, evaluate_every
        self.accuracy_key = accuracy_key
        self.timeout, self.ttl, self.wait = timeout, timeout if ttl is None else ttl, wait
        self.buffers = tuple(buffers)
        self.directory = None if directory is None else Path(directory)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Runs the rounds that are left of `num_rounds`, all of them if there is no checkpoint.

        Rounds are counted from 1 in Flower's logs and results, from the first that is run here. A directory in which a
        run of other settings, of another model or with another `train_config` was begun is refused.
        """
        timeout = self.timeout if timeout is None else timeout
        if train_config is not None and isinstance(lr := train_config.get("lr"), float):
            self.aggregator = with_learning_rate(self.aggregator, lr)
        check_rule(self.aggregator)
        with self._own_directory(train_config or ConfigRecord()) as place:
            self._layout = Layout.of(initial_arrays, self.buffers)
            self._roster = Roster(self.num_clients, self.wait, self.timeout, self.ttl)
            self._sent: list[Message] = []
            self._rounds = num_rounds
            self._fingerprint = Fingerprint(model=self._layout.described())
            self._recorder = None
            if place is not None:
                self._recorder = Recorder(place, self.aggregator, self._fingerprint, save_after=0)
            self._begin(grid, initial_arrays, evaluate_config or ConfigRecord(), timeout)
            before = self.server.round
            central = None if evaluate_fn is None else lambda round, arrays: evaluate_fn(before + round, self.arrays)
            result = super().start(
                grid, self._model.trained, num_rounds - before, timeout, train_config, evaluate_config, central
            )
            result.arrays = self.arrays
            return result

    def _begin(self, grid: Grid, initial_arrays: ArrayRecord, evaluate_config: ConfigRecord, timeout: float) -> None:
        """The server where the run was cut off, or before its first round."""
        server = None if self._recorder is None else self._recorder.resume()
        self._roster.there(grid, max(self.min_replies, self._wanted(self.num_clients)))
        if server is not None:
            self._model = Outgoing(self._layout, self.aggregator, server)
            self._tell_resumed()
            return
        params = torch.empty(self._layout.size("parameter"), dtype=self._layout.type("parameter"))
        buffers = self._layout.read(initial_arrays, params)
        server = start(self.aggregator, self.num_clients, params, buffers)
        self._model = Outgoing(self._layout, self.aggregator, server)
        messages = list(self.configure_evaluate(0, self.arrays, evaluate_config, grid))
        answers = grid.send_and_receive(messages, timeout=timeout) if messages else []
        seen = self._evaluated(answers)
        if self._recorder is not None:
            sizes = {"test": [seen[client].size if client in seen else None for client in range(self.num_clients)]}
            opening = Opening(sizes=sizes, fingerprint=self._fingerprint)
            self._recorder.open(server, opening, self._scores(seen))

    def _own_directory(self, train_config: ConfigRecord) -> AbstractContextManager[RunDirectory | None]:
        if self.directory is None:
            return nullcontext()
        return RunDirectory.own(self.directory, settings_of(self, train_config))

    def _tell_resumed(self) -> None:
        done = self.server.round
        if done < self._rounds:
            log(INFO, "FairStrategy: going on after round %d of %d", done, self._rounds)
        else:
            log(
                WARNING,
                "FairStrategy: nothing is run, since the run in %s has done %d rounds already and %d were asked for; "
                "ask for more rounds to go on with it, or choose another directory",
                *(self.directory, done, self._rounds),
            )

    @property
    def server(self) -> ServerState[Any]:
        """Where the run is."""
        return self._model.server

    @property
    def arrays(self) -> ArrayRecord:
        """The model that the rule answers with."""
        return self._model.answer

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to each of the chosen clients."""
        there = self._roster.there(grid, self.min_replies)
        chosen = self._draw("sample", there, min(len(there), self._wanted(len(there))))
        record = RecordDict({ARRAYS: self._model.trained, CONFIG: self._with_round(config)})
        return self._ask(MessageType.TRAIN, record, {client: there[client] for client in chosen})

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One step of the rule; the model stays as it is if too few replied."""
        answers, rejected = sort_messages(replies, self._sent, self._roster.clients)
        asked = {message.metadata.dst_node_id for message in self._sent}
        answered = {message.metadata.src_node_id for message in answers.values()}
        self._roster.note(asked, answered)
        good, wrong = read_training(answers, self._layout, self.server, needs(self.aggregator))
        self._log(rejected := sorted(self._roster.duplicates + rejected + wrong))  # not in the order of arrival
        count = 0 if good is None else len(good.clients)
        used = good is not None and count >= self.min_replies
        done = self.server.round + 1
        if good is not None and used:
            server, direction, explanation = explained_step(self.aggregator, good, self.server)
            looked = self._recorder is not None and self._due(done)
            lens = Look.of(look(good, direction, explanation)) if looked else None
            self._record = Record.of_round(done, good, lens=lens)
        else:
            log(
                WARNING,
                "round %d: %d good replies of %d asked for, so the model stays as it is",
                *(done - 1, count, len(self._sent)),
            )
            server, self._record = skip(self.server), Record.of_round(done, None)
        self._record = dataclasses.replace(self._record, rejected=[(each.client, each.kind) for each in rejected])
        self._model.move(server)
        metrics = MetricRecord({"replies": count, "used": int(used)})
        for kind in KINDS:
            if number := sum(each.kind == kind for each in rejected):
                metrics[f"rejected-{kind}"] = number
        return self._model.trained if used else None, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to clients that say how it serves them, in rounds in which that is due."""
        if not self._due(self.server.round) or self.evaluate_fraction == 0:
            self._sent = []
            return []
        there = self._roster.there(grid, self.min_replies)
        count = min(len(there), max(1, math.ceil(self.evaluate_fraction * len(there))))
        chosen = self._draw("evaluate", there, count)
        record = RecordDict({ARRAYS: self.arrays, CONFIG: self._with_round(config)})
        return self._ask(MessageType.EVALUATE, record, {client: there[client] for client in chosen})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The accuracies of the clients; and, since the round is over, its record and its checkpoint."""
        seen = self._evaluated(replies)
        if self._recorder is not None:
            self._recorder.add(self.server, dataclasses.replace(self._record, test=self._scores(seen)))
        if not seen:
            return None
        accuracies = torch.tensor([each.accuracy for each in seen.values()], dtype=torch.double)
        return MetricRecord(
            {
                "clients": list(seen),
                "accuracies": accuracies.tolist(),
                **{name: float(METRICS[name](accuracies)) for name in _SHOWN},
            }
        )

    def _evaluated(self, replies: Iterable[Message]) -> dict[int, Evaluated]:
        answers, rejected = sort_messages(replies, self._sent, self._roster.clients)
        seen, wrong = read_evaluation(answers, self.accuracy_key)
        self._log(rejected + wrong)
        return seen

    def _scores(self, seen: dict[int, Evaluated]) -> Scores | None:
        if not seen:
            return None
        everyone = [seen.get(client) for client in range(self.num_clients)]
        return Scores(
            losses=[each and each.loss for each in everyone], accuracies=[each and each.accuracy for each in everyone]
        )

    def summary(self) -> None:
        """Logs what is about to run."""
        log(INFO, "\t├──> Rule: %s", self.aggregator)
        log(INFO, "\t└──> Clients: %d, rounds done: %d", self.num_clients, self.server.round)

    def _with_round(self, config: ConfigRecord) -> ConfigRecord:
        done = self.server.round
        return ConfigRecord({**config, SERVER_ROUND: done + 1, ROUND: done, NEEDS: " ".join(needs(self.aggregator))})

    def _ask(self, kind: str, record: RecordDict, nodes: dict[int, int]) -> list[Message]:
        """A list, since a deployment refuses an iterator."""
        self._sent = [Message(record, node, kind, ttl=self.ttl) for node in nodes.values()]
        return self._sent

    def _draw(self, why: str, there: dict[int, int], count: int) -> list[int]:
        return sorted(rng(self.seed, why, self.server.round).choice(sorted(there), count, replace=False).tolist())

    def _due(self, done: int) -> bool:
        return done % self.evaluate_every == 0 or done == self._rounds

    def _wanted(self, there: int) -> int:
        """How many of those who are there should train in a round."""
        return self.count or max(1, round(self.fraction * there))

    def _log(self, rejected: Iterable[Rejected]) -> None:
        for client, kind, reason in rejected:
            log(WARNING, "round %d, client %d: %s: %s", self.server.round, client, kind, reason)
