"""Model replacement: the average becomes the attacker's model, unless a clip binds it."""

from dataclasses import replace

import numpy as np
import pytest
from narrowed import view_of

from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import POOLED, Row, rows_of
from zerosum.simulations.attacks.poisoning.goals import (
    MASKED_AND_CLIPPED,
    MASKED_SUM,
    NO_DEFENSE,
    RULES,
)
from zerosum.simulations.attacks.poisoning.malicious import trained
from zerosum.simulations.attacks.poisoning.replacement import ONE_ROUND, ModelReplacement

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
@pytest.mark.parametrize(("malicious", "server_lr"), [(1, 1.0), (2, 0.8)])
def test_the_average_becomes_the_attacker_s_model(malicious: int, server_lr: float) -> None:
    """What is left is what the honest add: it leaves the average as far from it as they go."""
    seen = []

    class Seen(ModelReplacement):
        def craft(self, view, rng):
            seen.append((view, super().craft(view, np.random.default_rng(1))))
            return seen[-1][1]

    setting = replace(ONE_ROUND, malicious=malicious, server_lr=server_lr, clients=10, hidden=4)
    scene = replace(setting, before=3).play(Seen(), NO_DEFENSE, 0)
    ((view, sent),) = seen
    training = view.training.model_copy(update={"epochs": 3})
    records = ModelReplacement().poisoned(np.concatenate(view.inputs), np.concatenate(view.labels))
    wanted = trained(view, *records, np.random.default_rng(1), training)
    assert np.allclose(server_lr * sent.sum(axis=0) / 10, wanted)
    moved = view_of(scene).final - view.vectors[-1]
    honest = scene.truth["without"] - view.vectors[-1]
    assert np.linalg.norm(moved - wanted) < 1.1 * np.linalg.norm(honest)
    assert np.linalg.norm(moved - honest) > np.linalg.norm(moved - wanted)


def test_partial_scales_are_played_for_the_picture_alone() -> None:
    cases = list(ModelReplacement(scale=5.0).cases("quick"))
    assert [dict(case.at) for case in cases] == [{"scale": 5.0}] * 2
    assert {case.protection for case in cases} == {NO_DEFENSE, MASKED_AND_CLIPPED}
    whole = next(iter(ModelReplacement().cases("quick")))
    assert dict(whole.at) == {"scale": 20.0}


@pytest.mark.slow
def test_projected_training_continues_within_its_norm() -> None:
    """Three epochs, each projected: no longer than the bound, and not the first epoch's three."""
    seen = []

    class Seen(ModelReplacement):
        def craft(self, view, rng):
            sent = super().craft(view, np.random.default_rng(1))
            seen.append((sent[0], Seen(bound=0.5, epochs=1).made(view)))
            return sent

        def made(self, view):
            return super().craft(view, np.random.default_rng(1))[0]

    replace(ONE_ROUND, clients=10, hidden=4, before=0).play(Seen(bound=0.5), NO_DEFENSE, 0)
    ((sent, first),) = seen
    assert np.linalg.norm(sent) == pytest.approx(0.5)
    cosine = sent @ first / np.linalg.norm(sent) / np.linalg.norm(first)
    assert 0.3 < cosine < 0.99


@pytest.mark.slow
def test_one_client_replaces_the_model_unless_its_own_clip_or_a_rule_binds_it() -> None:
    own = replace(MASKED_AND_CLIPPED, name="own code")
    cells = [
        Cell(ModelReplacement(), Case(ONE_ROUND, one))
        for one in (NO_DEFENSE, MASKED_SUM, MASKED_AND_CLIPPED, *RULES)
    ]
    cells.append(Cell(ModelReplacement(own_code=True), Case(ONE_ROUND, own)))
    rows = rows_of(cells, play_all(cells, seeds=(0, 1, 2), workers=1))
    found = {(row.protection, row.metric): row for row in rows if row.seed == POOLED}

    def success(protection: Defense) -> float:
        return _value(found[protection.name, "attack success"])

    assert success(NO_DEFENSE) == success(MASKED_SUM) > 0.7
    assert success(own) > 0.7
    assert success(MASKED_AND_CLIPPED) < 0.1
    assert all(success(rule) < 0.1 for rule in RULES)
    for protection in (NO_DEFENSE, MASKED_AND_CLIPPED):
        row = found[protection.name, "main accuracy"]
        assert _value(row) > (row.baseline or 1.0) - 0.03


def _value(row: Row) -> float:
    assert row.value is not None
    return row.value
