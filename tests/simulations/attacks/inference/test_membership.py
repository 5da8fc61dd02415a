"""Membership inference: views, reference models in files, and scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from view_parts import parts

from zerosum.client.task import TaskError
from zerosum.client.training.flat_parameters import load_vector
from zerosum.simulations.attacks.harness.interface import Case, Defense, NotApplicable
from zerosum.simulations.attacks.harness.metrics import area, rate
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.inference import membership, trained
from zerosum.simulations.attacks.inference.membership import Lira, LossThreshold, confidences
from zerosum.simulations.attacks.inference.references import (
    MANIFEST,
    ReferenceModelError,
    read_references,
)
from zerosum.simulations.attacks.inference.trained import (
    RecordPool,
    TrainedSetting,
    noise_defense,
    reference_folder,
    references_of,
    train,
)
from zerosum.simulations.attacks.settings import model_view

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Defense("plain")
SMALL = TrainedSetting(
    clients=3, records=10, rounds=2, epochs=10, hidden=(), task="digits", pool=1, references=4
)


def scene_of(attack=Lira(), protection=PLAIN, setting=SMALL, seed=0):  # noqa: B008
    return setting.play(attack, protection, seed)


def test_half_of_the_candidates_are_members_in_random_order() -> None:
    pools = [RecordPool.drawn(SMALL, seed) for seed in range(20)]
    members = np.stack([pool.members for pool in pools])
    assert (members.sum(axis=1) == SMALL.held).all()
    assert 0.05 < members.mean(axis=0).min() <= members.mean(axis=0).max() < 0.95


@pytest.mark.slow
def test_the_target_is_trained_on_the_members_alone() -> None:
    """A model that is trained long on few records is sure of all of them, not of all others."""
    long = replace(SMALL, rounds=10, epochs=30)
    scene, rows = scene_of(LossThreshold(), setting=long), RecordPool.drawn(long, 0)
    scores = confidences(scene.view.loaded(), rows.candidates.inputs, rows.candidates.targets)
    assert (scores[scene.truth["members"]] > 0).all()
    assert not (scores[~scene.truth["members"]] > 0).all()


def test_the_view_holds_no_membership() -> None:
    scene = scene_of()
    for part in parts(sealed(scene.view)):
        for hidden in scene.truth.values():
            if isinstance(part, np.ndarray) and part.shape == hidden.shape:
                assert not np.array_equal(part, hidden)


def test_the_view_holds_only_what_the_threat_model_knows() -> None:
    view = scene_of(LossThreshold()).view
    assert view.references is None
    assert view.auxiliary_inputs is None
    assert scene_of(Lira()).view.references.shape[0] == SMALL.references


def test_every_candidate_is_in_half_of_the_reference_models() -> None:
    holds = scene_of().view.reference_holds
    assert (holds.sum(axis=0) == SMALL.references // 2).all()
    assert (holds.sum(axis=1) == SMALL.held).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "protection",
    [PLAIN, replace(noise_defense("distributed", 0.5), confirm=False), noise_defense("local", 0.5)],
    ids=lambda protection: protection.name,
)
def test_reference_models_are_trained_as_the_target_is(protection) -> None:
    """On the target's records and coins, the reference's procedure gives the target."""
    pool = RecordPool.drawn(SMALL, 0)
    records = pool.candidates.take(np.flatnonzero(pool.members))
    target = train(SMALL, protection, records, 5)
    reference = train(SMALL, protection, records, 5, protocol="ideal")
    assert np.array_equal(target.vector, reference.vector)
    other = train(SMALL, replace(protection, clip=0.3), records, 5, protocol="ideal")
    assert not np.array_equal(target.vector, other.vector)


@pytest.mark.slow
def test_epsilon_is_finite_with_noise_alone() -> None:
    assert scene_of(LossThreshold()).epsilon == np.inf
    weak, strong = (
        scene_of(LossThreshold(), noise_defense("local", sigma)).epsilon for sigma in (0.5, 2.0)
    )
    assert 0 < strong < weak < np.inf


@pytest.mark.slow
def test_a_deleted_reference_model_is_an_error() -> None:
    setting = replace(SMALL, lr=0.11)
    whole = references_of(setting, PLAIN, 0)
    assert len(whole.vectors) == setting.references
    folder = reference_folder(setting, PLAIN, 0)
    gone = folder / "reference-0002.safetensors"
    gone.unlink()
    with pytest.raises(ReferenceModelError, match=r"reference-0002\.safetensors is missing"):
        references_of(setting, PLAIN, 0)
    outcome = play(0, Cell(Lira(), Case(setting, PLAIN)), 0)
    assert outcome.status == "failed"
    assert gone.name in outcome.note


@pytest.mark.slow
def test_a_changed_reference_model_and_a_lost_manifest_are_errors() -> None:
    setting = replace(SMALL, lr=0.12)
    folder = reference_folder(setting, PLAIN, 0)
    file = folder / "reference-0001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ReferenceModelError, match=r"reference-0001.* was changed"):
        references_of(setting, PLAIN, 0)
    (folder / MANIFEST).unlink()
    with pytest.raises(ReferenceModelError, match=r"manifest\.json is missing"):
        references_of(setting, PLAIN, 0)


def test_reference_models_of_another_protection_are_refused() -> None:
    folder = reference_folder(SMALL, PLAIN, 0)
    with pytest.raises(ReferenceModelError, match="was trained as another"):
        read_references(folder, "another")


@pytest.mark.slow
def test_the_note_states_the_cost_of_reference_models(monkeypatch) -> None:
    with monkeypatch.context() as clock:
        ticks = iter(range(0, 10**6, 7))
        clock.setattr(trained.time, "process_time", lambda: next(ticks))
        models = references_of(replace(SMALL, lr=0.13), PLAIN, 0)
    assert models.cpu_seconds > 0
    assert models.cpu_seconds % 7 == 0
    outcome = play(0, Cell(Lira(), Case(replace(SMALL, lr=0.13), PLAIN)), 0)
    assert f"LiRA: a seed's reference models were trained in {models.cpu_seconds:g}" in outcome.note


@pytest.mark.slow
def test_reference_models_are_shared_across_masks_and_not_across_noise() -> None:
    masked = Defense("masked", masking="double")
    assert reference_folder(SMALL, masked, 0) == reference_folder(SMALL, PLAIN, 0)
    noised = noise_defense("local", 0.5)
    assert reference_folder(SMALL, noised, 0) != reference_folder(SMALL, PLAIN, 0)


def test_all_attacks_on_a_scene_share_one_target(monkeypatch) -> None:
    scene_of()
    monkeypatch.setattr(trained, "train", None)
    for attack in (LossThreshold(), Lira(online=False), Lira()):
        assert play(0, Cell(attack, Case(SMALL, PLAIN)), 0).status == "value"


@pytest.mark.parametrize("attack", [LossThreshold(), Lira(online=False), Lira()])
def test_permuting_the_candidates_permutes_the_scores(attack) -> None:
    view, rng = scene_of(attack).view, np.random.default_rng(0)
    order = rng.permutation(len(view.candidate_labels))
    holds = view.reference_holds
    permuted = replace(
        view,
        candidate_inputs=view.candidate_inputs[order],
        candidate_labels=view.candidate_labels[order],
        reference_holds=None if holds is None else holds[:, order],
    )
    before, after = (attack.run(v, rng)["scores"] for v in (view, permuted))
    assert np.array_equal(before[order], after)
    assert len(np.unique(before)) > 50


def test_a_dropout_model_scores_the_same_twice() -> None:
    inputs, labels = np.random.default_rng(0).random((9, 5), np.float32), np.arange(9) % 3
    model = nn.Sequential(nn.Linear(5, 20), nn.Dropout(0.5), nn.Linear(20, 3)).train()
    with torch.no_grad():
        assert not torch.equal(model(torch.tensor(inputs)), model(torch.tensor(inputs)))
    first = confidences(model, inputs, labels)
    model.train()
    assert np.array_equal(first, confidences(model, inputs, labels))


def test_confidences_are_log_odds_of_a_record_s_class() -> None:
    model = nn.Linear(4, 3)
    inputs, labels = np.random.default_rng(1).random((6, 4), np.float32), np.array([0, 1, 2] * 2)
    p = model(torch.tensor(inputs)).double().softmax(1).detach().numpy()[np.arange(6), labels]
    assert np.allclose(confidences(model, inputs, labels), np.log(p / (1 - p)))


def test_a_model_with_running_statistics_is_refused() -> None:
    """They are no part of the released vector, so its scores would be another model's."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    count = sum(value.numel() for value in model.parameters())
    with pytest.raises(TaskError, match="keeps running statistics"):
        load_vector(model, np.zeros(count, np.float32))


