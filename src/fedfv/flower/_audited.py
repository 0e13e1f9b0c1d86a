"""Any Flower strategy, with an audit beside it."""

import inspect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedfv.aggregators import FedAvg, FedMGDA, UPGrad
from fedfv.core import Aggregator, is_rule, label, uses_losses
from fedfv.flower._audit import Audit, Options
from fedfv.flower._audit_faults import Faults
from fedfv.flower._audit_who import CLIENT_KEYS
from fedfv.flower._contract import ARRAYS, BUFFERS, SIZE
from fedfv.flower._forwarding import Forwarding
from fedfv.flower._settings import audit_settings_of, learning_rate_of
from fedfv.runs import RunDirectory
from fedfv.tasks import ACCURACY, Score
from fedfv.whatif import Comparison

OTHER_RULES: tuple[Aggregator[Any], ...] = (UPGrad(), FedMGDA())  # neither reads losses
_CLIENTS = 12  # of the example on which rules are tried


def audited(
    strategy: Strategy,
    directory: str | Path = "audit",
    *,
    score_key: str | None = None,
    scored_by: Score = ACCURACY,
    client_key: str | None = None,
    lens_every: int = 1,
    memory_share: float = 0.25,
    buffers: Sequence[str] = BUFFERS,
    what_if: Sequence[Aggregator[Any]] = OTHER_RULES,
) -> "Audited":
    """The same strategy, which also records whom its steps serve and against whom they work.

    The clients need no change. Their metrics are recorded under their own names, and the conflict lens shows their
    updates and the step that the strategy made of them. The run and its result are those without the audit. Whatever
    goes wrong in the audit is logged, and the run goes on.

    Args:
        strategy: any strategy of Flower's message API, the outermost one if it wraps others.
        directory: the run directory, for `fedfv report`. If it exists and is not empty, the audit is in `audit-2`,
            `audit-3` and so on beside it.
        score_key: the evaluation metric that holds a client's score; the default is `accuracy`, or else the only
            metric with "acc" in its name and values from 0 to 1. Without a score, fairness is not measured.
        scored_by: what the score means.
        client_key: the metric in which clients say their ids, whole numbers from 0. By default it is the first that a
            client has of `client-id`, `client_id`, `cid`, `partition-id` and `partition_id`. A client without an id is
            known by its node, which gets another id when it is started again.
        lens_every: rounds between two lens entries.
        memory_share: the largest share of the available memory that the updates of a round may take; if they need
            more, they are in a file of the directory until the round is over.
        buffers: names of arrays that are not trained, with * as wildcard; the lens leaves them out, and integers.
        what_if: rules that read no losses; the lens entries say what each would have done. An empty list for none.
    """
    if not isinstance(strategy, Strategy):
        raise ValueError(f"`strategy` must be a strategy of flwr.serverapp.strategy, got {type(strategy).__name__}.")
    if not isinstance(lens_every, int) or lens_every < 1:
        raise ValueError(f"`lens_every` must be a whole number from 1, got {lens_every!r}.")
    if not 0 <= memory_share <= 1:
        raise ValueError(f"`memory_share` must be in [0, 1], got {memory_share}.")
    _check_rules(what_if)
    options = Options(
        score_key=score_key,
        scored_by=scored_by,
        client_keys=CLIENT_KEYS if client_key is None else (client_key,),
        lens_every=lens_every,
        memory_share=memory_share,
        buffers=tuple(buffers),
        size_key=_setting(strategy, "weighted_by_key", SIZE),
        arrays_key=_setting(strategy, "arrayrecord_key", ARRAYS),
        what_if=tuple(what_if),
    )
    return Audited(strategy, Path(directory), options)


class Audited(Strategy):
    """A strategy with an audit beside it, see `audited`. All its attributes are those of the strategy."""

    _strategy: Strategy
    _directory: Path
    _options: Options
    _wrapped: Faults

    def __init__(self, strategy: Strategy, directory: Path, options: Options) -> None:
        vars(self).update(_strategy=strategy, _directory=directory, _options=options, _wrapped=Faults())

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_strategy"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._strategy, name, value)

    def __repr__(self) -> str:
        return f"audited({self._strategy!r}, {str(self._directory)!r})"

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """Runs `start` of the strategy with these arguments, and records what it does."""
        with self._audit(grid, args, kwargs) as audit:
            if audit is None:
                return self._strategy.start(grid, *args, **kwargs)
            result = None
            try:
                result = self._strategy.start(Watched(grid, audit), *args, **kwargs)
            finally:
                audit.finished(getattr(result, "arrays", None))
            return result

    @contextmanager
    def _audit(self, grid: Grid, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Audit | None]:
        """The audit of a run; None if it is not possible, which the log says."""
        faults, audit, held = Faults(), None, ExitStack()
        with faults.harmless("the whole audit"):
            given = inspect.signature(self._strategy.start).bind(grid, *args, **kwargs)
            given.apply_defaults()
            wanted = self._directory.absolute()
            path = _unused(wanted)
            settings = audit_settings_of(self._strategy, self._options, path, given.arguments)
            place = held.enter_context(RunDirectory.own(path, settings))
            audit = Audit(place, self._options, faults, learning_rate_of(given.arguments.get("train_config")))
            log(INFO, "audit: recording in %s%s", path, "" if path == wanted else f", since {wanted} is not empty")
        try:
            yield audit
        finally:
            with faults.harmless("the end of the audit"):
                held.close()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._wrapped.once("", "audit: nothing is recorded, since `audited` is not around the outermost strategy")
        return self._strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return self._strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self._strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self._strategy.summary()


class Watched(Forwarding):
    """A grid whose messages and replies an audit reads, and nobody changes."""

    def __init__(self, grid: Grid, audit: Audit) -> None:
        super().__init__(grid)
        self._audit = audit

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = messages if isinstance(messages, list) else list(messages)
        self._audit.sent(sent)
        replies = self._grid.send_and_receive(sent, timeout=timeout)
        received = replies if isinstance(replies, list) else list(replies)
        self._audit.received(sent, received)
        return received


def _check_rules(rules: Sequence[Aggregator[Any]]) -> None:
    """Refuses rules that cannot be compared with a strategy whose clients report no losses before training."""
    for rule in rules:
        if is_rule(rule) and uses_losses(rule):
            raise ValueError(
                f"`what_if` of an audit must name rules that read no losses, since the losses before training are not "
                f"known, got {label(rule)}."
            )
    Comparison(rules, main=FedAvg(), num_clients=_CLIENTS, lr=1.0)


def _unused(path: Path) -> Path:
    """A new directory of this name, or with a number at the end of the name if there are others."""
    for number in itertools.count(1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            place.mkdir(parents=True)
            return place
        except FileExistsError:
            if place.is_dir() and not any(place.iterdir()):
                return place
    raise AssertionError


def _setting(strategy: Any, name: str, default: str) -> str:
    """A setting of a strategy, or of the one that it wraps."""
    value, inner = getattr(strategy, name, None), getattr(strategy, "strategy", None)
    if isinstance(value, str):
        return value
    return default if inner is None else _setting(inner, name, default)
