"""The noise of counts by its law, f by its decimal, and where laws of counts are refused."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from zerosum.client.privacy.counts import counting_mechanism, guaranteed_fraction
from zerosum.client.privacy.events import IntegerNoiseDpEvent
from zerosum.client.privacy.geometric import CentralGeometric, DistributedGeometric
from zerosum.client.privacy.integer_laws import IntegerLaw
from zerosum.client.privacy.mechanism import check_mechanism
from zerosum.client.privacy.noise_range import NoiseOutOfRangeError
from zerosum.client.privacy.registry import COUNTING
from zerosum.client.privacy.skellam_counts import SkellamCounts
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.survivors import guarantee_holds, min_survivors
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.client.spec.privacy import PrivacyModel
from zerosum.secagg.randomness import insecure_keystream


def stream(*indices: int):
    return insecure_keystream(3, "noise", *indices)


@pytest.mark.parametrize("kind", [kind for _, kind in COUNTING])
def test_every_law_of_counts_is_a_mechanism(kind) -> None:
    check_mechanism(kind)
    with pytest.raises(ValueError, match="integer blocks of a query, not for real vectors"):
        kind.from_spec(None, None, 1.0, 1.0)


def test_the_law_says_the_mechanism() -> None:
    built = counting_mechanism("geometric", 10.0, 300, 0.8, (1,))
    assert built == DistributedGeometric(10.0, Fraction(1, 240), (1,))
    built = counting_mechanism("geometric", 10.0, 300, 0.8, (1,), central=True)
    assert built == CentralGeometric(10.0, (1,))
    built = counting_mechanism("skellam", 10.0, 300, 0.8, (1, 2))
    assert built == SkellamCounts(100.0, Fraction(1, 240), (1, 2))
    with pytest.raises(ValueError, match=r"no noise of law 'laplace' .*: write geometric or skell"):
        counting_mechanism("laplace", 10.0, 300, 0.8, (1,))
    with pytest.raises(ValueError, match="that a trusted server adds: write geometric"):
        counting_mechanism("skellam", 10.0, 300, 0.8, (1,), central=True)


def test_geometric_noise_is_divided_by_one_client_less_at_most() -> None:
    assert guaranteed_fraction("geometric", 0.8, 300) == Fraction(4, 5)
    assert guaranteed_fraction("geometric", 1.0, 300) == Fraction(299, 300)
    assert guaranteed_fraction("geometric", 1.0, 3) == Fraction(2, 3)
    assert guaranteed_fraction("geometric", 1.0, 1) == 1
    assert guaranteed_fraction("skellam", 1.0, 3) == 1
    for fraction, cohort in ((0.0, 3), (1.5, 3), (math.nan, 3), (0.8, 0)):
        with pytest.raises(ValueError, match=r"honest_fraction|cohort"):
            guaranteed_fraction("geometric", fraction, cohort)


def test_a_fraction_that_is_no_decimal_asks_for_whole_survivors() -> None:
    """(n-1)/n of n clients are n-1, whose float may be a little more."""
    for n in range(2, 200):
        fraction = guaranteed_fraction("geometric", 1.0, n)
        assert min_survivors(fraction, n) == n - 1
        assert guarantee_holds(fraction, n, n - 1)


@pytest.mark.parametrize("law", ["geometric", "skellam"])
def test_shares_of_the_guaranteed_are_charged_as_one(law: IntegerLaw) -> None:
    for n, f in ((300, 0.8), (7, 0.56), (13, 0.7), (101, 0.999)):
        mechanism = counting_mechanism(law, 3.7, n, f, (1,))
        shares = guaranteed_fraction(law, f, n) * n
        assert mechanism.event(shares) == IntegerNoiseDpEvent(
            law, (3.7, 1.0) if law == "geometric" else (3.7**2,), (1,)
        )


def test_skellam_shares_are_drawn_as_no_less_than_is_charged() -> None:
    share = SkellamCounts(0.1, 1 / (Fraction("0.7") * 13), (1,))
    for shares in (1, 9, 9.1, 13):
        exact = Fraction(0.1) * Fraction(shares) * share.share
        charged = Fraction(share.event(shares).parameters[0])
        assert charged <= exact <= Fraction(share.variance(shares))
        assert float(charged) == pytest.approx(share.variance(shares), rel=1e-15)
    drawn = SkellamCounts(900.0, Fraction(1, 9), (1,)).noise(9, 200_000, stream())
    assert drawn.std() == pytest.approx(30.0, rel=0.02)
    wide = SkellamCounts(100.0, Fraction(1, 4), (1,))
    assert wide.log_tail(4, 60.0) == pytest.approx(-17, rel=0.05)
    assert (wide.bit_std(4), wide.slack(4), wide.std(4)) == (0, 0, 10)
    assert (wide.share_epsilon((1,)), wide.share_caveat) == (math.inf, "")


def test_skellam_counts_out_of_range_are_refused() -> None:
    with pytest.raises(NoiseOutOfRangeError, match="raise the query's epsilon"):
        SkellamCounts(2.0**84, Fraction(1, 2), (1,))
    with pytest.raises(ValueError, match="sum_variance"):
        SkellamCounts(math.inf, Fraction(1, 2), (1,))
    with pytest.raises(ValueError, match="share must be a Fraction"):
        SkellamCounts(1.0, 0.5, (1,))  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="moves"):
        SkellamCounts(1.0, Fraction(1, 2), ())


def protection(law: str) -> Protection:
    """Return a session's protection whose mechanism is one of counts."""
    built = Protection.build(
        PrivacySpec(honest_fraction=0.8),
        EncodingSpec(rotate=False),
        cohort=10,
        dimension=5000,
        rotation_seed=bytes(32),
    )
    return replace(built, mechanism=counting_mechanism(law, 4.0, 10, 0.8, (1,)))


def test_a_session_is_bound_to_the_exact_share() -> None:
    described = json.loads(protection("geometric").bounds)["mechanism"]
    assert described == {
        "name": "DistributedGeometric", "scale": 4.0, "share": "1/8", "moves": [1]
    }  # fmt: skip
    assert protection("geometric").bounds != protection("skellam").bounds


@pytest.mark.parametrize("law", ["geometric", "skellam"])
@pytest.mark.parametrize("survivors", [8, 9, 10])
def test_a_sum_is_topped_up_to_the_constant_total(law: str, survivors: int) -> None:
    session = protection(law)
    mechanism = session.mechanism
    assert mechanism is not None
    total = np.zeros(session.length, dtype=np.int64)
    for client in range(survivors):
        total += session.protect(np.zeros(5000), rounding=stream(0), noise=stream(1, client))
    extra = session.top_up(survivors, stream(2))
    total += 0 if extra is None else extra
    assert mechanism.std(10) == pytest.approx(math.sqrt(1.25) * mechanism.std(8))
    assert total.std() == pytest.approx(mechanism.std(10), rel=0.06)
    summed = session.summed_noise(survivors, stream(3))
    assert summed is not None
    assert summed.std() == pytest.approx(mechanism.std(10), rel=0.06)


def test_a_training_experiment_with_geometric_noise_is_refused_in_one_line() -> None:
    models: tuple[PrivacyModel, ...] = ("distributed", "central", "local", "none")
    for model in models:
        with pytest.raises(ValidationError) as raised:
            PrivacySpec(mechanism="geometric", model=model)
        (error,) = raised.value.errors()
        assert error["loc"] == ("mechanism",)
        assert error["msg"].endswith(
            "it is for the integer counts of a query, not for real vectors: write "
            "privacy.mechanism=skellam"
        )
