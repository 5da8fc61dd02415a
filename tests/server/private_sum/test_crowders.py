"""Clients that crowd others are named to the server's operator, and stay in the sum."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from zerosum.secagg import ServerParty
from zerosum.secagg.stages import Stage
from zerosum.server.private_sum import sum_in_progress
from zerosum.server.private_sum.transport import Traffic


class Crowded(ServerParty):
    """A session in which some drew the same neighbours."""

    stage = Stage.SHARE

    def __init__(self, crowders):
        self._crowders = crowders

    def close(self, request=None):
        return {}


@pytest.mark.parametrize(("crowders", "told"), [((3, 17), True), ((), False)])
def test_crowders_are_named_in_the_servers_log(caplog, crowders, told):
    caplog.set_level(logging.WARNING)
    group: Any = SimpleNamespace(party=Crowded(crowders), failure="")
    assert sum_in_progress._close(group, "advertise", None, None, Traffic()) == {}
    assert sum_in_progress._close(group, "share", None, None, Traffic()) == {}
    assert caplog.text.count("clients (3, 17) chose the same neighbours") == told
    assert not group.failure
