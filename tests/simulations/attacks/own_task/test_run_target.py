"""Membership of a run folder: members are found where the model remembers, and nowhere else."""

import hashlib
from functools import cache
from typing import Any

import numpy as np
import own_tasks
import pytest
import torch

from zerosum.client.given_task import GivenTask
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.server.config import ConfigError
from zerosum.simulations import run
from zerosum.simulations.attacks import Cell, Lira, LossThreshold, play
from zerosum.simulations.attacks.harness.metrics import Ranking
from zerosum.simulations.attacks.harness.partial_results import AttackRequest
from zerosum.simulations.attacks.harness.results import POOLED, rows_of
from zerosum.simulations.attacks.own_task import run_target
from zerosum.simulations.attacks.own_task.cases import own_cases as typed_cases
from zerosum.simulations.attacks.own_task.cases import run_defense
from zerosum.simulations.attacks.own_task.released import pairs_of, release_of
from zerosum.simulations.attacks.own_task.subject import Subject, subject_of_run
from zerosum.simulations.attacks.run import attack_run

own_cases: Any = typed_cases  # whose settings are of this library's own classes

SECTIONS = {
    "rounds": 8,
    "sampling": {"kind": "everyone"},
    "secagg": {"protocol": "ideal", "dropout": 0.0},
    "privacy": {"model": "none", "clip": "none", "honest_fraction": 1.0},
    "training": {"epochs": 10, "lr": 0.1},
    "encoding": {"range": 50.0},
}


class Coins(own_tasks.Images):
    """Images are noise and labels are coins: a model that knows them has been told."""

    shape = (1, 16, 16)

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(8)
        self.labels = torch.tensor(rng.integers(0, 3, len(self.labels)))
        self.inputs = torch.tensor(rng.normal(size=self.inputs.shape), dtype=torch.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a run that remembers its records."""
    path = tmp_path_factory.mktemp("runs") / "mine"
    run(SECTIONS, task=Coins(), out=path, report=False)
    return path


@cache
def subject(path, seeds=2):
    return subject_of_run(str(path), (), seeds, GivenTask(Coins()))


def area(attack, target, seed=0):
    (case,) = [c for c in own_cases(attack, target, "quick") if not c.setting.untrained]
    return _area(play(0, Cell(attack, case), seed))


def _area(played):
    assert played.status == "value", played.note
    ranking = played.units["AUC"]
    assert isinstance(ranking, Ranking)
    return ranking.figure().value


@pytest.mark.slow
def test_members_of_a_model_that_remembers_them_are_found(folder, one_thread):
    digest = {p: hashlib.sha256(p.read_bytes()).digest() for p in folder.rglob("*.*")}
    assert area(LossThreshold(), subject(folder)) > 0.95
    assert area(Lira(), subject(folder)) > 0.95
    after = {p: hashlib.sha256(p.read_bytes()).digest() for p in folder.rglob("*.*")}
    assert after == digest, "the folder is only read"


@pytest.mark.slow
def test_an_untrained_model_tells_nothing(folder, one_thread):
    for attack in (LossThreshold(), Lira()):
        cells = [
            Cell(attack, case)
            for case in own_cases(attack, subject(folder), "quick")
            if case.setting.untrained
        ]
        outcomes = [play(0, cells[0], seed) for seed in range(2)]
        (row,) = [r for r in rows_of(cells, outcomes) if r.seed == POOLED and r.metric == "AUC"]
        assert row.at_baseline
        assert row.low is not None
        assert row.high is not None
        assert row.low < 0.5 < row.high
        assert row.epsilon == 0


@pytest.mark.slow
def test_a_reference_that_holds_a_record_knows_it_and_one_that_does_not_does_not(
    folder, one_thread
):
    """The coins are those of the training itself: swapping them would swap the two."""
    target = own_cases(Lira(), subject(folder), "quick")[0].setting
    view = target.play(Lira(), run_defense(subject(folder)), 0).view
    inputs, labels = view.candidate_inputs, view.candidate_labels
    for vector, holds in zip(view.references, view.reference_holds, strict=True):
        fits = run_target.scores_of(view, vector, inputs, labels)
        assert Ranking(fits, holds).figure().value > 0.95


@pytest.mark.slow
def test_members_stand_beside_others_of_their_class_and_seeds_share_none(folder):
    pairs = pairs_of(subject(folder))
    assert pairs.source == "public test records"  # everybody took part
    assert (pairs.members.targets == pairs.others.targets).all()
    places = {tuple(place) for place in pairs.places.tolist()}
    assert len(places) == len(pairs.places) >= 2 * pairs.each
    task = Coins()
    for (client, row), inputs in zip(pairs.places, pairs.members.inputs, strict=True):
        assert np.array_equal(task.inputs[client * task.held + row].numpy(), inputs)
    held = {record.numpy().tobytes() for record in task.inputs[: 8 * task.held]}
    assert not held & {record.tobytes() for record in pairs.others.inputs}


def test_epsilon_is_that_of_the_runs_ledger_for_outsiders(folder):
    release = release_of(subject(folder))
    assert release.epsilon == float("inf")
    assert release.rounds == 8
    assert release.took_part == set(range(own_tasks.CLIENTS))


def test_references_have_the_cohorts_of_the_run_and_noise_of_their_own():
    run_coins, own = SeededEntropy(3), run_target._OtherNoise(3, 4)
    for purpose in ("cohort train", "groups train", "order"):
        assert own.keystream(purpose, 1).take(16) == run_coins.keystream(purpose, 1).take(16)
    for purpose in ("noise", "rounding", "top-up"):
        assert own.keystream(purpose, 1).take(16) == SeededEntropy(4).keystream(purpose, 1).take(16)


@pytest.mark.slow
def test_those_who_never_took_part_are_the_others_where_there_are_enough(tmp_path):
    sections = SECTIONS | {"rounds": 1, "sampling": {"kind": "fixed", "cohort": 4}}
    sections |= {"training": {"epochs": 1}}
    run(sections, task=Coins(), out=tmp_path / "r", report=False)
    mine = Subject(GivenTask(Coins()), (), 2, str(tmp_path / "r"))
    assert len(release_of(mine).took_part) == 4
    pairs = pairs_of(mine)
    assert pairs.source == "records of clients who never took part"
    assert {int(client) for client, _ in pairs.places} <= release_of(mine).took_part


@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        (lambda path: AttackRequest([], [], "quick", 3, run="nowhere"), "holds no run"),
        (
            lambda path: AttackRequest([], [], "quick", 3, run=str(path)),
            "its task was given as an object, <",
        ),
        (
            lambda path: AttackRequest([], ["model.name=mlp"], "quick", 3, run=str(path)),
            "data.path alone may be given",
        ),
        (
            lambda path: AttackRequest([], ["data.path=x"], "quick", 3),
            "that is a task's; give it by --task",
        ),
        (
            lambda path: AttackRequest([], ["training.momentum=0.9"], "quick", 3, task="digits"),
            "clients train by plain SGD here",
        ),
        (lambda path: AttackRequest([], [], "quick", 3, task="digts"), 'did you mean "digits"'),
        (
            lambda path: AttackRequest(["weak-masks-one-scalar"], [], "quick", 3, task="digits"),
            "nothing can be played on digits; not applicable: weak masks",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_line(folder, tmp_path, request_of, said):
    with pytest.raises(ConfigError) as refused:
        attack_run(request_of(folder), tmp_path / "out")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()
