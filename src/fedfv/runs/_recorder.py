"""Records and checkpoints of a run, for every driver of a rule."""

import time
from typing import Any

from fedfv.core import Aggregator, ServerState, from_tensors, to_tensors
from fedfv.distributed import ALONE, Ranks
from fedfv.errors import RunError
from fedfv.runs._directory import RunDirectory
from fedfv.runs._record import Fingerprint, Opening, Record, Scores

_SAVE_AFTER = 30.0  # seconds between checkpoints


class Recorder:
    """Appends records to a run directory that this process owns, and saves checkpoints.

    Args:
        place: the directory.
        rule: the rule whose state a checkpoint has.
        fingerprint: the inputs of the run beside its settings.
        save_after: seconds between two checkpoints; 0 for one after each round.
        ranks: the processes of the run, which save together.
    """

    def __init__(
        self,
        place: RunDirectory,
        rule: Aggregator[Any],
        fingerprint: Fingerprint,
        save_after: float | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.place, self._rule, self._fingerprint, self._ranks = place, rule, fingerprint, ranks
        self._save_after = _SAVE_AFTER if save_after is None else save_after
        self._saved = time.monotonic()
        self._server: ServerState[Any] | None = None  # after the last recorded round

    def resume(self, fresh: ServerState[Any] | None = None) -> ServerState[Any] | None:
        """The server at the last checkpoint, None for a run that has not begun; refuses other data or models.

        Args:
            fresh: the server of a run that begins; a checkpoint with vectors of another form is refused.
        """
        tensors = self.place.resume(self._fingerprint)
        try:
            self._server = None if tensors is None else from_tensors(self._rule, tensors)
            if self._server is not None and fresh is not None:
                _check_form(self._server, fresh)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            name = type(self._rule).__name__
            raise RunError(
                f"the checkpoint in {self.place.path} holds no state of {name} ({type(error).__name__}: {error}); "
                f"it was written by another version of the rule, or is damaged."
            ) from None
        return self._server

    def open(
        self,
        server: ServerState[Any],
        opening: Opening,
        test: Scores | None = None,
        validation: Scores | None = None,
    ) -> None:
        """Writes the first record, with the scores of the initial model."""
        self.add(server, Record(rounds_done=0, opening=opening, test=test, validation=validation), save=True)

    def add(self, server: ServerState[Any], record: Record, *, save: bool = False) -> None:
        """Records a round, and saves a checkpoint if `save` is true or one is due."""
        self.place.append(record)
        self._server = server
        if save or self._ranks.told(time.monotonic() >= self._saved + self._save_after):
            self.save()

    def save(self) -> None:
        """Saves a checkpoint of the server after the last recorded round."""
        if self._server is not None:
            self.place.save(to_tensors(self._server))
        self._saved = time.monotonic()


def _check_form(server: ServerState[Any], fresh: ServerState[Any]) -> None:
    """Refuses a server whose number of clients, parameters or buffers are not those of this model."""
    if server.num_clients != fresh.num_clients:
        raise ValueError(f"`num_clients` must be {fresh.num_clients}, got {server.num_clients}")
    came, expected = (
        {"params": each.params, "mean": each.mean, "values": each.buffers.values, "counts": each.buffers.counts}
        for each in (server, fresh)
    )
    for name, vector in expected.items():
        if came[name].shape != vector.shape or came[name].dtype != vector.dtype:
            raise ValueError(
                f"`{name}` must be {vector.dtype} of shape {tuple(vector.shape)}, "
                f"got {came[name].dtype} of shape {tuple(came[name].shape)}"
            )
