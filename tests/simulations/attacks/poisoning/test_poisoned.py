"""Runs with malicious clients: their knowledge, their code, and the run's epsilon."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from client_answers import answer_by
from narrowed import present, view_of
from scipy.optimize import brentq
from scipy.stats import norm
from view_parts import parts

from zerosum.client.protocol.protection import Protection as Envelope
from zerosum.client.spec import DataSpec, EncodingSpec, ModelSpec, PrivacySpec
from zerosum.client.task import ClientInfo, resolve_task
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.harness.to_specs import DELTA
from zerosum.simulations.attacks.poisoning.goals import Ruin, honest_updates
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained, unclipped
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting, _Run

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = PoisonedSetting(malicious=2, clients=5, rounds=2, hidden=4, batch_size=100)
PLAIN = Defense("plain")
CLIPPED = Defense("clip", clip=0.1)
MASKED = Defense("masked", masking="double")


@dataclass(frozen=True)
class Times(Ruin):
    """Send multiples of honest updates."""

    factor: float = 1.0
    name: ClassVar[str] = "times"
    adaptive: ClassVar[str] = "no"
    seen: list[PoisonView] = field(default_factory=list)

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        self.seen.append(view)
        return self.factor * honest_updates(view)


def final(attack: Ruin, protection: Defense, setting: PoisonedSetting = SMALL) -> np.ndarray:
    view: Any = setting.play(attack, protection, 0).view
    assert view.final is not None
    vector: np.ndarray = view.final
    return vector


@pytest.mark.slow
@pytest.mark.parametrize("protection", [PLAIN, CLIPPED, Defense("median", rule="median")])
def test_honest_updates_of_malicious_clients_change_no_bit(protection: Defense) -> None:
    scene = SMALL.play(Times(), protection, 0)
    without = scene.truth["without"]
    assert np.array_equal(view_of(scene).final, without)
    assert not np.array_equal(final(Times(factor=-1.0), protection), without)


@pytest.mark.slow
def test_masks_do_not_protect_the_server_from_clients() -> None:
    attack = Times(factor=-5.0)
    assert np.array_equal(final(attack, MASKED), final(attack, PLAIN))


@pytest.mark.slow
def test_the_view_holds_the_malicious_clients_own_data_alone() -> None:
    attack = Times()
    SMALL.play(attack, PLAIN, 0)
    data = DataSpec(clients=SMALL.clients, pool=2)
    task = resolve_task("mnist5k", data, ModelSpec(hidden=[SMALL.hidden]), 0)
    arrays = [part for part in parts(attack.seen[-1]) if isinstance(part, np.ndarray)]
    for index in range(SMALL.clients):
        inputs, _ = task.data(ClientInfo(index, SMALL.clients))  # type: ignore[misc]
        record = inputs[0].numpy().tobytes()
        present = any(record in array.tobytes() for array in arrays)
        assert present == (index < SMALL.malicious), index


@pytest.mark.slow
def test_training_on_own_records_gives_the_honest_update() -> None:
    attack = Times()
    setting = replace(SMALL, epochs=3, batch_size=1000)  # whole batches have no order
    setting.play(attack, PLAIN, 0)
    view = attack.seen[0]
    update = trained(view, view.inputs[1], view.labels[1], np.random.default_rng(0))
    assert np.allclose(update, honest_updates(view)[1], atol=1e-5)
    assert not np.allclose(update, honest_updates(view)[0], atol=1e-3)


@pytest.mark.slow
def test_the_view_is_sealed_and_grows_by_a_model_a_round() -> None:
    attack = Times()
    scene = SMALL.play(attack, PLAIN, 0)
    assert [view.vectors.shape[0] for view in attack.seen] == [1, 2]
    assert [view.round for view in attack.seen] == [1, 2]
    assert [len(view.sent) for view in attack.seen] == [0, 1]
    assert np.array_equal(attack.seen[1].sent[0], honest_updates(attack.seen[0]))
    with pytest.raises(ValueError, match="read-only"):
        attack.seen[0].vectors[0, 0] = 1.0
    after: Any = sealed(scene.view)
    assert after.final is not None
    with pytest.raises(ValueError, match="the run is over"):
        honest_updates(after)


def test_the_clip_binds_malicious_clients_without_own_code() -> None:
    """One client of five: the average moves by a fifth of the clip, or by what it wants."""
    setting = replace(SMALL, malicious=1, rounds=1)

    def moved(own_code: bool) -> float:
        scene = setting.play(Times(factor=50.0, own_code=own_code), CLIPPED, 0)
        assert view_of(scene).abandoned == 0
        return float(np.linalg.norm(view_of(scene).final - scene.truth["without"]))

    assert moved(own_code=False) <= 2 * 0.1 / 5 + 1e-6
    assert moved(own_code=True) > 0.5


def test_own_code_stays_within_the_server_s_check() -> None:
    envelope = Envelope.build(
        PrivacySpec(model="none", clip=0.1),
        EncodingSpec(bits=16),
        cohort=8,
        dimension=3,
        rotation_seed=bytes(32),
    )
    sent = unclipped(np.array([1e9, -0.15, 0.0]), envelope, malicious=2)
    assert sent.tolist() == [2 * envelope.encoding.bound, round(-0.15 / envelope.encoding.step), 0]
    assert envelope.is_plausible(2 * sent, 8, noised=True)
    assert not envelope.is_plausible(5 * sent, 8, noised=True)


def test_a_rule_under_masks_is_not_applicable_with_the_library_s_reason() -> None:
    refused = Defense("masked + median", masking="double", rule="median")
    outcome = play(0, Cell(Times(), Case(SMALL, refused)), 0)
    assert outcome.status == "not applicable"
    assert 'server.rule = "median" needs secagg.protocol = "none"' in outcome.note


@pytest.mark.slow
def test_a_failing_attack_fails_the_cell() -> None:
    @dataclass(frozen=True)
    class Broken(Times):
        def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
            return np.zeros((1, 3))

    outcome = play(0, Cell(Broken(), Case(SMALL, PLAIN)), 0)
    assert outcome.status == "failed"
    assert "an array of shape (1, 3)" in outcome.note


@pytest.mark.slow
def test_an_untrained_target_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> np.ndarray:
        raise OSError("gone")

    answer_by(monkeypatch, broken)
    with pytest.raises(NothingLearntError, match="the model under attack: all 2 rounds were"):
        _Run(SMALL, PLAIN, 77).honest()


def test_the_note_counts_refused_sums() -> None:
    guess = Times().run(PoisonView(Times.threat, PLAIN, rounds=3, abandoned=2), None)  # type: ignore[arg-type]
    assert "refused 2 of 3 sums" in guess.notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("malicious", "clients", "own_code"), [(2, 5, False), (2, 5, True), (1, 3, False)]
)
def test_epsilon_counts_the_noise_of_honest_clients_alone(
    malicious: int, clients: int, own_code: bool
) -> None:
    """(n - k) / n of the noise, by the Gaussian mechanism in closed form."""
    noised = Defense("noised", clip=1.0, noise="distributed", sigma=2.0, masking="double")
    setting = replace(SMALL, malicious=malicious, clients=clients)
    epsilon = present(setting.play(Times(own_code=own_code), noised, 0).epsilon)
    left = 2.0 * math.sqrt((clients - malicious) / clients)
    assert epsilon == pytest.approx(gaussian_epsilon(left, setting.rounds), rel=0.01)
    assert epsilon > 1.15 * gaussian_epsilon(2.0, setting.rounds)  # what outsiders see


def gaussian_epsilon(sigma: float, times: int, delta: float = DELTA) -> float:
    """Balle and Wang (2018), theorem 8, of so many sums as one."""
    mu = math.sqrt(times) / sigma

    def excess(epsilon: float) -> float:
        above = norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)
        return float(above) - delta

    return float(brentq(excess, 1e-6, 100.0))


@pytest.mark.slow
def test_epsilon_of_local_noise_does_not_depend_on_colluders() -> None:
    local = Defense("local", clip=1.0, noise="local", sigma=4.0)
    epsilon = replace(SMALL, rounds=1).play(Times(), local, 0).epsilon
    replaced = gaussian_epsilon(4.0 / 2, 1)  # one update for another: twice the clip
    assert epsilon == pytest.approx(replaced, rel=0.01)


@pytest.mark.slow
def test_epsilon_is_infinite_after_rounds_without_noise() -> None:
    noised = Defense("noised", clip=1.0, noise="distributed", sigma=1.0, masking="double")
    setting = replace(SMALL, rounds=1, before=1)
    assert setting.play(Times(), noised, 0).epsilon == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("malicious", [1, 3])
def test_the_threat_counts_the_cell_s_malicious_clients(malicious: int) -> None:
    """Whatever the attack says of itself: four."""
    attack = Times()
    setting = replace(SMALL, malicious=malicious, rounds=2)
    after: Any = setting.play(attack, PLAIN, 0).view
    for view in (*attack.seen, after):
        assert (view.threat.colluders, view.threat.rounds) == (malicious, 2)
        assert view.threat.role == attack.threat.role
        assert view.threat.knows == attack.threat.knows


@pytest.mark.slow
def test_a_run_starts_from_the_model_of_the_honest_rounds() -> None:
    attack = Times()
    replace(SMALL, before=2, rounds=1).play(attack, PLAIN, 0)
    assert np.array_equal(attack.seen[0].vectors[0], final(Times(), PLAIN))
