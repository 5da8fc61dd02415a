"""Record what a client has spent of its privacy, across runs and restarts."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeAlias, TypeGuard

from zerosum.client.renyi_filter import ORDERS

BudgetUnit: TypeAlias = Literal["client", "record"]
"""Who a cost protects: all of a client's data, or one record of it."""

BudgetRule: TypeAlias = Literal["renyi", "sum"]
"""How costs are held to a limit: Renyi divergences at one order, or pure epsilons."""


@dataclass(frozen=True)
class UnitPrice:
    """Cost of one contribution to one unit of privacy.

    Attributes
    ----------
    row : tuple of float or None
        Renyi divergences at :data:`~zerosum.client.renyi_filter.ORDERS`; None where nothing bounds
        them.
    pure : float or None
        Epsilon at delta 0; None where there is none.
    """

    row: tuple[float, ...] | None = None
    pure: float | None = None


UNBOUNDED: Final = UnitPrice()
"""What has no bound."""


@dataclass(frozen=True)
class Price:
    """Cost of one contribution, to its client as a whole and to one record of it."""

    client: UnitPrice = UNBOUNDED
    record: UnitPrice = UNBOUNDED

    def of_unit(self, unit: BudgetUnit) -> UnitPrice:
        """Return the cost to one unit."""
        return self.record if unit == "record" else self.client

    @classmethod
    def of(cls, cost: "Price | Sequence[float] | None") -> "Price":
        """Return a price; a bare row of divergences is the client's, and None has no bound."""
        if isinstance(cost, Price):
            return cost
        return cls() if cost is None else cls(UnitPrice(tuple(cost)))


@dataclass(frozen=True)
class UnitSpending:
    """Costs of a client's contributions to one unit of privacy.

    Attributes
    ----------
    charged : int
        Contributions whose divergences are in the sum.
    divergences : tuple of float
        Their sum at each of :data:`~zerosum.client.renyi_filter.ORDERS`; empty for none.
    pure_charged : int
        Contributions whose pure epsilon is in the sum.
    pure : float
        That sum.
    """

    charged: int = 0
    divergences: tuple[float, ...] = ()
    pure_charged: int = 0
    pure: float = 0.0

    def with_price(self, price: UnitPrice) -> "UnitSpending":
        """Add a contribution; a part that is None, or of other orders, is not charged."""
        added = self
        if price.row is not None and len(price.row) == len(ORDERS):
            before = self.divergences or (0.0,) * len(ORDERS)
            total = tuple(float(a + b) for a, b in zip(before, price.row, strict=True))
            added = replace(added, charged=self.charged + 1, divergences=total)
        if price.pure is not None:
            pure = self.pure + float(price.pure)
            added = replace(added, pure_charged=self.pure_charged + 1, pure=pure)
        return added

    def bounds(self, contributions: int, rule: BudgetRule) -> bool:
        """Test whether every contribution is in the sum that a rule adds up.

        Parameters
        ----------
        contributions : int
            Vectors sent.
        rule : str
            Of the budget.

        Returns
        -------
        bool
            False where one of them had no bound.
        """
        return (self.pure_charged if rule == "sum" else self.charged) == contributions

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "charged": self.charged,
            "divergences": list(self.divergences),
            "pure_charged": self.pure_charged,
            "pure": self.pure,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote, unchecked."""
        costs = value["divergences"]
        return cls(
            charged=value["charged"],
            divergences=tuple(costs) if _are_costs(costs) else (-1.0,),
            pure_charged=value["pure_charged"],
            pure=value["pure"],
        )

    def is_consistent(self, contributions: int) -> bool:
        """Test whether so many contributions can have cost this.

        Parameters
        ----------
        contributions : int
            Vectors sent, of any cost.

        Returns
        -------
        bool
            False for a damaged record.
        """
        return (
            _is_count(self.charged)
            and self.charged <= contributions
            and len(self.divergences) == (len(ORDERS) if self.charged else 0)
            and _is_count(self.pure_charged)
            and self.pure_charged <= contributions
            and _is_sum(self.pure)
            and (self.pure_charged > 0 or self.pure == 0)
        )


@dataclass(frozen=True)
class Spending:
    """Contributions of one client and what they cost it, across runs and restarts.

    Attributes
    ----------
    contributions : int
        Vectors sent.
    client, record : UnitSpending
        What they cost the client as a whole, and one record of it. Fewer are charged than were
        sent where a vector had no bound, or was sent by a version that did not charge as this one.
    by_run : mapping of str to int
        Contributions to each run, by the SHA-256 of its id in hexadecimal digits.
    rule : str or None
        How the budget is kept: fixed when a policy first had a ``max_epsilon``.
    order : int or None
        Under the rule "renyi": the order at which it is kept, fixed then as well.
    max_epsilon, delta : float or None
        Of the policy that was last in force.
    """

    contributions: int = 0
    client: UnitSpending = UnitSpending()
    record: UnitSpending = UnitSpending()
    by_run: Mapping[str, int] = field(default_factory=dict)
    rule: BudgetRule | None = None
    order: int | None = None
    max_epsilon: float | None = None
    delta: float | None = None

    def of(self, unit: BudgetUnit) -> UnitSpending:
        """Return what was spent of one unit."""
        return self.record if unit == "record" else self.client

    @property
    def divergences(self) -> tuple[float, ...]:
        """Sum of the client's divergences; empty for none."""
        return self.client.divergences

    @property
    def bounded(self) -> bool:
        """Return whether every vector sent has a cost to the client as a whole."""
        return self.client.bounds(self.contributions, "renyi")

    def with_contribution(
        self, cost: Price | Sequence[float] | None, run_id: bytes = b""
    ) -> "Spending":
        """Count one more vector; a cost of None, or at other orders, is none.

        Parameters
        ----------
        cost : Price or sequence of float or None
            A bare row is that of the client.
        run_id : bytes
            Whose vector it is.

        Returns
        -------
        Spending
            A new record.
        """
        run, price = run_name(run_id), Price.of(cost)
        return replace(
            self,
            contributions=self.contributions + 1,
            client=self.client.with_price(price.client),
            record=self.record.with_price(price.record),
            by_run={**self.by_run, run: self.by_run.get(run, 0) + 1},
        )

    def with_budget(
        self, order: int | None, max_epsilon: float, delta: float, rule: BudgetRule = "renyi"
    ) -> "Spending":
        """Open a budget, or move its limits: the first rule and order stay.

        Costs add up to a valid bound only by a rule, and at an order, that were fixed before they
        were incurred.

        Parameters
        ----------
        order : int or None
            The Renyi order of this policy; None under the rule "sum".
        max_epsilon, delta : float
            Its limits.
        rule : str
            What it asks for.

        Returns
        -------
        Spending
            A new record.
        """
        if self.rule is not None:
            return replace(self, max_epsilon=max_epsilon, delta=delta)
        return replace(self, rule=rule, order=order, max_epsilon=max_epsilon, delta=delta)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the number of contributions is kept beside them."""
        return {
            **self.client.to_json(),
            "record": self.record.to_json(),
            "by_run": dict(self.by_run),
            "rule": self.rule,
            "order": self.order,
            "max_epsilon": self.max_epsilon,
            "delta": self.delta,
        }

    @classmethod
    def from_json(cls, contributions: object, value: object) -> Self:
        """Read what :meth:`to_json` wrote, or an earlier version.

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
        if value.keys() == fields.keys() - _ADDED:
            value = value | _of_records(value)
        elif value and value.keys() != fields.keys():
            raise ValueError("another record's keys")
        read = fields | value
        if not isinstance(read["record"], dict) or read["record"].keys() != _UNIT_KEYS:
            raise ValueError("no costs of records")
        spending = cls(
            contributions=contributions,
            client=UnitSpending.from_json(read),
            record=UnitSpending.from_json(read["record"]),
            by_run=read["by_run"],
            rule=read["rule"],
            order=read["order"],
            max_epsilon=read["max_epsilon"],
            delta=read["delta"],
        )
        if not spending._is_consistent():
            raise ValueError("the record contradicts itself")
        return spending

    def _is_consistent(self) -> bool:
        runs = self.by_run
        return (
            self.client.is_consistent(self.contributions)
            and self.record.is_consistent(self.contributions)
            and isinstance(runs, dict)
            and all(map(_is_count, runs.values()))
            and sum(runs.values()) <= self.contributions
            and self._budget_is_whole()
        )

    def _budget_is_whole(self) -> bool:
        """Return whether a budget was opened wholly, or not at all."""
        order, limits = self.order, (self.max_epsilon, self.delta)
        if self.rule is None:
            return order is None and limits == (None, None)
        if not all(map(_is_positive, limits)):
            return False
        if self.rule == "sum":
            return order is None
        return self.rule == "renyi" and type(order) is int and order in ORDERS


