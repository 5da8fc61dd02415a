"""Request binding: a client asked something else than its peers."""

from typing import cast

import numpy as np
import pytest
from narrowed import hits_of, view_of

from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.registry import built_in, choose
from zerosum.simulations.attacks.protocol.asked_sums import AskedSumsSetting
from zerosum.simulations.attacks.protocol.request_binding import BOUND, HOW, LOOSE, RequestBinding

STOPPED = {
    "arrays": "exceeds what they can send",
    "settings": "exceeds what they can send",
    "numbers": "after contribute, 0 clients are left",
}


def outcome(lie, protection, **setting):
    attack = RequestBinding(lie=lie, trials=1)
    case = Case(AskedSumsSetting(lie, trials=1, **setting), protection)
    return play(0, Cell(attack, case), 0)


def hits(scored):
    return hits_of(scored, "update recovered").tolist()


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("lie", HOW)
def test_an_incomplete_digest_reveals_the_update(lie, one_thread):
    played = outcome(lie, LOOSE)
    assert (played.status, hits(played.units), hits(played.baseline)) == ("value", [True], [False])


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("lie", HOW)
def test_masks_bound_to_the_whole_request_reveal_nothing(lie, one_thread):
    played = outcome(lie, BOUND)
    assert hits(played.units) == [False]
    if lie in STOPPED:
        assert played.status == "stopped"
        assert STOPPED[lie] in played.note
    else:  # no node sees the lie: all train alike, and the sum is an ordinary one
        assert (played.status, played.note) == ("value", "")


@pytest.mark.slow
def test_an_honest_server_gets_equal_sums_from_bound_and_unbound_nodes(one_thread):
    """The control lacks the binding alone."""
    attack = type("Honest", (), {"threat": RequestBinding.threat})()
    for lie in ("group id", "numbers"):
        setting = AskedSumsSetting(lie, clients=4, trials=1)
        bound, other = (setting.play(attack, defense, 0) for defense in (BOUND, LOOSE))
        np.testing.assert_array_equal(bound.truth["updates"], other.truth["updates"])
        steps = 4 * bound.truth["steps"]
        assert (np.abs(view_of(bound).totals - view_of(other).totals) <= steps).all()
        assert np.abs(view_of(bound).totals).max() > 0.01


def test_request_binding_is_registered_by_name():
    attacks = cast(list[RequestBinding], choose(["request-binding"]))
    assert [each.lie for each in attacks] == list(HOW)
    assert sum(each.name == "request binding" for each in built_in()) == len(HOW)
    (found,) = {
        play(0, Cell(RequestBinding(), Case(AskedSumsSetting("arrays"), protection)), 0).status
        for protection in (Defense("plain"), Defense("noised", "double", noise="local"))
    }
    assert found == "not applicable"
