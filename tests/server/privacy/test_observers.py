"""Every observer has a name under every protocol."""

from typing import get_args

import pytest

from zerosum.client.spec import SecAggSpec
from zerosum.server.privacy.observers import OBSERVERS, SEES, observer_title, observer_who

PROTOCOLS = get_args(SecAggSpec.model_fields["protocol"].annotation)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_observers_of_a_protocol_are_three_different_parties(protocol):
    assert len({observer_who(observer, protocol) for observer in OBSERVERS}) == 3
    assert set(SEES) == set(OBSERVERS)
    for observer in OBSERVERS:
        who = observer_who(observer, protocol)
        assert observer_title(observer, protocol) == f"epsilon_{observer} ({who})"