def test_a_view_of_a_model_with_running_statistics_is_refused(monkeypatch) -> None:
    view = scene_of(LossThreshold()).view
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    monkeypatch.setattr(model_view, "make_model", lambda *given, **named: model)
    with pytest.raises(TaskError, match="keeps running statistics"):
        LossThreshold().run(view, np.random.default_rng(0))


def test_lira_separates_gaussians_that_a_threshold_cannot(monkeypatch) -> None:
    """Records of very different difficulty: membership moves each a little, in its own place."""
    rng = np.random.default_rng(0)
    members, hard = rng.random(400) < 0.5, rng.normal(0, 10, 400)
    holds = np.stack([rng.permutation(16) < 8 for _ in range(400)], axis=1)
    rows = np.vstack([members[None], holds])
    seen = hard + 1.5 * rows + 0.5 * rng.normal(size=rows.shape)
    answers = iter(seen)
    monkeypatch.setattr(membership, "confidences", lambda *given: next(answers))
    view = scene_of().view
    vectors = np.tile(view.vector, (16, 1))
    scores = Lira().run(replace(view, references=vectors, reference_holds=holds), rng)["scores"]
    assert area(scores[members], scores[~members]) > 0.95
    assert area(seen[0][members], seen[0][~members]) < 0.65


@pytest.mark.parametrize("online", [True, False])
def test_reference_models_that_are_all_alike_tell_nothing(online) -> None:
    """As untrained ones of a model that begins at zero: every score has a value."""
    view = scene_of().view
    alike = np.repeat(view.references[:1], len(view.references), axis=0)
    rng = np.random.default_rng(0)
    scores = Lira(online=online).run(replace(view, references=alike), rng)["scores"]
    assert not scores.any()
    assert Lira(online=online).run(view, rng)["scores"].any()  # the control


