"""One upper bound on epsilon against one observer, with everything that makes it a statement."""

import math
from dataclasses import dataclass
from typing import Final

from zerosum.server.privacy.observers import OBSERVERS, ObserverName

UNITS: Final = ("client", "example", "record")
"""What a figure can protect: ``privacy.unit`` of training, or that of a budget of queries."""


@dataclass(frozen=True)
class EpsilonBound:
    """An epsilon that holds against one observer; infinite where none does.

    A number without its observer, unit and assumptions is no promise to anybody, so that none can
    be built without them.

    Parameters
    ----------
    value : float
        Epsilon; ``math.inf`` where no finite one holds.
    delta : float
        The delta that it holds at.
    slack : float
        Part of delta that samplers and coupling cost; it is inside ``delta``.
    adjacency : str or None
        "zero_out", "replace" or "add_remove"; None where nothing was compared.
    unit : str
        What is protected: "client" or "example".
    observer : str
        Against whom: one of ``OBSERVERS``.
    accountant : str or None
        What composed the events; None where nothing was composed.
    participations : int or None
        Contributions, or releases, that were composed; None where they are not to be told.
    assumptions : tuple of str
        What must hold for the bound to be true.
    reason : str or None
        Why no finite epsilon holds; None where one does.

    Raises
    ------
    ValueError
        If the value is negative or NaN, delta or slack are no probabilities, unit or observer are
        unknown, a finite value states no assumption, or an infinite one no reason.
    """

    value: float
    delta: float
    slack: float
    adjacency: str | None
    unit: str
    observer: ObserverName
    accountant: str | None
    participations: int | None
    assumptions: tuple[str, ...]
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.observer not in OBSERVERS:
            raise ValueError(f"observer {self.observer!r}: one of {', '.join(OBSERVERS)}")
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r}: one of {', '.join(UNITS)}")
        if not self.value >= 0:  # NaN is not
            raise ValueError(f"epsilon_{self.observer} = {self.value} is no bound")
        for name in ("delta", "slack"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise ValueError(f"epsilon_{self.observer} at {name} = {share}: no probability")
        if self.finite and not self.assumptions:
            raise ValueError(f"epsilon_{self.observer} = {self.value:g} states no assumption")
        if self.finite == bool(self.reason):
            raise ValueError(
                f"epsilon_{self.observer} = {self.value:g} with reason {self.reason!r}: an "
                "infinite figure has one, a finite figure has none"
            )

    @property
    def finite(self) -> bool:
        """Return whether a finite epsilon holds."""
        return math.isfinite(self.value)


def no_bound(
    observer: ObserverName,
    delta: float,
    reason: str,
    *,
    unit: str,
    adjacency: str | None = None,
) -> EpsilonBound:
    """Return the infinite figure, with its reason.

    Parameters
    ----------
    observer : str
        Against whom nothing finite holds.
    delta : float
        The delta that was asked for.
    reason : str
        Why nothing holds.
    unit : str
        What was to be protected.
    adjacency : str, optional
        What was compared, where the mechanism has an adjacency at all.

    Returns
    -------
    EpsilonBound
        Its value is ``math.inf``.
    """
    return EpsilonBound(
        value=math.inf,
        delta=delta,
        slack=0.0,
        adjacency=adjacency,
        unit=unit,
        observer=observer,
        accountant=None,
        participations=None,
        assumptions=(),
        reason=reason,
    )
