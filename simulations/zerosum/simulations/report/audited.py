"""An audit's result in a run folder."""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerosum.server.runs.run_folder import RunFolder

log = logging.getLogger("zerosum.simulations")

AUDIT = "audit.json"
"""Optional: what ``zerosum audit`` found out about a run's protection."""


@dataclass(frozen=True)
class Audited:
    """The canaries' lower bounds, beside the ledger's upper one.

    Parameters
    ----------
    lower, null : tuple of float
        Lower bounds on epsilon, one a repetition; those of guesses about other coins.
    upper : float
        The ledger's epsilon of the audited round.
    delta, confidence : float
        Of both bounds; of each lower bound.
    canaries, guesses : int
        Clients with a coin each; coins that were guessed.
    noise_multiplier : float
        Noise of the audited round.
    protocol : str
        How sums were formed.
    largest : float
        The lower bound that guesses which are all right would have given.
    """

    lower: tuple[float, ...]
    null: tuple[float, ...]
    upper: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    noise_multiplier: float
    protocol: str
    largest: float = math.inf

    @property
    def able(self) -> bool:
        """Return whether the audit could have contradicted the upper bound at all."""
        return self.largest > self.upper

    @property
    def passed(self) -> bool:
        """Return whether no lower bound exceeds the upper one."""
        return max(self.lower) <= self.upper


def read_audit(folder: RunFolder) -> Audited | None:
    """Read ``audit.json``; None where there is none, or none that can be read."""
    try:
        values = json.loads((folder.path / AUDIT).read_text(encoding="utf-8"))
        return _audited(values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("%s is left out of the report: %s", AUDIT, error)
        return None


def _audited(values: Mapping[str, Any]) -> Audited:
    audited = Audited(
        lower=tuple(map(float, values["lower"])),
        null=tuple(map(float, values["null"])),
        upper=float(values["upper"]),
        delta=float(values["delta"]),
        confidence=float(values["confidence"]),
        canaries=int(values["canaries"]),
        guesses=int(values["guesses"]),
        noise_multiplier=float(values["noise_multiplier"]),
        protocol=str(values["protocol"]),
        largest=float(values.get("largest", math.inf)),
    )
    if not audited.lower or not audited.null or not math.isfinite(audited.upper):
        raise ValueError("it holds no bounds")
    return audited
