"""Rehearsal of a known rule, by the server's own function."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from zerosum.server.spec import ServerSpec
from zerosum.server.training import robust_rules
from zerosum.simulations.attacks.harness.interface import Defense
from zerosum.simulations.attacks.poisoning.adapting import Rehearsal, caution, rule_of
from zerosum.simulations.attacks.poisoning.directions import along
from zerosum.simulations.attacks.poisoning.goals import MASKED_AND_CLIPPED, NO_DEFENSE, RULES
from zerosum.simulations.attacks.poisoning.malicious import PoisonView
from zerosum.simulations.attacks.poisoning.tailored import KNOWS

KNOWN = np.random.default_rng(0).normal(0.5, 1.0, size=(4, 60))
GIVEN: dict[str, dict[str, Any]] = {
    "trimmed-mean": {"rule_malicious": 4},
    "krum": {"rule_malicious": 4},
    "multi-krum": {"rule_malicious": 4},
    "bulyan": {"rule_malicious": 4},
    "norm-bound": {"rule_bound": 2.0},
    "fltrust": {"rule_examples": 10},
}


def view_of(rule: str, protection: Defense = NO_DEFENSE) -> PoisonView:
    server = ServerSpec.model_validate({"rule": rule, **GIVEN.get(rule, {})})
    return PoisonView(KNOWS, protection, clients=20, server=server, honest=KNOWN)


def rehearsed(rule: str) -> tuple[Rehearsal, np.ndarray]:
    return Rehearsal.of(view_of(rule), np.random.default_rng(1)), along(KNOWN, "unit")


def outcome(rehearsal: Rehearsal, sent: np.ndarray) -> np.ndarray:
    return rehearsal.rule(np.concatenate([[sent] * 4, rehearsal.peers]))


def test_the_scale_against_krum_is_the_largest_that_krum_selects() -> None:
    rehearsal, way = rehearsed("krum")
    scale, mean = rehearsal.furthest(way), KNOWN.mean(axis=0)
    taken, beyond = mean + scale * way, mean + 1.05 * scale * way
    assert np.array_equal(outcome(rehearsal, taken), taken)
    assert not np.array_equal(outcome(rehearsal, beyond), beyond)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [one.rule for one in RULES])
def test_the_rehearsed_scale_moves_the_outcome_furthest(rule: str) -> None:
    rehearsal, way = rehearsed(rule)
    mean = KNOWN.mean(axis=0)

    def moved(scale: float) -> float:
        return float((outcome(rehearsal, mean + scale * way) - outcome(rehearsal, mean)) @ way)

    best = moved(rehearsal.furthest(way))
    assert best > 0.01
    assert max(moved(scale) for scale in np.geomspace(0.1, 300, 25)) < 1.15 * best


def test_the_scale_against_krum_is_smaller_than_against_a_mean() -> None:
    scales = {rule: rehearsed(rule)[0].furthest(along(KNOWN, "unit")) for rule in ("krum", "mean")}
    assert scales["mean"] > 10 * scales["krum"]


def test_a_rehearsed_mean_includes_the_clients_clip() -> None:
    far = np.full((1, 60), 100.0)
    for view, norm in ((view_of("mean", MASKED_AND_CLIPPED), 1.0), (view_of("norm-bound"), 2.0)):
        assert np.linalg.norm(rule_of(view)(far)) == pytest.approx(norm)
    assert np.array_equal(rule_of(view_of("mean"))(far), far[0])


def test_a_rehearsed_fltrust_trusts_the_colluders_mean() -> None:
    vectors = np.random.default_rng(2).normal(size=(20, 60))
    expected = robust_rules.fltrust(vectors, KNOWN.mean(axis=0))
    assert np.array_equal(rule_of(view_of("fltrust"))(vectors), expected)


def test_peers_have_the_spread_of_known_updates_and_follow_the_seed() -> None:
    peers = Rehearsal.of(view_of("krum"), np.random.default_rng(3)).peers
    assert peers.shape == (16, 60)
    away = (peers - KNOWN.mean(axis=0)) / KNOWN.std(axis=0, ddof=1)
    assert abs(away.mean()) < 0.1
    assert away.std() == pytest.approx(1.0, abs=0.1)
    again = Rehearsal.of(view_of("krum"), np.random.default_rng(3)).peers
    assert np.array_equal(peers, again)
    assert not np.array_equal(peers, Rehearsal.of(view_of("krum"), np.random.default_rng(4)).peers)


def test_an_unknown_rule_cannot_be_rehearsed() -> None:
    with pytest.raises(ValueError, match='add "rule" to what it knows'):
        rule_of(replace(view_of("krum"), server=None))


def test_caution_follows_krum_s_selection_and_no_other_rule() -> None:
    """The first round moved the model by the poisoned update, the second by another one."""
    sent = np.stack([KNOWN, KNOWN[::-1]])
    models = np.stack([0 * KNOWN[0], KNOWN[0], KNOWN[0] + KNOWN[1]]).astype(np.float32)
    krum = replace(view_of("krum"), sent=sent, vectors=models)
    assert caution(krum) == pytest.approx(1.1 * 0.8)
    assert caution(replace(krum, sent=sent[:1])) == pytest.approx(1.1)
    assert caution(replace(krum, sent=sent[:0])) == 1.0
    assert caution(replace(view_of("median"), sent=sent, vectors=models)) == 1.0
