"""Attackers that know the rule: their updates, and rules that stop other attackers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import POOLED, rows_of
from zerosum.simulations.attacks.poisoning.backdoors import BadNets
from zerosum.simulations.attacks.poisoning.goals import DIRICHLET_CLIENTS, IID_CLIENTS, RULES
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained
from zerosum.simulations.attacks.poisoning.opposing import SignFlip
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting
from zerosum.simulations.attacks.poisoning.tailored import Tailored, TailoredBackdoor

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = PoisonedSetting(clients=15, rounds=2, hidden=4)
RULE = {rule.name: rule for rule in RULES}


def played(attack: Any, protection: Defense) -> tuple[PoisonView, np.ndarray]:
    """Return an attack's view in a small round, and its updates."""
    seen = []

    class Seen(type(attack)):  # type: ignore[misc]
        def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
            seen.append((view, super().craft(view, rng)))
            return seen[-1][1]

    replace(SMALL, rounds=1).play(Seen(), protection, 0)
    return seen[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "least"), [(Tailored(), 2), (TailoredBackdoor(), 2), (SignFlip(), 0)]
)
def test_krum_selects_updates_rehearsed_on_imagined_peers(attack: Any, least: int) -> None:
    """Two rounds of four: a miss shrinks the next update. A loud one is never selected."""
    view: Any = replace(SMALL, rounds=4).play(attack, RULE["Krum"], 0).view
    moved = np.diff([*view.vectors, view.final], axis=0)
    taken = [
        np.allclose(change, sent[0], atol=1e-5)
        for change, sent in zip(moved, view.sent, strict=True)
    ]
    assert len(taken) == 4
    assert sum(taken) >= least
    assert any(taken) is (least > 0)


@pytest.mark.slow
def test_all_colluders_send_one_update_whose_scale_depends_on_the_rule() -> None:
    scales = []
    for name in ("Krum", "median"):
        view, sent = played(Tailored(), RULE[name])
        assert view.honest is not None
        assert (sent == sent[0]).all()
        mean = view.honest.mean(axis=0)
        away = sent[0] - mean
        cosine = away @ mean / np.linalg.norm(away) / np.linalg.norm(mean)
        assert cosine == pytest.approx(-1.0)
        scales.append(float(np.linalg.norm(away)))
    assert scales[1] > 2 * scales[0]  # a median follows, however far


@pytest.mark.slow
def test_the_backdoor_s_direction_is_from_honest_to_poisoned_updates() -> None:
    attack = TailoredBackdoor()
    view, sent = played(attack, RULE["multi-Krum"])
    assert view.honest is not None
    rng = np.random.default_rng(5)
    poisoned = [
        trained(view, *attack.poisoned(*pair), rng)
        for pair in zip(view.inputs, view.labels, strict=True)
    ]
    towards = np.mean(poisoned, axis=0) - view.honest.mean(axis=0)
    away = sent[0] - view.honest.mean(axis=0)
    # Not 1: batches come in another order.
    assert away @ towards > 0.9 * np.linalg.norm(away) * np.linalg.norm(towards)


def test_the_view_holds_the_rule_only_where_known() -> None:
    seen = []

    class Ignorant(SignFlip):
        def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
            seen.append(view.server)
            return super().craft(view, rng)

    replace(SMALL, rounds=1).play(Ignorant(), RULE["Krum"], 0)
    assert seen == [None]
    view, _ = played(Tailored(), RULE["Krum"])
    assert view.server is not None
    assert (view.server.rule, view.server.rule_malicious) == ("krum", 4)


def pooled(cells: list[Cell]) -> dict[tuple[str, str], float]:
    rows = rows_of(cells, play_all(cells, seeds=(0, 1, 2), workers=1))
    first = {cell.attack.metrics[0].name for cell in cells}
    return {
        (row.attack, row.protection): row.value
        for row in rows
        if row.seed == POOLED and row.metric in first and row.value is not None
    }


@pytest.mark.slow
def test_a_tailored_backdoor_passes_krum_and_fltrust_not_median_and_bulyan() -> None:
    names = ("Krum", "FLTrust", "median", "Bulyan")
    attacks = (BadNets(), TailoredBackdoor())
    found = pooled([Cell(a, Case(IID_CLIENTS, RULE[name])) for a in attacks for name in names])
    for name in names:
        assert found["backdoor by data", name] < 0.25
    for name, passes in zip(names, (True, True, False, False), strict=True):
        assert (found["tailored backdoor", name] > 0.4) is passes, name
        assert passes or found["tailored backdoor", name] < 0.1


@pytest.mark.slow
def test_where_clients_differ_multi_krum_stops_a_sign_flip_and_no_tailored_attack() -> None:
    cells = [
        Cell(one, Case(DIRICHLET_CLIENTS, RULE["multi-Krum"])) for one in (SignFlip(), Tailored())
    ]
    found = pooled(cells)
    assert found["sign flip", "multi-Krum"] > found["tailored to the rule", "multi-Krum"] + 0.1
