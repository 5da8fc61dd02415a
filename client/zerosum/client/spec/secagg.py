"""Define ``[encoding]`` and ``[secagg]``: how vectors become integers, and those one sum."""

from typing import Annotated, Literal

from pydantic import Field

from zerosum.client.spec.section import Fraction, PositiveInt, Scale, Spec
from zerosum.secagg.graph.failure_bounds import security_of

DEFAULT_OPENINGS = 2000
"""A thousand rounds with an evaluation each, or with a second attempt."""

MOST_BITS = 32
"""Of one coordinate: a float32 update has no more to say."""


class EncodingSpec(Spec):
    """The encoding of real vectors as integers in a ring."""

    bits: Annotated[int, Field(ge=2, le=MOST_BITS)] = 16
    """Bits of one coordinate before masking: the range is cut into 2^bits - 2 steps."""
    range: Scale | None = None
    """Largest magnitude of a coordinate; larger ones are cut to it, and without noise counted. \
Absent means `privacy.clip` (6 clip / sqrt(d) when rotated); required where clipping is off."""
    rotate: bool = False
    """Random signs and a Walsh-Hadamard transform first: spreads a vector over its coordinates."""
    ring_bits: Annotated[int, Field(ge=2, le=64)] | None = None
    """Bits of the ring. Absent: the fewest at which a sum cannot wrap."""


class SecAggSpec(Spec):
    """The protocol by which the cohort's vectors become a sum."""

    protocol: Literal["pairwise", "ideal", "none"] = "pairwise"
    """`pairwise`: double-masked secure aggregation. `ideal`: a trusted sum, for accuracy work. \
`none`: the server sees every noised contribution."""
    server: Literal["malicious", "semi-honest"] = "malicious"
    """The server that the protocol withstands. `malicious`: one that lies about who dropped out; \
clients sign, with keys that they know of each other. `semi-honest`: one that is only curious."""
    dropout: Fraction = 0.15
    """Fraction of a cohort that may vanish in a session; sets the threshold and the guarantees."""
    corruption: Fraction = 0.0
    """Fraction of the roster assumed to collude with the server."""
    threshold: PositiveInt | Literal["auto"] = "auto"
    """Shares needed to recover a secret (t)."""
    degree: PositiveInt | Literal["auto", "complete"] = "auto"
    """Neighbours that each client gives shares to (k). `auto`: the fewest that are safe, \
below 500 also at a dropout of 0.1, but everybody in cohorts below 80 (`semi-honest`: 500), and \
below 500 where a threshold is written."""
    openings: PositiveInt = DEFAULT_OPENINGS
    """Sessions that the nodes' policies let begin in a run or a day, the larger of both: in all \
together secrecy and connectivity fail with 2^-40 at most. Nodes that allow more decline a \
sparse graph made for fewer."""
    groups: PositiveInt = 1
    """Sessions that a cohort is split into, each with the full noise (a trusted server adds its \
own once); their sums are added. A group that fails costs only its members, but the server sees \
each group's sum."""

    @property
    def security(self) -> float:
        """The most that secrecy or connectivity may fail with in one session."""
        return security_of(self.openings)
