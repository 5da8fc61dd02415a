"""The mechanism of each setting, its scale, and settings that are refused."""

import importlib.util
import json
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, RandomizedResponseDpEvent
from pydantic import ValidationError

from zerosum.client.privacy import opendp
from zerosum.client.privacy.adaptive_bit import BIT_UNITS
from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.central_gaussian import CentralGaussian
from zerosum.client.privacy.discrete_gaussian import DistributedDiscreteGaussian
from zerosum.client.privacy.events import DistributedDiscreteGaussianDpEvent, SkellamDpEvent, rdp
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.client.privacy.registry import choose_mechanism
from zerosum.client.privacy.skellam import DistributedSkellam, SkellamWithBit
from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import insecure_keystream

DIMENSION = 300
SETTINGS: dict[str, dict[str, Any]] = {
    "skellam": {},
    "discrete-gaussian": {"mechanism": "discrete-gaussian"},
    "adaptive": {"clipping": "adaptive"},
    "binned-gaussian": {"model": "local"},
    "discrete-laplace": {"model": "local", "mechanism": "discrete-laplace"},
    "privunit": {"model": "local", "mechanism": "privunit"},
    "central": {"model": "central"},
}


def build(cohort: int = 10, bits: int = 16, records: bool = False, **privacy: Any) -> Protection:
    privacy = {"noise_multiplier": 2.0, "clip": 1.0, "honest_fraction": 0.8} | privacy
    return Protection.build(
        PrivacySpec(**privacy),
        EncodingSpec(bits=bits, range=4.0 if records else None),
        cohort=cohort,
        dimension=DIMENSION,
        rotation_seed=bytes(32),
        records=records,
    )


def mechanism_of(**privacy: Any) -> Any:
    """Return the mechanism of a setting; each kind has members of its own besides the common."""
    return build(**privacy).mechanism


def stream(*indices: int):
    return insecure_keystream(5, "noise", *indices)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("skellam", DistributedSkellam),
        ("discrete-gaussian", DistributedDiscreteGaussian),
        ("adaptive", SkellamWithBit),
        ("binned-gaussian", BinnedGaussian),
        ("discrete-laplace", DiscreteLaplace),
        ("privunit", PrivUnit),
        ("central", CentralGaussian),
    ],
)
def test_each_setting_has_its_mechanism(name, kind):
    assert type(mechanism_of(**SETTINGS[name])) is kind


def test_the_multiplier_means_the_same_everywhere():
    l2 = build().encoding.l2_sensitivity
    assert mechanism_of().std(8) == pytest.approx(2 * l2)
    assert mechanism_of(mechanism="discrete-gaussian").std(8) == pytest.approx(2 * l2)
    assert mechanism_of(model="local").std(1) == pytest.approx(2 * l2)
    assert mechanism_of(model="central").std(1) == pytest.approx(2 * l2)
    assert mechanism_of(model="local", mechanism="discrete-laplace").epsilon == pytest.approx(1)
    assert mechanism_of(model="local", mechanism="privunit").epsilon == pytest.approx(1)


def test_each_mechanism_describes_its_event():
    events = {name: mechanism_of(**setting).event(8) for name, setting in SETTINGS.items()}
    l2 = build().encoding.l2_sensitivity
    assert events["skellam"].variance == pytest.approx((2 * l2) ** 2)
    gaussian = events["discrete-gaussian"]
    assert isinstance(gaussian, DistributedDiscreteGaussianDpEvent)
    assert (gaussian.num_shares, gaussian.dimension) == (8, DIMENSION)
    assert events["binned-gaussian"] == events["central"] == GaussianDpEvent(2.0)
    laplace = events["discrete-laplace"]
    assert isinstance(laplace, DiscreteLaplaceDpEvent)
    assert laplace.sensitivity * laplace.noise_parameter == pytest.approx(0.5)
    assert isinstance(events["privunit"], RandomizedResponseDpEvent)
    assert events["privunit"].noise_parameter == pytest.approx(2 / (1 + math.e))


def test_update_and_bit_are_one_event_that_costs_what_the_multiplier_says():
    event = mechanism_of(clipping="adaptive").event(8)
    assert isinstance(event, ComposedDpEvent)
    update, bit = event.events
    assert isinstance(update, SkellamDpEvent)
    assert bit.l2_sensitivity == BIT_UNITS
    # sigma_b = 2.5 z in clients, and one client is 2 BIT_UNITS.
    assert bit.variance == pytest.approx((2.5 * 2.0 * 2 * BIT_UNITS) ** 2)
    assert update.variance / update.l2_sensitivity**2 > 2.0**2
    whole = rdp(mechanism_of().event(8))
    assert rdp(event) == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.75, 0.9, 0.95])
