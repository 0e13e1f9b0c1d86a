"""The model of a run, taken home: as a module, as a file, and scored on other data."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedfv import AFL, Aggregator, FedAvg
from fedfv.cli import main
from fedfv.data import ByColumn, Dataset
from fedfv.errors import ConfigError, RunError
from fedfv.experiments import Data, Experiment, Model, build_federation, evaluate_run, run
from fedfv.models import build_model
from fedfv.runs import RunDirectory
from fedfv.sampling import Everyone
from fedfv.tasks import Regression

HERE = "tests.runs.test_home"


def dataset(sites: int = 4, seed: int = 0) -> Dataset:
    random = torch.Generator().manual_seed(seed)
    owners = np.array([f"site {row % sites}" for row in range(120)])
    return Dataset(
        torch.randn(120, 5, generator=random), torch.arange(120) % 3, num_classes=3, columns={"client": owners}
    )


def experiment(**changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "rounds": 3,
        "evaluate_every": 1,
        "partition": ByColumn(),
        "model": Model(name="mlp", options={"hidden": [4]}),
        "sampling": Everyone(),
        "aggregator": FedAvg(),
    }
    return Experiment(**{**fields, **changes})


class Mixed(nn.Module):
    """Frozen and tied parameters, and buffers that are saved and that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.again = self.second  # the same layer under another name
        self.first.requires_grad_(False)
        self.register_buffer("offset", torch.full((6,), 0.5), persistent=False)
        self.offset: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.again(self.norm(self.first(inputs)) + self.offset)
        return logits


@pytest.mark.parametrize("rule", [FedAvg(), AFL(eta_lambda=0.1)], ids=repr)
@pytest.mark.parametrize("model", [Model(name="mlp", options={"hidden": [4]}), Model(name=f"{HERE}:Mixed")], ids=str)
def test_the_model_of_a_run_has_the_scores_of_its_last_record(
    tmp_path: Path, rule: Aggregator[Any], model: Model
) -> None:
    place = run(experiment(aggregator=rule, model=model), tmp_path / "run", data=dataset())
    checkpoint = place.load()
    assert checkpoint is not None
    name = "mean" if isinstance(rule, AFL) else "params"
    if isinstance(rule, AFL):
        assert not torch.equal(checkpoint["params"], checkpoint["mean"])
    module = RunDirectory(tmp_path / "run").model()
    assert not module.training
    trained = torch.cat([each.flatten() for each in module.parameters() if each.requires_grad])
    assert torch.equal(trained, checkpoint[name])
    federation = build_federation(experiment(aggregator=rule, model=model), dataset())
    for client, score in enumerate(place.records()[-1].test.scores):
        inputs, targets = federation.examples("test", client)
        assert score == pytest.approx((module(inputs).argmax(dim=1) == targets).double().mean().item())


def test_frozen_parameters_stay_as_they_were_made(tmp_path: Path) -> None:
    place = run(experiment(model=Model(name=f"{HERE}:Mixed")), tmp_path / "run", data=dataset())
    made = build_model(f"{HERE}:Mixed", (5,), 3, seed=0)
    state = place.state_dict()
    assert set(state) == set(made.state_dict())
    assert torch.equal(state["first.weight"], made.state_dict()["first.weight"])
    assert not torch.equal(state["second.weight"], made.state_dict()["second.weight"])
    assert torch.equal(state["second.weight"], state["again.weight"])
    assert place.has("frozen.safetensors")
    assert len(place.load()["params"]) == 6 + 6 + 6 * 3 + 3  # type: ignore[index]


