"""A client that comes back on another node is found; nobody takes another one's place."""

import logging

import pytest
from flwr.app import Message

from zerosum.client import wire
from zerosum.server import greeting
from zerosum.server.config import ConfigError
from zerosum.server.greeting import Attendance, wait_for_nodes
from zerosum.server.spec import DeploymentSpec
from zerosum.simulations.grid import InProcessGrid

SPEC = DeploymentSpec(min_nodes=3, stage_timeout=0.05)


class Nodes(InProcessGrid):
    """Nodes that say which client they are: an index, nonsense, or nothing."""

    def __init__(self, claims):
        super().__init__(self.say, 1)
        self.claims, self.asked = claims, []

    def get_node_ids(self):
        return list(self.claims)

    def say(self, message, context):
        self.asked.append(message.metadata.dst_node_id)
        claim = self.claims[message.metadata.dst_node_id]
        return Message(wire.pack({"index": claim}), reply_to=message)

    def _is_lost(self, message):
        return self.claims[message.metadata.dst_node_id] is None

    def _context(self, node_id):
        return super()._context(1000)


@pytest.fixture
def met():
    grid = Nodes({11: 2, 12: 0, 13: 1})
    found = wait_for_nodes(grid, SPEC)
    assert found == {0: 12, 1: 13, 2: 11}
    grid.asked.clear()
    return grid, Attendance(grid, SPEC, found)


def test_where_no_node_is_new_nobody_is_asked(met):
    grid, attendance = met
    del grid.claims[11]
    attendance.welcome_back()
    assert grid.asked == []
    assert attendance.by_index[2] == 11


def test_a_client_is_found_on_its_new_node(met):
    grid, attendance = met
    del grid.claims[11]
    grid.claims[21] = 2
    attendance.welcome_back()
    assert attendance.by_index == {0: 12, 1: 13, 2: 21}


def test_a_claim_waits_until_the_old_node_is_gone(met, caplog):
    grid, attendance = met
    grid.claims[21] = 2
    attendance.welcome_back()
    assert attendance.by_index[2] == 11
    assert "claims to be client 2" in caplog.text
    del grid.claims[11]
    attendance.welcome_back()
    assert attendance.by_index[2] == 21


@pytest.mark.parametrize("claim", [7, -1, "text", None])
def test_a_stranger_is_asked_once_and_left_out(met, claim):
    grid, attendance = met
    grid.claims[21] = claim
    attendance.welcome_back()
    asked = len(grid.asked)
    attendance.welcome_back()
    assert len(grid.asked) == asked
    assert attendance.by_index == {0: 12, 1: 13, 2: 11}


def test_two_claims_at_the_start_are_an_error(monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(greeting.time, "sleep", lambda seconds: None)
    with pytest.raises(ConfigError, match="claimed by two nodes"):
        wait_for_nodes(Nodes({11: 0, 12: 0, 13: 1}), SPEC)
    with pytest.raises(ConfigError, match="the roster needs 0 to 2"):
        wait_for_nodes(Nodes({11: 0, 12: 3, 13: 1}), SPEC)
