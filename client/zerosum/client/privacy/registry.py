"""Which mechanism a setting asks for, at which scale: the one place where noise is chosen."""

import math
from fractions import Fraction

from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.mechanisms import (
    BinnedGaussian,
    CentralGaussian,
    DistributedDiscreteGaussian,
    DistributedSkellam,
    Mechanism,
    SkellamWithBit,
)
from zerosum.client.spec import PrivacySpec
from zerosum.secagg.vectors.encoding import Encoding, Rule

SMALLEST_SHARE = 3.0
"""Sigma of a discrete Gaussian share, in integer units, below which no run is started: above it
the distance of their sum from a discrete Gaussian, which depends on the cohort's size, is below
10^-37 a coordinate and share, so that one figure holds for every cohort."""

BIT_UNITS = 1024
"""Integer units of half a client's bit: far above what Skellam's second-order term notices."""


def guaranteed_shares(honest_fraction: float, cohort: int) -> Fraction:
    """Return f n exactly, with f read as the decimal number that was written."""
    return Fraction(repr(honest_fraction)) * cohort


def bit_values(quantile: float) -> tuple[int, int]:
    """Return what a client says of its norm, in integer units: within the clip, and beyond it.

    1 - quantile and -quantile, in clients.
    """
    within = round(2 * BIT_UNITS * (1 - quantile))
    return within, within - 2 * BIT_UNITS


def rounding_rule(privacy: PrivacySpec, *, records: bool) -> Rule:
    """Return what the clip bounds: the sum's records, or the L1 or L2 norm of one vector.

    Raises
    ------
    ValueError
        If sums of records are asked for where the noise needs a norm of the whole vector.
    """
    if records and privacy.noise in ("discrete-laplace", "privunit"):
        raise ValueError(
            f'privacy.mechanism = "{privacy.noise}" needs vectors of bounded norm, which sums of '
            "clipped records are not"
        )
    if records:
        return "records"
    return "l1" if privacy.noise == "discrete-laplace" else "l2"


def choose_mechanism(privacy: PrivacySpec, code: Encoding, cohort: int) -> Mechanism | None:
    """Return the mechanism of a session; None without privacy.

    Parameters
    ----------
    privacy : PrivacySpec
        With ``noise_multiplier`` resolved.
    code : Encoding
        Its sensitivities.
    cohort : int
        Clients in the session, by whose guaranteed fraction shares are divided.

    Raises
    ------
    ValueError
        If a parameter is missing or out of the mechanism's range.
    """
    if not privacy.private:
        return None
    z = privacy.update_noise_multiplier
    if z is None:
        raise ValueError("privacy.noise_multiplier must be found before a session is built")
    if privacy.exact:
        from zerosum.client.privacy.opendp import check_available

        check_available(code.length)
    l2 = code.l2_sensitivity
    shares = float(guaranteed_shares(privacy.honest_fraction, cohort))
    match privacy.noise:
        case "skellam":
            update = DistributedSkellam(
                l2, code.l1_sensitivity, (z * l2) ** 2 / shares, code.length
            )
            return SkellamWithBit(update, _bit(privacy, shares)) if privacy.adaptive else update
        case "discrete-gaussian":
            sigma = z * l2 / math.sqrt(shares)
            if sigma < SMALLEST_SHARE:
                raise ValueError(
                    f"discrete Gaussian shares of sigma = {sigma:.3g} integer units are too small "
                    f"(at least {SMALLEST_SHARE:g}): raise encoding.bits, or write "
                    'privacy.mechanism = "skellam"'
                )
            return DistributedDiscreteGaussian(
                l2, code.l1_sensitivity, sigma, code.length, privacy.exact
            )
        case "binned-gaussian":
            kind = CentralGaussian if privacy.model == "central" else BinnedGaussian
            return kind(sigma=z * l2, l2_sensitivity=l2)
        case "discrete-laplace":
            l1 = code.l1_sensitivity
            return DiscreteLaplace(z * l1, int(l1), privacy.exact)
        case "privunit":
            from zerosum.client.privacy.privunit import PrivUnit

            return PrivUnit(2 / z, l2, code.length)
    raise ValueError(f"no mechanism is called {privacy.noise!r}")


def _bit(privacy: PrivacySpec, shares: float) -> DistributedSkellam:
    """Return the noise of the bit: sigma_b = clip_noise z, in clients."""
    sigma = 2 * BIT_UNITS * privacy.clip_noise * (privacy.noise_multiplier or 0.0)
    largest = float(max(map(abs, bit_values(privacy.clip_quantile))))
    return DistributedSkellam(largest, largest, sigma**2 / shares, dimension=1)