_UNIT_KEYS: Final = UnitSpending().to_json().keys()
_ADDED: Final = {"pure_charged", "pure", "record", "rule"}
"""Keys of :meth:`Spending.to_json` that records from before there were queries lack."""


def _of_records(earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record of before there were queries lacks: one rule, and costs to a record."""
    rule = None if earlier["order"] is None else "renyi"
    rows = earlier["divergences"]
    if not (_are_costs(rows) and len(rows) == len(ORDERS)):
        return {"rule": rule}
    record = UnitSpending(charged=earlier["charged"], divergences=_replaced(rows))
    return {"rule": rule, "record": record.to_json()}


def _replaced(row: Sequence[float]) -> tuple[float, ...]:
    """Bound the divergences under replacement by those from zero.

    Two vectors are each at these divergences from zero, and so from one another at most
    (alpha - 1/2) / (alpha - 1) R(2 alpha) + R(2 alpha - 1): Mironov, "Renyi differential privacy"
    (2017), Proposition 11, with p = q = 2. Above half of the largest order nothing is known.

    Parameters
    ----------
    row : sequence of float
        At all orders.

    Returns
    -------
    tuple of float
        At all orders; inf where there is no bound.
    """
    at = dict(zip(ORDERS, row, strict=True))
    return tuple(
        (order - 0.5) / (order - 1) * at[2 * order] + at[2 * order - 1]
        if 2 * order in at
        else math.inf
        for order in ORDERS
    )


def run_name(run_id: bytes) -> str:
    """Return how a record names a run: 64 hexadecimal digits."""
    return hashlib.sha256(run_id).hexdigest()


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _is_positive(value: object) -> bool:
    return type(value) is float and math.isfinite(value) and value > 0


def _is_sum(value: object) -> bool:
    return type(value) is float and value >= 0  # NaN is not; infinity admits nothing more


def _are_costs(value: object) -> bool:
    # An infinite divergence at a high order is a cost like any other; NaN compares with nothing.
    return isinstance(value, list) and all(type(one) is float and one >= 0 for one in value)
