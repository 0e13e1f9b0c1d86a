"""The JSON schemas of experiments, studies and tracks, against files and against what the library accepts."""

import copy
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfv.aggregators import AGGREGATORS
from fedfv.attacks import ATTACKS
from fedfv.cli import main
from fedfv.data import DATASETS, PARTITIONS
from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, bundled, json_schema, settings_of
from fedfv.metrics import METRICS
from fedfv.models import MODELS
from fedfv.sampling import SAMPLINGS
from fedfv.studies import bundled_studies, study_schema, track_schema
from fedfv.tasks import TASKS
from fedfv.training import TRAININGS
from tests.experiments.helpers import tables

SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "experiment": json_schema,
    "study": study_schema,
    "track": track_schema,
}
ROOT = Path(__file__).parents[2]
STUDIES = list(bundled_studies().values())
TRACKS = sorted(STUDIES[0].parent.glob("tracks/*.toml"))
OLD = sorted((ROOT / "tests/runs/old").glob("*/simulated/experiment.toml"))
NAMED: dict[str, tuple[Any, str]] = {
    "task": (TASKS, "name"),
    "partition": (PARTITIONS, "kind"),
    "training": (TRAININGS, "name"),
    "sampling": (SAMPLINGS, "kind"),
    "aggregator": (AGGREGATORS, "name"),
    "attack": (ATTACKS, "kind"),
}
GOOD = tables(Path("x.npz"))

validators = {name: jsonschema.Draft202012Validator(make(), format_checker=None) for name, make in SCHEMAS.items()}


def errors(table: Any, schema: str = "experiment") -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validators[schema].iter_errors(table)]


def changed(**changes: Any) -> dict[str, Any]:
    """The good experiment with values at dotted keys, in which `__` stands for a dot; None drops a key."""
    table = copy.deepcopy(GOOD)
    for key, value in changes.items():
        *parents, last = key.split("__")
        place = table
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return table


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_of_draft_2020_12_and_all_its_references_resolve(name: str) -> None:
    schema = SCHEMAS[name]()
    jsonschema.Draft202012Validator.check_schema(schema)
    used = set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)))
    assert used <= schema["$defs"].keys()


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_is_described_in_the_language_of_toml(name: str) -> None:
    schema = SCHEMAS[name]()
    described = {"": schema["properties"]} | {
        place: part["properties"]
        for place, part in schema["$defs"].items()
        if not place.startswith("complete") and place != "data.table" and "properties" in part
    }
    assert len(described) > 60
    for place, keys in described.items():
        for key, part in keys.items():
            if "$ref" in part or (key in ("name", "kind") and part == {"type": "string"}):
                continue
            assert part["description"].endswith("."), (place, key)
            assert "None" not in part["description"], (place, key)


TEXTS = {
    **{name: ("experiment", text) for name, text in (bundled() | bundled("sweeps")).items()},
    **{str(path.relative_to(ROOT)): ("experiment", path.read_text()) for path in OLD},
    **{path.name: ("study", path.read_text()) for path in STUDIES},
    **{path.name: ("track", path.read_text()) for path in TRACKS},
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_files_of_the_package_are_valid(name: str) -> None:
    schema, text = TEXTS[name]
    assert errors(tomllib.loads(text), schema) == []


def test_what_new_writes_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine"]) == 0
    assert errors(tomllib.loads(Path("mine/experiment.toml").read_text())) == []


def whole_experiments() -> list[str]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = (block for page in pages for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL))
    return [block for block in blocks if re.search(r"^rounds = ", block, re.MULTILINE)]


def test_the_experiments_and_studies_in_the_docs_are_valid() -> None:
    tables = list(map(tomllib.loads, whole_experiments()))
    assert len(tables) >= 3
    for table in tables:
        assert errors(table, "study" if "tracks" in table else "experiment") == []


OWN = {
    "rounds": 3,
    "seeding": "mine:Seeds",
    "data": {"name": "mine:letters", "scale": 2.0, "target": 7, "options": {"more": [1]}},
    **{key: {mark: f"mine:{key}", "anything": [{"goes": True}], "seed": 3} for key, (_, mark) in NAMED.items()},
    "model": {"name": "mine:Net", "options": {"width": "wide"}},
    "what_if": [{"name": "mine:Rule", "beta": 2.0}, {"name": "fedavg"}],
}


