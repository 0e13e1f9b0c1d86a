"""The loop around the round loop: evaluate, record, save, resume."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Int
from torch import Tensor, nn

from fedfv.core import Clients, NotFiniteError, ServerState, from_tensors, start, to_tensors
from fedfv.data import Dataset, Federation
from fedfv.errors import ConfigError, DivergedError
from fedfv.experiments._build import build_clients, build_federation, build_module, build_sampler, device_of, output_of
from fedfv.experiments._spec import Experiment
from fedfv.experiments._store import RunDirectory, layer
from fedfv.lens import look
from fedfv.models import flatten, flatten_buffers
from fedfv.simulation import Round, simulate
from fedfv.training import Evaluation, evaluate, keep_freed_memory

_SAVE_AFTER = 30.0  # seconds between checkpoints
_FEW = 10  # clients that a sentence names


class Progress(NamedTuple):
    """Where a run is: the rounds it has done, and what was last seen of its clients."""

    round: int
    rounds: int
    accuracies: list[float | None]  # None for a client without test examples
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
        directory: where to keep it; one that holds another experiment, or is in use, is refused. Another number of
            rounds is not another experiment, so a finished run goes on if more rounds are asked for.
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
    with RunDirectory.own(directory, experiment) as place:
        _run(experiment, federation, model, clients, sample, place, watch)
    return place


def _run(
    experiment: Experiment,
    federation: Federation,
    model: nn.Module,
    clients: Clients,
    sample: Callable[[int], Int[Tensor, " m"]],
    place: RunDirectory,
    watch: Callable[[Progress], None],
) -> None:
    rule, rounds = experiment.aggregator, experiment.rounds
    if (sentence := place.diverged()) is not None:
        raise DivergedError(f"{place.path} {sentence}")

    def due(done: int, every: int) -> bool:
        return done % every == 0 or done == rounds

    def evaluation(server: ServerState[Any]) -> dict[str, Any]:
        judged = (federation, model, output_of(experiment, server), server.buffers, experiment.model.loss)
        return _seen(evaluate(*judged, part="test"), evaluate(*judged, part="validation"))

    fingerprint = _fingerprint(federation, model)
    if (tensors := place.resume(fingerprint)) is not None:
        server = from_tensors(rule, tensors)
    else:
        server = start(rule, federation.num_clients, flatten(model), flatten_buffers(model))
        place.append(_opening(federation, fingerprint, evaluation(server)))
        place.save(to_tensors(server))
    accuracies: list[float | None] = next(
        record["accuracies"] for record in reversed(place.records()) if "accuracies" in record
    )
    watch(Progress(server.round, rounds, accuracies, None))

    done, saved = server, time.monotonic()
    try:
        for turn in simulate(clients, rule, sample, done, rounds):
            server = turn.server
            seen = evaluation(server) if due(server.round, experiment.evaluate_every) else {}
            looked = due(server.round, experiment.lens_every or experiment.evaluate_every)
            record = _record(turn, looked) | seen
            place.append(record)
            done = server
            accuracies = seen.get("accuracies", accuracies)
            watch(Progress(server.round, rounds, accuracies, len(record["replied"]), record))
            if server.round == rounds or time.monotonic() > saved + _SAVE_AFTER:
                place.save(to_tensors(server))
                saved = time.monotonic()
    except KeyboardInterrupt:
        place.save(to_tensors(done))
        raise
    except NotFiniteError as error:
        place.save(to_tensors(done))
        sentence = _diverged(done.round + 1, error, experiment.training.lr)
        place.diverge(sentence)
        raise DivergedError(f"{place.path} {sentence}") from None


def _diverged(round: int, error: NotFiniteError, lr: float) -> str:
    """What happened, without its subject."""
    clients = ", ".join(map(str, error.clients[:_FEW])) + (" and others" if len(error.clients) > _FEW else "")
    return (
        f"diverged in round {round}: the {error.name.replace('_', ' ')} of clients {clients} are not finite. "
        f"A smaller `training.lr` than {lr:g} usually helps. The records of the rounds before are kept."
    )


def _fingerprint(federation: Federation, model: nn.Module) -> dict[str, Any]:
    """What decides a run beside its settings, since files and functions that these name can change."""
    return {
        "data": federation.digest(),
        "test": federation.digest(["test"]),
        "model": [layer(name, each.dtype, each.shape) for name, each in model.state_dict().items()],
    }


def _opening(federation: Federation, fingerprint: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    sizes = {part: getattr(federation, part).sizes.tolist() for part in ("train", "validation", "test")}
    return {"round": 0, "names": federation.names, "sizes": sizes, "fingerprint": fingerprint, **seen}


def _record(turn: Round[Any], with_lens: bool) -> dict[str, Any]:
    """The reports of the clients that replied in a round, and their conflicts."""
    server, replies, direction, explanation = turn
    if replies is None or direction is None:
        return {"round": server.round, "replied": []}
    record = {"round": server.round, "replied": replies.clients.tolist(), "train_losses": replies.losses.tolist()}
    if measured := replies.all_measured():
        record["measured"] = {name: values.tolist() for name, values in measured.items()}
    return record | ({"lens": look(replies, direction, explanation).to_record()} if with_lens else {})


def _seen(test: Evaluation, validation: Evaluation) -> dict[str, Any]:
    """How the model serves all clients: on test examples, and on those by which settings are chosen, if there are any.

    None stands for a client without examples.
    """
    bad = (test.sizes > 0) & ~test.losses.isfinite()
    if bad.any():
        raise NotFiniteError("test losses", bad.nonzero().flatten().tolist())
    seen = _values(test)
    return seen | {"validation": _values(validation)} if validation.sizes.any() else seen


def _values(evaluation: Evaluation) -> dict[str, Any]:
    return {
        name: [value if size else None for value, size in zip(values.tolist(), evaluation.sizes.tolist(), strict=True)]
        for name, values in (("losses", evaluation.losses), ("accuracies", evaluation.accuracies))
    }
