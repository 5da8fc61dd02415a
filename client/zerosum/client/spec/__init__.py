"""Define what a client can be asked to do, and what it accepts: the specs that cross the wire.

Every class is one section of an experiment file, but for a node's policy. Keys, types, defaults and
meanings in ``docs/configuration.md`` are generated from their fields.
"""

from zerosum.client.spec.data import DataSpec, ModelSpec
from zerosum.client.spec.policy import BUDGET_DELTA, ClientPolicy
from zerosum.client.spec.privacy import (
    DEFAULT_NOISE_MULTIPLIER,
    LEAST_NOISE,
    MEANINGFUL_EPSILON,
    MechanismName,
    PrivacyModel,
    PrivacySpec,
)
from zerosum.client.spec.secagg import DEFAULT_OPENINGS, MOST_BITS, EncodingSpec, SecAggSpec
from zerosum.client.spec.section import (
    DEVICE,
    MOST_SCALE,
    Choices,
    ColumnName,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PositiveNoise,
    Scale,
    Spec,
)
from zerosum.client.spec.training import TrainSpec

__all__ = [
    "BUDGET_DELTA",
    "DEFAULT_NOISE_MULTIPLIER",
    "DEFAULT_OPENINGS",
    "DEVICE",
    "LEAST_NOISE",
    "MEANINGFUL_EPSILON",
    "MOST_BITS",
    "MOST_SCALE",
    "Choices",
    "ClientPolicy",
    "ColumnName",
    "DataSpec",
    "EncodingSpec",
    "Fraction",
    "MechanismName",
    "ModelSpec",
    "NonNegativeFloat",
    "PositiveFloat",
    "PositiveInt",
    "PositiveNoise",
    "PrivacyModel",
    "PrivacySpec",
    "Scale",
    "SecAggSpec",
    "Spec",
    "TrainSpec",
]
