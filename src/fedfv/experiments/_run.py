"""The loop around the round loop: evaluate, record, save, resume."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedfv.core import Replies, ServerState, from_tensors, start, to_tensors
from fedfv.data import Dataset, Federation
from fedfv.experiments._build import build_clients, build_federation, build_module, build_sampler, device_of, wants_mean
from fedfv.experiments._errors import ConfigError
from fedfv.experiments._spec import Experiment
from fedfv.experiments._store import RunDirectory
from fedfv.lens import Lens, Watched
from fedfv.models import flatten, flatten_buffers
from fedfv.simulation import simulate
from fedfv.training import Evaluation, evaluate, keep_freed_memory

_SAVE_AFTER = 30.0  # seconds between checkpoints


class Progress(NamedTuple):
    """Where a run is: the rounds it has done, and what was last seen of its clients."""

    round: int
    rounds: int
    accuracies: list[float]
    replied: int | None  # how many clients did in the last round; None before the first
    record: dict[str, Any] | None = None  # of the last round


def run(
    experiment: Experiment,
    directory: str | Path,
    *,
    data: str | Path | Dataset | Federation | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> RunDirectory:
    """Runs the experiment, or goes on where it was cut off, and returns where its records are.

    Cut off at any moment and run again, it gives the records of a run that was not, bit for bit. A run that is
    interrupted from the keyboard saves first.

    Args:
        experiment: what to run.
        directory: where to keep it; one that holds another experiment is refused.
        data: where to look for data files first; or what was loaded from them, to save loading it again.
        watch: is told after each round where the run is.
    """
    keep_freed_memory()
    try:
        federation = build_federation(experiment, data).sorted_by_client().to(device_of(experiment))
        model = build_module(experiment, federation)
        clients, sample = build_clients(experiment, federation, model), build_sampler(experiment, federation)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    place = RunDirectory.create(directory, experiment)
    rule, rounds = experiment.aggregator, experiment.rounds

    def due(done: int, every: int) -> bool:
        return done % every == 0 or done == rounds

    watched = Watched(rule, lambda round: due(round + 1, experiment.lens_every or experiment.evaluate_every))

    def look(server: ServerState[Any]) -> Evaluation:
        params = server.mean if wants_mean(experiment) else server.params
        return evaluate(federation, model, params, server.buffers, experiment.model.loss)

    if (tensors := place.load()) is not None:
        server = from_tensors(rule, tensors)
    else:
        server = start(rule, federation.num_clients, flatten(model), flatten_buffers(model))
        place.append(_opening(federation, look(server)))
        place.save(to_tensors(server))
    accuracies = next(record["accuracies"] for record in reversed(place.records()) if "accuracies" in record)
    watch(Progress(server.round, rounds, accuracies, None))

    done, saved = server, time.monotonic()
    try:
        for server, replies in simulate(clients, watched, sample, done, rounds):
            evaluation = look(server) if due(server.round, experiment.evaluate_every) else None
            record = _record(server.round, replies, evaluation, watched.seen)
            place.append(record)
            done = server
            accuracies = accuracies if evaluation is None else evaluation.accuracies.tolist()
            watch(Progress(server.round, rounds, accuracies, len(record["replied"]), record))
            if server.round == rounds or time.monotonic() > saved + _SAVE_AFTER:
                place.save(to_tensors(server))
                saved = time.monotonic()
    except KeyboardInterrupt:
        place.save(to_tensors(done))
        raise
    return place


def _opening(federation: Federation, evaluation: Evaluation) -> dict[str, Any]:
    sizes = {part: getattr(federation, part).sizes.tolist() for part in ("train", "validation", "test")}
    return {"round": 0, "names": federation.names, "sizes": sizes, **_seen(evaluation)}


def _record(round: int, replies: Replies | None, evaluation: Evaluation | None, lens: Lens | None) -> dict[str, Any]:
    """What a round showed: of the clients that replied, of all where they were evaluated, and of their conflicts."""
    record: dict[str, Any] = {"round": round, "replied": []}
    if replies is not None:
        record |= {
            "replied": replies.clients.tolist(),
            "train_losses": replies.losses.tolist(),
            "train_accuracies": replies.accuracies.tolist(),
        }
        if lens is not None:
            record["lens"] = lens.to_record()
    return record if evaluation is None else record | _seen(evaluation)


def _seen(evaluation: Evaluation) -> dict[str, Any]:
    return {"losses": evaluation.losses.tolist(), "accuracies": evaluation.accuracies.tolist()}
