"""Sums that a request declares beforehand: which values, how large, and as what integers.

Everything about a vector but its values is public, and the same at all nodes: names, forms, lengths
and bounds stand in the request, to whose digest masks are bound.

A value enters the sum as integers. A count is multiplied by a whole number, which loses nothing. A
real number is a multiple of a step, rounded up or down by an offset that does not depend on the
data. Integer units are chosen so that one unit of privacy moves each declared value by about the
same number of them: under one law of noise each then takes the same part of epsilon.
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.client.queries.moves import Adjacency
from zerosum.client.spec.section import PositiveInt, Scale, Spec
from zerosum.client.spec.sum_privacy import SumPrivacy
from zerosum.secagg.randomness import Keystream

MOST_RESOLUTION: Final = 1 << 40
"""Integer units of one sensitivity: without noise, so fine that a sum of floats loses nothing to \
speak of."""

MOST_UNITS: Final = 1 << 50
"""Largest coordinate of one client, in integer units: float64 still has quarters there."""


class DeclaredSum(Spec):
    """One value of a reply, or a list or array of them, that is summed over clients."""

    record: str
    """Name of the reply's record."""
    key: str
    """Name of the value in it."""
    kind: Literal["counts", "reals"]
    """`counts`: integers of at least 0. `reals`: real numbers of either sign."""
    form: Literal["number", "list", "array"]
    """How it stands in the record: a number or a list of a MetricRecord, an array of an \
ArrayRecord."""
    shape: tuple[PositiveInt, ...]
    """Of the list or array; empty of a number."""
    most: Scale
    """Largest magnitude of one of its numbers at one client: what is beyond is cut to it."""
    sensitivity: Scale | None = None
    """What one unit of privacy changes in all its numbers together, in sum of magnitudes."""
    resolution: Annotated[int, Field(ge=1, le=MOST_RESOLUTION)]
    """Integer units of one sensitivity, about; of `most`, where there is none."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        lengths = {"number": 0, "list": 1}
        if self.form != "array" and len(self.shape) != lengths[self.form]:
            raise ValueError(f"{self.name}: a {self.form} has no shape {self.shape}")
        if self.kind == "counts" and (self.sensitivity or 1.0) != ceil(self.sensitivity or 1.0):
            raise ValueError(f"{self.name}: counts change by whole numbers")
        if self.bound > MOST_UNITS:
            raise ValueError(
                f"{self.name}: most = {self.most:g} is too large beside its sensitivity: at most "
                f"{self.most * MOST_UNITS / self.bound:.3g}"
            )
        return self

    @property
    def name(self) -> str:
        """Where it stands, for messages."""
        return f"{self.record}.{self.key}"

    @property
    def cells(self) -> int:
        """How many numbers it is."""
        return prod(self.shape)

    @property
    def times(self) -> int:
        """Integer units of one count."""
        if self.sensitivity is None:
            return 1
        return max(1, round(self.resolution / self.sensitivity))

    @property
    def step(self) -> float:
        """What one integer unit is worth."""
        if self.kind == "counts":
            return 1 / self.times
        return (self.most if self.sensitivity is None else self.sensitivity) / self.resolution

    @property
    def bound(self) -> int:
        """Largest coordinate of one client, in integer units."""
        return int(self.most) * self.times if self.kind == "counts" else ceil(self.most / self.step)

    @property
    def weight(self) -> int:
        """What one unit of privacy changes at most, in integer units: L1.

        Each rounded coordinate may cross one boundary more than its real part did.
        """
        if self.sensitivity is None:
            return 0
        if self.kind == "counts":
            return int(self.sensitivity) * self.times
        return self.resolution + self.cells

    def moves(self, adjacency: Adjacency) -> tuple[int, ...]:
        """Return the one-coordinate moves that bound its privacy: see :func:`~.moves.moves`.

        Counts that rise and counts that fall are two moves. A real number that is replaced may
        change its sign, and its move is twice as long.

        Parameters
        ----------
        adjacency : {"zero_out", "replace"}

        Returns
        -------
        tuple of int
            In integer units; empty where no sensitivity is declared.
        """
        if not self.weight:
            return ()
        if adjacency == "zero_out" or (self.kind == "counts" and self.cells == 1):
            return (self.weight,)
        return (self.weight, self.weight) if self.kind == "counts" else (2 * self.weight,)

    def integers(
        self, values: NDArray[np.float64], privacy: SumPrivacy, coins: Keystream
    ) -> NDArray[np.int64]:
        """Cut a client's numbers to what is declared, and return them in integer units.

        Parameters
        ----------
        values : ndarray of float64, shape (cells,)
            Finite; counts are whole numbers.
        privacy : SumPrivacy
            Under unit "client" the whole is clipped to the sensitivity, in sum of magnitudes.
        coins : Keystream
            Of the rounding.

        Returns
        -------
        ndarray of int64, shape (cells,)
            Within ``bound``; under unit "client" of an L1 norm of at most ``weight``.
        """
        cut = self._within(values)
        if privacy.private and privacy.unit == "client" and self.sensitivity is not None:
            norm = float(np.abs(cut).sum())
            if norm > self.sensitivity:
                cut = cut * (self.sensitivity / norm)
        if self.kind == "counts":
            # Towards zero: what is clipped stays within its norm, and whole numbers are left.
            return np.floor(cut).astype(np.int64) * self.times
        # The offset is the same whatever the value: two neighbours' integers differ by no more
        # than their parts do, rounded up.
        offsets = coins.words(self.cells, np.uint32).astype(np.float64) / 2.0**32
        rounded = np.floor(cut / self.step + offsets).astype(np.int64)
        return np.clip(rounded, -self.bound, self.bound)

    def beyond(self, values: NDArray[np.float64]) -> int:
        """Return how many of a client's numbers are cut, since they are not as declared."""
        return int(np.count_nonzero(self._within(values) != values))

    def _within(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        least = 0.0 if self.kind == "counts" else -self.most
        return np.clip(values, least, self.most)

    def values(self, total: NDArray[np.int64]) -> NDArray[np.int64] | NDArray[np.float64]:
        """Return what a sum of integer units says, in the units of the reply.

        Parameters
        ----------
        total : ndarray of int64, shape (cells,)
            Perhaps with noise.

        Returns
        -------
        ndarray of int64 or float64, shape (cells,)
            Counts to the nearest whole number, which costs no privacy.
        """
        if self.kind == "reals":
            real: NDArray[np.float64] = total.astype(np.float64) * self.step
            return real
        return total if self.times == 1 else np.rint(total / self.times).astype(np.int64)


def dimension_of(sums: Sequence[DeclaredSum]) -> int:
    """Return how many numbers all sums are."""
    return sum(one.cells for one in sums)


def moves_of(sums: Sequence[DeclaredSum], adjacency: Adjacency) -> tuple[int, ...]:
    """Return the one-coordinate moves of all sums.

    Parameters
    ----------
    sums : sequence of DeclaredSum
    adjacency : {"zero_out", "replace"}

    Returns
    -------
    tuple of int
        In their order.
    """
    return tuple(move for one in sums for move in one.moves(adjacency))


class SumQuestion(Spec):
    """The parts of a request for sums of an app's values, but the app's own records."""

    kind: Literal["query"] = "query"
    round: int
    seed: int
    population: int
    privacy: SumPrivacy
    sums: Annotated[tuple[DeclaredSum, ...], Field(min_length=1)]
    """All that is summed, in the order of the vector."""
    noise_draw: Literal["per_client"] = "per_client"

    @model_validator(mode="after")
    def _is_protected(self) -> Self:
        names = [(one.record, one.key) for one in self.sums]
        if len(set(names)) < len(names):
            raise ValueError("a value is declared twice")
        for one in self.sums:
            if self.privacy.private != (one.sensitivity is not None):
                raise ValueError(f"{one.name}: a sensitivity is for noise, and noise needs one")
        return self
