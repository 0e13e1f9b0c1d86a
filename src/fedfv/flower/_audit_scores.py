"""How well the clients of an audited run are served: which of their evaluation metrics is the score."""

import math
from collections.abc import Sequence
from logging import INFO

from flwr.common.logger import log

from fedfv.flower._audit_faults import Faults
from fedfv.flower._audit_numbers import Said, accuracy_among, columns, loss_among
from fedfv.flower._contract import VARIANCE, key_of_score
from fedfv.flower._parts import one_line
from fedfv.runs import Numbers, Scores
from fedfv.tasks import ACCURACY, Score


class Scoring:
    """Finds the score and the loss in the evaluation metrics of clients.

    Args:
        key: the metric that holds the score; None for the name of the score, or, if it is the accuracy, for the metric
            that is an accuracy by its name and its values.
        scored_by: what the score means.
        size_key: the metric that holds the number of test examples.
        faults: where a missing score is logged.
    """

    def __init__(self, key: str | None, scored_by: Score, size_key: str, faults: Faults) -> None:
        self._key = key_of_score(scored_by) if key is None and scored_by != ACCURACY else key
        self._scored_by, self._size_key, self._faults = scored_by, size_key, faults
        self.sizes: dict[int, int] = {}  # the number of test examples of each client, at its first evaluation

    @property
    def scored_by(self) -> Score:
        """What the scores in the records mean."""
        return ACCURACY if self._key is None else self._scored_by

    def scores(self, said: Sequence[Said]) -> Scores | None:
        """The scores of all clients; None if they have none.

        Args:
            said: the numbers of each client, empty for one that was not evaluated.
        """
        evaluated = [numbers for numbers in said if numbers]
        for client, numbers in enumerate(said):
            if (size := numbers.get(self._size_key)) is not None and size >= 1:
                self.sizes.setdefault(client, int(size))
        if (key := self._found(evaluated)) is None:
            return None
        scores = self._column(said, key, self._scored_by.low, self._scored_by.high)
        if all(score is None for score in scores):
            return None
        return Scores(
            losses=self._column(said, loss_among(evaluated) or "", -math.inf, math.inf),
            scores=scores,
            variances=None if self._scored_by.is_share else self._column(said, VARIANCE, 0, math.inf),
        )

    def _found(self, evaluated: Sequence[Said]) -> str | None:
        if self._key is None and evaluated:
            self._key = accuracy_among(evaluated)
            if self._key is not None:
                log(INFO, "audit: fairness is measured on the evaluation metric `%s`", self._key)
            else:
                self._faults.once(
                    "the score",
                    "audit: no evaluation metric is an accuracy by its name and values (%s), so fairness is not "
                    "measured; `score_key` can name one",
                    one_line(", ".join(columns(evaluated)) or "there are none"),
                )
        return self._key

    def _column(self, said: Sequence[Said], key: str, low: float, high: float) -> Numbers:
        """A metric of all clients, without those that have no test examples, and without values out of range."""
        values = [None if numbers.get(self._size_key) == 0 else numbers.get(key) for numbers in said]
        return [value if value is not None and low <= value <= high else None for value in values]
