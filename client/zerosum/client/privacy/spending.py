"""Record what a client has spent of its privacy, across runs and restarts."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeGuard

from zerosum.client.renyi_filter import ORDERS


@dataclass(frozen=True)
class Spending:
    """Contributions of one client and what they cost it, across runs and restarts.

    Attributes
    ----------
    contributions : int
        Vectors sent.
    charged : int
        Those of them whose cost is in ``divergences``. Fewer than ``contributions`` where a vector
        had no bound, or was sent by a version that did not charge as this one does.
    divergences : tuple of float
        Sum of their Renyi divergences at each of :data:`~zerosum.client.renyi_filter.ORDERS`;
        empty for none.
    by_run : mapping of str to int
        Contributions to each run, by the SHA-256 of its id in hexadecimal digits.
    order : int or None
        The order at which the budget is kept: fixed when a policy first had a ``max_epsilon``.
    max_epsilon, delta : float or None
        Of the policy that was last in force.
    """

    contributions: int = 0
    charged: int = 0
    divergences: tuple[float, ...] = ()
    by_run: Mapping[str, int] = field(default_factory=dict)
    order: int | None = None
    max_epsilon: float | None = None
    delta: float | None = None

    @property
    def bounded(self) -> bool:
        """Return whether every vector sent has a cost."""
        return self.charged == self.contributions

    def with_contribution(self, cost: Sequence[float] | None, run_id: bytes = b"") -> Self:
        """Count one more vector; a cost of None, or at other orders, is none.

        Parameters
        ----------
        cost : sequence of float or None
            Renyi divergences at all orders.
        run_id : bytes
            Whose vector it is.

        Returns
        -------
        Spending
            A new record.
        """
        run = run_name(run_id)
        counted = replace(
            self,
            contributions=self.contributions + 1,
            by_run={**self.by_run, run: self.by_run.get(run, 0) + 1},
        )
        if cost is None or len(cost) != len(ORDERS):
            return counted
        before = self.divergences or (0.0,) * len(ORDERS)
        total = tuple(float(a + b) for a, b in zip(before, cost, strict=True))
        return replace(counted, charged=self.charged + 1, divergences=total)

    def with_budget(self, order: int, max_epsilon: float, delta: float) -> Self:
        """Open a budget, or move its limits: the first order stays.

        Costs add up to a valid bound only at an order that was fixed before they were incurred.

        Parameters
        ----------
        order : int
            The Renyi order of this policy.
        max_epsilon, delta : float
            Its limits.

        Returns
        -------
        Spending
            A new record.
        """
        first = order if self.order is None else self.order
        return replace(self, order=first, max_epsilon=max_epsilon, delta=delta)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the number of contributions is kept beside them."""
        return {
            "charged": self.charged,
            "divergences": list(self.divergences),
            "by_run": dict(self.by_run),
            "order": self.order,
            "max_epsilon": self.max_epsilon,
            "delta": self.delta,
        }

    @classmethod
    def from_json(cls, contributions: object, value: object) -> Self:
        """Read what :meth:`to_json` wrote.

        Parameters
        ----------
        contributions : object
            The count that is kept beside it.
        value : object
            Decoded JSON. An empty mapping is a record from before there was one: nothing of
            what was sent is charged.

        Returns
        -------
        Spending
            Consistent with itself.

        Raises
        ------
        ValueError
            If it is anything else, or contradicts itself.
        """
        if not _is_count(contributions) or not isinstance(value, dict):
            raise ValueError("no record of contributions")
        fields = cls().to_json()
        if value and value.keys() != fields.keys():
            raise ValueError("another record's keys")
        read = fields | value
        spending = cls(
            contributions=contributions,
            charged=read["charged"],
            divergences=tuple(read["divergences"]) if _are_costs(read["divergences"]) else (-1.0,),
            by_run=read["by_run"],
            order=read["order"],
            max_epsilon=read["max_epsilon"],
            delta=read["delta"],
        )
        if not spending._is_consistent():
            raise ValueError("the record contradicts itself")
        return spending

    def _is_consistent(self) -> bool:
        runs = self.by_run
        limits = (self.max_epsilon, self.delta)
        opened = type(self.order) is int and self.order in ORDERS and all(map(_is_positive, limits))
        return (
            _is_count(self.charged)
            and self.charged <= self.contributions
            and len(self.divergences) == (len(ORDERS) if self.charged else 0)
            and isinstance(runs, dict)
            and all(map(_is_count, runs.values()))
            and sum(runs.values()) <= self.contributions
            and (opened or (self.order is None and limits == (None, None)))
        )


def run_name(run_id: bytes) -> str:
    """Return how a record names a run: 64 hexadecimal digits."""
    return hashlib.sha256(run_id).hexdigest()


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _is_positive(value: object) -> bool:
    return type(value) is float and math.isfinite(value) and value > 0


def _are_costs(value: object) -> bool:
    # An infinite divergence at a high order is a cost like any other; NaN compares with nothing.
    return isinstance(value, list) and all(type(one) is float and one >= 0 for one in value)
