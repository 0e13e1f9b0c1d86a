"""Results of runs in compact form: a line of JSON for each finished run, in one file for each track."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from fedfv.errors import ConfigError, RunError
from fedfv.experiments import RunDirectory, Timing
from fedfv.metrics import METRICS
from fedfv.runs import Numbers, Opening, Record, Scores, metric_of, of_counted
from fedfv.studies._planned import Planned, Stage
from fedfv.tasks import ACCURACY, Score

_DIGITS = 6
_LAST = 5  # evaluations whose metrics choose a setting
_ENVIRONMENTS = "environments.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is kept of a finished run: of one that chooses a setting, metrics on validation examples; else test scores.

    Args:
        key: the digest of the experiment.
        partition: the checksum of the partition.
        environment: the digest of the software and the platform, which `environments.json` has.
        metrics: those of `METRICS` that are defined on validation examples, each as a mean over the last five
            evaluations, so that a setting is not chosen for a lucky last round.
        scores: the final test scores of all clients; None for a client without examples.
        sizes: the number of test examples.
        variances: sampling variances of scores that are not shares.
        liars: clients that lie, which metrics leave out.
        curve: at each evaluation the rounds done, and mean and standard deviation of the counted clients' test scores.
        against: the share of the replies of counted clients against which the step worked, over all lens entries.
        timing: rounds and processor time of the process that finished the run, and the median time of the rule.
        diverged: a sentence, if the run diverged; there are no scores then.
    """

    key: str
    track: str
    row: str
    stage: Stage
    setting: int
    label: str
    seed: int
    rounds: int
    partition: str = ""
    environment: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    scores: Numbers = field(default_factory=list)
    sizes: Sequence[int | None] = ()
    variances: Numbers | None = None
    liars: list[int] = field(default_factory=list)
    scored_by: Score = ACCURACY
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    against: float | None = None
    timing: Timing | None = None
    diverged: str | None = None

    def metric(self, name: str) -> float:
        """One of `METRICS` over the counted clients, on test examples."""
        scores = Scores(losses=[], scores=self.scores, variances=self.variances)
        return metric_of(name, scores, self.sizes, self.liars, self.scored_by)

    def to_json(self) -> str:
        """The result as one line; fields with their default value are left out."""
        table = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if getattr(self, each.name) != _default(each)
        }
        return json.dumps(table, separators=(",", ":"), default=dataclasses.asdict)

    @classmethod
    def from_json(cls, line: str) -> "Result":
        """The result of a line; raises a ValueError if it is none."""
        try:
            table = json.loads(line)
            timing, score = table.get("timing"), table.get("scored_by")
            table["timing"] = None if timing is None else Timing(*timing)
            table["scored_by"] = ACCURACY if score is None else Score(**score)
            table["curve"] = [(rounds, mean, std) for rounds, mean, std in table.get("curve", [])]
            return cls(**table)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"it is no result ({error})") from None


def _default(each: "dataclasses.Field[Any]") -> Any:
    return each.default if each.default_factory is dataclasses.MISSING else each.default_factory()


def result_of(run: Planned, place: RunDirectory, partition: str, environment: str, timing: Timing | None) -> Result:
    """The result of a run that has ended in its directory."""
    records = place.records()
    opening = records[0].opening
    if opening is None:
        raise RunError(f"{place.path} has no description of its clients.")
    known: dict[str, Any] = {
        "key": run.key,
        **{name: getattr(run, name) for name in ("track", "row", "stage", "setting", "label", "seed")},
        "rounds": run.experiment.rounds,
        "partition": partition,
        "environment": environment,
        "liars": opening.liars,
        "scored_by": opening.scored_by,
        "timing": None if timing is None else Timing(timing.rounds, *(round(each, _DIGITS) for each in timing[1:])),
    }
    if (sentence := place.diverged()) is not None:
        return Result(**known, diverged=sentence)
    if run.stage == "tuning":
        return Result(**known, metrics=_on_validation(records, opening))
    last = records[-1].test
    if last is None:
        raise RunError(f"{place.path} has no scores on test examples.")
    return Result(
        **known,
        scores=_rounded(last.scores),
        sizes=opening.sizes["test"],
        variances=None if last.variances is None else _rounded(last.variances),
        curve=_curve(records, opening.liars),
        against=_against(records, opening.liars),
    )