@pytest.mark.integration
def test_an_exported_model_is_loaded_by_a_bare_torch_program(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    assert main(["export", str(place.path), "--out", str(tmp_path / "out/model.safetensors")]) == 0
    program = """
import sys, torch
from safetensors.torch import load_file
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
model.load_state_dict(load_file(sys.argv[1]))
assert "fedfv" not in sys.modules
print(model(torch.ones(1, 5)).tolist())
"""
    arguments = [sys.executable, "-c", program, str(tmp_path / "out/model.safetensors")]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert json.loads(said)[0] == pytest.approx(place.model()(torch.ones(1, 5))[0].tolist())
    beside = json.loads((tmp_path / "out/model.json").read_text())
    assert beside["settings"] == json.loads(json.dumps(place.settings()))
    assert beside["rounds_done"] == 3
    assert beside["task"] == {"name": "classification", "loss": "cross-entropy"}


def test_an_export_has_every_tensor_once(tmp_path: Path) -> None:
    place = run(experiment(model=Model(name=f"{HERE}:Mixed")), tmp_path / "run", data=dataset())
    file, _ = place.export(tmp_path / "model.safetensors")
    Mixed().load_state_dict(load_file(file))


def test_a_model_is_scored_on_other_data_for_each_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    other = dataset(seed=1)
    found = evaluate_run(place, other)
    assert found.names == [f"site {number}" for number in range(4)]
    outputs = place.model()(other.inputs).argmax(dim=1)
    for name, score, size in zip(found.names, found.evaluation.scores, found.evaluation.sizes, strict=True):
        mine = torch.from_numpy(other.columns["client"] == name)
        assert score.item() == pytest.approx((outputs == other.targets)[mine].double().mean().item())
        assert int(size) == int(mine.sum())
    path = tmp_path / "other.npz"
    np.savez(path, inputs=other.inputs.numpy(), targets=other.targets.numpy(), client=other.columns["client"])
    assert main(["evaluate", str(place.path), "--data", str(path), "--out", str(tmp_path / "scores.csv")]) == 0
    said = capsys.readouterr().out
    assert "accuracy in per cent over 4 clients: mean" in said
    with (tmp_path / "scores.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["client"] for line in lines] == found.names
    assert [float(line["accuracy"]) for line in lines] == pytest.approx(found.evaluation.scores.tolist())


def test_clients_that_the_run_does_not_know_are_refused_unless_asked_for(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    sentence = f"the data have clients that {place.path} was not trained with: site 4, site 5; to score them too, set "
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        evaluate_run(place, dataset(sites=6))
    assert len(evaluate_run(place, dataset(sites=6), new_clients=True).names) == 6


def test_data_without_clients_are_scored_as_one(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    other = dataset(seed=1)
    found = evaluate_run(place, Dataset(other.inputs, other.targets, num_classes=3), new_clients=True)
    assert found.names == ["all rows"]
    assert found.evaluation.sizes.tolist() == [120]


def test_a_regression_is_scored_with_the_constants_of_its_training(tmp_path: Path) -> None:
    data = dataset()
    numbers = Dataset(data.inputs, 50 + 7 * data.inputs.sum(dim=1), columns=data.columns)
    place = run(experiment(task=Regression(score="error", unit="days")), tmp_path / "run", data=numbers)
    shifted = Dataset(data.inputs, numbers.targets + 1000, columns=data.columns)
    found = evaluate_run(place, shifted)
    assert found.evaluation.scores.tolist() == pytest.approx([1000] * 4, abs=20)
    assert found.task.center == pytest.approx(50, abs=5)  # type: ignore[attr-defined]


def test_a_run_without_a_description_of_its_model_says_how_to_get_one(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    (place.path / "model.json").unlink()
    with pytest.raises(
        RunError, match=r"has no model\.json, .* start the run again with the same settings to add the file, "
    ):
        place.model()
    run(experiment(), tmp_path / "run", data=dataset())
    place.model()


def test_a_run_without_a_checkpoint_holds_no_model(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    (place.path / "checkpoint.safetensors").unlink()
    with pytest.raises(RunError, match=r"has no checkpoint\.safetensors, so it holds no model\.$"):
        place.model()


def test_data_of_another_shape_are_refused(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    other = Dataset(torch.zeros(120, 7), dataset().targets, num_classes=3, columns=dataset().columns)
    with pytest.raises(ConfigError, match=r"cannot be evaluated on these data, whose inputs have shape \(7,\): .*\.$"):
        evaluate_run(place, other)


def test_a_run_without_records_cannot_be_scored_on_other_data(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    (place.path / "records.jsonl").write_text("")
    with pytest.raises(RunError, match=r"has no records, so it does not say with which clients it was trained\.$"):
        evaluate_run(place, dataset())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda file: file["model"].pop("seed"), "`model.seed` is missing."),
        (lambda file: file["model"].update(name=[]), "`model.name` must be text, got []."),
        (lambda file: file["model"].update(options=[]), "`model.options` must be a table, got []."),
        (lambda file: file["model"].update(options={"a": 1}), "model 'mlp' must be built for inputs of shape"),
        (lambda file: file["arrays"][0].pop("shape"), "`arrays[0].shape` is missing."),
        (lambda file: file["arrays"][0].update(kind="odd"), "`arrays[0].kind` must be one of 'parameter', 'value', "),
        (lambda file: file.update(output="best"), "`output` must be one of 'last', 'mean', got 'best'."),
        (lambda file: file.update(encoder=[]), "`encoder` must be a table, got []."),
    ],
)
def test_a_wrong_description_of_the_model_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    described = json.loads((place.path / "model.json").read_text())
    change(described)
    (place.path / "model.json").write_text(json.dumps(described))
    with pytest.raises(RunError, match=rf"^model\.json in .* cannot be read: {re.escape(sentence)}"):
        place.model()


def test_a_module_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    with pytest.raises(ConfigError, match=r"^the model of .* does not fit this module: RuntimeError: Error"):
        place.model(nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "RUN", "--out", "model.pt"], "the file of a model must end in .safetensors, got model.pt."),
        (
            ["evaluate", "RUN", "--data", "x.npz", "--out", "x.txt"],
            "--out must be a file that ends in .csv, got x.txt.",
        ),
        (
            ["report", "RUN", "--out", "OUT", "--records", "x.txt"],
            "the file of records must end in .csv",
        ),
        (["export", "nowhere"], "nowhere holds no run: there is no experiment.toml in it."),
        (
            ["new", "class"],
            "the folder has a Python module of the same name, so this name must consist of letters, digits and _, ",
        ),
        (["new", "RUN"], "exists and is not empty; choose another name."),
    ],
    ids=str,
)
def test_wrong_arguments_get_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    assert main([{"RUN": str(place.path), "OUT": str(tmp_path / "page.html")}.get(each, each) for each in arguments])
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_records_are_a_table_with_a_row_for_each_client_and_evaluation(tmp_path: Path) -> None:
    place = run(experiment(), tmp_path / "run", data=dataset())
    frame = place.frame()
    assert len(frame) == 4 * 4 * 2  # clients, evaluations, test and validation
    assert list(frame) == ["rounds_done", "part", "client", "name", "size", "loss", "score", "variance"]
    last = frame[(frame.rounds_done == 3) & (frame.part == "test")]
    assert last.score.tolist() == place.records()[-1].test.scores
    assert last.name.tolist() == place.records()[0].opening.names
    shares, sizes = last.score.to_numpy(), last["size"].to_numpy(dtype=float)
    assert np.allclose(last.variance, shares * (1 - shares) / (sizes - 1))
    assert frame.attrs["score"] == "accuracy in per cent"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_report_writes_the_records_of_all_runs(tmp_path: Path, ending: str) -> None:
    import pandas as pd

    for seed in (0, 1):
        run(experiment(seed=seed), tmp_path / f"runs/{seed}", data=dataset())
    file = tmp_path / f"tables/records.{ending}"
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html"), "--records", str(file)]) == 0
    frame = pd.read_csv(file) if ending == "csv" else pd.read_parquet(file)
    assert len(frame) == 2 * 4 * 4 * 2
    assert list(frame)[:4] == ["run", "rule", "seed", "rounds_done"]
    assert set(frame.seed) == {0, 1}


@pytest.mark.integration
def test_a_new_folder_runs_and_its_tests_pass(tmp_path: Path) -> None:
    fedfv = [sys.executable, "-m", "fedfv"]
    subprocess.run([*fedfv, "new", "my-study"], cwd=tmp_path, check=True, capture_output=True)
    folder = tmp_path / "my-study"
    assert sorted(file.name for file in folder.iterdir()) == ["experiment.toml", "my_study.py", "test_my_study.py"]
    subprocess.run([*fedfv, "run", "experiment.toml"], cwd=folder, check=True, capture_output=True)
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert "4 passed" in said.stdout
    subprocess.run([*fedfv, "export", "runs/experiment-seed0"], cwd=folder, check=True, capture_output=True)
    other = [*fedfv, "evaluate", "runs/experiment-seed0", "--data", "my_study:visits"]
    said = subprocess.run(other, cwd=folder, check=True, capture_output=True, text=True)
    assert "top-2 accuracy in per cent over 12 clients" in said.stdout


def write_visits(path: Path, rows: int = 240, sites: int = 4, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    lines = ["hospital,age,ward,stay,outcome"]
    for row in range(rows):
        age, ward = random.integers(20, 90), random.choice(["surgery", "medicine"])
        stay = 2 + 0.1 * age + 3 * (ward == "surgery") + random.normal()
        lines.append(f"hospital {row % sites},{age},{ward},{stay:.2f},{'home' if stay < 9 else 'other'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def of_table(path: Path, target: str, **changes: Any) -> Experiment:
    left_out = "stay" if target == "outcome" else "outcome"
    options = {"target": target, "client": "hospital", "leave_out": [left_out]}
    data = Data(name=str(path), options=options)
    return experiment(data=data, partition=None, model=Model(name="softmax-regression"), **changes)


def test_a_model_of_a_table_is_scored_on_another_table(tmp_path: Path) -> None:
    place = run(of_table(write_visits(tmp_path / "may.csv"), "outcome"), tmp_path / "run")
    found = evaluate_run(place, write_visits(tmp_path / "june.csv", seed=1))
    assert found.names == [f"hospital {number}" for number in range(4)]
    assert found.evaluation.sizes.tolist() == [60] * 4
    lines = list(csv.DictReader((tmp_path / "june.csv").read_text().splitlines()))
    beside = json.loads(place.export(tmp_path / "model.safetensors")[1].read_text())
    age, ward = beside["encoder"]["features"]
    inputs = [
        [(int(line["age"]) - age["mean"]) / age["std"], *(float(line["ward"] == each) for each in ward["categories"])]
        for line in lines
    ]
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))  # a bare torch program needs nothing but these files
    module.load_state_dict(load_file(tmp_path / "model.safetensors"))
    answers = [beside["encoder"]["class_names"][each] for each in module(torch.tensor(inputs)).argmax(dim=1).tolist()]
    for name, score in zip(found.names, found.evaluation.scores.tolist(), strict=True):
        mine = [
            answer == line["outcome"] for answer, line in zip(answers, lines, strict=True) if line["hospital"] == name
        ]
        assert score == pytest.approx(np.mean(mine))


def test_a_regression_on_a_table_is_scored_on_another_one(tmp_path: Path) -> None:
    spec = of_table(write_visits(tmp_path / "may.csv"), "stay", task=Regression(), rounds=60)
    place = run(spec, tmp_path / "run")
    found = evaluate_run(place, write_visits(tmp_path / "june.csv", seed=1))
    assert found.evaluation.scores.min().item() > 0.7
    assert found.task.scored_by.name == "R2"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("hospital 2,", "hospital 9,"), "the data have clients that RUN was not trained with: hospital 9; to score"),
        (("other\n", "elsewhere\n"), "'elsewhere'"),
        (("hospital,age,", "hospital,years,"), "'age'"),
    ],
    ids=["unknown client", "unknown class", "missing column"],
)
def test_another_table_that_does_not_fit_is_refused(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    place = run(of_table(write_visits(tmp_path / "may.csv"), "outcome"), tmp_path / "run")
    june = write_visits(tmp_path / "june.csv", seed=1)
    june.write_text(june.read_text().replace(*change))
    with pytest.raises(ValueError, match=re.escape(sentence.replace("RUN", str(place.path)))) as caught:
        evaluate_run(place, june)
    assert str(caught.value).endswith(".")
