"""Runs an experiment: the loop over rounds with evaluations, records, checkpoints and resume."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

import fedfv
from fedfv.attacks import AttackedClients
from fedfv.core import Clients, NotFiniteError, ServerState, start
from fedfv.data import Dataset, Federation
from fedfv.distributed import ALONE, Ranks
from fedfv.errors import ConfigError, DivergedError
from fedfv.experiments._build import (
    build_clients,
    build_federation,
    build_module,
    build_sampler,
    device_of,
    fit_task,
    output_kind,
    output_of,
)
from fedfv.experiments._kinds import table_of
from fedfv.experiments._seeding import model_seed
from fedfv.experiments._spec import Experiment
from fedfv.lens import look
from fedfv.models import flatten, flatten_buffers, layers_of
from fedfv.runs import (
    Fingerprint,
    Look,
    ModelFile,
    Opening,
    Progress,
    Record,
    Recorder,
    RunDirectory,
    Scores,
    Watch,
    arrays_of,
    frozen_of,
    layer,
    owned,
)
from fedfv.simulation import Round, simulate
from fedfv.tasks import Task
from fedfv.training import Evaluation, evaluate
from fedfv.whatif import Comparison

_FEW = 10  # upper bound on the clients that a sentence names


def run(
    experiment: Experiment,
    directory: str | Path,
    *,
    data: str | Path | Dataset | Federation | None = None,
    watch: Watch = lambda progress: None,
    ranks: Ranks = ALONE,
) -> RunDirectory:
    """Runs or resumes the experiment and returns its run directory.

    A run that is cut off at any moment and resumed has the records of an uninterrupted run, bit for bit. A run that is
    interrupted from the keyboard saves a checkpoint first.

    Args:
        experiment: the settings of the run.
        directory: the run directory. A directory that is in use, or holds another experiment, is refused. Experiments
            that differ in `rounds` alone count as the same, so a finished run resumes if `rounds` is larger.
        data: the folder that is searched first for data files, or data that are already loaded.
        watch: callback that receives the progress before the first round and after each round.
        ranks: the processes of the run, which all call this function with equal arguments, see `fedfv.distributed`.
    """
    with ranks.as_one():
        parts = _built(experiment, data, ranks)
    settings = experiment.to_dict()
    with owned(directory, settings, completed, ranks) as place:
        _run(parts, place, watch)
    return place


def _built(experiment: Experiment, data: str | Path | Dataset | Federation | None, ranks: Ranks) -> "_Parts":
    try:
        federation = build_federation(experiment, data).sorted_by_client().to(device_of(experiment))
        fitted = fit_task(experiment, federation)
        model = build_module(fitted, federation)
        clients = build_clients(fitted, federation, model, ranks)
        sample = build_sampler(experiment, federation)
        rule, lr = experiment.aggregator, experiment.training.lr
        others = Comparison(experiment.what_if, rule, federation.num_clients, lr)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return _Parts(fitted, federation, model, clients, sample, others, ranks)


def experiment_of(place: RunDirectory) -> Experiment:
    """The experiment of a simulated run, from its directory."""
    return Experiment.from_dict(place.settings())


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with every default filled in; those of a Flower run, or of a rule that is gone, stay unchanged."""
    try:
        return Experiment.from_dict(settings).to_dict()
    except ConfigError:
        return settings


class _Parts(NamedTuple):
    """An experiment and the objects that run it."""

    experiment: Experiment
    federation: Federation
    model: nn.Module
    clients: Clients
    sample: Callable[[int], Int[Tensor, " m"]]
    others: Comparison
    ranks: Ranks = ALONE

    def scores(self, server: ServerState[Any]) -> dict[str, Scores]:
        """Losses and scores of all clients on test examples, and on validation examples if there are any."""
        params, buffers, task = output_of(self.experiment, server), server.buffers, self.experiment.task
        test = evaluate(self.federation, self.model, params, buffers, task, "test", self.ranks)
        bad = (test.sizes > 0) & ~test.losses.isfinite()
        if bad.any():
            raise NotFiniteError("test losses", bad.nonzero().flatten().tolist())
        scores = {"test": _scores(test, task)}
        if self.federation.validation.sizes.any():
            validation = evaluate(self.federation, self.model, params, buffers, task, "validation", self.ranks)
            scores["validation"] = _scores(validation, task)
        return scores

    def record(self, turn: Round[Any]) -> Record:
        """The record of a round, with an evaluation and a lens entry in the rounds in which they are due."""
        done, experiment, lens = turn.server.round, self.experiment, None
        if (
            turn.direction is not None
            and turn.replies is not None
            and self._due(done, experiment.lens_every or experiment.evaluate_every)
        ):
            lens = Look.of(look(turn.replies, turn.direction, turn.explanation), self.others(turn.replies))
        scores = self.scores(turn.server) if self._due(done, experiment.evaluate_every) else {}
        return Record.of_round(done, turn.replies, turn.explanation, lens=lens, lied=self._lied(turn), **scores)

    def liars(self) -> list[int]:
        """The clients that attack."""
        return self.clients.liars.tolist() if isinstance(self.clients, AttackedClients) else []

    def _lied(self, turn: Round[Any]) -> list[int]:
        """The clients that attacked in a round."""
        if turn.replies is None or not isinstance(self.clients, AttackedClients):
            return []
        chosen = turn.replies.clients
        return chosen[self.clients.attacking(turn.replies.round, chosen)].tolist()

    def _due(self, done: int, every: int) -> bool:
        return done % every == 0 or done == self.experiment.rounds


