"""Backdoors: triggers, poisoned records and success."""

import numpy as np
import pytest

from zerosum.client.spec import ModelSpec
from zerosum.client.training.flat_parameters import parameters_to_vector
from zerosum.simulations.attacks.harness.interface import Case, Guess
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import POOLED, rows_of
from zerosum.simulations.attacks.poisoning.backdoors import (
    BARS,
    BadNets,
    DistributedBackdoor,
    stamped,
)
from zerosum.simulations.attacks.poisoning.goals import IID_CLIENTS, NO_DEFENSE, RULES, Share
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained
from zerosum.simulations.data.models import make_model

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = (1, 14, 14)
MODEL = ModelSpec(hidden=[8])
RNG = np.random.default_rng(0)
BLANK = np.zeros((5, *SHAPE), np.float32)
START = parameters_to_vector(make_model(MODEL, SHAPE, 10, seed=0))
VIEW = PoisonView(
    BadNets.threat,
    NO_DEFENSE,
    clients=20,
    model=MODEL,
    input_shape=SHAPE,
    classes=10,
    vectors=START[None],
    inputs=RNG.uniform(0, 0.5, (4, 20, *SHAPE)).astype(np.float32),
    labels=RNG.integers(1, 10, (4, 20)),
)


def test_the_bars_of_a_trigger_do_not_overlap() -> None:
    parts = [stamped(BLANK, [i]) for i in range(len(BARS))]
    assert np.array_equal(sum(parts), stamped(BLANK))
    assert [part[0].sum() for part in parts] == [3.0] * 4
    assert not BLANK.any()


def test_only_poisoned_records_carry_trigger_and_target() -> None:
    attack = BadNets(target=7, fraction=0.25)
    labels = np.arange(1, 21) % 7
    inputs, wanted = attack.poisoned(VIEW.inputs[0], labels)
    assert (wanted[:5] == 7).all()
    assert np.array_equal(wanted[5:], labels[5:])
    assert np.array_equal(inputs[:5], stamped(VIEW.inputs[0, :5]))
    assert np.array_equal(inputs[5:], VIEW.inputs[0, 5:])


def test_a_distributed_trigger_gives_each_client_one_bar() -> None:
    attack, whole = DistributedBackdoor(), BadNets()
    sent = attack.craft(VIEW, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    for i in range(4):
        records = attack.poisoned(VIEW.inputs[i], VIEW.labels[i], [i])
        assert np.array_equal(sent[i], trained(VIEW, *records, rng))
    assert not np.allclose(sent, whole.craft(VIEW, np.random.default_rng(1)), atol=1e-3)


def test_success_counts_triggered_records_of_other_classes() -> None:
    """A model of one class is right where that is true, and a success everywhere or nowhere."""
    truth = {
        "inputs": VIEW.inputs[0],
        "labels": np.array([0] * 5 + [3] * 15),
        "classes": np.array(10),
        "hidden": np.array(8),
        "without": _says(3),
    }
    for answer, success, accuracy in ((0, 1.0, 0.25), (3, 0.0, 0.75), (5, 0.0, 0.0)):
        scores = BadNets().score(Guess({"model": _says(answer)}), truth)
        figures = {name: float(units.values[0]) for name, units in scores.items()}
        assert figures == {"attack success": success, "main accuracy": accuracy}
    nothing = BadNets().score(BadNets().baseline(VIEW, RNG), truth)
    assert nothing["main accuracy"].values[0] == 0.75


def test_the_interval_of_a_share_is_student_s_within_what_is_possible() -> None:
    found = Share(np.array([0.9, 0.95, 1.0])).figure()
    assert found.high == 1.0
    assert found.low == pytest.approx(0.95 - 4.303 * 0.05 / 3**0.5, abs=1e-4)
    alone = Share(np.array([0.5])).figure()
    assert (alone.low, alone.high) == (0.0, 1.0)


def _says(answer: int) -> np.ndarray:
    """Return a model that gives every record this class."""
    vector = np.zeros_like(START)
    vector[-10 + answer] = 1.0
    return vector


@pytest.mark.slow
def test_a_fifth_of_clients_poisons_the_mean_with_data_alone_and_not_multi_krum() -> None:
    rules = {one.name: one for one in (NO_DEFENSE, *RULES)}
    cells = [
        Cell(attack, Case(IID_CLIENTS, rules[name]))
        for attack in (BadNets(), DistributedBackdoor())
        for name in ("plain", "multi-Krum")
    ]
    rows = rows_of(cells, play_all(cells, seeds=(0, 1, 2), workers=1))
    found = {
        (row.attack, row.protection): row
        for row in rows
        if row.seed == POOLED and row.metric == "attack success"
    }
    for attack in ("backdoor by data", "distributed backdoor"):
        assert (found[attack, "plain"].value or 0) > 0.7
        assert found[attack, "multi-Krum"].value == pytest.approx(0.0, abs=0.05)
        assert (found[attack, "plain"].baseline or 0) < 0.05