def _on_validation(records: Sequence[Record], opening: Opening) -> dict[str, float]:
    """The metrics as means over the last evaluations."""
    last = [record.validation for record in records if record.validation is not None][-_LAST:]
    if not last:
        raise ConfigError("`partition.fractions` leaves no validation examples to choose settings on.")
    means = {
        name: fmean(
            metric_of(name, each, opening.sizes["validation"], opening.liars, opening.scored_by) for each in last
        )
        for name in METRICS
    }
    return {name: round(mean, _DIGITS) for name, mean in means.items() if math.isfinite(mean)}


def _rounded(values: Numbers) -> Numbers:
    return [None if value is None else round(value, _DIGITS) for value in values]


def _curve(records: Iterable[Record], liars: list[int]) -> list[tuple[int, float, float]]:
    curve = []
    for record in records:
        if record.test is not None:
            scores = [score for score in of_counted(record.test.scores, liars) if score is not None]
            curve.append((record.rounds_done, round(fmean(scores), _DIGITS), round(pstdev(scores), _DIGITS)))
    return curve


def _against(records: Iterable[Record], liars: list[int]) -> float | None:
    """The share of honest replies that have a negative cosine with the step; None without an entry of the lens."""
    cosines = [
        cosine
        for record in records
        if record.lens is not None
        for client, cosine in zip(record.lens.clients, record.lens.after, strict=True)
        if client not in liars
    ]
    return round(sum(cosine < 0 for cosine in cosines) / len(cosines), _DIGITS) if cosines else None


class Results:
    """The results on record in a folder.

    Each finished run is one line, appended and flushed, so that a study that is killed loses nothing that was finished;
    a line that was cut off is ignored. Files of several machines can be merged by joining them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[tuple[str, str], Result] = {}  # by track and key
        for file in sorted(folder.glob("*.jsonl")):
            for result in _read(file):
                self._known[result.track, result.key] = result

    def of(self, run: Planned) -> Result | None:
        """The result of a run, None if it is missing."""
        return self._known.get((run.track, run.key))

    def all(self) -> list[Result]:
        """All results on record."""
        return list(self._known.values())

    def add(self, result: Result) -> None:
        """Keeps a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{result.track}.jsonl"
        with file.open("ab+") as lines:
            end = lines.seek(0, 2)
            if end:
                lines.seek(end - 1)
                if lines.read(1) != b"\n":  # an earlier process was killed while it wrote a line
                    lines.write(b"\n")
            lines.write(result.to_json().encode() + b"\n")
        self._known[result.track, result.key] = result

    def add_environment(self, environment: dict[str, Any]) -> str:
        """Keeps the software and the platform of runs, and returns their digest."""
        name = hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:8]
        known = self.environments()
        if name not in known:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / _ENVIRONMENTS).write_text(json.dumps(known | {name: environment}, indent=1) + "\n")
        return name

    def environments(self) -> dict[str, dict[str, Any]]:
        """The environments in which runs were made, by their digest."""
        file = self.folder / _ENVIRONMENTS
        known: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else {}
        return known


def _read(file: Path) -> list[Result]:
    lines = file.read_text().split("\n")[:-1]  # text after the last line break is an incomplete line
    results = []
    for number, line in enumerate(lines, 1):
        try:
            if line:
                results.append(Result.from_json(line))
        except json.JSONDecodeError:
            continue  # a line that was cut off
        except ValueError as error:
            raise RunError(f"line {number} of {file} cannot be read: {error}.") from None
    return results