def test_names_of_ones_own_may_have_any_keys() -> None:
    assert errors(OWN) == []
    assert errors({**OWN, "aggregator": {"name": "robust", "rule": {"name": "mine:Rule", "power": 2}}}) == []


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": (changed(rouds=3), r"\$: .*'rouds' was unexpected"),
    "an unknown key of a rule": (changed(aggregator__alfa=0.1), r"\$\.aggregator: .*'alfa' was unexpected"),
    "a key of another rule": (changed(aggregator__q=1.0), r"\$\.aggregator: .*'q' was unexpected"),
    "a rule in a rule that has none": (changed(aggregator__rule={"name": "fedavg"}), r"'rule' was unexpected"),
    "a wrong key of a rule in a rule": (
        changed(aggregator={"name": "robust", "rule": {"name": "fedfv", "alfa": 1}}),
        r"\$\.aggregator\.rule: .*'alfa' was unexpected",
    ),
    "a wrong type": (changed(aggregator__tau="2"), r"\$\.aggregator\.tau: '2' is not of type 'integer'"),
    "an impossible value": (changed(aggregator__alpha=2), r"\$\.aggregator\.alpha: 2 is greater than the maximum of 1"),
    "an excluded bound": (
        changed(sampling__dropout=1),
        r"\$\.sampling\.dropout: 1 is greater than or equal to the max",
    ),
    "no rounds": (changed(rounds=None), r"'rounds' is a required property"),
    "zero rounds": (changed(rounds=0), r"\$\.rounds: 0 is less than the minimum of 1"),
    "no number of clients": (
        changed(partition={"kind": "iid"}),
        r"\$\.partition: 'num_clients' is a required property",
    ),
    "no name of a rule": (changed(aggregator__name=None), r"\$\.aggregator: 'name' is a required property"),
    "no name of a rule in a rule": (changed(aggregator={"name": "judge", "rule": {}}), r"\.rule: 'name' is a required"),
    "an unknown name": (changed(aggregator__name="fedfvv"), r"\$\.aggregator\.name: 'fedfvv' is not valid"),
    "an unknown choice": (changed(engine="fast"), r"\$\.engine: 'fast' is not one of"),
    "a key of Adam for SGD": (changed(training__betas=[0.9, 0.9]), r"\$\.training: .*'betas' was unexpected"),
    "another rule to compare": (changed(what_if=[{"name": "fedfv", "tau": -1}]), r"\$\.what_if\[0\]\.tau: -1 is less"),
    "options of a file of numpy": (changed(data__target="stay"), r"\$\.data: .*'target' was unexpected"),
    "a wrong option of a table": (changed(data={"name": "a.csv", "targt": "x"}), r"\$\.data: .*'targt' was unexpected"),
    "a wrong option of a model": (changed(model__options={"hiden": [3]}), r"\.options: .*'hiden' was unexpected"),
    "a wrong value in a grid": (changed(grid={"rounds": [0]}), r"\$\.grid\.rounds\[0\]: 0 is less"),
    "no list in a grid": (
        changed(grid={"training.lr": 0.1}),
        r"\$\.grid\['training\.lr'\]: 0\.1 is not of type 'array'",
    ),
    "an unknown key in a grid": (changed(grid={"trainin.lr": [1]}), r"\$\.grid: .*'trainin\.lr' does not match"),
    "a wrong rule in a grid": (
        changed(grid={"aggregator": [{"name": "fedfv", "tau": 0.5}]}),
        r"\$\.grid\.aggregator\[0\]\.tau: 0\.5 is not of type",
    ),
    "an unknown metric": (changed(grid={"seed": [0, 1]}, ranking={"by": "wurst"}), r"\$\.ranking\.by: 'wurst' is not"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_where_it_is_damaged(name: str) -> None:
    table, sentence = DAMAGED[name]
    assert re.search(sentence, "\n".join(errors(table)))


def test_a_file_with_a_grid_may_lack_what_the_grid_sets() -> None:
    grid = {"sampling": [{"kind": "everyone"}], "aggregator.name": ["fedavg"], "partition.num_clients": [2, 3]}
    table = {"rounds": 3, "partition": {"kind": "iid"}, "grid": grid}
    assert len(settings_of(table)) == 2
    assert errors(table) == []
    assert errors({key: value for key, value in table.items() if key != "grid"}) != []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda study: study.pop("title"), "'title' is a required property"),
        (lambda study: study.update(sedes=[1]), "'sedes' was unexpected"),
        (lambda study: study["rows"][1]["aggregator"].update(alpha=3), r"rows\[1\]\.aggregator\.alpha: 3 is greater"),
        (
            lambda study: study["rows"][1].update(grid={"aggregator.tau": 3}),
            r"\$\.rows\[1\]\.grid.*is not of type 'array'",
        ),
        (lambda study: study["tuning"].update(by="wurst"), r"\$\.tuning\.by: 'wurst' is not valid"),
        (lambda study: study["claims"].append({"text": "", "column": "maen", "rows": []}), "'maen' is not one of"),
        (lambda study: study["tracks"].append(3), r"\$\.tracks\[7\]: 3 is not valid"),
    ],
)
def test_a_damaged_study_is_refused(change: Callable[[Any], Any], sentence: str) -> None:
    study = tomllib.loads(STUDIES[0].read_text())
    study.setdefault("claims", [])
    change(study)
    assert re.search(sentence, "\n".join(errors(study, "study")))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda track: track["experiment"].update(seed=3), r"\$\.experiment: .*\$?"),
        (lambda track: track["experiment"].pop("rounds"), r"\$\.experiment: 'rounds' is a required property"),
        (lambda track: track["experiment"].update(rouds=3), r"\$\.experiment: .*'rouds' was unexpected"),
    ],
)
def test_a_damaged_track_is_refused(change: Callable[[Any], Any], sentence: str) -> None:
    track = tomllib.loads(TRACKS[0].read_text())
    change(track)
    assert re.search(sentence, "\n".join(errors(track, "track")))


