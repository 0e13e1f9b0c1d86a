"""The records of runs as a table of pandas, with one row for each client and evaluation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfv._extras import comes_with
from fedfv.errors import ConfigError, RunError
from fedfv.runs._record import Opening, Record, Scores

if TYPE_CHECKING:
    import pandas as pd


def frame_of(records: list[Record]) -> "pd.DataFrame":
    """One row for each client and evaluation: rounds, part, client, size, loss, score and its sampling variance.

    The variance of a share, such as an accuracy, follows from the share and the number of examples. If the experiment
    has an attack, a last column says which clients lie.
    """
    with comes_with("frames"):
        import pandas as pd
    opening = records[0].opening if records else None
    if opening is None:
        raise RunError("there are no records yet.")
    columns: dict[str, list[Any]] = {
        name: [] for name in ("rounds_done", "part", "client", "name", "size", "loss", "score", "variance")
    }
    for record in records:
        for part, scores in (("test", record.test), ("validation", record.validation)):
            if scores is not None:
                _add(columns, record.rounds_done, part, scores, opening)
    frame = pd.DataFrame(columns).astype({"size": "Int64", "loss": float, "score": float, "variance": float})
    frame["part"] = frame["part"].astype("category")
    if opening.scored_by.is_share:
        frame["variance"] = frame["score"] * (1 - frame["score"]) / (frame["size"].astype(float) - 1)
    if opening.liars:
        frame["liar"] = frame["client"].isin(opening.liars)
    frame.attrs["score"] = opening.scored_by.title
    return frame


def write_frame(file: Path, keys: Sequence[str], parts: Mapping[tuple[Any, ...], list[Record]]) -> Path:
    """Writes the records of several runs as one table: `.csv` or `.parquet`.

    If some of the runs have an attack, the column `liar` is empty for the others.

    Args:
        file: the file.
        keys: the names of the first columns.
        parts: the records of each run, by the values of these columns.
    """
    if file.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"the file of records must end in .csv or .parquet, got {file}.")
    with comes_with("frames"):
        import pandas as pd
    frames = []
    for values, records in parts.items():
        frame = frame_of(records)
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            frame.insert(place, key, value)
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True)
    if "liar" in whole:
        whole["liar"] = whole["liar"].astype("boolean")
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        whole.to_csv(file, index=False)
    else:
        whole.to_parquet(file, index=False)
    return file


def _add(columns: dict[str, list[Any]], rounds: int, part: str, scores: Scores, opening: Opening) -> None:
    N = len(scores.scores)
    columns["rounds_done"] += [rounds] * N
    columns["part"] += [part] * N
    columns["client"] += range(N)
    columns["name"] += opening.names or [f"client {client}" for client in range(N)]
    columns["size"] += opening.sizes.get(part, [None] * N)
    columns["loss"] += scores.losses
    columns["score"] += scores.scores
    columns["variance"] += scores.variances or [None] * N
