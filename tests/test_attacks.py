"""Clients that lie: each lie on vectors worked by hand, and lies as a part of an experiment."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfv import FedAvg, Replies, start
from fedfv.attacks import ATTACKS, Attack, AttackedClients, Lies, Scene, with_flipped_labels
from fedfv.core import NO_BUFFERS, Buffers
from fedfv.errors import ConfigError
from fedfv.experiments import Experiment, RunDirectory, build_federation, run
from fedfv.seeding import rng
from fedfv.simulation import simulate
from fedfv.training import BatchedClients
from tests.experiments.helpers import small, tables, write_data
from tests.helpers import make_replies, updates_of

# The lengths of the honest updates are 5, 5 and 1, their mean is (0, 3); the client with id 3 lies.
HONEST = torch.tensor([[3.0, 4.0], [-3.0, 4.0], [0.0, 1.0], [6.0, 8.0]], dtype=torch.double)
LYING = torch.tensor([False, False, False, True])


def replies_with(updates: Tensor = HONEST, **given: Any) -> Replies:
    losses = torch.tensor([0.5, 2.0, 1.0, 0.25], dtype=torch.double)
    return make_replies(updates, **{"losses": losses, "sizes": torch.tensor([10, 20, 30, 40]), **given})


def scene(params: tuple[float, float] = (0.0, 0.0), initial: tuple[float, float] = (0.0, 0.0)) -> Scene:
    def train(model: Tensor) -> Replies:
        rows = model + torch.tensor([[1.0, 1.0]], dtype=torch.double)
        return make_replies(rows, clients=torch.tensor([3]))

    double = torch.double
    return Scene(torch.tensor(params, dtype=double), torch.tensor(initial, dtype=double), train, rng(0, "test"))


def lied(attack: Attack, lying: Tensor = LYING, **given: Any) -> Replies:
    return attack.replies(replies_with(**given), lying, scene(params=(4.0, 0.0), initial=(0.0, 3.0)))


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (Lies(), [6, 8]),
        (Lies(update="negated"), [-6, -8]),
        (Lies(update="negated", scale=10.0), [-60, -80]),
        (Lies(update="negated-mean"), [0, -5]),  # the usual length is 5, the median
        (Lies(update="negated-worst"), [3, -4]),  # the client with id 1 has the largest honest loss
        (Lies(update="zero"), [0, 0]),
        (Lies(update="old"), [1, 4]),  # what `train` returns for the initial model
        (Lies(update="drift"), [6 + 4, 8 - 3]),  # back along (4, -3), for 0.5 times 10
    ],
    ids=lambda value: repr(value) if isinstance(value, Attack) else "",
)
def test_false_updates_worked_by_hand(attack: Lies, expected: list[float]) -> None:
    replies = lied(attack)
    torch.testing.assert_close(updates_of(replies)[3], torch.tensor(expected, dtype=torch.double))
    assert torch.equal(updates_of(replies)[:3], HONEST[:3])
    assert replies.losses.tolist() == [0.5, 2.0, 1.0, 0.25]
    assert replies.sizes.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize(
    ("loss", "expected"), [("own", 0.25), ("huge", 1e6), ("above", 2.0 * 1.001), ("zero", 0.0), (7.5, 7.5)]
)
def test_false_losses_worked_by_hand(loss: Any, expected: float) -> None:
    replies = lied(Lies(loss=loss), trained_losses=torch.tensor([0.5, 2.0, 1.0, 0.25], dtype=torch.double))
    for losses in (replies.losses, replies.trained_losses):
        assert losses is not None
        assert losses.tolist() == pytest.approx([0.5, 2.0, 1.0, expected])
    assert torch.equal(updates_of(replies), HONEST)


def test_a_false_size_is_claimed_by_liars_alone() -> None:
    assert lied(Lies(size=1e12)).sizes.tolist() == [10, 20, 30, 1e12]


def test_noise_has_the_usual_length_and_another_direction_for_each_liar() -> None:
    lying = torch.tensor([False, False, True, True])
    rows = updates_of(lied(Lies(update="noise"), lying))[lying]
    assert rows.norm(dim=1).tolist() == pytest.approx([5.0, 5.0])
    assert not torch.allclose(rows[0], rows[1])


def test_liars_that_agree_send_the_mean_of_their_lies() -> None:
    lying = torch.tensor([False, False, True, True])
    rows = updates_of(lied(Lies(update="negated", together=True), lying))[lying]
    assert rows.tolist() == [[-3.0, -4.5], [-3.0, -4.5]]


def test_liars_alone_in_a_round_lie_about_each_other() -> None:
    everyone = torch.ones(4, dtype=torch.bool)
    rows = updates_of(lied(Lies(loss="above", update="negated-mean"), everyone))
    mean = HONEST.mean(dim=0)
    torch.testing.assert_close(rows, (-5 * mean / mean.norm()).expand(4, 2))


def test_liars_are_drawn_from_the_seed_or_named() -> None:
    drawn = [Lies(share=0.1).liars(100, seed).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 10
    assert Lies(share=0.01).liars(5, seed=0).shape == (1,)
    assert Lies(clients=(4, 2, 4)).liars(5, seed=0).tolist() == [2, 4]
    assert [Lies(first=3, last=5).is_on(round) for round in range(7)] == [False] * 3 + [True] * 3 + [False]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "liess"}, "unknown attack kind 'liess'; did you mean 'lies'?"),
        ({"share": 0}, r"`attack.share` must be a number above 0 and at most 1, got 0.0."),
        ({"clients": [-1]}, "`attack.clients` must be whole numbers from 0, got -1."),
        ({"update": "reversed"}, "`attack.update` must be 'own', 'negated', .* or 'drift', got 'reversed'."),
        ({"loss": "big"}, "`attack.loss` must be 'own', 'huge', 'above' or 'zero', got 'big'."),
        ({"first": 5, "last": 4}, "`attack.last` must be "),
        ({"labels": "shuffled"}, "`attack.labels` must be 'own' or 'flipped', got 'shuffled'."),
        ({"kind": "tests.test_attacks:NoAttack"}, "`attack` must be an object of Lies, or of a frozen dataclass that"),
    ],
)
def test_a_wrong_attack_gets_one_sentence(tmp_path: Path, table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        small(tmp_path / "data.npz", attack=table)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"clients": [6]}, "`clients` of an attack must be below 6, got 6."),
        ({"share": 1.0}, "`attack` must leave a client that is honest, but all 6 clients lie."),
    ],
)
def test_an_attack_that_does_not_fit_the_federation_is_refused(
    tmp_path: Path, table: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        run(small(write_data(tmp_path / "data.npz"), attack=table), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class NoAttack:
    """A class that does not inherit from `Attack`."""


@dataclass(frozen=True, kw_only=True)
class Greedy(Attack):
    """An attack of one's own: liars claim many examples, a number of them that depends on the round."""

    factor: float = 2.0

    def replies(self, honest: Replies, lying: Tensor, scene: Scene) -> Replies:
        claimed = self.factor * honest.sizes.double() * scene.rng.random()
        return honest.saying(sizes=torch.where(lying, claimed, honest.sizes))


