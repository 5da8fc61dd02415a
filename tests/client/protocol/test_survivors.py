import pytest

from zerosum.client.protocol.survivors import CohortTooSmallError, guarantee_holds, min_survivors


def test_survivors_are_counted_exactly() -> None:
    assert min_survivors(0.8, 100) == 80
    assert min_survivors(0.56, 100) == 56
    assert min_survivors(0.07, 100, 3) == 10
    assert min_survivors(0.8, 101, 2) == 83
    with pytest.raises(CohortTooSmallError, match="11 of 10"):
        min_survivors(0.8, 10, 3)


def test_a_client_checks_the_guarantee() -> None:
    assert guarantee_holds(0.8, 100, 80)
    assert not guarantee_holds(0.8, 100, 80, 1)
    assert guarantee_holds(0.8, 100, 81, 1)
    assert not guarantee_holds(0.5, 10, 11)