def test_constant_scores_have_the_false_positive_rate() -> None:
    assert rate(np.zeros(50), np.zeros(300), 0.01) == pytest.approx(0.01)
    assert rate(np.array([2.0, 0.0]), np.arange(300) / 300, 0.01) == 0.5


@pytest.mark.parametrize("references", [2, 5])
def test_too_few_or_odd_reference_models_are_refused(references) -> None:
    with pytest.raises(ValueError, match=f"references = {references}: give an even number from 4"):
        replace(SMALL, references=references)


@pytest.mark.parametrize("changed", [{"rule": "median"}, {"budget": 3}])
def test_a_protection_that_the_setting_would_ignore_is_refused(changed) -> None:
    with pytest.raises(NotApplicable, match=f"plays no {next(iter(changed))}"):
        scene_of(protection=replace(PLAIN, **changed))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_lira_beats_the_loss_threshold_on_an_overfit_target() -> None:
    setting = TrainedSetting()
    attacks = (LossThreshold(), Lira(online=False), Lira())
    strong = noise_defense("local", 1.0)
    cells = [Cell(attack, Case(setting, p)) for p in (PLAIN, strong) for attack in attacks]
    rows = [row for row in rows_of(cells, play_all(cells, (0, 1, 2), 1)) if row.seed == "pooled"]
    found = {(row.adaptive, row.protection, row.metric): row for row in rows}

    def value(attack, metric="AUC", protection="plain"):
        return found[attack.adaptive, protection, metric].value

    loss, offline, online = attacks
    assert value(online) >= value(loss) + 0.05
    assert value(offline) >= value(loss) + 0.05
    assert value(online, "TPR at 1 % FPR") >= 3 * value(loss, "TPR at 1 % FPR")
    assert all(found[a.adaptive, strong.name, "AUC"].at_baseline for a in attacks)