def test_a_bit_costs_no_more_at_any_quantile_and_no_client_moves_it_by_more(quantile):
    settings: dict[str, Any] = {"clipping": "adaptive", "clip_quantile": quantile}
    built = build(**settings)
    mechanism: Any = built.mechanism
    event = mechanism.event(8)
    # The bit's value is rounded to 1/2048 of a client.
    assert rdp(event) == pytest.approx(rdp(mechanism_of().event(8)), rel=1e-3)
    sensitivity = event.events[1].l2_sensitivity
    assert sensitivity == pytest.approx(2 * BIT_UNITS * max(quantile, 1 - quantile), abs=0.5)
    for scale in (0.01, 100.0):
        vector = np.full(DIMENSION, scale)
        sent = built.protect(vector, rounding=stream(0), noise=None)
        assert abs(sent[-1]) <= sensitivity
        said = built.decode_bit(sent)
        assert said == pytest.approx((scale < 1) - quantile, abs=1e-3)


def test_a_part_of_a_discrete_gaussian_share_is_never_stated_as_more():
    mechanism = mechanism_of(mechanism="discrete-gaussian")
    event = mechanism.event(7.5)
    assert event.num_shares == 8
    assert event.num_shares * event.sigma**2 == pytest.approx(7.5 * mechanism.sigma**2)
    assert (rdp(event) >= rdp(mechanism.event(8))).all()
    assert mechanism.event(8).sigma == mechanism.sigma
    assert mechanism.event(0.5).num_shares == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mechanism": "privunit"}, "mechanism=skellam or privacy.mechanism=discrete-gaussian"),
        ({"model": "local", "mechanism": "skellam"}, "mechanism=binned-gaussian or"),
        (
            {"model": "central", "mechanism": "discrete-laplace"},
            "write privacy.mechanism=binned-gaussian",
        ),
        ({"model": "none", "mechanism": "skellam"}, "write privacy.mechanism=auto"),
        ({"exact": True}, "OpenDP samples .* alone"),
        ({"model": "none", "exact": True}, "OpenDP samples .* alone"),
        ({"clipping": "adaptive", "mechanism": "discrete-gaussian"}, '"skellam" alone'),
        ({"clipping": "adaptive", "model": "local"}, '"skellam" alone'),
        ({"clip_fractions": [1.0]}, "per-layer"),
        (
            {"clipping": "adaptive", "clip_quantile": 0.9, "clip_noise": 0.9},
            "clip_noise = 0.9 must exceed 0.9",
        ),
        (
            {"model": "none", "clip": "none", "clipping": "adaptive"},
            "is for privacy.clipping = .flat.",
        ),
    ],
)
def test_incompatible_privacy_keys_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        PrivacySpec(**settings)


def test_small_discrete_gaussian_shares_are_refused():
    with pytest.raises(ValueError, match="no useful bound"):
        DistributedDiscreteGaussian(1.0, 1.0, 0.99, 10)
    with pytest.raises(ValueError, match="too small"):
        build(mechanism="discrete-gaussian", bits=2, cohort=1000)


def test_sums_of_records_have_no_norm_for_laplace_noise_or_privunit():
    for name in ("discrete-laplace", "privunit"):
        with pytest.raises(ValueError, match="bounded norm"):
            build(records=True, **SETTINGS[name])
    with pytest.raises(ValueError, match="does not adapt"):
        build(records=True, clipping="adaptive")


@pytest.mark.parametrize("name", SETTINGS)
def test_session_bounds_name_the_mechanism(name):
    protection = build(**SETTINGS[name])
    described = json.loads(protection.bounds)["mechanism"]
    assert described["name"] == type(protection.mechanism).__name__
    assert protection.bounds == build(**SETTINGS[name]).bounds


def test_session_bounds_differ_between_mechanisms():
    assert len({build(**setting).bounds for setting in SETTINGS.values()}) == len(SETTINGS)
    assert build(records=True).bounds != build().bounds


@pytest.mark.parametrize("name", SETTINGS)
def test_the_ring_holds_the_noise(name):
    protection = build(**SETTINGS[name])
    assert protection.log2_wrap_probability <= -40
    rounding, noise = stream(0), stream(1)
    sent = protection.protect(np.zeros(DIMENSION), rounding=rounding, noise=noise)
    assert sent.shape == (protection.length,)
    assert np.abs(sent).max() < 2 ** (protection.ring_bits - 1)


