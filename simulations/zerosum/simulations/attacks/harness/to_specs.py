"""Turn a defense into the sections of an experiment, so that it is what a run would have."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.simulations.attacks.harness.interface import Defense, NotApplicable

DELTA = 1e-5
"""Of every epsilon in the table."""

UNCLIPPED_RANGE = 4.0
"""Largest coordinate of an update that no clip bounds."""


SUMS = ("masking", "threshold", "bits", "clip", "noise", "sigma", "confirm")
"""What every private sum of the simulator's own clients plays of a protection."""


def check_played(protection: Defense, played: Iterable[str] = SUMS) -> None:
    """Refuse a protection that a setting would leave out: its column would not say what it is.

    Parameters
    ----------
    protection : Defense
    played : iterable of str
        The fields that the setting plays; every other has to be the default.

    Raises
    ------
    NotApplicable
        Naming the fields.
    """
    known, plain = {"name", *played}, Defense("")
    left = [each.name for each in fields(protection) if each.name not in known]
    asked = [name for name in left if getattr(protection, name) != getattr(plain, name)]
    if asked:
        raise NotApplicable(f"this setting plays no {' and no '.join(asked)}")


def privacy_of(protection: Defense, cohort: int, dimension: int) -> PrivacySpec:
    """Return the privacy section that gives a coordinate noise of ``sigma`` clips.

    Parameters
    ----------
    protection : Defense
    cohort : int
        Clients in a session.
    dimension : int
        Length of a contribution, on which rounding's part of the sensitivity depends.

    Returns
    -------
    PrivacySpec

    Raises
    ------
    ValueError
        If there is noise and no clip, by which noise is measured.
    """
    if protection.noise == "none":
        return PrivacySpec(model="none", clip=protection.clip)
    if protection.clip is None:
        raise ValueError(f"{protection.name}: noise is measured in clips, and there is no clip")
    section = _noised(protection, 1.0)
    built = Protection.build(
        section,
        encoding_of(protection),
        cohort=cohort,
        dimension=dimension,
        rotation_seed=bytes(32),
    )
    # Noise scales with its multiplier; how, the mechanism and the rounding of its own say.
    unit = built.std_contribution if protection.noise == "local" else built.std_sum
    return _noised(protection, protection.sigma * protection.clip / unit)


def _noised(protection: Defense, multiplier: float) -> PrivacySpec:
    values: dict[str, Any] = {
        "model": protection.noise,
        "clip": protection.clip,
        "noise_multiplier": multiplier,
        "honest_fraction": 1.0,
        "delta": DELTA,
        "allow_large_delta": True,
        "noise_draw": "per_client",
    }
    return PrivacySpec.model_validate(values)


def encoding_of(protection: Defense) -> EncodingSpec:
    """Return the encoding section."""
    limit = UNCLIPPED_RANGE if protection.clip is None else None
    return EncodingSpec(bits=protection.bits, range=limit)


def secagg_of(protection: Defense, dropout: float = 0.0, corruption: float = 0.0) -> SecAggSpec:
    """Return the protocol's section: pairwise masks, or none.

    Parameters
    ----------
    protection : Defense
    dropout, corruption : float
        Fractions of a cohort that thresholds are chosen for.

    Returns
    -------
    SecAggSpec

    Raises
    ------
    ValueError
        For single masks, which no client of this library sends.
    """
    if protection.masking == "single":
        raise ValueError("no session runs with single masks: drive weakened parties instead")
    return SecAggSpec(
        protocol="pairwise" if protection.masked else "none",
        server="malicious" if protection.confirm else "semi-honest",
        dropout=dropout,
        corruption=corruption,
        threshold="auto" if protection.threshold is None else protection.threshold,
    )
