"""Shares that add up exactly, receipts from one whole on, and what one share says."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import DpEvent
from geometric_law import power_of_laplace

from zerosum.client.privacy import registry
from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.privacy.events import IntegerNoiseDpEvent
from zerosum.client.privacy.float_slack import FLOAT_SLACK
from zerosum.client.privacy.geometric import CentralGeometric, DistributedGeometric
from zerosum.client.privacy.noise_range import NoiseOutOfRangeError
from zerosum.secagg.randomness import insecure_keystream

LARGEST = math.nextafter(2.0**40, 0)
SHARE = DistributedGeometric(10.0, Fraction(1, 240), (1, 4))
CENTRAL = CentralGeometric(10.0, (1, 4))


def stream(*indices: int):
    return insecure_keystream(3, "noise", *indices)


def receipt(r: float, scale: float = 10.0) -> DpEvent:
    return IntegerNoiseDpEvent("geometric", (scale, r), (1, 4))


def test_a_share_is_a_real_power_and_its_multiples_are_exact() -> None:
    odd = replace(SHARE, share=1 / (Fraction("0.7") * 13))
    assert odd.ratio(Fraction("9.1")) == 1
    assert odd.ratio(13) == Fraction(10, 7)
    assert SHARE.variance(240) == pytest.approx(0.5 / math.sinh(0.05) ** 2)
    assert SHARE.std(60) == pytest.approx(CENTRAL.std(1) / 2)


@pytest.mark.parametrize("shares", [1, 60, 240, 300, 620])
def test_the_claimed_deviation_is_drawn(shares: int) -> None:
    drawn = SHARE.noise(shares, 400_000, stream())
    # Of a share one coordinate in a hundred is not 0.
    assert drawn.std() == pytest.approx(SHARE.std(shares), rel=0.05 if shares < 60 else 0.02)


@pytest.mark.parametrize("scale", [1 / 128, LARGEST])
def test_a_whole_and_a_part_are_drawn_at_the_extremes(scale: float) -> None:
    mechanism = DistributedGeometric(scale, Fraction(5, 4), (1,))
    drawn = mechanism.noise(1, 20_000, stream())
    assert drawn.std() == pytest.approx(mechanism.std(1), rel=0.03, abs=1e-9)
    assert mechanism.std(1) < 2.0**41


def test_noise_is_added_to_the_vector() -> None:
    for mechanism in (SHARE, CENTRAL):
        vector, zero = np.arange(-5000, 5000), np.zeros(10_000, dtype=np.int64)
        noise = mechanism.apply(zero, stream())
        assert noise.any()
        assert noise.dtype == np.int64
        assert (mechanism.apply(vector, stream()) - vector == noise).all()
        assert (mechanism.noise(1, 10_000, stream()) == noise).all()


@pytest.mark.parametrize(
    ("shares", "r"),
    [(240, 1.0), (240 * FLOAT_SLACK, 1.0), (300, 1.25), (Fraction(241), float(Fraction(241, 240)))],
)
def test_a_whole_or_more_has_a_receipt(shares: float, r: float) -> None:
    found = SHARE.event(shares)
    assert found == receipt(found.parameters[1])
    # Never of more noise than there is.
    assert Fraction(found.parameters[1]) <= max(Fraction(1), Fraction(shares) / 240)
    assert found.parameters[1] == pytest.approx(r, rel=1e-15)


@pytest.mark.parametrize("shares", [1, 239, 239.999999, 240 * (1 - 1e-13)])
def test_less_than_a_whole_has_none(shares: float) -> None:
    with pytest.raises(ValueError, match="no receipt"):
        SHARE.event(shares)
    with pytest.raises(ValueError, match="no receipt"):
        SHARE.divergences(shares, doubled=False)


def test_a_trusted_server_adds_one_whole_however_many_contribute() -> None:
    assert CENTRAL.event(1) == CENTRAL.event(300) == receipt(1.0)
    assert CENTRAL.std(1) == CENTRAL.std(300)
    assert CENTRAL.divergences(1, doubled=False) is None
    assert CENTRAL.caveat
    assert not SHARE.caveat


def test_a_contribution_costs_its_client_the_rows_of_the_receipt_and_never_twice_them() -> None:
    row = SHARE.divergences(240, doubled=False)
    assert row is not None
    assert row.shape == (511,)
    assert row[-1] < 5 / 10
    with pytest.raises(ValueError, match="adjacency"):
        SHARE.divergences(240, doubled=True)


@pytest.mark.parametrize(("scale", "r"), [(1.0, 1 / 240), (10.0, 0.25), (50.0, 0.9), (0.5, 0.3)])
def test_one_share_is_told_apart_best_at_zero(scale: float, r: float) -> None:
    share = DistributedGeometric(scale, Fraction(r), (1,))
    masses = power_of_laplace(scale, r)
    masses = masses[masses > 1e-9]
    ratios = np.log(masses[:-1] / masses[1:])
    assert ratios[0] == pytest.approx(share.share_epsilon((1,)), rel=2e-9)
    assert ratios.max() <= ratios[0]
    # The control: from one whole on, it is told apart best far out.
    masses = power_of_laplace(scale, 1.5)[: int(8 * scale)]
    ratios = np.log(masses[:-1] / masses[1:])
    assert ratios[0] < ratios[-1] < 1 / scale


def test_one_share_of_240_at_scale_1_has_the_published_epsilon() -> None:
    share = DistributedGeometric(1.0, Fraction(1, 240), (1,))
    assert share.share_epsilon((1,)) == pytest.approx(6.48, abs=0.005)
    assert share.share_epsilon((2, 2)) == pytest.approx(4 * share.share_epsilon((1,)))
    assert share.share_caveat == "one share of geometric noise is 0 with probability 0.996"
    assert replace(share, share=Fraction(5, 4)).share_epsilon((1,)) == 1.0


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("r", [1e-6, 1 / 240, 0.5, 0.999])
@pytest.mark.parametrize("scale", [1 / 128, 0.999, 1.001, 1000.0, LARGEST])
def test_the_epsilon_of_one_share_is_right_and_never_below_at_the_extremes(scale, r) -> None:
    """By Gauss's hypergeometric function: sum_m q(m) q(m+k) of the negative binomial's q."""
    share = DistributedGeometric(scale, Fraction(r), (1,))
    with mpmath.workprec(400):
        a, power = mpmath.exp(-1 / mpmath.mpf(scale)), mpmath.mpf(r)
        zero = mpmath.hyp2f1(power, power, 1, a * a)
        one = power * a * mpmath.hyp2f1(power, power + 1, 2, a * a)
        exact = float(mpmath.log(zero / one))
        chance = float(zero * (1 - a) ** (2 * power))
    assert 0 <= share.share_epsilon((1,)) / exact - 1 < 3e-9
    assert float(share.share_caveat.rpartition(" ")[2]) == pytest.approx(chance, abs=1e-3)


@pytest.mark.parametrize("r", [Fraction(1, 5), Fraction(5, 4)])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_the_tail_bound_holds_within_a_factor_of_200(scale: float, r: Fraction) -> None:
    masses = power_of_laplace(scale, float(r))
    mechanism = DistributedGeometric(scale, r, (1,))
    for margin in (4, 8):
        exact = masses[int(margin * scale) + 1 :].sum()
        assert exact <= math.exp(mechanism.log_tail(1, margin * scale)) < 200 * exact
    assert CENTRAL.log_tail(300, 50.0) == CENTRAL.log_tail(1, 50.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_is_positive(scale: float) -> None:
    for make in (CentralGeometric, lambda s, m: DistributedGeometric(s, Fraction(1, 2), m)):
        with pytest.raises(ValueError, match="scale must be positive"):
            make(scale, (1,))


@pytest.mark.parametrize("scale", [math.nextafter(1 / 128, 0), 1e-300, 2.0**40, 1e300])
def test_a_scale_that_protects_nobody_or_leaves_64_bits_is_refused(scale: float) -> None:
    cure = "raise" if scale > 1 else "lower"
    with pytest.raises(NoiseOutOfRangeError, match=f"below 2\\^40: {cure} the query's epsilon"):
        DistributedGeometric(scale, Fraction(1, 2), (1,))


def test_shares_and_moves_are_exact_numbers() -> None:
    refused: list[tuple[str, Callable[[], object]]] = [
        ("share must be a Fraction", lambda: replace(SHARE, share=0.25)),  # type: ignore[arg-type]  # refused
        ("share must be a Fraction", lambda: replace(SHARE, share=Fraction(0))),
        ("moves are positive integers", lambda: replace(SHARE, moves=())),
        ("moves are positive integers", lambda: replace(SHARE, moves=(1, 0))),
        ("moves are positive integers", lambda: replace(CENTRAL, moves=(1.5,))),  # type: ignore[arg-type]  # refused
        ("moves are positive integers", lambda: replace(CENTRAL, moves=(True,))),
    ]
    for message, make in refused:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(FrozenInstanceError):
        SHARE.scale = 1.0  # type: ignore[misc]


def test_fellow_clients_face_a_whole() -> None:
    for n in range(2, 40):
        for fraction in (0.1, 0.8, 1.0):
            mechanism = counting_mechanism("geometric", 10.0, n, fraction, (1,))
            assert isinstance(mechanism, DistributedGeometric)
            assert mechanism.ratio(n - 1) >= 1
    # The control: undiminished, f = 1 leaves a fellow client less than that.
    with pytest.raises(ValueError, match="no receipt"):
        DistributedGeometric(10.0, Fraction(1, 4), (1,)).event(3)


def test_a_query_law_is_no_name_for_a_mechanism_of_ones_own() -> None:
    with pytest.raises(ValueError, match="'geometric' is there already"):
        registry.register_mechanism("geometric", registry.BUILT_IN[0][1])
