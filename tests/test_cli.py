"""The command line as a user meets it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import fedfv
from fedfv.cli import main
from fedfv.experiments import Experiment, build_federation
from fedfv.reports import class_counts
from tests.experiments.helpers import tables, write_data


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with an experiment, in the folder that the command runs in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(tomli_w.dumps(tables(write_data(tmp_path / "data.npz"))))
    return path


def test_run_and_report(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small.toml"]) == 0
    assert main(["run", "small.toml", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert "Saved in runs/small-seed0" in captured.out
    assert "round 12 of 12: mean" in captured.err
    assert main(["report", "runs/small-seed0", "runs/small-seed3"]) == 0
    assert "</html>" in Path("report.html").read_text()
    table = capsys.readouterr().out
    assert "FedFV(alpha=0.1" in table
    assert re.search(r"2 +\d+\.\d\d±\d+\.\d\d ", table)


def test_keys_can_be_changed_on_the_command_line(experiment: Path) -> None:
    changes = ["--set", "rounds=2", "--set", "aggregator={name='fedavg'}", "--set", "model.loss=softmax-cross-entropy"]
    assert main(["run", "small.toml", "--out", "elsewhere", *changes]) == 0
    text = Path("elsewhere/experiment.toml").read_text()
    assert "rounds = 2" in text
    assert 'name = "fedavg"' in text
    assert 'loss = "softmax-cross-entropy"' in text


def test_a_run_directory_goes_on_by_its_name_in_its_place(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small.toml", "--out", "here"]) == 0
    before = Path("here/records.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["run", "here"]) == 0
    assert "Saved in here" in capsys.readouterr().out
    assert Path("here/records.jsonl").read_bytes() == before
    assert not Path("runs").exists()


BAD = [
    (["run", "smal"], 2, "unknown experiment 'smal'"),
    (
        ["run", "small"],
        2,
        "unknown experiment 'small'; did you mean 'small.toml'? known: small.toml, fashion-average, ",
    ),
    (["run", "small.toml", "--set", "aggregator=fedavg"], 2, "got 'fedavg'; a name belongs into `aggregator.name`."),
    (["run", "small.toml", "--set", "aggregator.name=mine:Rule"], 2, "a module of your own must be beside the TOML"),
    (
        ["run", "small.toml", "--set", "partition.column=cleint"],
        2,
        "got 'cleint'; did you mean 'client'? columns: client.",
    ),
    (["schema", "--out", "small.toml/x.json"], 1, "small.toml cannot be read or written: "),
    (["schema", "studi"], 2, "unknown kind of file 'studi'; did you mean 'study'? known: experiment, study, track."),
    (
        ["partition", "small.toml", "--plot", "x.bmp"],
        2,
        "--plot must be a file that ends in .png, .svg, .pdf, got x.bmp.",
    ),
    (["data", "fetch", "mnits"], 2, "unknown dataset 'mnits'; did you mean 'mnist'? datasets with files to fetch"),
    (["run", "smal.toml"], 2, "there is no file smal.toml."),
    (["run", "small.toml", "--set", "rounds"], 2, "--set must be KEY=VALUE, such as training.lr=0.01, got 'rounds'."),
    (["run", "small.toml", "--set", "rounds=0"], 2, "`rounds` must be at least 1, got 0."),
    (["run", "small.toml", "--set", "trainin.lr=1"], 2, "unknown key 'trainin'; did you mean 'training'?"),
    (["run", "small.toml", "--set", "rounds.x=1"], 2, "--set rounds.x=1 is not possible, since `rounds` is a value"),
    (["run", "small.toml", "--set", "data.name=no.npz"], 2, "no.npz"),
    (["run", "small.toml", "--set", "data.name=minst"], 2, "minst"),
    (["run", "small.toml", "--out", "small.toml/run"], 1, "cannot be written"),
    (["report", "."], 2, "holds no run: there is no experiment.toml in it."),
    (["data", "check", "minst"], 2, "unknown dataset 'minst'; did you mean 'mnist'?"),
    (["list", "planets"], 2, "unknown thing to list 'planets'; known: experiments, sweeps, "),
    (["list", "aggregator"], 2, "unknown thing to list 'aggregator'; did you mean 'aggregators'?"),
    (["walk"], 2, "No such command 'walk'."),
    (["lst"], 2, "No such command 'lst'. Did you mean 'list'?"),
]


@pytest.mark.parametrize(("arguments", "code", "sentence"), BAD, ids=[" ".join(arguments) for arguments, _, _ in BAD])
def test_mistakes_of_the_user_give_one_sentence_and_no_traceback(
    experiment: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, sentence: str
) -> None:
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_debug_shows_the_traceback(experiment: Path) -> None:
    with pytest.raises(ValueError, match="unknown experiment"):
        main(["--debug", "run", "smal"])


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("aggregators", "fedfv"),
        ("datasets", "fashion-tops"),
        ("models", "paper-cnn"),
        ("experiments", "fashion-fair"),
        ("partitions", "label-shards"),
        ("samplings", "by-size"),
        ("trainings", "adamw"),
        ("metrics", "worst"),
    ],
)
def test_list_prints_each_name_with_a_description(what: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith(name + " ")]
    assert len(line.split()) > 3
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("what", "name", "keys"),
    [
        (
            "aggregators",
            "fedfv",
            'alpha = 0.1, tau = 1, order = "loss", seed = 0, band = 0.0, max_projection (optional), '
            "max_stretch (optional)",
        ),
        ("aggregators", "fedavg", 'weighting = "size"'),
        (
            "partitions",
            "label-shards",
            "num_clients (required), shards_per_client = 2, seed (optional), fractions = [0.8, 0.1, 0.1]",
        ),
        ("partitions", "from-file", "path (required)"),
        ("samplings", "uniform", "count (required), dropout = 0.0"),
        (
            "trainings",
            "sgd",
            "lr = 0.1, epochs = 1, batch_size (optional), weight_decay = 0.0, lr_decay = 1.0, "
            "lr_decay_every = 1, drop_last = false, clip_norm (optional), proximal = 0.0, warmup_rounds = 0, "
            "cosine_rounds (optional), momentum = 0.0",
        ),
        (
            "attacks",
            "lies",
            'share = 0.1, clients = [], first = 0, last (optional), labels = "own", loss = "own", update = "own", '
            "scale = 1.0, size (optional), together = false",
        ),
        ("models", "mlp", "options.hidden = [200, 200]"),
    ],
)
def test_list_shows_the_keys_of_each_with_their_defaults(
    what: str, name: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", what]) == 0
    text = re.sub(r"\n +", " ", capsys.readouterr().out)
    (line,) = [line for line in text.splitlines() if line.startswith(name + " ")]
    assert " ".join(line.split()).endswith(f"Keys: {keys}")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"fedfv {fedfv.__version__}"
    assert main(["run", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:" in text
    assert "A TOML file, a name that" in text  # the help of an argument


def test_fetch_prints_where_the_files_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "fashion-tops"]) == 0
    places = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert len(places) == 2
    assert all(place.is_file() and place.is_absolute() for place in places)


def test_the_embedded_data_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "fashion-tops"]) == 0
    assert "ok" in capsys.readouterr().out


@pytest.mark.integration
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_an_interrupted_command_saves_and_says_how_to_go_on(experiment: Path, ending: signal.Signals) -> None:
    command = [sys.executable, "-c", "from fedfv.cli import entry; entry()", "run", "small.toml", "--out", "cut"]
    with subprocess.Popen([*command, "--set", "rounds=100000"], stderr=subprocess.PIPE, text=True) as child:
        while not Path("cut/records.jsonl").exists() or Path("cut/records.jsonl").read_text().count("\n") < 5:
            time.sleep(0.05)
        child.send_signal(ending)
        _, said = child.communicate()
    assert child.returncode == 1
    assert "Interrupted and saved; resume with the same command" in said
    assert "Traceback" not in said
    done = [json.loads(line)["rounds_done"] for line in Path("cut/records.jsonl").read_text().splitlines()]
    assert done == list(range(len(done)))


@pytest.mark.integration
def test_in_a_terminal_there_is_a_progress_bar(experiment: Path) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-c", "from fedfv.cli import entry; entry()", "run", "small.toml"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=child, check=True)
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 1 << 16)
        except OSError:  # nothing more to read, as Linux says it
            break
        if not part:
            break
        shown += part
    assert done.returncode == 0
    assert b"12/12" in shown
    assert b"worst 5 %" in shown


def test_a_partition_can_be_shown_saved_drawn_and_used_again(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", "small.toml", "--out", "partition.npz", "--plot", "partition.png"]) == 0
    assert "6 clients with 24 to 24 training examples, 2 to 2 of 4 classes each" in capsys.readouterr().out
    assert Path("partition.png").read_bytes().startswith(b"\x89PNG")
    again = ["--set", "partition={kind='from-file', path='partition.npz'}"]
    assert main(["run", "small.toml", "--out", "first"]) == 0
    assert main(["run", "small.toml", "--out", "second", *again]) == 0
    assert Path("first/records.jsonl").read_bytes() == Path("second/records.jsonl").read_bytes()


def counts_in(shown: str) -> dict[str, list[int]]:
    """The numbers after the name of each client."""
    lines = [line.split() for line in shown.splitlines()]
    return {words[0]: [int(word) for word in words[1:]] for words in lines if all(map(str.isdigit, words))}


def test_partition_shows_how_many_examples_of_each_class_each_client_has(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partition", "small.toml"]) == 0
    shown = capsys.readouterr().out
    federation = build_federation(Experiment.from_toml(experiment.read_text()))
    expected = {
        str(client): [*map(int, counts), int(counts.sum())] for client, counts in enumerate(class_counts(federation))
    }
    assert counts_in(shown) == expected
    assert "client" in shown
    assert "total" in shown


def test_partition_shows_the_first_of_many_clients_and_only_classes_that_occur(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", inputs=np.zeros((800, 2)), targets=np.arange(800) % 40)
    partition = {"kind": "label-shards", "num_clients": 40, "shards_per_client": 1}
    Path("many.toml").write_text(tomli_w.dumps(tables(Path("data.npz"), partition=partition)))
    assert main(["partition", "many.toml"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^ *\d+ +16 +\d+: 16 *$", shown, flags=re.MULTILINE)) == 30
    assert "and 10 more clients; --out and --plot include all of them" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.integration
def test_reproduce_makes_a_short_version_that_says_so_and_does_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "table3", "--rounds", "2", "--seeds", "0,12", "--rows", "fedavg,fedfv-0.*", "--jobs", "2"]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "6 of 6 runs, 12 of 12 rounds" in captured.err
    assert "A short version of Table 3: 3 of 13 rows; seeds 0, 12 instead of" in captured.out
    assert "2 rounds instead of 201" in Path("reproduction/table3-short.md").read_text()
    assert json.loads(Path("reproduction/table3-short.json").read_text())["short_of"]
    assert not Path("reproduction/table3.json").exists()
    runs = {path: path.stat().st_mtime_ns for path in Path("reproduction/runs").rglob("records.jsonl")}
    assert len(runs) == 6
    assert main(command) == 0
    assert runs == {path: path.stat().st_mtime_ns for path in runs}


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["reproduce", "table9"], "unknown table or figure 'table9'; did you mean 'table4'?"),
        (["reproduce", "table3", "--rows", "fedsomething"], "unknown row 'fedsomething'"),
        (
            ["reproduce", "table3", "--seeds", "one"],
            "--seeds must be whole numbers separated by commas, such as 0,12, got 'one'.",
        ),
        (["sweep", "small.toml"], "a sweep needs a table [grid]"),
        (["sweep", "no.toml"], "there is no file no.toml"),
        (["sweep", "grid-cifar"], "unknown sweep 'grid-cifar'; did you mean 'grid-cifar10'?"),
        (["run", "swept.toml"], "an experiment with a table `grid` is a sweep; run it with `fedfv sweep`."),
        (["sweep", "ranked.toml"], "`ranking` must be a table with the keys `by` and `on`, got {'over': 'all'}."),
        (["sweep", "small.toml", "--rank-by", "wurst"], "unknown metric 'wurst'; did you mean 'worst'?"),
        (["run", "small.toml", "--set", "training.lrr=1"], "unknown key in [training] 'lrr'; did you mean 'lr'?"),
    ],
)
def test_wrong_arguments_of_studies_and_sweeps_are_refused(
    experiment: Path, command: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("swept.toml").write_text(experiment.read_text() + "[grid]\nseed = [1, 2]\n")
    Path("ranked.toml").write_text(Path("swept.toml").read_text() + "[ranking]\nover = 'all'\n")
    assert main(command) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not Path("reproduction").exists()


@pytest.mark.integration
def test_sweep_ranks_settings_by_a_metric(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = """
    [grid]
    seed = [0, 1]
    "training.lr" = [1e-9, 0.2]
    aggregator = [{ name = "fedavg" }, { name = "fedfv", alpha = 0.1 }]
    """
    text = re.sub(r"\[aggregator\].*?(?=\[|$)", "", experiment.read_text(), flags=re.DOTALL)
    Path("swept.toml").write_text(text + grid)
    assert main(["sweep", "swept.toml", "--jobs", "2", "--rank-by", "mean", "--rank-on", "test"]) == 0
    assert "8 of 8 runs" in capsys.readouterr().err
    ranking = json.loads(Path("sweeps/swept/ranking.json").read_text())
    means = [setting["metrics"]["mean"]["mean"] for setting in ranking["settings"]]
    assert means == sorted(means, reverse=True)
    assert all("training.lr=0.2" in setting["setting"] for setting in ranking["settings"][:2])
    assert main(["sweep", "swept.toml", "--rank-by", "std", "--rank-on", "test"]) == 0
    ranking = json.loads(Path("sweeps/swept/ranking.json").read_text())
    spreads = [setting["metrics"]["std"]["mean"] for setting in ranking["settings"]]
    assert spreads == sorted(spreads)
    assert "fedfv alpha=0.1" in Path("sweeps/swept/ranking.md").read_text()


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the libraries that a process has loaded are on Linux")
def test_an_interrupt_while_libraries_are_loaded_gives_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedfv", "run", "fashion-fair", "--out", "run"]
    for library in ("libtorch_cpu", "_multiarray_umath", "libllvmlite"):
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
            while library not in Path(f"/proc/{child.pid}/maps").read_text():
                assert child.poll() is None
            child.send_signal(signal.SIGINT)
            _, said = child.communicate()
        assert child.returncode == 1
        assert "fedfv: interrupted." in said
        assert "Traceback" not in said


def test_other_values_have_another_default_directory_and_more_rounds_go_on(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def kept(*arguments: str) -> str:
        assert main(["run", "small.toml", *arguments]) == 0
        return re.findall(r"Saved in (\S+)", capsys.readouterr().out)[0]

    assert kept() == "runs/small-seed0"
    assert kept("--set", "aggregator.name=fedavg") == "runs/small-aggregator.name=fedavg-seed0"
    assert kept("--set", "rounds=14") == "runs/small-seed0"
    assert len(Path("runs/small-seed0/records.jsonl").read_text().splitlines()) == 15
    assert kept("--set", "rounds=3") == "runs/small-rounds=3-seed0"
    assert kept("--set", "training.lr=0.2", "--seed", "4") == "runs/small-training.lr=0.2-seed4"
    assert main(["run", "runs/small-seed0", "--set", "rounds=16"]) == 0
    assert len(Path("runs/small-seed0/records.jsonl").read_text().splitlines()) == 17
