"""The numbers in the metrics of a reply, whatever a client has put there, and which of them is its score."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from flwr.app import MetricRecord, RecordDict

from fedfv.flower._contract import ACCURACY, LARGEST, LOSS
from fedfv.flower._parts import one_line
from fedfv.runs import Numbers

_MOST = 200  # upper bound on the numbers of a reply, and on the names in a record
_LONGEST = 60  # characters of a name

Said = Mapping[str, float | None]
"""The numbers of a client by name; None for one that is not finite."""


def numbers_in(content: RecordDict) -> dict[str, float | None]:
    """All numbers in the metrics of a reply by name, up to a limit; the entries of a list are `name[0]`, `name[1]`.

    >>> metrics = MetricRecord({"loss": 0.5, "recall": [1.0, 0.25], "speed": float("nan")})
    >>> numbers_in(RecordDict({"metrics": metrics}))
    {'loss': 0.5, 'recall[0]': 1.0, 'recall[1]': 0.25, 'speed': None}
    """
    found: dict[str, float | None] = {}
    for record, name, value in islice(_all_numbers(content), _MOST):
        text = one_line(name, _LONGEST)
        text = f"{one_line(record, _LONGEST)}/{text}" if text in found else text
        found[text] = _finite(value)
    return found


def _all_numbers(content: RecordDict) -> Iterator[tuple[str, str, object]]:
    for record, metrics in content.items():
        if isinstance(metrics, MetricRecord):
            for name, value in metrics.items():
                if isinstance(value, list):
                    yield from ((record, f"{name}[{place}]", each) for place, each in enumerate(value))
                else:
                    yield record, name, value


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and -LARGEST <= value <= LARGEST else None


def columns(said: Sequence[Said], left_out: Iterable[str] = ()) -> dict[str, Numbers]:
    """For each name the number of each client, None for a client without it; of too many names, the most common ones.

    Args:
        said: the numbers of each client.
        left_out: names that are no columns.

    >>> columns([{"loss": 0.5, "cid": 3.0}, {"loss": 0.25, "speed": 2.0}, {}], ["cid"])
    {'loss': [0.5, 0.25, None], 'speed': [None, 2.0, None]}
    """
    counts = Counter(name for numbers in said for name in numbers if name not in left_out)
    return {name: [numbers.get(name) for numbers in said] for name, _ in counts.most_common(_MOST)}


def accuracy_among(said: Sequence[Said]) -> str | None:
    """The name of the accuracy: `accuracy`, or else the only other name with "acc", if all clients have a share there.

    >>> accuracy_among([{"eval_acc": 0.5, "eval_loss": 2.0}]), accuracy_among([{"acc": 0.5, "acc_top5": 0.9}])
    ('eval_acc', None)
    """
    return _only(said, ACCURACY, "acc", high=1)


def loss_among(said: Sequence[Said]) -> str | None:
    """The name of the loss: `loss`, or else the only other name with "loss", if all clients have a number there.

    >>> loss_among([{"eval_loss": 0.5}, {"eval_loss": 2.0}])
    'eval_loss'
    """
    return _only(said, LOSS, "loss", high=LARGEST)


def _only(said: Sequence[Said], name: str, part: str, high: float) -> str | None:
    common = set.intersection(*map(set, said)) if said else set()
    fitting = [
        each
        for each in sorted(common)
        if part in each.lower() and all((value := numbers[each]) is not None and 0 <= value <= high for numbers in said)
    ]
    if name in fitting:
        return name
    return fitting[0] if len(fitting) == 1 else None