def test_an_attack_is_resumed_and_recorded_also_one_of_ones_own(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz")
    for name, table in {
        "lies": {"share": 0.3, "loss": "huge", "update": "noise", "first": 2, "last": 8},
        "greedy": {"kind": "tests.test_attacks:Greedy", "factor": 9.0, "clients": [1, 4]},
    }.items():
        experiment = small(data, attack=table, aggregator={"name": "fedavg"})
        assert experiment.to_dict()["attack"].items() >= table.items()
        assert Experiment.from_toml(experiment.to_toml()) == experiment
        whole = run(experiment, tmp_path / name / "whole")
        run(small(data, attack=table, aggregator={"name": "fedavg"}, rounds=4), tmp_path / name / "cut")
        cut = run(experiment, tmp_path / name / "cut")
        assert torch.equal(cut.load()["params"], whole.load()["params"])  # type: ignore[index]
        plain = run(small(data, aggregator={"name": "fedavg"}), tmp_path / name / "plain")
        assert not torch.equal(plain.load()["params"], whole.load()["params"])  # type: ignore[index]
        liars = experiment.attack.liars(6, seed=0).tolist()
        opening, *records = RunDirectory(whole.path).records()
        assert opening.opening is not None
        assert opening.opening.liars == liars
        for record in records:
            assert record.replied is not None
            on = experiment.attack.is_on(record.rounds_done - 1)
            assert record.lied == ([client for client in record.replied if client in liars] if on else [])
        assert any(record.lied for record in records)


def test_flipped_labels_mislead_liars_alone(tmp_path: Path) -> None:
    experiment = small(write_data(tmp_path / "data.npz"), attack={"clients": [2], "labels": "flipped"})
    federation = build_federation(experiment)
    flipped = with_flipped_labels(federation)
    assert torch.equal(flipped.targets, 3 - federation.targets)
    model = torch.nn.Linear(8, 4)
    everyone, params = torch.arange(6), torch.zeros(36)
    honest, misled = (BatchedClients(each, model, experiment.training) for each in (federation, flipped))
    clients = AttackedClients(honest, Lies(clients=(2,), labels="flipped"), torch.tensor([2]), params, misled)
    rows, own, false = (updates_of(each(0, everyone, params, NO_BUFFERS)) for each in (clients, honest, misled))
    for client in range(6):
        torch.testing.assert_close(rows[client], (false if client == 2 else own)[client])  # batches of other sizes
    assert not torch.equal(own[2], false[2])
    numbers = with_flipped_labels(
        type(federation)(
            inputs=federation.inputs,
            targets=federation.targets.float(),
            train=federation.train,
            validation=federation.validation,
            test=federation.test,
            num_classes=None,
        )
    )
    assert torch.equal(numbers.targets, -federation.targets.float())


def test_all_that_a_misled_client_says_is_measured_on_its_false_labels(tmp_path: Path) -> None:
    table = {"name": "qfedavg", "loss": "after"}
    experiment = small(
        write_data(tmp_path / "data.npz"),
        attack={"clients": [2], "labels": "flipped"},
        aggregator=table,
        sampling={"kind": "everyone"},
    )
    own, false = (run(each, tmp_path / name).records()[1] for name, each in _with_and_without(experiment).items())
    for values in ("train_losses", "measured"):
        before, after = getattr(own, values), getattr(false, values)
        before, after = (each["trained_losses"] if values == "measured" else each for each in (before, after))
        assert [abs(one - two) > 1e-6 for one, two in zip(before, after, strict=True)] == [c == 2 for c in range(6)]


def _with_and_without(experiment: Experiment) -> dict[str, Experiment]:
    tables_of = experiment.to_dict()
    attack = tables_of.pop("attack")
    return {"own": Experiment.from_dict(tables_of), "false": Experiment.from_dict({**tables_of, "attack": attack})}


def test_buffers_of_liars_with_flipped_labels_are_theirs() -> None:
    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def __call__(self, round: int, chosen: Tensor, params: Tensor, buffers: Buffers) -> Replies:
            rows = torch.full((len(chosen), 2), self.value)
            counts = torch.full((len(chosen), 1), int(self.value))
            return make_replies(rows, clients=chosen, buffers=Buffers(rows.clone(), counts))

    attack = Lies(clients=(1,), labels="flipped")
    clients = AttackedClients(Fixed(1.0), attack, torch.tensor([1]), torch.zeros(2), Fixed(2.0))
    replies = clients(0, torch.tensor([0, 1]), torch.zeros(2), NO_BUFFERS)
    assert replies.buffers is not None
    assert replies.buffers.values.tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert replies.buffers.counts.tolist() == [[1], [2]]


def test_a_round_without_liars_is_honest() -> None:
    asked: list[list[int]] = []

    def clients(round: int, chosen: Tensor, params: Tensor, buffers: Buffers) -> Replies:
        asked.append(chosen.tolist())
        return make_replies(torch.ones(len(chosen), 2), clients=chosen, round=round)

    attack = Lies(clients=(3,), update="negated", first=1)
    attacked = AttackedClients(clients, attack, torch.tensor([3]), torch.zeros(2))
    server = start(FedAvg("uniform"), 4, torch.zeros(2))
    chosen = [torch.tensor([0, 3]), torch.tensor([0, 1]), torch.tensor([0, 3])]
    *_, last = simulate(attacked, FedAvg("uniform"), lambda round: chosen[round], server, 3)
    assert last.server.params.tolist() == [-2.0, -2.0]  # the third mean is zero
    assert asked == [[0, 3], [0, 1], [0, 3]]


def test_lies_are_known_by_name_and_are_the_default() -> None:
    assert ATTACKS["lies"] is Lies
    assert Experiment.from_dict(tables(Path("data.npz"), attack={"loss": "zero"})).attack == Lies(loss="zero")
    assert Experiment.from_dict(tables(Path("data.npz"))).attack is None
    with pytest.raises(
        ValueError, match=r"`loss` of Lies must be one of 'own', 'huge', 'above', 'zero' or a finite number, got nan\."
    ):
        Lies(loss=math.nan)