def test_the_schema_names_everything_that_the_library_knows() -> None:
    def known(part: dict[str, Any]) -> list[str]:
        return [choice["const"] for choice in part["anyOf"] if "const" in choice]

    schema = json_schema()
    definitions = schema["$defs"]
    for key, (registry, mark) in NAMED.items():
        assert known(definitions[f"{key}.keys"]["properties"][mark]) == list(registry)
    assert known(definitions["model.keys"]["properties"]["name"]) == list(MODELS)
    assert known(definitions["data.keys"]["properties"]["name"]) == list(DATASETS)
    assert known(schema["properties"]["ranking"]["properties"]["by"]) == list(METRICS)


@pytest.mark.parametrize("what", SCHEMAS)
def test_the_command_writes_and_prints_the_schema(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", what, "--out", str(tmp_path / "new/schema.json")]) == 0
    capsys.readouterr()
    assert main(["schema", what]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == SCHEMAS[what]()
    assert (tmp_path / "new/schema.json").read_text() == printed


# Generated experiments. What depends on several keys is not in the schema, so such keys get values that fit.


def table_of(key: str, name: str, depth: int = 1) -> st.SearchStrategy[dict[str, Any]]:
    """A table of a known class, with some of its keys."""
    mark = NAMED[key][1]
    part = validators["experiment"].schema["$defs"][f"{key}.{name}"]
    needed = validators["experiment"].schema["$defs"]["complete"]["properties"].get(key, {})
    required = {
        each
        for rule in needed.get("allOf", [])
        if rule["if"]["properties"][mark]["const"] == name
        for each in rule["then"]["required"]
    }
    values = {
        field: value_of(key, field, schema, depth) for field, schema in part["properties"].items() if field != mark
    }
    if depth == 0:
        values.pop("rule", None)
    return st.fixed_dictionaries(
        {mark: st.just(name), **{field: value for field, value in values.items() if field in required}},
        optional={field: value for field, value in values.items() if field not in required},
    ).filter(_fits)


def value_of(key: str, field: str, part: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "$ref" in part:
        return named(key, depth - 1)
    if field == "fractions":
        return st.sampled_from([[0.8, 0.1, 0.1], [0.5, 0, 0.5]])
    if field == "pattern":
        return st.sampled_from([[[1, 0]], [[1, 0, 1], [0, 0, 0]]])
    if field == "aggregator":
        return st.just("CAGrad")
    if "anyOf" in part:
        return st.one_of([value_of(key, field, choice, depth) for choice in part["anyOf"]])
    return plain(part)


def plain(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in part:
        return st.sampled_from(part["enum"])
    low, high = part.get("minimum"), part.get("maximum")
    match part["type"]:
        case "integer":
            return st.integers(low, 2**40)
        case "number":
            above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
            return st.one_of(
                st.floats(
                    low if above is None else above,
                    (high if below is None else below) or 1e300,
                    exclude_min=above is not None,
                    exclude_max=below is not None,
                    allow_nan=False,
                    allow_infinity=False,
                ),
                st.just(1 if high is None and low != 0 else low or high or 1) if below is None else st.nothing(),
            )
        case "boolean":
            return st.booleans()
        case "array" if "prefixItems" in part:
            return st.tuples(*map(plain, part["prefixItems"])).map(list)
        case "array":
            return st.lists(plain(part["items"]), max_size=3)
        case "object":
            return st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
    return st.sampled_from(["a", "client", "UPGrad"])


def _fits(table: dict[str, Any]) -> bool:
    name = table.get("name", table.get("kind"))
    return not (
        (name == "fedfa" and not table.get("alpha", 0.5) + table.get("beta", 0.5) > 0)
        or (name == "judge" and table.get("drop", 0.8) < table.get("demote", 0.6))
        or (name == "lies" and table.get("last", 2**60) < table.get("first", 0))
    )


def named(key: str, depth: int = 1) -> st.SearchStrategy[dict[str, Any]]:
    registry, _ = NAMED[key]
    return st.sampled_from(list(registry)).flatmap(lambda name: table_of(key, name, depth))


def experiments() -> st.SearchStrategy[dict[str, Any]]:
    properties = validators["experiment"].schema["properties"]
    plain_keys = ("seed", "evaluate_every", "lens_every", "output", "device", "engine")
    return st.fixed_dictionaries(
        {"rounds": plain(properties["rounds"]), "sampling": named("sampling"), "aggregator": named("aggregator")},
        optional={
            **{key: plain(properties[key]) for key in plain_keys},
            **{key: named(key) for key in ("task", "partition", "training", "attack")},
            "seeding": st.sampled_from(["addressed", "paper"]),
            "what_if": st.lists(named("aggregator"), max_size=2),
            "model": st.fixed_dictionaries({}, optional={"name": st.sampled_from(list(MODELS))}),
            "data": st.fixed_dictionaries({}, optional={"rows": st.sampled_from(["all", "train"])}),
        },
    )


def accepted(table: dict[str, Any]) -> bool:
    try:
        Experiment.from_dict(copy.deepcopy(table))
    except ConfigError:
        return False
    return True


@given(experiments())
@settings(max_examples=150, deadline=None)
def test_generated_experiments_pass_the_schema_and_the_library(table: dict[str, Any]) -> None:
    assert errors(table) == []
    Experiment.from_dict(copy.deepcopy(table))


VALUES = ["text", "", 1.5, 0, 1, -1, 10**6, True, [], [0.5], [0.5, 0.5], [[1]], {}, {"a": 1}]
LOOSE = {  # keys about which the schema knows less than the library
    ("aggregator", "torchjd", "aggregator"),  # in Python, an object
    ("sampling", "availability", "pattern"),  # a rectangle of 0 and 1
    ("aggregator", "judge", "demote"),  # at most `drop`
    ("aggregator", "judge", "drop"),
}


def minimal(key: str, name: str) -> dict[str, Any]:
    """A table of a known class with the keys that it needs."""
    needed = {"num_clients": 3, "count": 2, "pattern": [[1, 0]], "path": "mine.npz"}
    fields = validators["experiment"].schema["$defs"][f"{key}.{name}"]["properties"]
    return {NAMED[key][1]: name, **{field: value for field, value in needed.items() if field in fields}}


KINDS = [(key, name) for key, (registry, _) in NAMED.items() for name in registry]


@pytest.mark.parametrize(("key", "name"), KINDS)
def test_the_schema_and_the_library_agree_on_every_key_of_every_class(key: str, name: str) -> None:
    fields = validators["experiment"].schema["$defs"][f"{key}.{name}"]["properties"]
    assert accepted({**GOOD, key: minimal(key, name)})
    assert errors({**GOOD, key: minimal(key, name)}) == []
    verdicts = set()
    for field in [*fields, "no_such_key"]:
        for value in VALUES:
            table = {**GOOD, key: {**minimal(key, name), field: value}}
            verdict = accepted(table)
            verdicts.add(verdict)
            if (key, name, field) not in LOOSE or verdict:
                assert (errors(table) == []) == verdict, (field, value, errors(table))
        table = {**GOOD, key: {each: value for each, value in minimal(key, name).items() if each != field}}
        assert (errors(table) == []) == accepted(table), field
    assert False in verdicts


@pytest.mark.parametrize("key", [key for key in json_schema()["properties"] if key not in ("grid", "ranking")])
def test_the_schema_and_the_library_agree_on_every_key_of_an_experiment(key: str) -> None:
    for value in [*VALUES, "addressed", "mean", "cpu", [{"name": "fedavg"}]]:
        table = {**GOOD, key: value}
        assert (errors(table) == []) == accepted(table), (value, errors(table))
    table = {name: value for name, value in GOOD.items() if name != key}
    assert (errors(table) == []) == accepted(table)
