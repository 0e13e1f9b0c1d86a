"""A Flower strategy for any rule."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from logging import INFO
from pathlib import Path
from typing import Any, Literal

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedfv.core import (
    Aggregator,
    ServerState,
    answers_with_mean,
    check_rule,
    explained_step,
    needs,
    skip,
    start,
    with_learning_rate,
)
from fedfv.flower._contract import ARRAYS, BUFFERS, CONFIG, NEEDS, ROUND, SERVER_ROUND, key_of, key_of_score
from fedfv.flower._inbox import Evaluated, Rejected, counted, read_evaluation, read_training, sort_messages
from fedfv.flower._layout import Layout
from fedfv.flower._log import Watch, log_rejected, log_resumed, log_too_few
from fedfv.flower._mail import Mail
from fedfv.flower._outgoing import Outgoing
from fedfv.flower._roster import Roster
from fedfv.flower._settings import completed, learning_rate_of, settings_of
from fedfv.lens import look
from fedfv.metrics import METRICS
from fedfv.runs import Fingerprint, Look, ModelFile, Opening, Record, Recorder, RunDirectory, Scores
from fedfv.seeding import rng
from fedfv.tasks import ACCURACY, Score
from fedfv.whatif import DEFAULT_RULES, Comparison

_SHOWN = ("mean", "std", "worst", "minimum")  # metrics of the clients' scores in Flower's results


class FairStrategy(Strategy):
    """A rule of `fedfv` as the strategy of a Flower `ServerApp`: it drives `step` and holds one `ServerState`.

    A wrong reply costs its client the round and never stops the run; the reason is logged, and rejected replies are
    counted in the round's metrics. With a directory, the strategy saves a checkpoint in each round, and `start` resumes
    from it: the final model equals that of an uninterrupted run, bit for bit.

    Args:
        aggregator: the rule, an object of `fedfv.aggregators` or of your own class. A rule that uses the clients'
            learning rate, and has no value for it, takes the `lr` of `train_config`.
        num_clients: the number N of all clients; they report their ids, from 0 to N - 1, with `identify`.
        fraction: the share of connected clients that train in a round.
        count: the number of clients that train in a round, in place of `fraction`.
        min_replies: the model does not change in a round with fewer good replies.
        evaluate_fraction: the share of connected clients that evaluate the model.
        scored_by: what the score of a client means; fairness is measured on it. For clients of `fair_client` it is the
            `scored_by` of their task.
        score_key: the evaluation metric that holds a client's score; the default is the name of the score in small
            letters with hyphens, such as "accuracy", which is a number from 0 to 1.
        evaluate_every: rounds between evaluations; the initial and the final model are always evaluated.
        timeout: seconds to wait for the replies of a round.
        ttl: seconds after which a message expires; the default is `timeout`.
        wait: seconds to wait for clients to connect: at the start for a full round of clients, later for `min_replies`.
        seed: seed for the choice of clients.
        buffers: names of arrays that are not trained, with * as wildcard; they are averaged, weighted by client size.
        directory: the run directory for records and checkpoints, as in a simulated run; None writes no files.
        what_if: other rules; the lens entries of the records say what each would have done. An empty list for none.
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
        scored_by: Score = ACCURACY,
        score_key: str | None = None,
        evaluate_every: int = 1,
        timeout: float = 600.0,
        ttl: float | None = None,
        wait: float = 120.0,
        seed: int = 0,
        buffers: Sequence[str] = BUFFERS,
        directory: str | Path | None = None,
        what_if: Sequence[Aggregator[Any]] = DEFAULT_RULES,
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
        Comparison(what_if, aggregator, num_clients, lr=1.0)
        self.aggregator, self.num_clients, self.seed, self.what_if = aggregator, num_clients, seed, tuple(what_if)
        self.fraction, self.count, self.min_replies = fraction, count, min_replies
        self.evaluate_fraction, self.evaluate_every = evaluate_fraction, evaluate_every
        self.scored_by, self.score_key = scored_by, key_of_score(scored_by) if score_key is None else score_key
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
        """Runs `num_rounds` rounds, or the remaining ones if there is a checkpoint.

        Flower's logs and results count rounds from 1, starting with the first round of this call. A directory that
        holds a run with other settings, another model or another `train_config` is refused.
        """
        grid, timeout = Mail(grid), self.timeout if timeout is None else timeout
        self.aggregator = with_learning_rate(self.aggregator, lr := learning_rate_of(train_config))
        check_rule(self.aggregator)
        self._others = Comparison(self.what_if, self.aggregator, self.num_clients, lr)
        with self._own_directory(train_config or ConfigRecord()) as place:
            self._layout = Layout.of(initial_arrays, self.buffers)
            self._roster = Roster(self.num_clients, self.wait, self.timeout, self.ttl)
            self._sent: list[Message] = []
            self._rounds = num_rounds
            self._fingerprint = Fingerprint(model=self._layout.described())
            self._recorder = None
            if place is not None:
                self._recorder = Recorder(place, self.aggregator, self._fingerprint, save_after=0)
                output: Literal["last", "mean"] = "mean" if answers_with_mean(self.aggregator) else "last"
                place.describe(ModelFile(arrays=self._layout.stored(), output=output), {})
            self._begin(grid, initial_arrays, evaluate_config or ConfigRecord(), timeout)
            before = self.server.round
            central = None if evaluate_fn is None else lambda round, arrays: evaluate_fn(before + round, self.arrays)
            result = super().start(
                grid, self._model.trained, num_rounds - before, timeout, train_config, evaluate_config, central
            )
            result.arrays = self.arrays
            return result

    def _begin(self, grid: Grid, initial_arrays: ArrayRecord, evaluate_config: ConfigRecord, timeout: float) -> None:
        """Resumes the server from the checkpoint, or starts it and evaluates the initial model."""
        server = None if self._recorder is None else self._recorder.resume()
        self._watch = Watch([] if self._recorder is None else self._recorder.place.records())
        self._roster.connected(grid, max(self.min_replies, self._sample_size(self.num_clients)))
        if server is not None:
            self._model = Outgoing(self._layout, self.aggregator, server)
            log_resumed(server.round, self._rounds, self.directory)
            return
        params = torch.empty(self._layout.size("parameter"), dtype=self._layout.type("parameter"))
        buffers = self._layout.read(initial_arrays, params)
        server = start(self.aggregator, self.num_clients, params, buffers, self._layout.layers())
        self._model = Outgoing(self._layout, self.aggregator, server)
        messages = self.configure_evaluate(0, self.arrays, evaluate_config, grid)
        results, _ = self._evaluated(grid.send_and_receive(messages, timeout=timeout))
        if self._recorder is not None:
            everyone = [results.get(client) for client in range(self.num_clients)]
            sizes = {"test": [result and result.size for result in everyone]}
            opening = Opening(sizes=sizes, scored_by=self.scored_by, fingerprint=self._fingerprint)
            self._recorder.open(server, opening, self._scores(results))

    def _own_directory(self, train_config: ConfigRecord) -> AbstractContextManager[RunDirectory | None]:
        if self.directory is None:
            return nullcontext()
        return RunDirectory.own(self.directory, settings_of(self, train_config), completed)

    @property
    def server(self) -> ServerState[Any]:
        """The state of the server after the last round."""
        return self._model.server

    @property
    def arrays(self) -> ArrayRecord:
        """The rule's answer: the model that is evaluated and returned."""
        return self._model.answer

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that send the model to the chosen clients for training."""
        nodes = self._roster.connected(grid, self.min_replies)
        chosen = self._draw("sample", nodes, min(len(nodes), self._sample_size(len(nodes))))
        record = RecordDict({ARRAYS: self._model.trained, CONFIG: self._with_round(config)})
        return self._ask(MessageType.TRAIN, record, {client: nodes[client] for client in chosen})

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One step of the rule; the model does not change if there are too few good replies."""
        answers, rejected = sort_messages(replies, self._sent, self._roster.clients)
        asked = {message.metadata.dst_node_id for message in self._sent}
        answered = {message.metadata.src_node_id for message in answers.values()}
        self._roster.note(asked, answered)
        good, wrong = read_training(answers, self._layout, self.server, needs(self.aggregator))
        rejected = sorted(self._roster.duplicates + rejected + wrong)  # replies arrive in any order
        log_rejected(self.server.round, rejected)
        count = 0 if good is None else len(good.clients)
        used = good is not None and count >= self.min_replies
        done = self.server.round + 1
        if good is not None and used:
            server, direction, explanation = explained_step(self.aggregator, good, self.server)
            lens_due = self._recorder is not None and self._due(done)
            lens = Look.of(look(good, direction, explanation), self._others(good)) if lens_due else None
            self._record = Record.of_round(done, good, explanation, lens=lens)
        else:
            log_too_few(done - 1, count, len(self._sent))
            server, self._record = skip(self.server), Record.of_round(done, None)
        self._record = dataclasses.replace(self._record, rejected=[(client, kind) for client, kind, _ in rejected])
        self._model.move(server)
        done_by_defences = self._watch.note(self._record)
        metrics = MetricRecord({"replies": count, "used": int(used), **counted(rejected), **done_by_defences})
        return self._model.trained if used else None, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that ask clients to evaluate the model; none in rounds without an evaluation."""
        if not self._due(self.server.round) or self.evaluate_fraction == 0:
            self._sent = []
            return []
        nodes = self._roster.connected(grid, self.min_replies)
        count = min(len(nodes), max(1, math.ceil(self.evaluate_fraction * len(nodes))))
        chosen = self._draw("evaluate", nodes, count)
        record = RecordDict({ARRAYS: self.arrays, CONFIG: self._with_round(config)})
        return self._ask(MessageType.EVALUATE, record, {client: nodes[client] for client in chosen})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The scores of the clients. The round is over, so its record and its checkpoint are written, too."""
        results, rejected = self._evaluated(replies)
        if self._recorder is not None:
            self._recorder.add(self.server, dataclasses.replace(self._record, test=self._scores(results)))
        if not results:
            return MetricRecord(counted(rejected)) if rejected else None
        scores = torch.tensor([result.score for result in results.values()], dtype=torch.double)
        metrics = {name: METRICS[name].under(self.scored_by) for name in _SHOWN}
        return MetricRecord(
            {
                "clients": list(results),
                "accuracies" if self.scored_by == ACCURACY else "scores": scores.tolist(),
                **{name: float(metric(scores)) for name, metric in metrics.items()},
                **counted(rejected),
            }
        )

    def _evaluated(self, replies: Iterable[Message]) -> tuple[dict[int, Evaluated], list[Rejected]]:
        answers, rejected = sort_messages(replies, self._sent, self._roster.clients)
        results, wrong = read_evaluation(answers, self.scored_by, self.score_key)
        log_rejected(self.server.round, rejected := sorted(rejected + wrong))
        return results, rejected

    def _scores(self, results: dict[int, Evaluated]) -> Scores | None:
        if not results:
            return None
        everyone = [results.get(client) for client in range(self.num_clients)]
        losses = [result and result.loss for result in everyone]
        return Scores(
            losses=losses,
            scores=[result and result.score for result in everyone],
            variances=None if self.scored_by.is_share else [result and result.variance for result in everyone],
        )

    def summary(self) -> None:
        """Logs the rule, the number of clients and the rounds that are done."""
        log(INFO, "\t├──> Rule: %s", self.aggregator)
        log(INFO, "\t└──> Clients: %d, rounds done: %d", self.num_clients, self.server.round)

    def _with_round(self, config: ConfigRecord) -> ConfigRecord:
        done = self.server.round
        metrics = " ".join(map(key_of, needs(self.aggregator)))
        return ConfigRecord({**config, SERVER_ROUND: done + 1, ROUND: done, NEEDS: metrics})

    def _ask(self, kind: str, record: RecordDict, nodes: dict[int, int]) -> list[Message]:
        """The messages to these nodes, in a list, since a deployment refuses an iterator."""
        self._sent = [Message(record, node, kind, ttl=self.ttl) for node in nodes.values()]
        return self._sent

    def _draw(self, why: str, nodes: dict[int, int], count: int) -> list[int]:
        return sorted(rng(self.seed, why, self.server.round).choice(sorted(nodes), count, replace=False).tolist())

    def _due(self, done: int) -> bool:
        return done % self.evaluate_every == 0 or done == self._rounds

    def _sample_size(self, connected: int) -> int:
        """The number of clients that should train in a round, given how many are connected."""
        return self.count or max(1, round(self.fraction * connected))