def test_the_ring_is_no_larger_than_laplace_noise_needs():
    protection = build(**SETTINGS["discrete-laplace"])
    # One bit less would wrap more often than once in 2^40 sums.
    assert protection._log2_wrap(protection.ring_bits - 1) > -40


def test_central_clients_add_no_noise():
    protection = build(model="central")
    sent = protection.protect(np.zeros(DIMENSION), rounding=stream(0), noise=stream(1))
    assert not sent.any()
    assert not protection.zero(stream(1)).any()
    assert protection.std_contribution == 0
    for survivors in (0, 3, 10):
        assert protection.top_up(survivors, stream(2)) is None
        assert protection.summed_noise(survivors, stream(2)) is None
    noise = protection.server_noise(stream(2))
    assert noise is not None
    assert noise.std() * protection.encoding.step == pytest.approx(2.0, rel=0.15)
    assert build().server_noise(stream(2)) is None


@pytest.mark.parametrize("survivors", [0, 3, 9])
def test_missing_discrete_gaussian_shares_are_topped_up_whole(survivors):
    protection = build(mechanism="discrete-gaussian")
    noise, mechanism = protection.top_up(survivors, stream()), protection.mechanism
    assert noise is not None
    assert mechanism is not None
    assert noise.std() == pytest.approx(mechanism.std(10 - survivors), rel=0.15)
    assert protection.top_up(10, stream()) is None


@pytest.mark.parametrize("name", ["discrete-laplace", "privunit"])
def test_local_noise_is_not_drawn_for_a_sum(name):
    with pytest.raises(ValueError, match="each client"):
        build(**SETTINGS[name]).summed_noise(5, stream())


def test_a_session_without_privacy_has_no_mechanism():
    spec = PrivacySpec(model="none")
    assert choose_mechanism(spec, build().encoding, 10) is None
    assert spec.noise == "none"


def test_without_opendp_an_exact_draw_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(opendp.ExactUnavailableError, match=r"zerosum\[exact\]"):
        build(mechanism="discrete-gaussian", exact=True)


def test_an_exact_draw_is_for_small_releases():
    if importlib.util.find_spec("opendp") is None:
        pytest.skip("OpenDP is not installed: the extra `exact`")
    with pytest.raises(opendp.ExactUnavailableError, match="131,072"):
        opendp.check_available(1 << 18)


@pytest.mark.parametrize("name", ["discrete-gaussian", "discrete-laplace"])
def test_opendp_draws_the_claimed_deviation_and_knows_no_seed(name):
    if importlib.util.find_spec("opendp") is None:
        pytest.skip("OpenDP is not installed: the extra `exact`")
    mechanism = mechanism_of(**SETTINGS[name], exact=True)
    assert mechanism.tau == 0
    zero = np.zeros(20_000, dtype=np.int64)
    one, two = (mechanism.apply(zero, stream()) for _ in range(2))
    assert one.std() == pytest.approx(mechanism.std(1), rel=0.05)
    assert np.mean(one == two) < 0.01


@pytest.mark.parametrize("name", SETTINGS)
def test_the_members_of_a_mechanism_agree_with_each_other(name):
    protection = build(**SETTINGS[name])
    mechanism: Any = protection.mechanism
    code = protection.encoding
    largest = max(mechanism.std(4), mechanism.bit_std(4))
    assert mechanism.variance(4) == pytest.approx(largest**2)
    assert (mechanism.bit_std(4) > 0) == (name == "adaptive")
    assert mechanism.bound(code) >= code.bound
    near, far = (mechanism.log_tail(4, k * mechanism.std(4)) for k in (1.0, 8.0))
    assert far <= near <= 0
    assert far < -25 or name == "discrete-laplace"
    assert mechanism.slack(10) == (10 if "gaussian" in mechanism.summary.lower() else 0)
    assert mechanism.drawn in ("table", "float")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_contribution_costs_its_client_more_at_twice_its_sensitivity(name):
    mechanism = mechanism_of(**SETTINGS[name])
    once, twice = (mechanism.divergences(8, doubled=doubled) for doubled in (False, True))
    if name == "central":
        assert once is None
        assert twice is None
        return
    assert once.shape == twice.shape == (511,)
    if mechanism.added_by == "share":
        assert twice == pytest.approx(4 * once, rel=1e-3)
    else:  # always charged for one vector in place of another
        assert (twice == once).all()
    # z = 2 against zero is about alpha / 8; a pure epsilon of 1 is alpha / 2 at the least order.
    assert once[0] == pytest.approx(0.25 if mechanism.added_by == "share" else 1.0, rel=0.01)