def _run(parts: _Parts, place: RunDirectory, watch: Watch) -> None:
    if (sentence := place.diverged()) is not None:
        raise DivergedError(f"{place.path} {sentence}")
    experiment, federation, model, clients, sample, _, ranks = parts
    fingerprint = _fingerprint(federation, model)
    _refuse_differences(ranks, experiment, fingerprint)
    recorder = Recorder(place, experiment.aggregator, fingerprint, ranks=ranks)
    server = _begun(parts, place, recorder, fingerprint)
    scores = ranks.told(_last_scores(place) if ranks.is_first else [])
    progress = Progress(
        *(server.round, experiment.rounds, scores, None),
        scored_by=experiment.task.scored_by,
        liars=parts.liars(),
        names=federation.names,
    )
    with ranks.ending_together():
        with ranks.agreeing_to_end():
            watch(progress)
        try:
            for turn in simulate(clients, experiment.aggregator, sample, server, experiment.rounds):
                record = parts.record(turn)
                recorder.add(turn.server, record, save=turn.server.round == experiment.rounds)
                progress = _after(progress, record, turn.seconds)
                with ranks.agreeing_to_end():
                    watch(progress)
        except KeyboardInterrupt:
            recorder.save()
            raise
        except NotFiniteError as error:
            recorder.save()
            sentence = _diverged(place.rounds_done() + 1, error, experiment.training.lr)
            place.diverge(sentence)
            raise DivergedError(f"{place.path} {sentence}") from None


def _last_scores(place: RunDirectory) -> list[float | None]:
    return next(record.test.scores for record in reversed(place.records()) if record.test is not None)


def _after(progress: Progress, record: Record, seconds: float) -> Progress:
    """The progress after a round."""
    scores = progress.scores if record.test is None else record.test.scores
    replied = len(record.replied or [])
    return progress._replace(
        rounds_done=record.rounds_done, scores=scores, replied=replied, record=record, seconds=seconds
    )


def _begun(parts: _Parts, place: RunDirectory, recorder: Recorder, fingerprint: Fingerprint) -> ServerState[Any]:
    """The server at the last checkpoint, or that of a run that begins, whose first record is written."""
    experiment, federation, model, *_ = parts
    fresh = start(
        experiment.aggregator, federation.num_clients, flatten(model), flatten_buffers(model), layers_of(model)
    )
    server = recorder.resume(fresh)
    place.describe(_model_file(experiment, federation, model), frozen_of(model))
    if server is None:
        recorder.open(fresh, _opening(parts, fingerprint), **_first_scores(parts, fresh))
    return fresh if server is None else server


def _first_scores(parts: _Parts, server: ServerState[Any]) -> dict[str, Scores]:
    try:
        return parts.scores(server)
    except NotFiniteError as error:
        raise ConfigError(
            f"the {error.name} of the initial model are not finite for clients {_some(error.clients)}; inputs of a "
            f"moderate size usually help."
        ) from None


def _refuse_differences(ranks: Ranks, experiment: Experiment, fingerprint: Fingerprint) -> None:
    """Refuses a run whose processes would not do the same."""
    names = ("settings", "data", "model", "version of fedfv", "version of torch")
    values = (experiment.to_dict(), fingerprint.data, fingerprint.model, fedfv.__version__, torch.__version__)
    for rank, others in enumerate(ranks.all(values)):
        for name, value, other in zip(names, values, others, strict=True):
            if value != other:
                raise ConfigError(f"all processes of a run must have the same {name}, but those of rank {rank} differ.")


def _some(clients: list[int]) -> str:
    return ", ".join(map(str, clients[:_FEW])) + (" and others" if len(clients) > _FEW else "")


def _diverged(round: int, error: NotFiniteError, lr: float) -> str:
    """The message about a run that diverged, without its subject, the run directory."""
    return (
        f"diverged in round {round}: the {error.name.replace('_', ' ')} of clients {_some(error.clients)} are not "
        f"finite. A smaller `training.lr` than {lr:g} usually helps. The records of earlier rounds are kept."
    )


def _fingerprint(federation: Federation, model: nn.Module) -> Fingerprint:
    return Fingerprint(
        data=federation.digest(),
        test=federation.digest(["test"]),
        model=[layer(name, each.dtype, each.shape) for name, each in model.state_dict().items()],
    )


def _model_file(experiment: Experiment, federation: Federation, model: nn.Module) -> ModelFile:
    arguments = {
        "name": experiment.model.name,
        "input_shape": list(federation.inputs.shape[1:]),
        "num_classes": federation.num_outputs,
        "seed": model_seed(experiment.seeding, experiment.seed),
        "options": experiment.model.options,
    }
    return ModelFile(
        arrays=arrays_of(model),
        output=output_kind(experiment),
        model=arguments,
        task=table_of("task", experiment.task),
        encoder=None if federation.encoder is None else federation.encoder.to_dict(),
    )


def _opening(parts: _Parts, fingerprint: Fingerprint) -> Opening:
    federation = parts.federation
    sizes = {part: getattr(federation, part).sizes.tolist() for part in ("train", "validation", "test")}
    return Opening(
        names=list(federation.names),
        sizes=sizes,
        scored_by=parts.experiment.task.scored_by,
        fingerprint=fingerprint,
        liars=parts.liars(),
    )


def _scores(evaluation: Evaluation, task: Task) -> Scores:
    """An evaluation as lists, with None for a client without examples, or without a defined score."""
    losses, scores, variances = (
        [None if math.isnan(value) else value for value in values.tolist()] for values in evaluation[:3]
    )
    return Scores(losses=losses, scores=scores, variances=None if task.scored_by.is_share else variances)
