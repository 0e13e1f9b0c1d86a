"""A Flower strategy for any rule."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from logging import INFO
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
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
    uses_losses,
    with_learning_rate,
)
from fedfv.flower._choice import Choice
from fedfv.flower._contract import (
    ARRAYS,
    BUFFERS,
    CONFIG,
    LOSS,
    SIZE,
    Names,
    key_of_score,
)
from fedfv.flower._diary import Diary, EnoughError
from fedfv.flower._inbox import (
    Evaluated,
    Rejected,
    Wanted,
    counted,
    read_evaluation,
    read_training,
    refuse_without_losses,
)
from fedfv.flower._layout import Layout
from fedfv.flower._log import log_rejected, log_resumed, log_too_few
from fedfv.flower._mail import Mail
from fedfv.flower._metrics import Average, averaged, fairness
from fedfv.flower._outgoing import Outgoing
from fedfv.flower._questions import Questions
from fedfv.flower._roster import Roster
from fedfv.flower._settings import completed, learning_rate_of, settings_of
from fedfv.lens import look
from fedfv.mapped import Rows
from fedfv.runs import Look, Record, RunDirectory, Watch
from fedfv.tasks import ACCURACY, Score
from fedfv.whatif import DEFAULT_RULES, Comparison


class FairStrategy(Strategy):
    """A rule of `fedfv` as the strategy of a Flower `ServerApp`: it drives `step` and holds one `ServerState`.

    A wrong reply costs its client the round and never stops the run; the reason is logged, and rejected replies are
    counted in the round's metrics. With a directory, the strategy saves a checkpoint in each round, and `start` resumes
    from it: the final model equals that of an uninterrupted run, bit for bit.

    Args:
        aggregator: the rule, an object of `fedfv.aggregators` or of your own class. A rule that uses the clients'
            learning rate, and has no value for it, takes the `lr` of `train_config`.
        num_clients: the number N of all clients. Clients that report their ids, from 0 to N - 1, with `identify` keep
            them; otherwise each node is a client for as long as it is connected.
        fraction_train: the share of connected clients that train in a round, rounded down.
        fraction_evaluate: the share of connected clients that evaluate the model, rounded down.
        min_train_nodes: train at least so many clients, if they are connected.
        min_evaluate_nodes: let at least so many clients evaluate.
        min_available_nodes: the number of clients to wait for before a round. The default is to wait for a full round
            of clients at the start, and for `min_replies` later.
        weighted_by_key: the metric that holds a client's number of examples.
        arrayrecord_key: the name of the record of arrays in messages.
        configrecord_key: the name of the record of the configuration in messages.
        train_metrics_aggr_fn: makes one record of metrics of those of all clients, given a `RecordDict` for each,
            without arrays, and `weighted_by_key`; the default is the weighted mean of each number that all report.
        evaluate_metrics_aggr_fn: the same for evaluations.
        count: the number of clients that train in a round, in place of `fraction_train`.
        min_replies: the model does not change in a round with fewer good replies.
        loss_key: the training metric that holds the loss of the model *as received*, and the loss in evaluations. Rules
            that do not read losses, such as FedAvg, do not need it.
        scored_by: what the score of a client means; fairness is measured on it. For clients of `fair_client` it is the
            `scored_by` of their task.
        score_key: the evaluation metric that holds a client's score; the default is the name of the score in small
            letters with hyphens, such as "accuracy", which is a number from 0 to 1.
        evaluate_every: rounds between evaluations; the initial and the final model are always evaluated.
        stop_when: called before each round with all records so far; the run ends if it returns true, see `NoGain`.
        watch: called with the progress before the first round and after each round, see `TensorBoard`.
        timeout: seconds to wait for the replies of a round.
        ttl: seconds after which a message expires; the default is `timeout`.
        wait: seconds to wait for clients to connect.
        seed: seed for the choice of clients.
        buffers: names of arrays that are not trained, with * as wildcard; they are averaged, weighted by client size.
        frozen: names of arrays that never change, with * as wildcard; clients get them and need not send them back.
        directory: the run directory for records and checkpoints, as in a simulated run; None writes no files.
        what_if: other rules; the lens entries of the records say what each would have done. An empty list for none.
        memory_share: the updates of a round that need a larger share of the available memory than this are kept in a
            file, in the directory or else among temporary files.
    """

    def __init__(
        self,
        aggregator: Aggregator[Any],
        num_clients: int,
        *,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int | None = None,
        weighted_by_key: str = SIZE,
        arrayrecord_key: str = ARRAYS,
        configrecord_key: str = CONFIG,
        train_metrics_aggr_fn: Average | None = None,
        evaluate_metrics_aggr_fn: Average | None = None,
        count: int | None = None,
        min_replies: int = 1,
        loss_key: str = LOSS,
        scored_by: Score = ACCURACY,
        score_key: str | None = None,
        evaluate_every: int = 1,
        stop_when: Callable[[Sequence[Record]], bool] | None = None,
        watch: Watch | None = None,
        timeout: float = 600.0,
        ttl: float | None = None,
        wait: float = 120.0,
        seed: int = 0,
        buffers: Sequence[str] = BUFFERS,
        frozen: Sequence[str] = (),
        directory: str | Path | None = None,
        what_if: Sequence[Aggregator[Any]] = DEFAULT_RULES,
        memory_share: float = 0.25,
    ) -> None:
        check_rule(with_learning_rate(aggregator, 1.0))
        self.choice = Choice(
            num_clients=num_clients,
            seed=seed,
            count=count,
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
        )
        for name, number in {"min_replies": min_replies, "evaluate_every": evaluate_every}.items():
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"`{name}` must be a whole number from 1, got {number!r}.")
        score = key_of_score(scored_by) if score_key is None else score_key
        self.names = Names(arrayrecord_key, configrecord_key, weighted_by_key, loss_key, score)
        self.aggregator, self.num_clients, self.scored_by = aggregator, num_clients, scored_by
        self.train_metrics_aggr_fn, self.evaluate_metrics_aggr_fn = train_metrics_aggr_fn, evaluate_metrics_aggr_fn
        self.min_replies, self.evaluate_every = min_replies, evaluate_every
        self.stop_when, self.watch = stop_when, watch
        Comparison(what_if, aggregator, num_clients, lr=1.0)
        self.what_if = tuple(what_if)
        self.timeout, self.ttl, self.wait = timeout, timeout if ttl is None else ttl, wait
        self.buffers, self.frozen, self.memory_share = tuple(buffers), tuple(frozen), memory_share
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
        settings = settings_of(self, train_config or ConfigRecord())
        own = nullcontext() if self.directory is None else RunDirectory.own(self.directory, settings, completed)
        with own as place:
            self._layout = Layout.of(initial_arrays, self.buffers, self.frozen)
            self._rounds = num_rounds
            self._diary = Diary(place, self.aggregator, self._layout, self.num_clients, self.scored_by, num_rounds)
            self._begin(grid, initial_arrays, evaluate_config or ConfigRecord(), timeout)
            del initial_arrays  # a large model is not kept twice
            self._diary.begin(self.watch)
            self._first = self.server.round
            left = num_rounds - self._first
            central = self._diary.keeping(evaluate_fn, lambda: self.arrays)
            try:
                super().start(grid, ArrayRecord(), left, timeout, train_config, evaluate_config, central)
            except EnoughError:
                log(INFO, "FairStrategy: stopped after round %d, as `stop_when` asks for", self.server.round)
            self._diary.result.arrays = self.arrays
            return self._diary.result

    def _begin(self, grid: Grid, initial_arrays: ArrayRecord, evaluate_config: ConfigRecord, timeout: float) -> None:
        """Resumes the server from the checkpoint, or starts it and evaluates the initial model."""
        server = self._diary.resume()
        self._roster = Roster(self.num_clients, self.wait, self.timeout, self.ttl, self._diary.names)
        self._roster.connected(grid, max(self.min_replies, self.choice.at_start()))
        least = max(self.min_replies, self.choice.min_available_nodes or 0)
        self._questions = Questions(self.aggregator, self.choice, self.names, self._roster, self.ttl, least)
        if server is not None:
            self._model = Outgoing(self._layout, self.aggregator, server)
            log_resumed(server.round, self._rounds, self.directory)
            return
        params = torch.empty(self._layout.size("parameter"), dtype=self._layout.type("parameter"))
        buffers = self._layout.read(initial_arrays, params)
        layers, with_mean = self._layout.layers(), answers_with_mean(self.aggregator)
        server = start(self.aggregator, self.num_clients, params, buffers, layers, with_mean=with_mean)
        self._model = Outgoing(self._layout, self.aggregator, server)
        messages = self.configure_evaluate(0, ArrayRecord(), evaluate_config, grid)
        results, _ = self._evaluated(grid.send_and_receive(messages, timeout=timeout))
        self._diary.open(server, results, self._roster.names())

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
        if self.stop_when is not None and self.stop_when(self._diary.records):
            raise EnoughError
        return self._questions.train(grid, self._model.trained, config, self.server.round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One step of the rule; the model does not change if there are too few good replies.

        The arrays that are returned are empty: Flower would keep them for a round, and the strategy has the model.
        """
        wanted = Wanted(self._layout, self.names, needs(self.aggregator), uses_losses(self.aggregator))
        params, round, asked = self.server.params, self.server.round, self._questions.sent()
        self._model.forget()
        rows = Rows.within(self.memory_share, (len(asked), len(params)), params.dtype, self.directory)
        good, reported, wrong, with_losses = read_training(replies, asked, wanted, params, round, rows)
        self._roster.note(self._questions.nodes, wrong)
        if wanted.losses and round == self._first:
            refuse_without_losses(self.aggregator, self.names.loss, wrong, good)
        rejected = sorted(self._roster.duplicates + wrong)  # replies arrive in any order
        log_rejected(round, rejected)
        count = 0 if good is None else len(good.clients)
        used = good is not None and count >= self.min_replies
        done = round + 1
        if good is not None and used:
            server, direction, explanation = explained_step(self.aggregator, good, self.server)
            lens_due = self._diary.is_read and self._due(done)
            lens = Look.of(look(good, direction, explanation), self._others(good, with_losses)) if lens_due else None
            record = Record.of_round(done, good, explanation, lens=lens)
            if not with_losses:
                record = dataclasses.replace(record, train_losses=[])
        else:
            log_too_few(round, count, len(asked))
            server, record = skip(self.server), Record.of_round(done, None)
        self._record = dataclasses.replace(record, rejected=[(client, kind) for client, kind, _ in rejected])
        self._model.move(server)
        metrics = averaged(reported, self.names.size, self.train_metrics_aggr_fn)
        metrics.update({"replies": count, "used": int(used), **counted(rejected), **self._diary.note(self._record)})
        self._diary.result.train_metrics_clientapp[server_round] = metrics
        return ArrayRecord() if used else None, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that ask clients to evaluate the model; none in rounds without an evaluation."""
        if not self._due(self.server.round):
            return self._questions.nothing()
        return self._questions.evaluate(grid, lambda: self.arrays, config, self.server.round)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The scores of the clients. The round is over, so its record and its checkpoint are written, too."""
        results, rejected = self._evaluated(replies)
        self._diary.add(self.server, self._record, results)
        metrics = averaged([each.metrics for each in results.values()], self.names.size, self.evaluate_metrics_aggr_fn)
        metrics.update(counted(rejected))
        metrics.update(fairness(results, self.scored_by))
        if not metrics:
            return None
        self._diary.result.evaluate_metrics_clientapp[server_round] = metrics
        return metrics

    def summary(self) -> None:
        """Logs the rule, the number of clients and the rounds that are done."""
        log(INFO, "\t├──> Rule: %s", self.aggregator)
        log(INFO, "\t├──> Model: %d parameters in %d arrays", len(self.server.params), len(self._layout.names))
        log(INFO, "\t└──> Clients: %d, rounds done: %d", self.num_clients, self.server.round)

    def _evaluated(self, replies: Iterable[Message]) -> tuple[dict[int, Evaluated], list[Rejected]]:
        results, rejected = read_evaluation(replies, self._questions.sent(), self.scored_by, self.names)
        log_rejected(self.server.round, rejected := sorted(rejected))
        return results, rejected

    def _due(self, done: int) -> bool:
        return done % self.evaluate_every == 0 or done == self._rounds
